"""The tutorial for authors of drivers: each of its commands and changes, from init to the badge."""

import os
import re
import subprocess
from dataclasses import dataclass
from doctest import ELLIPSIS, OutputChecker
from pathlib import Path
from textwrap import dedent
from xml.etree import ElementTree

import pytest

from tests.lab.drawing import Draw
from tests.packaging import environment
from tests.packaging.conftest import REPOSITORY

PAGE = REPOSITORY / "docs" / "writing-a-driver.rst"
FIRST, LAST = "From init to the badge\n---", "With children\n---"
#: Commands, or a difference: the block's lines are indented.
BLOCK = re.compile(r"(?P<kind>::|\.\. code-block:: diff)\n\n(?P<lines>(?:(?: +.*)?\n)+)")


@dataclass
class Author:
    """An author in a shell, with Wharfinger's wheel in a new virtual environment."""

    directory: Path
    environment: dict[str, str]

    def types(self, command: str) -> str:
        """Run a command; return what it prints. The next one begins in its directory."""
        done = subprocess.run(
            ["bash", "-c", f"{command} && pwd >~/directory"],
            cwd=self.directory,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"$ {command}\n{done.stdout}"
        self.directory = Path(Path(self.environment["HOME"], "directory").read_text().strip())
        return done.stdout

    def edits(self, difference: str) -> None:
        """Change a file as a difference says; each hunk fits at one place."""
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
def author(wheels: Path, tmp_path: Path) -> Author:
    bin = environment.make(tmp_path / "venv")
    environment.install(bin, wheels.glob("wharfinger-*.whl"))
    work = tmp_path / "work"
    work.mkdir()
    kept = {name: os.environ[name] for name in ("LANG", "TMPDIR") if name in os.environ}
    return Author(
        work,
        {
            **kept,
            "HOME": str(tmp_path),
            "PATH": f"{bin}:{os.defpath}",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            # All that is required is installed. The second one has pip's sense: no isolation.
            "PIP_NO_INDEX": "1",
            "PIP_NO_BUILD_ISOLATION": "0",
        },
    )


def test_tutorial_of_the_page_prints_what_it_shows(author: Author, draw: Draw) -> None:
    page = PAGE.read_text()
    tutorial = page[page.index(FIRST) : page.index(LAST)]
    # The random histories take most of the time.
    histories = f"--examples {draw.number(10, 1)}"

    for block in BLOCK.finditer(tutorial):
        lines = dedent(block["lines"]).strip("\n") + "\n"
        if block["kind"] != "::":
            author.edits(lines)
            continue
        for command, shown in re.findall(r"^\$ (.+)\n((?:(?!\$ ).*\n)*)", lines, re.MULTILINE):
            printed = author.types(command.replace("run fleet", f"run fleet {histories}"))
            # Dots at the end stand for nothing, too.
            expected = re.sub(r"\.\.\.\n\Z", "...", shown)
            assert OutputChecker().check_output(expected, printed, ELLIPSIS), (
                f"$ {command}\nthe page shows:\n{shown}\nthe command prints:\n{printed}"
            )

    badge = ElementTree.parse(author.directory / "conformance" / "fleet.svg")
    assert badge.getroot().attrib["aria-label"] == "fleet: core conforms, extended conforms"
    (shown,) = re.findall(r"!\[.*\]\((.+)\)", (author.directory / "README.md").read_text())
    assert (author.directory / shown).is_file()
    assert shown in tutorial
