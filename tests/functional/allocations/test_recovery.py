"""Moves that are interrupted at any boundary: the next process completes or undoes them."""

import signal
from collections.abc import Iterator
from contextlib import suppress
from http import HTTPStatus

import pytest
from keystoneauth1.exceptions import ConnectFailure

from tests.lab import claimants, faults, killing
from tests.lab.allocating import Desk, held
from tests.lab.allocating import faults as leaks
from tests.lab.claimants import reserved
from tests.lab.claiming import noted, taken
from tests.lab.drawing import Draw
from tests.lab.faults import FAULTS, Fault, Interceptor
from tests.lab.histories import (
    A_WHILE,
    ACTS,
    CLEANED,
    FLAVORS,
    Boundaries,
    Quay,
    State,
    Work,
    age,
    on,
    play,
    states,
)
from tests.lab.moments import Moments
from tests.lab.objects import Served, elsewhere
from tests.lab.placement import Requests, adapter_to
from tests.lab.reserving import Crash
from tests.lab.samples import uuid
from wharfinger.conformance.other_program_client import WritingClient
from wharfinger.exceptions import (
    AllocationRefused,
    ConcurrentSave,
    ConcurrentUpdate,
    ObjectNotFound,
    PlacementError,
    PlacementUnavailable,
)
from wharfinger.objects import ReservationList

ONE = uuid("an instance")
BEFORE, AFTER = State("novas"), State("cyborgs")
MOVING = State("novas", "cyborgs")
#: The state of an instance after each completed act.
COMES = {"start": MOVING, "confirm": AFTER, "revert": BEFORE}
#: The states that an instance may have after an act was interrupted and recovered.
MAY_COME = {"start": {BEFORE, MOVING}, "confirm": {MOVING, AFTER}, "revert": {MOVING, BEFORE}}
MOVES = ("start", "confirm", "revert")
TOO_LATE = (AllocationRefused, ConcurrentSave, ConcurrentUpdate, ObjectNotFound)


class Scene:
    """An instance that moves between a VGPU of nova and one of Cyborg.

    The act "start" begins before the move, the other acts during the move. The node that the act
    releases needs cleaning.
    """

    def __init__(self, quay: Quay) -> None:
        self.quay = quay
        self._moments = Moments(quay.state_path)
        nothing = self._moments.take()
        desk = quay.desk()
        desk.claim(FLAVORS["novas"], uuid=ONE, suits=on(CLEANED))
        start = self._moments.take()
        ACTS["start"](desk, ONE, "cn-0")
        confirm = self._moments.take()
        self._moments.go_back(nothing)
        desk.claim(FLAVORS["novas"], uuid=ONE, suits=on("cn-0"))
        ACTS["start"](desk, ONE, CLEANED)
        self._beginnings = {"start": start, "confirm": confirm, "revert": self._moments.take()}
        self._counts: dict[str, int] = {}

    def do(self, desk: Desk, act: str) -> None:
        ACTS[act](desk, ONE, "cn-0")

    def is_done(self, desk: Desk, act: str) -> bool:
        """Perform the act; return False if it is refused."""
        try:
            self.do(desk, act)
        except AllocationRefused:
            return False
        return True

    def begin(self, act: str) -> Desk:
        """Restore the state before this act; return the desk of a new process."""
        self._moments.go_back(self._beginnings[act])
        return self.quay.desk()

    def state(self) -> State:
        """Return the instance's state; assert that nothing else is allocated or reserved."""
        context = self.quay.context
        assert leaks(context) == []
        found = states(context)
        if noted(context) != taken(context) or ReservationList.get_by_filters(context):
            self.quay.restart()
            self.quay.clean()
            assert noted(context) == taken(context)
            assert not list(ReservationList.get_by_filters(context))
            assert states(context) == found
        assert reserved(self.quay.placement) == set()
        return found[ONE]

    def boundaries(self, act: str) -> range:
        """Return the numbers of the boundaries that the act has if it is not interrupted."""
        if act not in self._counts:
            desk = self.begin(act)
            with Boundaries(self.quay.placement) as steps:
                self.do(desk, act)
            self._counts[act] = len(steps.passed)
        return range(self._counts[act])


@pytest.fixture
def scene(quay: Quay) -> Scene:
    return Scene(quay)


@pytest.fixture(scope="module")
def keeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Start another process, which stores the objects."""
    with Served(tmp_path_factory.mktemp("keeper")) as served:
        yield served


@pytest.fixture
def scene_elsewhere(keeper: Served, request: pytest.FixtureRequest) -> Iterator[Scene]:
    """A scene whose objects another process stores."""
    with elsewhere(keeper):
        yield request.getfixturevalue("scene")
    keeper.questions.clear()


def recovered(scene: Scene) -> State:
    """Recover all moves a day later in a new process; return the instance's state."""
    age(scene.quay.state_path)
    desk = scene.quay.desk()
    scene.is_done(desk, "recover")
    assert desk.moves.interrupted() == []
    return scene.state()


# Processes that die during an act.


def test_move_interrupted_with_remote_objects_is_recovered(
    scene_elsewhere: Scene, draw: Draw
) -> None:
    """``test_histories`` interrupts moves whose objects this process stores."""
    scene = scene_elsewhere
    cases = [(act, number) for act in MOVES for number in scene.boundaries(act)]
    for act, number in draw(cases, 2):
        desk = scene.begin(act)
        with Boundaries(scene.quay.placement, crash_at=number), pytest.raises(Crash):
            scene.do(desk, act)
        assert recovered(scene) in MAY_COME[act], (act, number)


