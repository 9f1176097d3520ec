"""The commands ``wharfinger instance``."""

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final

from cliff.columns import FormattableColumn

from wharfinger.cli.flavor import find as find_flavor
from wharfinger.cli.node import find as find_node
from wharfinger.cli.object_command import (
    ObjectCommand,
    ObjectLister,
    ObjectShow,
    full_name,
    given,
    known,
    row,
    text,
    uuid,
    values,
)
from wharfinger.exceptions import ObjectNotFound, printable

if TYPE_CHECKING:
    from wharfinger.allocations import AllocationClaims, Moves
    from wharfinger.allocations.candidate_attempts import Suits
    from wharfinger.objects import Context, Instance, Migration, Reservation

#: The default project and user of an instance.
_OPERATOR: Final = "operator"
#: The shortest time after which a process counts as dead: times are stored in whole seconds.
_SHORTEST_DOWN_TIME: Final = timedelta(seconds=3)


class InstanceCommand(ObjectCommand):
    """Base class of commands that claim, release or move instances."""

    @cached_property
    def moves(self) -> "Moves":
        """The moves of instances. Raises ConfigurationError and StateError."""
        from wharfinger.allocations import FlavorSearch, Moves
        from wharfinger.scheduling.request_filters import Surroundings

        search = FlavorSearch(Surroundings(self.conf, self.placement, self.objects))
        return Moves(search, max(self.down_time, _SHORTEST_DOWN_TIME))

    @property
    def claims(self) -> "AllocationClaims":
        """The claims of instances. Raises ConfigurationError and StateError."""
        return self.moves.claims

    def say(self, subject: str, done: str, reserved: "Iterable[Reservation]" = ()) -> None:
        """Print the result, and the providers that are reserved for cleaning."""
        lines = [f"{subject}: {done}"]
        for one in reserved:
            found = self.placement.list_providers(uuid=one.provider_uuid)
            provider = full_name(found[0]) if found else one.provider_uuid
            lines.append(f"{provider}: reserved until it has been cleaned")
        sys.stdout.write("".join(f"{printable(line)}\n" for line in lines))


class _InstanceShower(InstanceCommand, ObjectShow):
    def with_allocations(
        self, one: "Instance", *, is_brief: bool = True
    ) -> tuple[Sequence[str], Sequence[Any]]:
        from wharfinger.allocations.operation_states import moves_of

        moves = moves_of(self.objects, one.uuid)
        names, cells = self.shown(one)
        if is_brief:
            names = ("uuid", "flavor", "host", "node")
            cells = row(one.uuid, _flavor_of(one), *values(one, "host", "node"))
        return (
            (*names, "status", "migrations", "allocations"),
            (
                *cells,
                known(
                    partial(
                        describe,
                        one,
                        moves,
                        is_lost=one.uuid in _uuids_with_lost_allocation(self.objects),
                    )
                ),
                _Uuids([migration.uuid for migration in moves]),
                _Allocations(list(self._allocations(one, moves))),
            ),
        )

    def _allocations(
        self, one: "Instance", moves: "Iterable[Migration]"
    ) -> Iterator[dict[str, Any]]:
        from wharfinger.allocations.allocation_writer import Consumers

        consumers = Consumers(self.placement)
        kinds = {one.uuid: "instance"} | {move.uuid: "migration" for move in moves}
        for consumer, kind in kinds.items():
            for provider, resources in consumers.get(consumer).allocations.items():
                found = self.placement.list_providers(uuid=provider)
                yield {
                    "consumer": kind,
                    "provider": found[0].name if found else provider,
                    "uuid": provider,
                    "resources": dict(sorted(resources.items())),
                }


class _Uuids(FormattableColumn[list[str]]):
    def human_readable(self) -> str:
        return " ".join(self._value)


class _Allocations(FormattableColumn[list[dict[str, Any]]]):
    def human_readable(self) -> str:
        lines = []
        for one in self._value:
            amounts = " ".join(f"{kind}={amount}" for kind, amount in one["resources"].items())
            of = "" if one["consumer"] == "instance" else f" ({one['consumer']})"
            lines.append(printable(f"{one['provider']}: {amounts}{of}"))
        return "\n".join(lines)


