"""Nodes that are renamed, vanish and return are identified by their uuids."""

from typing import Any

import pytest

from tests.functional.reconcile.places import ANYWHERE
from tests.lab import claiming
from tests.lab.claiming import instance, migration, noted, taken
from tests.lab.cycles import HOST, Publishing, allocate, contents, everything, stored
from tests.lab.drivers import Edit, flat, with_children
from tests.lab.placement import PlacementFixture
from wharfinger.objects import ComputeNode, ComputeNodeList, Instance, Migration
from wharfinger.providers.plan import Plan
from wharfinger.tracker.instance_claims import Claims

pytestmark = ANYWHERE

ONE, TWO = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"
CONSUMER = "6f9de2f4-9d0c-4d0f-a4a6-0c2c5b1f7d31"


@pytest.fixture
def named(publishing: Publishing, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The uuids of the driver's nodes, by name; other nodes have uuids derived from their names."""
    uuids: dict[str, str] = {}

    def describe(name: str) -> ComputeNode:
        node = ComputeNode(hypervisor_hostname=name)
        if name in uuids:
            node.uuid = uuids[name]
        return node

    monkeypatch.setattr(publishing.driver, "get_available_resource", describe)
    return uuids


def sized(vcpus: int) -> Edit:
    return flat(VCPU=vcpus)


def rename(publishing: Publishing, named: dict[str, str], **names: str) -> None:
    """Rename several nodes at the same time; in the keyword arguments, _ stands for -."""
    spoken = {old.replace("_", "-"): new for old, new in names.items()}
    for table in (publishing.driver.nodes, named):
        kept: dict[str, Any] = {spoken.get(name, name): what for name, what in table.items()}
        table.clear()
        table.update(kept)


def sync(publishing: Publishing) -> None:
    for cycle in (publishing.cycle.sync, publishing.cycle.drift):
        outcome = cycle()
        assert not outcome.problems, outcome.problems
        assert not outcome.pending, outcome.pending


def rows(publishing: Publishing) -> dict[str, ComputeNode]:
    found = ComputeNodeList.get_by_filters(publishing.context)
    return {row.hypervisor_hostname: row for row in found}


def uuids(publishing: Publishing) -> dict[str, str]:
    return {name: row.uuid for name, row in rows(publishing).items()}


def on(publishing: Publishing, one: Instance) -> str | None:
    return Instance.get_by_uuid(publishing.context, one.uuid).node


def published() -> dict[str, tuple[str, int]]:
    """Return the uuid and the VCPUs of each provider, by name."""
    return {
        name: (one["uuid"], one["inventories"]["VCPU"][0]) for name, one in everything().items()
    }


# Names.


def test_renamed_node_keeps_its_provider_and_row(
    publishing: Publishing, named: dict[str, str], placement: PlacementFixture
) -> None:
    named |= {"cn-0": ONE, "cn-1": TWO}
    publishing.driver.nodes |= {"cn-0": sized(8), "cn-1": sized(4)}
    sync(publishing)
    use: dict[str, Any] = {"cn-0": {"VCPU": 2}}
    allocate(placement, CONSUMER, **use)
    before = everything()["cn-0"]
    revision = rows(publishing)["cn-0"].revision

    rename(publishing, named, cn_0="new-name")
    sync(publishing)

    assert uuids(publishing) == {"new-name": ONE, "cn-1": TWO}
    assert everything().keys() == {"new-name", "cn-1"}
    assert everything()["new-name"] == before
    assert rows(publishing)["new-name"].revision == revision + 1
    assert stored(publishing.state_path).keys() == {ONE, TWO}
    assert not publishing.restarted().plan().steps


def test_renamed_node_keeps_its_instances_and_moves(
    publishing: Publishing, named: dict[str, str]
) -> None:
    context = publishing.context
    named |= {"cn-0": ONE, "cn-1": TWO}
    publishing.driver.nodes |= {"cn-0": sized(8), "cn-1": sized(4)}
    sync(publishing)
    here, there = (HOST, "cn-0"), (HOST, "cn-1")
    sits, comes, goes, other, away = (
        instance(context, vcpus, place=place)
        for vcpus, place in ((1, here), (2, there), (3, here), (4, there), (5, ("far", "cn-0")))
    )
    arriving = migration(context, comes, there, dest_compute=HOST, dest_node="cn-0")
    leaving = migration(context, goes, here, dest_compute="far", dest_node="cn-0")
    ended = migration(context, sits, here, status="failed")
    sync(publishing)
    assert noted(context) == taken(context) == {here: (6, 0, 0), there: (6, 0, 0)}

    rename(publishing, named, cn_0="new-name")
    for cycle in (publishing.cycle.sync, publishing.cycle.drift, publishing.cycle.sync):
        assert not cycle().problems
        assert noted(context) == taken(context)
        assert noted(context)[HOST, "new-name"] == (6, 0, 0)
    assert [on(publishing, one) for one in (sits, comes, goes, other, away)] == [
        *("new-name", "cn-1", "new-name", "cn-1"),
        "cn-0",  # the node of another host
    ]
    found = [Migration.get_by_uuid(context, one.uuid) for one in (arriving, leaving, ended)]
    assert [(one.source_node, one.dest_node) for one in found[:2]] == [
        ("cn-1", "new-name"),
        ("new-name", "cn-0"),
    ]
    assert found[2].source_node == "cn-0", "that is over"
    Claims(context, HOST).instance_claim(instance(context, 1), "new-name")
    assert noted(context) == taken(context)


def test_nodes_that_swap_names_keep_their_instances(
    publishing: Publishing, named: dict[str, str], placement: PlacementFixture
) -> None:
    context = publishing.context
    named |= {"cn-0": ONE, "cn-1": TWO}
    publishing.driver.nodes |= {"cn-0": sized(8), "cn-1": sized(4)}
    sync(publishing)
    first, second = (instance(context, 1, place=(HOST, f"cn-{number}")) for number in range(2))
    third = instance(context, 3, place=(HOST, "cn-1"))
    move = migration(context, third, (HOST, "cn-1"), dest_compute=HOST, dest_node="cn-0")
    sync(publishing)
    assert noted(context) == {(HOST, "cn-0"): (4, 0, 0), (HOST, "cn-1"): (4, 0, 0)}
    one_more = instance(context, 1, place=(HOST, "cn-1"))

    rename(publishing, named, cn_0="cn-1", cn_1="cn-0")
    for _ in range(4):  # each node waits until the other one has released the name
        publishing.cycle.sync()
    sync(publishing)

    assert published() == {"cn-1": (ONE, 8), "cn-0": (TWO, 4)}
    assert uuids(publishing) == {"cn-1": ONE, "cn-0": TWO}
    assert {name: row.vcpus for name, row in rows(publishing).items()} == {"cn-1": 8, "cn-0": 4}
    where = [on(publishing, one) for one in (first, second, third, one_more)]
    assert where == ["cn-1", "cn-0", "cn-0", "cn-0"]
    found = Migration.get_by_uuid(context, move.uuid)
    assert (found.source_node, found.dest_node) == ("cn-0", "cn-1")
    assert noted(context) == taken(context)
    assert noted(context) == {(HOST, "cn-1"): (4, 0, 0), (HOST, "cn-0"): (5, 0, 0)}


def test_claim_during_a_rename_is_not_lost(publishing: Publishing, named: dict[str, str]) -> None:
    named["cn-0"] = ONE
    publishing.driver.nodes["cn-0"] = sized(8)
    sync(publishing)
    rename(publishing, named, cn_0="new-name")
    # A process that does not know the new name claims under the old name.
    claims = Claims(publishing.context, HOST)
    one = instance(publishing.context, 2)

    def claim(_plan: Plan) -> None:
        claims.instance_claim(one, "cn-0")

    assert not publishing.cycle.sync(on_plan=claim).problems
    sync(publishing)
    assert on(publishing, one) == "new-name"
    assert noted(publishing.context) == {(HOST, "new-name"): (2, 0, 0)}


# Nodes that vanish and return.


def test_node_that_returns_before_its_removal_is_unchanged(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    publishing.removal_delay = 3600
    publishing.restarted()
    node = with_children({"VCPU": 8}, {"gpu": {"VGPU": 2}})
    publishing.driver.nodes |= {"cn": node, "stays": sized(4)}
    sync(publishing)
    before, revision = everything(), rows(publishing)["cn"].revision
    one = instance(publishing.context, 2, place=(HOST, "cn"))
    publishing.cycle.drift()
    for _ in range(2):
        del publishing.driver.nodes["cn"]
        outcome = publishing.cycle.sync()
        assert {pending.name for pending in outcome.pending} == {"cn", "gpu"}
        assert everything() == before
        assert noted(publishing.context) == taken(publishing.context)
        publishing.driver.nodes["cn"] = node
        sync(publishing)
        assert everything() == before
    assert on(publishing, one) == "cn"
    assert rows(publishing)["cn"].revision == revision + 5, (
        "its usage, once; missing and back, twice"
    )
    assert not publishing.restarted().plan().steps


def test_node_that_returns_after_its_removal_is_created_again_with_its_uuid(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    publishing.driver.nodes |= {"cn": sized(8), "stays": sized(4)}
    sync(publishing)
    before, uuid = contents(placement), uuids(publishing)["cn"]
    one = instance(publishing.context, 2, place=(HOST, "cn"))
    del publishing.driver.nodes["cn"]
    for _ in range(2):
        publishing.cycle.sync()
    assert everything().keys() == rows(publishing).keys() == {"stays"}
    publishing.driver.nodes["cn"] = sized(8)
    sync(publishing)
    assert contents(placement) == before
    assert uuids(publishing)["cn"] == uuid
    # The instance still names its node.
    assert on(publishing, one) == "cn"
    assert noted(publishing.context) == taken(publishing.context)
    assert noted(publishing.context)[HOST, "cn"] == (2, 0, 0)


def test_absent_node_may_return_under_another_name(
    publishing: Publishing, named: dict[str, str]
) -> None:
    publishing.removal_delay = 3600
    publishing.restarted()
    named["cn-0"] = ONE
    publishing.driver.nodes |= {"cn-0": sized(8), "stays": sized(4)}
    sync(publishing)
    one = instance(publishing.context, 2, place=(HOST, "cn-0"))
    publishing.cycle.drift()
    kept = publishing.driver.nodes.pop("cn-0")
    publishing.cycle.sync()
    del named["cn-0"]
    named["new-name"] = ONE
    publishing.driver.nodes["new-name"] = kept
    sync(publishing)
    assert uuids(publishing)["new-name"] == ONE
    assert on(publishing, one) == "new-name"
    assert noted(publishing.context)[HOST, "new-name"] == (2, 0, 0)
    assert everything().keys() == {"new-name", "stays"}


def test_node_of_another_host_with_the_same_name_is_not_renamed(
    publishing: Publishing, named: dict[str, str]
) -> None:
    named["cn-0"] = ONE
    publishing.driver.nodes["cn-0"] = sized(8)
    sync(publishing)
    theirs: claiming.Place = ("far", "cn-0")
    one = instance(publishing.context, 2, place=theirs)
    rename(publishing, named, cn_0="cn-1")
    sync(publishing)
    found = Instance.get_by_uuid(publishing.context, one.uuid)
    assert (found.host, found.node) == theirs
    assert noted(publishing.context) == {(HOST, "cn-1"): (0, 0, 0)}
