"""Exit codes of runs of the kit, and the verdicts that they print at the end."""

import pytest

from tests.lab.conformance.running import FEW, Kit

pytest_plugins = ["pytester"]

CORE = ("--driver-profile", "core")
#: A quick rule of the core profile.
QUICK = "WHF-201"
CONFORMS, FAILED, USAGE, PARTIAL = 0, 1, 4, 6


def test_broken_should_rule_is_printed_and_does_not_fail_the_run(kit: Kit) -> None:
    result = kit("--driver", "generous", *CORE)

    assert result.ret == CONFORMS
    result.stdout.fnmatch_lines(
        [
            "WHF-207 SHOULD: *",
            "expected: max_unit at most 3",
            "found:    provider shelf has an allocation_ratio above 1 for CUSTOM_BOX, and max_unit "
            "6 above the total 3",
            "again:    wharfinger conformance run generous *--rule WHF-207",
            "core: CONFORMS, extended: NOT ASKED",
        ]
    )


def test_broken_must_rule_fails_the_run_and_its_command_shows_it_again(kit: Kit) -> None:
    seed = ("--driver-seed", "7")
    result = kit("--driver", "tagged", *CORE, *seed, "-k", "WHF-204 or WHF-301", "-x")

    assert result.ret == FAILED
    result.assert_outcomes(failed=1, deselected=len(FEW) - 2)
    assert "core: FAILED, extended: NOT ASKED" in result.outlines
    at = next(at for at, line in enumerate(result.outlines) if line.startswith("WHF-204 MUST: "))
    four = result.outlines[at : at + 4]
    assert four[1:3] == [
        "expected: no trait of an owner or of a driver instance, since the framework adds these",
        "found:    the driver adds these traits to provider shelf: OWNER_NOVA",
    ]

    assert four[3] == (
        "again:    wharfinger conformance run tagged --profile core --seed 7 --rule WHF-204"
    )
    again = kit("--driver", "tagged", *CORE, *seed, "-k", "WHF-204")

    assert again.ret == FAILED
    at = again.outlines.index(four[0])
    assert again.outlines[at : at + 4] == four


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        pytest.param(
            (), "not run: WHF-101, *: no driver is named (--driver NAME)", id="without a driver"
        ),
        pytest.param(
            ("--driver", "shelf", "-k", f"{QUICK} or WHF-401"),
            "not run: WHF-401: there is no harness",
            id="without a harness",
        ),
        pytest.param(("--driver", "shelf", *CORE, "-k", "nothing"), "*", id="all deselected"),
        pytest.param(
            ("--driver", "down", "-k", QUICK),
            r"not run: *: the harness failed in start: OSError: no route to\nthe laboratory",
            id="harness that does not start",
        ),
    ],
)
def test_run_without_results_is_never_green(
    kit: Kit, arguments: tuple[str, ...], line: str
) -> None:
    result = kit(*arguments, "--color=yes")

    assert result.ret == PARTIAL
    result.stdout.fnmatch_lines([line])
    assert any("extended: PARTIAL" in line or "core: PARTIAL" in line for line in result.outlines)


def test_driver_that_is_not_installed_fails(kit: Kit) -> None:
    result = kit("--driver", "absent", *CORE)

    assert result.ret == FAILED
    result.stdout.fnmatch_lines(
        [
            "found:    entry point: none in wharfinger.drivers",
            "absent: not installed; *",
            "not run: WHF-102, WHF-103, *: *",
        ]
    )


def test_collect_only_prints_no_verdict(kit: Kit) -> None:
    result = kit("--driver", "shelf", "--collect-only")

    assert result.ret == CONFORMS
    result.stdout.no_fnmatch_line("*conformance of*")
    result.stdout.no_fnmatch_line("*PARTIAL*")


def test_tests_that_fail_beside_the_rules_are_failures(kit: Kit) -> None:
    (kit.directory / "test_own.py").write_text("def test_own(): assert not 'kept'\n")

    result = kit("test_own.py", "--driver", "shelf", *CORE)

    assert result.ret == FAILED
    assert "core: CONFORMS, extended: NOT ASKED" in result.outlines


def test_harness_that_does_not_stop_is_an_error(kit: Kit) -> None:
    result = kit("--driver", "staying", "-k", "WHF-101")

    result.assert_outcomes(passed=1, errors=1, deselected=len(FEW) - 1)
    result.stdout.fnmatch_lines(["*the harness failed in stop: OSError: *"])


# Known failures.


def test_known_failure_is_no_failure(kit: Kit) -> None:
    reason = "the | firmware\ntags"
    result = kit(
        *("--driver", "tagged", *CORE, "-k", "WHF-204"),
        *("--driver-known-failure", f"WHF-204: {reason}"),
    )

    assert result.ret == PARTIAL
    result.stdout.fnmatch_lines(
        [
            "WHF-204 MUST: *",
            "found:    the | firmware\\ntags (the driver adds these traits to provider shelf: "
            "OWNER_NOVA)",
            "*1 xfailed*",
        ]
    )


def test_rule_that_was_declared_to_fail_and_does_not_fails(kit: Kit) -> None:
    known = (f"--driver-known-failure={rule}: it is old" for rule in (QUICK, "WHF-901"))
    result = kit("--driver", "shelf", "-k", f"{QUICK} or WHF-901", *known)

    assert result.ret == FAILED
    for rule, status in ((QUICK, "passed"), ("WHF-901", "exempt")):
        line = f"found:    it is {status}, and was declared to fail: it is old"
        result.stdout.fnmatch_lines([f"{rule} *", line])
