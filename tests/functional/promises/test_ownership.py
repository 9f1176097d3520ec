"""Promises about ownership: Wharfinger writes its own providers, and no other program's."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from tests.lab import inprocess
from tests.lab.cycles import Publishing
from tests.lab.drivers import Edit, flat
from tests.lab.placement import PlacementFixture, Requests
from tests.lab.program import Program
from wharfinger.conformance.other_program_client import WritingClient
from wharfinger.driver import Allocations
from wharfinger.exceptions import NodeTaken, OwnershipConflict, PlacementUnavailable
from wharfinger.objects import ComputeNode
from wharfinger.placement.embedded import EmbeddedPlacement
from wharfinger.providers import Inventory, ProviderTree

#: An Ironic node. Nova's ironic driver gives its root this uuid, and this name.
NODE: Final = "6f6b4f1e-2c3a-4c59-9a55-0d8c5b1b7a01"
GPU: Final = "00000000-0000-4000-8000-0000000000c1"
RACK: Final = "5c1f9a37-77a5-4a52-b7b6-2f6f0a3d5e11"
OF_NOVA: Final = frozenset(["OWNER_NOVA"])
MARK: Final = "CUSTOM_WHARFINGER_SCRIPTED"
GOLD: Final = {"CUSTOM_BAREMETAL_GOLD": Inventory(total=1, max_unit=1)}
PARTS: Final = ("", "/inventories", "/traits", "/aggregates", "/usages")


def nova_publishes(
    placement: PlacementFixture | EmbeddedPlacement,
    uuid: str,
    name: str,
    inventories: dict[str, Inventory],
    parent: str | None = None,
) -> str:
    """Publish a provider as nova-compute does, with OWNER_NOVA; return its uuid."""
    if isinstance(placement, PlacementFixture):
        client = placement.new_client()
    else:
        client = WritingClient(placement.adapter)
    for kind in inventories:
        if kind.startswith("CUSTOM_"):
            client.create_resource_class(kind)
    made = client.create_provider(uuid, name, parent)
    generation = client.set_inventories(uuid, made.generation, inventories)
    generation = client.set_traits(uuid, generation, OF_NOVA)
    client.set_aggregates(uuid, generation, [RACK])
    return uuid


def every_byte(placement: PlacementFixture | EmbeddedPlacement, *uuids: str) -> list[Any]:
    """Return Placement's complete answers about providers, with generations."""
    return [
        placement.adapter.request(
            f"/resource_providers/{uuid}{part}", "GET", microversion="1.39"
        ).json()
        for uuid in uuids
        for part in PARTS
    ]


def conflict_of(publishing: Publishing) -> OwnershipConflict:
    """Run a cycle; return the one conflict that it reports."""
    (problem,) = publishing.cycle.sync().problems
    assert isinstance(problem, OwnershipConflict)
    return problem


def below_novas_root(totals: int) -> Edit:
    """Return an edit that adds a GPU below a root that it does not report."""

    def edit(tree: ProviderTree, node: str, allocations: Allocations | None) -> None:
        if not tree.exists("gpu"):
            tree.new_child("gpu", node, uuid=GPU)
        tree.update_inventory("gpu", {"VGPU": {"total": totals}})

    return edit


