"""The commands ``wharfinger node list`` and ``node show``."""

import argparse
from typing import TYPE_CHECKING, Any

from wharfinger.cli.object_command import (
    ObjectLister,
    ObjectShow,
    ambiguous,
    as_uuid,
    given,
    owner,
    row,
    text,
    values,
)
from wharfinger.exceptions import ObjectNotFound

if TYPE_CHECKING:
    from wharfinger.objects import ComputeNode, Context


class NodeList(ObjectLister):
    """List the nodes that driver instances publish."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument(
            "--host",
            metavar="HOST",
            type=text(),
            help="only nodes that driver instances on the host with this name publish",
        )
        parser.add_argument(
            "--driver",
            metavar="INSTANCE",
            type=text(64),
            help="only nodes that the driver instance with this name publishes",
        )
        parser.add_argument(
            "--owner",
            metavar="TRAIT",
            type=owner,
            help="only nodes of driver instances with this owner trait",
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        from wharfinger.objects import ComputeNodeList

        wanted = given(
            host=parsed_args.host, driver_instance=parsed_args.driver, owner=parsed_args.owner
        )
        nodes = ComputeNodeList.get_by_filters(self.objects, **wanted)
        return (
            "UUID",
            "Name",
            "Host",
            "Driver",
            "Owner",
            "VCPUs",
            "Memory MB",
            "Disk GB",
            "Last Seen",
        ), [
            row(
                *values(node, "uuid", "hypervisor_hostname", "host", "driver_instance", "owner"),
                *values(node, "vcpus", "memory_mb", "local_gb", "last_seen"),
            )
            for node in nodes
        ]


class NodeShow(ObjectShow):
    """Show all fields of one node."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument(
            "node",
            metavar="NODE",
            type=text(),
            help="the node, by uuid; or by name, if only one node has this name",
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        return self.shown(find(self.objects, parsed_args.node))


def find(context: "Context", wanted: str) -> "ComputeNode":
    """Return the node with this uuid or name. Raises ObjectNotFound and CommandFailed."""
    from wharfinger.objects import ComputeNodeList

    uuid = as_uuid(wanted)
    found = list(ComputeNodeList.get_by_filters(context, uuid=uuid)) if uuid else []
    if not found:  # the name of a node may be a uuid, too
        found = list(ComputeNodeList.get_by_filters(context, hypervisor_hostname=wanted))
    if not found:
        raise ObjectNotFound(kind="ComputeNode", key=wanted)
    if len(found) > 1:
        raise ambiguous(
            "node",
            wanted,
            (
                "{} (host {}, driver instance {})".format(
                    *values(node, "uuid", "host", "driver_instance")
                )
                for node in found
            ),
        )
    return found[0]
