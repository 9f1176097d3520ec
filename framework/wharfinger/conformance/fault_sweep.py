"""Faults in a backend: one call after the other fails while a driver publishes."""

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from wharfinger.conformance.exceptions import NotShown, Violation
from wharfinger.conformance.harness import Fault, Harness
from wharfinger.conformance.placement_diff import Contents, difference, trees
from wharfinger.conformance.rules import can_be_busy
from wharfinger.conformance.subject import (
    Publishing,
    Subject,
    as_contents,
    describe,
    tree_of,
    update,
)
from wharfinger.driver import ComputeDriver
from wharfinger.exceptions import WharfingerError
from wharfinger.providers import DesiredProvider
from wharfinger.reconcile.cycle import CycleResult

#: Seconds for a cycle to end when no call hangs any more.
_END: Final = 60.0
#: Seconds between two looks whether a call has been made.
_PAUSE: Final = 0.01
#: Calls after which a cycle is no cycle.
_MOST: Final = 2000


@dataclass(slots=True)
class Attempt:
    """A cycle in which one call meets a fault.

    ``call`` is that call, None if the cycle made fewer calls; ``calls`` are all calls of the cycle.
    ``meanwhile`` has the contents of Placement while the call hung, None if it did not hang.
    ``gone`` are the providers that the cycle took for gone; ``failed``: it reported a problem.
    """

    call: str | None = None
    calls: Sequence[str] = ()
    meanwhile: Contents | None = None
    gone: Sequence[str] = ()
    failed: bool = False


@dataclass(frozen=True, slots=True)
class _Seen:
    """The contents of Placement at a moment of an attempt."""

    when: str
    contents: Contents
    #: Whether a cycle had ended without a problem.
    is_well: bool = False


class Breaking:
    """One kind of fault, in a backend."""

    def __init__(self, subject: Subject, fault: Fault) -> None:
        self._subject: Final = subject
        self._harness: Final = subject.harness
        self._fault: Final = fault
        self._is_felt = False
        self._busy: str | None = None

    def sweep(self) -> None:
        """Let each call fail in turn: while the backend changes, and when a driver starts.

        One thing is busy meanwhile, if the harness supports it. Raises Violation if the published
        tree is neither the old nor the new one, or if a cycle reports success wrongly; NotShown
        if the faults have no effect.
        """
        with self._subject.publishing() as publishing:
            publishing.settle()
            if can_be_busy(self._subject):
                self._busy = self._harness.things()[0]
                self._harness.make_busy(self._busy)
                publishing.settle()
            self._harness.expect()
            publishing.sync()
            if not self._harness.calls:
                raise NotShown("the harness counts no calls in a cycle")
            self._while_changing(publishing)
            self._at_the_start(publishing)
        if not self._is_felt:
            raise NotShown(f"the harness causes no {self._fault}: no cycle differs")

    def lasting(self) -> None:
        """Stop the backend at each call in turn, for the rest of the cycle.

        The call hangs until every later one meets the fault. Raises Violation if the published
        contents change, NotShown if a cycle makes no calls.
        """
        with self._subject.publishing() as publishing:
            old = publishing.settle()
            at = 0
            while self._goes_away(publishing, at, old):
                at += 1
        if not at:
            raise NotShown("the harness counts no calls in a cycle")

    def _goes_away(self, publishing: Publishing, at: int, old: Contents) -> bool:
        """Stop the backend at a call of a cycle; return whether the cycle makes that call."""
        hanging = Breaking(self._subject, Fault.HANG)
        attempt = hanging.attempt(publishing.cycle.sync, at, then=self._fault)
        when = f"from call {at} ({attempt.call}) on every call meets {self._fault}"
        if attempt.gone:
            raise Violation(f"{when}: reported as gone: {', '.join(attempt.gone)}", "an error")
        after = self._subject.placement.contents()
        if after != old:
            raise Violation(f"{when}: {difference(old, after)}", "no difference")
        return attempt.call is not None

    def attempt(
        self,
        cycle: Callable[[], CycleResult],
        at: int,
        patience: float = 0,
        then: Fault | None = None,
    ) -> Attempt:
        """Run a cycle whose call ``at`` meets the fault; the cycle may raise any exception.

        A hanging call is released after ``patience`` seconds. Later calls meet the fault ``then``.
        """
        self._harness.expect(at, self._fault)
        attempt = Attempt()
        running = threading.Thread(target=_ends, args=(cycle, attempt), name="cycle", daemon=True)
        running.start()
        hangs = self._fault is Fault.HANG
        while running.is_alive() and not (hangs and len(self._harness.calls) > at):
            running.join(_PAUSE)
        running.join(patience)
        attempt.meanwhile = self._subject.placement.contents() if running.is_alive() else None
        attempt.calls = [*self._harness.calls]
        self._harness.expect(fault=then)
        running.join(_END)
        self._harness.expect()
        if running.is_alive():
            raise Violation(f"call {at} met {self._fault}, and the cycle did not end", "an error")
        attempt.call = attempt.calls[at] if at < len(attempt.calls) else None
        return attempt

    def _while_changing(self, publishing: Publishing) -> None:
        """Break one call after the other while a thing is added and another becomes busy."""
        at: int | None = 0
        while at is not None:
            usual = self._subject.placement.contents()
            thing = self._subject.add()
            other = next(one for one in self._harness.things() if one not in (self._busy, thing))
            if can_be_busy(self._subject):
                self._harness.make_busy(other)
            old = self._subject.placement.contents()  # other owners may publish a part of it
            seen, at = self._each(publishing.cycle.sync, "call", old, at)
            new = publishing.settle()
            for one in seen:
                see_old_or_new(new if one.is_well else old, one.contents, new, one.when)
            if can_be_busy(self._subject):
                self._harness.make_free(other)
            self._harness.remove(thing)
            publishing.settle_free(lambda now: now.get(other) == usual[other])  # noqa: B023

    def _at_the_start(self, publishing: Publishing) -> None:
        """Break one call after the other while a driver starts."""
        old = self._subject.placement.contents()

        def start() -> CycleResult:
            publishing.restart()
            return publishing.cycle.sync()

        for one in self._each(start, "call of a start", old)[0]:
            see_old_or_new(old, one.contents, old, one.when)

    def _each(
        self, cycle: Callable[[], CycleResult], kind: str, old: Contents, first: int = 0
    ) -> tuple[list[_Seen], int | None]:
        """Run a cycle again and again; each time the next call fails.

        Return the contents until the driver publishes in spite of a fault, and the index of the
        next call. The index is None after the last call.
        """
        seen: list[_Seen] = []
        attempts: list[Attempt] = []
        for at in range(first, _MOST):
            attempt = self.attempt(cycle, at)
            when = f"{kind} {at} ({attempt.call}) meets {self._fault}"
            if attempt.gone:
                raise Violation(f"{when}: reported as gone: {', '.join(attempt.gone)}", "an error")
            after = self._subject.placement.contents()
            attempts.append(attempt)
            hung = [attempt.meanwhile] if attempt.meanwhile is not None else []
            seen += [_Seen(when, one) for one in hung]
            seen.append(_Seen(when, after, is_well=not attempt.failed))
            if attempt.call is None:
                self._feel(attempts)
                return seen, None
            if after != old:
                return seen, at + 1
        raise NotShown(f"a cycle makes more than {_MOST} calls")

    def _feel(self, attempts: Sequence[Attempt]) -> None:
        """Note whether a fault had an effect, compared with the last cycle, which met none."""
        *broken, usual = attempts
        if self._fault is Fault.HANG:
            self._is_felt |= any(one.meanwhile is not None for one in broken)
        else:
            self._is_felt |= any(one.failed or one.calls != usual.calls for one in broken)


