"""``wharfinger reservation list``, ``provider reserve`` and ``provider release``."""

import argparse
import re
import shlex
import sys
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from cliff.columns import FormattableColumn

from wharfinger.cli.object_command import (
    ObjectCommand,
    ObjectLister,
    as_uuid,
    full_name,
    print_done,
    row,
    text,
    values,
)
from wharfinger.exceptions import (
    CommandFailed,
    NotFound,
    ObjectExists,
    ObjectNotFound,
    PlacementError,
    WharfingerError,
    shown,
)

if TYPE_CHECKING:
    from wharfinger.objects import ReservationList as Reservations
    from wharfinger.placement.model import ProviderSummary
    from wharfinger.scheduling.provider_details import Reserved

#: The default holder of a reservation.
_OPERATOR: Final = "operator"
_DURATION: Final = re.compile(r"([0-9]{1,9})([smhd])\Z")
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def _future_time(given: str) -> datetime:
    from wharfinger.objects.field_types import Moment, now

    present = now()
    try:
        if match := _DURATION.match(given):
            amount, unit = match.groups()
            end = present + timedelta(**{_UNITS[unit]: int(amount)})
        else:
            end = Moment().coerce(None, "", datetime.fromisoformat(given))
    except (OverflowError, ValueError):
        raise argparse.ArgumentTypeError(
            f"{shown(given)} is neither a time, such as 2031-05-01T08:00, nor a time span from "
            "now, such as 90m, 2h or 3d"
        ) from None
    if end <= present:
        raise argparse.ArgumentTypeError(f"{shown(given)} is not in the future")
    return end


class End(FormattableColumn[datetime | str | None]):
    """The expected end of a reservation."""

    def human_readable(self) -> str:
        from wharfinger.console import reservations
        from wharfinger.objects.field_types import now

        overdue = " (overdue)" if reservations.is_overdue(self._value, now()) else ""
        return f"{self.machine_readable() or ''}{overdue}"

    def machine_readable(self) -> str | None:
        from wharfinger.console import reservations

        return reservations.moment(self._value)


