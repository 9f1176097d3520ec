"""``wharfinger config``: show and validate the configuration."""

import argparse
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cliff.lister import Lister

from wharfinger.cli.app import DONE, FAILED
from wharfinger.cli.command import WharfingerCommand
from wharfinger.error_codes import code
from wharfinger.exceptions import WharfingerError, printable

if TYPE_CHECKING:
    from wharfinger.conf import Options
    from wharfinger.reconcile.driver_instance_loader import Check


def check(conf: "Options") -> "Check":
    """Check the whole configuration, including the drivers and request filters that it names.

    Return its sections and problems. The check connects to no service.
    """
    from wharfinger.conf import SchedulingSection
    from wharfinger.placement import session
    from wharfinger.reconcile import driver_instance_loader
    from wharfinger.scheduling.request_filters import loader

    found = driver_instance_loader.check(conf)
    # An invalid section is reported only once.
    problems = {str(problem): problem for problem in found.problems}
    for look in (
        lambda: loader.find(SchedulingSection.read(conf).request_filters),
        lambda: session.check(conf),
    ):
        try:
            look()
        except WharfingerError as error:
            problems.setdefault(str(error), error)
    return replace(found, problems=tuple(problems.values()))


class ConfigShow(WharfingerCommand, Lister):
    """Show the value and the source of each option; secrets are masked.

    Exits with 1 if the configuration has a problem; `wharfinger config validate` lists all.
    """

    def run(self, parsed_args: argparse.Namespace) -> int:
        self._problems = 0
        super().run(parsed_args)
        return FAILED if self._problems else DONE

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        from wharfinger.conf import register_services

        conf = self.app.parsed
        register_services(conf)
        found = check(conf)
        self._problems = len(found.problems)
        rows = [
            (value.section, value.key, printable(value.text), printable(value.source))
            for section in found.sections
            for value in conf.effective(section)
        ]
        return ("Section", "Option", "Value", "Source"), rows


class ConfigValidate(WharfingerCommand, Lister):
    """Check the whole configuration and the drivers that it enables.

    The command connects to no service. It prints one row per problem, and exits with 1 if there is
    one.
    """

    def run(self, parsed_args: argparse.Namespace) -> int:
        self._problems = check(self.app.parsed).problems
        super().run(parsed_args)
        return FAILED if self._problems else DONE

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        files = ", ".join(self.app.parsed.files) or "no file, only defaults"
        rows = [(code(problem), str(problem)) for problem in self._problems]
        return ("Configuration", "Result"), rows or [(files, "valid")]
