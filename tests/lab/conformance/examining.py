"""The kit, run in this process for the laboratory's drivers."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.lab.conformance.harnesses import harness_of
from tests.lab.conformance.quick import QuickSubject
from wharfinger.conformance.harness import Harness
from wharfinger.conformance.placement import RunPlacement
from wharfinger.conformance.rule_runner import Examination, guarded

#: Rules that repeat their work for many seconds: a run draws one of them.
SLOW = {f"WHF-{id}" for id in (451, 508, 721, 722, 723, 802, 804, 805, 806, 816)}


@dataclass(frozen=True)
class Examiner:
    """Makes examinations of drivers; their directories are below ``directory``.

    ``seconds`` is the time for which a rule tries faults, by the rule.
    """

    directory: Path
    placement: RunPlacement
    seconds: dict[str, float]

    def harness(self, kind: type) -> Harness:
        """A harness that fits a driver."""
        directory = self.directory / "backend"
        directory.mkdir(parents=True)
        return harness_of(kind)(directory, self.placement)

    @contextmanager
    def examining(
        self, driver: str, harness: Harness | None, *, examples: int = 1, **options: Any
    ) -> Iterator[Examination]:
        """An examination of the driver of that name; ``options`` are Examination's."""
        directory = self.directory / "subject"
        directory.mkdir(parents=True)
        subject = QuickSubject(
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
