"""One owner for every provider, and nobody's but ours is ever written."""

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from placement import db_api
from sqlalchemy import text

from tests.lab.cycles import Publishing, allocate, contents
from tests.lab.drivers import Edit, also, flat, with_children
from tests.lab.placement import PlacementFixture
from wharfinger.driver import Allocations
from wharfinger.exceptions import InvalidTree, OwnershipConflict, PlacementUnavailable
from wharfinger.providers import Inventory, ProviderTree, PublishingMode, names
from wharfinger.providers.plan import DeleteProvider, SetInventories, SetTraits

MARK = "CUSTOM_WHARFINGER_SCRIPTED"
MARKS = {"OWNER_NOVA", MARK}
AS_CYBORG = {"OWNER_CYBORG", MARK}
ACME = "CUSTOM_OWNER_ACME"


_TWO_OWNERS = """
    SELECT provider.name FROM resource_providers AS provider
    JOIN resource_provider_traits AS has ON has.resource_provider_id = provider.id
    JOIN traits ON traits.id = has.trait_id
    WHERE traits.name LIKE 'OWNER\\_%' ESCAPE '\\'
       OR traits.name LIKE 'CUSTOM\\_OWNER\\_%' ESCAPE '\\'
    GROUP BY provider.name HAVING count(*) > 1
"""


@pytest.fixture(autouse=True)
def one_owner(placement: PlacementFixture) -> None:
    """After every write of every test, no provider in Placement has two owners.

    Those that a test gives two have names that start with "theirs".
    """

    def scan(method: str, path: str) -> None:
        if method != "GET":
            with db_api.get_placement_engine().connect() as connection:
                found = list(connection.execute(text(_TWO_OWNERS)).scalars())
            assert all(name.startswith("theirs") for name in found), f"two owners: {found}"

    placement.adapter.after = scan


def republished_as(
    owner: str, publishing: Publishing, placement: PlacementFixture
) -> Iterator[Publishing]:
    """The same instance with its state and its driver's nodes, and another owner."""
    with Publishing(placement, publishing.state_path, owner=owner) as again:
        again.driver.nodes = publishing.driver.nodes
        yield again


@pytest.fixture
def as_cyborg(publishing: Publishing, placement: PlacementFixture) -> Iterator[Publishing]:
    """The instance when its owner has changed in the configuration; start it by restarted()."""
    yield from republished_as("OWNER_CYBORG", publishing, placement)


def traits_of(placement: PlacementFixture) -> dict[str, set[str]]:
    return {name: found["traits"] for name, found in contents(placement).items()}


def tag(placement: PlacementFixture, name: str, *traits: str) -> None:
    """Have somebody else replace a provider's traits."""
    client = placement.new_client()
    (found,) = client.list_providers(name=name)
    for trait in traits:
        if trait.startswith("CUSTOM_"):
            client.create_trait(trait)
    client.set_traits(found.uuid, found.generation, traits)


def make(
    placement: PlacementFixture,
    name: str,
    parent: str | None = None,
    *,
    uuid_: str | None = None,
    **totals: int,
) -> str:
    """Have somebody else create an untagged provider; returns its uuid."""
    client = placement.new_client()
    made = client.create_provider(uuid_ or str(uuid.uuid4()), name, parent)
    client.set_inventories(
        made.uuid, made.generation, {kind: Inventory(total=total) for kind, total in totals.items()}
    )
    return made.uuid


# Adoption of what nobody has tagged.


