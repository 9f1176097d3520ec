"""Races of two processes: the second one changes what the first one has read."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from threading import Barrier, Semaphore, Thread
from typing import Any, Final

import pytest

from tests.lab.allocating import Desk, faults, held
from tests.lab.claimants import (
    Boundaries,
    Posts,
    Rehearsal,
    anew,
    nothing_is_left,
    reserved,
    settled,
    there_are,
    warm,
)
from tests.lab.claiming import noted, taken
from tests.lab.cycles import Publishing, everything
from tests.lab.drawing import Draw
from tests.lab.histories import A_WHILE, CLEANED, FLAVORS, Quay, State, on, states
from tests.lab.killing import TIMEOUT
from tests.lab.placement import PlacementFixture
from tests.lab.reserving import is_full, rows
from tests.lab.samples import uuid
from wharfinger.allocations import Claimed
from wharfinger.exceptions import (
    AllocationRefused,
    BeingClaimed,
    ConcurrentSave,
    ConcurrentUpdate,
    NoCandidates,
    ObjectError,
    ObjectNotFound,
    PlacementError,
    WharfingerError,
)
from wharfinger.objects import Instance, InstanceList, Migration, MigrationList

ONE = uuid("an instance")
SMALL, LARGE = FLAVORS["small"], FLAVORS["large"]
#: Steps at which an actor pauses: before and after it reads allocations, and before it writes.
LOOKS, HAS_LOOKED = f"before GET /allocations/{ONE}", f"after GET /allocations/{ONE}"
WRITES = "before POST /allocations"
#: A name that no step has: an actor that goes to it runs to its end.
END: Final = "its end"
#: Errors that a claim, release or move may raise if another act comes between its steps.
DOCUMENTED = (AllocationRefused, NoCandidates, ObjectError, PlacementError)
#: Errors that the loser raises when two processes end one move at the same time.
TOO_LATE = (AllocationRefused, ConcurrentSave, ConcurrentUpdate)


class Actor:
    """Performs an act in a thread, and pauses at the steps that a test names."""

    def __init__(self, act: Callable[[], object]) -> None:
        self._act = act
        self._goal, self._at = END, ""
        self._may_go, self._has_come = Semaphore(0), Semaphore(0)
        self._outcome: Any = None
        self.thread = Thread(target=self._run, daemon=True)
        self.thread.start()

    def run_to(self, *steps: str) -> "Actor":
        """Run to a step whose name starts with the first text, then to the next one, and so on."""
        for goal in steps:
            self._goal = goal
            self._may_go.release()
            assert self._has_come.acquire(timeout=TIMEOUT), f"on the way to {goal}: {self._at}"
            assert self._at.startswith(goal), (self._at, self._outcome)
        return self

    def end(self) -> Any:
        """Run to the end; return the result or the error."""
        self.run_to(END)
        self.thread.join(TIMEOUT)
        return self._outcome

    def reach(self, step: str) -> None:
        """Pause if the step is the one to which the actor runs."""
        if step.startswith(self._goal):
            self._stand_still(step)

    def _run(self) -> None:
        self._may_go.acquire()
        try:
            self._outcome = self._act()
        except WharfingerError as error:
            self._outcome = error
        finally:
            self._at = END
            self._has_come.release()

    def _stand_still(self, step: str) -> None:
        self._at = step
        self._has_come.release()
        self._may_go.acquire()


class Stage(Boundaries):
    """Lets actors pause before and after each request to Placement and each database statement."""

    def __init__(self, placement: PlacementFixture) -> None:
        super().__init__(placement, reads=True)
        self._actors: list[Actor] = []

    def actor(self, act: Callable[[], object]) -> Actor:
        """Return an actor that has not yet begun its act."""
        self._actors.append(Actor(act))
        return self._actors[-1]

    def _reach(self, name: str) -> None:
        for one in self._actors:
            if one.thread is threading.current_thread():
                one.reach(name)


@pytest.fixture
def stage(placement: PlacementFixture) -> Iterator[Stage]:
    with Stage(placement) as fixture:
        yield fixture


# A second act at any step of the first.

ACTS: dict[str, Callable[[Desk], object]] = {
    "claim": lambda desk: desk.claim(SMALL, uuid=ONE),
    "release": lambda desk: desk.claims.release(ONE),
    "start": lambda desk: desk.moves.start(ONE),
    "resize": lambda desk: desk.moves.start(ONE, LARGE),
    "confirm": lambda desk: desk.moves.confirm(ONE),
    "revert": lambda desk: desk.moves.revert(ONE),
}
#: The initial state, an act, and an act that another process performs meanwhile.
RACES = [
    ("nothing", "claim", "claim"),
    ("nothing", "claim", "release"),
    ("claimed", "claim", "release"),
    ("claimed", "release", "claim"),
    ("claimed", "release", "release"),
    ("claimed", "release", "resize"),
    ("claimed", "resize", "release"),
    ("moved", "release", "confirm"),
    ("moved", "confirm", "release"),
    ("moved", "release", "revert"),
    ("moved", "revert", "release"),
    ("moved", "release", "release"),
]


def prepare(desk: Desk, before: str) -> None:
    warm(desk)
    if before != "nothing":
        desk.claim(SMALL, uuid=ONE)
    if before == "moved":
        desk.moves.start(ONE, LARGE)


@pytest.mark.drawn(2, keep=["claimed-resize-release"])
@pytest.mark.parametrize(("before", "mine", "others"), RACES)
def test_act_between_any_two_steps_of_another_act_leaves_no_faults(
    desk: Desk, publishing: Publishing, *, draw: Draw, before: str, mine: str, others: str
) -> None:
    prepare(desk, before)
    act = Rehearsal(
        publishing.placement, publishing.state_path, lambda: ACTS[mine](desk), reads=True
    )
    assert len(act.passed) >= 7
    wrong: list[object] = []
    with anew(publishing) as other:
        warm(other)

        def come_between() -> None:
            with suppress(*DOCUMENTED):
                ACTS[others](other)

        for number, name in draw(act.steps, 2):
            with suppress(*DOCUMENTED):
                act.interrupted(number, come_between)
            found = settled(publishing)
            if noted(publishing.context) != taken(publishing.context):
                found.append("rows are wrong")
            if "claim" not in (mine, others) and not nothing_is_left(publishing.context):
                found.append("something is left")
            if any(len(its) > 1 for its in held().values()):
                found.append("something is held twice")
            if mine == others == "claim" and [*held()] != [ONE]:
                found.append("it was not claimed")
            wrong += [(number, name, found)] if found else []
    assert wrong == []


def attempt(desk: Desk, act: str) -> str:
    """Perform an act; return its name, or "too late" if it lost the race."""
    try:
        ACTS[act](desk)
    except TOO_LATE:
        return "too late"
    return act


def outcome(desk: Desk, source: str) -> str:
    """Return how the move has ended ("confirm" or "revert"), or "start" if it has not ended.

    Without a move, return "too late": of two starts at once, each may stop because of the other,
    which is no fault.
    """
    assert faults(desk.context) == []
    assert noted(desk.context) == taken(desk.context)
    there = {"cn-0": "cn-1", "cn-1": "cn-0"}[source]
    moves = [one for one in MigrationList.get_by_filters(desk.context) if one.status != "failed"]
    if not moves:
        assert held() == {ONE: {source: {"VCPU": 1}}}
        return "too late"
    [move] = moves
    had, has = {source: {"VCPU": 1}}, {there: {"VCPU": move.new_flavor.vcpus}}
    if move.is_in_progress:
        assert move.status == "finished"
        assert held() == {move.uuid: had, ONE: has}
        return "start"
    assert held() == {ONE: has if move.status == "confirmed" else had}
    node = there if move.status == "confirmed" else source
    assert Instance.get_by_uuid(desk.context, ONE).node == node
    return {"confirmed": "confirm", "reverted": "revert"}[move.status]


@pytest.fixture
def patient(desk: Desk) -> Iterator[Desk]:
    """A desk that regards no process as dead, with a small instance on cn-0."""
    with Desk(desk.client, desk.context, down_time=A_WHILE) as fixture:
        fixture.claim(SMALL, uuid=ONE, suits=on("cn-0"))
        yield fixture


@pytest.mark.drawn(2, keep=["start-start"])
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("confirm", "revert"),
        ("revert", "confirm"),
        ("confirm", "confirm"),
        ("revert", "revert"),
        ("start", "start"),
        ("start", "confirm"),
        ("start", "revert"),
    ],
)
def test_two_acts_on_one_move_interleaved_at_any_step_have_one_winner(
    patient: Desk, publishing: Publishing, *, draw: Draw, first: str, second: str
) -> None:
    if first != "start":
        patient.moves.start(ONE)
    said: list[str] = []
    act = Rehearsal(
        publishing.placement,
        publishing.state_path,
        lambda: said.append(attempt(patient, first)),
        reads=True,
    )
    for number in draw(range(len(act.passed)), 2):
        said.clear()
        act.interrupted(number, lambda: said.append(attempt(patient, second)))
        came, done = outcome(patient, "cn-0"), {*said} - {"too late"}
        assert came in done, number
        # The other act was refused. But a move may be confirmed as soon as its start has ended.
        assert done == {came} or (first == "start" and done <= {"start", second}), number


@pytest.mark.parametrize("acts", [("confirm", "revert"), ("start", "resize")], ids="-".join)
def test_acts_of_many_threads_on_one_move_have_one_winner(
    patient: Desk, acts: tuple[str, str]
) -> None:
    if "start" not in acts:
        patient.moves.start(ONE)
    many = 6
    together = Barrier(many)

    def run(number: int) -> str:
        together.wait()
        return attempt(patient, acts[number % 2])

    with ThreadPoolExecutor(many) as pool:
        said = list(pool.map(run, range(many)))
    came = outcome(patient, "cn-0")
    done = [one for one in said if one != "too late"]
    if "start" in acts:
        assert len(done) == (came == "start")
    else:
        assert {*done} == {came}


# Releases whose allocations change after they were read.


@pytest.mark.parametrize(("source", "act"), [(CLEANED, "revert"), ("cn-0", "start")])
def test_provider_allocated_during_a_release_is_reserved_before_it_is_released(
    quay: Quay, stage: Stage, source: str, act: str
) -> None:
    """The provider needs cleaning: it is at all times allocated or reserved."""
    desk, other = quay.desk(), quay.desk()
    desk.claim(SMALL, uuid=ONE, suits=on(source))
    if act == "revert":
        desk.moves.start(ONE, suits=on("cn-0"))
    seen: list[bool] = []

    def look(_body: object) -> None:
        metal = everything()[CLEANED]
        seen.append(is_full(quay.placement, CLEANED) or bool(metal["allocations"]))

    mover = stage.actor(
        lambda: (
            other.moves.revert(ONE)
            if act == "revert"
            else other.moves.start(ONE, suits=on(CLEANED))
        )
    ).run_to(WRITES)
    releaser = stage.actor(lambda: desk.claims.release(ONE)).run_to(LOOKS, HAS_LOOKED)
    mover.run_to("after POST /allocations")
    assert CLEANED in held()[ONE]
    with Posts(quay.placement) as posts:
        posts.after = look
        releaser.end()
        mover.end()

    assert nothing_is_left(quay.context)
    assert reserved(quay.placement) == {CLEANED}
    assert seen
    assert all(seen)
    quay.clean()
    assert reserved(quay.placement) == set()
    assert noted(quay.context) == taken(quay.context)


def test_release_that_reads_an_old_claim_releases_the_new_claim_completely_or_not(
    desk: Desk, publishing: Publishing, stage: Stage
) -> None:
    """The instance has task state "releasing" before its allocation is deleted."""
    desk.claim(SMALL, uuid=ONE, suits=on("cn-0"))
    late = stage.actor(lambda: desk.claims.release(ONE)).run_to(LOOKS, HAS_LOOKED)
    desk.claims.release(ONE)
    desk.claim(SMALL, uuid=ONE, suits=on("cn-1"))
    assert held() == {ONE: {"cn-1": {"VCPU": 1}}}
    said: list[str | None] = []

    def look(_body: object) -> None:
        said.extend(
            one.task_state
            for one in InstanceList.get_by_filters(publishing.context)
            if ONE not in held()
        )

    with Posts(publishing.placement) as posts:
        posts.after = look
        late.end()

    assert set(said) <= {"releasing"}
    assert faults(publishing.context) == []
    assert noted(publishing.context) == taken(publishing.context)


# Two claims of one uuid.


def test_allocation_of_an_instance_that_a_failed_claim_deleted_is_released(
    desk: Desk, publishing: Publishing, stage: Stage
) -> None:
    for _ in range(3):
        desk.claim(SMALL)
    fails, wins = (stage.actor(lambda: desk.claim(SMALL, uuid=ONE)) for _ in range(2))
    fails.run_to(WRITES)
    wins.run_to(WRITES)
    last = desk.claim(SMALL).instance.uuid
    fails.run_to(
        "before delete instances"
    )  # it has got no candidate, and found no allocation of the instance
    desk.claims.release(last)
    wins.run_to("after POST /allocations", LOOKS)
    assert ONE in held()

    assert isinstance(fails.end(), NoCandidates)
    assert isinstance(wins.end(), AllocationRefused)

    assert ONE not in held().keys() | set(there_are(publishing.context))
    assert faults(publishing.context) == []
    assert noted(publishing.context) == taken(publishing.context)


def test_second_claim_of_one_uuid_at_the_same_time_is_refused(
    desk: Desk, publishing: Publishing, stage: Stage
) -> None:
    """Placement does not tell apart two consumers of one uuid that are created at once."""
    patient = Desk(desk.client, desk.context, down_time=timedelta(hours=1))
    patient.setUp()
    first = stage.actor(lambda: patient.claim(SMALL, uuid=ONE)).run_to(WRITES)
    publishing.placement.requests.clear()
    with pytest.raises(BeingClaimed, match="Repeat the command after 3600 s"):
        patient.claim(SMALL, uuid=ONE)
    assert publishing.placement.requests.writes == []

    claimed = first.end()

    assert patient.claim(SMALL, uuid=ONE).allocations == claimed.allocations
    assert there_are(publishing.context) == [*held()] == [ONE]
    assert faults(publishing.context) == []


def test_claim_that_ends_after_its_release_keeps_the_allocation_of_a_new_claim(
    desk: Desk, publishing: Publishing, stage: Stage
) -> None:
    desk.claim(SMALL, uuid=ONE)
    late = stage.actor(lambda: desk.claim(SMALL, uuid=ONE)).run_to(LOOKS, LOOKS)
    desk.claims.release(ONE)
    late.run_to("after select instances")
    desk.claim(SMALL, uuid=ONE)
    outcome = late.end()

    assert isinstance(outcome, Claimed | AllocationRefused)
    assert faults(publishing.context) == []
    assert there_are(publishing.context) == [*held()] == [ONE]


def test_claim_that_was_released_before_its_end_keeps_the_allocation_of_a_new_claim(
    desk: Desk, publishing: Publishing, stage: Stage
) -> None:
    late = stage.actor(lambda: desk.claim(SMALL, uuid=ONE)).run_to("after POST /allocations")
    desk.claims.release(ONE)
    late.run_to(LOOKS)
    desk.claim(SMALL, uuid=ONE)
    outcome = late.end()

    assert isinstance(outcome, Claimed | AllocationRefused)
    assert faults(publishing.context) == []
    assert there_are(publishing.context) == [*held()] == [ONE]
    assert Instance.get_by_uuid(publishing.context, ONE).task_state is None


# Two releases of one provider that needs cleaning.


@pytest.mark.parametrize("act", ["recover", "release"])
def test_two_releases_at_once_reserve_a_provider_once(quay: Quay, stage: Stage, act: str) -> None:
    desk = quay.desk()
    desk.claim(SMALL, uuid=ONE, suits=on(CLEANED))
    move = desk.moves.start(ONE, suits=on("cn-0"))

    acts: dict[str, Callable[[], object]] = {
        "confirm": lambda: desk.moves.confirm(ONE),
        "recover": lambda: desk.moves.recover(Migration.get_by_uuid(quay.context, move.uuid)),
        "release": lambda: desk.claims.release(ONE),
    }
    slow = stage.actor(acts["confirm" if act == "recover" else act])
    slow.run_to("before insert reservations")
    acts[act]()
    outcome = slow.end()

    assert isinstance(outcome, ObjectNotFound if act == "release" else tuple), outcome
    assert len(rows(quay.context)) == 1
    assert reserved(quay.placement) == {CLEANED}
    expected = {} if act == "release" else {ONE: State("small")}
    assert states(quay.context) == expected
    quay.clean()
    assert (reserved(quay.placement), rows(quay.context)) == (set(), {})


def test_second_release_after_the_cleaning_leaves_no_endless_reservation(
    quay: Quay, stage: Stage
) -> None:
    desk = quay.desk()
    desk.claim(SMALL, uuid=ONE, suits=on(CLEANED))
    move = desk.moves.start(ONE, suits=on("cn-0"))
    inventories = f"/resource_providers/{everything()[CLEANED]['uuid']}/inventories"
    quick, slow = (stage.actor(lambda: desk.moves.confirm(ONE)) for _ in range(2))
    quick.run_to(WRITES)
    slow.run_to(f"before GET /allocations/{move.uuid}", f"before GET {inventories}")
    assert isinstance(quick.end(), tuple)
    cycle = stage.actor(quay.clean).run_to("before delete reservations")
    assert reserved(quay.placement) == set(), "it is free again, and its row is about to go"
    slow.run_to(f"before PUT {inventories}")
    cycle.end()
    assert isinstance(slow.end(), tuple)

    assert not reserved(quay.placement) or rows(quay.context), "no reservation would ever end"
    quay.clean()
    assert (reserved(quay.placement), rows(quay.context)) == (set(), {})
    assert states(quay.context) == {ONE: State("small")}
