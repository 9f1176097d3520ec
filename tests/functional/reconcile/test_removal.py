"""Absent providers are removed only after a delay, and never by mistake."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.clocks import Clock
from tests.lab.cycles import Publishing, allocate, contents, stored
from tests.lab.drivers import DEVICE, also, does_not_answer, flat, with_children, with_device
from tests.lab.placement import PlacementFixture
from wharfinger.driver import Allocations
from wharfinger.exceptions import (
    BackendError,
    InvalidTree,
    MassRemoval,
    PartialListing,
    WharfingerError,
)
from wharfinger.providers import ProviderTree
from wharfinger.providers.plan import (
    DeleteProvider,
    SetInventories,
    Step,
)
from wharfinger.reconcile.cycle_result import CycleResult

DELAY = 60.0


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def publishing(placement: PlacementFixture, tmp_path: Path, clock: Clock) -> Iterator[Publishing]:
    with Publishing(
        placement, tmp_path / "state", removal_delay=DELAY, read_uptime=clock
    ) as fixture:
        yield fixture


def fleet(publishing: Publishing, count: int) -> list[str]:
    """Publish ``count`` nodes; return their names."""
    names = [f"node-{number:02}" for number in range(count)]
    publishing.driver.nodes |= {name: flat(CUSTOM_GOLD=1) for name in names}
    assert not publishing.cycle.sync().problems
    return names


def stop_reporting(publishing: Publishing, *names: str) -> None:
    """Let the driver no longer report these nodes."""
    for name in names:
        del publishing.driver.nodes[name]


def absent_twice(publishing: Publishing, clock: Clock) -> CycleResult:
    """Run two full cycles, DELAY apart; return the second result."""
    publishing.cycle.sync()
    clock.later(DELAY)
    return publishing.cycle.sync()


def use(placement: PlacementFixture, name: str, **amounts: int) -> str:
    """Allocate amounts of a provider, by class, for a new consumer; return its uuid."""
    consumer = str(uuid.uuid4())
    allocate(placement, consumer, **{name: amounts})  # type: ignore[arg-type]
    return consumer


def kinds(steps: tuple[Step, ...]) -> list[tuple[type, str]]:
    return [(type(step), step.name) for step in steps]


def waiting(outcome: CycleResult) -> dict[str, str]:
    return {item.name: item.reason for item in outcome.pending}


# Providers are removed when two complete listings, DELAY apart, lack them.


def test_absence_counts_across_restarts(
    publishing: Publishing, placement: PlacementFixture, clock: Clock
) -> None:
    fleet(publishing, 3)
    stop_reporting(publishing, "node-00")

    counted = []
    for _ in range(3):
        counted.append(kinds(publishing.restarted().sync().steps))
        clock.later(DELAY / 2)

    assert counted == [[], [], [(DeleteProvider, "node-00")]]
    assert "node-00" not in contents(placement)


def test_absence_of_a_node_restarts_after_a_listing_whose_node_cannot_be_read(
    publishing: Publishing, placement: PlacementFixture, clock: Clock
) -> None:
    fleet(publishing, 2)
    stop_reporting(publishing, "node-00")
    publishing.cycle.sync()
    clock.later(DELAY / 2)
    publishing.driver.nodes["node-00"] = does_not_answer
    publishing.cycle.sync()
    stop_reporting(publishing, "node-00")
    clock.later(DELAY / 2)

    outcome = publishing.cycle.sync()

    assert not outcome.steps
    assert "node-00" in contents(placement)


def test_failed_listing_removes_nothing_and_counts_no_absence(
    publishing: Publishing, placement: PlacementFixture, clock: Clock
) -> None:
    fleet(publishing, 2)
    stop_reporting(publishing, "node-00")

    def failing() -> None:
        publishing.driver.fails = True
        with pytest.raises(BackendError):
            publishing.cycle.sync()
        publishing.driver.fails = False
        clock.later(DELAY)

    failing()
    assert not publishing.cycle.sync().steps, "the one before was no absence"
    clock.later(1)
    failing()
    assert "node-00" in contents(placement)
    assert kinds(publishing.cycle.sync().steps) == [(DeleteProvider, "node-00")]


# Absent providers with allocations are reserved, kept and reported.


def test_absent_provider_reserved_for_its_allocations_regains_its_figures_when_it_returns(
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
    consumer = use(placement, "cn", VCPU=1)
    stop_reporting(publishing, "cn")
    outcome = absent_twice(publishing, clock)
    assert kinds(outcome.steps) == [(SetInventories, "cn")]
    assert not outcome.problems
    clock.later(DELAY)
    again = publishing.restarted().sync()
    assert not again.steps
    assert "allocations" in waiting(again)["cn"]
    assert contents(placement)["cn"]["inventories"] == {"VCPU": (8, 8), "DISK_GB": (9, 9)}

    publishing.driver.nodes["cn"] = with_reserved
    outcome = publishing.restarted().sync()

    assert kinds(outcome.steps) == [(SetInventories, "cn")]
    assert not outcome.pending
    assert contents(placement)["cn"] == before
    ratio = placement.client.get_inventories(before["uuid"]).inventories["VCPU"].allocation_ratio
    assert ratio == 4.0

    stop_reporting(publishing, "cn")
    absent_twice(publishing, clock)
    placement.client.delete_allocations(consumer)
    assert kinds(publishing.restarted().sync().steps) == [(DeleteProvider, "cn")]
    assert set(contents(placement)) == {"node-00"}


def test_allocation_just_before_the_removal_keeps_the_provider(
    publishing: Publishing, placement: PlacementFixture, clock: Clock
) -> None:
    fleet(publishing, 2)
    stop_reporting(publishing, "node-00")
    publishing.cycle.sync()
    clock.later(DELAY)
    placement.adapter.once_before(
        lambda method, path: method == "DELETE",
        lambda: use(placement, "node-00", CUSTOM_GOLD=1),
    )
    publishing.cycle.sync()
    clock.later(1)

    assert not publishing.cycle.sync().problems

    assert contents(placement)["node-00"]["inventories"] == {"CUSTOM_GOLD": (1, 1)}


# Absent providers with children of other owners are reserved, kept and reported, too.


@pytest.mark.parametrize("others", [0, 2], ids=["alone", "in a fleet"])
def test_absent_host_with_a_child_of_another_program_is_reserved_and_kept(
    publishing: Publishing, placement: PlacementFixture, clock: Clock, others: int
) -> None:
    publishing.driver.nodes["cn"] = with_children(
        {"VCPU": 8}, {"gpu": {"VGPU": 4}, "nic": {"SRIOV_NET_VF": 1}}
    )
    fleet(publishing, others)
    theirs = placement.client.create_provider(
        str(uuid.uuid4()), "theirs", contents(placement)["gpu"]["uuid"]
    )
    stop_reporting(publishing, "cn")

    outcome = absent_twice(publishing, clock)

    assert not outcome.problems
    assert set(waiting(outcome)) == {"cn", "gpu"}
    found = contents(placement)
    assert {name for name in found if "node" not in name} == {"theirs", "cn", "gpu"}
    assert found["cn"]["inventories"] == {"VCPU": (8, 8)}
    assert not publishing.restarted().sync().steps

    placement.client.delete_provider(theirs.uuid)
    publishing.restarted().sync()
    assert not {"cn", "gpu"} & contents(placement).keys()


# Plans without writes.


def test_plan_shows_pending_removals_and_writes_nothing(
    publishing: Publishing, placement: PlacementFixture, clock: Clock
) -> None:
    fleet(publishing, 3)
    stop_reporting(publishing, "node-00")
    before, remembered = contents(placement), stored(publishing.state_path)
    placement.requests.clear()

    for _ in range(2):
        plan = publishing.cycle.plan()
        assert [item.name for item in plan.pending] == ["node-00"]
        assert (plan.steps, plan.problems) == ((), ())
        clock.later(DELAY)

    assert not placement.requests.writes
    assert (contents(placement), stored(publishing.state_path)) == (before, remembered)
    assert not publishing.restarted().sync().steps, "no plan was an absence"
    clock.later(DELAY)
    assert kinds(publishing.cycle.plan().steps) == [(DeleteProvider, "node-00")]
    assert contents(placement) == before


# Mass removal.


def only_problem(outcome: CycleResult) -> WharfingerError:
    (problem,) = outcome.problems
    return problem


def test_mass_removal_is_refused_until_allowed_and_the_rest_is_synced(
    publishing: Publishing, placement: PlacementFixture, clock: Clock
) -> None:
    gone = fleet(publishing, 8)[:5]
    consumer = use(placement, gone[0], CUSTOM_GOLD=1)
    before = contents(placement)
    stop_reporting(publishing, *gone)
    publishing.cycle.sync()
    clock.later(DELAY)
    publishing.driver.nodes |= {
        "node-06": flat(CUSTOM_GOLD=7),
        "node-07": also(lambda tree: tree.reserve("node-07", "cleaning"))(flat(CUSTOM_GOLD=1)),
        "new": flat(CUSTOM_GOLD=1),
    }

    outcome = publishing.cycle.sync()

    problem = only_problem(outcome)
    assert isinstance(problem, MassRemoval)
    assert (problem.instance, problem.count, problem.total) == ("scripted", 5, 8)
    assert "--allow-mass-removal" in str(problem)
    assert {step.name for step in outcome.steps} == {"node-06", "node-07", "new"}
    assert set(waiting(outcome)) == set(gone)
    after = contents(placement)
    assert {name: after[name] for name in gone} == {name: before[name] for name in gone}
    assert after["node-06"]["inventories"] == {"CUSTOM_GOLD": (7, 0)}
    assert after["node-07"]["inventories"] == {"CUSTOM_GOLD": (1, 1)}
    assert after["new"]["inventories"] == {"CUSTOM_GOLD": (1, 0)}
    for again in (publishing.restarted().sync(), publishing.cycle.plan()):
        assert [type(one) for one in again.problems] == [MassRemoval]
        assert not again.steps

    publishing.allow_mass_removal = True
    done = publishing.restarted().sync()

    assert not done.problems
    assert sorted(kinds(done.steps), key=str) == sorted(
        [(SetInventories, gone[0]), *((DeleteProvider, name) for name in gone[1:])], key=str
    )
    placement.client.delete_allocations(consumer)
    publishing.allow_mass_removal = False
    assert kinds(publishing.restarted().sync().steps) == [(DeleteProvider, gone[0])]


# A device that moved into a refused tree.

GOLD_WITH_DEVICE = with_device(flat(CUSTOM_GOLD=1))


def test_device_that_moved_into_a_refused_tree_is_neither_absent_nor_an_orphan(
    publishing: Publishing, placement: PlacementFixture, clock: Clock, tmp_path: Path
) -> None:
    fleet(publishing, 3)
    publishing.driver.nodes["node-00"] = GOLD_WITH_DEVICE
    publishing.cycle.sync()
    before = contents(placement)
    # The device moves to node-01, whose tree is refused: it has another owner's trait.
    misused = also(lambda tree: tree.add_traits("node-01", "OWNER_CYBORG"))
    publishing.driver.nodes["node-00"] = with_children({"CUSTOM_GOLD": 1}, {})
    publishing.driver.nodes["node-01"] = misused(GOLD_WITH_DEVICE)

    with Publishing(
        placement, tmp_path / "without records", removal_delay=DELAY, read_uptime=clock
    ) as anew:
        anew.driver.nodes |= publishing.driver.nodes
        for one in (publishing, publishing, anew, anew):
            outcome = one.restarted().sync()
            clock.later(DELAY)

            assert [type(one) for one in outcome.problems] == [InvalidTree]
            assert (outcome.steps, outcome.pending) == ((), ())
            assert contents(placement) == before
    assert publishing.store.records[DEVICE].absence is None


# Before a removal, the cycle asks the driver whether the node or device is gone.


class Questions:
    """The names that the driver was asked about, and its answers; without an answer it fails."""

    def __init__(self, publishing: Publishing, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[str] = []
        self.answers: dict[str, object] = {}
        monkeypatch.setattr(publishing.driver, "node_is_available", self._answer)
        monkeypatch.setattr(
            publishing.driver, "provider_is_available", lambda uuid, name: self._answer(name)
        )

    def _answer(self, name: str) -> object:
        self.asked.append(name)
        if name not in self.answers:
            raise ConnectionError("the backend is away")
        return self.answers[name]

    def new(self) -> list[str]:
        """Return the names that were asked about since the last call."""
        asked, self.asked = self.asked, []
        return asked


@pytest.fixture
def questions(publishing: Publishing, monkeypatch: pytest.MonkeyPatch) -> Questions:
    return Questions(publishing, monkeypatch)


def test_mass_removal_asks_the_driver_only_once_it_is_allowed(
    publishing: Publishing, placement: PlacementFixture, clock: Clock, questions: Questions
) -> None:
    lost = fleet(publishing, 10)[:5]
    questions.answers = dict.fromkeys(lost, True)
    stop_reporting(publishing, *lost)
    assert isinstance(only_problem(absent_twice(publishing, clock)), MassRemoval)
    assert questions.asked == []
    publishing.allow_mass_removal = True

    problem = only_problem(publishing.restarted().sync())

    assert isinstance(problem, PartialListing)
    assert sorted(questions.asked) == lost
    assert len(contents(placement)) == 10


def test_removal_that_waits_for_an_allocation_asks_again_only_after_its_end(
    publishing: Publishing, placement: PlacementFixture, clock: Clock, questions: Questions
) -> None:
    fleet(publishing, 2)
    consumer = use(placement, "node-00", CUSTOM_GOLD=1)
    stop_reporting(publishing, "node-00")
    questions.answers["node-00"] = False
    absent_twice(publishing, clock)
    assert questions.new() == ["node-00"], "before it is reserved"

    assert not publishing.cycle.sync().steps
    assert questions.new() == []
    placement.client.delete_allocations(consumer)
    assert kinds(publishing.cycle.sync().steps) == [(DeleteProvider, "node-00")]
    assert questions.new() == ["node-00"], "before it is removed"


@pytest.mark.parametrize("is_there", [True, False])
def test_removal_of_a_device_asks_about_the_device_and_not_its_node(
    publishing: Publishing,
    placement: PlacementFixture,
    clock: Clock,
    questions: Questions,
    is_there: bool,
) -> None:
    publishing.driver.nodes["cn"] = with_children({"VCPU": 8}, {"gpu": {"VGPU": 4}})
    publishing.cycle.sync()
    publishing.driver.nodes["cn"] = with_children({"VCPU": 8}, {})
    publishing.cycle.sync()
    clock.later(DELAY)
    questions.answers["gpu"] = is_there
    publishing.cycle.drift()
    publishing.cycle.poll()
    assert questions.new() == []
    plan = publishing.cycle.plan()
    assert questions.new() == ["gpu"], "a dry run asks as a full cycle"

    outcome = publishing.cycle.sync()

    assert outcome.steps == plan.steps
    assert questions.new() == ["gpu"]
    assert [type(one) for one in outcome.problems] == ([PartialListing] if is_there else [])
    assert ("gpu" in contents(placement)) == is_there


# Records of other owners.


def test_mass_removal_counts_only_our_providers(
    publishing: Publishing, placement: PlacementFixture, clock: Clock
) -> None:
    gpus = {f"gpu-{number}": {"VGPU": 4} for number in range(5)}
    publishing.driver.nodes["cn"] = with_children({"VCPU": 8}, gpus)
    publishing.cycle.sync()
    cn = contents(placement)["cn"]["uuid"]
    for number in range(20):
        placement.client.create_provider(str(uuid.uuid4()), f"theirs-{number}", cn)
    publishing.cycle.sync()
    assert len(publishing.store.records) == 26, "records of other owners count too"

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
