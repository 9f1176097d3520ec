"""The commands ``wharfinger service``."""

import argparse
import sys
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from cliff.columns import FormattableColumn

from wharfinger.cli.object_command import (
    ObjectCommand,
    ObjectLister,
    ObjectShow,
    ambiguous,
    as_uuid,
    given,
    known,
    row,
    text,
    values,
)
from wharfinger.exceptions import CommandFailed, ObjectNotFound, printable

if TYPE_CHECKING:
    from wharfinger.objects import Context, Service


class Gates(FormattableColumn[dict[str, bool]]):
    """Whether the gate of each owner is on."""

    def human_readable(self) -> str:
        return "\n".join(f"{owner}: {'on' if on else 'off'}" for owner, on in self._value.items())


class ServiceList(ObjectLister):
    """List the services with version, gates, status and state.

    An owner's gate is on when all services that may publish for it have version 2 or later.
    Requests for the owner then observe the option [scheduling] untagged.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument(
            "--host", metavar="HOST", type=text(), help="only services on the host with this name"
        )
        parser.add_argument(
            "--binary",
            metavar="BINARY",
            type=text(),
            help="only services with this binary; the agents have the binary wharfinger",
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        from wharfinger.objects import ServiceList as Services
        from wharfinger.scheduling.owner_tagging_gates import gates

        down_time = self.down_time
        wanted = given(host=parsed_args.host, binary=parsed_args.binary)
        everywhere = Services.get_by_filters(self.objects)
        services = [
            one
            for one in everywhere
            if all(values(one, name) == [value] for name, value in wanted.items())
        ]
        states = {owner: gate.is_on for owner, gate in gates(everywhere).items()}
        return (
            "ID",
            "Host",
            "Binary",
            "Version",
            "Gates",
            "Status",
            "State",
            "Last Seen Up",
            "Disabled Reason",
        ), [self._row(service, states, down_time) for service in services]

    def _row(
        self, service: "Service", states: Mapping[str, bool], down_time: timedelta
    ) -> tuple[Any, ...]:
        return row(
            *values(service, "uuid", "host", "binary", "version"),
            known(lambda: Gates({owner: states[owner] for owner in service.owners})),
            known(lambda: "disabled" if service.disabled else "enabled"),
            known(lambda: "up" if service.is_up(down_time) else "down"),
            *values(service, "last_seen_up", "disabled_reason"),
        )


class ServiceShow(ObjectShow):
    """Show all fields of one service."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        return _takes_service(super().get_parser(prog_name))

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        return self.shown(_find(self.objects, parsed_args.service))


class ServiceDisable(ObjectCommand):
    """Disable a service: after its next cycle, nova and Wharfinger select none of its nodes.

    Present allocations stay.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = _takes_service(super().get_parser(prog_name))
        parser.add_argument(
            "--reason",
            metavar="TEXT",
            type=text(),
            help="why the service is disabled; shown to other operators. Default: no reason",
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        service = _find(self.objects, parsed_args.service)
        service.disabled = True
        service.disabled_reason = parsed_args.reason
        service.save()
        _print(service, "disabled")


class ServiceEnable(ObjectCommand):
    """Enable a service: after its next cycle, the nodes of the service may get allocations."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        return _takes_service(super().get_parser(prog_name))

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        service = _find(self.objects, parsed_args.service)
        service.disabled = False
        service.disabled_reason = None
        service.save()
        _print(service, "enabled")


class ServiceDelete(ObjectCommand):
    """Delete the record of a service that is down, or of any service with --force.

    Its providers stay in Placement.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = _takes_service(super().get_parser(prog_name))
        parser.add_argument(
            "--force",
            action="store_true",
            help="delete the service even if it is up. If its agent still runs, the next report "
            "of the agent creates the service again, as an enabled one",
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        service = _find(self.objects, parsed_args.service)
        down_time = self.down_time
        if not parsed_args.force and service.is_up(down_time):
            raise CommandFailed(
                reason=f"service {_name(service)} was not deleted: it is up, and its next report "
                "would create it again. Stop its agent and wait until the service is down, or use "
                "--force."
            )
        service.destroy()
        _print(service, "deleted")


def _takes_service(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser.add_argument(
        "service",
        metavar="SERVICE",
        type=text(511),
        help="the service, by uuid or HOST/BINARY; or by HOST, if only one service is on this host",
    )
    return parser


def _find(context: "Context", wanted: str) -> "Service":
    from wharfinger.objects import ServiceList as Services

    found = [one for one in Services.get_by_filters(context) if _is_meant(one, wanted)]
    if not found:
        raise ObjectNotFound(kind="Service", key=wanted)
    if len(found) > 1:
        raise ambiguous("service", wanted, (f"{_name(one)} ({one.uuid})" for one in found))
    return found[0]


def _is_meant(service: "Service", wanted: str) -> bool:
    uuid, host = values(service, "uuid", "host")
    return as_uuid(wanted) == uuid or wanted in (host, _name(service))


def _name(service: "Service") -> str:
    return "/".join(values(service, "host", "binary"))


def _print(service: "Service", done: str) -> None:
    sys.stdout.write(f"{printable(_name(service))} ({service.uuid}): {done}\n")
