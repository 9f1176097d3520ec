"""A change feed of a fleet with random events.

Clocks differ, requests and cycles fail, and nodes change between two requests. After a successful
poll, the feed has reported all earlier updates, and no unchanged node twice.
"""

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import TypeVar

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.unit.ironic.model import Model, Row, clock, sizes
from wharfinger.exceptions import BackendError
from wharfinger_ironic.feed import OVERLAP
from wharfinger_ironic.fleet import Fleet
from wharfinger_ironic.node import Node

SMALL, MIDDLE, PAGE = 2, 4, 8
EXAMPLES = 80
STEPS = 40

#: Seconds by which clocks are ahead. With less than one more second, which times of whole seconds
#: lose, they stay within OVERLAP.
skews = st.floats(-4, 5)
assert OVERLAP.total_seconds() >= 5 + 5
Answer = TypeVar("Answer")
reasons = st.sampled_from([None, "a", "b", "c"])
which = st.integers(0, 1000)
changes = st.tuples(which, reasons, skews, st.booleans())


class Following(RuleBasedStateMachine):
    """A fleet, its Ironic, and the state that a publisher has from the reports."""

    @initialize(
        nulls_first=st.booleans(),
        has_date=st.booleans(),
        page=st.sampled_from([3, PAGE]),
        skew=st.floats(-5, 5),
        count=st.integers(0, 6),
    )
    def begin(self, nulls_first: bool, has_date: bool, page: int, skew: float, count: int) -> None:
        self.model = Model(nulls_first=nulls_first, has_date=has_date, page=page)
        self.model.skew = skew
        self.model.create(count)
        self.fixtures = ExitStack()
        self.fixtures.enter_context(sizes(SMALL, MIDDLE, PAGE))
        self.fixtures.enter_context(clock(self.model))
        self.fleet = Fleet(self.model, "metal")
        self.mark = self.fleet.begin_following()
        self.fleet.refresh()
        self.published = dict(self.fleet.nodes)

    def teardown(self) -> None:
        self.fixtures.close()

    # Events in Ironic.

    @rule(count=st.sampled_from([1, 2, 5, 12]))
    def create(self, count: int) -> None:
        if len(self.model.rows) < 30:
            self.model.create(count)

    @rule(change=changes)
    def update(self, change: tuple[int, str | None, float, bool]) -> None:
        self._change(*change)

    @rule(count=st.sampled_from([3, 9, 30]), reason=reasons, skew=skews)
    def update_many_at_once(self, count: int, reason: str | None, skew: float) -> None:
        for uuid in list(self.model.rows)[:count]:
            self.model.update(uuid, reason, skew=skew)

    @rule(index=which)
    def delete(self, index: int) -> None:
        if row := self._row(index):
            self.model.delete(row.uuid)

    @rule(seconds=st.sampled_from([0.01, 0.5, 2.0, 7.0, 30.0, 1000.0]))
    def time_passes(self, seconds: float) -> None:
        self.model.now += seconds

    # Polls and listings.

    @rule(
        is_kept=st.booleans(),
        fails_at=st.one_of(st.none(), st.integers(0, 8)),
        meanwhile=st.lists(st.tuples(st.integers(0, 6), changes), max_size=3),
    )
    def poll(
        self,
        is_kept: bool,
        fails_at: int | None,
        meanwhile: list[tuple[int, tuple[int, str | None, float, bool]]],
    ) -> None:
        since = {row.uuid: len(row.history) - 1 for row in self._dated()}
        found = self._ask(fails_at, meanwhile, partial(self.fleet.changed_since, self.mark))
        if found is None or not is_kept:
            return  # the next poll uses the old mark again
        names, self.mark = found
        assert names <= self.fleet.nodes.keys()
        self.published |= {uuid: self.fleet.nodes[uuid] for uuid in names}
        self._has_seen(since)
        again, _ = self.fleet.changed_since(self.mark)
        newer = {uuid for uuid in again if self.fleet.nodes[uuid] != self.published.get(uuid)}
        assert again == newer  # it reports only nodes that have changed since

    @rule(
        fails_at=st.one_of(st.none(), st.integers(0, 8)),
        meanwhile=st.lists(st.tuples(st.integers(0, 6), changes), max_size=3),
        goes=st.one_of(st.none(), st.tuples(st.integers(0, 6), which)),
    )
    def sync(
        self,
        fails_at: int | None,
        meanwhile: list[tuple[int, tuple[int, str | None, float, bool]]],
        goes: tuple[int, int] | None,
    ) -> None:
        since = {row.uuid: len(row.history) - 1 for row in self.model.rows.values()}
        if goes is not None:
            self.model.meanwhile.append((goes[0], lambda: self.delete(goes[1])))
        if self._ask(fails_at, meanwhile, self._refresh) is None:
            return
        self.published = dict(self.fleet.nodes)
        self._has_seen(since)

    @precondition(lambda self: any(self._dated()) or not self.model.nulls_first)
    @rule()
    def rest(self) -> None:
        """After a time without a change, assert that a poll sends one short request."""
        for seconds in (0, 30, 2):
            self.model.now += seconds
            names, self.mark = self.fleet.changed_since(self.mark)
            self.published |= {uuid: self.fleet.nodes[uuid] for uuid in names}
        self.model.asked.clear()
        assert self.fleet.changed_since(self.mark) == (set(), self.mark)
        if not any(self._dated()):
            # If no row has a time, one more request checks whether any node has one.
            assert [what for what, _ in self.model.asked] == ["latest", "nulls"]
        elif not self.model.nulls_first or self._dated() == list(self.model.rows.values()):
            assert self.model.asked == [("latest", min(SMALL, len(self.model.rows)))]

    @invariant()
    def no_node_is_another(self) -> None:
        if hasattr(self, "fleet"):
            assert all(uuid == node.uuid for uuid, node in self.fleet.nodes.items())

    def _ask(
        self,
        fails_at: int | None,
        meanwhile: list[tuple[int, tuple[int, str | None, float, bool]]],
        asking: Callable[[], Answer],
    ) -> Answer | None:
        """Return the answer; if the request fails, assert no change and return None."""
        before = dict(self.fleet.nodes)
        self.model.fails_at = fails_at
        self.model.meanwhile += [(at, partial(self._change, *change)) for at, change in meanwhile]
        may_fail = fails_at is not None or bool(self.model.meanwhile)
        try:
            return asking()
        except BackendError:
            assert may_fail
            assert self.fleet.nodes == before
            return None
        finally:
            self.model.fails_at = None
            self.model.meanwhile.clear()

    def _refresh(self) -> bool:
        self.fleet.refresh()
        return True

    def _has_seen(self, since: dict[str, int]) -> None:
        """Assert that every existing node was published in its ``since`` state or a later one."""
        for uuid, index in since.items():
            if uuid in self.model.rows:
                states: list[Node] = self.model.rows[uuid].history[index:]
                assert self.published.get(uuid) in states

    def _change(self, index: int, reason: str | None, skew: float, is_whole: bool) -> None:
        if row := self._row(index):
            self.model.update(row.uuid, reason, skew=skew, whole=is_whole)

    def _dated(self) -> list[Row]:
        return [row for row in self.model.rows.values() if row.updated is not None]

    def _row(self, index: int) -> Row | None:
        rows = list(self.model.rows.values())
        return rows[index % len(rows)] if rows else None


TestFollowing = Following.TestCase
TestFollowing.settings = settings(max_examples=EXAMPLES, stateful_step_count=STEPS, deadline=None)
