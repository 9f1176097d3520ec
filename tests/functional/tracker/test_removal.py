"""Nothing is lost: what is gone is removed late, deliberately, and never by mistake."""

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.lab.cycles import Publishing, allocate, contents, stored
from tests.lab.drivers import DEVICE, also, does_not_answer, flat, with_children, with_device
from tests.lab.placement import PlacementFixture
from wharfinger.driver import Allocations
from wharfinger.exceptions import (
    BackendError,
    InvalidTree,
    MassRemoval,
    PlacementUnavailable,
    WharfingerError,
)
from wharfinger.placement.client import PlacementClient
from wharfinger.providers import Inventory, ProviderTree
from wharfinger.providers.plan import (
    CreateProvider,
    DeleteProvider,
    SetInventories,
    SetTraits,
    Step,
)
from wharfinger.tracker.cycle import Outcome

DELAY = 60.0


class Clock:
    """The time of day, as far as cycles read it."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def time(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return 0.0

    def later(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("wharfinger.tracker.cycle.time", clock)
    return clock


@pytest.fixture
def publishing(placement: PlacementFixture, tmp_path: Path, clock: Clock) -> Iterator[Publishing]:
    with Publishing(placement, tmp_path / "state", removal_delay=DELAY) as fixture:
        yield fixture


def fleet(publishing: Publishing, count: int) -> list[str]:
    """Have the driver report so many nodes, and publish them; returns their names."""
    names = [f"node-{number:02}" for number in range(count)]
    publishing.driver.nodes |= {name: flat(CUSTOM_GOLD=1) for name in names}
    assert not publishing.cycle.sync().problems
    return names


def lose(publishing: Publishing, *names: str) -> None:
    """Have the driver no longer report these nodes."""
    for name in names:
        del publishing.driver.nodes[name]


def absent_twice(publishing: Publishing, clock: Clock) -> Outcome:
    """Two complete listings, as far apart as it takes; gives the second one's outcome."""
    publishing.cycle.sync()
    clock.later(DELAY)
    return publishing.cycle.sync()


def use(placement: PlacementFixture, name: str, **amounts: int) -> str:
    """Have a new consumer use amounts, by class, of a provider; returns its uuid."""
    consumer = str(uuid.uuid4())
    allocate(placement, consumer, **{name: amounts})  # type: ignore[arg-type]
    return consumer


def kinds(steps: tuple[Step, ...]) -> list[tuple[type, str]]:
    return [(type(step), step.name) for step in steps]


def waiting(outcome: Outcome) -> dict[str, str]:
    return {item.name: item.reason for item in outcome.pending}


# Gone: absent from two complete listings, far enough apart.


def test_what_two_listings_lack_far_enough_apart_is_removed(
    publishing: Publishing, placement: PlacementFixture, clock: Clock
) -> None:
    fleet(publishing, 3)
    lose(publishing, "node-00")

    outcomes = []
    for seconds in (0, 30, 29.9, 0.1):
        clock.later(seconds)
        outcomes.append(publishing.cycle.sync())

    assert [waiting(outcome).keys() for outcome in outcomes] == [{"node-00"}] * 3 + [set()]
    assert [kinds(outcome.steps) for outcome in outcomes] == [
        [],
        [],
        [],
        [(DeleteProvider, "node-00")],
    ]
    assert not any(outcome.problems for outcome in outcomes)
    assert set(contents(placement)) == {"node-01", "node-02"}
    assert len(publishing.memory.records) == 2


def test_the_absence_is_counted_across_restarts(
    publishing: Publishing, placement: PlacementFixture, clock: Clock
) -> None:
    fleet(publishing, 3)
    lose(publishing, "node-00")

    counted = []
    for _ in range(3):
        counted.append(kinds(publishing.restarted().sync().steps))
        clock.later(DELAY / 2)

    assert counted == [[], [], [(DeleteProvider, "node-00")]]
    assert "node-00" not in contents(placement)


def test_without_a_delay_two_listings_are_needed_all_the_same(
    placement: PlacementFixture, tmp_path: Path, clock: Clock
) -> None:
    with Publishing(placement, tmp_path / "hasty", removal_delay=0) as publishing:
        fleet(publishing, 2)
        lose(publishing, "node-00")

        assert not publishing.cycle.sync().steps
        assert not publishing.cycle.sync().steps, "at the same moment, it is the same listing"
        clock.later(0.001)
        assert kinds(publishing.cycle.sync().steps) == [(DeleteProvider, "node-00")]


