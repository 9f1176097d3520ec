"""The client with the real Placement: answers, and exceptions for errors."""

import json
import re
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.lab.cycles import Publishing, allocate, contents
from tests.lab.drivers import flat
from tests.lab.faults import LATIN_1, NESTED
from tests.lab.placement import PlacementFixture, RecordingAdapter, adapter_to, lower
from wharfinger import exceptions
from wharfinger.conformance.other_program_client import WritingClient
from wharfinger.placement.microversions import Feature
from wharfinger.placement.model import ProviderSummary
from wharfinger.providers import Inventory


@pytest.fixture
def provider(placement: PlacementFixture) -> ProviderSummary:
    return placement.client.create_provider(str(uuid.uuid4()), "cn", None)


def test_written_values_are_read_back(
    placement: PlacementFixture, provider: ProviderSummary
) -> None:
    client, aggregate = placement.client, str(uuid.uuid4())
    inventory = Inventory(
        total=8, reserved=8, min_unit=2, max_unit=4, step_size=2, allocation_ratio=1.5
    )

    generation = client.set_traits(provider.uuid, provider.generation, ["OWNER_NOVA"])
    generation = client.set_aggregates(provider.uuid, generation, [aggregate])
    generation = client.set_inventories(provider.uuid, generation, {"VCPU": inventory})

    assert client.get_traits(provider.uuid).traits == {"OWNER_NOVA"}
    assert client.get_aggregates(provider.uuid).aggregates == {aggregate}
    assert client.get_inventories(provider.uuid).inventories == {"VCPU": inventory}
    assert client.get_inventories(provider.uuid).resource_provider_generation == generation
    assert client.get_usages(provider.uuid) == {"VCPU": 0}


def test_providers_are_listed_by_every_filter(
    placement: PlacementFixture, provider: ProviderSummary
) -> None:
    client = placement.client
    child = client.create_provider(str(uuid.uuid4()), "a name/with?odd&characters", provider.uuid)
    client.set_traits(child.uuid, child.generation, ["OWNER_CYBORG"])

    assert [one.uuid for one in client.list_providers(name=child.name)] == [child.uuid]
    assert [one.name for one in client.list_providers(uuid=child.uuid)] == [child.name]
    assert {one.name for one in client.list_providers(in_tree=child.uuid)} == {"cn", child.name}
    assert [one.name for one in client.list_providers(required=("OWNER_CYBORG",))] == [child.name]
    (found,) = client.list_providers(uuid=child.uuid)
    assert (found.parent_provider_uuid, found.root_provider_uuid) == (provider.uuid,) * 2


def test_provider_is_renamed_and_moved(
    placement: PlacementFixture, provider: ProviderSummary
) -> None:
    client = placement.client
    other = client.create_provider(str(uuid.uuid4()), "other", None)
    child = client.create_provider(str(uuid.uuid4()), "child", provider.uuid)

    client.update_provider(child.uuid, "renamed", other.uuid)

    (found,) = client.list_providers(uuid=child.uuid)
    assert (found.name, found.parent_provider_uuid) == ("renamed", other.uuid)


Call = Callable[[WritingClient, ProviderSummary], Any]

ERRORS: dict[str, tuple[Call, type[exceptions.PlacementError]]] = {
    "a stale generation": (
        lambda client, cn: client.set_traits(cn.uuid, cn.generation + 7, []),
        exceptions.ConcurrentUpdate,
    ),
    "a name that is taken": (
        lambda client, cn: client.create_provider(str(uuid.uuid4()), "cn", None),
        exceptions.DuplicateProvider,
    ),
    "a uuid that is taken": (
        lambda client, cn: client.create_provider(cn.uuid, "another", None),
        exceptions.DuplicateProvider,
    ),
    "a provider that is not there": (
        lambda client, cn: client.get_inventories(str(uuid.uuid4())),
        exceptions.NotFound,
    ),
    "a parent with children": (
        lambda client, cn: client.delete_provider(
            str(client.create_provider(str(uuid.uuid4()), "child", cn.uuid).parent_provider_uuid)
        ),
        exceptions.ProviderInUse,
    ),
    "an unknown trait": (
        lambda client, cn: client.set_traits(cn.uuid, cn.generation, ["CUSTOM_NOBODYS"]),
        exceptions.PlacementError,
    ),
    "a stale generation in a reshape": (
        lambda client, cn: client.reshape({cn.uuid: (7, {"VCPU": Inventory(total=1)})}, {}),
        exceptions.ConcurrentUpdate,
    ),
}


