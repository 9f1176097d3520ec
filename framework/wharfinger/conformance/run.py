"""One run of the kit, with the results, the verdict and the report."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, Self

from wharfinger.conformance import badge, report, terminal_output
from wharfinger.conformance.exceptions import NotShown
from wharfinger.conformance.overall_verdict import ExitCode, Verdict, exit_code, judge
from wharfinger.conformance.rule_process import Lost, RuleProcess
from wharfinger.conformance.rule_runner import Result, Status, judged
from wharfinger.conformance.rules import Rule, all_rules
from wharfinger.conformance.run_options import Asked
from wharfinger.exceptions import printable

#: The number of lost processes after which the run starts no other one.
_MOST_LOST: Final = 3


class Run:
    """Checks rules in another process, and keeps the results."""

    def __init__(self, asked: Asked, reports: Path | None = None) -> None:
        self.asked: Final = asked
        self.results: Final[dict[str, Result]] = {}
        self._rules: Final = {rule.id: rule for rule in all_rules()}
        self._reports: Final = reports
        self._directory: Final = TemporaryDirectory(
            prefix="wharfinger-", ignore_cleanup_errors=True
        )
        self._process: RuleProcess | None = None
        self._is_ready = False
        self._capabilities: Mapping[str, Any] = {}
        self._started = 0
        self._lost = 0
        self._why_not: str | None = None
        if reports is not None and asked.driver is not None:
            reports.mkdir(parents=True, exist_ok=True)
            self._write()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        """End the process. Raises NotShown."""
        try:
            if self._process is not None and kind is None:
                self._process.end()
        except Lost as error:
            last = [*self.results][-1:]
            for id in last if not error.is_harness else ():
                self.results[id] = self._failed(self._rules[id], error)
                self._write()
            raise NotShown(str(error)) from error
        finally:
            self._kill()
            self._directory.cleanup()

    def check(self, rule: Rule) -> Result:
        """Check a rule, write the report, and return the result. Raises OSError."""
        self.results[rule.id] = result = self._check(rule)
        self._write()
        return result

    @property
    def verdicts(self) -> Sequence[Verdict]:
        """The verdict on each profile."""
        return judge([*self._rules.values()], self.results.values(), self.asked.profile)

    @property
    def exit_code(self) -> ExitCode:
        """The exit code of the run."""
        return exit_code(self.verdicts)

    def summary(self) -> Iterator[str]:
        """Yield the lines before the final verdict."""
        yield from terminal_output.summary(self.asked, self.verdicts, self.results.values())
        if self._reports is not None and self.asked.driver is not None:
            yield f"reports: {self._reports}/{self.asked.driver}.*"

    def _check(self, rule: Rule) -> Result:
        if self._why_not is not None:
            return Result(rule, Status.NOT_RUN, self._why_not)
        try:
            if self._process is None:
                self._process, self._is_ready = self._start(), False
                self._capabilities, self._is_ready = self._process.begin(), True
            return self._process.check(rule)
        except NotShown as error:
            self._kill()  # after NotShown, the process answers no more
            self._why_not = printable(str(error))
            return Result(rule, Status.NOT_RUN, self._why_not)
        except Lost as error:
            self._process = None
            self._lost += 1
            if not self._is_ready:
                self._why_not = "the process of the rules was lost before it was ready"
            elif self._lost == _MOST_LOST:
                self._why_not = f"the process of the rules was lost {_MOST_LOST} times"
            return self._failed(rule, error)

    def _failed(self, rule: Rule, error: Lost) -> Result:
        status = Status.NOT_RUN if error.is_harness else Status.FAILED
        result = Result(rule, status, str(error), "a result", error.details)
        return judged(result, self.asked.known)

    def _kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()

    def _start(self) -> RuleProcess:
        self._started += 1
        directory = Path(self._directory.name) / str(self._started)
        directory.mkdir()
        broken = [id for id, one in self.results.items() if one.is_broken]
        return RuleProcess(self.asked, directory, broken)

    def _write(self) -> None:
        if self._reports is None or self.asked.driver is None:
            return
        facts = report.facts(
            self.asked, self.verdicts, self.results, self._rules.values(), self._capabilities
        )
        for suffix, text in (
            ("json", report.as_json(facts)),
            ("md", report.as_markdown(facts)),
            ("svg", badge.as_svg(facts)),
        ):
            path = self._reports / f"{self.asked.driver}.{suffix}"
            new = path.with_name(f"{path.name}.new")
            new.write_text(text, encoding="utf-8")
            new.replace(path)