def test_sync_of_a_node_with_the_uuid_of_a_nova_root_keeps_every_byte_of_it(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    """A root that nova-compute publishes is never written, though a node has its uuid and owner."""
    nova_publishes(placement, NODE, NODE, GOLD)
    before = every_byte(placement, NODE)
    publishing.driver.nodes[NODE] = flat(CUSTOM_BAREMETAL_GOLD=1)

    conflicts = [conflict_of(publishing) for _ in range(2)]

    for conflict in conflicts:
        assert "another program that also publishes as OWNER_NOVA" in str(conflict)
        assert "driver instance scripted, which publishes as OWNER_NOVA" in str(conflict)
        assert f"`wharfinger provider adopt {NODE} --instance scripted`" in conflict.remedy
    assert every_byte(placement, NODE) == before


def test_sync_of_an_absent_node_does_not_delete_the_nova_root_with_its_uuid(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    """A root that was in conflict is not deleted when the driver no longer lists its node."""
    nova_publishes(placement, NODE, NODE, GOLD)
    before = every_byte(placement, NODE)
    publishing.driver.nodes |= {NODE: flat(CUSTOM_BAREMETAL_GOLD=1), "other": flat(CUSTOM_GOLD=1)}
    conflict_of(publishing)
    del publishing.driver.nodes[NODE]

    for _ in range(3):
        publishing.cycle.sync()

    assert every_byte(placement, NODE) == before


def test_sync_vgpu_child_of_nova_keeps_every_byte_while_ours_beside_it_is_published(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    """A VGPU child that nova-compute publishes below its root is never written or deleted."""
    host = nova_publishes(placement, NODE, "host", {"VCPU": Inventory(total=8)})
    nova_publishes(placement, GPU, "gpu", {"VGPU": Inventory(total=2)}, host)
    before = every_byte(placement, host, GPU)

    def with_another(tree: ProviderTree, node: str, allocations: Allocations | None) -> None:
        below_novas_root(4)(tree, node, allocations)
        if not tree.exists("card"):
            tree.new_child("card", node)
        tree.update_inventory("card", {"FPGA": {"total": 1}})

    publishing.driver.nodes["host"] = with_another
    assert conflict_of(publishing).uuid == GPU
    publishing.driver.nodes["host"] = lambda tree, node, allocations: (
        tree.remove("gpu") if tree.exists("gpu") else None
    )
    for _ in range(3):
        publishing.cycle.sync()

    assert every_byte(placement, host, GPU) == before
    (card,) = placement.client.list_providers(name="card")
    assert MARK in placement.client.get_traits(card.uuid).traits


def test_create_after_another_program_does_not_make_its_provider_ours(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    """A provider that another program creates before us is not ours."""
    publishing.driver.nodes[NODE] = flat(CUSTOM_BAREMETAL_GOLD=1)
    placement.adapter.once_before(
        lambda method, path: method == "POST" and path == "/resource_providers",
        lambda: placement.new_client().create_provider(NODE, NODE, None),
    )

    conflict_of(publishing)
    before = every_byte(placement, NODE)
    conflict_of(publishing)

    assert every_byte(placement, NODE) == before


def cut_off_before_the_traits(publishing: Publishing, placement: PlacementFixture) -> None:
    """Run a cycle that ends after the first provider is created and before it is tagged."""

    def cut(method: str, path: str) -> None:
        if method == "PUT" and path.endswith("/traits"):
            raise PlacementUnavailable(request=path, status=0, code="", detail="cut off")

    then, placement.adapter.before = placement.adapter.before, cut
    with pytest.raises(PlacementUnavailable):
        publishing.cycle.sync()
    placement.adapter.before = then


def test_sync_after_a_crash_between_creation_and_tags_continues(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    """A provider that we created before a crash, and did not tag, is ours if it is unchanged."""
    publishing.driver.nodes[NODE] = flat(CUSTOM_BAREMETAL_GOLD=1)
    cut_off_before_the_traits(publishing, placement)

    assert not publishing.restarted().sync().problems

    assert placement.client.get_traits(NODE).traits >= {MARK, "OWNER_NOVA"}


@pytest.mark.parametrize("adopts", [False, True], ids=["adopt = none", "adopt = matching"])
def test_sync_of_a_root_that_another_instance_has_created_and_not_yet_tagged_is_refused(
    publishing: Publishing, placement: PlacementFixture, adopts: bool
) -> None:
    """A root that another instance created a moment ago, and has not tagged yet, is not taken."""
    publishing.driver.nodes[NODE] = flat(CUSTOM_BAREMETAL_GOLD=1)
    cut_off_before_the_traits(publishing, placement)
    before = every_byte(placement, NODE)

    with Publishing(
        placement, publishing.state_path, name="second", adopts_matching=adopts
    ) as second:
        second.driver.nodes[NODE] = flat()
        problems = second.cycle.sync().problems
        row = ComputeNode.get_by_uuid(second.context, NODE)

    assert [type(problem) for problem in problems] == [NodeTaken]
    assert row.driver_instance == "scripted"
    assert every_byte(placement, NODE) == before
    assert not publishing.restarted().sync().problems


def test_absent_provider_that_lost_our_trait_is_reported_and_kept(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    """A provider that another program has tagged anew is never deleted."""
    publishing.driver.nodes |= {NODE: flat(CUSTOM_BAREMETAL_GOLD=1), "other": flat(CUSTOM_GOLD=1)}
    publishing.cycle.sync()
    generation = placement.client.get_traits(NODE).resource_provider_generation
    placement.client.set_traits(NODE, generation, OF_NOVA)
    before = every_byte(placement, NODE)
    del publishing.driver.nodes[NODE]

    outcomes = [publishing.cycle.sync() for _ in range(3)]

    assert [(one.uuid, "lost the trait" in one.reason) for one in outcomes[-1].pending] == [
        (NODE, True)
    ]
    assert every_byte(placement, NODE) == before


def _matching() -> Edit:
    return flat(CUSTOM_BAREMETAL_GOLD=1)


def _with_other_classes() -> Edit:
    return flat(CUSTOM_BAREMETAL_SILVER=1)


@pytest.mark.parametrize(
    ("edit", "is_adopted"),
    [(_matching, True), (_with_other_classes, False)],
    ids=["matches", "differs"],
)
def test_sync_with_adopt_matching_adopts_only_what_matches(
    placement: PlacementFixture, tmp_path: Path, edit: Callable[[], Edit], is_adopted: bool
) -> None:
    """With `adopt = matching`, an instance adopts the providers that match, and no others."""
    nova_publishes(placement, NODE, NODE, GOLD)
    before = every_byte(placement, NODE)

    with Publishing(placement, tmp_path / "state", adopts_matching=True) as adopting:
        adopting.driver.nodes[NODE] = edit()
        problems = adopting.cycle.sync().problems

    traits = placement.client.get_traits(NODE).traits
    if is_adopted:
        assert not problems
        assert traits == {"OWNER_NOVA", MARK}
    else:
        (problem,) = problems
        assert "its resource classes are CUSTOM_BAREMETAL_GOLD; the driver reports" in str(problem)
        assert every_byte(placement, NODE) == before


# The command.


@pytest.fixture
def host(
    tmp_path: Path,
    placement_url: tuple[str, Requests],
    placement_service: EmbeddedPlacement,
) -> tuple[Program, list[str]]:
    """The sample GPU host below nova's root, and the uuids of the children that nova publishes."""
    program = Program(tmp_path, placement_url[0])
    config = program.config.read_text()
    program.config.write_text(config.replace("[gpus]\n", "[gpus]\npublish_root = overlay\n"))
    nova_publishes(placement_service, NODE, "gpu-host-1", {"VCPU": Inventory(total=8)})
    (planned,) = inprocess.run(program, "sync", "--dry-run", "-f", "json").json()
    classes = {
        step["uuid"]: {kind: Inventory(total=2) for kind in step["after"]}
        for step in planned["steps"]
        if step["step"] == "set inventories"
    }
    children = [
        nova_publishes(
            placement_service,
            step["uuid"],
            step["name"],
            classes[step["uuid"]],
            step["parent_uuid"],
        )
        for step in planned["steps"]
        if step["step"] == "create"
    ]
    assert len(children) == 2
    return program, children


def test_adopt_with_dry_run_shows_the_plan_and_writes_nothing(
    host: tuple[Program, list[str]], placement_service: EmbeddedPlacement
) -> None:
    """`provider adopt --dry-run` prints what would change, exits with 2 and writes nothing."""
    program, children = host
    before = every_byte(placement_service, NODE, *children)

    done = inprocess.run(program, "provider", "adopt", *children, "--instance", "gpus", "--dry-run")

    assert (done.code, done.err) == (2, "")
    assert done.out.count("    + CUSTOM_WHARFINGER_GPUS\n") == 2
    assert every_byte(placement_service, NODE, *children) == before


def test_adopt_takes_over_the_named_providers_and_writes_nothing_else(
    host: tuple[Program, list[str]], placement_service: EmbeddedPlacement
) -> None:
    """`provider adopt` adopts the providers that it names; all others stay as they are."""
    program, (named, other) = host
    before = every_byte(placement_service, NODE, other)

    refused = inprocess.run(program, "sync", "--dry-run")
    done = inprocess.run(program, "provider", "adopt", named, "--instance", "gpus")
    again = inprocess.run(program, "provider", "adopt", named, "--instance", "gpus")

    assert f"`wharfinger provider adopt {named} --instance gpus`" in refused.err
    assert (done.code, done.err) == (0, "")
    assert "    + CUSTOM_WHARFINGER_GPUS\n" in done.out
    assert (again.code, again.out) == (0, "gpus: no change\n")
    client = WritingClient(placement_service.adapter)
    assert "CUSTOM_WHARFINGER_GPUS" in client.get_traits(named).traits
    assert every_byte(placement_service, NODE, other) == before
    synced = inprocess.run(program, "sync")
    assert named not in synced.err
    assert other in synced.err


def test_adopt_of_several_with_one_that_does_not_match_adopts_none(
    host: tuple[Program, list[str]], placement_service: EmbeddedPlacement
) -> None:
    """If one provider does not match, `provider adopt` names what differs, and adopts none."""
    program, children = host
    client = WritingClient(placement_service.adapter)
    generation = client.get_inventories(children[0]).resource_provider_generation
    client.set_inventories(children[0], generation, {"PGPU": Inventory(total=1)})
    before = every_byte(placement_service, NODE, *children)

    done = inprocess.run(program, "provider", "adopt", *children, "--instance", "gpus")

    assert done.code == 1
    assert "its resource classes are PGPU; the driver reports VGPU" in done.err
    assert "has adopted no provider and written nothing" in done.err
    assert every_byte(placement_service, NODE, *children) == before


def test_adopt_prints_an_unexplained_reservation_with_the_command_that_ends_it(
    host: tuple[Program, list[str]], placement_service: EmbeddedPlacement
) -> None:
    """`provider adopt` keeps the reservation of a device that may be an operator's."""
    program, (named, _other) = host
    client = WritingClient(placement_service.adapter)
    generation = client.get_inventories(named).resource_provider_generation
    client.set_inventories(named, generation, {"VGPU": Inventory(total=2, reserved=2)})
    adopt = ("provider", "adopt", named, "--instance", "gpus")
    release = f"wharfinger provider release {named} --foreign"

    shown = inprocess.run(program, *adopt, "--dry-run")
    adopted = inprocess.run(program, *adopt)

    for done in (shown, adopted):
        kept = f"VGPU is fully reserved by another program: kept. To end this: `{release}`"
        assert kept in done.out
    assert client.get_inventories(named).inventories["VGPU"].is_fully_reserved
    ended = inprocess.run(program, *release.split()[1:])
    assert ended.out.endswith(f"({named}): free\n")
    assert client.get_inventories(named).inventories["VGPU"].reserved == 0
    assert release not in inprocess.run(program, "sync").out