def test_what_comes_back_starts_anew(
    publishing: Publishing, placement: PlacementFixture, clock: Clock
) -> None:
    fleet(publishing, 2)
    back = publishing.driver.nodes["node-00"]

    lose(publishing, "node-00")
    publishing.cycle.sync()
    clock.later(DELAY - 1)
    publishing.driver.nodes["node-00"] = back
    assert not publishing.restarted().sync().pending
    lose(publishing, "node-00")
    clock.later(1)
    outcomes = [publishing.restarted().sync()]
    clock.later(DELAY - 1)
    outcomes.append(publishing.restarted().sync())

    assert not any(outcome.steps for outcome in outcomes)
    assert "absent for 0 s" in waiting(outcomes[0])["node-00"]
    assert "absent for 59 s" in waiting(outcomes[1])["node-00"]
    assert "node-00" in contents(placement)


def test_a_node_that_is_listed_again_and_cannot_be_described_starts_anew(
    publishing: Publishing, placement: PlacementFixture, clock: Clock
) -> None:
    fleet(publishing, 2)
    lose(publishing, "node-00")
    publishing.cycle.sync()
    clock.later(DELAY / 2)
    publishing.driver.nodes["node-00"] = does_not_answer
    publishing.cycle.sync()
    lose(publishing, "node-00")
    clock.later(DELAY / 2)

    outcome = publishing.cycle.sync()

    assert not outcome.steps
    assert "node-00" in contents(placement)


def _raises(error: BaseException) -> object:
    def list_nodes(refresh: bool = False) -> list[str]:
        raise error

    return list_nodes


BAD_LISTINGS = {
    "it raised": _raises(OSError("connection reset")),
    "it was partial": _raises(
        BackendError(driver="scripted", operation="listing", reason="3 of 9 pages")
    ),
    "it gave up": _raises(SystemExit(1)),
    "it was None": lambda refresh=False: None,
    "a name came twice": lambda refresh=False: ["node-01", "node-01"],
    "it was no list": lambda refresh=False: {"node-01": 1},
}


@pytest.mark.parametrize("what", BAD_LISTINGS)
def test_a_listing_that_failed_removes_nothing_and_is_no_absence(
    publishing: Publishing,
    placement: PlacementFixture,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
    what: str,
) -> None:
    fleet(publishing, 2)
    lose(publishing, "node-00")

    def failing() -> None:
        with monkeypatch.context() as patch:
            patch.setattr(publishing.driver, "get_available_nodes", BAD_LISTINGS[what])
            with pytest.raises(BackendError):
                publishing.cycle.sync()
        clock.later(DELAY)

    failing()
    assert not publishing.cycle.sync().steps, "the one before was no absence"
    clock.later(1)
    failing()
    assert "node-00" in contents(placement)
    assert kinds(publishing.cycle.sync().steps) == [(DeleteProvider, "node-00")]


def test_a_node_that_could_not_be_read_does_not_hold_back_the_removal_of_another(
    publishing: Publishing, placement: PlacementFixture, clock: Clock
) -> None:
    fleet(publishing, 3)
    lose(publishing, "node-00")
    publishing.driver.nodes["node-01"] = does_not_answer

    outcome = absent_twice(publishing, clock)

    assert kinds(outcome.steps) == [(DeleteProvider, "node-00")]
    assert set(contents(placement)) == {"node-01", "node-02"}


# With allocations: reserved, kept and reported.


def test_what_is_gone_with_allocations_is_reserved_kept_and_reported(
    publishing: Publishing, placement: PlacementFixture, clock: Clock
) -> None:
    fleet(publishing, 2)
    use(placement, "node-00", CUSTOM_GOLD=1)
    lose(publishing, "node-00")

    outcome = absent_twice(publishing, clock)

    assert kinds(outcome.steps) == [(SetInventories, "node-00")]
    assert "allocations" in waiting(outcome)["node-00"]
    assert not outcome.problems
    assert contents(placement)["node-00"]["inventories"] == {"CUSTOM_GOLD": (1, 1)}
    for _ in range(2):
        clock.later(DELAY)
        again = publishing.restarted().sync()
        assert not again.steps
        assert "allocations" in waiting(again)["node-00"]


