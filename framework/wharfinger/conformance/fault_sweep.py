"""Let each call of a driver to its backend meet a fault in turn."""

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
from wharfinger.reconcile.cycle_result import CycleResult

#: Seconds for a cycle to end when no call hangs any more.
_END: Final = 60.0
#: Seconds between two checks of whether a call has been made.
_PAUSE: Final = 0.01
#: The most calls of a cycle that are tried.
_MOST: Final = 2000


@dataclass(slots=True)
class Attempt:
    """The result of a cycle for which a fault was prepared."""

    #: The call that met the fault; None if the cycle made fewer calls.
    call: str | None = None
    calls: Sequence[str] = ()
    #: The contents of Placement while the call hung; None if it did not hang.
    contents_while_hung: Contents | None = None
    #: The names of the providers whose removal the cycle has scheduled.
    pending_removals: Sequence[str] = ()
    failed: bool = False


@dataclass(frozen=True, slots=True)
class _Seen:
    when: str
    contents: Contents
    ended_well: bool = False


class Breaking:
    """Injects a fault into backend calls, and checks what the driver publishes."""

    def __init__(self, subject: Subject, fault: Fault) -> None:
        self._subject: Final = subject
        self._harness: Final = subject.harness
        self._fault: Final = fault
        #: Whether a cycle has behaved differently because of a fault.
        self._is_felt = False
        self._busy: str | None = None

    def sweep(self) -> None:
        """Let each call of some cycles meet the fault in turn. Raises Violation and NotShown."""
        with self._subject.publishing() as publishing:
            publishing.settle()
            if can_be_busy(self._subject):
                self._busy = self._harness.things()[0]
                self._harness.make_busy(self._busy)
                publishing.settle()
            self._harness.expect()
            publishing.sync()
            if not self._harness.calls:
                raise NotShown("the harness's attribute calls is empty after a cycle")
            self._sweep_changes(publishing)
            self._sweep_starts(publishing)
        if not self._is_felt:
            raise NotShown(f"the harness injects {self._fault}, but no cycle shows an effect")

    def lasting(self) -> None:
        """Run cycles that lose the backend at each call in turn. Raises Violation and NotShown."""
        with self._subject.publishing() as publishing:
            old = publishing.settle()
            at = 0
            while self._lose_backend(publishing, at, old):
                at += 1
        if not at:
            raise NotShown("the harness's attribute calls is empty after a cycle")

    def _lose_backend(self, publishing: Publishing, at: int, old: Contents) -> bool:
        hanging = Breaking(self._subject, Fault.HANG)
        attempt = hanging.attempt(publishing.cycle.sync, at, then=self._fault)
        when = f"from backend call {at} ({attempt.call}) on, every call gets {self._fault}"
        _see_none_gone(when, attempt)
        after = self._subject.placement.contents()
        if after != old:
            raise Violation(f"{when}: {difference(old, after)}", "no difference")
        return attempt.call is not None

    def attempt(
        self, cycle: Callable[[], CycleResult], at: int, then: Fault | None = None
    ) -> Attempt:
        """Run a cycle whose backend call with the index ``at`` meets the fault.

        Raises Violation.
        """
        self._harness.expect(at, self._fault)
        attempt = Attempt()
        running = threading.Thread(target=_ends, args=(cycle, attempt), name="cycle", daemon=True)
        running.start()
        hangs = self._fault is Fault.HANG
        while running.is_alive() and not (hangs and len(self._harness.calls) > at):
            running.join(_PAUSE)
        attempt.contents_while_hung = (
            self._subject.placement.contents() if running.is_alive() else None
        )
        attempt.calls = [*self._harness.calls]
        self._harness.expect(fault=then)
        running.join(_END)
        self._harness.expect()
        if running.is_alive():
            raise Violation(
                f"backend call {at} got {self._fault}, and {_END:g} s later the cycle still runs",
                f"an end of the cycle within {_END:g} s, with or without an error",
            )
        attempt.call = attempt.calls[at] if at < len(attempt.calls) else None
        return attempt

    def _sweep_changes(self, publishing: Publishing) -> None:
        at: int | None = 0
        while at is not None:
            usual = self._subject.placement.contents()
            thing = self._subject.add()
            other = next(one for one in self._harness.things() if one not in (self._busy, thing))
            if can_be_busy(self._subject):
                self._harness.make_busy(other)
            old = self._subject.placement.contents()  # other owners may publish a part of it
            seen, at = self._attempt_each_call(publishing.cycle.sync, "backend call", old, at)
            new = publishing.settle()
            for one in seen:
                see_old_or_new(new if one.ended_well else old, one.contents, new, one.when)
            if can_be_busy(self._subject):
                self._harness.make_free(other)
            self._harness.remove(thing)
            publishing.settle_free(lambda now: now.get(other) == usual[other])  # noqa: B023

    def _sweep_starts(self, publishing: Publishing) -> None:
        old = self._subject.placement.contents()

        def start() -> CycleResult:
            publishing.restart()
            return publishing.cycle.sync()

        for one in self._attempt_each_call(start, "backend call of a start", old)[0]:
            see_old_or_new(old, one.contents, old, one.when)

    def _attempt_each_call(
        self, cycle: Callable[[], CycleResult], label: str, old: Contents, first: int = 0
    ) -> tuple[list[_Seen], int | None]:
        seen: list[_Seen] = []
        attempts: list[Attempt] = []
        for at in range(first, _MOST):
            attempt = self.attempt(cycle, at)
            when = f"{label} {at} ({attempt.call}) gets {self._fault}"
            _see_none_gone(when, attempt)
            after = self._subject.placement.contents()
            attempts.append(attempt)
            hung = [attempt.contents_while_hung] if attempt.contents_while_hung is not None else []
            seen += [_Seen(when, one) for one in hung]
            seen.append(_Seen(when, after, ended_well=not attempt.failed))
            if attempt.call is None:
                self._note_effect(attempts)
                return seen, None
            if after != old:
                return seen, at + 1
        raise NotShown(f"a cycle makes more than {_MOST} calls")

    def _note_effect(self, attempts: Sequence[Attempt]) -> None:
        *broken, usual = attempts
        if self._fault is Fault.HANG:
            self._is_felt |= any(one.contents_while_hung is not None for one in broken)
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
    """Raise Violation if a backend call with a fault changes the description of a node."""
    at, request = call
    harness.expect(at, fault)
    try:
        after = describe(driver, live)
        if fault is Fault.MISSING and any(thing in after for thing in harness.things()):
            before = {name: one for name, one in before.items() if name in after}
        outcome = "the driver describes the nodes otherwise than without the fault"
    except Exception:
        harness.expect()
        after = {**before, **_described_without_listing(driver, live, before)}
        outcome = "the driver raises, but then describes the nodes otherwise than before"
    finally:
        harness.expect()
    if after != before:
        differences = difference(as_contents(before), as_contents(after))
        raise Violation(
            f"backend call {at} ({request}) gets {fault}, and {outcome}: {differences}",
            "the same description as without the fault, at once or after an error",
        )


