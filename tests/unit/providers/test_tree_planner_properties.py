"""Rules of the diff over random trees: other programs' providers stay, crashes lose nothing."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.unit.providers.world import Crash, Fuse, World, planned_records
from wharfinger.providers import (
    Inventory,
    Provider,
    ProviderData,
    ProviderTree,
    PublishingMode,
    names,
)
from wharfinger.providers.ownership import Publisher, Standing, standing
from wharfinger.providers.plan import CreateProvider, DeleteProvider, Plan
from wharfinger.providers.provider import Record

US = Publisher("gpus", "OWNER_NOVA")
CLASSES = ("VGPU", "CUSTOM_A")
TRAITS = ("CUSTOM_T", "CUSTOM_U")
AGGREGATES = ("00000000-0000-0000-0000-00000000000a", "00000000-0000-0000-0000-00000000000b")
#: The providers that a driver may state: roots of two trees, and their descendants.
ROOTS = ("a", "b")
CHILDREN = {"a": ("a1", "a2", "a3"), "b": ("b1",)}
OURS = (*ROOTS, *CHILDREN["a"], *CHILDREN["b"])
UUIDS = {name: names.root_uuid(name) for name in (*OURS, "x")}


@dataclass(frozen=True)
class Statement:
    """A driver's statement about one provider; None means that this part is not stated."""

    parent: str | None
    inventories: Mapping[str, Inventory] | None
    traits: frozenset[str] | None
    aggregates: frozenset[str] | None
    reserved: bool


@dataclass(frozen=True)
class Driver:
    """A driver of one cycle. A provider of OURS without a statement is absent, or ``silent``."""

    statements: Mapping[str, Statement]
    silent: frozenset[str]
    overlaid: frozenset[str]

    def __call__(self, tree: ProviderTree) -> None:
        known = {data.name: data for data in map(tree.data, tree.get_provider_uuids())}
        for name, said in self.statements.items():
            if self._place(tree, name, said.parent) and name in known:
                _restore(tree, known[name])
            if name in self.overlaid:
                tree.set_publishing_mode(name, PublishingMode.OVERLAY)
            if said.inventories is not None:
                tree.update_inventory(name, said.inventories)
            if said.traits is not None:
                tree.update_traits(name, said.traits)
            if said.aggregates is not None:
                tree.update_aggregates(name, said.aggregates)
            if said.reserved:
                tree.reserve(name, "cleaning")
        for name in OURS:
            if name in self.statements:
                continue
            if name not in self.silent and tree.exists(name):
                tree.remove(name)
            elif name in self.silent and name in known and not tree.exists(name):
                # Its parent has moved or is gone.
                above = known[name].parent_uuid
                if above is not None and tree.exists(above):
                    tree.new_child(name, above, UUIDS[name])
                    _restore(tree, known[name])

    def _place(self, tree: ProviderTree, name: str, parent: str | None) -> bool:
        """Move or create a provider below its parent; return whether that was necessary."""
        above = UUIDS[parent] if parent else None
        if tree.exists(name):
            if tree.data(name).parent_uuid == above:
                return False
            tree.remove(name)
        if parent is None:
            tree.new_root(name, UUIDS[name])
        else:
            tree.new_child(name, parent, UUIDS[name])
        return True


def _restore(tree: ProviderTree, known: ProviderData) -> None:
    """Give a provider that has moved the contents that it had before."""
    tree.update_inventory(known.name, known.inventory)
    tree.update_traits(known.name, known.traits)
    tree.update_aggregates(known.name, known.aggregates)


@st.composite
def figures(draw: st.DrawFn) -> dict[str, Inventory]:
    made = {}
    for name in draw(st.sets(st.sampled_from(CLASSES))):
        total = draw(st.integers(1, 3))
        made[name] = Inventory(total=total, reserved=draw(st.integers(0, total)))
    return made


def some(names_of: tuple[str, ...]) -> st.SearchStrategy[frozenset[str]]:
    return st.frozensets(st.sampled_from(names_of))


@st.composite
def drivers(draw: st.DrawFn, overlaid: frozenset[str]) -> Driver:
    said: dict[str, Statement] = {}
    for root in ROOTS:
        if draw(st.integers(0, 4)):
            said[root] = draw(statements(None))
            for child in CHILDREN[root]:
                if draw(st.booleans()):
                    above = [name for name in said if name == root or name in CHILDREN[root]]
                    said[child] = draw(statements(draw(st.sampled_from(above))))
    return Driver(said, draw(some(OURS)), overlaid)


@st.composite
def statements(draw: st.DrawFn, parent: str | None) -> Statement:
    return Statement(
        parent,
        draw(st.none() | figures()),
        draw(st.none() | some(TRAITS)),
        draw(st.none() | some(AGGREGATES)),
        draw(st.booleans()),
    )