def test_what_was_reserved_as_gone_gets_its_own_figures_when_it_comes_back(
    publishing: Publishing, placement: PlacementFixture, clock: Clock
) -> None:
    def with_reserved(tree: ProviderTree, node: str, allocations: Allocations | None) -> None:
        tree.update_inventory(
            node,
            {"VCPU": {"total": 8, "reserved": 2, "allocation_ratio": 4.0}, "DISK_GB": {"total": 9}},
        )

    fleet(publishing, 1)
    publishing.driver.nodes["cn"] = with_reserved
    publishing.cycle.sync()
    before = contents(placement)["cn"]
    use(placement, "cn", VCPU=1)
    lose(publishing, "cn")
    absent_twice(publishing, clock)
    assert contents(placement)["cn"]["inventories"] == {"VCPU": (8, 8), "DISK_GB": (9, 9)}

    publishing.driver.nodes["cn"] = with_reserved
    outcome = publishing.restarted().sync()

    assert kinds(outcome.steps) == [(SetInventories, "cn")]
    assert not outcome.pending
    assert contents(placement)["cn"] == before
    ratio = placement.client.get_inventories(before["uuid"]).inventories["VCPU"].allocation_ratio
    assert ratio == 4.0


def test_a_silent_driver_gives_a_device_that_came_back_its_figures(
    publishing: Publishing, placement: PlacementFixture, clock: Clock
) -> None:
    """A driver that edits what it finds must not be handed our reservation as its own."""

    def keeps(tree: ProviderTree, node: str, allocations: Allocations | None) -> None:
        if not tree.data(node).inventory:
            tree.update_inventory(node, {"VCPU": {"total": 8, "reserved": 2}})
        tree.update_inventory(node, tree.data(node).inventory)

    fleet(publishing, 1)
    publishing.driver.nodes["cn"] = keeps
    publishing.cycle.sync()
    use(placement, "cn", VCPU=1)
    lose(publishing, "cn")
    absent_twice(publishing, clock)

    publishing.driver.nodes["cn"] = keeps
    publishing.cycle.sync()

    assert contents(placement)["cn"]["inventories"] == {"VCPU": (8, 2)}


def test_what_was_kept_for_its_allocation_goes_in_the_cycle_after_that_has_gone(
    publishing: Publishing, placement: PlacementFixture, clock: Clock
) -> None:
    fleet(publishing, 2)
    consumer = use(placement, "node-00", CUSTOM_GOLD=1)
    lose(publishing, "node-00")
    absent_twice(publishing, clock)
    placement.client.delete_allocations(consumer)

    outcome = publishing.restarted().sync()

    assert kinds(outcome.steps) == [(DeleteProvider, "node-00")]
    assert not outcome.pending
    assert set(contents(placement)) == {"node-01"}


def test_an_allocation_that_comes_while_a_removal_is_pending_keeps_the_provider(
    publishing: Publishing, placement: PlacementFixture, clock: Clock
) -> None:
    fleet(publishing, 2)
    lose(publishing, "node-00")
    publishing.cycle.sync()
    use(placement, "node-00", CUSTOM_GOLD=1)
    clock.later(DELAY)

    publishing.cycle.sync()

    assert contents(placement)["node-00"]["inventories"] == {"CUSTOM_GOLD": (1, 1)}


def test_an_allocation_that_comes_in_the_last_moment_keeps_the_provider(
    publishing: Publishing, placement: PlacementFixture, clock: Clock
) -> None:
    fleet(publishing, 2)
    lose(publishing, "node-00")
    publishing.cycle.sync()
    clock.later(DELAY)

    placement.adapter.once_before(
        lambda method, path: method == "DELETE",
        lambda: use(placement, "node-00", CUSTOM_GOLD=1),
    )
    publishing.cycle.sync()
    clock.later(1)
    outcome = publishing.cycle.sync()

    assert not outcome.problems
    assert contents(placement)["node-00"]["inventories"] == {"CUSTOM_GOLD": (1, 1)}


