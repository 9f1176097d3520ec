"""The durable memory of what driver instances have applied to Placement."""

import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Protocol

from wharfinger.db.database import Database
from wharfinger.exceptions import StateError


class ProviderRecords(Protocol):
    """Documents by driver instance and provider uuid.

    What a document says is its writer's business; a write is durable when ``save``
    returns, all of it or none. Both methods raise StateError.
    """

    def load(self, instance: str) -> Mapping[str, bytes]:
        """All documents of an instance, by provider uuid."""

    def save(self, instance: str, documents: Mapping[str, bytes | None]) -> None:
        """Write documents by provider uuid; None forgets."""

    def exclusive(self, instance: str) -> AbstractContextManager[None]:
        """Keep everybody else from an instance's records for the time of a block.

        What one process has loaded is not what another writes. Raises StateError at once
        where somebody has them, saying who.
        """


class LocalProviderRecords:
    """Provider records in the database of a state directory."""

    def __init__(self, state_path: Path) -> None:
        self._database = Database(state_path)

    def load(self, instance: str) -> Mapping[str, bytes]:
        """All documents of an instance, by provider uuid."""
        return self._database.provider_records(instance)

    def save(self, instance: str, documents: Mapping[str, bytes | None]) -> None:
        """Write documents by provider uuid; None forgets."""
        self._database.save_provider_records(instance, documents)

    @contextmanager
    def exclusive(self, instance: str) -> Iterator[None]:
        """Keep everybody else from an instance's records for the time of a block."""
        with _locked(self._database.path.parent / f"{instance}.lock", instance):
            yield

    def close(self) -> None:
        """Let go of the database."""
        self._database.close()


@contextmanager
def _locked(path: Path, instance: str) -> Iterator[None]:
    """Hold a lock file, with the number of this process in it."""
    with ExitStack() as stack:
        try:
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
