"""Kill a driver's process during the backend changes of ``fault_history``."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from wharfinger.conformance.exceptions import Unproven, Violation
from wharfinger.conformance.fault_history import (
    Case,
    History,
    Reference,
    queues_of,
    reference_of,
    try_cases,
)
from wharfinger.conformance.harness import Fault
from wharfinger.conformance.killed_process import Elsewhere, Forks
from wharfinger.conformance.subject import Subject

#: The files of a cycle at which the process is killed, by the order in which it opens them.
_WRITES: Final = (0, 1, 2)
#: A play has a kill in every second step.
_APART: Final = 2


@dataclass(frozen=True, slots=True)
class Kill(Case):
    """A kill of the driver's process at a backend call or, with ``is_write``, at a file write."""

    is_write: bool = False

    def __str__(self) -> str:
        if self.is_write:
            where = f"has opened file {self.at} to write it"
        else:
            where = f"makes call {self.at} ({self.call})"
        return f"the process is killed when it {where} in the step {self.step_name!r}"


class KilledHistory(History):
    """Makes backend changes; its cases kill the process of the driver."""

    def __init__(
        self, subject: Subject, forks: Forks, reference: Reference, cases: Sequence[Case]
    ) -> None:
        self.elsewhere: Final = Elsewhere(subject, forks)
        super().__init__(subject, self.elsewhere, reference, cases)
        self._died_before = 0

    def expect(self, case: Case) -> None:
        """Prepare the kill of the case in the step that begins."""
        self._died_before = self.elsewhere.died
        if isinstance(case, Kill) and case.is_write:
            self._subject.harness.expect()
            self.elsewhere.at_write = case.at
        else:
            super().expect(case)

    def is_met(self, case: Case) -> bool:
        """Return whether the process has reached the kill of the case."""
        if isinstance(case, Kill) and case.is_write:
            return self.elsewhere.died > self._died_before
        return super().is_met(case)

    def after_met(self, case: Case) -> None:
        """Kill the process, then release the call that hangs in the harness."""
        self.elsewhere.kill()
        super().after_met(case)


def try_kills(subject: Subject, *, seconds: float) -> str:
    """Play the history with kills of the driver's process; return how many were tried.

    Raises Violation and NotShown.
    """
    with Forks.of(subject) as forks:
        return _try_kills(subject, forks, seconds)


def _try_kills(subject: Subject, forks: Forks, seconds: float) -> str:
    reference = reference_of(subject)
    draw = random.Random(subject.seed)
    found = _find_writes_and_calls(subject, forks, reference)
    queues: list[list[Case]] = []
    for number, calls in enumerate(queues_of(reference, [Fault.HANG], draw)):
        name = reference.steps[number].name
        writes = [Kill(number, at, Fault.HANG, "", name, is_write=True) for at in _WRITES]
        kills = [Kill(number, one.at, Fault.HANG, one.call, name) for one in calls]
        # The first file is opened in most cycles, and often it is a lock.
        queue = [*kills] if found.sees_calls else []
        for index, write in enumerate(writes if found.writes else ()):
            queue.insert(draw.randint(0, 1) + index, write)
        queues.append([*queue])
    if not any(queues):
        raise Unproven(
            "the driver writes no files, and the harness does not see the calls of other processes"
        )
    return try_cases(
        subject,
        lambda cases: KilledHistory(subject, forks, reference, cases),
        queues[: reference.fewer_steps],
        seconds=0.0 if reference.is_slow else seconds,
        apart=_APART,
    )


@dataclass(frozen=True, slots=True)
class _Found:
    writes: bool
    sees_calls: bool


def _find_writes_and_calls(subject: Subject, forks: Forks, reference: Reference) -> _Found:
    history = KilledHistory(subject, forks, reference, ())
    try:
        history.play(first=2)
    except Violation as violation:
        # A process may find the backend as it was when the process began; WHF-304 has seen that.
        raise Unproven(
            f"a driver in another process publishes something else than here: {violation.found}"
        ) from violation
    return _Found(
        writes=bool(history.elsewhere.writes), sees_calls=any(step.calls for step in history.steps)
    )