def test_the_children_of_an_allocated_host_that_is_gone_go_and_the_host_stays(
    publishing: Publishing, placement: PlacementFixture, clock: Clock
) -> None:
    fleet(publishing, 1)
    publishing.driver.nodes["cn"] = with_children({"VCPU": 8}, {"gpu": {"VGPU": 4}})
    publishing.cycle.sync()
    use(placement, "cn", VCPU=1)
    lose(publishing, "cn")

    outcome = absent_twice(publishing, clock)

    assert set(waiting(outcome)) == {"cn"}
    assert set(contents(placement)) == {"node-00", "cn"}
    assert contents(placement)["cn"]["inventories"] == {"VCPU": (8, 8)}


# With children of others: the same.


@pytest.mark.parametrize("others", [0, 2], ids=["alone", "in a fleet"])
def test_a_gone_device_with_somebody_elses_child_is_reserved_and_kept(
    publishing: Publishing, placement: PlacementFixture, clock: Clock, others: int
) -> None:
    publishing.driver.nodes["cn"] = with_children({"VCPU": 8}, {"gpu": {"VGPU": 4}})
    fleet(publishing, others)
    theirs = placement.client.create_provider(
        str(uuid.uuid4()), "theirs", contents(placement)["gpu"]["uuid"]
    )
    publishing.driver.nodes["cn"] = with_children({"VCPU": 8}, {})

    outcome = absent_twice(publishing, clock)

    assert not outcome.problems
    assert kinds(outcome.steps) == [(SetInventories, "gpu")]
    assert "children" in waiting(outcome)["gpu"]
    assert contents(placement)["gpu"]["inventories"] == {"VGPU": (4, 4)}
    assert contents(placement)["theirs"]["parent"] == "gpu"
    assert not publishing.restarted().sync().steps

    placement.client.delete_provider(theirs.uuid)
    assert kinds(publishing.restarted().sync().steps) == [(DeleteProvider, "gpu")]


@pytest.mark.parametrize("others", [0, 2], ids=["alone", "in a fleet"])
@pytest.mark.parametrize("below", ["cn", "gpu"])
def test_a_gone_host_with_somebody_elses_child_is_reserved_and_kept(
    publishing: Publishing, placement: PlacementFixture, clock: Clock, others: int, below: str
) -> None:
    publishing.driver.nodes["cn"] = with_children({"VCPU": 8}, {"gpu": {"VGPU": 4}})
    fleet(publishing, others)
    theirs = placement.client.create_provider(
        str(uuid.uuid4()), "theirs", contents(placement)[below]["uuid"]
    )
    lose(publishing, "cn")

    outcome = absent_twice(publishing, clock)

    kept = {"cn"} if below == "cn" else {"cn", "gpu"}
    assert not outcome.problems
    assert set(waiting(outcome)) == kept
    found = contents(placement)
    assert {name for name in found if not name.startswith("node")} == {"theirs", *kept}
    assert found["cn"]["inventories"] == {"VCPU": (8, 8)}
    assert not publishing.restarted().sync().steps

    placement.client.delete_provider(theirs.uuid)
    publishing.restarted().sync()
    assert not {"cn", "gpu"} & contents(placement).keys()


def test_a_gone_host_with_somebody_elses_child_comes_back(
    publishing: Publishing, placement: PlacementFixture, clock: Clock
) -> None:
    fleet(publishing, 2)
    before = contents(placement)
    placement.client.create_provider(str(uuid.uuid4()), "theirs", before["node-00"]["uuid"])
    back = publishing.driver.nodes["node-00"]
    lose(publishing, "node-00")
    absent_twice(publishing, clock)
    assert contents(placement)["node-00"]["inventories"] == {"CUSTOM_GOLD": (1, 1)}

    publishing.driver.nodes["node-00"] = back
    outcome = publishing.cycle.sync()

    assert not outcome.pending
    assert contents(placement)["node-00"] == before["node-00"]


# A plan alone.


