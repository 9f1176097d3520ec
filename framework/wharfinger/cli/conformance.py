"""The commands ``wharfinger conformance run`` and ``conformance rules``."""

import argparse
import signal
from importlib.util import find_spec
from typing import Any

from cliff.lister import Lister

from wharfinger.cli.command import WharfingerCommand
from wharfinger.exceptions import CommandFailed


class ConformanceRun(WharfingerCommand):
    """Check a driver against the rules of the conformance kit.

    Exits with 1 if the verdict is FAILED, and with 6 if it is PARTIAL.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        _check_installed()
        from wharfinger.conformance.run_options import add_options, driver_name, rule_id

        parser = super().get_parser(prog_name)
        parser.add_argument(
            "name",
            metavar="NAME",
            type=driver_name,
            help="the driver to check: its name in the entry point group wharfinger.drivers",
        )
        parser.add_argument(
            "--rule",
            metavar="ID",
            action="append",
            type=rule_id,
            help="check only the rule with this id, such as WHF-505 (repeatable); default: all "
            "rules of --profile",
        )
        add_options(parser.add_argument)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        from wharfinger.conformance import terminal_output
        from wharfinger.conformance.exceptions import NotShown
        from wharfinger.conformance.rules import Level, all_rules
        from wharfinger.conformance.run import Run
        from wharfinger.conformance.run_options import Asked

        asked = Asked.read(parsed_args.name, parsed_args)
        rules = [one for one in all_rules() if not parsed_args.rule or one.id in parsed_args.rule]
        # A service manager or a CI ends a run with SIGTERM: write the results so far to the report.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        problem = ""
        try:
            with Run(asked, parsed_args.report) as run:
                for rule in rules:
                    result = run.check(rule)
                    self._print(terminal_output.progress(result))
                    if result.status.is_bad and rule.level is Level.MUST:
                        self._print(terminal_output.failure(result, asked))
        except KeyboardInterrupt:
            problem = "the run was interrupted"
        except NotShown as error:  # the harness does not stop
            problem = str(error)
        self._print("", *run.summary(), terminal_output.last_word(run.verdicts))
        if problem:
            self._print(problem)
        return int(run.exit_code) or bool(problem)

    def _print(self, *lines: str) -> None:
        self.app.stdout.write("".join(f"{line}\n" for line in lines))
        self.app.stdout.flush()


class ConformanceRules(WharfingerCommand, Lister):
    """List the rules of the conformance kit, which a driver must, should or may follow."""

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        _check_installed()
        from wharfinger.conformance.rules import all_rules

        head = ("ID", "Level", "Profile", "Since", "Rule", "Reason")
        return head, [
            (rule.id, rule.level, rule.profile, rule.since, rule.says, rule.because)
            for rule in all_rules()
        ]


def _check_installed() -> None:
    for name in ("hypothesis", "placement", "webob"):
        if find_spec(name) is None:
            raise CommandFailed(
                reason=f"the conformance kit needs the Python package {name}, which is not "
                "installed. Run: pip install 'wharfinger[conformance]'"
            )
