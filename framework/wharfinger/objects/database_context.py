"""Open, inspect and upgrade the database that stores the objects."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from wharfinger.conf import DatabaseSection, DefaultSection, Options
from wharfinger.db.database import FILE_NAME, Database
from wharfinger.db.migration import Schema
from wharfinger.exceptions import StateError


@dataclass(frozen=True, slots=True)
class Context:
    """The context of remotable methods.

    ``database`` is None if this process has not opened the database.
    """

    database: Database | None = None

    @property
    def db(self) -> Database:
        """Return the database; raises StateError if this process has not opened it."""
        if self.database is None:
            raise StateError(
                path="no database",
                problem="this process has not opened the database, and has no connection to "
                "a process that has.",
                remedy="Use a context of wharfinger.objects.connect.",
            )
        return self.database

    def close(self) -> None:
        """Close the database if it is open."""
        if self.database is not None:
            self.database.close()


@dataclass(frozen=True, slots=True)
class Condition:
    """Schema version of a database, and its missing columns by table."""

    name: str
    schema: Schema
    missing: Mapping[str, frozenset[str]]

    @property
    def lacks(self) -> dict[str, str]:
        """Return, by table, a text about each table that is missing or incomplete."""
        return {
            # All our tables have a column id. Without it, the table is missing, or another
            # program's.
            table: "does not exist in this form"
            if "id" in columns
            else f"lacks {', '.join(sorted(columns))}"
            for table, columns in sorted(self.missing.items())
        }


def connect(conf: Options) -> Context:
    """Open the configured database; raises ConfigurationError, StateError.

    The default SQLite file is created or upgraded if needed.
    """
    managed = DatabaseSection.read(conf).connection is None
    return Context(_database(conf, managed=managed))


def local(directory: Path, host: str) -> Context:
    """Open the SQLite file in a state directory, created or upgraded if needed.

    Raises StateError.
    """
    return Context(Database(_url(directory), directory=directory, host=host, managed=True))


def look(conf: Options) -> Condition:
    """Inspect the configured database; raises ConfigurationError, StateError."""
    database = _database(conf, managed=False, look_only=True)
    try:
        return Condition(database.name, database.schema(), database.missing())
    finally:
        database.close()


def upgrade(conf: Options) -> Condition:
    """Upgrade the configured database; return its former condition.

    Raises ConfigurationError, StateError.
    """
    before = look(conf)
    _database(conf, managed=True).close()
    return before


def _database(conf: Options, *, managed: bool, look_only: bool = False) -> Database:
    default = DefaultSection.read(conf)
    section = DatabaseSection.read(conf)
    return Database(
        section.connection or _url(default.state_path),
        directory=default.state_path,
        host=default.host,
        managed=managed,
        options=section.options,
        timeout=section.timeout,
        look_only=look_only,
    )


def _url(directory: Path) -> str:
    return f"sqlite:///{directory / FILE_NAME}"
