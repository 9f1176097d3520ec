"""Moves that are cut short, wherever: whoever comes next ends them, one way or the other."""

import signal
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from http import HTTPStatus
from pathlib import Path

import pytest

from tests.lab import claimants, faults, killing
from tests.lab.allocating import Desk, held
from tests.lab.allocating import faults as leaks
from tests.lab.claiming import noted, taken
from tests.lab.cycles import everything
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
from tests.lab.placement import PlacementFixture, adapter_to, over_http
from tests.lab.reserving import Crash, is_full
from tests.lab.samples import uuid
from wharfinger.exceptions import (
    AllocationRefused,
    ConcurrentSave,
    ConcurrentUpdate,
    ObjectNotFound,
    PlacementError,
)
from wharfinger.objects import Instance, InstanceList, MigrationList, ReservationList
from wharfinger.placement.client import PlacementClient
from wharfinger.placement.embedded import EmbeddedPlacement

pytestmark = pytest.mark.usefixtures("where", "no_waiting")

ONE = uuid("an instance")
BEFORE, AFTER = State("novas"), State("cyborgs")
MOVING = State("novas", "cyborgs")
NOTHING = State()
#: What each act makes of an instance.
COMES = {"start": MOVING, "confirm": AFTER, "revert": BEFORE, "release": NOTHING}
TOO_LATE = (AllocationRefused, ConcurrentSave, ConcurrentUpdate, ObjectNotFound)


class Scene:
    """An instance of nova's VGPU that moves to Cyborg's; what is done with it, again and again.

    A node is cleaned: ``is_source`` says at which end. It begins where one may ``start``, or, for
    what else is done, in mid-move.
    """

    def __init__(self, quay: Quay, *, is_source: bool) -> None:
        self.quay = quay
        self._moments = Moments(quay.state_path)
        source, self.destination = (CLEANED, "cn-0") if is_source else ("cn-0", CLEANED)
        desk = quay.desk()
        desk.claim(FLAVORS["novas"], uuid=ONE, suits=on(source))
        self._beginnings = {True: self._moments.take()}
        self.do(desk, "start")
        self._beginnings[False] = self._moments.take()

    def do(self, desk: Desk, act: str) -> None:
        """Do something of ACTS."""
        ACTS[act](desk, ONE, self.destination)

    def is_done(self, desk: Desk, act: str) -> bool:
        """Do it; whether it was not refused."""
        try:
            self.do(desk, act)
        except AllocationRefused:
            return False
        return True

    def begin(self, act: str) -> Desk:
        """Go back to where something can be done, and have a process start."""
        self._moments.go_back(self._beginnings[act == "start"])
        return self.restarted()

    def restarted(self) -> Desk:
        """The desk of a process that starts now."""
        return self.quay.desk()

    def state(self) -> State:
        """What has come of the instance; it has that and nothing else, and nothing is left."""
        assert leaks(self.quay.context) == []
        found = states(self.quay.context)
        if noted(self.quay.context) != taken(self.quay.context) or ReservationList.get_by_filters(
            self.quay.context
        ):
            self.quay.restart()
            self.quay.clean()
        assert noted(self.quay.context) == taken(self.quay.context)
        assert not [name for name in everything() if is_full(self.quay.placement, name)]
        assert not list(ReservationList.get_by_filters(self.quay.context))
        assert states(self.quay.context) == found
        return found.get(ONE, NOTHING)

    def boundaries(self, act: str) -> int:
        """To how many something comes that is not cut short."""
        desk = self.begin(act)
        with Boundaries(self.quay.placement) as steps:
            self.do(desk, act)
        assert self.state() == COMES[act]
        return len(steps.passed)

    def cut_short(self, act: str, number: int) -> Desk:
        """Have it be begun by a process that ends at a boundary; a day after, another starts."""
        desk = self.begin(act)
        with Boundaries(self.quay.placement, crash_at=number), pytest.raises(Crash):
            self.do(desk, act)
        age(self.quay.state_path)
        return self.restarted()