def test_a_plan_shows_what_is_pending_and_does_nothing(
    publishing: Publishing, placement: PlacementFixture, clock: Clock
) -> None:
    fleet(publishing, 3)
    lose(publishing, "node-00")
    before, remembered = contents(placement), stored(publishing.state_path)
    placement.requests.clear()

    plans = []
    for _ in range(3):
        plans.append(publishing.cycle.plan())
        clock.later(DELAY)

    for plan in plans:
        assert [item.name for item in plan.pending] == ["node-00"]
        assert not plan.steps
        assert not plan.problems
    assert not placement.requests.writes
    assert (contents(placement), stored(publishing.state_path)) == (before, remembered)
    assert not publishing.restarted().sync().steps, "no plan was an absence"


def test_a_plan_shows_the_removal_that_is_due_and_leaves_it_to_the_cycle(
    publishing: Publishing, placement: PlacementFixture, clock: Clock
) -> None:
    fleet(publishing, 3)
    lose(publishing, "node-00")
    publishing.cycle.sync()
    clock.later(DELAY)

    assert kinds(publishing.cycle.plan().steps) == [(DeleteProvider, "node-00")]
    assert "node-00" in contents(placement)
    assert kinds(publishing.restarted().sync().steps) == [(DeleteProvider, "node-00")]


# Too many at once.


def only_problem(outcome: Outcome) -> WharfingerError:
    (problem,) = outcome.problems
    return problem


def test_too_many_gone_at_once_are_neither_removed_nor_reserved_and_the_rest_goes_on(
    publishing: Publishing, placement: PlacementFixture, clock: Clock
) -> None:
    gone = fleet(publishing, 20)[:5]
    use(placement, gone[0], CUSTOM_GOLD=1)
    before = contents(placement)
    lose(publishing, *gone)
    publishing.cycle.sync()
    clock.later(DELAY)
    publishing.driver.nodes |= {
        "node-10": flat(CUSTOM_GOLD=7),
        "node-11": also(lambda tree: tree.reserve("node-11", "cleaning"))(flat(CUSTOM_GOLD=1)),
        "new": flat(CUSTOM_GOLD=1),
    }

    outcome = publishing.cycle.sync()

    problem = only_problem(outcome)
    assert isinstance(problem, MassRemoval)
    assert (problem.instance, problem.count, problem.total) == ("scripted", 5, 20)
    assert "--allow-mass-removal" in str(problem)
    assert set(kinds(outcome.steps)) == {
        (SetInventories, "node-10"),
        (SetInventories, "node-11"),
        (CreateProvider, "new"),
        (SetTraits, "new"),
        (SetInventories, "new"),
    }
    assert set(waiting(outcome)) == set(gone)
    after = contents(placement)
    assert {name: after[name] for name in gone} == {name: before[name] for name in gone}
    assert after["node-10"]["inventories"] == {"CUSTOM_GOLD": (7, 0)}
    assert after["node-11"]["inventories"] == {"CUSTOM_GOLD": (1, 1)}
    assert after["new"]["inventories"] == {"CUSTOM_GOLD": (1, 0)}


def test_too_many_gone_are_refused_again_and_done_when_somebody_says_so(
    publishing: Publishing, placement: PlacementFixture, clock: Clock
) -> None:
    gone = fleet(publishing, 6)[:5]
    consumer = use(placement, gone[0], CUSTOM_GOLD=1)
    lose(publishing, *gone)
    for outcome in (absent_twice(publishing, clock), publishing.restarted().sync()):
        assert isinstance(only_problem(outcome), MassRemoval)
        assert not outcome.steps
    assert isinstance(publishing.cycle.plan().problems[0], MassRemoval)
    assert not publishing.cycle.plan().steps

    publishing.allow_mass_removal = True
    done = publishing.restarted().sync()

    assert not done.problems
    assert sorted(kinds(done.steps), key=str) == sorted(
        [(SetInventories, gone[0]), *((DeleteProvider, name) for name in gone[1:])], key=str
    )
    assert set(contents(placement)) == {gone[0], "node-05"}
    placement.client.delete_allocations(consumer)
    publishing.allow_mass_removal = False
    assert kinds(publishing.restarted().sync().steps) == [(DeleteProvider, gone[0])]