class ReservationList(ObjectLister):
    """List the full reservations in Wharfinger's database, with reason and holder."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument(
            "--provider",
            metavar="PROVIDER",
            type=text(),
            help="list only reservations of this provider, by name or uuid",
        )
        parser.add_argument(
            "--holder",
            metavar="HOLDER",
            type=text(511),
            help="list only reservations of this holder",
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        from wharfinger.scheduling import provider_details

        every = provider_details.reserved(self.objects)
        names = provider_details.names(self.objects, every)
        wanted, holder = parsed_args.provider, parsed_args.holder
        rows = sorted(
            (
                self._row(names.get(one.provider_uuid, one.provider_uuid), one)
                for one in every
                if holder in (None, one.holder)
                if wanted in (None, names.get(one.provider_uuid))
                or as_uuid(wanted) == one.provider_uuid
            ),
            key=lambda cells: cells[:2],
        )
        return ("Provider", "UUID", "Reason", "Holder", "Since", "Age", "Expected End"), rows

    def _row(self, name: str, one: "Reserved") -> tuple[Any, ...]:
        from wharfinger.console import reservations
        from wharfinger.objects.field_types import now

        age = reservations.age(one.since, now())
        end = End(one.expected_end)
        return row(name, one.provider_uuid, one.reason, one.holder, one.since, age, end)


class ProviderReserve(ObjectCommand):
    """Reserve a provider fully, so that it gets no more allocations.

    Present allocations stay. The reservation lasts until it is released, even past --until.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = _takes_provider(super().get_parser(prog_name))
        parser.add_argument(
            "--reason",
            metavar="TEXT",
            type=text(),
            required=True,
            help="why the provider is reserved; shown to other operators",
        )
        parser.add_argument(
            "--until",
            metavar="WHEN",
            type=_future_time,
            help="when the reservation is expected to end; shown to other operators. The "
            "reservation does not end by itself at that time. Write a time in ISO 8601, in UTC "
            "unless it has a UTC offset; or a time span from now, such as 90m, 2h or 3d",
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        from wharfinger.console import reservations
        from wharfinger.reconcile.reserve_and_release import Reservations
        from wharfinger.scheduling import provider_details

        holder = parsed_args.holder
        _refuse_jobs(holder)
        provider = provider_details.find(self.placement, parsed_args.provider)
        self._refuse_second(provider, holder)
        try:
            held = Reservations(self.placement, self.objects, self.down_time).reserve(
                provider, holder=holder, reason=parsed_args.reason, expected_end=parsed_args.until
            )
        except ObjectExists:
            self._refuse_second(provider, holder)  # another process stored it meanwhile
            raise
        except PlacementError as error:
            if not _stored(self, provider.uuid, holder):
                raise
            raise CommandFailed(
                reason=f"provider {full_name(provider)}: the reservation is stored in the "
                "database, but could not be written completely to Placement. The next cycle of "
                f"the agent, or `wharfinger sync`, writes the rest. {error}"
            ) from error
        end = reservations.moment(held.expected_end)
        until = f", until {end}" if end else ""
        print_done(provider, f"reserved: {held.reason}{until} ({held.holder})")

    def _refuse_second(self, provider: "ProviderSummary", holder: str) -> None:
        from wharfinger.console import reservations

        for one in _stored(self, provider.uuid, holder):
            since, reason = values(one, "since", "reason")
            raise CommandFailed(
                reason=f"provider {full_name(provider)} already has a reservation of the holder "
                f"{holder}, since {reservations.moment(since)} ({reason}). End that reservation "
                f"first with `{_release_command(provider, holder)}`, or use another --holder."
            )


class ProviderRelease(ObjectCommand):
    """End a reservation; the provider is free again if it has no other reservation.

    With --foreign, end the full reservation that another program has written to Placement.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument(
            "provider", metavar="PROVIDER", help="the reserved provider, by name or uuid"
        )
        which_one = parser.add_mutually_exclusive_group()
        _takes_holder(which_one)
        which_one.add_argument(
            "--foreign",
            action="store_true",
            help="end the full reservation that another program has written to Placement. Refused "
            "if no driver instance publishes the provider",
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        from wharfinger.reconcile.reserve_and_release import Reservations
        from wharfinger.scheduling import provider_details

        holder = parsed_args.holder
        _refuse_jobs(holder)
        try:
            provider = provider_details.find(self.placement, parsed_args.provider)
        except NotFound:
            if parsed_args.foreign or not self._release_deleted(parsed_args.provider, holder):
                raise
            return
        stored = Reservations(self.placement, self.objects, self.down_time)
        if parsed_args.foreign:
            self._print(provider, stored.release_foreign(provider))
            return
        try:
            left = stored.release(provider, holder)
        except ObjectNotFound:
            raise self._not_held(provider, holder) from None
        except PlacementError as error:
            if _stored(self, provider.uuid, holder):
                raise
            raise CommandFailed(
                reason=f"provider {full_name(provider)}: the reservation has ended in the "
                "database, but the provider may still be fully reserved in Placement. A later "
                f"cycle of the agent, or `wharfinger sync`, updates Placement. {error}"
            ) from error
        self._print(provider, left)

    def _print(self, provider: "ProviderSummary", left: Sequence[str]) -> None:
        print_done(provider, f"still reserved: {'; '.join(left)}" if left else "free")

    def _release_deleted(self, name: str, holder: str) -> bool:
        uuid = as_uuid(name)
        held = _stored(self, uuid, holder) if uuid else ()
        for one in held:
            one.destroy()
            sys.stdout.write(f"{uuid}: released; the provider no longer exists\n")
        return bool(held)

    def _not_held(self, provider: "ProviderSummary", holder: str) -> WharfingerError:
        from wharfinger.scheduling import provider_details

        holders = sorted(
            {
                one.holder
                for one in provider_details.reserved(self.objects)
                if one.provider_uuid == provider.uuid
            }
        )
        there = (
            f"It has reservations of: {', '.join(holders)}. End one of these with --holder. A "
            "driver's reservation ends only when the driver no longer reports the reservation."
            if holders
            else "It has no reservation of any holder. To end a reservation that another program "
            "has written, use --foreign."
        )
        return CommandFailed(
            reason=f"provider {full_name(provider)} has no reservation of the holder {holder}. "
            f"{there}"
        )


def _takes_provider(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser.add_argument(
        "provider", metavar="PROVIDER", help="the provider to reserve, by name or uuid"
    )
    _takes_holder(parser)
    return parser


def _takes_holder(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--holder",
        metavar="NAME",
        type=text(),
        default=_OPERATOR,
        help="the name of the person or program that holds the reservation. A provider can have "
        "one reservation of each holder. Default: %(default)s",
    )


def _refuse_jobs(holder: str) -> None:
    from wharfinger.objects import JOB_HOLDER

    if holder == JOB_HOLDER:
        raise CommandFailed(
            reason=f"--holder {holder} is not allowed: jobs that program devices use this name. "
            "To reserve a provider, use another holder. To end the reservation of an interrupted "
            "job, run `wharfinger device resolve`; `wharfinger device jobs` lists the jobs."
        )


def _stored(
    command: ObjectCommand, provider_uuid: str, holder: str
) -> "Reservations | Sequence[Any]":
    from wharfinger.objects import ReservationList as Reservations

    return Reservations.get_by_filters(command.objects, provider_uuid=provider_uuid, holder=holder)


def _release_command(provider: "ProviderSummary", holder: str) -> str:
    words = ["wharfinger", "provider", "release", provider.name]
    if holder != _OPERATOR:
        words += ["--holder", holder]
    return shlex.join(words)