@pytest.fixture(scope="module")
def keeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Another process that keeps objects."""
    with Served(tmp_path_factory.mktemp("keeper")) as served:
        yield served


@pytest.fixture(scope="module", params=["here", "elsewhere"])
def where(request: pytest.FixtureRequest) -> Iterator[str]:
    """Where objects are kept: by this process, or by another."""
    if request.param == "here":
        yield request.param
        return
    served: Served = request.getfixturevalue("keeper")
    with elsewhere(served):
        yield request.param
    served.questions.clear()


@pytest.fixture
def quay(where: str, placement: PlacementFixture, tmp_path: Path) -> Iterator[Quay]:
    with Quay(placement, tmp_path / "state") as fixture:
        yield fixture


# Processes that end.


@pytest.mark.parametrize(
    ("act", "how"),
    [
        ("start", "recover"),
        ("start", "release"),
        ("confirm", "recover"),
        ("confirm", "revert"),
        ("confirm", "release"),
        ("revert", "recover"),
        ("revert", "confirm"),
    ],
)
def test_a_move_that_is_cut_short_anywhere_ends_one_way_or_the_other(
    where: str, quay: Quay, act: str, how: str
) -> None:
    if where == "elsewhere" and how != "recover":
        pytest.skip("what is written is the same, wherever objects are kept")
    scene = Scene(quay, is_source=act != "revert")
    for number in range(scene.boundaries(act)):
        desk = scene.cut_short(act, number)
        was_done = scene.is_done(desk, how)
        desk.moves.left()
        scene.is_done(desk, "recover")
        assert desk.moves.left() == []
        came = scene.state()

        assert came in {BEFORE, MOVING, COMES[act], COMES.get(how, BEFORE)}, number
        if how in {"confirm", "revert", "release"} and was_done:
            assert came == COMES[how], number
        if act == "start" and how == "recover":
            assert came in {BEFORE, MOVING}, number


@pytest.mark.parametrize("act", ["start", "confirm", "revert"])
def test_a_process_that_is_killed_anywhere_in_a_move_leaves_what_the_next_one_ends(
    where: str, quay: Quay, placement_service: EmbeddedPlacement, act: str
) -> None:
    if where == "elsewhere" and act != "start":
        pytest.skip("what is written is the same, wherever objects are kept")
    with ExitStack() as stack:
        kept = Moments(quay.state_path)
        now = kept.take()
        url, _ = stack.enter_context(over_http(placement_service))
        kept.go_back(now)
        scene = Scene(quay, is_source=act != "revert")

        def run(kill_at: int | None) -> killing.Ended:
            scene.begin(act)
            work = Work(act, ONE, scene.destination, url, quay.state_path)
            return killing.run(play, work, kill_at=kill_at)

        whole = run(None)
        assert whole.code == 0, "its traceback is on standard error"
        assert scene.state() == COMES[act]
        for number in range(len(whole.boundaries)):
            assert run(number).code == -signal.SIGKILL
            age(quay.state_path)
            desk = scene.restarted()
            scene.is_done(desk, "recover")
            assert desk.moves.left() == []
            came = scene.state()
            assert came in {"start": {BEFORE, MOVING}}.get(act, {MOVING, COMES[act]}), number


# Who is thought to be dead, and is not.


@pytest.mark.parametrize("act", ["start", "confirm", "revert"])
def test_who_goes_on_after_his_move_was_recovered_is_refused_or_finds_it_done(
    where: str, quay: Quay, act: str
) -> None:
    if where == "elsewhere":
        pytest.skip("what another process keeps is read without a step here")
    scene = Scene(quay, is_source=True)

    def meanwhile() -> None:
        age(quay.state_path)
        other = quay.desk()
        for one in other.moves.left():
            with suppress(*TOO_LATE):
                other.moves.recover(one)

    def run(act_at: int | None) -> int:
        desk = scene.begin(act)
        with claimants.Boundaries(
            quay.placement, reads=act == "start", act_at=act_at, act=meanwhile
        ) as steps:
            try:
                scene.do(desk, act)
            except TOO_LATE:
                was_done = False
            else:
                was_done = True
        scene.is_done(desk, "recover")
        came = scene.state()
        if was_done:
            assert came == COMES[act], act_at
        else:
            assert came in {"start": {BEFORE}}.get(act, {BEFORE, COMES[act]}), act_at
        return len(steps.passed)

    for number in range(run(None)):
        run(number)


def test_a_move_that_is_at_work_is_not_recovered_nor_reverted(quay: Quay) -> None:
    scene = Scene(quay, is_source=True)
    desk = scene.begin("start")
    seen: list[str] = []

    def look(method: str, path: str) -> None:
        if method == "POST" and not seen:
            other = quay.desk()
            assert other.moves.left() == []
            with pytest.raises(AllocationRefused, match="wait until it is finished"):
                other.moves.revert(ONE)
            seen.append(path)

    quay.placement.adapter.before = look
    scene.do(desk, "start")
    assert seen
    assert scene.state() == MOVING


def test_a_move_that_waits_for_somebody_is_not_left(quay: Quay) -> None:
    scene = Scene(quay, is_source=True)
    desk = scene.begin("confirm")
    age(quay.state_path)
    assert desk.moves.left() == []
    assert scene.state() == MOVING


def test_the_post_of_a_start_that_was_recovered_is_refused(quay: Quay) -> None:
    scene = Scene(quay, is_source=True)
    desk = scene.begin("start")

    def recovered() -> None:
        age(quay.state_path)
        [left] = quay.desk().moves.left()
        move, _ = quay.desk().moves.recover(left)
        assert move.status == "failed"

    struck = quay.placement.adapter.once_before(
        lambda method, path: (method, path) == ("POST", "/allocations"), recovered
    )
    with pytest.raises(TOO_LATE):
        scene.do(desk, "start")

    assert struck == ["/allocations"]
    assert held().keys() == {ONE}
    assert scene.state() == BEFORE


# Instances that are gone.


@pytest.mark.parametrize(
    "status", ["accepted", "pre-migrating", "finished", "confirming", "reverting"]
)
def test_a_move_whose_instance_is_gone_is_left_at_once_and_gives_back_what_it_has(
    quay: Quay, status: str
) -> None:
    scene = Scene(quay, is_source=True)
    if status in {"accepted", "pre-migrating"}:
        desk = begun_until(scene, status)
    else:
        desk = scene.begin("confirm")
        [move] = MigrationList.get_by_filters(quay.context)
        move.status = status
        move.save()
    desk.client.delete_allocations(ONE)
    Instance.get_by_uuid(quay.context, ONE).destroy()

    [left] = desk.moves.left()
    assert left.status == status
    for _ in range(2):
        ended, _ = desk.moves.recover(left)
        assert not ended.is_in_progress
    assert held() == {}
    assert scene.state() == NOTHING


def begun_until(scene: Scene, status: str) -> Desk:
    """Have a start be cut short as soon as its move has a status, and holds something if it can."""
    for number in reversed(range(scene.boundaries("start"))):
        desk = scene.cut_short("start", number)
        [move] = MigrationList.get_by_filters(scene.quay.context)
        if move.status == status:
            return desk
    raise AssertionError(status)


@pytest.mark.parametrize("act", ["start", "confirm", "revert"])
def test_an_instance_that_goes_at_any_boundary_of_its_move_leaves_nothing(
    quay: Quay, act: str
) -> None:
    scene = Scene(quay, is_source=True)
    for number in range(scene.boundaries(act)):
        desk = scene.begin(act)
        with (
            Boundaries(
                quay.placement,
                act_at=number,
                act=lambda: quay.desk().claims.release(ONE),
            ),
            suppress(*TOO_LATE),
        ):
            scene.do(desk, act)
        assert not list(InstanceList.get_by_filters(quay.context)), number
        age(quay.state_path)
        scene.is_done(desk, "recover")
        assert desk.moves.left() == [], number
        assert held() == {}, number
        assert scene.state() == NOTHING, number


# Placement that fails.

#: What is no room, in Placement's words.
NO_ROOM = Fault(
    "no room",
    "409",
    answer=lambda _: faults._refusal(
        HTTPStatus.CONFLICT, "The requested amount would exceed the capacity."
    ),
)
SWEPT = (FAULTS["503"], FAULTS["reset when done"], FAULTS["409"], FAULTS["500 when done"], NO_ROOM)


@pytest.fixture
def interceptor(quay: Quay, placement_service: EmbeddedPlacement) -> Iterator[Interceptor]:
    with Interceptor(placement_service.application) as fixture:
        yield fixture


@pytest.mark.parametrize("act", ["start", "confirm", "revert"])
@pytest.mark.parametrize("fault", SWEPT, ids=lambda fault: fault.name)
def test_a_move_is_gone_on_with_wherever_placement_fails(
    where: str, quay: Quay, interceptor: Interceptor, act: str, fault: Fault
) -> None:
    if where == "elsewhere":
        pytest.skip("Placement fails in the same way wherever objects are kept")
    scene = Scene(quay, is_source=act != "revert")

    def run(number: int | None) -> int:
        scene.begin(act)
        client = PlacementClient(adapter_to(interceptor.url), connections=4)
        with Desk(client, quay.context, down_time=A_WHILE) as desk:
            interceptor.expect(number, None if number is None else fault)
            with suppress(PlacementError, AllocationRefused):
                scene.do(desk, act)
            seen = len(interceptor.seen)
            assert number is None or interceptor.struck or number >= seen
            interceptor.expect()
            ended(desk)
        assert scene.state() == COMES[act], number
        return seen

    def ended(desk: Desk) -> None:
        """Do it again, if it has not been done; a start is undone first."""
        age(quay.state_path)
        scene.is_done(desk, "recover")
        if act == "start" and states(quay.context) == {ONE: MOVING}:
            return
        scene.do(desk, act)

    for number in range(run(None)):
        run(number)
