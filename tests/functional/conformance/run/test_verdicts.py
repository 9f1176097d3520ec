"""What runs of the kit exit with, and what they say in the end."""

import pytest

from tests.lab.conformance.running import Kit
from wharfinger.conformance.rules import all_rules

pytest_plugins = ["pytester"]

CORE = ("--driver-profile", "core")
#: A rule of the core that is quick to look at, and one of the extended profile.
QUICK = "WHF-201"
CONFORMS, FAILED, USAGE, PARTIAL = 0, 1, 4, 6


def test_what_keeps_all_rules_of_the_core_conforms(kit: Kit) -> None:
    result = kit("--driver", "shelf", *CORE)

    assert result.ret == CONFORMS
    assert "core: CONFORMS, extended: NOT ASKED" in result.outlines


def test_without_a_harness_all_of_it_is_partial(kit: Kit) -> None:
    result = kit("--driver", "shelf", "-k", "WHF-201 or WHF-401")

    assert result.ret == PARTIAL
    result.stdout.fnmatch_lines(["not run: WHF-401: there is no harness"])


def test_a_rule_that_must_be_kept_and_is_not_fails(kit: Kit) -> None:
    result = kit("--driver", "tagged", *CORE, "-k", "WHF-204")

    assert result.ret == FAILED
    assert "core: FAILED, extended: NOT ASKED" in result.outlines


def test_one_that_should_be_kept_is_told_and_fails_nothing(kit: Kit) -> None:
    result = kit("--driver", "generous", *CORE)

    assert result.ret == CONFORMS
    result.stdout.fnmatch_lines(
        [
            "WHF-207 SHOULD: *",
            "expected: max_unit at most 3",
            "found:    shelf CUSTOM_BOX: total 3, max_unit 6",
            "again:    pytest --pyargs wharfinger.conformance --driver generous *-k WHF-207",
            "core: CONFORMS, extended: NOT ASKED",
        ]
    )


@pytest.mark.parametrize("driver", ["silent", "unborn"])
def test_a_driver_that_never_comes_back_does_not_hold_the_run(kit: Kit, driver: str) -> None:
    result = kit("--driver", driver, *CORE, "--driver-timeout", "2")

    assert result.ret == FAILED
    result.stdout.fnmatch_lines(
        ["expected: no error", "found:    Overdue: no end after 2 s", "*authors.py*", "*wait()"]
    )
    assert "core: FAILED, extended: NOT ASKED" in result.outlines


def test_without_a_driver_nothing_is_said_of_any(kit: Kit) -> None:
    result = kit()

    assert result.ret == PARTIAL
    result.stdout.fnmatch_lines(
        ["not run: WHF-101, *: no driver is named (--driver NAME)", "core: PARTIAL, *: PARTIAL"]
    )


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param((), id="no driver"),
        pytest.param(("--driver", "shelf", *CORE, "-k", QUICK), id="deselected"),
        pytest.param(("--driver", "shelf", *CORE, "-k", "nothing"), id="all deselected"),
        pytest.param(("--driver", "down", "-k", QUICK), id="harness that does not start"),
    ],
)
def test_a_run_that_says_nothing_is_never_green(kit: Kit, arguments: tuple[str, ...]) -> None:
    result = kit(*arguments, "--color=yes")

    assert result.ret == PARTIAL
    *_, verdict, last = (line for line in result.outlines if line)
    assert "PARTIAL" in verdict
    assert "not run" in last
    for line in (verdict, last):
        assert "\x1b[33m" in line
    assert "\x1b[32m=" not in last


def test_what_is_stopped_early_fails_by_what_stopped_it(kit: Kit) -> None:
    result = kit("--driver", "tagged", *CORE, "-x", "-k", "WHF-204 or WHF-301")

    assert result.ret == FAILED
    result.assert_outcomes(failed=1, deselected=len([*all_rules()]) - 2)
    assert "core: FAILED, extended: NOT ASKED" in result.outlines


def test_a_driver_that_is_not_installed_fails(kit: Kit) -> None:
    result = kit("--driver", "nobody", *CORE)

    assert result.ret == FAILED
    result.stdout.fnmatch_lines(
        [
            "found:    entry point: none in wharfinger.drivers",
            "nobody: not installed; *",
            "not run: WHF-102, WHF-103, *: *",
        ]
    )


def test_of_a_collection_alone_nothing_is_said(kit: Kit) -> None:
    result = kit("--driver", "shelf", "--collect-only")

    assert result.ret == CONFORMS
    result.stdout.no_fnmatch_line("*conformance of*")
    result.stdout.no_fnmatch_line("*PARTIAL*")


def test_tests_that_fail_beside_the_rules_are_failures(kit: Kit) -> None:
    (kit.directory / "test_own.py").write_text("def test_own(): assert not 'kept'\n")

    result = kit("test_own.py", "--driver", "shelf", *CORE)

    assert result.ret == FAILED
    assert "core: CONFORMS, extended: NOT ASKED" in result.outlines


# What is known to fail.


def test_a_known_failure_is_no_failure(kit: Kit) -> None:
    reason = "the | firmware\ntags"
    result = kit(
        *("--driver", "tagged", *CORE, "-k", "WHF-204"),
        *("--driver-known-failure", f"WHF-204: {reason}"),
    )

    assert result.ret == PARTIAL
    result.stdout.fnmatch_lines(
        [
            "WHF-204 MUST: *",
            "found:    the | firmware\\ntags (shelf: + OWNER_NOVA)",
            "*1 xfailed*",
        ]
    )


@pytest.mark.parametrize("rule", ["WHF-201", "WHF-901"])
def test_a_rule_that_was_declared_to_fail_and_does_not_fails(kit: Kit, rule: str) -> None:
    result = kit(*("--driver", "shelf", "-k", rule, "--driver-known-failure", f"{rule}: it is old"))

    assert result.ret == FAILED
    result.stdout.fnmatch_lines([f"{rule} *", "found:    it is * declared to fail: it is old"])


@pytest.mark.parametrize("text", ["WHF-201", "WHF-999: no such", ": x", "WHF-201:  ", ""])
def test_a_known_failure_has_a_rule_and_a_reason(kit: Kit, text: str) -> None:
    result = kit("--driver", "shelf", "--driver-known-failure", text)

    assert result.ret == USAGE
    result.stderr.fnmatch_lines([f"ERROR: --driver-known-failure: {text!r} is not *"])
