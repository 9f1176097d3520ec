"""Bringing the database's schema up to date."""

from importlib import resources
from pathlib import Path

from alembic import command, config
from alembic.util import CommandError
from sqlalchemy import Engine

from wharfinger.sqlite import schema_lock


class NewerSchemaError(Exception):
    """The database was last written by a newer version of this software."""


def upgrade(engine: Engine, directory: Path) -> None:
    """Create the tables, or bring them to the newest version.

    ``directory`` is where the lock file goes. Raises NewerSchemaError where the database is
    at a version that is not known here.
    """
    scripts = config.Config()
    scripts.set_main_option("script_location", str(resources.files(__package__) / "migrations"))
    with schema_lock(directory), engine.connect() as connection:
        scripts.attributes["connection"] = connection
        try:
            command.upgrade(scripts, "head")
        except CommandError as error:
            raise NewerSchemaError(str(error)) from error
