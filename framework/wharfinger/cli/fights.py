"""The command ``wharfinger status``."""

import argparse
from typing import Any

from wharfinger.cli.object_command import ObjectLister, row, values


class Status(ObjectLister):
    """List the values that driver instances write and other programs undo repeatedly.

    Each row is a value that was undone in three or more cycles. The driver instance then
    writes that provider only in full cycles, except to reserve or disable it.
    """

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        from wharfinger.objects import ProviderRecordList
        from wharfinger.providers import fights
        from wharfinger.reconcile.record_store import read_record

        rows = []
        for one in ProviderRecordList.get_undone(self.objects):
            record = read_record(one)
            for what, fight in sorted(fights.fights(record).items()) if record else ():
                provider = record and (record.live or record.applied)
                rows.append(
                    row(
                        provider.name if provider else "",
                        *values(one, "provider_uuid", "driver_instance", "host"),
                        what,
                        fight.ours,
                        fight.theirs,
                        fight.count,
                        record and fights.writer_and_remedy(record)[0],
                    )
                )
        return (
            "Provider",
            "UUID",
            "Driver",
            "Host",
            "What",
            "Ours",
            "Theirs",
            "Times Undone",
            "Other Writer",
        ), rows
