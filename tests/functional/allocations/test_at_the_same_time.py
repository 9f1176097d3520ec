"""Two who act at once: what one of them has read, the other changes."""

import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from threading import Semaphore, Thread
from typing import Any, Final

import pytest

from tests.lab.allocating import Desk, faults, held
from tests.lab.claimants import Boundaries, Posts
from tests.lab.claiming import noted, taken
from tests.lab.cycles import Publishing, everything
from tests.lab.histories import CLEANED, FLAVORS, Quay, State, on, states
from tests.lab.killing import TIMEOUT
from tests.lab.placement import PlacementFixture
from tests.lab.reserving import is_full, rows
from tests.lab.samples import uuid
from wharfinger.allocations import Claimed
from wharfinger.exceptions import (
    AllocationRefused,
    BeingClaimed,
    NoCandidates,
    ObjectNotFound,
    WharfingerError,
)
from wharfinger.objects import Context, InstanceList, Migration, MigrationList

ONE = uuid("an instance")
SMALL, LARGE = FLAVORS["small"], FLAVORS["large"]
#: Where somebody stands still: before he reads what it has, after that, and before he writes.
LOOKS, HAS_LOOKED = f"before GET /allocations/{ONE}", f"after GET /allocations/{ONE}"
WRITES = "before POST /allocations"
#: Where no step is: it comes to its end.
END: Final = "its end"


class Actor:
    """Somebody who does something in a thread of his own, from step to step as he is told."""

    def __init__(self, act: Callable[[], object]) -> None:
        self._act = act
        self._goal, self._at = END, ""
        self._may_go, self._has_come = Semaphore(0), Semaphore(0)
        self._outcome: Any = None
        self.thread = Thread(target=self._run, daemon=True)
        self.thread.start()

    def to(self, *steps: str) -> "Actor":
        """Have him go on to the next step that begins so, and to the one after that."""
        for goal in steps:
            self._goal = goal
            self._may_go.release()
            assert self._has_come.acquire(timeout=TIMEOUT), f"on the way to {goal}: {self._at}"
            assert self._at.startswith(goal), (self._at, self._outcome)
        return self

    def end(self) -> Any:
        """Have him go on to the end; what he has got, or what was raised."""
        self.to(END)
        self.thread.join(TIMEOUT)
        return self._outcome

    def reach(self, step: str) -> None:
        """Stand still where he was told to."""
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
    """Where actors act; their steps are named as boundaries are."""

    def __init__(self, placement: PlacementFixture) -> None:
        super().__init__(placement, reads=True)
        self._actors: list[Actor] = []

    def actor(self, act: Callable[[], object]) -> Actor:
        """Somebody who has not begun yet."""
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


@pytest.fixture
def quay(placement: PlacementFixture, tmp_path: Path) -> Iterator[Quay]:
    with Quay(placement, tmp_path / "state") as fixture:
        yield fixture


def there_are(context: Context) -> list[str]:
    return [one.uuid for one in InstanceList.get_by_filters(context)]


def reserved(quay: Quay) -> set[str]:
    """The providers of which nothing can be had."""
    return {name for name in everything() if is_full(quay.placement, name)}


def nothing_is_left(context: Context) -> bool:
    """Whether nobody has anything, and there is neither an instance nor a move under way."""
    moves = [one for one in MigrationList.get_by_filters(context) if one.is_in_progress]
    return (held(), there_are(context), moves) == ({}, [], [])


# What is given back is what was read.


@pytest.mark.parametrize(("source", "act"), [(CLEANED, "revert"), ("cn-0", "start")])
def test_what_somebody_gets_while_it_is_released_is_reserved_before_it_is_given_back(
    quay: Quay, stage: Stage, source: str, act: str
) -> None:
    """And what is cleaned has been allocated or reserved at all times."""
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
    ).to(WRITES)
    releaser = stage.actor(lambda: desk.claims.release(ONE)).to(LOOKS, HAS_LOOKED)
    mover.to("after POST /allocations")
    assert CLEANED in held()[ONE]
    with Posts(quay.placement) as posts:
        posts.after = look
        releaser.end()
        mover.end()

    assert nothing_is_left(quay.context)
    assert reserved(quay) == {CLEANED}
    assert seen
    assert all(seen)
    quay.clean()
    assert reserved(quay) == set()
    assert noted(quay.context) == taken(quay.context)


