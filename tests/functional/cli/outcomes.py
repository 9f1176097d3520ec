"""Expectations that tests of commands have of a run."""

from typing import Any

from tests.lab import inprocess
from tests.lab.program import Done, Program


def failed(done: Done, *told: str) -> None:
    """Assert that a command failed, printed no result, and prints these words in its error."""
    assert (done.code, done.out) == (1, ""), done
    says(done, *told)


def says(done: Done, *told: str) -> None:
    """Assert that a command prints all these words, without a traceback."""
    for part in told:
        assert part in done.out + done.err, done
    assert "Traceback" not in done.err
    assert "This is a fault" not in done.err


def shown(program: Program, *command: str) -> Any:
    """Return the JSON output of a command that has no problem."""
    done = inprocess.run(program, *command, "-f", "json")
    assert (done.code, done.err) == (0, ""), done
    return done.json()


def configure(program: Program, text: str) -> None:
    """Add to the configuration."""
    program.config.write_text(f"{program.config.read_text()}\n{text}\n")


def change(program: Program, found: str, replaced: str) -> None:
    """Replace a part of the configuration."""
    text = program.config.read_text()
    assert found in text
    program.config.write_text(text.replace(found, replaced, 1))