@st.composite
def placements(draw: st.DrawFn) -> list[Provider]:
    """Draw the providers before the first cycle: some of ROOTS, of any owner, and a child."""
    there = [
        Provider(
            uuid=UUIDS[name],
            name=name,
            root_uuid=UUIDS[name],
            inventories=draw(figures()),
            traits=draw(some((*TRAITS, "OWNER_NOVA", "OWNER_CYBORG"))),
            aggregates=draw(some(AGGREGATES)),
        )
        for name in ROOTS
        if draw(st.booleans())
    ]
    if draw(st.booleans()) and there:
        above = there[0]
        there.append(theirs(above))
    return there


def theirs(above: Provider) -> Provider:
    return Provider(
        uuid=UUIDS["x"],
        name="x",
        root_uuid=above.root_uuid,
        parent_uuid=above.uuid,
        inventories={"FPGA": Inventory(total=1)},
        traits=frozenset(["OWNER_CYBORG"]),
        generation=0,
    )


@dataclass(frozen=True)
class Meddling:
    """Changes of another program to one provider between two cycles."""

    name: str
    trait: bool
    aggregate: bool
    inventory: bool
    takes_over: bool
    child: bool

    def __call__(self, world: World) -> None:
        provider = world.live.get(UUIDS[self.name])
        if provider is None:
            return
        inventories, traits = dict(provider.inventories), set(provider.traits)
        if self.inventory:
            inventories["CUSTOM_THEIRS"] = Inventory(total=3, reserved=1)
        if self.trait:
            traits.add("CUSTOM_THEIRS")
        if self.takes_over:
            traits = traits - {"OWNER_NOVA"} | {"OWNER_CYBORG"}
        added = {"00000000-0000-0000-0000-0000000000cc"} if self.aggregate else set()
        world.change(
            self.name,
            inventories=inventories,
            traits=frozenset(traits),
            aggregates=provider.aggregates | added,
        )
        if self.child and UUIDS["x"] not in world.live:
            world.live[UUIDS["x"]] = theirs(provider)


@dataclass(frozen=True)
class Story:
    """A cycle, changes of another program, and a cycle of another driver."""

    there: list[Provider]
    first: Driver
    meddling: Meddling
    second: Driver
    allocated: frozenset[str]

    def begin(self, fuse: Fuse) -> World:
        world = World(US, self.there, self.allocated, fuse=fuse)
        world.cycle(self.first)
        self.meddling(world)
        world.now += 100
        return world


@st.composite
def stories(draw: st.DrawFn) -> Story:
    overlaid = draw(some(ROOTS))
    meddling = st.builds(
        Meddling,
        st.sampled_from(OURS),
        trait=st.booleans(),
        aggregate=st.booleans(),
        inventory=st.booleans(),
        takes_over=st.booleans(),
        child=st.booleans(),
    )
    return Story(
        draw(placements()),
        draw(drivers(overlaid)),
        draw(meddling),
        draw(drivers(overlaid)),
        frozenset(UUIDS[name] for name in draw(some(OURS))),
    )


def check_touches_nothing_of_others(world: World, plan: Plan, overlaid: frozenset[str]) -> None:
    for step in plan.steps:
        for uuid in step.touched:
            there = world.live.get(uuid)
            assert there is None or standing(there, US, Record()) is not Standing.FOREIGN
        if isinstance(step, DeleteProvider):
            assert world.memory.get(step.uuid).is_ours
        if isinstance(step, DeleteProvider | CreateProvider):
            assert step.name not in overlaid


@settings(deadline=None, max_examples=25)
@given(stories())
def test_steps_never_touch_providers_of_others_or_delete_unrecorded_ones(
    story: Story,
) -> None:
    world = World(US, story.there, story.allocated)
    for driver in (story.first, story.first, story.second, story.second):
        plan = world.plan(driver)
        check_touches_nothing_of_others(world, plan, driver.overlaid)
        world.apply(plan)
        story.meddling(world)
        world.now += 100


@settings(deadline=None, max_examples=25)
@given(stories(), st.booleans())
def test_cycle_without_records_deletes_nothing(story: Story, forgets: bool) -> None:
    world = story.begin(Fuse())
    for _ in range(3):
        if forgets:
            world.memory.records.clear()
        before = set(world.memory.records)
        there = set(world.live)
        world.cycle(story.second)
        world.now += 100
        assert there - world.live.keys() <= before