@pytest.mark.parametrize("when", [LOOKS, HAS_LOOKED])
def test_what_is_claimed_anew_is_not_given_back_by_the_release_of_what_was_before(
    desk: Desk, publishing: Publishing, stage: Stage, when: str
) -> None:
    """Unless all of it is released: its row says so before it loses anything."""
    desk.claim(SMALL, uuid=ONE, suits=on("cn-0"))
    late = stage.actor(lambda: desk.claims.release(ONE)).to(when)
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


# Two who claim one uuid.


def test_what_is_claimed_for_an_instance_that_another_claim_forgets_is_given_back(
    desk: Desk, publishing: Publishing, stage: Stage
) -> None:
    for _ in range(3):
        desk.claim(SMALL)
    fails, wins = (stage.actor(lambda: desk.claim(SMALL, uuid=ONE)) for _ in range(2))
    fails.to(WRITES)
    wins.to(WRITES)
    last = desk.claim(SMALL).instance.uuid
    fails.to("before delete instances")  # it has asked, got nothing, and seen that it has nothing
    desk.claims.release(last)
    wins.to("after POST /allocations", LOOKS)
    assert ONE in held()

    assert isinstance(fails.end(), NoCandidates)
    assert isinstance(wins.end(), AllocationRefused)

    assert ONE not in held().keys() | set(there_are(publishing.context))
    assert faults(publishing.context) == []
    assert noted(publishing.context) == taken(publishing.context)


def test_one_uuid_is_claimed_by_one_at_a_time(
    desk: Desk, publishing: Publishing, stage: Stage
) -> None:
    """Two consumers of one uuid, made at a time, Placement does not keep apart."""
    patient = Desk(desk.client, desk.context, down_time=timedelta(hours=1))
    patient.setUp()
    first = stage.actor(lambda: patient.claim(SMALL, uuid=ONE)).to(WRITES)
    publishing.placement.requests.clear()
    with pytest.raises(BeingClaimed, match="this can be done in 3600 s"):
        patient.claim(SMALL, uuid=ONE)
    assert publishing.placement.requests.writes == []

    claimed = first.end()

    assert patient.claim(SMALL, uuid=ONE).allocations == claimed.allocations
    assert there_are(publishing.context) == [*held()] == [ONE]
    assert faults(publishing.context) == []


def test_a_claim_that_finds_its_instance_released_leaves_alone_what_is_claimed_anew(
    desk: Desk, publishing: Publishing, stage: Stage
) -> None:
    desk.claim(SMALL, uuid=ONE)
    late = stage.actor(lambda: desk.claim(SMALL, uuid=ONE)).to("before insert instances", LOOKS)
    desk.claims.release(ONE)
    late.to("after select instances")
    desk.claim(SMALL, uuid=ONE)
    outcome = late.end()

    assert isinstance(outcome, Claimed | AllocationRefused)
    assert faults(publishing.context) == []
    assert there_are(publishing.context) == [*held()] == [ONE]


def test_a_claim_that_is_released_before_it_is_over_leaves_alone_what_is_claimed_anew(
    desk: Desk, publishing: Publishing, stage: Stage
) -> None:
    late = stage.actor(lambda: desk.claim(SMALL, uuid=ONE)).to("after POST /allocations")
    desk.claims.release(ONE)
    late.to(LOOKS)
    desk.claim(SMALL, uuid=ONE)
    outcome = late.end()

    assert isinstance(outcome, Claimed | AllocationRefused)
    assert faults(publishing.context) == []
    assert there_are(publishing.context) == [*held()] == [ONE]


# Two who start.


