"""The commands ``wharfinger config show`` and ``config validate``."""

import argparse
from typing import TYPE_CHECKING, Any

from cliff.lister import Lister

from wharfinger.cli.app import DONE, FAILED
from wharfinger.cli.command import WharfingerCommand
from wharfinger.error_codes import code
from wharfinger.exceptions import WharfingerError, printable

if TYPE_CHECKING:
    from wharfinger.conf import Options


def check(conf: "Options") -> tuple[list[str], list[WharfingerError]]:
    """Return the read sections and the problems of the whole configuration."""
    from wharfinger.conf import SchedulingSection
    from wharfinger.placement import session
    from wharfinger.reconcile import driver_instance_loader
    from wharfinger.scheduling.request_filters import loader

    sections, problems = driver_instance_loader.check(conf)
    for look in (
        lambda: loader.find(SchedulingSection.read(conf).request_filters),
        lambda: session.check(conf),
    ):
        try:
            look()
        except WharfingerError as error:
            problems.append(error)
    return sections, list({str(problem): problem for problem in problems}.values())


class ConfigShow(WharfingerCommand, Lister):
    """Show the value and the source of each option; secrets are masked.

    Exits with 1 if the configuration has a problem.
    """

    def run(self, parsed_args: argparse.Namespace) -> int:
        self._problems = 0
        super().run(parsed_args)
        return FAILED if self._problems else DONE

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        from wharfinger.conf import register_services

        conf = self.app.parsed
        register_services(conf)
        sections, problems = check(conf)
        self._problems = len(problems)
        rows = [
            (value.section, value.key, printable(value.text), printable(value.source))
            for section in sections
            for value in conf.effective(section)
        ]
        return ("Section", "Option", "Value", "Source"), rows


class ConfigValidate(WharfingerCommand, Lister):
    """Check the whole configuration, and the drivers and request filters that it enables.

    Connects to no service. Prints one row per problem, and exits with 1 if there is one.
    """

    def run(self, parsed_args: argparse.Namespace) -> int:
        _sections, self._problems = check(self.app.parsed)
        super().run(parsed_args)
        return FAILED if self._problems else DONE

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        files = ", ".join(self.app.parsed.files) or "no file, only defaults"
        rows = [(code(problem), str(problem)) for problem in self._problems]
        return ("Configuration", "Result"), rows or [(files, "valid")]
