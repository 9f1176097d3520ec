"""Random histories of claims, releases and moves, which are interrupted anywhere and resumed.

WHARFINGER_HISTORIES is the number of histories. A long run has 150, and draws other histories each
time.
"""

import os
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import ClassVar
from uuid import NAMESPACE_OID, uuid5

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.lab.allocating import faults, held
from tests.lab.claiming import noted, taken
from tests.lab.drawing import Draw
from tests.lab.histories import (
    CYBORG,
    FLAVORS,
    NODES,
    NOVA,
    ROOT,
    Boundaries,
    Quay,
    State,
    age,
    free,
    overdrawn,
    states,
)
from tests.lab.moments import Moment, Moments
from tests.lab.placement import PlacementFixture
from tests.lab.reserving import Crash, summary
from wharfinger.exceptions import AllocationRefused, NoCandidates, ObjectNotFound
from wharfinger.objects import Instance, InstanceList, ReservationList
from wharfinger.reconcile.reserve_and_release import Reservations

HISTORIES = int(os.environ.get("WHARFINGER_HISTORIES") or 0)
#: Errors that an act may raise if the instance is not in the right state for it.
REFUSALS = (AllocationRefused, NoCandidates, ObjectNotFound)
MOST_INSTANCES = 5

which = st.integers(0, MOST_INSTANCES - 1)
flavors = st.sampled_from(sorted(FLAVORS))
#: The number of the boundary at which an act dies; None: it does not die.
crashes = st.one_of(st.none(), st.integers(0, 13), st.integers(0, 24))
nodes = st.sampled_from(NODES)


