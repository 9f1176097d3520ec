"""Breaking a backend: one call after the other, while a driver publishes."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from wharfinger.conformance.harness import Fault
from wharfinger.conformance.rules import NotShown, Violation
from wharfinger.conformance.subject import Publishing, Subject
from wharfinger.conformance.trees import Contents, difference, trees
from wharfinger.exceptions import WharfingerError

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
    Placement held while it hung; None: the cycle had ended.
    """

    call: str | None
    meanwhile: Contents | None


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
            self._each(lambda at: self._while_growing(publishing, at))
            self._each(lambda at: self._at_the_start(publishing, at))

    def attempt(self, cycle: Callable[[], object], at: int, patience: float = 0) -> Attempt:
        """Run a cycle whose call ``at`` meets the fault. What it raises is what it may raise.

        Where that hangs it is let go after so many seconds.
        """
        self._harness.expect(at, self._fault)
        running = threading.Thread(target=_ends, args=(cycle,), name="cycle", daemon=True)
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
        return Attempt(calls[at] if at < len(calls) else None, meanwhile)

    def _each(self, strike: Callable[[int], bool]) -> None:
        for at in range(_MOST):
            if not strike(at):
                return
        raise NotShown(f"a cycle makes more than {_MOST} calls")

    def _while_growing(self, publishing: Publishing, at: int) -> bool:
        """Whether there is a call with that index when a thing is added; it fails."""
        thing = self._harness.add()
        old = self._subject.placement.contents()  # some of it may be others' to publish
        attempt = self.attempt(publishing.cycle.sync, at)
        middle = self._subject.placement.contents()
        new = publishing.settle()
        self._see(attempt, old, middle, new, f"call {at}")
        self._harness.remove(thing)
        publishing.settle()
        return attempt.call is not None

    def _at_the_start(self, publishing: Publishing, at: int) -> bool:
        """Whether there is a call with that index when a driver starts; it fails."""
        old = self._subject.placement.contents()
        publishing.stop()

        def start() -> None:
            publishing.start()
            publishing.sync()

        attempt = self.attempt(start, at)
        middle = self._subject.placement.contents()
        self._see(attempt, old, middle, old, f"call {at} of a start")
        publishing.restart()
        publishing.sync()
        return attempt.call is not None

    def _see(
        self, attempt: Attempt, old: Contents, middle: Contents, new: Contents, call: str
    ) -> None:
        for seen in (attempt.meanwhile, middle):
            if seen is not None:
                when = f"{call} ({attempt.call}) meets {self._fault}"
                see_old_or_new(old, seen, new, when)


def see_old_or_new(old: Contents, seen: Contents, new: Contents, when: str) -> None:
    """See that each tree is the old one or the new one; raises Violation."""
    before, now, after = trees(old), trees(seen), trees(new)
    for root in before.keys() | now.keys() | after.keys():
        if now.get(root) not in (before.get(root), after.get(root)):
            raise Violation(
                f"{when}: {difference(old, seen)}", f"no difference, or {difference(old, new)}"
            )


def _ends(cycle: Callable[[], object]) -> None:
    try:
        cycle()
    except (WharfingerError, Violation, NotShown):
        return