@settings(deadline=None, max_examples=25)
@given(stories())
def test_additions_of_others_survive_until_the_provider_is_deleted(story: Story) -> None:
    world = World(US, story.there)
    world.cycle(story.first)
    story.meddling(world)
    meddled = world.contents().get(UUIDS[story.meddling.name])
    for driver in (story.second, story.first):
        world.now += 100
        world.cycle(driver)
        after = world.contents().get(UUIDS[story.meddling.name])
        if meddled is None or after is None:
            return
        put = {"CUSTOM_THEIRS", "OWNER_CYBORG"}
        assert meddled.traits & put <= after.traits
        assert meddled.aggregates - set(AGGREGATES) <= after.aggregates
        if "CUSTOM_THEIRS" in meddled.inventories:
            figure = after.inventories["CUSTOM_THEIRS"]
            assert replace(figure, reserved=1) == meddled.inventories["CUSTOM_THEIRS"]
            assert figure.reserved in {1, 3}


@settings(deadline=None, max_examples=25)
@given(stories())
def test_second_cycle_of_an_unchanged_world_is_empty(story: Story) -> None:
    world = story.begin(Fuse())
    for driver in (story.second, story.second):
        # Run it twice, because an absent provider is removed only in the second cycle.
        world.cycle(driver)
        world.now += 100
    plan = world.plan(story.second)
    assert (plan.steps, planned_records(plan)) == ((), {})


@settings(deadline=None, max_examples=40)
@given(stories(), st.integers(0, 40), st.integers(0, 8))
def test_crash_before_any_write_leads_to_the_same_world(
    story: Story, writes: int, more: int
) -> None:
    whole = story.begin(Fuse())
    broken = story.begin(fuse := Fuse())
    for left in (writes, more):
        # Crash in the second cycle, and in the next one, which repairs it.
        fuse.left = left
        try:
            broken.cycle(story.second)
        except Crash:
            continue
        finally:
            fuse.left = None
    assume(broken.live != whole.live or broken.memory.records != whole.memory.records)
    for _ in range(3):
        whole.cycle(story.second)
        broken.cycle(story.second)
        assert broken.contents() == whole.contents()
        whole.now += 100
        broken.now += 100
    plan = broken.plan(story.second)
    assert (plan.steps, planned_records(plan)) == ((), {})
    # Both worlds have recorded the same parts, so the first driver removes the same parts.
    whole.cycle(story.first)
    broken.cycle(story.first)
    assert broken.contents() == whole.contents()


def busy(stage: int) -> Callable[[ProviderTree], None]:
    """Return a driver that reserves (0), then releases and changes much (1), or undoes it (2)."""

    def driver(tree: ProviderTree) -> None:
        tree.set_publishing_mode("a", PublishingMode.OVERLAY)
        tree.update_traits("a", ["CUSTOM_U"] if stage == 1 else [])
        for child in ("a1", "a2")[: 2 if stage == 1 else 1]:
            if not tree.exists(child):
                tree.new_child(child, "a", UUIDS[child])
            tree.update_traits(child, ["CUSTOM_T"] if stage == 1 else [])
            tree.update_aggregates(child, AGGREGATES[:1] if stage == 1 else [])
            kinds = {0: ["VGPU"], 1: ["VGPU", "CUSTOM_A"], 2: ["VGPU"]}[stage]
            tree.update_inventory(child, {kind: {"total": 4} for kind in kinds})
        if stage == 0:
            tree.reserve("a", "maintenance")
            tree.reserve("a1", "cleaning")

    return driver


def begun(fuse: Fuse) -> World:
    """Return a world in which everything is reserved, with inventories of another program."""
    nova = Provider(
        uuid=UUIDS["a"],
        name="a",
        root_uuid=UUIDS["a"],
        inventories={"VCPU": Inventory(total=8, reserved=2)},
    )
    world = World(US, [nova], fuse=fuse)
    world.cycle(busy(0))
    theirs = {"CUSTOM_THEIRS": Inventory(total=3, reserved=1)}
    world.change("a1", inventories={**world.by_name("a1").inventories, **theirs})
    world.cycle(busy(0))
    return world


def test_crash_before_each_single_write_leaves_nothing_behind() -> None:
    whole = begun(Fuse())
    whole.cycle(busy(1))
    released = whole.contents()
    whole.cycle(busy(2))
    taken_back = whole.contents()
    crashes = 0
    while True:
        broken = begun(fuse := Fuse())
        fuse.left = crashes
        try:
            broken.cycle(busy(1))
        except Crash:
            crashes += 1
        else:
            break
        fuse.left = None
        broken.cycle(busy(1))
        assert broken.contents() == released
        assert broken.plan(busy(1)) == Plan()
        broken.cycle(busy(2))
        assert broken.contents() == taken_back
    assert crashes == 9  # one for each of two transactions and seven requests