class InstanceClaim(_InstanceShower):
    """Claim the resources of a flavor for an instance, and show the instance.

    The command allocates on a node that has all resources free. It does not start a server.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        _takes_flavor(parser)
        _takes_node(parser, "claim only on this node")
        parser.add_argument(
            "--uuid",
            metavar="UUID",
            type=uuid,
            help="the uuid of the instance. If the instance exists and its claim was interrupted, "
            "the claim is completed. If its claim is complete, nothing changes. Default: a new "
            "uuid",
        )
        for name in ("project", "user"):
            parser.add_argument(
                f"--{name}",
                metavar="ID",
                type=text(),
                default=_OPERATOR,
                help=f"the id of the {name} of the instance; default: %(default)s",
            )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        claimed = self.claims.claim(
            find_flavor(self.objects, parsed_args.flavor),
            project_id=parsed_args.project,
            user_id=parsed_args.user,
            uuid=parsed_args.uuid,
            suits=_node_condition(self.objects, parsed_args.node),
        )
        return self.with_allocations(claimed.instance)


class InstanceList(ObjectLister):
    """List the instances with their hosts, nodes and moves; send no request to Placement."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        for name in ("host", "node"):
            parser.add_argument(
                f"--{name}",
                metavar=name.upper(),
                type=text(),
                help=f"only instances on the {name} with this name",
            )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        from wharfinger.objects import InstanceList as Instances
        from wharfinger.objects import MigrationList as Migrations
        from wharfinger.objects.migration import IN_PROGRESS

        moves: dict[str, list[Migration]] = {}
        for one in Migrations.get_by_filters(self.objects, status=IN_PROGRESS):
            moves.setdefault(one.instance_uuid, []).append(one)
        lost = _uuids_with_lost_allocation(self.objects)
        wanted = given(host=parsed_args.host, node=parsed_args.node)
        return ("UUID", "Flavor", "Host", "Node", "Status", "Project", "User"), [
            row(
                one.uuid,
                _flavor_of(one),
                *values(one, "host", "node"),
                known(partial(describe, one, moves.get(one.uuid, ()), is_lost=one.uuid in lost)),
                *values(one, "project_id", "user_id"),
            )
            for one in Instances.get_by_filters(self.objects, **wanted)
        ]


class InstanceShow(_InstanceShower):
    """Show one instance with its allocations in Placement."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        return _takes_instance(super().get_parser(prog_name))

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        from wharfinger.objects import Instance

        one = Instance.get_by_uuid(self.objects, parsed_args.instance)
        return self.with_allocations(one, is_brief=False)


class InstanceRelease(InstanceCommand):
    """Release an instance: delete its allocations, those of its migrations, and its record.

    Providers that have to be cleaned are reserved before that.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        return _takes_instance(super().get_parser(prog_name))

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        reserved = self.claims.release(parsed_args.instance)
        self.say(f"instance {parsed_args.instance}", "released", reserved)


class InstanceRepair(InstanceCommand):
    """Repair an instance whose allocation another program has deleted from Placement.

    The command allocates the same resources of the same providers again, and ends the
    reservations that replaced the allocation.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = _takes_instance(super().get_parser(prog_name))
        parser.add_argument(
            "--release",
            action="store_true",
            help="release the instance instead of restoring its allocation. Providers that have to "
            "be cleaned stay reserved until they are clean",
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        subject = f"instance {parsed_args.instance}"
        if parsed_args.release:
            self.say(subject, "released", self.claims.release_lost(parsed_args.instance))
            return
        repaired = self.claims.repair(parsed_args.instance)
        parts = []
        for provider, amounts in sorted(repaired.allocations.items()):
            found = self.placement.list_providers(uuid=provider)
            what = " ".join(f"{kind}={amount}" for kind, amount in sorted(amounts.items()))
            parts.append(f"{what} of {full_name(found[0]) if found else provider}")
        self.say(subject, f"it has {', '.join(parts)}")


class _MoveStarter(_InstanceShower):
    def begun(self, instance: str, **more: Any) -> tuple[Sequence[str], Sequence[Any]]:
        from wharfinger.objects import Instance

        migration = self.moves.start(instance, **more)
        self.app.LOG.warning(
            "Migration %s still holds the former resources on node %s. To release them, run "
            "`wharfinger instance confirm %s`; to return to them, `wharfinger instance revert %s`.",
            migration.uuid,
            printable(migration.source_node),
            instance,
            instance,
        )
        return self.with_allocations(Instance.get_by_uuid(self.objects, instance))


class InstanceResize(_MoveStarter):
    """Claim the resources of another flavor for an instance, in addition to its present ones.

    The new resources may be on any node. Confirm or revert the move afterwards.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = _takes_instance(super().get_parser(prog_name))
        _takes_flavor(parser)
        return _takes_node(parser, "move only to this node")

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        return self.begun(
            parsed_args.instance,
            flavor=find_flavor(self.objects, parsed_args.flavor),
            suits=_node_condition(self.objects, parsed_args.node),
        )


