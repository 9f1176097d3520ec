"""Every provider has one owner, and we write only our own providers."""

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
from wharfinger.exceptions import AdoptionRefused, InvalidTree, OwnershipConflict
from wharfinger.providers import Inventory, ProviderTree, PublishingMode, names
from wharfinger.providers.plan import Plan, SetTraits

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
    """Assert after every write that no provider in Placement has the traits of two owners.

    The names of providers to which a test gives two owners start with "theirs".
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
    """Return the same driver instance with its state and nodes, for another owner."""
    with Publishing(placement, publishing.state_path, owner=owner) as again:
        again.driver.nodes = publishing.driver.nodes
        yield again


@pytest.fixture
def as_cyborg(publishing: Publishing, placement: PlacementFixture) -> Iterator[Publishing]:
    """The driver instance for OWNER_CYBORG instead of its first owner, after ``restarted()``."""
    yield from republished_as("OWNER_CYBORG", publishing, placement)


def traits_of(placement: PlacementFixture) -> dict[str, set[str]]:
    return {name: found["traits"] for name, found in contents(placement).items()}


def tag(placement: PlacementFixture, name: str, *traits: str) -> None:
    """Replace a provider's traits as another client."""
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
    """Create a provider without traits as another client; return its uuid."""
    client = placement.new_client()
    made = client.create_provider(uuid_ or str(uuid.uuid4()), name, parent)
    client.set_inventories(
        made.uuid, made.generation, {kind: Inventory(total=total) for kind, total in totals.items()}
    )
    return made.uuid


# Adoption of providers that another program created.


@pytest.fixture
def adopting(placement: PlacementFixture, tmp_path: Path) -> Iterator[Publishing]:
    """A driver instance with ``adopt = matching``."""
    with Publishing(placement, tmp_path / "adopting", adopts_matching=True) as fixture:
        yield fixture


ROOT = names.root_uuid("cn")
CHILD = "00000000-0000-0000-0000-0000000000c1"


def _child_by_uuid(child: str) -> Edit:
    """Return an edit that puts the child with this uuid below the node, under the name gpu."""

    def edit(tree: ProviderTree, node: str, allocations: Allocations | None) -> None:
        flat(DISK_GB=8)(tree, node, allocations)
        if tree.exists(child):
            tree.remove(child)
        tree.new_child("gpu", node, uuid=child)
        tree.update_inventory("gpu", {"VGPU": {"total": 4}})

    return edit


@pytest.mark.parametrize(
    "edit",
    [_child_by_uuid(CHILD), with_children({"DISK_GB": 8}, {"gpu": {"VGPU": 4}})],
    ids=["by uuid", "by name"],
)
def test_adopt_matching_takes_over_a_child_below_a_root_of_ours(
    adopting: Publishing, placement: PlacementFixture, edit: Edit
) -> None:
    """The child lacks our instance trait, by which an instance with several nodes lists."""
    adopting.driver.nodes |= {"cn": flat(DISK_GB=8), "another": flat(DISK_GB=8)}
    adopting.cycle.sync()
    make(placement, "gpu", ROOT, uuid_=CHILD, VGPU=2)
    adopting.driver.nodes["cn"] = edit
    planned = adopting.cycle.plan()

    outcome = adopting.cycle.sync()

    assert (outcome.problems, planned.problems) == ((), ())
    assert outcome.steps == planned.steps
    found = contents(placement)["gpu"]
    assert (found["uuid"], found["traits"], found["parent"]) == (CHILD, MARKS, "cn")


