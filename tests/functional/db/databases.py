"""Databases that start empty, and direct access to them."""

from pathlib import Path
from typing import Any

import fixtures
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext

from wharfinger.db import migration
from wharfinger.db.database import Database
from wharfinger.db.tables import METADATA
from wharfinger.objects import Context
from wharfinger.objects.database_context import local

HOST = "test-host"
#: A schema version that this release does not know.
FUTURE = "9999"


class Place(fixtures.Fixture):
    """An empty database, and the state directory of a process that uses it."""

    engine: sa.Engine

    def __init__(self, url: str, directory: Path) -> None:
        super().__init__()
        self.url = url
        self.directory = directory

    def _setUp(self) -> None:
        self.engine = sa.create_engine(self.url, poolclass=sa.NullPool)
        self.addCleanup(self.engine.dispose)

    @property
    def kind(self) -> str:
        """Return SQLAlchemy's name of the database."""
        return self.engine.dialect.name

    def open(self) -> Context:
        """Open the database as one that the configuration names: it is not upgraded."""
        context = connect(self.url, self.directory)
        self.addCleanup(context.close)
        return context

    def open_as_our_own(self) -> Context:
        """Open the database as the file of the state directory."""
        context = local(self.directory, HOST)
        self.addCleanup(context.close)
        return context

    def upgrade(self, revision: str = "head") -> None:
        """Upgrade the database to a schema version, as another process does."""
        migration.upgrade(self.engine, HOST, directory=self.directory, revision=revision)

    def execute(self, *statements: str, **values: Any) -> None:
        """Execute statements without the code under test."""
        with self.engine.begin() as connection:
            for statement in statements:
                connection.execute(sa.text(statement), values)

    def rows(self, table: str) -> list[dict[str, Any]]:
        with self.engine.connect() as connection:
            found = connection.execute(sa.text(f"SELECT * FROM {table}")).mappings()
            return [dict(row) for row in found]

    def columns(self) -> dict[str, dict[str, str]]:
        """Return the types of all columns, by table and name."""
        return {
            table: {column["name"]: str(column["type"]) for column in columns}
            for (_, table), columns in sa.inspect(self.engine).get_multi_columns().items()
        }

    def differences(self) -> list[Any]:
        """Return the differences between the database's schema and the schema of the code."""
        with self.engine.connect() as connection:
            schema = MigrationContext.configure(
                connection, opts={"compare_type": True, "compare_server_default": True}
            )
            return list(compare_metadata(schema, METADATA))


def connect(url: str, directory: Path) -> Context:
    """Open a configured database."""
    return Context(Database(url, directory=directory, host=HOST, managed=False))


def upgrade(url: str, directory: Path) -> None:
    """Upgrade the database to the newest schema, as another process does."""
    Database(url, directory=directory, host=HOST, managed=True).close()
