"""The commands ``wharfinger migration``."""

import argparse
from typing import Any

from wharfinger.cli.app import DONE, FAILED
from wharfinger.cli.instance import InstanceCommand
from wharfinger.cli.object_command import ObjectLister, ObjectShow, given, row, text, uuid, values
from wharfinger.exceptions import WharfingerError, printable


class MigrationList(ObjectLister):
    """List the moves of instances, also those that have ended."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        from wharfinger.objects.migration import MIGRATION_STATUSES, MIGRATION_TYPES

        parser = super().get_parser(prog_name)
        parser.add_argument(
            "--host",
            metavar="HOST",
            type=text(),
            help="only migrations from or to the host with this name",
        )
        parser.add_argument(
            "--node",
            metavar="NODE",
            type=text(),
            help="only migrations from or to the node with this name",
        )
        parser.add_argument(
            "--instance",
            metavar="UUID",
            type=uuid,
            help="only migrations of the instance with this uuid",
        )
        parser.add_argument(
            "--status",
            choices=tuple(MIGRATION_STATUSES),
            metavar="STATUS",
            help=f"only migrations with this status: {', '.join(MIGRATION_STATUSES)}",
        )
        parser.add_argument(
            "--type",
            choices=MIGRATION_TYPES,
            metavar="TYPE",
            help=f"only migrations of this type: {', '.join(MIGRATION_TYPES)}",
        )
        parser.add_argument(
            "--in-progress",
            action="store_true",
            help="only migrations that have not ended, such as one that waits for a confirm or "
            "revert",
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        from wharfinger.objects import MigrationList as Migrations

        wanted = given(
            instance_uuid=parsed_args.instance,
            status=parsed_args.status,
            migration_type=parsed_args.type,
        )
        migrations = Migrations.get_by_filters(self.objects, **wanted)
        return (
            "UUID",
            "Instance",
            "Type",
            "Status",
            "Source Host",
            "Source Node",
            "Destination Host",
            "Destination Node",
            "Created At",
            "Updated At",
        ), [
            row(
                *values(one, "uuid", "instance_uuid", "migration_type", "status"),
                *values(one, "source_compute", "source_node", "dest_compute", "dest_node"),
                *values(one, "created_at", "updated_at"),
            )
            for one in migrations
            if one.is_in_progress or not parsed_args.in_progress
            if parsed_args.host in (None, *values(one, "source_compute", "dest_compute"))
            if parsed_args.node in (None, *values(one, "source_node", "dest_node"))
        ]


class MigrationShow(ObjectShow):
    """Show all fields of one move."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument(
            "migration",
            metavar="UUID",
            type=uuid,
            help="the uuid of the migration, as in `wharfinger migration list`",
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        from wharfinger.objects import Migration

        return self.shown(Migration.get_by_uuid(self.objects, parsed_args.migration))


class MigrationRecover(InstanceCommand):
    """Finish the moves of processes that died.

    The command confirms moves whose confirmation was in progress, and reverts other interrupted
    moves. Live migrations, evacuations and moves that wait for a confirm or revert stay as they
    are, unless their instance is deleted.

    Exits with 1 if a move cannot be finished.
    """

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        failures = 0
        for migration in self.moves.interrupted():
            subject = f"migration {migration.uuid} of instance {migration.instance_uuid}"
            try:
                ended, reserved = self.moves.recover(migration)
            except WharfingerError as error:
                failures += 1
                self.app.LOG.error("%s: %s", printable(subject), error)
            else:
                self.say(subject, ended.status, reserved)
        return FAILED if failures else DONE
