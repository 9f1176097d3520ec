"""The reader with the real Placement: the providers of a driver instance, and its requests.

A provider has our mark if it has the instance trait of the driver instance.
"""

from dataclasses import replace

import pytest

from tests.lab.placement import PlacementFixture
from wharfinger.placement.tree_reader import PlacementReader
from wharfinger.providers import Provider, names
from wharfinger.providers.provider import Record

MARK = "CUSTOM_WHARFINGER_GPUS"
MANY = range(9)  # one more than the reader looks up one by one


@pytest.fixture
def reader(placement: PlacementFixture) -> PlacementReader:
    placement.client.create_trait(MARK)
    return PlacementReader(placement.client, "gpus")


def create(
    placement: PlacementFixture, name: str, parent: str | None = None, *, marked: bool = False
) -> Provider:
    uuid = names.child_uuid(parent, name) if parent else names.root_uuid(name)
    made = placement.client.create_provider(uuid, name, parent)
    generation = made.generation
    if marked:
        generation = placement.client.set_traits(uuid, generation, [MARK])
    return Provider(
        uuid=uuid,
        name=name,
        root_uuid=made.root_provider_uuid,
        parent_uuid=parent,
        generation=generation,
        traits=frozenset([MARK] if marked else []),
    )


def ours(*providers: Provider) -> dict[str, Record]:
    return {one.uuid: Record(applied=one, live=one) for one in providers}


def wanted(*node_names: str) -> dict[str, str]:
    return {name: names.root_uuid(name) for name in node_names}


def nodes(count: range) -> list[str]:
    return [f"node-{number}" for number in count]


def test_roots_without_our_instance_trait_are_found_with_their_trees(
    placement: PlacementFixture, reader: PlacementReader
) -> None:
    host = create(placement, "a")
    gpu = create(placement, "gpu", host.uuid)
    create(placement, "stranger")
    placement.requests.clear()
    assert reader.read(wanted("a", "b"), {}).live.keys() == {host.uuid, gpu.uuid}
    lists = [one for one in placement.requests.seen if one.startswith("GET /resource_providers?")]
    # Lists by our mark, of the tree of a, of the tree of b, and by the name b.
    assert len(lists) == 4


def test_many_roots_without_our_instance_trait_are_found_in_one_list(
    placement: PlacementFixture, reader: PlacementReader
) -> None:
    hosts = [create(placement, name) for name in nodes(MANY)]
    gpu = create(placement, "gpu", hosts[0].uuid)
    create(placement, "stranger", create(placement, "other").uuid)
    renamed = {**wanted(*nodes(MANY)), "new": names.root_uuid("new")}
    placement.client.update_provider(hosts[1].uuid, "renamed", None)
    placement.requests.clear()
    reading = reader.read(renamed, {})
    assert reading.live.keys() == {*(one.uuid for one in hosts), gpu.uuid}
    assert reading.strays == ()
    assert placement.requests.seen.count("GET /resource_providers") == 1


def test_root_with_another_uuid_is_found_by_its_name(
    placement: PlacementFixture, reader: PlacementReader
) -> None:
    host = create(placement, "a")
    other = names.root_uuid("another uuid than it has")
    assert reader.read({"a": other}, {}).live.keys() == {host.uuid}


def test_many_recorded_providers_without_our_instance_trait_are_found_in_one_list(
    placement: PlacementFixture, reader: PlacementReader
) -> None:
    hosts = [create(placement, name) for name in nodes(MANY)]
    create(placement, "stranger")
    placement.requests.clear()
    reading = reader.read(wanted(*nodes(MANY)), ours(*hosts))
    assert reading.live.keys() == {one.uuid for one in hosts}
    assert reading.strays == ()
    assert placement.requests.seen.count("GET /resource_providers") == 1
    assert len(placement.requests) == 2


def test_listed_provider_is_not_looked_up_again(
    placement: PlacementFixture, reader: PlacementReader
) -> None:
    """The list has one node under its name, and the other one under its uuid."""
    host, renamed = create(placement, "a", marked=True), create(placement, "b", marked=True)
    placement.client.update_provider(renamed.uuid, "renamed", None)
    records = ours(host, renamed)
    roots = {"a": names.root_uuid("another uuid than it has"), "b": renamed.uuid}
    placement.requests.clear()
    assert reader.read(roots, records).live.keys() == {host.uuid, renamed.uuid}
    assert len(placement.requests) == 1


def test_provider_with_our_instance_trait_outside_our_trees_is_a_stray(
    placement: PlacementFixture, reader: PlacementReader
) -> None:
    host, other = create(placement, "a", marked=True), create(placement, "b", marked=True)
    stranger = create(placement, "orphan", marked=True)
    reading = reader.read(wanted("a", "b"), ours(host, other))
    assert reading.live.keys() == {host.uuid, other.uuid}
    assert [one.uuid for one in reading.strays] == [stranger.uuid]


def test_provider_of_another_host_is_no_stray_in_a_read_of_one_node(
    placement: PlacementFixture, reader: PlacementReader
) -> None:
    """This host has records of two trees, so the reader lists by our instance trait."""
    host, before = create(placement, "a", marked=True), create(placement, "b", marked=True)
    create(placement, "another hosts", marked=True)
    reading = reader.read(wanted("a"), ours(host, before))
    assert reading.live.keys() == {host.uuid, before.uuid}
    assert reading.strays == ()


def test_provider_deleted_during_the_read_is_left_out(
    placement: PlacementFixture, reader: PlacementReader
) -> None:
    host = create(placement, "a")
    gpu = create(placement, "gpu", host.uuid)

    placement.adapter.once_before(
        lambda method, path: path == f"/resource_providers/{gpu.uuid}/traits",
        lambda: placement.new_client().delete_provider(gpu.uuid),
    )
    reading = reader.read(wanted("a"), {})
    assert reading.live.keys() == {host.uuid}
    assert reading.unreadable == {}


def test_provider_changed_during_the_read_has_the_oldest_generation(
    placement: PlacementFixture, reader: PlacementReader
) -> None:
    """A write that relies on this read is then refused by Placement."""
    host = create(placement, "a")
    assert host.generation is not None
    placement.adapter.once_before(
        lambda method, path: path == f"/resource_providers/{host.uuid}/inventories",
        lambda: placement.new_client().set_traits(host.uuid, host.generation or 0, [MARK]),
    )
    assert reader.read(wanted("a"), {}).live[host.uuid] == host


def test_renamed_provider_has_its_new_name_without_a_read(
    placement: PlacementFixture, reader: PlacementReader
) -> None:
    host = create(placement, "a", marked=True)
    placement.client.update_provider(host.uuid, "renamed", None)
    placement.requests.clear()
    reading = reader.read(wanted("a"), ours(host))
    assert reading.live == {host.uuid: replace(host, name="renamed")}
    assert len(placement.requests) == 1


def test_many_names_are_looked_up_in_one_list(
    placement: PlacementFixture, reader: PlacementReader
) -> None:
    other = create(placement, "node-0", marked=True)
    create(placement, "stranger")
    placement.requests.clear()
    assert reader.by_name(nodes(MANY)) == {"node-0": replace(other, generation=None)}
    assert len(placement.requests) == 2


def test_mark_that_does_not_exist_lists_nothing(placement: PlacementFixture) -> None:
    reader = PlacementReader(placement.client, "never-published")
    reading = reader.read(wanted("a", "b"), {})
    assert (reading.live, reading.strays) == ({}, ())
