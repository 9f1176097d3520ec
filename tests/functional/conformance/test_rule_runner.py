"""Results of rules that this module defines, for a driver.

unit/conformance/test_overall_verdict.py tests the verdict on all results.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest

from tests.lab.conformance.examining import Examiner
from tests.lab.conformance.harnesses import DevicesHarness, OlderWorldHarness, WorldHarness
from tests.lab.conformance.honest import MachinesDriver
from tests.lab.conformance.world import Device
from wharfinger.conformance.exceptions import NotShown, Violation
from wharfinger.conformance.harness import COMMON_FAULTS, Expected, Harness, OldLayout, Placement
from wharfinger.conformance.rule_runner import Examination, Result, Status
from wharfinger.conformance.rules import Level, Profile, Rule, all_rules
from wharfinger.conformance.subject import Subject
from wharfinger.driver import Capability, unsupported
from wharfinger.exceptions import BackendError

Check = Callable[[Subject], None]


def keeps(_subject: Subject) -> None:
    """Find nothing wrong."""


def breaks(_subject: Subject) -> None:
    raise Violation("a tree of two", "a tree of one")


def raises(error: BaseException) -> Check:
    def check(_subject: Subject) -> NoReturn:
        raise error

    return check


def a_rule(id: str = "WHF-101", check: Check = keeps, **other: Any) -> Rule:
    settings = {"level": Level.MUST, "profile": Profile.CORE, "since": "0.1", **other}
    return Rule(id=id, says="It is so.", because="Else it is not.", check=check, **settings)


EXTENDED = a_rule("WHF-201", profile=Profile.EXTENDED)


@pytest.fixture
def examination(examiner: Examiner) -> Iterator[Examination]:
    with examiner.examining("machines", examiner.harness(MachinesDriver)) as examination:
        yield examination


def with_harness(
    kind: type[WorldHarness], examiner: Examiner
) -> AbstractContextManager[Examination]:
    directory = examiner.directory / "harness"
    directory.mkdir()
    return examiner.examining("machines", kind(directory, examiner.placement))


def said(result: Result) -> tuple[Status, str]:
    return result.status, result.found


def test_rule_that_is_kept_passes_and_one_that_is_not_fails(examination: Examination) -> None:
    results = examination.check_all([a_rule(), EXTENDED, a_rule("WHF-301", breaks)])

    assert [one.status for one in results] == [Status.PASSED, Status.PASSED, Status.FAILED]
    assert (results[2].found, results[2].expected) == ("a tree of two", "a tree of one")
    assert results[2].details == ""
    assert [*examination.results.values()] == results


@pytest.mark.parametrize(
    ("error", "found"),
    [
        (BackendError(driver="lab", operation="list", reason="away"), "lab: list failed: away"),
        (KeyError("name"), "KeyError: 'name'"),
        (SystemExit(3), "SystemExit: 3"),
        (AssertionError(), "AssertionError"),
        (ValueError("two\nlines\x1b[31m"), "ValueError"),
    ],
)
def test_exception_of_a_driver_fails_the_rule_with_its_traceback(
    error: BaseException, found: str, examination: Examination
) -> None:
    result = examination.check(a_rule(check=raises(error)))

    assert result.status is Status.FAILED
    assert found in result.found
    assert result.found.isprintable()
    assert Path(__file__).name in result.details or isinstance(error, BackendError)


def test_ctrl_c_fails_no_rule(examination: Examination) -> None:
    with pytest.raises(KeyboardInterrupt):
        examination.check(a_rule(check=raises(KeyboardInterrupt())))


# Rules that do not run, or have nothing to check.


def test_rules_that_depend_on_a_broken_rule_are_not_run(
    examination: Examination, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain = [a_rule("WHF-101", breaks), a_rule("WHF-102", after=("WHF-101",))]
    chain.append(a_rule("WHF-103", after=("WHF-102",)))
    monkeypatch.setattr("wharfinger.conformance.rules._REGISTRY", {rule.id: rule for rule in chain})

    results = examination.check_all(chain)

    assert [one.status for one in results] == [Status.FAILED, Status.NOT_RUN, Status.NOT_RUN]
    assert {one.found for one in results[1:]} == {"WHF-101 is not kept"}


class SaysNoUses(DevicesHarness):
    """A harness that does not report how instances use an old layout."""

    def use_old_layout(self) -> OldLayout:
        return replace(super().use_old_layout(), uses=None)


def test_reshape_without_uses_of_the_harness_is_unproven(examiner: Examiner) -> None:
    (rule,) = (one for one in all_rules() if one.id == "WHF-604")
    harness = SaysNoUses(examiner.directory, examiner.placement)
    with examiner.examining("devices", harness) as examination:
        result = examination.check(rule)

    assert result.status is Status.UNPROVEN
    assert "(uses)" in result.found


class NeverBusy(WorldHarness):
    """A harness whose machines are always free."""

    busy: Capability = unsupported("a user keeps its machine for ever")  # type: ignore[misc]
    changes: Capability = unsupported("machines stay as they are")  # type: ignore[misc]
    cleaning: Capability = unsupported("machines stay clean")  # type: ignore[misc]


class OnlyCommonFaults(WorldHarness):
    """A harness that injects only the faults that every harness can."""

    faults = COMMON_FAULTS


class ExpectsNothing(WorldHarness):
    """A harness whose ``expected`` is empty."""

    def expected(self) -> Mapping[str, Expected]:
        """Return nothing."""
        return {}


class ExpectsNotAtAll(WorldHarness):
    """A harness without ``expected``."""

    expected = Harness.expected


class AllAlike(WorldHarness):
    """A harness whose machines are alike, and that does not change one."""

    change = Harness.change

    def reset(self) -> None:
        """Give all machines the figures of the first one."""
        super().reset()
        self.world.devices = dict.fromkeys(self.world.devices, Device())

    def add(self) -> str:
        """Add a machine with the same figures."""
        name = super().add()
        self.world.devices[name] = Device()
        return name


class NeverChanges(NeverBusy):
    """A harness whose machines are always free, and that does not change one."""

    change = Harness.change


class NeverGrows(WorldHarness):
    """A harness that has only a few machines."""

    def grow(self, count: int) -> None:
        """Do nothing."""


class HasOneFunction(DevicesHarness):
    """A harness whose images all have the same function."""

    def image(self, thing: str) -> tuple[str, str]:
        """Return always the same image."""
        image = "7c3f1e0a-52d4-4b7b-9a86-0d5b6c1f2e93"
        self.world.images[image] = "later"
        return image, "later"


@pytest.mark.parametrize(
    ("id", "kind", "found"),
    [
        ("WHF-221", ExpectsNothing, "expected returns nothing for machine-0"),
        ("WHF-221", AllAlike, "all things of the harness have the same figures"),
        ("WHF-311", OlderWorldHarness, "the harness has no second_host"),
        ("WHF-313", ExpectsNotAtAll, "the harness has no expected"),
        ("WHF-314", OlderWorldHarness, "the harness has no use"),
        ("WHF-401", OlderWorldHarness, "the harness has no expected"),
        ("WHF-404", AllAlike, "all things of the harness have the same figures"),
        ("WHF-721", OlderWorldHarness, "the harness has no change, use"),
        ("WHF-811", AllAlike, "the harness has no change"),
        ("WHF-911", NeverChanges, "neither make a thing busy nor change it"),
        ("WHF-916", NeverGrows, "the driver lists fewer than 6 nodes"),
        ("WHF-917", OnlyCommonFaults, "the harness has no fault LATE"),
        ("WHF-925", HasOneFunction, "the same function twice"),
    ],
)
def test_rule_that_is_checked_only_in_part_is_unproven(
    id: str, kind: type[WorldHarness], found: str, examiner: Examiner
) -> None:
    (rule,) = (one for one in all_rules() if one.id == id)
    driver = "devices" if issubclass(kind, DevicesHarness) else "machines"
    with examiner.examining(driver, kind(examiner.directory, examiner.placement)) as examination:
        result = examination.check(rule)

    assert result.status is Status.UNPROVEN, result
    assert found in result.found


def test_rules_for_other_drivers_and_backends_are_exempt_and_say_why(examiner: Examiner) -> None:
    others: list[dict[str, Any]] = [
        {"supports": "nested_providers"},
        {"denies": "change_feed"},
        {"busy": True},
        {"cleaning": True},
        {"needs": ("change",)},
    ]
    with with_harness(NeverBusy, examiner) as examination:
        results = examination.check_all(a_rule(check=breaks, **other) for other in others)

    assert [*map(said, results)] == [
        (Status.EXEMPT, "nested_providers is not supported: a machine is one provider"),
        (Status.EXEMPT, "change_feed is supported"),
        (Status.EXEMPT, "nothing is ever busy: a user keeps its machine for ever"),
        (Status.EXEMPT, "nothing has to be cleaned: machines stay clean"),
        (Status.EXEMPT, "nothing changes in place: machines stay as they are"),
    ]


class CannotBeUsed(OlderWorldHarness):
    """A harness without optional methods, for a backend whose machines are used as a whole."""

    uses: Capability = unsupported("a user has a whole machine")  # type: ignore[misc]


def test_rule_wants_no_method_that_the_harness_declares_as_impossible(examiner: Examiner) -> None:
    rules = [a_rule(wants=("use",)), a_rule(wants=("change", "use"))]
    with with_harness(CannotBeUsed, examiner) as examination:
        results = examination.check_all(rules)

    assert [*map(said, results)] == [
        (Status.PASSED, ""),
        (Status.UNPROVEN, "the harness has no change"),
    ]


def test_rule_that_finds_nothing_to_see_is_not_run(examination: Examination) -> None:
    result = examination.check(a_rule(check=raises(NotShown("there is one thing alone"))))

    assert said(result) == (Status.NOT_RUN, "there is one thing alone")


def test_driver_that_is_not_installed_fails_the_first_rule_and_no_other_is_run(
    examiner: Examiner,
) -> None:
    def load(subject: Subject) -> None:
        assert subject.kind

    with examiner.examining("nobody", None) as examination:
        first, second = examination.check_all(
            [a_rule(check=load), a_rule("WHF-102", after=("WHF-101",))]
        )

    assert (first.status, second.status) == (Status.FAILED, Status.NOT_RUN)
    assert "nobody" in first.found


def test_core_alone_is_asked_for(examiner: Examiner) -> None:
    harness = examiner.harness(MachinesDriver)
    with examiner.examining("machines", harness, profile=Profile.CORE) as examination:
        core, extended = examination.check_all([a_rule(), EXTENDED])

    assert (core.status, extended.status) == (Status.PASSED, Status.NOT_ASKED)


# The harness.


def test_rule_for_a_harness_without_one_is_not_run(examiner: Examiner) -> None:
    asks = a_rule("WHF-102", lambda subject: subject.harness.restart())
    with examiner.examining("machines", None) as examination:
        core, asking, extended = examination.check_all([a_rule(), asks, EXTENDED])

    assert core.status is Status.PASSED
    assert said(asking) == said(extended) == (Status.NOT_RUN, "there is no harness")


class Broken(WorldHarness):
    """A harness whose methods fail."""

    def __init__(self, directory: Path, placement: Placement) -> None:
        super().__init__(directory, placement)
        self.resets = 0

    def reset(self) -> None:
        """Fail at the second call."""
        self.resets += 1
        if self.resets > 1:
            raise OSError("no space left")
        super().reset()

    def add(self) -> str:
        """Fail with an error."""
        raise LookupError("no slot")

    def make_busy(self, thing: str) -> None:
        """Fail as a method that the author has left out."""
        raise NotImplementedError


@pytest.mark.parametrize(
    ("does", "found"),
    [
        (lambda subject: subject.harness.add(), "the harness failed in add: LookupError: no slot"),
        (lambda subject: subject.harness.make_busy(""), "the harness has no make_busy"),
        (lambda subject: subject.begin(), "the harness failed in reset: OSError: no space left"),
    ],
)
def test_harness_that_fails_is_not_the_drivers_failure(
    does: Check, found: str, examiner: Examiner
) -> None:
    with with_harness(Broken, examiner) as examination:
        result = examination.check(a_rule("WHF-201", does, profile=Profile.EXTENDED))
        # The next rule begins with another reset, which fails.
        later = examination.check(a_rule("WHF-202"))

    assert said(result) == (Status.NOT_RUN, found)
    assert said(later) == (Status.NOT_RUN, "the harness failed in reset: OSError: no space left")


# Each rule begins with an empty Placement and a reset backend.


class Counting(WorldHarness):
    """A harness that counts its resets."""

    def __init__(self, directory: Path, placement: Placement) -> None:
        super().__init__(directory, placement)
        self.resets = 0

    def reset(self) -> None:
        """Count the reset."""
        self.resets += 1
        super().reset()


def publishes(subject: Subject) -> None:
    with subject.publishing() as publishing:
        publishing.settle()
    assert subject.placement.contents()


def changes_after_a_beginning_of_its_own(subject: Subject) -> None:
    subject.begin()
    subject.harness.remove(subject.harness.things()[0])


@pytest.mark.parametrize(
    ("check", "resets"),
    [
        pytest.param(keeps, 1, id="nothing is done"),
        pytest.param(lambda subject: subject.load(), 1, id="a driver is made"),
        pytest.param(publishes, 2, id="something is published"),
        pytest.param(lambda subject: subject.harness.add(), 2, id="the backend is changed"),
        pytest.param(changes_after_a_beginning_of_its_own, 3, id="it begins once more itself"),
    ],
)
def test_each_rule_begins_with_an_empty_placement_and_a_backend_that_was_reset(
    examiner: Examiner, check: Check, resets: int
) -> None:
    seen: list[tuple[Mapping[str, object], list[str], list[str]]] = []
    counted: list[int] = []

    def looks(subject: Subject) -> None:
        harness = subject.harness
        counted.append(harness.resets)  # type: ignore[attr-defined]
        seen.append((dict(subject.placement.contents()), [*harness.things()], [*harness.calls]))

    with with_harness(Counting, examiner) as examination:
        results = examination.check_all([a_rule(check=check), a_rule("WHF-102", looks)])
        examination.check(a_rule("WHF-103", looks))

    assert {one.status for one in results} == {Status.PASSED}
    assert counted == [resets, resets + 1]
    assert seen == [({}, ["machine-0", "machine-1"], [])] * 2


# Declared failures.


@pytest.fixture
def knowing(examiner: Examiner) -> Iterator[Examination]:
    """An examination for which the failure of WHF-301 is declared as known."""
    known = {"WHF-301": "bug 17"}
    with examiner.examining("machines", examiner.harness(MachinesDriver), known=known) as one:
        yield one


def test_declared_failure_is_known_and_dependent_rules_are_not_run(
    knowing: Examination,
) -> None:
    for level in Level:
        failure = knowing.check(a_rule("WHF-301", breaks, level=level))
        assert said(failure) == (Status.KNOWN, "bug 17 (a tree of two)")

    assert knowing.check(a_rule("WHF-302", after=("WHF-301",))).status is Status.NOT_RUN


@pytest.mark.parametrize("supports", [None, "reshape"])
def test_pass_or_exemption_that_was_declared_to_fail_is_unexpected(
    supports: str | None, knowing: Examination
) -> None:
    for level in Level:
        result = knowing.check(a_rule("WHF-301", level=level, supports=supports))
        assert result.status is Status.UNEXPECTED
        assert "bug 17" in result.found
    assert Status.UNEXPECTED.is_bad and not Status.KNOWN.is_bad


def test_known_failure_that_is_not_run_stays_so(knowing: Examination) -> None:
    unseen = a_rule("WHF-301", raises(NotShown("there is no image")))

    assert knowing.check(unseen).status is Status.NOT_RUN
