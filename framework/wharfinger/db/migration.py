"""Read and upgrade the schema of a database."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Final

import sqlalchemy as sa
from sqlalchemy import Connection, Engine

from wharfinger.db.tables import METADATA
from wharfinger.sqlite import schema_lock

#: An arbitrary id of the server lock that an upgrade holds.
_LOCK: Final = 0x57484152
_MIGRATIONS: Final = resources.files(__package__) / "migrations"
#: Seconds that MySQL waits for another upgrade of the same database.
_LOCK_TIMEOUT: Final = 600
#: alembic's table with the version.
_VERSION: Final = sa.table("alembic_version", sa.column("version_num"))


class BrokenSchemaError(Exception):
    """The schema version is ambiguous, or alembic cannot upgrade the database."""


@dataclass(frozen=True, slots=True)
class Schema:
    """The schema version of a database, and the newest of this release.

    ``current`` is None for a database without a version.
    """

    current: str | None
    head: str
    is_known: bool

    @property
    def is_head(self) -> bool:
        """Return whether the database has the newest schema of this release."""
        return self.current == self.head


def schema(engine: Engine) -> Schema:
    """Return the schema version of a database. Raises BrokenSchemaError."""
    with engine.connect() as connection:
        return _schema(connection)


def upgrade(engine: Engine, host: str, *, directory: Path, revision: str = "head") -> None:
    """Create or upgrade the tables. Raises BrokenSchemaError and TimeoutError."""
    from alembic import command, config  # noqa: PLC0415 - takes long
    from alembic.util import CommandError  # noqa: PLC0415 - takes long

    scripts = config.Config()
    # alembic would interpolate a %.
    scripts.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    scripts.attributes["host"] = host
    is_file = engine.dialect.name == "sqlite"
    with (
        schema_lock(directory if is_file else None),
        engine.connect() as connection,
        nullcontext() if is_file else _upgrade_lock(connection),
    ):
        is_known = _schema(connection).is_known
        connection.rollback()
        if is_known:
            scripts.attributes["connection"] = connection
            try:
                command.upgrade(scripts, revision)
            except CommandError as error:
                raise BrokenSchemaError(str(error)) from error


def missing(engine: Engine) -> Mapping[str, frozenset[str]]:
    """Return the columns that a database lacks, by table."""
    there = {
        table: {column["name"] for column in columns}
        for (_schema, table), columns in sa.inspect(engine).get_multi_columns().items()
    }
    lacking = {
        table.name: frozenset(table.columns.keys()) - there.get(table.name, set())
        for table in METADATA.sorted_tables
    }
    return {table: columns for table, columns in lacking.items() if columns}


def _schema(connection: Connection) -> Schema:
    known = _revisions()
    current = _current(connection)
    return Schema(current, known[-1], current is None or current in known)


def _current(connection: Connection) -> str | None:
    if not sa.inspect(connection).has_table(_VERSION.name):
        return None
    versions = list(connection.scalars(sa.select(_VERSION.c.version_num)))
    if len(versions) > 1:
        raise BrokenSchemaError(f"it has more than one version: {', '.join(map(str, versions))}")
    return versions[0] if versions else None


@cache
def _revisions() -> tuple[str, ...]:
    files = (_MIGRATIONS / "versions").iterdir()
    return tuple(sorted(file.name.partition("_")[0] for file in files if file.name[0].isdigit()))


@contextmanager
def _upgrade_lock(connection: Connection) -> Iterator[None]:
    if connection.dialect.name == "postgresql":
        take, give = f"pg_advisory_lock({_LOCK})", f"pg_advisory_unlock({_LOCK})"
    else:
        # Lock names are global to the server, and have at most 64 characters.
        name = f"CONCAT('{_LOCK}.', MD5(DATABASE()))"
        take, give = f"GET_LOCK({name}, {_LOCK_TIMEOUT})", f"RELEASE_LOCK({name})"
    answer = connection.scalar(sa.text(f"SELECT {take}"))
    connection.commit()
    if answer != 1 and connection.dialect.name != "postgresql":  # PostgreSQL waits without a limit
        raise TimeoutError(f"another process has been upgrading it for {_LOCK_TIMEOUT} seconds")
    try:
        yield
    finally:
        connection.rollback()
        connection.execute(sa.text(f"SELECT {give}"))
        connection.commit()