def _described_without_listing(
    driver: ComputeDriver, live: Contents, before: Mapping[str, DesiredProvider]
) -> dict[str, DesiredProvider]:
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
    return replace(one, provider=replace(one.provider, inventories={}, traits=frozenset()))


def see_old_or_new(old: Contents, seen: Contents, new: Contents, when: str) -> None:
    """Raise Violation if a tree in ``seen`` is neither that of ``old`` nor that of ``new``."""
    before, now, after = trees(old), trees(seen), trees(new)
    for root in before.keys() | now.keys() | after.keys():
        if now.get(root) not in (before.get(root), after.get(root)):
            if old is new:
                raise Violation(
                    f"{when}: a published tree then differs from that after a cycle without a "
                    f"fault: {difference(new, seen)}",
                    "the tree after a cycle without a fault, or the old tree and an error from "
                    "the driver",
                )
            raise Violation(
                f"{when}: a published tree is then neither the old nor the new one: "
                f"{difference(old, seen)}",
                f"the old trees, or those after a cycle without a fault: {difference(old, new)}",
            )


def _see_none_gone(when: str, attempt: Attempt) -> None:
    if attempt.pending_removals:
        gone = ", ".join(attempt.pending_removals)
        raise Violation(
            f"{when}: the driver then no longer reports the providers {gone}",
            "an error from the driver, or all providers",
        )


def _ends(cycle: Callable[[], CycleResult], attempt: Attempt) -> None:
    try:
        outcome = cycle()
    except (WharfingerError, Violation, NotShown):
        attempt.failed = True
        return
    attempt.pending_removals = [one.name for one in outcome.pending]
    attempt.failed = bool(outcome.problems)
