"""The tutorial for driver authors: each of its commands and changes, from init to the badge."""

import os
import re
import shutil
from pathlib import Path
from textwrap import dedent
from xml.etree import ElementTree

import pytest

from tests.lab.drawing import Draw
from tests.lab.examples import Shell, check, commands
from tests.packaging import environment
from tests.packaging.conftest import REPOSITORY

PAGE = REPOSITORY / "docs" / "tutorials" / "writing-a-driver.rst"
#: A block of commands or of a diff, whose lines are indented.
BLOCK = re.compile(r"(?P<kind>::|\.\. code-block:: diff)\n\n(?P<lines>(?:(?: +.*)?\n)+)")
PARTIAL = 6


class Author(Shell):
    """An author in a clone, with a new virtual environment."""

    def edits(self, difference: str) -> None:
        """Apply a diff to a file; assert that each hunk fits at exactly one place."""
        head, *hunks = re.split(r"^@@\n", difference, flags=re.MULTILINE)
        (name,) = re.findall(r"^\+\+\+ b/(.+)$", head, re.MULTILINE)
        text = (self.directory / name).read_text()
        for hunk in hunks:
            lines = hunk.splitlines(keepends=True)
            before = "".join(line[1:] for line in lines if line[0] != "+")
            assert text.count(before) == 1, f"{name} does not have once:\n{before}"
            text = text.replace(before, "".join(line[1:] for line in lines if line[0] != "-"))
        (self.directory / name).write_text(text)


@pytest.fixture
def author(source: Path, tmp_path: Path) -> Author:
    bin = environment.make(tmp_path / "venv")
    clone = tmp_path / "work" / "wharfinger"
    shutil.copytree(source, clone)
    kept = {name: os.environ[name] for name in ("LANG", "TMPDIR") if name in os.environ}
    return Author(
        clone,
        {
            **kept,
            "HOME": str(tmp_path),
            "PATH": f"{bin}:{os.defpath}",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            # All requirements are installed. The value 0 of the second option means no isolation.
            "PIP_NO_INDEX": "1",
            "PIP_NO_BUILD_ISOLATION": "0",
        },
    )


def test_tutorial_of_the_page_prints_what_it_shows(author: Author, draw: Draw) -> None:
    tutorial = PAGE.read_text()
    histories = draw.number(5, some=1)

    for block in BLOCK.finditer(tutorial):
        lines = dedent(block["lines"]).strip("\n") + "\n"
        if block["kind"] != "::":
            author.edits(lines)
            continue
        for typed, shown in commands(lines):
            command, expected = _shortened(typed, shown, histories)
            check(command, expected, author.run(command))

    badge = ElementTree.parse(author.directory / "conformance" / "fleet.svg")
    assert badge.getroot().attrib["aria-label"] == "fleet: core conforms, extended conforms"
    (image,) = re.findall(r"!\[.*\]\((.+)\)", (author.directory / "README.md").read_text())
    assert (author.directory / image).is_file()
    assert image in tutorial


def _shortened(command: str, shown: str, histories: int) -> tuple[str, str]:
    """Limit the command that checks the core rules to one rule, and the last one, which checks all.

    The last one gets a number of random histories. Return the command and the output to expect.
    """
    if "--report" in command:
        return f"{command} --examples {histories}", shown
    if "--profile core" not in command:
        return command, shown
    command += f" --rule WHF-201 || test $? -eq {PARTIAL}"
    return command, shown.replace("CONFORMS", "PARTIAL")
