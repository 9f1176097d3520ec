"""The commands on the pages and in messages are commands of the program, with its options."""

import argparse
import inspect
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import pytest

from tests.lab.examples import blocks
from tests.lab.source_strings import VALUE, strings
from wharfinger.cli.app import WharfingerApp

ROOT: Final = Path(__file__).resolve().parents[3]
PAGES: Final = [*ROOT.glob("docs/**/*.rst"), *ROOT.glob("*.md"), *ROOT.glob("*/**/README.md")]
#: Before a command, and after it.
_SHELL: Final = re.compile(r";.*|>.*|\|.*|\\\n")
#: These name no command.
_BARE: Final = {"wharfinger [OPTIONS] COMMAND", "wharfinger --help", "wharfinger --version"}
_INLINE: Final = re.compile(r"(?<!\w)`(wharfinger [^`]+)`")


def _shown() -> Iterator[str]:
    """Yield the commands of the program that the pages show after ``$``."""
    for page in PAGES:
        for block in blocks(page.read_text()):
            for command, _output in block.commands:
                if command.startswith("wharfinger "):
                    yield _SHELL.sub("", command)


def _named() -> set[str]:
    """Return the commands in backquotes on the pages and in messages of the code."""
    texts = [*(" ".join(page.read_text().split()) for page in PAGES), *strings()]
    found = {one for text in texts for one in _INLINE.findall(text.replace("``", "`"))}
    return {" ".join(one.split()) for one in found} - _BARE


def _parser(app: WharfingerApp, words: Sequence[str]) -> tuple[argparse.ArgumentParser, list[str]]:
    """Return the parser of the command that words begin with, and the rest of them."""
    app.options, rest = app.parser.parse_known_args(list(words))
    factory, name, arguments = app.command_manager.find_command(rest)
    named = "cmd_name" in inspect.getfullargspec(factory.__init__).args
    command = factory(app, app.options, **({"cmd_name": name} if named else {}))
    return command.get_parser(name), arguments


@pytest.mark.parametrize("command", sorted(set(_shown())))
def test_command_that_a_page_shows_is_parsed(command: str) -> None:
    parser, arguments = _parser(WharfingerApp(), shlex.split(command)[1:])

    parser.parse_args(arguments)


def test_commands_that_texts_name_exist_with_their_options() -> None:
    app = WharfingerApp()
    commands = [name.split() for name, _ in app.command_manager]
    named = _named()

    assert "wharfinger agent status" in named
    wrong = sorted(one for one in named if not _exists(one, app, commands))
    assert not wrong, wrong


def _exists(command: str, app: WharfingerApp, commands: Sequence[list[str]]) -> bool:
    """Return whether this is a command, with its options, or a group of commands."""
    _, words = app.parser.parse_known_args(command.replace(VALUE, "X").split()[1:])
    if not any(name == words[: len(name)] for name in commands):
        return any(name[: len(words)] == words for name in commands)
    parser, _ = _parser(app, words)
    known = re.findall(r"--[\w-]+", parser.format_help())
    return all(one in known for one in words if one.startswith("--"))
