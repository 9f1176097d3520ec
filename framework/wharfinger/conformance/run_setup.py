"""Set up the harness, Placement and examination of a driver."""

import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Final

from hypothesis.configuration import set_hypothesis_home_dir

from wharfinger.conformance.driver_clock import RunningCalls
from wharfinger.conformance.driver_observer import calling
from wharfinger.conformance.exceptions import NotShown
from wharfinger.conformance.harness import Harness
from wharfinger.conformance.placement import RunPlacement
from wharfinger.conformance.quick_databases import quick_placement, staying_open, without_sync
from wharfinger.conformance.rule_runner import Examination, guarded
from wharfinger.conformance.run_options import HARNESSES, Asked
from wharfinger.conformance.subject import Subject
from wharfinger.driver import Capability, loader
from wharfinger.exceptions import (
    BackendError,
    ConfigurationError,
    ConfigurationFileError,
    DriverLoadError,
    WharfingerError,
)
from wharfinger.placement.embedded import EmbeddedPlacement

#: The loggers of libraries whose messages do not help the author of a driver.
_LOUD: Final = ("placement", "oslo_db", "object", "stevedore", "urllib3.connectionpool")


@contextmanager
def set_up(asked: Asked, directory: Path, calls: RunningCalls) -> Iterator[Examination]:
    """Set up and yield the examination of a driver. Raises NotShown."""
    if asked.driver is None:
        raise NotShown("no driver is named (--driver NAME)")
    with ExitStack() as stack:
        _silence(stack, directory)
        # Before the harness, which may import the driver: a hang here is the driver's.
        with calling("import", [calls]), suppress(DriverLoadError):  # the rules check this
            loader.load(asked.driver)
        stack.enter_context(without_sync())
        with staying_open():
            placement = RunPlacement(EmbeddedPlacement(directory / "placement.sqlite"))
        stack.enter_context(quick_placement())
        stack.callback(placement.close)
        harness = None
        if asked.config_file is None:
            harness = _start_harness(asked.driver, directory, placement, calls, stack)
        own = directory / "subject"
        own.mkdir()
        subject = Subject(
            asked.driver,
            own,
            placement,
            config_file=asked.config_file,
            harness=harness,
            seed=asked.seed,
            examples=asked.examples,
            thorough=asked.thorough,
        )
        subject.observers.append(calls)
        _check_configuration(subject)
        if harness is None:
            _check_backend(subject)
        yield Examination(subject, profile=asked.profile, known=asked.known)


def declared_capabilities(driver: str) -> dict[str, dict[str, Any]]:
    """Return a driver's declared capabilities as data for JSON."""
    try:
        declared = loader.load(driver).capabilities.items()
    except DriverLoadError:
        return {}
    return {
        name: {"supported": one.supported, "reason": one.reason}
        for name, one in declared
        if isinstance(one, Capability)
    }


def _silence(stack: ExitStack, directory: Path) -> None:
    for logger in map(logging.getLogger, _LOUD):
        stack.callback(logger.setLevel, logger.level)
        logger.setLevel(logging.CRITICAL)
    set_hypothesis_home_dir(str(directory / "hypothesis"))
    stack.callback(set_hypothesis_home_dir, None)


def _start_harness(
    driver: str, directory: Path, placement: RunPlacement, calls: RunningCalls, stack: ExitStack
) -> Harness | None:
    calls.before_harness("__init__")
    kind = find_harness(driver)
    if kind is None:
        calls.after_harness("__init__")
        return None
    own = directory / "harness"
    own.mkdir()
    try:
        harness = guarded(kind(own, placement), calls)
    except Exception as error:
        name = f"{kind.__module__}:{kind.__qualname__}"
        raise NotShown(
            f"the harness {name} cannot be created: {type(error).__name__}: {error}"
        ) from error
    calls.after_harness("__init__")
    stack.callback(harness.stop)
    harness.start()
    return harness


def find_harness(driver: str) -> Any:
    """Return the class of a driver's harness, None without one. Raises NotShown."""
    found = [*entry_points(group=HARNESSES, name=driver)]
    if len(found) > 1:
        named = ", ".join(sorted(one.value for one in found))
        raise NotShown(f"several harnesses of {driver} are installed, not one: {named}")
    try:
        return found[0].load() if found else None
    except Exception as error:
        raise NotShown(
            f"the harness {found[0].value} cannot be imported: {type(error).__name__}: {error}"
        ) from error


def _check_configuration(subject: Subject) -> None:
    try:
        subject.load()
    except (ConfigurationError, ConfigurationFileError) as error:
        raise NotShown(str(error)) from error
    except WharfingerError:
        return  # the rules check this


def _check_backend(subject: Subject) -> None:
    try:
        with subject.driver() as driver:
            driver.get_available_nodes(refresh=True)
    except BackendError as error:
        raise NotShown(f"the backend does not answer: {error}") from error
    except (Exception, SystemExit):
        return  # the rules check this
