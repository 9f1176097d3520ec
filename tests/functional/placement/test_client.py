"""The client against the real Placement: what it answers, and what errors become."""

import uuid
from collections.abc import Callable
from typing import Any

import pytest
from keystoneauth1 import token_endpoint
from keystoneauth1.adapter import Adapter
from keystoneauth1.session import Session

from tests.lab.cycles import allocate
from tests.lab.placement import PlacementFixture, lower
from wharfinger import exceptions
from wharfinger.placement.client import PlacementClient
from wharfinger.placement.microversions import Feature
from wharfinger.placement.model import ProviderSummary
from wharfinger.providers import Inventory


@pytest.fixture
def provider(placement: PlacementFixture) -> ProviderSummary:
    return placement.client.create_provider(str(uuid.uuid4()), "cn", None)


def test_everything_that_is_written_is_read_back(
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


def test_a_provider_is_renamed_and_moved(
    placement: PlacementFixture, provider: ProviderSummary
) -> None:
    client = placement.client
    other = client.create_provider(str(uuid.uuid4()), "other", None)
    child = client.create_provider(str(uuid.uuid4()), "child", provider.uuid)

    client.update_provider(child.uuid, "renamed", other.uuid)

    (found,) = client.list_providers(uuid=child.uuid)
    assert (found.name, found.parent_provider_uuid) == ("renamed", other.uuid)


Call = Callable[[PlacementClient, ProviderSummary], Any]

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
    "a trait nobody has created": (
        lambda client, cn: client.set_traits(cn.uuid, cn.generation, ["CUSTOM_NOBODYS"]),
        exceptions.PlacementError,
    ),
    "a stale generation in a reshape": (
        lambda client, cn: client.reshape({cn.uuid: (7, {"VCPU": Inventory(total=1)})}, {}),
        exceptions.ConcurrentUpdate,
    ),
}


@pytest.mark.parametrize("what", ERRORS)
def test_an_error_becomes_an_exception_with_its_facts(
    placement: PlacementFixture, provider: ProviderSummary, what: str
) -> None:
    call, kind = ERRORS[what]

    with pytest.raises(exceptions.PlacementError) as caught:
        call(placement.client, provider)

    assert type(caught.value) is kind
    assert caught.value.status >= 400
    assert caught.value.detail
    assert "\n" not in str(caught.value)


def test_what_is_allocated_can_be_neither_removed_nor_deleted(
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


def test_the_newest_microversion_that_both_know_is_used(
    placement: PlacementFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert str(placement.client.microversion) == "1.39"
    lower(monkeypatch, "1.36")
    older = placement.new_client()

    assert str(older.microversion) == "1.36"
    older.require(Feature.RESHAPE, "a reshape")
    with pytest.raises(exceptions.MicroversionUnsupported, match=r"moving it: needs .*1\.37"):
        older.require(Feature.REPARENT, "moving it")


def test_a_server_that_cannot_reserve_fully_is_refused(
    placement: PlacementFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    lower(monkeypatch, "1.25")

    with pytest.raises(exceptions.MicroversionUnsupported, match=r"1\.25.*1\.26"):
        placement.new_client().list_providers()

    assert not placement.requests


def test_an_answer_that_is_no_json_is_not_understood(placement: PlacementFixture) -> None:
    class Proxy:
        def request(self, path: str, method: str, **kwargs: Any) -> Any:
            response = placement.adapter.request(path, method, **kwargs)
            if path != "/":
                response._content = b"<html>Bad gateway</html>"
            return response

    with pytest.raises(exceptions.UnexpectedAnswer, match="GET /resource_providers"):
        PlacementClient(Proxy()).list_providers()  # type: ignore[arg-type]


def test_no_answer_is_told_as_such() -> None:
    nobody = "http://127.0.0.1:1"
    adapter = Adapter(
        Session(), auth=token_endpoint.Token(nobody, "admin"), endpoint_override=nobody
    )

    with pytest.raises(exceptions.PlacementUnavailable, match="no answer"):
        PlacementClient(adapter).list_providers()
