"""Check rules with a driver, and keep the results."""

import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import wraps
from typing import Any, Final, cast

from wharfinger.conformance.driver_clock import RunningCalls
from wharfinger.conformance.exceptions import NotShown, Unproven, Violation
from wharfinger.conformance.fault import Fault
from wharfinger.conformance.harness import Harness
from wharfinger.conformance.rules import Profile, Rule, requirements
from wharfinger.conformance.subject import Subject
from wharfinger.exceptions import DriverLoadError, WharfingerError, printable
from wharfinger.reconcile.driver_calls import text_of

#: The most characters of a text from a driver, and the most frames of a traceback.
_LONGEST: Final = 1000
_FRAMES: Final = 6
#: Why an extended rule of a driver without a harness is not run.
NO_HARNESS: Final = "there is no harness"


def _bounded(text: str) -> str:
    printed = printable(text)
    return (
        printed
        if len(printed) <= _LONGEST
        else f"{printed[:_LONGEST]}... ({len(printed)} characters)"
    )


class Status(StrEnum):
    """The status of a rule after a run."""

    PASSED = "passed"
    FAILED = "failed"
    #: The driver breaks the rule, and --known-failure declares it.
    KNOWN = "known failure"
    #: --known-failure names the rule, but the driver does not break it.
    UNEXPECTED = "unexpected pass"
    #: The rule does not apply to a driver with these capabilities, or to this harness.
    EXEMPT = "exempt"
    NOT_RUN = "not run"
    #: The driver follows the rule as far as checked, but the harness lacks an optional method.
    UNPROVEN = "unproven"
    #: The rule is extended, and the run was asked for the core profile alone.
    NOT_ASKED = "not asked"

    @property
    def is_bad(self) -> bool:
        """Whether the status is FAILED or UNEXPECTED."""
        return self in (Status.FAILED, Status.UNEXPECTED)


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one rule."""

    rule: Rule
    status: Status
    #: A text on what the driver did, or on why the rule was not checked.
    found: str = ""
    expected: str = ""
    #: A traceback, or the stacks and the output of a lost process.
    details: str = ""

    @property
    def is_broken(self) -> bool:
        """Whether the driver breaks the rule."""
        return self.status in (Status.FAILED, Status.KNOWN)


class Examination:
    """Checks rules with one driver, and keeps the results."""

    def __init__(
        self,
        subject: Subject,
        *,
        profile: Profile = Profile.EXTENDED,
        known: Mapping[str, str] | None = None,
    ) -> None:
        self._subject: Final = subject
        self._profile: Final = profile
        self._known: Final = dict(known or {})
        self.results: Final[dict[str, Result]] = {}

    def check(self, rule: Rule) -> Result:
        """Check a rule if possible; return the result."""
        result = judged(self._check(rule), self._known)
        self.results[rule.id] = result
        if result.is_broken:
            self.broken.add(rule.id)
        return result

    @property
    def broken(self) -> set[str]:
        """The ids of the rules that were found broken."""
        return self._subject.broken

    def check_all(self, rules: Iterable[Rule]) -> list[Result]:
        """Check the rules; return the results."""
        return [self.check(rule) for rule in rules]

    def _check(self, rule: Rule) -> Result:
        why_not = self._result_without_check(rule)
        if why_not is not None:
            return why_not
        try:
            self._subject.begin_check()
            found = rule.check(self._subject)
        except Violation as violation:
            expected = _bounded(violation.expected)
            return Result(rule, Status.FAILED, _bounded(violation.found), expected)
        except NotShown as reason:
            status = Status.UNPROVEN if isinstance(reason, Unproven) else Status.NOT_RUN
            return Result(rule, status, _bounded(str(reason)))
        except WharfingerError as error:
            return Result(rule, Status.FAILED, _bounded(str(error)), "no error")
        except BaseException as error:  # whatever a driver raises
            if type(error) is KeyboardInterrupt:
                raise
            found = f"{type(error).__name__}: {text_of(error)}"
            details = "".join(traceback.format_tb(error.__traceback__, -_FRAMES))
            return Result(rule, Status.FAILED, _bounded(found), "no error", details)
        tried = _bounded(found) if isinstance(found, str) else ""
        missing = self._missing_in_harness(rule.wants) if self._subject.has_harness else ""
        status = Status.UNPROVEN if missing else Status.PASSED
        return Result(rule, status, "; ".join(filter(None, (missing, tried))))

    def _result_without_check(self, rule: Rule) -> Result | None:
        if rule.profile is Profile.EXTENDED and self._profile is Profile.CORE:
            return Result(rule, Status.NOT_ASKED)
        for id in sorted(requirements(rule.after) & self._subject.broken):
            return Result(rule, Status.NOT_RUN, f"{id} is not kept")
        try:
            exempt = rule.exempts(self._subject.capabilities)
        except DriverLoadError:
            # The rules that depend on no other one are about this.
            why_not = Result(rule, Status.NOT_RUN, "the driver cannot be loaded")
            return why_not if rule.after else None
        if exempt is None and self._subject.declared is not None:
            exempt = _exempts(rule, self._subject.declared)
        if exempt is not None:
            return Result(rule, Status.EXEMPT, printable(exempt))
        if rule.profile is Profile.EXTENDED and not self._subject.has_harness:
            return Result(rule, Status.NOT_RUN, NO_HARNESS)
        missing = self._missing_in_harness(rule.needs)
        return Result(rule, Status.UNPROVEN, missing) if missing else None

    def _missing_in_harness(self, names: Iterable[str]) -> str:
        missing = [
            f"fault {one.name}" if isinstance(one, Fault) else one
            for one in names
            if not self._subject.can(one) and not self._subject.is_impossible(one)
        ]
        return f"the harness has no {', '.join(missing)}" if missing else ""


def judged(result: Result, known: Mapping[str, str]) -> Result:
    """Return the result in view of the declared known failures."""
    reason = known.get(result.rule.id)
    if reason is None:
        return result
    match result.status:
        case Status.FAILED:
            return Result(result.rule, Status.KNOWN, f"{reason} ({result.found})", result.expected)
        case Status.PASSED | Status.EXEMPT:
            found = f"it is {result.status}, and was declared to fail: {reason}"
            return Result(result.rule, Status.UNEXPECTED, found, "a failure, or no declaration")
        case _:
            return result


def _exempts(rule: Rule, harness: Harness) -> str | None:
    for concerned, declared, what in (
        (rule.busy, harness.busy, "nothing is ever busy"),
        (rule.cleaning, harness.cleaning, "nothing has to be cleaned"),
        ("change" in rule.needs, harness.changes, "nothing changes in place"),
        (rule.elsewhere, harness.other_processes, "no other process finds the backend"),
    ):
        if concerned and not declared.supported:
            return f"{what}: {declared.reason}"
    return None


class _Guarded:
    def __init__(self, harness: Harness, calls: RunningCalls | None) -> None:
        self._harness = harness
        self._calls = calls

    @property
    def kind(self) -> type[Harness]:
        return type(self._harness)

    @property
    def own(self) -> Harness:
        return self._harness

    def __getattr__(self, name: str) -> Any:
        value = _guarded(name, lambda: getattr(self._harness, name), self._calls)()
        return _guarded(name, value, self._calls) if callable(value) else value


def guarded(harness: Harness, calls: RunningCalls | None = None) -> Harness:
    """Return a harness that raises NotShown for any exception."""
    return cast(Harness, _Guarded(harness, calls))


def _guarded(
    name: str, method: Callable[..., Any], calls: RunningCalls | None
) -> Callable[..., Any]:
    @wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        if calls is not None:
            calls.before_harness(name)
        try:
            return method(*args, **kwargs)
        except Exception as error:
            raise _failed(name, error) from error
        finally:
            if calls is not None:
                calls.after_harness(name)

    return call


def _failed(name: str, error: BaseException) -> NotShown:
    if isinstance(error, NotImplementedError):
        return NotShown(f"the harness has no {name}")
    return NotShown(f"the harness failed in {name}: {type(error).__name__}: {error}")
