"""pytest, as far as it runs the kit: its options, and the driver for the tests of the rules."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from wharfinger.conformance.pytest_session import SUFFIXES, Session
from wharfinger.conformance.rule_runner import TIMEOUT
from wharfinger.conformance.rules import Profile
from wharfinger.conformance.run_setup import Asked, Run

_ASKED: Final = pytest.StashKey[Asked]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let it be said which driver is looked at, and how."""
    group = parser.getgroup("wharfinger", "conformance of a driver")
    try:
        group.addoption("--driver", metavar="NAME", help="an entry point of wharfinger.drivers")
    except ValueError as error:
        raise pytest.UsageError(
            f"another plugin has an option --driver, too; leave it out (-p no:ITS_NAME): {error}"
        ) from error
    group.addoption(
        "--driver-config",
        metavar="FILE",
        type=Path,
        help="look at the driver with this configuration, and at the backend that it names: "
        "nothing there is changed, so that the core is all that can be seen; default: the "
        "driver's harness, if it has one",
    )
    group.addoption(
        "--driver-profile",
        choices=[profile.value for profile in Profile],
        default=Profile.EXTENDED.value,
        help="core: what needs no harness; default: extended, which is all",
    )
    group.addoption(
        "--driver-known-failure",
        metavar="'ID: REASON'",
        action="append",
        default=[],
        help="a rule that is known not to be kept, and why; it is a failure then if it is kept",
    )
    group.addoption(
        "--driver-report", metavar="DIR", type=Path, help="write NAME.json, .md and .svg there"
    )
    group.addoption(
        "--driver-seed", metavar="N", type=int, help="of the random histories; default: any"
    )
    group.addoption(
        "--driver-examples",
        metavar="N",
        type=int,
        default=10,
        help="how many random histories; default: %(default)s",
    )
    group.addoption(
        "--driver-timeout",
        metavar="SECONDS",
        type=float,
        default=TIMEOUT,
        help="how long a rule may take before it counts as not kept; default: %(default)g",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Read what is asked for."""
    options = config.option
    if getattr(options, "dist", "no") != "no":
        raise pytest.UsageError(
            "the rules build on each other, and there is one backend: leave out -n, or say -n0"
        )
    try:
        asked = Asked.read(
            driver=options.driver,
            config_file=options.driver_config,
            profile=Profile(options.driver_profile),
            known_failures=options.driver_known_failure,
            seed=options.driver_seed,
            examples=options.driver_examples,
            timeout=options.driver_timeout,
        )
        if asked.driver is not None and options.driver_report is not None:
            options.driver_report = options.driver_report.absolute()
            options.driver_report.mkdir(parents=True, exist_ok=True)
            for suffix in SUFFIXES:  # those of a run before say nothing of this one
                (options.driver_report / f"{asked.driver}.{suffix}").unlink(missing_ok=True)
    except ValueError as error:
        raise pytest.UsageError(str(error)) from error
    except OSError as error:
        raise pytest.UsageError(f"--driver-report: {error}") from error
    if options.xmlpath is not None:  # pytest finds out when all is over
        try:
            path = Path(options.xmlpath)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.open("a").close()
        except OSError as error:
            raise pytest.UsageError(f"--junit-xml: {error}") from error
    config.stash[_ASKED] = asked
    # What libraries say to each other is nothing that a driver's author could mend.
    config.addinivalue_line("filterwarnings", "ignore::DeprecationWarning")
    config.pluginmanager.register(Session(config, asked, options.driver_report))


@pytest.fixture(scope="session")
def conformance_run(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Run]:
    """The driver, with its backend and a Placement."""
    with Run(pytestconfig.stash[_ASKED], tmp_path_factory.mktemp("conformance")) as run:
        yield run