@pytest.mark.drawn(1)
@pytest.mark.parametrize("act", MOVES)
def test_move_of_a_process_killed_at_a_boundary_is_recovered(
    placement_url: tuple[str, Requests], scene: Scene, *, draw: Draw, act: str
) -> None:
    quay = scene.quay

    def run(kill_at: int | None) -> killing.Ended:
        scene.begin(act)
        node = CLEANED if act == "revert" else "cn-0"
        work = Work(act, ONE, node, placement_url[0], quay.state_path)
        return killing.run(play, work, kill_at=kill_at)

    whole = run(None)
    assert whole.code == 0, "its traceback is on standard error"
    assert scene.state() == COMES[act]
    for number in draw(range(len(whole.boundaries)), 1):
        assert run(number).code == -signal.SIGKILL
        assert recovered(scene) in MAY_COME[act], number


# Processes that are regarded as dead, but are not.


def test_act_on_a_move_that_was_recovered_meanwhile_is_refused_or_done(
    scene: Scene, draw: Draw
) -> None:
    def recover() -> None:
        age(scene.quay.state_path)
        other = scene.quay.desk()
        for one in other.moves.interrupted():
            with suppress(*TOO_LATE):
                other.moves.recover(one)

    def run(act: str, act_at: int | None) -> int:
        desk, was_done = scene.begin(act), False
        with (
            claimants.Boundaries(
                scene.quay.placement, reads=act == "start", act_at=act_at, act=recover
            ) as steps,
            suppress(*TOO_LATE),
        ):
            scene.do(desk, act)
            was_done = True
        scene.is_done(desk, "recover")
        came = scene.state()
        if was_done:
            assert came == COMES[act], (act, act_at)
        else:
            assert came in {"start": {BEFORE}}.get(act, {BEFORE, COMES[act]}), (act, act_at)
        return len(steps.passed)

    for act in MOVES:
        for number in draw(range(run(act, None)), 1):
            run(act, number)


def test_move_in_progress_is_neither_recovered_nor_reverted(scene: Scene) -> None:
    desk = scene.begin("start")
    seen: list[str] = []

    def look(method: str, path: str) -> None:
        if method == "POST" and not seen:
            other = scene.quay.desk()
            assert other.moves.interrupted() == []
            with pytest.raises(AllocationRefused, match="Wait until the migration has status"):
                other.moves.revert(ONE)
            seen.append(path)

    scene.quay.placement.adapter.before = look
    scene.do(desk, "start")
    assert seen
    age(scene.quay.state_path)
    assert desk.moves.interrupted() == []  # the move waits to be confirmed or reverted
    assert scene.state() == MOVING


def test_late_allocation_request_of_a_start_that_was_recovered_is_refused(scene: Scene) -> None:
    desk = scene.begin("start")

    def recovered() -> None:
        age(scene.quay.state_path)
        [left] = scene.quay.desk().moves.interrupted()
        move, _ = scene.quay.desk().moves.recover(left)
        assert move.status == "failed"

    struck = scene.quay.placement.adapter.once_before(
        lambda method, path: (method, path) == ("POST", "/allocations"), recovered
    )
    with pytest.raises(TOO_LATE):
        scene.do(desk, "start")

    assert struck == ["/allocations"]
    assert held().keys() == {ONE}
    assert scene.state() == BEFORE


# Placement that fails.


def test_start_without_an_answer_is_undone_only_once_placement_answers(scene: Scene) -> None:
    desk = scene.begin("start")

    def is_away(method: str, _path: str) -> None:
        if method == "POST":
            raise ConnectFailure("refused")

    adapter = scene.quay.placement.adapter
    adapter.before, before = is_away, adapter.before
    with pytest.raises(PlacementUnavailable):
        scene.do(desk, "start")
    adapter.before = before
    age(scene.quay.state_path)

    assert [one.instance_uuid for one in desk.moves.interrupted()] == [ONE]
    assert recovered(scene) == BEFORE


#: Placement's answer that the inventory has no capacity left.
NO_ROOM = Fault(
    "no room",
    "409",
    answer=lambda _: faults._refusal(
        HTTPStatus.CONFLICT, "The requested amount would exceed the capacity."
    ),
)
SWEPT = (FAULTS["503"], FAULTS["reset when done"], FAULTS["409"], FAULTS["500 when done"], NO_ROOM)


def test_move_with_a_failed_request_is_finished_by_a_repeat(
    scene: Scene, interceptor: Interceptor, draw: Draw
) -> None:
    quay = scene.quay

    def run(act: str, number: int | None, fault: Fault | None) -> int:
        scene.begin(act)
        client = WritingClient(adapter_to(interceptor.url), connections=4)
        with Desk(client, quay.context, down_time=A_WHILE) as desk:
            interceptor.expect(number, fault)
            with suppress(PlacementError, AllocationRefused):
                scene.do(desk, act)
            seen = len(interceptor.seen)
            assert number is None or interceptor.struck or number >= seen
            interceptor.expect()
            age(quay.state_path)
            scene.is_done(desk, "recover")
            # Recovery undoes a start and completes the other acts. Repeat an act that was undone.
            if act != "start" or states(quay.context) != {ONE: MOVING}:
                scene.do(desk, act)
        assert scene.state() == COMES[act], (act, fault and fault.name, number)
        return seen

    for act in MOVES:
        numbers = range(run(act, None, None))
        for fault, number in draw([(fault, one) for fault in SWEPT for one in numbers], 1):
            run(act, number, fault)
