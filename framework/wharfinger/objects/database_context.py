"""Where the objects of a process are kept."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from wharfinger.conf import DatabaseSection, DefaultSection, Options
from wharfinger.db.database import FILE_NAME, Database
from wharfinger.db.migration import Schema
from wharfinger.exceptions import StateError


@dataclass(frozen=True, slots=True)
class Context:
    """What the remotable methods of objects are given.

    ``database`` is where they are kept, None in a process whose objects are kept by another:
    there, WharfingerObject.indirection_api carries the methods over.
    """

    database: Database | None = None

    @property
    def db(self) -> Database:
        """The database; raises StateError where there is none."""
        if self.database is None:
            raise StateError(
                path="no database",
                problem="this process has none, and no other process serves it.",
                remedy="Open one first.",
            )
        return self.database

    def close(self) -> None:
        """Let go of the database."""
        if self.database is not None:
            self.database.close()


@dataclass(frozen=True, slots=True)
class Condition:
    """What a database has.

    ``name`` is the file, or the URL without its password; ``schema`` its version; ``missing``
    what it lacks of what is used here, columns by table.
    """

    name: str
    schema: Schema
    missing: Mapping[str, frozenset[str]]

    @property
    def lacks(self) -> dict[str, str]:
        """What is missing of each table, in words."""
        return {
            # Without that column it is no table of ours, or an old one.
            table: "is not there in this form"
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
    """Open the SQLite file of a state directory, made and upgraded as need be.

    ``host`` is the service host. Raises StateError.
    """
    return Context(Database(_url(directory), directory=directory, host=host, managed=True))


def look(conf: Options) -> Condition:
    """What the database has that the configuration names, or is to have; it is left as it is.

    Raises ConfigurationError, StateError.
    """
    database = _database(conf, managed=False, look_only=True)
    try:
        return Condition(database.name, database.schema(), database.missing())
    finally:
        database.close()


def upgrade(conf: Options) -> Condition:
    """Bring the database that the configuration names to the newest version; what it was before.

    One that is newer, and has what is needed here, is left as it is. Raises ConfigurationError,
    StateError.
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
