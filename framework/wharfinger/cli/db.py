"""The commands ``wharfinger db upgrade``, ``db version`` and ``db check``."""

import argparse
import sys
from typing import TYPE_CHECKING, Any

from cliff.lister import Lister
from cliff.show import ShowOne

from wharfinger.cli.app import DIFFERENCE, DONE, FAILED
from wharfinger.cli.command import WharfingerCommand
from wharfinger.exceptions import StateError, printable

if TYPE_CHECKING:
    from wharfinger.objects.database_context import Condition


class DbUpgrade(WharfingerCommand):
    """Create the tables of the database, or upgrade its schema to the newest version."""

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        from wharfinger.objects import database_context

        before = database_context.upgrade(self.conf)
        after = database_context.look(self.conf)
        if after.missing:
            raise StateError(path=after.name, problem=f"it {_result(after)}.", remedy="")
        schema = before.schema
        if schema.is_head or not schema.is_known:
            done = f"nothing to do: it has version {schema.current}"
            done += "" if schema.is_known else f", newer than {schema.head} of this release"
        elif schema.current is None:
            done = f"created, with version {schema.head}"
        else:
            done = f"upgraded from version {schema.current} to {schema.head}"
        sys.stdout.write(f"{printable(before.name)}: {done}\n")


class DbVersion(WharfingerCommand, ShowOne):
    """Show the schema version of the database, and that of this release."""

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        from wharfinger.objects import database_context

        found = database_context.look(self.conf)
        return ("database", "current", "newest"), (
            printable(found.name),
            found.schema.current,
            found.schema.head,
        )


class DbCheck(WharfingerCommand, Lister):
    """Check that the database has all tables and columns of this release, without changing it.

    Prints the result, and one row per table that is missing or lacks columns. Exits with 2 if
    `wharfinger db upgrade` is needed, and with 1 if that would not add what is missing.
    """

    def run(self, parsed_args: argparse.Namespace) -> int:
        from wharfinger.objects import database_context

        self._found = database_context.look(self.conf)
        super().run(parsed_args)
        schema = self._found.schema
        if schema.is_known and not schema.is_head:
            return DIFFERENCE
        return FAILED if self._found.missing else DONE

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        rows = [(printable(self._found.name), _result(self._found))]
        rows += self._found.lacks.items()
        return ("Checked", "Result"), rows


def _result(found: "Condition") -> str:
    schema = found.schema
    has = f"has version {schema.current}"
    if not schema.is_known:
        lacks = (
            "lacks parts that this release uses: run that newer release"
            if found.missing
            else "has all parts that this release uses"
        )
        return f"{has}, newer than {schema.head} of this release, and {lacks}"
    if not schema.is_head:
        has = has if schema.current else "has no tables yet"
        return f"{has}: run `wharfinger db upgrade` for version {schema.head}"
    if found.missing:
        remedy = "restore it from a backup, or configure another database"
        return f"{has}, the newest, but lacks parts of it: {remedy}"
    return f"{has}, the newest"
