"""Run the kit as an author does: by pytest, in this process or in another one."""

import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import fixtures
import pytest

from tests.lab.sqlite import StayingOpen
from wharfinger.conformance import (  # what a run imports first, pytester forgets after it
    pytest_plugin,  # noqa: F401
    rules,
    run,
    run_options,
    run_setup,
    terminal_output,  # noqa: F401
)
from wharfinger.conformance.driver_clock import DriverClock, RunningCalls
from wharfinger.conformance.rule_runner import Result
from wharfinger.conformance.rules import Rule
from wharfinger.conformance.run_options import Asked
from wharfinger.conformance.run_setup import declared_capabilities, set_up
from wharfinger.driver import loader
from wharfinger.placement.embedded import EmbeddedPlacement

_HERE: Final = "tests.lab.conformance"
_REPOSITORY: Final = Path(__file__).parents[3]
_DRIVERS: Final = {
    "shelf": "authors:ShelfDriver",
    "tagged": "authors:TaggedDriver",
    "generous": "authors:GenerousDriver",
    "silent": "authors:SilentDriver",
    "unborn": "authors:UnbornDriver",
    "asleep": "authors:asleep",
    "endless": "authors:EndlessDriver",
    "hiding": "authors:HidingDriver",
    "parting": "authors:PartingDriver",
    "leaving": "authors:LeavingDriver",
    "ending": "authors:EndingDriver",
    "crashing": "authors:CrashingDriver",
    "closing": "authors:ClosingDriver",
    "stuck": "authors:StuckDriver",
    "late": "authors:LateDriver",
    "interrupting": "authors:InterruptingDriver",
    "racks": "honest:MachinesDriver",
    "down": "honest:MachinesDriver",
    "held": "honest:MachinesDriver",
    "astray": "honest:MachinesDriver",
    "abstract": "honest:MachinesDriver",
    "staying": "honest:MachinesDriver",
    "waiting": "honest:MachinesDriver",
}
_HARNESSES: Final = {
    "racks": "harnesses:WorldHarness",
    "silent": "harnesses:WorldHarness",
    "leaving": "harnesses:WorldHarness",
    "ending": "harnesses:WorldHarness",
    "crashing": "harnesses:WorldHarness",
    "closing": "harnesses:WorldHarness",
    "stuck": "harnesses:WorldHarness",
    "late": "harnesses:WorldHarness",
    "interrupting": "harnesses:WorldHarness",
    "down": "authors:DownHarness",
    "held": "authors:HeldHarness",
    "astray": "nowhere:Harness",
    "abstract": "authors:AbstractHarness",
    "staying": "authors:StayingHarness",
    "waiting": "authors:WaitingHarness",
}
_KIT: Final = ("--pyargs", "wharfinger.conformance")
#: The only rules in these runs: on the declaration, the description and the stability of a driver,
#: one SHOULD, and some that need a harness or a capability.
FEW: Final = (
    *("WHF-101", "WHF-102", "WHF-103", "WHF-201", "WHF-204", "WHF-205", "WHF-207", "WHF-301"),
    *("WHF-401", "WHF-506", "WHF-901", "WHF-991"),
)
#: Created at the import of this module, since pytester forgets modules that are imported while it
#: runs, and a rule can be registered only once.
_FEW: Final = {rule.id: rule for rule in rules.all_rules() if rule.id in FEW}


class Authors(fixtures.Fixture):
    """An installed distribution with drivers of authors, and harnesses for some of them."""

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self.directory: Final = directory

    def _setUp(self) -> None:
        information = self.directory / "authors-2.1.dist-info"
        information.mkdir(parents=True)
        metadata = "Metadata-Version: 2.1\nName: authors\nVersion: 2.1\n"
        (information / "METADATA").write_text(metadata)
        groups = {
            loader.NAMESPACE: _DRIVERS,
            run_options.HARNESSES: _HARNESSES,
            "oslo.config.opts": {"authors": "honest:list_opts"},
        }
        lines: list[str] = []
        for group, entries in groups.items():
            lines += [f"[{group}]", *(f"{name} = {_HERE}.{at}" for name, at in entries.items())]
        (information / "entry_points.txt").write_text("\n".join(lines))
        self.useFixture(fixtures.MonkeyPatch("sys.path", [*sys.path, str(self.directory)]))

    @property
    def environment(self) -> dict[str, str]:
        """The environment of a process that has to find this distribution, too."""
        path = os.pathsep.join([str(self.directory), str(_REPOSITORY)])
        return {**os.environ, "PYTHONPATH": path, "PYTHONWARNINGS": "ignore"}


class HereAndQuick(fixtures.Fixture):
    """Lets runs of the kit in this process use its one Placement, and only a few rules."""

    def __init__(self, service: EmbeddedPlacement) -> None:
        super().__init__()
        self._service: Final = service

    def _setUp(self) -> None:
        self.useFixture(StayingOpen())
        for name, value in (
            (f"{run_setup.__name__}.EmbeddedPlacement", lambda database: self._service),
            (f"{run.__name__}.RuleProcess", InThisProcess),
        ):
            self.useFixture(fixtures.MonkeyPatch(name, value))
        self.useFixture(fixtures.MonkeyPatch(f"{rules.__name__}._REGISTRY", _FEW))


class InThisProcess:
    """Checks rules in this process, in place of a RuleProcess."""

    def __init__(self, asked: Asked, directory: Path, broken: Iterable[str]) -> None:
        page = directory / "calls"
        DriverClock(page, os.getpid())
        self._setting_up: Final = set_up(asked, directory, RunningCalls(page))
        self._broken: Final = broken
        self._driver: Final = asked.driver or ""
        self._is_open = False

    def begin(self) -> dict[str, Any]:
        """Set up the driver and its backend; return the driver's capabilities."""
        self._examination = self._setting_up.__enter__()
        self._is_open = True
        self._examination.broken.update(self._broken)
        return declared_capabilities(self._driver)

    def check(self, rule: Rule) -> Result:
        """Check a rule, and return the result."""
        return self._examination.check(rule)

    def end(self) -> None:
        """Stop the backend; raise NotShown if that fails."""
        if self._is_open:
            self._is_open = False
            self._setting_up.__exit__(None, None, None)

    kill = end


class Kit:
    """Runs command lines of the kit in this process."""

    def __init__(self, pytester: pytest.Pytester, authors: Authors) -> None:
        self._pytester: Final = pytester
        self.authors: Final = authors

    @property
    def directory(self) -> Path:
        """The working directory of the runs."""
        return self._pytester.path

    def __call__(self, *arguments: str) -> pytest.RunResult:
        """Run the kit with these arguments, and return pytest's result."""
        return self._pytester.runpytest_inprocess(*_KIT, *arguments)


@dataclass(frozen=True)
class Processes:
    """Makes command lines of the kit that run in processes of their own."""

    directory: Path
    authors: Authors

    def command(self, *arguments: str) -> list[str]:
        """Return the command line that runs the kit."""
        return [sys.executable, "-m", "wharfinger.cli.app", "conformance", "run", *arguments]
