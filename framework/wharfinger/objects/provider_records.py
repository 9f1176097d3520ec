"""The durable memory of what driver instances have applied to Placement."""

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from wharfinger.db.database import Database


class ProviderRecords(Protocol):
    """Documents by driver instance and provider uuid.

    What a document says is its writer's business; a write is durable when ``save``
    returns, all of it or none. Both methods raise StateError.
    """

    def load(self, instance: str) -> Mapping[str, bytes]:
        """All documents of an instance, by provider uuid."""

    def save(self, instance: str, documents: Mapping[str, bytes | None]) -> None:
        """Write documents by provider uuid; None forgets."""


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

    def close(self) -> None:
        """Let go of the database."""
        self._database.close()
