"""The ``wharfinger`` program, its global options and its exit codes."""

import argparse
import logging
import sys
import threading
import traceback
from collections.abc import Sequence
from functools import cached_property
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final

from cliff.app import App

from wharfinger.cli.commands import Commands
from wharfinger.error_codes import add_codes
from wharfinger.log_levels import QUIET_LIBRARIES
from wharfinger.masking import mask_handlers, masked

if TYPE_CHECKING:
    from wharfinger.conf import Options

DONE: Final = 0
FAILED: Final = 1
DIFFERENCE: Final = 2
WRONG_USAGE: Final = 64
#: The exit code of argparse and cliff for wrong usage, which means DIFFERENCE here.
_THEIR_WRONG_USAGE: Final = 2


class WharfingerApp(App):
    """The ``wharfinger`` program."""

    # Warnings only, since all libraries log at INFO. -v shows INFO.
    DEFAULT_VERBOSE_LEVEL = 0

    def __init__(self) -> None:
        super().__init__(
            description="Publish hardware to OpenStack Placement, driver by driver.",
            version=version("wharfinger"),
            command_manager=Commands("wharfinger.cli"),
            deferred_help=True,
        )

    def build_option_parser(
        self, description: str | None, version: str | None, *args: Any, **kwargs: Any
    ) -> argparse.ArgumentParser:
        parser = super().build_option_parser(description, version, *args, **kwargs)
        parser.add_argument(
            "--config-file",
            action="append",
            metavar="FILE",
            help="A configuration file (repeatable; the last file takes precedence). "
            "Default: the first wharfinger.conf in ~/.wharfinger, ~, /etc/wharfinger and /etc.",
        )
        parser.add_argument(
            "--config-dir",
            action="append",
            metavar="DIR",
            help="A directory of *.conf files (repeatable). These files are read after those of "
            "--config-file, in the order of their names; the last file takes precedence. Default, "
            "unless --config-file is set: the first wharfinger.conf.d in ~/.wharfinger, ~, "
            "/etc/wharfinger and /etc.",
        )
        return parser

    def configure_logging(self) -> None:
        try:
            super().configure_logging()
        except OSError as error:
            path, reason = self.options.log_file, error.strerror
            self.parser.error(f"argument --log-file: {path!r} cannot be written: {reason}")
        mask_handlers(logging.getLogger())
        for handler in logging.getLogger().handlers:
            handler.addFilter(add_codes)
        if self.options.verbose_level > 1:
            return
        for pair in QUIET_LIBRARIES:
            name, _, level = pair.partition("=")
            logging.getLogger(name).setLevel(level)

    @cached_property
    def parsed(self) -> "Options":
        """The configuration with unchecked values. Raises ConfigurationFileError."""
        from wharfinger import conf

        return conf.parse(self.options.config_file, self.options.config_dir)

    @cached_property
    def conf(self) -> "Options":
        """The checked configuration. Raises ConfigurationError and ConfigurationFileError."""
        from wharfinger import conf

        for problem in conf.problems(self.parsed):
            raise problem
        return self.parsed

    def interact(self) -> None:
        # The program was started without a command.
        raise SystemExit(self.run_subcommand(["help"]))

    def run_subcommand(self, argv: list[str]) -> int:
        try:
            self.command_manager.find_command(list(argv))
        except ValueError:
            super().run_subcommand(argv)  # prints similar commands
            return WRONG_USAGE
        return super().run_subcommand(argv)


def _print_thread_error(error: threading.ExceptHookArgs) -> None:
    lines = traceback.format_exception(error.exc_type, error.exc_value, error.exc_traceback)
    sys.stderr.write(masked("".join(lines)))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program and return its exit code."""
    if argv is None:  # not in a test
        threading.excepthook = _print_thread_error
    try:
        return WharfingerApp().run(list(sys.argv[1:] if argv is None else argv))
    except SystemExit as stop:
        return WRONG_USAGE if stop.code == _THEIR_WRONG_USAGE else int(stop.code or DONE)
    except Exception:
        # Python would print the traceback without masking it.
        sys.stderr.write(masked(traceback.format_exc()))
        return FAILED


if __name__ == "__main__":
    sys.exit(main())