def test_adopt_with_a_provider_that_is_changed_meanwhile_says_that_others_may_be_adopted(
    placement: PlacementFixture, tmp_path: Path
) -> None:
    uuids = {name: make(placement, name, uuid_=names.root_uuid(name), DISK_GB=8) for name in "ab"}

    def change(_plan: Plan) -> None:
        generation = placement.client.get_inventories(uuids["b"]).resource_provider_generation
        placement.client.set_inventories(uuids["b"], generation, {"VGPU": Inventory(total=1)})

    with Publishing(placement, tmp_path / "adopting", adopts=frozenset(uuids.values())) as adopting:
        adopting.driver.nodes |= dict.fromkeys(uuids, flat(DISK_GB=8))
        with pytest.raises(AdoptionRefused, match=r"has not adopted all providers: .*VGPU"):
            adopting.cycle.adopt(on_plan=change)

    found = contents(placement)
    assert (found["a"]["traits"], found["b"]["traits"]) == (MARKS, set())


def _below_another_parent(placement: PlacementFixture) -> None:
    make(placement, "gpu", make(placement, "card", ROOT), uuid_=CHILD, VGPU=4)


def _with_another_name(placement: PlacementFixture) -> None:
    make(placement, "another", ROOT, uuid_=CHILD, VGPU=4)


@pytest.mark.parametrize(
    ("there", "differs"),
    [
        (_below_another_parent, "its parent is"),
        (_with_another_name, "its name is another; the driver reports gpu"),
    ],
)
def test_adopt_matching_leaves_a_child_that_does_not_match(
    adopting: Publishing,
    placement: PlacementFixture,
    there: Callable[[PlacementFixture], None],
    differs: str,
) -> None:
    make(placement, "cn", uuid_=ROOT, DISK_GB=8)
    there(placement)
    before = contents(placement)
    adopting.driver.nodes["cn"] = _child_by_uuid(CHILD)

    outcomes = [adopting.cycle.sync(), adopting.restarted().sync()]

    for outcome in outcomes:
        (problem,) = outcome.problems
        assert isinstance(problem, OwnershipConflict)
        assert (problem.uuid, problem.owner) == (CHILD, "OWNER_NOVA")
        assert "it has no owner trait" in problem.other
        assert differs in problem.remedy
    after = contents(placement)
    assert after.pop("cn")["traits"] == MARKS
    del before["cn"]
    assert after == before


@pytest.mark.parametrize(
    ("there", "totals", "differs"),
    [
        (("another", ROOT), {"DISK_GB": 8}, "its name is another; the driver reports cn"),
        (("cn", CHILD), {"DISK_GB": 8}, f"its uuid is {CHILD}; the driver reports {ROOT}"),
    ],
    ids=["name", "uuid"],
)
def test_adopt_matching_leaves_a_root_that_does_not_match(
    adopting: Publishing,
    placement: PlacementFixture,
    there: tuple[str, str],
    totals: dict[str, int],
    differs: str,
) -> None:
    name, uuid_ = there
    make(placement, name, None, uuid_=uuid_, **totals)
    before = contents(placement)
    adopting.driver.nodes["cn"] = flat(**totals)

    for _ in range(2):  # the second cycle knows the root's uuid
        (problem,) = adopting.restarted().sync().problems

        assert isinstance(problem, OwnershipConflict)
        assert differs in problem.remedy
        assert contents(placement) == before


# Overlays.


def overlaid(*, traits: tuple[str, ...] = (), reserve: bool = False) -> Edit:
    """Return an edit that overlays the node and also sets facts that only its owner may set."""

    def edit(tree: ProviderTree, node: str, allocations: Allocations | None) -> None:
        tree.set_publishing_mode(node, PublishingMode.OVERLAY)
        tree.update_inventory(node, {"CUSTOM_GOLD": {"total": 99}})
        tree.update_aggregates(node, [str(uuid.uuid4())])
        tree.update_traits(node, traits)
        if reserve:
            tree.reserve(node, "maintenance")

    return edit


def test_overlay_writes_only_traits_with_our_prefix_and_the_reservation(
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


# Another owner in the configuration.


def test_new_owner_replaces_the_old_owner_with_one_write_for_each_provider(
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


def test_allocated_provider_changes_its_owner_once_it_has_no_allocations(
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


# Owners of root providers with VCPU.


def test_root_with_vcpu_is_refused_for_every_owner_except_nova(
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
