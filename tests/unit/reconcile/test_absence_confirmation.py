"""Questions to a driver about nodes and devices that its listing lacks, before their removal."""

from collections.abc import Mapping
from typing import Final, cast

import pytest

from tests.lab.drivers import ScriptedDriver
from tests.unit.reconcile.states import child, published, root, state_of
from wharfinger.exceptions import WharfingerError
from wharfinger.placement.client import PlacementClient
from wharfinger.placement.model import ProviderSummary
from wharfinger.providers import Provider, names
from wharfinger.providers.provider import Record
from wharfinger.reconcile.absence_confirmation import Availability
from wharfinger.reconcile.node_list import NodeList
from wharfinger.tracker.node_rows import Node

CN: Final = root("cn")
GPU: Final = child("gpu", CN)
LISTED: Final = NodeList(nodes=(Node("cn", CN.uuid),))


class AskedDriver(ScriptedDriver):
    """A driver with answers by name; for other names its backend does not answer.

    A question without an answer takes 100 seconds until it times out.
    """

    def __init__(self, **answers: object) -> None:
        super().__init__()
        self.answers = answers
        self.asked: list[str] = []
        self.seconds = 0.0

    def node_is_available(self, nodename: str) -> bool:
        return self._answer(nodename)

    def provider_is_available(self, provider_uuid: str, name: str) -> bool:
        return self._answer(name)

    def _answer(self, name: str) -> bool:
        self.asked.append(name)
        if name not in self.answers:
            self.seconds += 100
            raise TimeoutError(name)
        answer: bool = self.answers[name]  # type: ignore[assignment]
        return answer


class RootOfAnotherOwner:
    """A Placement client that finds CN under the name "theirs"."""

    def list_providers(self, uuid: str) -> list[ProviderSummary]:
        return [ProviderSummary(uuid, "theirs", 1, uuid, None)] if uuid == CN.uuid else []


def questions(
    driver: AskedDriver,
    *live: Provider,
    nodes: NodeList | None = None,
    records: Mapping[str, Record] | None = None,
    answers: dict[str, bool | WharfingerError] | None = None,
) -> Availability:
    """Return the questions about these providers (by default CN and GPU) without a listed node."""
    state = state_of(*(live or (CN, GPU)), nodes=nodes or NodeList(), records=records or {})
    return Availability(
        driver,
        cast(PlacementClient, RootOfAnotherOwner()),
        state,
        {} if answers is None else answers,
        clock=lambda: driver.seconds,
    )


@pytest.mark.parametrize("answer", [None, 1, "no", TimeoutError])
def test_keep_without_a_boolean_answer_keeps_the_node_with_a_reason(answer: object) -> None:
    driver = AskedDriver() if answer is TimeoutError else AskedDriver(cn=answer)
    reasons, problems = questions(driver).keep([CN.uuid])

    assert "node_is_available(cn) failed: " in reasons[CN.uuid]
    assert problems == []


def test_keep_of_a_node_that_still_exists_keeps_its_devices_and_asks_once() -> None:
    driver = AskedDriver(cn=True)
    reasons, [problem] = questions(driver).keep([CN.uuid, GPU.uuid])

    assert reasons.keys() == {CN.uuid, GPU.uuid}
    assert driver.asked == ["cn"]
    assert (problem.instance, problem.count, problem.names) == ("scripted", 1, ("cn",))


@pytest.mark.parametrize("answer", [True, None], ids=["there", "no answer"])
def test_keep_in_a_later_attempt_of_the_cycle_repeats_no_question(answer: object) -> None:
    driver, answers = AskedDriver(cn=answer), dict[str, bool | WharfingerError]()

    kept = [questions(driver, answers=answers).keep([CN.uuid])[0] for _ in range(2)]

    assert kept[0] == kept[1]
    assert kept[0].keys() == {CN.uuid}
    assert driver.asked == ["cn"]


def test_keep_of_an_absent_node_asks_for_its_devices_too() -> None:
    driver = AskedDriver(cn=False, gpu=False)
    assert questions(driver).keep([CN.uuid, GPU.uuid]) == ({}, [])
    assert sorted(driver.asked) == ["cn", "gpu"]


@pytest.mark.parametrize("is_there", [True, False])
def test_keep_of_a_device_of_a_listed_node_asks_only_for_the_device(is_there: bool) -> None:
    driver = AskedDriver(gpu=is_there)
    reasons, problems = questions(driver, nodes=LISTED).keep([GPU.uuid])

    assert bool(reasons) == is_there
    assert driver.asked == ["gpu"]
    assert [one.names for one in problems] == ([("gpu",)] if is_there else [])


def test_keep_of_a_device_of_a_renamed_node_does_not_ask_for_the_former_name() -> None:
    driver = AskedDriver(gpu=False)
    records = published(root("before", CN.uuid))
    assert questions(driver, nodes=LISTED, records=records).keep([GPU.uuid]) == ({}, [])
    assert driver.asked == ["gpu"]


def test_keep_of_a_node_with_the_name_of_another_asks_no_question() -> None:
    namesake = NodeList(nodes=(Node("cn", names.root_uuid("another")),))
    driver = AskedDriver()
    assert questions(driver, nodes=namesake).keep([CN.uuid]) == ({}, [])
    assert driver.asked == []


def test_keep_of_a_renamed_root_asks_for_the_name_that_was_published() -> None:
    driver = AskedDriver(before=True)
    questions(driver, records=published(root("before", CN.uuid))).keep([CN.uuid])
    assert driver.asked == ["before"]


def test_keep_of_a_device_below_the_root_of_another_owner_looks_up_the_name() -> None:
    driver = AskedDriver(theirs=True)
    reasons, _problems = questions(driver, GPU).keep([GPU.uuid])

    assert reasons.keys() == {GPU.uuid}
    assert driver.asked == ["theirs"]


def test_problems_of_many_nodes_name_ten_and_count_the_others() -> None:
    roots = [root(f"cn-{number:02}") for number in range(12)]
    asked = questions(AskedDriver(**dict.fromkeys([one.name for one in roots], True)), *roots)

    _reasons, [problem] = asked.keep([one.uuid for one in roots])

    assert problem.count == 12
    assert problem.names == tuple(one.name for one in roots)
    assert "cn-09 and 2 more" in str(problem)
    assert "cn-10" not in str(problem)


def test_keep_after_questions_time_out_stops_asking_and_keeps_the_others() -> None:
    roots = [root(f"cn-{number}") for number in range(1000)]
    uuids = [one.uuid for one in roots]

    found, _problems = questions(AskedDriver(), *roots).keep(uuids)

    assert found.keys() == set(uuids)
    reasons = list(found.values())
    assert sum("TimeoutError" in reason for reason in reasons) == 3
    assert sum("already spent" in reason for reason in reasons) == 997
