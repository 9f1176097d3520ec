"""One process at a time works on a driver instance of a host."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from wharfinger.exceptions import StateError


@contextmanager
def exclusive(directory: Path, instance: str) -> Iterator[None]:
    """Keep other processes of this host from an instance's work for the time of a block.

    What one has loaded is not what another writes. ``directory`` is the state directory, where
    a lock file says which process it is. Raises StateError at once where another has it.
    """
    path = directory / f"{instance}.lock"
    with ExitStack() as stack:
        try:
            directory.mkdir(parents=True, exist_ok=True, mode=0o750)
            file = stack.enter_context(path.open("ab+", buffering=0))
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            file.truncate(0)
            file.write(str(os.getpid()).encode())
        except BlockingIOError:
            raise StateError(
                path=str(path),
                problem=f"{_holder(path)} is at work on driver instance {instance}.",
                remedy="Wait until it is done, or stop it.",
            ) from None
        except OSError as error:
            raise StateError(
                path=str(path),
                problem=f"{error}.",
                remedy="Run as the user that owns the state directory, and see that it has space.",
            ) from error
        try:
            yield
        finally:
            with suppress(OSError):
                file.truncate(0)  # the next one's number, or none, but not ours
        # The kernel lets go of the lock when the file is closed.


def _holder(path: Path) -> str:
    number = path.read_text()
    return f"process {number}" if number else "another process"
