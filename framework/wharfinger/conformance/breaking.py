"""Breaking a backend: one call after the other, while a driver publishes."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from wharfinger.conformance.harness import Fault
from wharfinger.conformance.rules import NotShown, Violation
from wharfinger.conformance.subject import Publishing, Subject
from wharfinger.conformance.trees import Contents, difference, trees
from wharfinger.exceptions import WharfingerError
from wharfinger.tracker.cycle import Outcome

#: Seconds for a cycle to end when no call hangs any more.
_END: Final = 60.0
#: Seconds between two looks whether a call has been made.
_PACE: Final = 0.01
#: Calls after which a cycle is no cycle.
_MOST: Final = 2000


@dataclass(frozen=True, slots=True)
class Attempt:
    """A cycle in which a call was to meet a fault.

    ``call`` is that call, None where the cycle made none with that index. ``meanwhile`` is what
    Placement held while it hung; None: the cycle had ended. ``gone`` is what it took to be gone.
    """

    call: str | None
    meanwhile: Contents | None
    gone: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class _Seen:
    """What Placement held at a moment of an attempt, in words."""

    when: str
    contents: Contents


class Breaking:
    """One kind of fault, in a backend."""

    def __init__(self, subject: Subject, fault: Fault) -> None:
        self._subject: Final = subject
        self._harness: Final = subject.harness
        self._fault: Final = fault

    def sweep(self) -> None:
        """Have each call fail in its turn: while the world changes, and when a driver starts.

        Raises Violation where what is published then is neither as it was nor as it is to be.
        """
        with self._subject.publishing() as publishing:
            publishing.settle()
            self._while_growing(publishing)
            self._at_the_start(publishing)

    def attempt(self, cycle: Callable[[], Outcome], at: int, patience: float = 0) -> Attempt:
        """Run a cycle whose call ``at`` meets the fault. What it raises is what it may raise.

        Where that hangs it is let go after so many seconds.
        """
        self._harness.expect(at, self._fault)
        gone: list[str] = []
        running = threading.Thread(target=_ends, args=(cycle, gone), name="cycle", daemon=True)
        running.start()
        hangs = self._fault is Fault.HANG
        while running.is_alive() and not (hangs and len(self._harness.calls) > at):
            running.join(_PACE)
        running.join(patience)
        meanwhile = self._subject.placement.contents() if running.is_alive() else None
        calls = [*self._harness.calls]
        self._harness.expect()
        running.join(_END)
        if running.is_alive():
            raise Violation(f"call {at} met {self._fault}, and the cycle never ended", "an error")
        return Attempt(calls[at] if at < len(calls) else None, meanwhile, gone)

    def _while_growing(self, publishing: Publishing) -> None:
        """Have one call after the other fail while a thing is added."""
        at: int | None = 0
        while at is not None:
            thing = self._harness.add()
            old = self._subject.placement.contents()  # some of it may be others' to publish
            seen, at = self._each(publishing.cycle.sync, "call", old, at)
            new = publishing.settle()
            for one in seen:
                see_old_or_new(old, one.contents, new, one.when)
            self._harness.remove(thing)
            publishing.settle()

    def _at_the_start(self, publishing: Publishing) -> None:
        """Have one call after the other fail while a driver starts."""
        old = self._subject.placement.contents()

        def start() -> Outcome:
            publishing.restart()
            return publishing.cycle.sync()

        for one in self._each(start, "call of a start", old)[0]:
            see_old_or_new(old, one.contents, old, one.when)

    def _each(
        self, cycle: Callable[[], Outcome], kind: str, old: Contents, first: int = 0
    ) -> tuple[list[_Seen], int | None]:
        """Run a cycle again and again: each time another call fails.

        What was seen, until something is published in spite of that, and the index of the next
        call; None where there is none.
        """
        seen: list[_Seen] = []
        for at in range(first, _MOST):
            attempt = self.attempt(cycle, at)
            when = f"{kind} {at} ({attempt.call}) meets {self._fault}"
            if attempt.gone:
                raise Violation(f"{when}: {', '.join(attempt.gone)} is said to be gone", "an error")
            after = self._subject.placement.contents()
            hung = [attempt.meanwhile] if attempt.meanwhile is not None else []
            seen += [_Seen(when, one) for one in (*hung, after)]
            if attempt.call is None:
                return seen, None
            if after != old:
                return seen, at + 1
        raise NotShown(f"a cycle makes more than {_MOST} calls")


def see_old_or_new(old: Contents, seen: Contents, new: Contents, when: str) -> None:
    """See that each tree is the old one or the new one; raises Violation."""
    before, now, after = trees(old), trees(seen), trees(new)
    for root in before.keys() | now.keys() | after.keys():
        if now.get(root) not in (before.get(root), after.get(root)):
            raise Violation(
                f"{when}: {difference(old, seen)}", f"no difference, or {difference(old, new)}"
            )


def _ends(cycle: Callable[[], Outcome], gone: list[str]) -> None:
    try:
        gone += [one.name for one in cycle().pending]
    except (WharfingerError, Violation, NotShown):
        return
