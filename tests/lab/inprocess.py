"""Run a command of the program wharfinger in this process, which is quicker than a new one."""

import io
import logging
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout

from tests.lab.program import Done, Program
from wharfinger.cli.app import main


def run(program: Program, *arguments: str) -> Done:
    """Run the program in this process; return its exit code and output."""
    out, err = io.StringIO(), io.StringIO()
    with logging_of_its_own(), redirect_stdout(out), redirect_stderr(err):
        code = main(["--config-file", str(program.config), *arguments])
    return Done(code, out.getvalue(), err.getvalue())


@contextmanager
def logging_of_its_own() -> Iterator[None]:
    """In the block, let the root logger be as in a new process."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    root.handlers[:] = []
    # The program does not log INFO by default, but to format these records takes time.
    logging.disable(logging.INFO)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)
        root.handlers[:] = handlers
        root.setLevel(level)
