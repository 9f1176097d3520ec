"""An observer that sees what each call to a driver changes in the process."""

import random
import threading
from collections.abc import Sequence
from enum import StrEnum
from typing import Any, Final

from wharfinger.conformance import process_state
from wharfinger.conformance.patches import Patches

#: After these the modules are compared, too, which takes longer than a call.
_LAST_CALLS: Final = ("__init__", "cleanup_host")


class Misuse(StrEnum):
    """The kinds of what a driver may not do to its process; there is a rule for each."""

    STATE = "state"
    LOGGING = "logging"
    PATCH = "patch"
    PRINT = "print"
    SLEEP = "sleep"


class ProcessObserver:
    """Records what calls change, and repairs it, so that the change disturbs no other rule.

    It lasts for the whole run. A change that a driver makes in one situation only is recorded
    during the rule that makes the situation.
    """

    def __init__(self) -> None:
        #: The changes in words, once each, with the call: "in METHOD".
        self.found: Final[dict[Misuse, dict[str, str]]] = {kind: {} for kind in Misuse}
        #: The threads that calls have started, as far as they were watched.
        self.own_threads: Final[set[threading.Thread]] = set()
        self._patches: Final = Patches()
        self._lock: Final = threading.RLock()
        self._before: Final = threading.local()
        #: How many calls have begun, and how many go on.
        self._begun = 0
        self._open = 0
        #: The states of random after calls that began with other states.
        self._states: Final[set[int]] = set()

    def note(self, kind: Misuse, what: str, method: str) -> None:
        """Record what a call did."""
        self.found[kind].setdefault(what, f"in {method}")

    def before(self, method: str) -> None:
        """Take a snapshot."""
        if method == _LAST_CALLS[-1]:  # it may undo what the driver has replaced
            self.look_at_patches(method)
        with self._lock:
            self._begun += 1
            self._open += 1
            is_alone, number = self._open == 1, self._begun
        seed = None
        if is_alone:
            kept = random.getstate()
            random.seed(number)  # another one for each call
            seed = (kept, random.getstate())
        self._before.facts = (process_state.snapshot(), seed, number)

    def after(self, method: str) -> None:
        """Compare, record and repair."""
        before, seed, number = self._before.facts
        found = process_state.changes(before, process_state.snapshot())
        for change in found:
            kind = Misuse.LOGGING if change.aspect.is_logging else Misuse.STATE
            self.note(kind, str(change), method)
        process_state.restore(found)
        with self._lock:
            self._open -= 1
            if seed is not None:
                self._see_seed(seed, method, was_alone=number == self._begun)
            if method in _LAST_CALLS and not self._open:
                self.look_at_patches(method)

    def see_later_changes(self, before: Sequence[Any]) -> None:
        """Record changes that a thread of the driver has made between two calls.

        The environment may be the harness's own change.
        """
        found = process_state.changes(before, process_state.snapshot())
        for change in [one for one in found if one.aspect.name != "the environment"]:
            kind = Misuse.LOGGING if change.aspect.is_logging else Misuse.STATE
            self.found[kind].setdefault(str(change), "between two calls")
            process_state.restore([change])

    def look_at_patches(self, method: str) -> None:
        """Record what was replaced since the last time."""
        for name in self._patches.look():
            self.note(Misuse.PATCH, name, f"{method}, or before")

    def _see_seed(self, seed: tuple[Any, Any], method: str, *, was_alone: bool) -> None:
        """Record a state that random had before, whatever it began with: it was seeded."""
        kept, began = seed
        ended = random.getstate()
        random.setstate(kept)
        if was_alone and ended != began:
            state = hash(ended)
            if state in self._states:
                self.note(Misuse.STATE, "the seed of random", method)
            self._states.add(state)