@pytest.mark.parametrize("figures", [(20, 4), (4, 4), (25, 5)], ids=str)
def test_four_and_a_fifth_are_believed(
    publishing: Publishing, placement: PlacementFixture, clock: Clock, figures: tuple[int, int]
) -> None:
    total, gone = figures
    names = fleet(publishing, total)
    lose(publishing, *names[:gone])

    outcome = absent_twice(publishing, clock)

    assert not outcome.problems
    assert set(contents(placement)) == set(names[gone:])


@pytest.mark.parametrize("figures", [(5, 5), (25, 6)], ids=str)
def test_more_than_four_and_more_than_a_fifth_are_not_believed(
    publishing: Publishing, placement: PlacementFixture, clock: Clock, figures: tuple[int, int]
) -> None:
    total, gone = figures
    names = fleet(publishing, total)
    lose(publishing, *names[:gone])

    problem = only_problem(absent_twice(publishing, clock))

    assert isinstance(problem, MassRemoval)
    assert (problem.count, problem.total) == (gone, total)
    assert set(contents(placement)) == set(names)


def test_what_is_reserved_as_gone_counts_and_only_once(
    publishing: Publishing, placement: PlacementFixture, clock: Clock
) -> None:
    names = fleet(publishing, 10)
    consumers = [use(placement, name, CUSTOM_GOLD=1) for name in names[:5]]
    lose(publishing, *names[:5])
    problem = only_problem(absent_twice(publishing, clock))
    assert isinstance(problem, MassRemoval)
    assert (problem.count, problem.total) == (5, 10)
    assert contents(placement)[names[0]]["inventories"] == {"CUSTOM_GOLD": (1, 0)}

    publishing.driver.nodes[names[4]] = flat(CUSTOM_GOLD=1)
    outcome = publishing.cycle.sync()
    assert not outcome.problems
    assert {step.name for step in outcome.steps} == set(names[:4])

    lose(publishing, *names[5:8])
    outcome = absent_twice(publishing, clock)
    assert not outcome.problems, "three more are gone, not seven"
    assert set(contents(placement)) == {*names[:5], *names[8:]}
    for consumer in consumers[:4]:
        placement.client.delete_allocations(consumer)
    assert not publishing.cycle.sync().problems
    assert set(contents(placement)) == {names[4], *names[8:]}


def test_the_devices_of_one_host_are_counted_one_by_one(
    publishing: Publishing, placement: PlacementFixture, clock: Clock
) -> None:
    gpus = {f"gpu-{number}": {"VGPU": 4} for number in range(5)}
    publishing.driver.nodes["cn"] = with_children({"VCPU": 8}, gpus)
    publishing.cycle.sync()
    publishing.driver.nodes["cn"] = with_children({"VCPU": 8}, {})

    problem = only_problem(absent_twice(publishing, clock))

    assert isinstance(problem, MassRemoval)
    assert (problem.count, problem.total) == (5, 6)
    assert set(contents(placement)) == {"cn", *gpus}


def test_a_listing_that_becomes_empty_empties_a_small_fleet_and_no_larger_one(
    publishing: Publishing, placement: PlacementFixture, clock: Clock, tmp_path: Path
) -> None:
    with Publishing(placement, tmp_path / "few", name="few", removal_delay=DELAY) as few:
        few.driver.nodes |= {f"few-{number}": flat(CUSTOM_GOLD=1) for number in range(4)}
        few.cycle.sync()
        names = fleet(publishing, 5)
        few.driver.nodes.clear()
        publishing.driver.nodes.clear()

        believed = absent_twice(few, clock)
        refused = absent_twice(publishing, clock)

    assert (len(believed.steps), believed.problems) == (4, ())
    problem = only_problem(refused)
    assert isinstance(problem, MassRemoval)
    assert (problem.count, problem.total) == (5, 5)
    assert set(contents(placement)) == set(names)


def test_a_fleet_that_comes_back_after_a_refusal_is_as_it_was(
    publishing: Publishing, placement: PlacementFixture, clock: Clock
) -> None:
    fleet(publishing, 6)
    before = contents(placement)
    nodes = dict(publishing.driver.nodes)
    publishing.driver.nodes.clear()
    absent_twice(publishing, clock)

    publishing.driver.nodes |= nodes
    outcome = publishing.cycle.sync()

    assert (outcome.steps, outcome.pending, outcome.problems) == ((), (), ())
    assert contents(placement) == before


