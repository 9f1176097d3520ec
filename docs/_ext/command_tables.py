"""The description and the arguments of a command for Sphinx, from its parser.

The directive ``command`` takes the words of a command, such as ``provider reserve``. The options of
the output formats are those of cliff, and are left out.
"""

import argparse
from collections.abc import Iterator
from importlib.metadata import entry_points
from inspect import getfile
from typing import Any

from cliff.command import Command
from docutils.nodes import Node
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective
from tables import markup, table


class CommandArguments(SphinxDirective):
    """The text of ``wharfinger help COMMAND``, as a table."""

    required_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[Node]:
        name = "_".join(self.arguments[0].split())
        [found] = entry_points(group="wharfinger.cli", name=name)
        command: Command = found.load()(None, None)
        self.env.note_dependency(getfile(type(command)))
        return self.parse_text_to_nodes("\n".join(_lines(command)))


def _lines(command: Command) -> Iterator[str]:
    for paragraph in command.get_description().split("\n\n"):
        yield from (markup(paragraph), "")
    rows = list(_rows(command.get_parser("")))
    if rows:
        yield from table(("argument", "meaning"), rows)


def _rows(parser: argparse.ArgumentParser) -> Iterator[tuple[str, str]]:
    formatter = argparse.HelpFormatter("")
    for group in parser._action_groups:
        if "formatter" in (group.title or "").lower():
            continue
        for action in group._group_actions:
            if action.help and action.dest != "help":
                needed = " (required)" if action.option_strings and action.required else ""
                yield (
                    f"``{formatter._format_action_invocation(action)}``",
                    f"{markup(formatter._expand_help(action))}{needed}",
                )


def setup(app: Sphinx) -> dict[str, Any]:
    """Add the directive."""
    app.add_directive("command", CommandArguments)
    return {"parallel_read_safe": True}
