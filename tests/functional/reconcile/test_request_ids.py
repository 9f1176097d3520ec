"""Request ids of a cycle: in its requests, in Placement's log, and in our errors."""

import logging
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from oslo_context.context import get_current
from placement import requestlog

from tests.lab.cycles import Publishing
from tests.lab.drivers import flat
from tests.lab.placement import PlacementFixture, adapter_to
from wharfinger.exceptions import NotFound, PlacementUnavailable
from wharfinger.placement.client import PlacementClient
from wharfinger.request_id import current, same_request


class Lines(logging.Handler):
    """Collects the lines of Placement's log, with the global and the local request id."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        its = get_current()
        assert its is not None
        self.lines.append(f"{its.global_request_id} {its.request_id} {record.getMessage()}")


@pytest.fixture
def placement_log() -> Iterator[Lines]:
    handler, logger = Lines(), logging.getLogger(requestlog.__name__)
    level = logger.level
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    disabled, logging.root.manager.disable = logging.root.manager.disable, 0
    yield handler
    logging.root.manager.disable = disabled
    logger.removeHandler(handler)
    logger.setLevel(level)


def test_requests_of_one_cycle_share_an_id(
    publishing: Publishing, placement: PlacementFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests that several threads send have the id, too."""
    sent: list[str | None] = []
    send = placement.adapter.request

    def request(path: str, method: str, **kwargs: Any) -> Any:
        sent.append(kwargs["global_request_id"])
        return send(path, method, **kwargs)

    monkeypatch.setattr(placement.adapter, "request", request)
    publishing.driver.nodes |= {f"cn-{number}": flat(VCPU=8) for number in range(6)}
    ids = []
    for cycle in (publishing.cycle.sync, publishing.cycle.sync, publishing.cycle.drift):
        sent.clear()
        cycle()
        [request_id] = set(sent)
        ids.append(request_id)
    assert len(set(ids)) == 3
    assert None not in ids

    sent.clear()
    with same_request():
        publishing.cycle.sync()
        assert set(sent) == {current()}
    publishing.client.list_resource_classes()
    assert sent[-1] is None


def test_error_names_the_request_id_of_placements_log(
    placement: PlacementFixture, placement_log: Lines
) -> None:
    with same_request(), pytest.raises(NotFound) as caught:
        ours = current()
        placement.client.get_traits(str(uuid.uuid4()))

    error = caught.value
    assert str(error).endswith(f" (request {error.request_id})")
    assert error.identity == str(error).removesuffix(f" (request {error.request_id})")
    [line] = [one for one in placement_log.lines if "status: 404" in one]
    assert line.startswith(f"{ours} {error.request_id} ")


def test_error_without_an_answer_names_the_id_of_the_cycle() -> None:
    client = PlacementClient(adapter_to("http://127.0.0.1:1"))
    with same_request(), pytest.raises(PlacementUnavailable) as caught:
        ours = current()
        client.list_resource_classes()
    assert str(caught.value).endswith(f" (request {ours})")

    with pytest.raises(PlacementUnavailable) as caught:
        client.list_resource_classes()
    assert "(request " not in str(caught.value)
