"""Runs the kit on the outsiders' drivers, in this process or with the command."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

import fixtures

from wharfinger.conformance.harness import Harness
from wharfinger.conformance.placement import RunPlacement
from wharfinger.conformance.rule_runner import Examination, Result, Status, guarded
from wharfinger.conformance.rules import Level, Rule
from wharfinger.conformance.subject import Subject
from wharfinger.driver import ComputeDriver

_REPOSITORY: Final = Path(__file__).parents[3]
_HARNESSES: Final = "wharfinger.conformance_harness"
#: The timeout of a rule when the kit runs as a command, in seconds.
TIMEOUT: Final = 60
#: The seconds after which run_command kills the command.
_MOST: Final = 300

T = TypeVar("T", bound=type[ComputeDriver])


@dataclass(frozen=True)
class Outsider:
    """A driver with its harness.

    ``kind`` is the kind of the driver's defect, or "" for a right driver. ``rules`` are rules that
    find the defect. ``apart`` is true if the driver may end or change its process, so that the kit
    must run as a command.
    """

    driver: type[ComputeDriver]
    harness: type[Harness]
    kind: str = ""
    rules: Sequence[str] = ()
    apart: bool = False

    @property
    def name(self) -> str:
        """The name of the driver's entry point and of the harness's entry point."""
        return self.driver.__qualname__


class Registry:
    """The drivers of a module, in the order of their definitions."""

    def __init__(self, harness_of: Callable[[type], type[Harness]]) -> None:
        self._harness_of: Final = harness_of
        self.all: Final[dict[str, Outsider]] = {}

    def __call__(
        self,
        kind: str = "",
        *rules: str,
        harness: type[Harness] | None = None,
        apart: bool = False,
    ) -> Callable[[T], T]:
        """Return a decorator that registers a driver, by default with the harness of its base."""

        def register(driver: T) -> T:
            found = harness or self._harness_of(driver)
            outsider = Outsider(driver, found, kind, rules, apart)
            self.all[outsider.name] = outsider
            return driver

        return register


class Installed(fixtures.Fixture):
    """Installs a distribution with entry points for drivers and their harnesses."""

    def __init__(self, directory: Path, outsiders: Sequence[Outsider]) -> None:
        super().__init__()
        self._directory: Final = directory
        self._outsiders: Final = outsiders

    def _setUp(self) -> None:
        information = self._directory / "outsiders-1.0.dist-info"
        information.mkdir(parents=True)
        metadata = "Metadata-Version: 2.1\nName: outsiders\nVersion: 1.0\n"
        (information / "METADATA").write_text(metadata)
        groups: dict[str, dict[str, type]] = {
            "wharfinger.drivers": {one.name: one.driver for one in self._outsiders},
            _HARNESSES: {one.name: one.harness for one in self._outsiders},
        }
        lines: list[str] = []
        for group, entries in groups.items():
            lines += [f"[{group}]"]
            lines += [f"{name} = {it.__module__}:{it.__qualname__}" for name, it in entries.items()]
        lines += ["[oslo.config.opts]"]
        lines += [f"{one} = tests.lab.outsiders.{one}:list_opts" for one in ("rack", "host")]
        (information / "entry_points.txt").write_text("\n".join([*lines, ""]))
        sys.path.append(str(self._directory))
        self.addCleanup(sys.path.remove, str(self._directory))


@contextmanager
def examining(
    outsider: Outsider, directory: Path, placement: RunPlacement, *, examples: int = 2
) -> Iterator[Examination]:
    """Return a context manager with an examination of a driver in this process."""
    backend, mine = directory / "backend", directory / "subject"
    for one in (backend, mine):
        one.mkdir(parents=True)
    harness = outsider.harness(backend, placement)
    subject = Subject(
        outsider.name, mine, placement, harness=guarded(harness), seed=1, examples=examples
    )
    harness.start()
    try:
        yield Examination(subject)
    finally:
        harness.stop()


def look_until_found(
    examination: Examination, rules: Sequence[Rule], first: Sequence[str]
) -> list[Result]:
    """Examine rules until a MUST rule is broken. Start with those whose ids are in ``first``."""
    results = []
    for rule in sorted(rules, key=lambda rule: (rule.id not in first, rule.id)):
        results.append(examination.check(rule))
        if results[-1].status is Status.FAILED and rule.level is Level.MUST:
            break
    return results


def run_command(
    name: str, directory: Path, installed: Path, *arguments: str
) -> "subprocess.CompletedProcess[str]":
    """Run the kit's command on a driver. ``installed`` is the directory of the distribution.

    The exit code is -9 if the command was killed because it took too long.
    """
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(installed), str(_REPOSITORY)]),
        "PYTHONWARNINGS": "ignore",
        # Some drivers leave files there.
        "HOME": str(directory),
        "TMPDIR": str(directory),
    }
    program = Path(sys.executable).with_name("wharfinger")
    command = [str(program), "conformance", "run", name, *arguments]
    with (directory / f"{name}.out").open("w+") as output:
        # In a new session, because a driver may send signals to its process group.
        running = subprocess.Popen(
            command,
            cwd=directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            status = running.wait(_MOST)
        except subprocess.TimeoutExpired:
            running.kill()
            running.wait()
            status = -9
        output.seek(0)
        return subprocess.CompletedProcess(command, status, output.read())