def see_listing_raise_or_stay(
    harness: Harness,
    driver: ComputeDriver,
    live: Contents,
    before: Mapping[str, DesiredProvider],
    *,
    call: tuple[int, str],
    fault: Fault,
) -> None:
    """Describe all nodes while a call meets a fault; the driver must raise, or return ``before``.

    After an exception, the driver must describe each node as before, or raise again, since a drift
    cycle may ask. ``call`` is the index and the text of the call. Raises Violation otherwise.
    """
    at, text = call
    harness.expect(at, fault)
    try:
        after = describe(driver, live)
        when = f"call {at} ({text}) meets {fault}"
    except Exception:
        harness.expect()
        after = {**before, **_remembered(driver, live, before)}
        when = f"call {at} ({text}) has met {fault}, and the listing has raised"
    finally:
        harness.expect()
    if after != before:
        differences = difference(as_contents(before), as_contents(after))
        raise Violation(f"{when}: {differences}", "no difference")


def _remembered(
    driver: ComputeDriver, live: Contents, before: Mapping[str, DesiredProvider]
) -> dict[str, DesiredProvider]:
    """Return the nodes that the driver describes now, without a new listing."""
    known = {**live, **as_contents(before)}
    found: dict[str, DesiredProvider] = {}
    for root, its in trees(known).items():
        for node in [one for one in its.values() if one.uuid == root and one.name in before]:
            tree = tree_of(node.name, root, trees(live).get(root, {}))
            with suppress(Exception):
                update(driver, tree, node.name)
                kept = {one.provider.name: one for one in tree.desired()}
                gone = {name: _nothing(before[name]) for name in its if name in before}
                found |= {**gone, **kept}
    return found


def _nothing(one: DesiredProvider) -> DesiredProvider:
    """Return an empty provider, in place of one that a description lacks."""
    return replace(one, provider=replace(one.provider, inventories={}, traits=frozenset()))


def see_old_or_new(old: Contents, seen: Contents, new: Contents, when: str) -> None:
    """Raise Violation if a tree is neither the old one nor the new one."""
    before, now, after = trees(old), trees(seen), trees(new)
    for root in before.keys() | now.keys() | after.keys():
        if now.get(root) not in (before.get(root), after.get(root)):
            raise Violation(
                f"{when}: {difference(old, seen)}", f"no difference, or {difference(old, new)}"
            )


def _ends(cycle: Callable[[], CycleResult], attempt: Attempt) -> None:
    try:
        outcome = cycle()
    except (WharfingerError, Violation, NotShown):
        attempt.failed = True
        return
    attempt.gone = [one.name for one in outcome.pending]
    attempt.failed = bool(outcome.problems)
