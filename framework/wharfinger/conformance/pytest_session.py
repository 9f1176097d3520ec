"""A session of pytest that runs the kit: its results, the verdict, and what is told of that."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from wharfinger.conformance import badge, report, terminal_output
from wharfinger.conformance.overall_verdict import ExitCode, exit_code, judge
from wharfinger.conformance.rule_runner import Result, Status
from wharfinger.conformance.rules import Rule, all_rules
from wharfinger.conformance.run_setup import Asked

#: The properties of a test, which are in a JUnit file too.
_PROPERTIES: Final = ("rule", "level", "profile", "status", "found", "expected")
#: What pytest counts them as.
_NOT_RUN: Final = "not run"
#: Of the files of a report.
SUFFIXES: Final = ("json", "md", "svg")
#: How pytest ends that is no word on a driver.
_NO_END: Final = (
    pytest.ExitCode.INTERRUPTED,
    pytest.ExitCode.INTERNAL_ERROR,
    pytest.ExitCode.USAGE_ERROR,
)


def properties(result: Result) -> list[tuple[str, str]]:
    """What a test says of its rule."""
    rule = result.rule
    values = (rule.id, rule.level, rule.profile, result.status, result.found, result.expected)
    return [(name, str(value)) for name, value in zip(_PROPERTIES, values, strict=True)]


def _rule_of(item: pytest.Item) -> Rule | None:
    """Return the rule of a test of the kit."""
    callspec = getattr(item, "callspec", None)
    rule = callspec.params.get("rule") if callspec is not None else None
    return rule if isinstance(rule, Rule) else None


class _Missing:
    """A rule of which there is no report, as pytest counts reports."""

    def __init__(self, id: str) -> None:
        self.id: Final = id


class Session:
    """Hears of each test, and judges at the end."""

    def __init__(self, config: pytest.Config, asked: Asked, directory: Path | None) -> None:
        self._config: Final = config
        self._asked: Final = asked
        self._directory: Final = directory
        self._rules: Final = {rule.id: rule for rule in all_rules()}
        self._results: Final[dict[str, Result]] = {}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Look at the rules in their order, whatever other plugins shuffle: they build on it."""
        rules = {item: rule.id for item in items if (rule := _rule_of(item)) is not None}
        ordered = iter(sorted(rules, key=rules.__getitem__))
        items[:] = [next(ordered) if item in rules else item for item in items]

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take the result from a report; what others have logged meanwhile is told with -v."""
        result = self._result(report)
        if result is not None:
            self._results[result.rule.id] = result
            if getattr(self._config.option, "verbose", 0) < 1:
                report.sections.clear()

    def pytest_report_teststatus(
        self, report: pytest.TestReport
    ) -> tuple[str, str, tuple[str, Mapping[str, bool]]] | None:
        """Have what was not run be no pass, and the colour of the whole not be green."""
        result = self._result(report)
        if result is not None and result.status is Status.NOT_RUN:
            return _NOT_RUN, "n", ("NOT RUN", {"yellow": True})
        return None

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """End as the verdict says."""
        if self._says_nothing(exitstatus):
            return
        # What fails beside the rules, such as a harness that does not stop, is a failure too.
        session.exitstatus = self._verdict()[1] or exitstatus

    def pytest_terminal_summary(self, terminalreporter: Any, exitstatus: int) -> None:
        """Tell the verdict."""
        if self._says_nothing(exitstatus):
            return
        # pytest's own last line counts them, and is not green then.
        missing = self._rules.keys() - self._results.keys()
        terminalreporter.stats.setdefault(_NOT_RUN, []).extend(map(_Missing, missing))
        verdicts, code = self._verdict()
        terminalreporter.section(f"conformance of {self._asked.driver or 'no driver'}")
        for line in terminal_output.summary(self._asked, verdicts, self._results.values()):
            terminalreporter.write_line(line)
        if self._directory is not None and self._asked.driver is not None:
            self._write(self._directory, self._asked.driver)
            terminalreporter.write_line(f"reports: {self._directory}/{self._asked.driver}.*")
        color = {ExitCode.CONFORMS: "green", ExitCode.FAILED: "red"}.get(code, "yellow")
        terminalreporter.write_line(
            terminal_output.last_word(verdicts), **{color: True, "bold": True}
        )

    def _write(self, directory: Path, driver: str) -> None:
        facts = report.facts(self._asked, self._verdict()[0], self._results, self._rules.values())
        texts = (report.as_json(facts), report.as_markdown(facts), badge.as_svg(facts))
        for suffix, text in zip(SUFFIXES, texts, strict=True):
            (directory / f"{driver}.{suffix}").write_text(text, encoding="utf-8")

    def _verdict(self) -> tuple[Any, ExitCode]:
        verdicts = judge([*self._rules.values()], self._results.values(), self._asked.profile)
        return verdicts, exit_code(verdicts)

    def _says_nothing(self, exitstatus: int) -> bool:
        return bool(self._config.option.collectonly) or exitstatus in _NO_END

    def _result(self, test: pytest.TestReport) -> Result | None:
        """What the report of a test says of its rule, once it has run."""
        said = dict(test.user_properties)
        if test.when != "call" or not {*_PROPERTIES} <= said.keys():
            return None
        return Result(
            self._rules[str(said["rule"])],
            Status(str(said["status"])),
            str(said["found"]),
            str(said["expected"]),
        )
