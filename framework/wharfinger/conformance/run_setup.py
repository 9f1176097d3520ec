"""One run of the kit: what is asked for, and what it takes."""

import logging
import random
import re
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.metadata import entry_points
from math import inf
from pathlib import Path
from typing import Any, Final, Self

from hypothesis.configuration import set_hypothesis_home_dir

from wharfinger.conformance.exceptions import NotShown
from wharfinger.conformance.harness import Harness
from wharfinger.conformance.placement import RunPlacement
from wharfinger.conformance.rule_runner import TIMEOUT, Examination, Result, Status, guarded
from wharfinger.conformance.rule_timeout import Overdue, within
from wharfinger.conformance.rules import Profile, Rule, all_rules
from wharfinger.conformance.subject import Subject
from wharfinger.exceptions import (
    BackendError,
    ConfigurationError,
    ConfigurationFileError,
    WharfingerError,
    printable,
)
from wharfinger.placement.embedded import EmbeddedPlacement

HARNESSES: Final = "wharfinger.conformance_harness"
#: Of a driver; files are called so.
_NAME: Final = re.compile(r"\w[\w.+-]*")
_KNOWN_FAILURE: Final = re.compile(r"\s*(?P<id>[A-Z]+-\d+)\s*:\s*(?P<reason>\S.*)", re.DOTALL)
#: Whose logs say nothing that is news to an author.
_LOUD: Final = ("placement", "oslo_db", "object", "stevedore", "urllib3.connectionpool")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a run is to look at.

    ``driver`` is None where none was named: nothing can be seen then. ``known`` are, by the ids of
    rules, the reasons why they are known to fail. ``timeout`` is how many seconds one may take.
    """

    driver: str | None
    config_file: Path | None
    profile: Profile
    known: Mapping[str, str]
    seed: int
    examples: int
    timeout: float = TIMEOUT

    @classmethod
    def read(
        cls,
        *,
        driver: str | None,
        config_file: Path | None,
        profile: Profile,
        known_failures: Iterable[str],
        seed: int | None,
        examples: int,
        timeout: float = TIMEOUT,
    ) -> Self:
        """From what somebody wrote; raises ValueError."""
        if driver is not None and not _NAME.fullmatch(driver):
            raise ValueError(f"--driver: {driver!r} is no name of a driver")
        if config_file is not None and not config_file.is_file():
            raise ValueError(f"--driver-config: there is no file {config_file}")
        if examples < 1:
            raise ValueError(f"--driver-examples: {examples} is less than 1")
        if not 0 < timeout < inf:
            raise ValueError(f"--driver-timeout: {timeout:g} is no number of seconds")
        return cls(
            driver=driver,
            config_file=config_file and config_file.absolute(),
            profile=profile,
            known=dict(map(_known_failure, known_failures)),
            seed=random.randrange(2**32) if seed is None else seed,
            examples=examples,
            timeout=timeout,
        )

    @property
    def arguments(self) -> list[str]:
        """What asks for the same again, but for the known failures."""
        options = {
            "--driver": self.driver,
            "--driver-config": self.config_file,
            "--driver-seed": self.seed,
            "--driver-examples": self.examples,
            "--driver-profile": None if self.profile is Profile.EXTENDED else self.profile,
            "--driver-timeout": None if self.timeout == TIMEOUT else f"{self.timeout:g}",
        }
        return [
            part
            for option, value in options.items()
            if value is not None
            for part in (option, str(value))
        ]


class Run:
    """The driver's backend and a Placement, for as long as the rules are looked at."""

    def __init__(self, asked: Asked, directory: Path) -> None:
        self.asked: Final = asked
        self._directory: Final = directory
        self._open: Final = ExitStack()
        self._why_not: str | None = None

    def __enter__(self) -> Self:
        try:
            self._begin()
        except NotShown as reason:
            self._why_not = printable(str(reason))
        except BaseException:
            self._open.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def look(self, rule: Rule) -> Result:
        """Look whether a rule is kept."""
        if self._why_not is not None:
            return Result(rule, Status.NOT_RUN, self._why_not)
        return self._examination.look(rule)

    def _begin(self) -> None:
        asked = self.asked
        if asked.driver is None:
            raise NotShown("no driver is named (--driver NAME)")
        self._be_quiet()
        placement = RunPlacement(EmbeddedPlacement(self._directory / "placement.sqlite"))
        self._open.callback(placement.close)
        harness = None if asked.config_file else self._harness(asked.driver, placement)
        own = self._directory / "subject"
        own.mkdir()
        subject = Subject(
            asked.driver,
            own,
            placement,
            config_file=asked.config_file,
            harness=harness,
            seed=asked.seed,
            examples=asked.examples,
        )
        with within(asked.timeout):
            _see_configuration(subject)
            if harness is None:
                _see_backend(subject)
        self._examination = Examination(
            subject, profile=asked.profile, known=asked.known, timeout=asked.timeout
        )

    def _be_quiet(self) -> None:
        """Have others say and leave behind nothing, as long as this runs."""
        for logger in map(logging.getLogger, _LOUD):
            self._open.callback(logger.setLevel, logger.level)
            logger.setLevel(logging.CRITICAL)
        set_hypothesis_home_dir(str(self._directory / "hypothesis"))
        self._open.callback(set_hypothesis_home_dir, None)

    def _harness(self, driver: str, placement: RunPlacement) -> Harness | None:
        kind = find_harness(driver)
        if kind is None:
            return None
        own = self._directory / "harness"
        own.mkdir()
        try:
            harness = guarded(kind(own, placement))
        except Exception as error:
            name = f"{kind.__module__}:{kind.__qualname__}"
            raise NotShown(f"the harness {name}: {type(error).__name__}: {error}") from error
        self._open.callback(harness.stop)
        with within(self.asked.timeout):
            harness.start()
        return harness


def find_harness(driver: str) -> Any:
    """The class of a driver's harness, None where there is none; raises NotShown."""
    found = [*entry_points(group=HARNESSES, name=driver)]
    if len(found) > 1:
        named = ", ".join(sorted(one.value for one in found))
        raise NotShown(f"there are several harnesses of {driver}: {named}")
    try:
        return found[0].load() if found else None
    except Exception as error:
        raise NotShown(f"the harness {found[0].value}: {type(error).__name__}: {error}") from error


def _see_configuration(subject: Subject) -> None:
    """Raise NotShown for a configuration that is wrong: no rule is about that."""
    try:
        subject.load()
    except (ConfigurationError, ConfigurationFileError) as error:
        raise NotShown(str(error)) from error
    except (WharfingerError, Overdue):
        return  # that is what the rules are about


def _see_backend(subject: Subject) -> None:
    """Raise NotShown where a driver says of its author's backend that it does not answer."""
    try:
        with subject.driver() as driver:
            driver.get_available_nodes(refresh=True)
    except BackendError as error:
        raise NotShown(f"the backend does not answer: {error}") from error
    except (Exception, SystemExit, Overdue):
        return  # that is what the rules are about


def _known_failure(text: str) -> tuple[str, str]:
    match = _KNOWN_FAILURE.fullmatch(text)
    known = {rule.id for rule in all_rules()}
    if match is None or match["id"] not in known:
        raise ValueError(
            f"--driver-known-failure: {text!r} is not the id of a rule and a reason, such as "
            "'WHF-505: the firmware says none'; wharfinger conformance rules lists them"
        )
    return match["id"], printable(match["reason"].strip())