# What is not ours to remove.


def test_what_an_operator_took_over_is_not_removed(
    publishing: Publishing, placement: PlacementFixture, clock: Clock
) -> None:
    fleet(publishing, 2)
    found = contents(placement)["node-00"]["uuid"]
    client = placement.client
    client.create_trait("CUSTOM_OWNER_ACME")
    lose(publishing, "node-00")
    publishing.cycle.sync()
    client.set_traits(
        found, client.get_traits(found).resource_provider_generation, ["CUSTOM_OWNER_ACME"]
    )
    before = contents(placement)
    clock.later(DELAY)

    assert not publishing.cycle.sync().steps
    clock.later(DELAY)
    assert not publishing.cycle.sync().steps
    assert contents(placement) == before


def test_what_others_published_beside_us_outlives_an_empty_listing(
    publishing: Publishing, placement: PlacementFixture, clock: Clock
) -> None:
    client = placement.client
    root = client.create_provider(str(uuid.uuid4()), "theirs", None)
    client.set_inventories(root.uuid, root.generation, {"VCPU": Inventory(total=8)})
    fleet(publishing, 2)
    publishing.driver.nodes.clear()

    absent_twice(publishing, clock)

    assert set(contents(placement)) == {"theirs"}


# What moved into a tree that is refused.

GOLD_WITH_DEVICE = with_device(flat(CUSTOM_GOLD=1))


def _into_a_refused_tree(publishing: Publishing, target: str) -> None:
    """The device of node-00 is below a node now whose driver adds another owner's trait."""
    misused = also(lambda tree: tree.add_traits(target, "OWNER_CYBORG"))
    publishing.driver.nodes["node-00"] = with_children({"CUSTOM_GOLD": 1}, {})
    publishing.driver.nodes[target] = misused(GOLD_WITH_DEVICE)


@pytest.mark.parametrize("target", ["node-01", "new"])
def test_what_moved_into_a_tree_that_is_refused_is_not_absent(
    publishing: Publishing, placement: PlacementFixture, clock: Clock, target: str
) -> None:
    fleet(publishing, 3)
    publishing.driver.nodes["node-00"] = GOLD_WITH_DEVICE
    publishing.cycle.sync()
    before = contents(placement)
    _into_a_refused_tree(publishing, target)

    for _ in range(3):
        outcome = publishing.restarted().sync()
        clock.later(DELAY)

        assert [type(one) for one in outcome.problems] == [InvalidTree]
        assert (outcome.steps, outcome.pending) == ((), ())
        assert contents(placement) == before
        assert publishing.memory.records[DEVICE].absent_since is None


def test_what_moved_into_a_tree_that_is_refused_is_no_orphan(
    publishing: Publishing, placement: PlacementFixture, clock: Clock, tmp_path: Path
) -> None:
    fleet(publishing, 3)
    publishing.driver.nodes["node-00"] = GOLD_WITH_DEVICE
    publishing.cycle.sync()
    before = contents(placement)

    with Publishing(placement, tmp_path / "without records", removal_delay=DELAY) as anew:
        anew.driver.nodes |= publishing.driver.nodes
        _into_a_refused_tree(anew, "node-01")
        outcomes = [absent_twice(anew, clock), anew.restarted().sync()]

    assert [type(one) for outcome in outcomes for one in outcome.problems] == [InvalidTree] * 2
    assert not any(outcome.pending for outcome in outcomes)
    assert contents(placement) == before


# What was made by us and never tagged.


def _cut_off_untagged(publishing: Publishing, placement: PlacementFixture) -> str:
    """A device of node-00 is created and no more, and then is gone; returns its uuid."""

    def end(method: str, path: str) -> None:
        if method == "PUT" and path.endswith("/traits"):
            raise PlacementUnavailable(request=f"PUT {path}", status=0, code="", detail="no answer")

    fleet(publishing, 2)
    publishing.driver.nodes["node-00"] = GOLD_WITH_DEVICE
    placement.adapter.before = end
    with pytest.raises(PlacementUnavailable):
        publishing.cycle.sync()
    placement.adapter.before = lambda method, path: None
    publishing.driver.nodes["node-00"] = with_children({"CUSTOM_GOLD": 1}, {})
    publishing.restarted()
    left = contents(placement)["device"]
    assert not left["traits"]
    return str(left["uuid"])


