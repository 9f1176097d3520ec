"""Record the changes that calls to a driver make in the process."""

import random
import threading
from collections.abc import Sequence
from enum import StrEnum
from typing import Any, Final

from wharfinger.conformance import process_state
from wharfinger.conformance.patches import Patches

_LAST_CALLS: Final = ("__init__", "cleanup_host")


class Misuse(StrEnum):
    """Kinds of forbidden effects of a driver on its process."""

    STATE = "state"
    LOGGING = "logging"
    PATCH = "patch"
    PRINT = "print"
    SLEEP = "sleep"


class ProcessObserver:
    """Records and undoes the changes that calls to a driver make in the process."""

    def __init__(self) -> None:
        #: The changes as texts; each with the call that made it first, as "in METHOD".
        self.found: Final[dict[Misuse, dict[str, str]]] = {kind: {} for kind in Misuse}
        #: The driver's threads that were started while a SleepObserver was watching.
        self.own_threads: Final[set[threading.Thread]] = set()
        self._patches: Final = Patches()
        self._lock: Final = threading.RLock()
        self._before: Final = threading.local()
        self._begun = 0
        #: The number of calls in progress.
        self._open = 0
        #: The states of the module random after each call that has changed it.
        self._states: Final[set[int]] = set()

    def note(self, kind: Misuse, what: str, method: str) -> None:
        """Record a misuse in a call to the method."""
        self.found[kind].setdefault(what, f"in {method}")

    def before(self, method: str) -> None:
        """Take a snapshot of the process."""
        if method == _LAST_CALLS[-1]:  # cleanup_host may undo what the driver has replaced
            self.look_at_patches(method)
        with self._lock:
            self._begun += 1
            self._open += 1
            is_alone, number = self._open == 1, self._begun
        states = None
        if is_alone:
            kept = random.getstate()
            random.seed(number)  # so that each call begins with another state
            states = (kept, random.getstate())
        self._before.facts = (process_state.snapshot(), states, number)

    def after(self, method: str) -> None:
        """Record and undo the changes since ``before``."""
        before, states, number = self._before.facts
        found = process_state.changes(before, process_state.snapshot())
        for change in found:
            kind = Misuse.LOGGING if change.aspect.is_logging else Misuse.STATE
            self.note(kind, str(change), method)
        process_state.restore(found)
        with self._lock:
            self._open -= 1
            if states is not None:
                self._restore_random(states, method, was_alone=number == self._begun)
            if method in _LAST_CALLS and not self._open:
                self.look_at_patches(method)

    def see_later_changes(self, before: Sequence[Any]) -> None:
        """Record and undo the changes since a snapshot, except possible changes by the harness."""
        found = process_state.changes(before, process_state.snapshot())
        for change in [one for one in found if not one.aspect.is_of_harness]:
            kind = Misuse.LOGGING if change.aspect.is_logging else Misuse.STATE
            self.found[kind].setdefault(str(change), "between two calls")
            process_state.restore([change])

    def look_at_patches(self, method: str) -> None:
        """Record and undo changes of modules and classes."""
        for name in self._patches.restore():
            self.note(Misuse.PATCH, name, f"{method}, or before")

    def _restore_random(self, states: tuple[Any, Any], method: str, *, was_alone: bool) -> None:
        kept, began = states
        ended = random.getstate()
        random.setstate(kept)
        if was_alone and ended != began:
            # Calls begin with different states. Two that end in the same one have set a seed.
            state = hash(ended)
            if state in self._states:
                self.note(Misuse.STATE, "the seed of random", method)
            self._states.add(state)
