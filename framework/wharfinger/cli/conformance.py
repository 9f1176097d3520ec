"""``wharfinger conformance``: whether a driver keeps the contract."""

import argparse
import os
from importlib.util import find_spec
from typing import Any

from cliff.lister import Lister

from wharfinger.cli.app import WRONG_USAGE
from wharfinger.cli.command import WharfingerCommand
from wharfinger.exceptions import WharfingerError

#: pytest's own.
_USAGE_ERROR = 4


class ConformanceRun(WharfingerCommand):
    """Look whether a driver keeps the rules, by pytest --pyargs wharfinger.conformance.

    Exits with 0 if it conforms, with 1 if a rule is not kept, and with 6 if not all was looked at.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument("name", metavar="NAME", help="an entry point of wharfinger.drivers")
        parser.add_argument(
            "--driver-config",
            metavar="FILE",
            help="look at the driver with this configuration, and at the backend that it names; "
            "default: the driver's harness",
        )
        parser.add_argument(
            "--profile",
            choices=("core", "extended"),
            help="core: what needs no harness; default: extended, which is all",
        )
        parser.add_argument(
            "--rule",
            metavar="ID",
            action="append",
            type=_rule,
            help="only this rule (several times: these)",
        )
        parser.add_argument(
            "--known-failure",
            metavar="'ID: REASON'",
            action="append",
            help="a rule that is known not to be kept; it is a failure then if it is kept",
        )
        parser.add_argument(
            "--report", metavar="DIR", help="write NAME.json, NAME.md and NAME.svg there"
        )
        parser.add_argument("--junit", metavar="FILE", help="write a JUnit file")
        parser.add_argument("--seed", metavar="N", help="of the random histories; default: any")
        parser.add_argument("--examples", metavar="N", help="how many random histories")
        parser.add_argument("--timeout", metavar="SECONDS", help="how long a rule may take")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        _check_installed()
        import pytest

        code = int(pytest.main(_arguments(parsed_args)))
        return WRONG_USAGE if code == _USAGE_ERROR else code


class ConformanceRules(WharfingerCommand, Lister):
    """List the rules that a driver has to keep, or should, or may."""

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        _check_installed()
        from wharfinger.conformance.rules import all_rules

        head = ("ID", "Level", "Profile", "Since", "Rule", "Reason")
        return head, [
            (rule.id, rule.level, rule.profile, rule.since, rule.says, rule.because)
            for rule in all_rules()
        ]


def _rule(id: str) -> str:
    _check_installed()
    from wharfinger.conformance.rules import all_rules

    if id not in {rule.id for rule in all_rules()}:
        raise argparse.ArgumentTypeError(
            f"there is no rule {id}; wharfinger conformance rules lists them"
        )
    return id


def _check_installed() -> None:
    """Raise WharfingerError where a distribution of the extra "conformance" is missing."""
    for name in ("hypothesis", "placement", "pytest", "webob"):
        if find_spec(name) is None:
            raise WharfingerError(
                reason=f"the conformance kit needs {name}: pip install 'wharfinger[conformance]'"
            )


def _arguments(parsed_args: argparse.Namespace) -> list[str]:
    """What pytest is given: nothing of what is configured where this happens to be run."""
    options = {
        "--driver": parsed_args.name,
        "--driver-config": parsed_args.driver_config,
        "--driver-profile": parsed_args.profile,
        "--driver-report": parsed_args.report,
        "--driver-seed": parsed_args.seed,
        "--driver-examples": parsed_args.examples,
        "--driver-timeout": parsed_args.timeout,
        "--junit-xml": parsed_args.junit,
        "-k": " or ".join(parsed_args.rule or ()) or None,
    }
    given = [f"{option}={value}" for option, value in options.items() if value and option[1] == "-"]
    if options["-k"]:
        given += ["-k", options["-k"]]
    given += [f"--driver-known-failure={one}" for one in parsed_args.known_failure or ()]
    own = ["-c", os.devnull, "--rootdir", ".", "--noconftest", "--no-header", "--disable-warnings"]
    return ["--pyargs", "wharfinger.conformance", *own, *given]