def test_what_was_created_and_never_tagged_goes_with_its_device(
    publishing: Publishing, placement: PlacementFixture, clock: Clock
) -> None:
    left = _cut_off_untagged(publishing, placement)

    outcome = absent_twice(publishing, clock)

    assert kinds(outcome.steps) == [(DeleteProvider, "device")]
    assert not outcome.problems
    assert set(contents(placement)) == {"node-00", "node-01"}
    assert left not in publishing.memory.records


def _put_traits(client: PlacementClient, provider: str) -> None:
    client.set_traits(provider, 0, ["HW_CPU_X86_AVX2"])


def _put_inventory(client: PlacementClient, provider: str) -> None:
    client.set_inventories(provider, 0, {"FPGA": Inventory(total=2)})


def _put_into_aggregate(client: PlacementClient, provider: str) -> None:
    client.set_aggregates(provider, 0, [str(uuid.uuid4())])


def _put_and_took_away(client: PlacementClient, provider: str) -> None:
    client.set_traits(provider, client.set_traits(provider, 0, ["HW_CPU_X86_AVX2"]), [])


@pytest.mark.parametrize(
    "somebody", [_put_traits, _put_inventory, _put_into_aggregate, _put_and_took_away]
)
@pytest.mark.parametrize("late", [False, True], ids=["at once", "while it is absent"])
def test_what_somebody_did_something_with_before_it_was_tagged_stays(
    publishing: Publishing,
    placement: PlacementFixture,
    clock: Clock,
    somebody: Callable[[PlacementClient, str], None],
    late: bool,
) -> None:
    left = _cut_off_untagged(publishing, placement)
    if late:
        assert set(waiting(publishing.cycle.sync())) == {"device"}
        clock.later(DELAY)
    somebody(placement.client, left)
    before = contents(placement)

    for _ in range(3):
        outcome = publishing.cycle.sync()
        clock.later(DELAY)

        assert (outcome.steps, outcome.problems) == ((), ())
        assert "untagged" in waiting(outcome)["device"]
        assert contents(placement) == before


# A clock that goes back.


def test_a_clock_that_goes_back_a_year_has_the_absence_counted_anew(
    publishing: Publishing, placement: PlacementFixture, clock: Clock
) -> None:
    year = 365 * 24 * 3600
    clock.later(2 * year)
    fleet(publishing, 3)
    lose(publishing, "node-00")
    publishing.cycle.sync()

    outcomes = []
    for seconds in (-year, DELAY - 1, 1):
        clock.later(seconds)
        outcomes.append(publishing.restarted().sync())

    assert [kinds(outcome.steps) for outcome in outcomes] == [
        [],
        [],
        [(DeleteProvider, "node-00")],
    ]
    assert "absent for 0 s" in waiting(outcomes[0])["node-00"]
    assert "absent for 59 s" in waiting(outcomes[1])["node-00"]
    assert set(contents(placement)) == {"node-01", "node-02"}


# Whose records count.


def test_what_others_have_in_our_tree_makes_no_loss_of_ours_a_small_one(
    publishing: Publishing, placement: PlacementFixture, clock: Clock
) -> None:
    gpus = {f"gpu-{number}": {"VGPU": 4} for number in range(5)}
    publishing.driver.nodes["cn"] = with_children({"VCPU": 8}, gpus)
    publishing.cycle.sync()
    cn = contents(placement)["cn"]["uuid"]
    for number in range(20):
        placement.client.create_provider(str(uuid.uuid4()), f"theirs-{number}", cn)
    publishing.cycle.sync()
    assert len(publishing.memory.records) == 26, "they are remembered, as others'"

    def loses_all(tree: ProviderTree, node: str, allocations: Allocations | None) -> None:
        flat(VCPU=8)(tree, node, allocations)
        for name in gpus:
            if tree.exists(name):
                tree.remove(name)

    before = contents(placement)
    publishing.driver.nodes["cn"] = loses_all

    problem = only_problem(absent_twice(publishing, clock))

    assert isinstance(problem, MassRemoval)
    assert (problem.count, problem.total) == (5, 6)
    assert contents(placement) == before
