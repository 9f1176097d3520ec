"""Assertions about what a command prints, and changes of its configuration."""

from typing import Any

from tests.lab import inprocess
from tests.lab.program import Done, Program


def failed(done: Done, *told: str) -> None:
    """Assert that a command exits with 1, prints no result, and names these texts in its error."""
    assert (done.code, done.out) == (1, ""), done
    says(done, *told)


def says(done: Done, *told: str) -> None:
    """Assert that a command prints all these texts, and no traceback."""
    for part in told:
        assert part in done.out + done.err, done
    assert "Traceback" not in done.err
    assert "This is a fault" not in done.err


def shown(program: Program, *command: str) -> Any:
    """Run a command, assert that it has no error, and return its JSON output."""
    done = inprocess.run(program, *command, "-f", "json")
    assert (done.code, done.err) == (0, ""), done
    return done.json()


def configure(program: Program, text: str) -> None:
    """Append a text to the configuration."""
    program.config.write_text(f"{program.config.read_text()}\n{text}\n")


def change(program: Program, found: str, replaced: str) -> None:
    text = program.config.read_text()
    assert found in text
    program.config.write_text(text.replace(found, replaced, 1))
