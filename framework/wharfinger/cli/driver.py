"""The commands ``wharfinger driver list`` and ``driver check``."""

import argparse
from collections.abc import Iterable, Iterator
from typing import Any

from cliff.lister import Lister

from wharfinger.cli.app import DONE, FAILED
from wharfinger.cli.command import WharfingerCommand
from wharfinger.error_codes import code, with_code
from wharfinger.exceptions import DriverLoadError, WharfingerError


class DriverList(WharfingerCommand, Lister):
    """List all installed and all enabled drivers, and whether each can be loaded."""

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        from wharfinger.driver import loader

        instances = self._instances()
        rows = [
            (
                driver.name,
                driver.target,
                driver.distribution,
                ", ".join(instances.pop(driver.name, ())),
                _state(driver.name),
            )
            for driver in loader.installed()
        ]
        # Enabled drivers that are not installed are listed, too.
        rows += [
            (driver, "", "", ", ".join(names), _state(driver))
            for driver, names in instances.items()
        ]
        return ("Driver", "Class", "Package", "Instances", "State"), rows

    def _instances(self) -> dict[str, list[str]]:
        from wharfinger.conf import DefaultSection, InstanceSection

        instances: dict[str, list[str]] = {}
        for name in DefaultSection.read(self.conf).enabled_drivers:
            instances.setdefault(InstanceSection.read(self.conf, name).driver, []).append(name)
        return instances


class DriverCheck(WharfingerCommand, Lister):
    """Check a driver against the driver interface; for a driver instance, check its options, too.

    Prints one row per problem. Exits with 1 if there is a problem.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument(
            "name",
            metavar="NAME",
            help="the name of an installed driver; or of an enabled driver instance, whose "
            "configuration is then checked, too",
        )
        return parser

    def run(self, parsed_args: argparse.Namespace) -> int:
        self._problems = list(self._check(parsed_args.name))
        super().run(parsed_args)
        return FAILED if self._problems else DONE

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Iterable[Any]]:
        if not self._problems:
            return ("Checked", "Result"), [(parsed_args.name, "fits the contract")]
        return ("Checked", "Result"), [
            (
                problem.subject,
                f"found {problem.found}; expected {problem.expected} [{code(problem)}]",
            )
            if isinstance(problem, DriverLoadError)
            else (parsed_args.name, with_code(problem))
            for problem in self._problems
        ]

    def _check(self, name: str) -> Iterator[WharfingerError]:
        from wharfinger.conf import DefaultSection, InstanceSection
        from wharfinger.driver import loader
        from wharfinger.placement import session
        from wharfinger.reconcile import driver_instance_loader

        is_instance = name in DefaultSection.read(self.conf).enabled_drivers
        driver = InstanceSection.read(self.conf, name).driver if is_instance else name
        found = list(loader.check(driver))
        yield from found
        if is_instance and not found:
            for look in (
                lambda: driver_instance_loader.load(self.conf, name),
                lambda: session.check(self.conf),
            ):
                try:
                    look()
                except WharfingerError as error:
                    yield error


def _state(driver: str) -> str:
    from wharfinger.driver import loader

    problems = list(loader.check(driver))
    return with_code(problems[0]) if problems else "ready"
