"""Access of a process to the database of its objects."""

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

    ``database`` is None in a process without its own access: there,
    WharfingerObject.indirection_api calls the process that has the database open.
    """

    database: Database | None = None

    @property
    def db(self) -> Database:
        """Return the database; raises StateError if there is none."""
        if self.database is None:
            raise StateError(
                path="no database",
                problem="this process has no database, and no other process serves it.",
                remedy="Open the database first.",
            )
        return self.database

    def close(self) -> None:
        """Close the database."""
        if self.database is not None:
            self.database.close()


@dataclass(frozen=True, slots=True)
class Condition:
    """Condition of a database.

    ``name`` is the file, or the URL without its password; ``schema`` its version. ``missing`` are
    the columns that this release uses and the database lacks, by table.
    """

    name: str
    schema: Schema
    missing: Mapping[str, frozenset[str]]

    @property
    def lacks(self) -> dict[str, str]:
        """Return what each table lacks, as text."""
        return {
            # All our tables have this column: the table is missing, old, or another program's.
            table: "does not exist in this form"
            if "id" in columns
            else f"lacks {', '.join(sorted(columns))}"
            for table, columns in sorted(self.missing.items())
        }


def connect(conf: Options) -> Context:
    """Open the database that the configuration names.

    Raises ConfigurationError, StateError.
    """
    managed = DatabaseSection.read(conf).connection is None
    return Context(_database(conf, managed=managed))


def local(directory: Path, host: str) -> Context:
    """Open the SQLite file of a state directory; create or upgrade it if needed.

    ``host`` is the service host. Raises StateError.
    """
    return Context(Database(_url(directory), directory=directory, host=host, managed=True))


def look(conf: Options) -> Condition:
    """Return the condition of the configured database, without changing it.

    Raises ConfigurationError, StateError.
    """
    database = _database(conf, managed=False, look_only=True)
    try:
        return Condition(database.name, database.schema(), database.missing())
    finally:
        database.close()


def upgrade(conf: Options) -> Condition:
    """Upgrade the configured database to the newest version; return its condition before.

    A newer database that has all that this release needs stays as it is. Raises
    ConfigurationError, StateError.
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