class History(RuleBasedStateMachine):
    """A random history of claims, moves, releases and cycles.

    ``possible`` has the states that each instance may have: one, unless an act was interrupted.
    """

    quay: ClassVar[Quay]
    moments: ClassVar[Moments]
    beginning: ClassVar[Moment]

    @initialize()
    def begin(self) -> None:
        self.moments.go_back(self.beginning)
        self.quay.totals |= dict.fromkeys(self.quay.totals, 2)
        self.quay.restart()
        self.desk = self.quay.desk()
        self.context = self.quay.context
        self.possible: dict[str, set[State]] = {}
        self.broken: set[str] = set()
        self.holders: set[str] = set()
        self.count = 0

    # Acts on one instance.

    @precondition(lambda self: len(self.possible) < MOST_INSTANCES)
    @rule(name=flavors, crash=crashes)
    def claim(self, name: str, crash: int | None) -> None:
        self.count += 1
        uuid = str(uuid5(NAMESPACE_OID, f"instance {self.count}"))
        self.possible[uuid] = {State()}
        self._do(
            uuid,
            lambda: self.desk.claim(FLAVORS[name], uuid=uuid),
            lambda state: State(name),
            crash,
        )

    @precondition(lambda self: self.possible)
    @rule(index=which, name=flavors, crash=crashes)
    def resize(self, index: int, name: str, crash: int | None) -> None:
        uuid = self._uuid(index)
        self._do(
            uuid,
            lambda: self.desk.moves.start(uuid, FLAVORS[name]),
            lambda state: State(state.flavor, name),
            crash,
            lambda state: not state.moves_to and state.flavor not in {None, name},
        )

    @precondition(lambda self: self.possible)
    @rule(index=which, crash=crashes)
    def migrate(self, index: int, crash: int | None) -> None:
        uuid = self._uuid(index)
        self._do(
            uuid,
            lambda: self.desk.moves.start(uuid),
            lambda state: State(state.flavor, state.flavor),
            crash,
            lambda state: not state.moves_to and state.flavor is not None,
        )

    @precondition(lambda self: self._is_moving())
    @rule(index=which, crash=crashes)
    def confirm(self, index: int, crash: int | None) -> None:
        uuid = self._uuid(index)
        self._do(
            uuid,
            lambda: self.desk.moves.confirm(uuid),
            lambda state: State(state.moves_to or state.flavor),
            crash,
        )

    @precondition(lambda self: self._is_moving())
    @rule(index=which, crash=crashes)
    def revert(self, index: int, crash: int | None) -> None:
        uuid = self._uuid(index)
        self._do(
            uuid,
            lambda: self.desk.moves.revert(uuid),
            lambda state: State(state.flavor),
            crash,
        )

    @precondition(lambda self: self.possible)
    @rule(index=which, crash=crashes, claims=st.booleans())
    def release_or_claim_again(self, index: int, crash: int | None, claims: bool) -> None:
        if claims:
            self._claim_again(self._uuid(index), crash)
        else:
            self._release(self._uuid(index), crash)

    # Acts on all instances.

    @precondition(lambda self: self.broken)
    @rule(crash=crashes)
    def recover(self, crash: int | None) -> None:
        age(self.quay.state_path)
        for move in self.desk.moves.interrupted():
            uuid = move.instance_uuid
            assert uuid in self.broken
            self._do(uuid, partial(self.desk.moves.recover, move), None, crash)

    @rule(
        what=st.one_of(
            st.tuples(st.just("change"), nodes, st.sampled_from([ROOT, NOVA, CYBORG])),
            st.tuples(st.just("hold"), nodes, st.sampled_from([ROOT, NOVA])),
            st.tuples(st.sampled_from(["cycle", "clean"])),
        ),
        total=st.integers(1, 3),
    )
    def publish(self, what: tuple[str, ...], total: int) -> None:
        match what:
            case "change", node, part:
                self.quay.totals[node, part] = total
            case "hold", node, part:
                self._hold(f"{node}{part}")
            case ("clean",):
                self.quay.clean()
        self.quay.cycle()
        assert noted(self.context) == taken(self.context)

    def _hold(self, name: str) -> None:
        holds = Reservations(self.desk.client, self.context)
        provider = summary(self.quay.placement, name)
        if name in self.holders:
            holds.release(provider, "operator")
        else:
            holds.reserve(provider, holder="operator", reason="why")
        self.holders ^= {name}

    @precondition(lambda self: self.broken)
    @rule(claims=st.booleans())
    def resume_all(self, claims: bool) -> None:
        """Finish or undo all interrupted claims, releases and moves."""
        age(self.quay.state_path)
        for move in self.desk.moves.interrupted():
            self._do(move.instance_uuid, partial(self.desk.moves.recover, move), None, None)
        for one in InstanceList.get_by_filters(self.context):
            if one.task_state is not None:
                self._resume(one, claims=claims)
        self.broken.clear()
        self.quay.cycle()
        assert noted(self.context) == taken(self.context)
        self._check()

    def _resume(self, one: Instance, *, claims: bool) -> None:
        """Finish or undo an interrupted claim; finish an interrupted release."""
        if claims:
            self._claim_again(one.uuid, None)
        if one.uuid in self._unsettled():
            self._release(one.uuid, None)

    def _release(self, uuid: str, crash: int | None) -> None:
        self._do(uuid, lambda: self.desk.claims.release(uuid), lambda state: State(), crash)

    def _claim_again(self, uuid: str, crash: int | None) -> None:
        found = {one.uuid: one for one in InstanceList.get_by_filters(self.context)}
        if uuid in found:
            name = found[uuid].flavor.name
            self._do(
                uuid,
                lambda: self.desk.claim(found[uuid].flavor, uuid=uuid),
                lambda state: state if state.flavor else State(name),
                crash,
            )

    # Final checks.

    def teardown(self) -> None:
        if not hasattr(self, "possible"):
            return
        self.resume_all(claims=False)
        for uuid in sorted(self.possible):
            self._release(uuid, None)
        for name in sorted(self.holders):
            self._hold(name)
        self.quay.clean()
        self.quay.cycle()
        assert held() == {}
        assert not list(ReservationList.get_by_filters(self.context))
        assert {name: could for (name, _), (could, _) in free().items()} == {
            f"{node}{part}": total for (node, part), total in self.quay.totals.items()
        }
        assert noted(self.context) == dict.fromkeys(noted(self.context), (0, 0, 0))

    def _check(self) -> None:
        """Assert that each instance is in a possible state with exactly its allocations."""
        if self.broken:
            return
        assert faults(self.context) == []
        found = states(self.context)
        for uuid, possible in list(self.possible.items()):
            assert found.get(uuid, State()) in possible, uuid
            self.possible[uuid] = {found.get(uuid, State())}
            if uuid not in found:
                del self.possible[uuid]
        assert found.keys() <= self.possible.keys()
        assert noted(self.context) == taken(self.context)

    def _do(
        self,
        uuid: str,
        act: Callable[[], object],
        after: Callable[[State], State] | None,
        crash: int | None,
        may: Callable[[State], bool] = lambda state: True,
    ) -> None:
        """Perform an act; ``after`` returns the next state for a state in which it ``may`` happen.

        Without ``after``, the act resumes an interrupted act, and ``possible`` already has its
        result.
        """
        before, could = self.possible[uuid], free()
        come = {after(one) for one in before if may(one)} if after else before
        try:
            with Boundaries(self.quay.placement, crash_at=crash):
                act()
        except Crash:
            self.possible[uuid] = before | come
            self.broken.add(uuid)
            self.desk = self.quay.desk()
        except REFUSALS:
            pass
        else:
            assert come, "it was to be refused"
            self.possible[uuid] = come
        assert not list(overdrawn(could))
        self._check()

    def _uuid(self, index: int) -> str:
        uuids = list(self.possible)
        return uuids[index % len(uuids)]

    def _is_moving(self) -> bool:
        return any(one.moves_to for each in self.possible.values() for one in each)

    def _unsettled(self) -> set[str]:
        found = InstanceList.get_by_filters(self.context)
        return {one.uuid for one in found if one.task_state is not None}


@pytest.mark.usefixtures("no_waiting")
def test_random_histories_leave_exactly_the_expected_allocations(
    placement: PlacementFixture, tmp_path: Path, draw: Draw
) -> None:
    with ExitStack() as stack:
        History.quay = stack.enter_context(Quay(placement, tmp_path / "state"))
        History.moments = Moments(tmp_path / "state")
        History.beginning = History.moments.take()
        run_state_machine_as_test(
            History if draw.seed is None else seed(draw.seed)(History),
            settings=settings(
                max_examples=HISTORIES or draw.number(20, some=1),
                stateful_step_count=25,
                deadline=None,
                derandomize=not HISTORIES and draw.seed is None,
                database=None,
                phases=[Phase.generate, *([Phase.shrink] if HISTORIES else [])],
                suppress_health_check=list(HealthCheck),
            ),
        )
