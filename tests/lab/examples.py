"""Run the examples on the pages of the documentation, and compare their output.

An example is a block of commands after ``$``, with the output of each. A comment before it,
``.. before: NAME`` or ``<!-- before: NAME -->``, names the preparation by the test. An example with
the comment ``run by: PATH`` is run by that test.
"""

import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from doctest import ELLIPSIS, NORMALIZE_WHITESPACE, OutputChecker
from pathlib import Path
from textwrap import dedent
from typing import Final

#: A block of commands, or a comment for the next one.
_PART: Final = re.compile(
    r"^ *(?:\.\.|<!--) (?P<kind>before|run by): (?P<text>.+?)(?: -->)?\n"
    r"|^(?P<indent> +)\$ .*\n(?:(?P=indent).*\n|\n(?=(?P=indent)))*",
    re.MULTILINE,
)
_COMMAND: Final = re.compile(r"^\$ ((?:.*\\\n)*.+)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)
#: Parts of an output that differ from run to run, and their replacements.
_MASKED: Final = (
    (re.compile(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"), "<uuid>"),
    (re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(\+00:00)?"), "<time>"),
    (re.compile(r"\b\d\d:\d\d:\d\d\b"), "<clock>"),
    (re.compile(r"\b\d+ ?(s|m|h|d)\b"), "<age>"),
    (re.compile(r"--+"), "--"),
)


@dataclass(frozen=True)
class Block:
    """An example: its commands, each with the output on the page.

    ``before`` names the preparation by the test. ``run_by`` is another test that runs the example.
    """

    commands: tuple[tuple[str, str], ...]
    before: str | None = None
    run_by: str | None = None


def blocks(page: str) -> Iterator[Block]:
    """Yield the examples of a page in reStructuredText or Markdown."""
    comment: dict[str, str] = {}
    for part in _PART.finditer(page):
        if part["kind"]:
            comment[part["kind"]] = part["text"]
        else:
            yield Block(tuple(commands(part[0])), comment.get("before"), comment.get("run by"))
            comment = {}


def commands(block: str) -> Iterator[tuple[str, str]]:
    """Yield the commands of a block, each with its output on the page."""
    return iter(_COMMAND.findall(dedent(block).strip("\n") + "\n"))


def check(command: str, shown: str, printed: str, *homes: str) -> None:
    """Require that the output of a command is that on the page.

    "..." on the page stands for any text. White space need not agree, since pages wrap long lines.
    """
    shown, printed = masked(shown, *homes), masked(printed, *homes)
    # "..." at the end also stands for an empty text.
    expected = re.sub(r"\.\.\.\n+\Z", "...", shown)
    assert OutputChecker().check_output(expected, printed, ELLIPSIS | NORMALIZE_WHITESPACE), (
        f"$ {command}\nthe page shows:\n{shown}\nthe command prints:\n{printed}"
    )


def masked(text: str, *homes: str) -> str:
    """Replace what differs from run to run: uuids, times, home directories, lines of tables."""
    for home in homes:
        text = text.replace(home, "~")
    for pattern, mask in _MASKED:
        text = pattern.sub(mask, text)
    return text


@dataclass
class Shell:
    """Runs commands in bash; each begins with the directory and variables of the one before."""

    directory: Path
    environment: Mapping[str, str]

    def run(self, command: str) -> str:
        """Run a command, require that it succeeds, and return its output."""
        done = subprocess.run(
            ["bash", "-c", f"{command} && env -0 >~/environment"],
            cwd=self.directory,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"$ {command}\n{done.stdout}"
        variables = Path(self.environment["HOME"], "environment").read_text().split("\0")
        self.environment = dict(one.split("=", 1) for one in variables if one)
        self.directory = Path(self.environment["PWD"])
        return done.stdout