class InstanceMigrate(_MoveStarter):
    """Claim the resources of an instance on another node, in addition to its present ones.

    Confirm or revert the move afterwards.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = _takes_instance(super().get_parser(prog_name))
        return _takes_node(parser, "move only to this node")

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        return self.begun(
            parsed_args.instance, suits=_node_condition(self.objects, parsed_args.node)
        )


class _MoveEnder(InstanceCommand):
    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        return _takes_instance(super().get_parser(prog_name))

    def print_end(self, migration: "Migration", reserved: "Iterable[Reservation]") -> None:
        from wharfinger.objects import Instance

        one = Instance.get_by_uuid(self.objects, migration.instance_uuid)
        flavor, node, host = _flavor_of(one), *values(one, "node", "host")
        self.say(
            f"instance {one.uuid}",
            f"migration {migration.uuid} is {migration.status}: flavor {flavor}, on node {node} of "
            f"host {host}",
            reserved,
        )


class InstanceConfirm(_MoveEnder):
    """Confirm the move of an instance: release its former resources."""

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        self.print_end(*self.moves.confirm(parsed_args.instance))


class InstanceRevert(_MoveEnder):
    """Revert the move of an instance: release the new resources, and keep the former ones."""

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        self.print_end(*self.moves.revert(parsed_args.instance))


def describe(one: "Instance", moves: "Sequence[Migration]", *, is_lost: bool) -> str:
    """Return the status of an instance, as text for operators."""
    state: str | None = one.known("task_state")
    if state:
        return state
    if moves:
        return ", ".join(f"{move.migration_type} {move.status}" for move in moves)
    if is_lost:
        return "allocation lost"
    return "claimed" if one.node else "on no node"


def _uuids_with_lost_allocation(context: "Context") -> set[str | None]:
    from wharfinger.objects import ReservationList
    from wharfinger.reconcile.lost_allocations import is_lost

    found = ReservationList.get_by_filters(context)
    return {one.consumer_uuid for one in found if is_lost(one)}


def _flavor_of(one: "Instance") -> Any:
    return known(lambda: one.flavor.name)


def _node_condition(context: "Context", node: str | None) -> "Suits":
    from wharfinger.allocations.candidate_attempts import anywhere
    from wharfinger.tracker.overlaid_nodes import overlaid_nodes

    if node is None:
        return anywhere
    try:
        wanted = {find_node(context, node).uuid}
    except ObjectNotFound:
        # A node whose root another program publishes has no row.
        overlaid = overlaid_nodes(context)
        wanted = {one.uuid for one in overlaid if node in {one.uuid, one.hypervisor_hostname}}
        if not wanted:
            raise
    return lambda one: one.uuid in wanted


def _takes_instance(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser.add_argument("instance", metavar="UUID", type=uuid, help="the uuid of the instance")
    return parser


def _takes_flavor(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser.add_argument(
        "--flavor",
        metavar="FLAVOR",
        type=text(),
        required=True,
        help="the flavor whose resources are claimed, by id or name",
    )
    return parser


def _takes_node(parser: argparse.ArgumentParser, meaning: str) -> argparse.ArgumentParser:
    parser.add_argument("--node", metavar="NODE", type=text(), help=f"{meaning}, by uuid or name")
    return parser
