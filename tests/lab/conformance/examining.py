"""Run the checks of the kit in this process, for the lab's drivers."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.lab.conformance.harnesses import harness_of
from wharfinger.conformance.harness import Harness
from wharfinger.conformance.placement import RunPlacement
from wharfinger.conformance.rule_runner import Examination, guarded
from wharfinger.conformance.subject import Subject

#: Rules whose checks take many seconds: a run of the tests draws one of them.
SLOW = {f"WHF-{id}" for id in (451, 508, 721, 722, 723, 802, 804, 805, 806, 816)}


@dataclass(frozen=True)
class Examiner:
    """Creates examinations of the lab's drivers. Their files are below ``directory``.

    ``seconds`` has the time in which a rule tries faults, by the id of the rule.
    """

    directory: Path
    placement: RunPlacement
    seconds: dict[str, float]

    def harness(self, kind: type) -> Harness:
        """Return a new harness for a driver."""
        directory = self.directory / "backend"
        directory.mkdir(parents=True)
        return harness_of(kind)(directory, self.placement)

    @contextmanager
    def examining(
        self, driver: str, harness: Harness | None, *, examples: int = 1, **options: Any
    ) -> Iterator[Examination]:
        """Yield an examination of the driver with this name; see Examination for ``options``."""
        directory = self.directory / "subject"
        directory.mkdir(parents=True)
        subject = Subject(
            driver,
            directory,
            self.placement,
            harness=None if harness is None else guarded(harness),
            seed=1,
            examples=examples,
        )
        if harness is not None:
            harness.start()
        try:
            yield Examination(subject, **options)
        finally:
            if harness is not None:
                harness.stop()