def test_error_becomes_an_exception_with_its_facts(
    placement: PlacementFixture, provider: ProviderSummary
) -> None:
    for what, (call, kind) in ERRORS.items():
        with pytest.raises(exceptions.PlacementError) as caught:
            call(placement.client, provider)

        assert type(caught.value) is kind, what
        assert caught.value.status >= 400, what
        assert caught.value.detail, what
        assert "\n" not in str(caught.value), what


def test_allocated_inventory_and_provider_cannot_be_deleted(
    placement: PlacementFixture, provider: ProviderSummary
) -> None:
    client, consumer = placement.client, str(uuid.uuid4())
    generation = client.set_inventories(
        provider.uuid, provider.generation, {"VCPU": Inventory(total=8)}
    )
    allocate(placement, consumer, cn={"VCPU": 2})

    with pytest.raises(exceptions.InventoryInUse):
        client.set_inventories(provider.uuid, generation + 1, {})
    with pytest.raises(exceptions.ProviderInUse):
        client.delete_provider(provider.uuid)
    assert list(client.get_provider_allocations(provider.uuid)) == [consumer]
    assert client.get_usages(provider.uuid) == {"VCPU": 2}


def test_client_uses_the_newest_common_microversion(
    placement: PlacementFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert str(placement.client.microversion) == "1.39"
    lower(monkeypatch, "1.36")
    older = placement.new_client()

    assert str(older.microversion) == "1.36"
    older.require(Feature.RESHAPE, "a reshape")
    with pytest.raises(exceptions.MicroversionUnsupported, match=r"moving it: needs .*1\.37"):
        older.require(Feature.REPARENT, "moving it")


def test_answer_that_is_no_json_is_an_unexpected_answer(placement: PlacementFixture) -> None:
    class Proxy:
        def request(self, path: str, method: str, **kwargs: Any) -> Any:
            response = placement.adapter.request(path, method, **kwargs)
            if path != "/":
                response._content = b"<html>Bad gateway</html>"
            return response

    with pytest.raises(exceptions.UnexpectedAnswer, match="GET /resource_providers"):
        WritingClient(Proxy()).list_providers()  # type: ignore[arg-type]


class Altered(RecordingAdapter):
    """An adapter that replaces the answers to requests whose path ends with ``ending``."""

    def __init__(self, adapter: Any, ending: str, body: bytes, status: int = 200) -> None:
        super().__init__(adapter)
        self._ending, self._body, self._status = ending, body, status

    def request(self, path: str, method: str, **kwargs: Any) -> Any:
        response = super().request(path, method, **kwargs)
        if path.endswith(self._ending):
            response._content, response.status_code = self._body, self._status
        return response


def altered(placement: PlacementFixture, ending: str, body: bytes, status: int) -> WritingClient:
    return WritingClient(Altered(placement.adapter, ending, body, status))  # type: ignore[arg-type]


# Version discovery.

NOVA = {
    "versions": [
        {"id": "v2.0", "status": "SUPPORTED", "version": "", "min_version": "", "links": []},
        {"id": "v2.1", "status": "CURRENT", "version": "2.96", "min_version": "2.1", "links": []},
    ]
}


def test_answer_of_another_service_names_the_option_to_correct(placement: PlacementFixture) -> None:
    for body in (
        json.dumps(NOVA).encode(),
        b'{"versions": {"values": [{"id": "v3.14"}]}}',
        b'{"versions": []}',
        b'{"versions": [{"id": "v1.0", "min_version": "1.0", "max_version": "1.x"}]}',
        b'{"versions": [{"id": "v1.0", "min_version": "1.0", "max_version": ""}]}',
        b"[]",
        b"{}",
        b"",
        b"<html>Welcome</html>",
        LATIN_1,
        NESTED,
    ):
        client = altered(placement, "/", body, 200)

        with pytest.raises(exceptions.UnexpectedAnswer, match="not come from Placement") as caught:
            client.list_providers()

        assert "[placement] endpoint_override" in str(caught.value)
        assert (caught.value.request, caught.value.status) == ("GET /", 200)
        assert not placement.requests, body[:80]


def test_client_uses_the_newest_common_microversion_of_all_versions(
    placement: PlacementFixture,
) -> None:
    for used, ranges in (
        ("1.39", ["1.0 1.100"]),
        ("1.39", ["1.39 1.100"]),
        ("1.36", ["1.0 1.36"]),
        ("1.38", ["1.0 1.30", "1.31 1.38"]),
        ("1.38", ["1.31 1.38", "1.0 1.30"]),
        ("1.39", ["1.0 1.39", "2.0 2.7"]),
        ("1.39", ["2.0 2.7", "1.0 1.39"]),
    ):
        client = altered(placement, "/", versions(*ranges), 200)
        assert str(client.microversion) == used, ranges
        assert client.list_providers() == []


def versions(*ranges: str) -> bytes:
    """Return an answer to GET / with these versions, each as "oldest newest"."""
    found = []
    for number, one in enumerate(ranges):
        oldest, newest = one.split()
        found.append({"id": f"v{number}", "min_version": oldest, "max_version": newest})
    return json.dumps({"versions": found}).encode()


# Unreadable answers.


@pytest.mark.parametrize(
    "body", [b"{}", b"[]", b'{"allocations": null}', b'{"allocations": {"provider": {}}}']
)
def test_allocations_in_another_form_are_an_unexpected_answer(
    placement: PlacementFixture, body: bytes
) -> None:
    consumer = "6f9de2f4-9d0c-4d0f-a4a6-0c2c5b1f7d31"
    client = altered(placement, consumer, body, 200)

    with pytest.raises(exceptions.UnexpectedAnswer, match=consumer):
        client.get_allocations(consumer)


@pytest.mark.parametrize("status", [200, 500])
@pytest.mark.parametrize("body", [LATIN_1, NESTED], ids=["latin-1", "nested"])
def test_undecodable_answer_is_an_error_with_its_status(
    placement: PlacementFixture, provider: ProviderSummary, body: bytes, status: int
) -> None:
    client = altered(placement, "traits", body, status)

    with pytest.raises(exceptions.PlacementError, match="traits") as caught:
        client.get_traits(provider.uuid)

    assert caught.value.status == status
    assert isinstance(caught.value, exceptions.UnexpectedAnswer) == (status == 200)
    assert len(str(caught.value)) < 1000


def test_undecodable_answer_fails_only_its_tree(
    placement: PlacementFixture, tmp_path: Path
) -> None:
    with Publishing(placement, tmp_path / "state") as publishing:
        publishing.driver.nodes |= {name: flat(CUSTOM_GOLD=1) for name in ("one", "two")}
        publishing.cycle.sync()
        (one,) = placement.client.list_providers(name="one")
        # Another client adds a trait, so the sync reads the provider again.
        traits = placement.client.get_traits(one.uuid).traits | {"HW_CPU_X86_AVX"}
        placement.client.set_traits(one.uuid, one.generation, traits)
        plain = placement.adapter
        placement.adapter = Altered(plain, f"{one.uuid}/inventories", NESTED)
        publishing.driver.nodes |= {name: flat(CUSTOM_GOLD=2) for name in ("one", "two")}

        outcome = publishing.restarted().sync()

        placement.adapter = plain
        (problem,) = outcome.problems
        assert isinstance(problem, exceptions.UnexpectedAnswer)
        assert one.uuid in str(problem)
        assert contents(placement)["two"]["inventories"] == {"CUSTOM_GOLD": (2, 0)}
        assert not publishing.restarted().sync().problems
        assert contents(placement)["one"]["inventories"] == {"CUSTOM_GOLD": (2, 0)}


def test_endless_explanation_is_shortened(
    placement: PlacementFixture, provider: ProviderSummary
) -> None:
    detail = "It is so. " * 20_000
    body = json.dumps({"errors": [{"detail": detail, "code": "placement.x"}]}).encode()

    with pytest.raises(exceptions.PlacementError, match=r"500: It is so\. It is so\.") as caught:
        altered(placement, "traits", body, 500).get_traits(provider.uuid)

    assert len(caught.value.detail) == 1000
    assert caught.value.code == "placement.x"


def test_request_without_an_answer_raises_placement_unavailable() -> None:
    expected = "no answer: Unable to establish connection to http://127.0.0.1:1/: [Errno 111] "
    with pytest.raises(exceptions.PlacementUnavailable, match=re.escape(expected)):
        WritingClient(adapter_to("http://127.0.0.1:1")).list_providers()
