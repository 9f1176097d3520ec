"""Providers that exchange names; at each time, a name belongs to only one provider."""

from dataclasses import replace
from uuid import NAMESPACE_OID, uuid5

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.providers.world import planned_records
from wharfinger.exceptions import InvalidTree, NameTaken
from wharfinger.providers import DesiredProvider, Inventory, Provider
from wharfinger.providers.ownership import Publisher
from wharfinger.providers.plan import Plan, UpdateProvider
from wharfinger.providers.plan_draft import PlanFacts
from wharfinger.providers.provider import Record
from wharfinger.providers.tree_planner import plan_trees

US = Publisher("gpus", "OWNER_NOVA")
NOW = PlanFacts(publisher=US, now=1, is_listing=True, removal_delay=60)
NAMES = [f"node-{number}" for number in range(6)]
INVENTORY = {"VCPU": Inventory(total=8)}


def provider(name: str) -> Provider:
    uuid = str(uuid5(NAMESPACE_OID, name))
    return Provider(
        uuid=uuid, name=name, root_uuid=uuid, inventories=INVENTORY, traits=US.traits, generation=1
    )


class World:
    """Published root providers with these names, and their records."""

    def __init__(self, names: list[str]) -> None:
        self.live = {one.uuid: one for one in map(provider, names)}
        self.records: dict[str, Record] = {
            uuid: Record(applied=replace(one, generation=None), live=one)
            for uuid, one in self.live.items()
        }

    def plan(self, names: dict[str, str], *, wrong: str = "") -> Plan:
        """Return the plan that gives each provider the name in ``names``, by uuid.

        The driver adds an owner trait to the provider with uuid ``wrong``.
        """
        added = {wrong: frozenset(["OWNER_CYBORG"])}
        trees = plan_trees(
            replace(NOW, name_owners={one.name: one for one in self.live.values()}),
            [
                DesiredProvider(
                    provider=replace(
                        one, name=names[one.uuid], traits=one.traits | added.get(one.uuid, set())
                    ),
                    reported=True,
                )
                for one in map(self.live.__getitem__, names)
            ],
            self.live,
            self.records,
        )
        return Plan(trees=trees)

    def apply(self, plan: Plan) -> None:
        for step in plan.steps:
            assert isinstance(step, UpdateProvider)
            others = {one.name for one in self.live.values() if one.uuid != step.uuid}
            assert step.after.name not in others, "Placement would refuse that"
            after = step.after
            assert after is not None
            self.live[step.uuid] = after
        self.records |= {uuid: record for uuid, record in planned_records(plan).items() if record}

    @property
    def names(self) -> dict[str, str]:
        return {uuid: one.name for uuid, one in self.live.items()}


@given(st.permutations(NAMES))
def test_any_exchange_of_names_completes(names: list[str]) -> None:
    world = World(NAMES)
    wanted = dict(zip(world.live, names, strict=True))
    for _ in range(len(NAMES) + 2):
        plan = world.plan(wanted)
        assert all(isinstance(one, NameTaken) for one in plan.problems)
        assert bool(plan.steps) == (world.names != wanted), "each cycle brings it further"
        world.apply(plan)
    assert world.names == wanted
    plan = world.plan(wanted)
    assert not plan.steps
    assert not plan.problems


def test_exchange_of_two_names_first_gives_one_provider_its_uuid_as_a_name() -> None:
    world = World(NAMES[:2])
    one, other = sorted(world.live)
    wanted = {one: world.names[other], other: world.names[one]}
    plan = world.plan(wanted)
    [step] = plan.steps
    assert isinstance(step, UpdateProvider)
    assert step.after.name == step.uuid
    assert [type(problem) for problem in plan.problems] == [NameTaken]


def test_provider_that_waits_for_a_freed_name_needs_no_interim_name() -> None:
    world = World(NAMES[:3])
    first, second, third = world.live
    wanted = {first: "node-1", second: "node-2", third: "another"}
    seen = set()
    for _ in range(3):
        world.apply(world.plan(wanted))
        seen |= set(world.names.values())
    assert world.names == wanted
    assert seen == {*NAMES[:3], "another"}


def test_name_of_another_owners_provider_is_not_exchanged() -> None:
    world = World(NAMES[:2])
    first, second = world.live
    wanted = {first: "node-1"}
    del world.records[second]
    plan = world.plan(wanted)
    assert not plan.steps
    [problem] = plan.problems
    assert isinstance(problem, NameTaken)
    assert world.names[second] == "node-1"


def test_name_of_a_tree_that_may_not_be_published_is_not_exchanged() -> None:
    world = World(NAMES[:2])
    other, wrong = sorted(world.live)
    plan = world.plan({other: world.names[wrong], wrong: world.names[other]}, wrong=wrong)
    assert not plan.steps
    assert {type(problem) for problem in plan.problems} == {InvalidTree, NameTaken}
