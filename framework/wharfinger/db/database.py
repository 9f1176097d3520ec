"""The database: one SQLite file in the state directory."""

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from oslo_db import exception as db_exception
from oslo_db.sqlalchemy import enginefacade
from sqlalchemy import delete, select
from sqlalchemy.dialects.sqlite import insert
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from wharfinger.db import migration
from wharfinger.db.models import ProviderRecord
from wharfinger.exceptions import StateError
from wharfinger.sqlite import allow_concurrent_writers, reason

FILE_NAME: Final = "wharfinger.sqlite"
#: SQLite takes a bounded number of parameters in one statement.
_BATCH: Final = 500


@enginefacade.transaction_context_provider
class _Context:
    """What oslo.db keeps a thread's session on."""


class Database:
    """The database of a state directory, created and upgraded when it is opened.

    Raises StateError where the directory or the file cannot be used. Safe for several
    threads and processes.
    """

    def __init__(self, state_path: Path) -> None:
        self.path: Final = state_path / FILE_NAME
        # One manager each: oslo.db's own is global to the process.
        self._manager = enginefacade.transaction_context()
        with self._errors():
            state_path.mkdir(parents=True, exist_ok=True, mode=0o750)
            self._manager.configure(connection=f"sqlite:///{self.path}")
            engine = self._manager.writer.get_engine()
            allow_concurrent_writers(engine)
            migration.upgrade(engine, state_path)

    def provider_records(self, instance: str) -> dict[str, bytes]:
        """The documents of an instance, by provider uuid."""
        with self._errors(), self._manager.reader.using(_Context()) as session:
            rows = session.execute(
                select(ProviderRecord.uuid, ProviderRecord.document).where(
                    ProviderRecord.instance == instance
                )
            )
            return {row.uuid: row.document for row in rows}

    def save_provider_records(self, instance: str, documents: Mapping[str, bytes | None]) -> None:
        """Write documents by provider uuid, all or none; None deletes."""
        written: list[dict[str, object]] = [
            {"instance": instance, "uuid": uuid, "document": document}
            for uuid, document in documents.items()
            if document is not None
        ]
        deleted = [uuid for uuid, document in documents.items() if document is None]
        with self._errors(), self._manager.writer.using(_Context()) as session:
            _upsert(session, written)
            for start in range(0, len(deleted), _BATCH):
                session.execute(
                    delete(ProviderRecord).where(
                        ProviderRecord.instance == instance,
                        ProviderRecord.uuid.in_(deleted[start : start + _BATCH]),
                    )
                )

    def close(self) -> None:
        """Close all connections."""
        self._manager.writer.get_engine().dispose()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except migration.NewerSchemaError as error:
            raise self._state_error(
                f"it was written by a newer version ({error}).",
                "Run that version.",
            ) from error
        except (db_exception.DBError, SQLAlchemyError, OSError) as error:
            cause = reason(error)
            raise self._state_error(
                f"{cause}.",
                "Restore it from a backup, or move that one file away: nothing in Placement is "
                "deleted by that."
                if type(cause) is sqlite3.DatabaseError
                else "Check that state_path can be written and has space left.",
            ) from error

    def _state_error(self, problem: str, remedy: str) -> StateError:
        return StateError(path=str(self.path), problem=problem, remedy=remedy)


def _upsert(session: Session, rows: list[dict[str, object]]) -> None:
    if not rows:
        return
    statement = insert(ProviderRecord)
    session.execute(
        statement.on_conflict_do_update(
            index_elements=[ProviderRecord.instance, ProviderRecord.uuid],
            set_={"document": statement.excluded.document},
        ),
        rows,
    )
