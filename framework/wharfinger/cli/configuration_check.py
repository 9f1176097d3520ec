"""The program with which ``wharfinger agent`` checks a new configuration."""

import argparse
import sys
from collections.abc import Sequence

from wharfinger.agent import configuration_check, parent_process


def main(argv: Sequence[str] | None = None) -> int:
    """Check a configuration, and send its problems to the agent."""
    parser = argparse.ArgumentParser(prog="wharfinger-agent-check")
    parser.add_argument("--config-file", required=True)
    parser.add_argument(
        "--config-name", required=True, help="the name that messages give to the configuration"
    )
    parser.add_argument(
        "--answer",
        type=int,
        required=True,
        help="the file descriptor to which the found problems are written",
    )
    parser.add_argument(
        "--parent",
        type=int,
        required=True,
        help="the process id of the agent; the check ends when the agent ends",
    )
    arguments = parser.parse_args(argv)
    parent_process.end_with(arguments.parent)
    return _check(arguments)


def _check(arguments: argparse.Namespace) -> int:
    from wharfinger import conf as configuration
    from wharfinger.cli.config import check

    conf = configuration.parse([arguments.config_file])
    conf.file_names[arguments.config_file] = arguments.config_name
    _sections, problems = check(conf)
    configuration_check.answer(arguments.answer, [str(one) for one in problems])
    return 0


if __name__ == "__main__":
    sys.exit(main())