@pytest.mark.parametrize("last", [0, 1], ids=["the second goes on first", "the first"])
def test_of_two_starts_of_which_each_has_a_row_the_first_wins(
    desk: Desk, publishing: Publishing, stage: Stage, last: int
) -> None:
    desk.claim(SMALL, uuid=ONE)
    actors = [stage.actor(lambda: desk.moves.start(ONE, LARGE)) for _ in range(2)]
    for step in ("before insert migrations", "after insert migrations"):
        for one in actors:
            one.to(step)
    outcomes = {one: one.end() for one in (actors[1 - last], actors[last])}

    won, refused = (outcomes[one] for one in actors)
    assert isinstance(won, Migration)
    assert isinstance(refused, AllocationRefused)
    assert won.uuid in str(refused), "which can be confirmed or reverted"
    moves = [one.status for one in MigrationList.get_by_filters(publishing.context)]
    assert moves == ["finished", "failed"]
    desk.moves.confirm(ONE)
    assert faults(publishing.context) == []
    assert noted(publishing.context) == taken(publishing.context)


@pytest.mark.parametrize("when", ["before insert migrations", WRITES])
def test_a_start_whose_instance_is_released_says_so_and_leaves_no_move(
    desk: Desk, publishing: Publishing, stage: Stage, when: str
) -> None:
    desk.claim(SMALL, uuid=ONE)
    starter = stage.actor(lambda: desk.moves.start(ONE, LARGE)).to(when)
    desk.claims.release(ONE)

    assert isinstance(starter.end(), AllocationRefused | ObjectNotFound)
    assert nothing_is_left(publishing.context)
    assert set(noted(publishing.context).values()) == {(0, 0, 0)}


# Two who give back one thing that is cleaned.


@pytest.mark.parametrize("act", ["confirm", "recover", "release"])
def test_two_who_give_one_thing_back_reserve_it_once(quay: Quay, stage: Stage, act: str) -> None:
    desk = quay.desk()
    desk.claim(SMALL, uuid=ONE, suits=on(CLEANED))
    move = desk.moves.start(ONE, suits=on("cn-0"))

    acts: dict[str, Callable[[], object]] = {
        "confirm": lambda: desk.moves.confirm(ONE),
        "recover": lambda: desk.moves.recover(Migration.get_by_uuid(quay.context, move.uuid)),
        "release": lambda: desk.claims.release(ONE),
    }
    slow = stage.actor(acts["confirm" if act == "recover" else act])
    slow.to("before insert reservations")
    acts[act]()
    outcome = slow.end()

    assert isinstance(outcome, ObjectNotFound if act == "release" else tuple), outcome
    assert len(rows(quay.context)) == 1
    assert reserved(quay) == {CLEANED}
    expected = {} if act == "release" else {ONE: State("small")}
    assert states(quay.context) == expected
    quay.clean()
    assert (reserved(quay), rows(quay.context)) == (set(), {})


def test_what_was_given_back_and_cleaned_meanwhile_is_not_reserved_by_nobody(
    quay: Quay, stage: Stage
) -> None:
    desk = quay.desk()
    desk.claim(SMALL, uuid=ONE, suits=on(CLEANED))
    move = desk.moves.start(ONE, suits=on("cn-0"))
    inventories = f"/resource_providers/{everything()[CLEANED]['uuid']}/inventories"
    quick, slow = (stage.actor(lambda: desk.moves.confirm(ONE)) for _ in range(2))
    quick.to(WRITES)
    slow.to(f"before GET /allocations/{move.uuid}", f"before GET {inventories}")
    assert isinstance(quick.end(), tuple)
    cycle = stage.actor(quay.clean).to("before delete reservations")
    assert reserved(quay) == set(), "it is free again, and its row is about to go"
    slow.to(f"before PUT {inventories}")
    cycle.end()
    assert isinstance(slow.end(), tuple)

    assert not reserved(quay) or rows(quay.context), "by nobody, and for ever"
    quay.clean()
    assert (reserved(quay), rows(quay.context)) == (set(), {})
    assert states(quay.context) == {ONE: State("small")}