def test_an_untagged_root_is_adopted_by_its_name(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    root = make(placement, "cn", VCPU=8)
    publishing.driver.nodes["cn"] = flat(VCPU=8, MEMORY_MB=64)

    assert not publishing.cycle.sync().problems

    found = contents(placement)["cn"]
    assert (found["uuid"], found["traits"]) == (root, MARKS)
    assert found["inventories"] == {"VCPU": (8, 0), "MEMORY_MB": (64, 0)}


def test_an_untagged_child_is_adopted_by_its_name(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    root = make(placement, "cn", VCPU=8)
    child = make(placement, "gpu", root, VGPU=2)
    publishing.driver.nodes["cn"] = with_children({"VCPU": 8}, {"gpu": {"VGPU": 4}})

    assert not publishing.cycle.sync().problems

    found = contents(placement)["gpu"]
    assert (found["uuid"], found["parent"], found["traits"]) == (child, "cn", MARKS)
    assert found["inventories"] == {"VGPU": (4, 0)}


def test_an_untagged_child_is_adopted_by_its_uuid(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    root = make(placement, "cn", VCPU=8)
    child = make(placement, "gpu", root, VGPU=2)
    publishing.driver.nodes["cn"] = _child_by_uuid(child)

    assert not publishing.cycle.sync().problems

    assert contents(placement)["gpu"]["uuid"] == child
    assert contents(placement)["gpu"]["traits"] == MARKS


def _child_by_uuid(child: str) -> Edit:
    """A node whose driver states a child under this uuid, whatever it is in Placement."""

    def edit(tree: ProviderTree, node: str, allocations: Allocations | None) -> None:
        flat(VCPU=8)(tree, node, allocations)
        if tree.exists(child):
            tree.remove(child)
        tree.new_child("gpu", node, uuid=child)
        tree.update_inventory("gpu", {"VGPU": {"total": 4}})

    return edit


CHILD = "00000000-0000-0000-0000-0000000000c1"


def _below_another_parent(placement: PlacementFixture, root: str) -> None:
    make(placement, "gpu", make(placement, "card", root), uuid_=CHILD, VGPU=4)


def _with_more_than_is_reported(placement: PlacementFixture, root: str) -> None:
    make(placement, "gpu", root, uuid_=CHILD, VGPU=4, DISK_GB=1)


def _with_something_else(placement: PlacementFixture, root: str) -> None:
    make(placement, "gpu", root, uuid_=CHILD, FPGA=4)


@pytest.mark.parametrize(
    "there",
    [
        _below_another_parent,
        _with_more_than_is_reported,
        _with_something_else,
    ],
)
def test_an_untagged_child_is_not_adopted(
    publishing: Publishing,
    placement: PlacementFixture,
    there: Callable[[PlacementFixture, str], None],
) -> None:
    there(placement, make(placement, "cn", VCPU=8))
    before = contents(placement)
    publishing.driver.nodes["cn"] = _child_by_uuid(CHILD)

    outcomes = [publishing.cycle.sync(), publishing.restarted().sync()]

    for outcome in outcomes:
        (problem,) = outcome.problems
        assert isinstance(problem, OwnershipConflict)
        assert (problem.uuid, problem.owner) == (CHILD, "OWNER_NOVA")
        assert "untagged, and not ours" in problem.other
    after = contents(placement)
    assert after.pop("cn")["traits"] == MARKS
    del before["cn"]
    assert after == before


def test_an_untagged_root_with_our_uuid_and_another_name_is_adopted(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    make(placement, "another", uuid_=names.root_uuid("cn"), VCPU=8)
    publishing.driver.nodes["cn"] = flat(VCPU=8)

    assert not publishing.cycle.sync().problems

    assert traits_of(placement) == {"cn": MARKS}


def test_an_untagged_child_with_our_uuid_and_another_name_is_adopted(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    make(placement, "another", make(placement, "cn", VCPU=8), uuid_=CHILD, VGPU=4)
    publishing.driver.nodes["cn"] = _child_by_uuid(CHILD)

    assert not publishing.cycle.sync().problems

    assert traits_of(placement) == {"cn": MARKS, "gpu": MARKS}


def test_an_untagged_root_is_not_adopted_where_a_child_is_wanted_elsewhere(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    make(placement, "gpu", VGPU=4)
    before = contents(placement)
    publishing.driver.nodes["cn"] = with_children({"VCPU": 8}, {"gpu": {"VGPU": 4}})

    outcome = publishing.cycle.sync()

    assert len(outcome.problems) == 1
    after = contents(placement)
    assert after.pop("cn")["traits"] == MARKS
    assert after == before


def test_what_was_adopted_keeps_the_traits_and_aggregates_it_had(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    aggregate = str(uuid.uuid4())
    root = make(placement, "cn", VCPU=8)
    tag(placement, "cn", "HW_CPU_X86_AVX", "CUSTOM_OPERATORS")
    generation = placement.client.get_traits(root).resource_provider_generation
    placement.client.set_aggregates(root, generation, [aggregate])
    publishing.driver.nodes["cn"] = flat(VCPU=8)

    for _ in range(2):
        assert not publishing.restarted().sync().problems

    found = contents(placement)["cn"]
    assert found["traits"] == MARKS | {"HW_CPU_X86_AVX", "CUSTOM_OPERATORS"}
    assert found["aggregates"] == {aggregate}


# Overlays.


def overlaid(*, traits: tuple[str, ...] = (), reserve: bool = False) -> Edit:
    """A driver that overlays the node, and states things of it that are not its to state."""

    def edit(tree: ProviderTree, node: str, allocations: Allocations | None) -> None:
        tree.set_publishing_mode(node, PublishingMode.OVERLAY)
        tree.update_inventory(node, {"CUSTOM_GOLD": {"total": 99}})
        tree.update_aggregates(node, [str(uuid.uuid4())])
        tree.update_traits(node, traits)
        if reserve:
            tree.reserve(node, "maintenance")

    return edit


def test_an_overlay_adds_its_owner_the_named_traits_and_the_reservation_and_nothing_else(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    client, aggregate = placement.client, str(uuid.uuid4())
    root = client.create_provider(str(uuid.uuid4()), "cn", None)
    figures = {
        "VCPU": Inventory(total=16, reserved=2, allocation_ratio=4.0, max_unit=8),
        "DISK_GB": Inventory(total=100, min_unit=5, step_size=5),
    }
    generation = client.set_inventories(root.uuid, root.generation, figures)
    client.set_aggregates(root.uuid, generation, [aggregate])
    tag(placement, "cn", "HW_CPU_X86_AVX", "CUSTOM_OPERATORS")
    theirs = {"HW_CPU_X86_AVX", "CUSTOM_OPERATORS"}

    def found() -> tuple[set[str], set[str], dict[str, Inventory]]:
        found = contents(placement)["cn"]
        return (
            found["traits"],
            found["aggregates"],
            dict(client.get_inventories(root.uuid).inventories),
        )

    publishing.driver.nodes["cn"] = overlaid(traits=("CUSTOM_RAID",))
    assert not publishing.cycle.sync().problems
    assert found() == (theirs | MARKS | {"CUSTOM_RAID"}, {aggregate}, figures)

    publishing.driver.nodes["cn"] = overlaid(traits=("CUSTOM_RAID",), reserve=True)
    publishing.restarted().sync()
    assert all(one.is_fully_reserved for one in found()[2].values())
    assert found()[:2] == (theirs | MARKS | {"CUSTOM_RAID"}, {aggregate})

    publishing.driver.nodes["cn"] = overlaid()
    publishing.restarted().sync()
    assert found() == (theirs | MARKS, {aggregate}, figures)


def test_an_overlay_keeps_the_figures_that_its_publisher_changes(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    client = placement.client
    root = make(placement, "cn", VCPU=16)
    publishing.driver.nodes["cn"] = overlaid()
    publishing.cycle.sync()

    def publisher_sets(**classes: Inventory) -> None:
        generation = client.get_inventories(root).resource_provider_generation
        client.set_inventories(root, generation, classes)

    publisher_sets(VCPU=Inventory(total=32, reserved=4), DISK_GB=Inventory(total=5))
    publishing.driver.nodes["cn"] = overlaid(reserve=True)
    publishing.cycle.sync()
    assert contents(placement)["cn"]["inventories"] == {"VCPU": (32, 32), "DISK_GB": (5, 5)}

    publisher_sets(VCPU=Inventory(total=64, reserved=6), DISK_GB=Inventory(total=5, reserved=5))
    publishing.restarted().sync()
    assert contents(placement)["cn"]["inventories"] == {"VCPU": (64, 64), "DISK_GB": (5, 5)}

    publishing.driver.nodes["cn"] = overlaid()
    publishing.restarted().sync()
    assert contents(placement)["cn"]["inventories"] == {"VCPU": (64, 6), "DISK_GB": (5, 0)}


def test_an_overlay_leaves_another_owners_provider_exactly_as_it_is(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    make(placement, "cn", VCPU=16)
    tag(placement, "cn", ACME)
    before = contents(placement)
    publishing.driver.nodes["cn"] = overlaid(traits=("CUSTOM_RAID",), reserve=True)

    for _ in range(2):
        (problem,) = publishing.restarted().sync().problems
        assert isinstance(problem, OwnershipConflict)
        assert problem.other == ACME

    assert contents(placement) == before


def test_an_overlaid_provider_keeps_its_owner_when_ours_changes(
    publishing: Publishing, as_cyborg: Publishing, placement: PlacementFixture
) -> None:
    make(placement, "cn", DISK_GB=16)
    publishing.driver.nodes["cn"] = overlaid()
    publishing.cycle.sync()
    before = contents(placement)

    (problem,) = as_cyborg.restarted().sync().problems

    assert isinstance(problem, OwnershipConflict)
    assert contents(placement) == before


# Another owner in the configuration.


def test_all_get_the_new_owner_in_place_of_the_old_with_one_write_each(
    publishing: Publishing, as_cyborg: Publishing, placement: PlacementFixture
) -> None:
    publishing.driver.nodes |= {
        "a": flat(CUSTOM_GOLD=1),
        "b": with_children({"CUSTOM_GOLD": 1}, {"gpu": {"VGPU": 4}}),
        "c": also(lambda tree: tree.update_traits("c", ["CUSTOM_RAID"]))(flat(CUSTOM_GOLD=1)),
    }
    publishing.cycle.sync()
    before = contents(placement)
    placement.requests.clear()

    outcome = as_cyborg.restarted().sync()

    assert not outcome.problems
    assert {step.name for step in outcome.steps if isinstance(step, SetTraits)} == set(before)
    assert len(placement.requests.writes) == len(outcome.steps) == len(before)
    after = contents(placement)
    for name, found in before.items():
        assert after[name] == found | {"traits": found["traits"] - {"OWNER_NOVA"} | AS_CYBORG}
    placement.requests.clear()
    assert not as_cyborg.restarted().sync().steps
    assert len(placement.requests) == 1


def test_an_owner_that_changes_and_changes_back_leaves_everything_as_it_was(
    publishing: Publishing, as_cyborg: Publishing, placement: PlacementFixture
) -> None:
    publishing.driver.nodes["a"] = with_children({"CUSTOM_GOLD": 1}, {"gpu": {"VGPU": 4}})
    publishing.cycle.sync()
    before = contents(placement)

    for one in (as_cyborg, publishing):
        assert not one.restarted().sync().problems

    assert contents(placement) == before


def test_what_is_allocated_changes_its_owner_when_nothing_is_any_more(
    publishing: Publishing, as_cyborg: Publishing, placement: PlacementFixture
) -> None:
    publishing.driver.nodes |= {
        "a": with_children({"CUSTOM_GOLD": 1}, {"gpu": {"VGPU": 4}}),
        "b": flat(CUSTOM_GOLD=1),
    }
    publishing.cycle.sync()
    before = contents(placement)
    consumer = str(uuid.uuid4())
    allocate(placement, consumer, gpu={"VGPU": 1})

    for _ in range(2):
        (problem,) = as_cyborg.restarted().sync().problems
        assert isinstance(problem, OwnershipConflict)
        assert (problem.provider, problem.owner) == ("gpu", "OWNER_CYBORG")
        assert "OWNER_NOVA" in problem.other
        assert "allocations" in problem.remedy
        assert traits_of(placement) == {"a": AS_CYBORG, "b": AS_CYBORG, "gpu": MARKS}
        assert contents(placement)["gpu"] == before["gpu"]

    placement.client.delete_allocations(consumer)
    outcome = as_cyborg.restarted().sync()

    assert not outcome.problems
    assert [(type(step), step.name) for step in outcome.steps] == [(SetTraits, "gpu")]
    assert traits_of(placement)["gpu"] == AS_CYBORG


def test_an_instance_that_gets_its_former_owner_again_goes_on_with_what_is_allocated(
    publishing: Publishing, as_cyborg: Publishing, placement: PlacementFixture
) -> None:
    publishing.driver.nodes |= {"a": flat(VGPU=4), "b": flat(VGPU=4)}
    publishing.cycle.sync()
    allocate(placement, str(uuid.uuid4()), a={"VGPU": 1})
    as_cyborg.restarted().sync()
    publishing.driver.nodes |= {"a": flat(VGPU=5), "b": flat(VGPU=5)}

    assert not publishing.restarted().sync().problems

    found = contents(placement)
    assert found["a"]["traits"] == found["b"]["traits"] == MARKS
    assert found["a"]["inventories"] == found["b"]["inventories"] == {"VGPU": (5, 0)}


def test_what_is_reserved_changes_its_owner_and_stays_reserved(
    publishing: Publishing, as_cyborg: Publishing, placement: PlacementFixture
) -> None:
    reserved = also(lambda tree: tree.reserve("a", "cleaning"))(flat(CUSTOM_GOLD=3))
    publishing.driver.nodes["a"] = reserved
    publishing.cycle.sync()

    outcome = as_cyborg.restarted().sync()

    assert [type(step) for step in outcome.steps] == [SetTraits]
    assert contents(placement)["a"]["inventories"] == {"CUSTOM_GOLD": (3, 3)}
    as_cyborg.driver.nodes["a"] = flat(CUSTOM_GOLD=3)
    as_cyborg.restarted().sync()
    assert contents(placement)["a"]["inventories"] == {"CUSTOM_GOLD": (3, 0)}


@pytest.mark.parametrize("turn_back", [False, True], ids=["goes on", "turns back"])
@pytest.mark.parametrize("lost", [False, True], ids=["not sent", "answer lost"])
def test_a_change_of_owner_that_was_cut_off_is_ended_or_undone_by_the_next_cycle(
    publishing: Publishing,
    as_cyborg: Publishing,
    placement: PlacementFixture,
    turn_back: bool,
    lost: bool,
) -> None:
    publishing.driver.nodes |= {"a": flat(CUSTOM_GOLD=1)}
    publishing.cycle.sync()

    def cut(method: str, path: str) -> None:
        if method == "PUT" and path.endswith("/traits"):
            raise PlacementUnavailable(request=path, status=0, code="", detail="cut off")

    then = placement.adapter.before, placement.adapter.after
    if lost:
        placement.adapter.after = cut
    else:
        placement.adapter.before = cut
    with pytest.raises(PlacementUnavailable):
        as_cyborg.restarted().sync()
    placement.adapter.before, placement.adapter.after = then

    outcome = (publishing if turn_back else as_cyborg).restarted().sync()

    assert not outcome.problems
    assert traits_of(placement) == {"a": MARKS if turn_back else AS_CYBORG}


@pytest.mark.parametrize(
    "owners", [{ACME}, {"OWNER_NOVA", ACME}, {"OWNER_CYBORG", ACME}, {"OWNER_NOVA", "OWNER_CYBORG"}]
)
def test_owners_that_somebody_else_has_set_are_never_changed(
    publishing: Publishing, as_cyborg: Publishing, placement: PlacementFixture, owners: set[str]
) -> None:
    publishing.driver.nodes |= {"theirs-now": flat(CUSTOM_GOLD=1), "b": flat(CUSTOM_GOLD=1)}
    publishing.cycle.sync()
    tag(placement, "theirs-now", MARK, *owners)
    before = contents(placement)["theirs-now"]

    for _ in range(2):
        (problem,) = as_cyborg.restarted().sync().problems
        assert isinstance(problem, OwnershipConflict)

    assert contents(placement)["theirs-now"] == before
    assert traits_of(placement)["b"] == AS_CYBORG


def test_our_former_owner_without_a_record_of_it_is_not_ours_to_change(
    publishing: Publishing, placement: PlacementFixture, tmp_path: Path
) -> None:
    publishing.driver.nodes["a"] = flat(CUSTOM_GOLD=1)
    publishing.cycle.sync()
    before = contents(placement)
    with Publishing(placement, tmp_path / "lost", owner="OWNER_CYBORG") as forgetful:
        forgetful.driver.nodes = publishing.driver.nodes

        (problem,) = forgetful.cycle.sync().problems

    assert isinstance(problem, OwnershipConflict)
    assert problem.other == "OWNER_NOVA"
    assert contents(placement) == before


def test_what_is_gone_when_the_owner_changes_is_removed_as_what_it_was(
    publishing: Publishing, as_cyborg: Publishing, placement: PlacementFixture
) -> None:
    publishing.driver.nodes |= {
        "a": with_children({"CUSTOM_GOLD": 1}, {"gpu": {"VGPU": 4}}),
        "b": flat(CUSTOM_GOLD=1),
        "c": flat(CUSTOM_GOLD=1),
    }
    publishing.cycle.sync()
    consumer = str(uuid.uuid4())
    allocate(placement, consumer, c={"CUSTOM_GOLD": 1})
    del publishing.driver.nodes["a"], publishing.driver.nodes["c"]

    assert not as_cyborg.restarted().sync().problems
    outcome = as_cyborg.restarted().sync()

    assert not outcome.problems
    steps = {(type(step), step.name) for step in outcome.steps}
    assert steps == {(DeleteProvider, "a"), (DeleteProvider, "gpu"), (SetInventories, "c")}
    assert traits_of(placement) == {"b": AS_CYBORG, "c": MARKS}
    placement.client.delete_allocations(consumer)
    as_cyborg.restarted().sync()
    assert traits_of(placement) == {"b": AS_CYBORG}


# Who may publish what nova schedules to.


def test_a_root_with_vcpu_is_refused_to_all_owners_but_nova(
    placement: PlacementFixture,
    tmp_path: Path,
) -> None:
    with Publishing(placement, tmp_path / "acme", owner=ACME, name="acme") as acme:
        acme.driver.nodes |= {
            "cn": with_children({"VCPU": 8}, {"gpu": {"VGPU": 4}}),
            "fpga": with_children({"FPGA": 1}, {"soft-cpu": {"VCPU": 2}}),
        }

        (problem,) = acme.cycle.sync().problems

    assert isinstance(problem, InvalidTree)
    assert problem.provider == "cn"
    assert "OWNER_NOVA" in str(problem)
    assert ACME in str(problem)
    assert set(contents(placement)) == {"fpga", "soft-cpu"}


def test_a_root_that_gains_vcpu_is_refused_to_all_owners_but_nova(
    placement: PlacementFixture, tmp_path: Path
) -> None:
    with Publishing(placement, tmp_path / "acme", owner=ACME, name="acme") as acme:
        acme.driver.nodes["cn"] = flat(FPGA=1)
        acme.cycle.sync()
        before = contents(placement)
        acme.driver.nodes["cn"] = flat(FPGA=1, VCPU=8)

        outcome = acme.restarted().sync()

    assert [type(problem) for problem in outcome.problems] == [InvalidTree]
    assert contents(placement) == before


def test_a_root_with_vcpu_keeps_nova_when_the_owner_changes(
    publishing: Publishing, as_cyborg: Publishing, placement: PlacementFixture
) -> None:
    publishing.driver.nodes["cn"] = with_children({"VCPU": 8}, {"gpu": {"VGPU": 4}})
    publishing.cycle.sync()

    (problem,) = as_cyborg.restarted().sync().problems

    assert isinstance(problem, InvalidTree)
    assert problem.provider == "cn"
    assert traits_of(placement) == {"cn": MARKS, "gpu": MARKS}


@pytest.mark.parametrize("reserve", [False, True])
def test_a_root_with_vcpu_may_not_be_overlaid_for_another_owner(
    placement: PlacementFixture, tmp_path: Path, reserve: bool
) -> None:
    make(placement, "cn", VCPU=8)
    before = contents(placement)
    with Publishing(placement, tmp_path / "acme", owner=ACME, name="acme") as acme:
        acme.driver.nodes["cn"] = overlaid(reserve=reserve)

        outcome = acme.cycle.sync()

    assert [type(problem) for problem in outcome.problems] == [InvalidTree]
    assert contents(placement) == before


# What a driver must not say.


@pytest.mark.parametrize(
    "trait", ["OWNER_CYBORG", ACME, "CUSTOM_OWNER_NOVA", "CUSTOM_WHARFINGER_ANOTHER"]
)
@pytest.mark.parametrize("mode", PublishingMode)
def test_an_owner_that_a_driver_adds_is_refused(
    publishing: Publishing, placement: PlacementFixture, trait: str, mode: PublishingMode
) -> None:
    make(placement, "a", DISK_GB=1)
    before = contents(placement)
    publishing.driver.nodes |= {
        "a": also(
            lambda tree: tree.add_traits("a", trait),
            lambda tree: tree.set_publishing_mode("a", mode),
        )(flat(DISK_GB=1)),
        "b": flat(DISK_GB=1),
    }

    (problem,) = publishing.cycle.sync().problems

    assert isinstance(problem, InvalidTree)
    assert (problem.driver, problem.provider) == ("scripted", "a")
    assert trait in str(problem)
    after = contents(placement)
    assert after.pop("b")["traits"] == MARKS
    assert after == before


def test_an_owner_among_a_drivers_capabilities_is_refused(
    publishing: Publishing, placement: PlacementFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publishing.driver, "capabilities_as_traits", lambda: {"OWNER_CYBORG": True})
    publishing.driver.nodes["a"] = flat(DISK_GB=1)

    (problem,) = publishing.cycle.sync().problems

    assert isinstance(problem, InvalidTree)
    assert not contents(placement)


def test_a_driver_that_takes_all_traits_away_does_not_take_the_owner_away(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    publishing.driver.nodes["a"] = flat(DISK_GB=1)
    publishing.cycle.sync()
    publishing.driver.nodes["a"] = also(lambda tree: tree.update_traits("a", ()))(flat(DISK_GB=1))

    outcome = publishing.cycle.sync()

    assert not outcome.steps
    assert traits_of(placement) == {"a": MARKS}
