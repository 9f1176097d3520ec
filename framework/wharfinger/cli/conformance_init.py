"""The command ``wharfinger conformance init``."""

import argparse
from pathlib import Path

from wharfinger.cli.app import DONE
from wharfinger.cli.command import WharfingerCommand


class ConformanceInit(WharfingerCommand):
    """Create the package of a new driver, with a test harness, that passes all rules of the kit.

    Change the driver until it publishes your machines.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument(
            "name",
            metavar="NAME",
            type=_name,
            help="the name of the new driver; its Python module is wharfinger_NAME, with "
            "_ for each -",
        )
        parser.add_argument(
            "--directory",
            metavar="DIR",
            type=Path,
            help="the directory for the package, which must be empty or missing; default: "
            "wharfinger-NAME",
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        from wharfinger.conformance import new_package

        name = parsed_args.name
        directory = parsed_args.directory or Path(f"wharfinger-{name}")
        for file in new_package.write(name, directory):
            self.app.stdout.write(f"{file}\n")
        return DONE


def _name(name: str) -> str:
    from wharfinger.conformance import new_package

    try:
        return new_package.check_name(name)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
