"""The kit's plugin for runs of pytest that check a driver."""

from argparse import ArgumentTypeError
from collections.abc import Iterator
from typing import Any, Final

import pytest

from wharfinger.conformance.overall_verdict import exit_code, judge
from wharfinger.conformance.rules import Rule, all_rules
from wharfinger.conformance.run import Run
from wharfinger.conformance.run_options import Asked, add_options, driver_name
from wharfinger.conformance.terminal_output import last_word

_ASKED: Final = pytest.StashKey[Asked]()
_RUN: Final = pytest.StashKey[Run]()
#: Exit codes of pytest that stay: pytest did not get so far as to a verdict.
_NO_VERDICT: Final = (
    pytest.ExitCode.INTERRUPTED,
    pytest.ExitCode.INTERNAL_ERROR,
    pytest.ExitCode.USAGE_ERROR,
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the kit's options."""
    group = parser.getgroup("wharfinger", "conformance of a driver")
    try:
        group.addoption(
            "--driver",
            metavar="NAME",
            help="the driver to check, such as libvirt. Without this option, no rule is run",
        )
    except ValueError as error:
        raise pytest.UsageError(
            "another plugin has an option --driver, too; disable that plugin (-p no:ITS_NAME): "
            f"{error}"
        ) from error
    add_options(group.addoption, "driver-")


def pytest_configure(config: pytest.Config) -> None:
    """Check the kit's options."""
    options = config.option
    if getattr(options, "dist", "no") != "no":
        raise pytest.UsageError(
            "the rules cannot run in parallel, since they share one backend: leave out -n and "
            "--dist, or use -n0"
        )
    try:
        driver = None if options.driver is None else driver_name(options.driver)
    except ArgumentTypeError as error:
        raise pytest.UsageError(f"--driver: {error}") from error
    config.stash[_ASKED] = Asked.read(driver, options, "driver-")
    # The author of a driver cannot repair the deprecated calls of libraries.
    config.addinivalue_line("filterwarnings", "ignore::DeprecationWarning")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort the tests of the kit by rule id."""
    rules = {item: rule.id for item in items if (rule := _rule_of(item)) is not None}
    ordered = iter(sorted(rules, key=rules.__getitem__))
    items[:] = [next(ordered) if item in rules else item for item in items]


@pytest.fixture(scope="session")
def conformance_run(pytestconfig: pytest.Config) -> Iterator[Run]:
    """Yield the run that all tests share."""
    with Run(pytestconfig.stash[_ASKED], pytestconfig.option.driver_report) as run:
        pytestconfig.stash[_RUN] = run
        yield run


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Set the exit code of pytest from the verdict."""
    if not session.config.option.collectonly and exitstatus not in _NO_VERDICT:
        session.exitstatus = exit_code(_verdicts(session.config)) or exitstatus


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Print the summary of the run and the verdict."""
    if config.option.collectonly:
        return
    asked, run = config.stash[_ASKED], config.stash.get(_RUN, None)
    terminalreporter.section(f"conformance of {asked.driver or 'no driver'}")
    for line in run.summary() if run else ():
        terminalreporter.write_line(line)
    terminalreporter.write_line(last_word(_verdicts(config)), bold=True)


def _verdicts(config: pytest.Config) -> Any:
    run, asked = config.stash.get(_RUN, None), config.stash[_ASKED]
    return run.verdicts if run else judge([*all_rules()], (), asked.profile)


def _rule_of(item: pytest.Item) -> Rule | None:
    callspec = getattr(item, "callspec", None)
    rule = callspec.params.get("rule") if callspec is not None else None
    return rule if isinstance(rule, Rule) else None
