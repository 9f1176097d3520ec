"""The durable memory of what driver instances have applied to Placement."""

import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
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
        path = self._database.path.parent / f"{instance}.lock"
        try:
            file = path.open("a+")
        except OSError as error:
            raise StateError(
                path=str(path),
                problem=f"{error}.",
                remedy="Run as the user that owns the state directory.",
            ) from error
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.seek(0)
                raise StateError(
                    path=str(path),
                    problem=f"process {file.read()} is at work on driver instance {instance}.",
                    remedy="Wait until it is done, or stop it.",
                ) from None
            file.truncate(0)
            file.write(str(os.getpid()))
            file.flush()
            yield  # the kernel lets go of the lock when the file is closed

    def close(self) -> None:
        """Let go of the database."""
        self._database.close()
