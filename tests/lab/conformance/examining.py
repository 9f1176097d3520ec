"""The kit, run in this process for the laboratory's drivers."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.lab.conformance.harnesses import harness_of
from wharfinger.conformance.examination import Examination, Result, guarded
from wharfinger.conformance.harness import Harness
from wharfinger.conformance.placement import RunPlacement
from wharfinger.conformance.rules import all_rules
from wharfinger.conformance.subject import Subject
from wharfinger.driver import loader


@dataclass(frozen=True)
class Examiner:
    """What an examination takes besides a driver; directories are made below ``directory``."""

    directory: Path
    placement: RunPlacement

    def harness(self, driver: str) -> Harness:
        """A harness that fits the driver of that name."""
        directory = self.directory / "backend"
        directory.mkdir(parents=True)
        return harness_of(_kind(driver))(directory, self.placement)

    @contextmanager
    def examining(
        self, driver: str, harness: Harness | None, **options: Any
    ) -> Iterator[Examination]:
        """An examination of the driver of that name; ``options`` are Examination's."""
        directory = self.directory / "subject"
        directory.mkdir(parents=True)
        subject = Subject(
            driver,
            directory,
            self.placement,
            harness=None if harness is None else guarded(harness),
            seed=1,
            examples=3,
        )
        if harness is not None:
            harness.start()
        try:
            yield Examination(subject, **options)
        finally:
            if harness is not None:
                harness.stop()

    def examine(self, driver: str) -> Mapping[str, Result]:
        """What comes of each rule, by its id."""
        with self.examining(driver, self.harness(driver)) as examination:
            examination.look_at(all_rules())
        return examination.results


def _kind(driver: str) -> Any:
    return next(
        one.load() for one in loader.entry_points(group=loader.NAMESPACE) if one.name == driver
    )
