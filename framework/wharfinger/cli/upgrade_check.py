"""The ``wharfinger-status`` program, which checks that an upgrade is possible."""

import argparse
import functools
import logging
import sys
import traceback
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, cast

from oslo_upgradecheck import upgradecheck
from oslo_upgradecheck.upgradecheck import Code, Result, UpgradeCommands

from wharfinger.cli.app import WRONG_USAGE
from wharfinger.error_codes import with_code
from wharfinger.exceptions import ConfigurationFileError, NotFound, WharfingerError, printable
from wharfinger.masking import masked

if TYPE_CHECKING:
    from wharfinger.conf import Options
    from wharfinger.objects.database_context import Condition
    from wharfinger.placement.client import PlacementClient
    from wharfinger.placement.model import ProviderSummary
    from wharfinger.reconcile.driver_instance_loader import Instance

UNCHECKED: Final = 255
#: The exit code of argparse for wrong usage, which means failures in oslo.upgradecheck.
_THEIR_WRONG_USAGE: Final = 2
#: The largest number of names in one result.
_NAMED: Final = 10
#: The largest number of providers that are read one by one.
_MOST_READS: Final = 50
#: Resource classes of network ports: their requests have no owner, so no gate applies to them.
_NETWORK: Final = ("NET_", "IPV4_ADDRESS")
_SHARED: Final = "MISC_SHARES_VIA_AGGREGATE"


def _as_result(check: "Callable[[Checks], Result]") -> "Callable[[Checks], Result]":
    @functools.wraps(check)
    def checked(self: "Checks") -> Result:
        try:
            result = check(self)
        except WharfingerError as error:
            return Result(Code.FAILURE, with_code(error))
        lines = (result.details or "").split("\n")
        return Result(result.code, "\n".join(map(printable, lines)))

    return checked


class Checks(UpgradeCommands):
    """The upgrade checks of one configuration."""

    def __init__(self, conf: "Options") -> None:
        self._conf: Final = conf

    @cached_property
    def _database(self) -> "Condition":
        from wharfinger.objects.database_context import look

        return look(self._conf)

    @cached_property
    def _placement(self) -> "PlacementClient | None":
        from wharfinger.conf import PlacementSection
        from wharfinger.placement.client import PlacementClient
        from wharfinger.placement.session import check, make_adapter

        section = PlacementSection.read(self._conf)
        check(self._conf)
        if section.embedded and not section.embedded_database.exists():
            return None
        return PlacementClient(make_adapter(self._conf), section.connections)

    @cached_property
    def _instances(self) -> "list[Instance]":
        from wharfinger.conf import DefaultSection
        from wharfinger.reconcile import driver_instance_loader

        found = []
        for name in DefaultSection.read(self._conf).enabled_drivers:
            try:
                found.append(driver_instance_loader.load(self._conf, name))
            except WharfingerError:
                continue  # the check of the drivers reports it
        return found

    @_as_result
    def _check_database(self) -> Result:
        from wharfinger.conf import DatabaseSection

        found = self._database
        if found.schema.current is not None:
            return _database_result(found)
        if DatabaseSection.read(self._conf).connection is None:
            return Result(Code.SUCCESS, f"{found.name} is created when it is first used.")
        return Result(Code.FAILURE, f"{found.name} has no tables yet. Run `wharfinger db upgrade`.")

    @_as_result
    def _check_drivers(self) -> Result:
        from wharfinger.cli import config

        _sections, problems = config.check(self._conf)
        if problems:
            return Result(Code.FAILURE, "\n".join(map(str, problems)))
        loaded = ", ".join(f"{one.section.name} ({one.section.driver})" for one in self._instances)
        return Result(
            Code.SUCCESS, f"Loaded: {loaded}." if loaded else "No driver instance is enabled."
        )

    @_as_result
    def _check_placement(self) -> Result:
        from wharfinger.placement.microversions import Feature

        if self._placement is None:
            return _unused()
        there = self._placement.microversion
        named = {
            owner: [one.section.name for one in self._instances if one.publisher.owner == owner]
            for owner in sorted({one.publisher.owner for one in self._instances})
            if owner.startswith("OWNER_")
        }
        unknown = named.keys() - (self._placement.list_traits(named) if named else set())
        if unknown:
            return Result(
                Code.FAILURE,
                "Placement does not know "
                + "; ".join(f"{owner} ({', '.join(named[owner])})" for owner in sorted(unknown))
                + ". Upgrade os-traits for Placement to 2.8 or later, and restart Placement.",
            )
        lacking = [one for one in Feature if there < one.value]
        if lacking:
            names = (f"{one.name.lower().replace('_', ' ')} ({one.value})" for one in lacking)
            return Result(
                Code.WARNING,
                f"Placement has microversion {there}, and lacks: {', '.join(names)}. Operations "
                "that need them are refused, or need more requests. Upgrade Placement.",
            )
        return Result(
            Code.SUCCESS,
            f"Microversion {there}; Placement knows the owner traits of all driver instances.",
        )

    @_as_result
    def _check_services(self) -> Result:
        from wharfinger.objects import OWNER_TAG_VERSION

        if (unread := self._unreadable_result()) is not None:
            return unread
        oldest, behind = self._services()
        if not oldest:
            return Result(Code.SUCCESS, "No service publishes yet.")
        versions = "; ".join(f"{owner}: {version}" for owner, version in oldest.items())
        if not behind:
            return Result(Code.SUCCESS, f"The oldest for each owner: {versions}.")
        named = "; ".join(
            f"{owner}: {_first_names(services)}" for owner, services in behind.items()
        )
        return Result(
            Code.WARNING,
            f"The oldest for each owner: {versions}. Below {OWNER_TAG_VERSION}: {named}. While "
            "there are such services, requests for the owner also get providers without an owner "
            "trait. Upgrade these services and run one full cycle of each; delete services "
            "that no longer exist (`wharfinger service delete`).",
        )

    def _unreadable_result(self) -> Result | None:
        schema = self._database.schema
        if schema.current is None:
            return Result(Code.SUCCESS, "No service publishes yet.")
        if self._database.missing or (schema.is_known and not schema.is_head):
            return Result(
                Code.WARNING, "Not checked: first do what the check of the database says."
            )
        return None

    def _services(self) -> tuple[dict[str, int], dict[str, list[str]]]:
        from wharfinger.objects import OWNER_TAG_VERSION, Service, ServiceList, connect

        context = connect(self._conf)
        try:
            oldest = Service.get_minimum_version_by_owner(context)
            services = ServiceList.get_by_filters(context)
        finally:
            context.close()
        behind: dict[str, list[str]] = {}
        for service in services:
            for owner in service.owners if service.version < OWNER_TAG_VERSION else ():
                named = f"{service.host} ({service.binary}, version {service.version})"
                behind.setdefault(owner, []).append(named)
        return dict(sorted(oldest.items())), dict(sorted(behind.items()))

    @_as_result
    def _check_untagged(self) -> Result:
        if self._placement is None:
            return _unused()
        untagged, complete = _untagged(self._placement)
        if untagged:
            names = _first_names([f"{one.name} ({one.uuid})" for one in untagged])
            return Result(
                Code.WARNING,
                f"{'' if complete else 'At least '}{len(untagged)} with inventory: {names}. "
                "Requests for an owner do not get them: let the programs that publish them set an "
                "owner trait.",
            )
        return Result(
            Code.SUCCESS, "No provider." if complete else "No provider with free resources."
        )

    @_as_result
    def _check_foreign_reservations(self) -> Result:
        from wharfinger.objects import connect
        from wharfinger.providers import full_reservation
        from wharfinger.scheduling import provider_details

        if (unread := self._unreadable_result()) is not None:
            return unread
        context = connect(self._conf)
        try:
            found = provider_details.foreign_reservations(context)
        finally:
            context.close()
        if not found:
            return Result(Code.SUCCESS, "No reservation.")
        named = _first_names(
            [f"{one.name} (`{full_reservation.release_command(one.uuid)}`)" for one in found]
        )
        return Result(
            Code.SUCCESS,
            f"{len(found)} fully reserved by another program: kept. If no program needs such a "
            f"reservation, end it with the command in brackets: {named}.",
        )

    _upgrade_checks = (
        ("Database", _check_database),
        ("Configuration and drivers", _check_drivers),
        ("Placement", _check_placement),
        ("Versions of services", _check_services),
        ("Providers without an owner", _check_untagged),
        ("Reservations by other programs", _check_foreign_reservations),
    )


def _database_result(found: "Condition") -> Result:
    schema = found.schema
    lacking = "; ".join(f"table {table} {lacks}" for table, lacks in found.lacks.items())
    there = f"{found.name} is at {schema.current}"
    if not schema.is_known and lacking:
        return Result(
            Code.FAILURE, f"{there}, of a newer release: {lacking}. Install that release."
        )
    if not schema.is_known:
        return Result(
            Code.WARNING,
            f"{there}, of a newer release, and has all that this release needs. Upgrade "
            f"Wharfinger, whose newest version is {schema.head}.",
        )
    if not schema.is_head:
        return Result(
            Code.FAILURE,
            f"{there}, and {schema.head} is the newest: {lacking or 'it lacks no part'}. Run "
            "`wharfinger db upgrade`.",
        )
    if lacking:
        return Result(
            Code.FAILURE, f"{there}, the newest, but {lacking}. Restore it from a backup."
        )
    return Result(Code.SUCCESS, f"{there}, the newest.")


def _untagged(client: "PlacementClient") -> "tuple[list[ProviderSummary], bool]":
    from wharfinger.providers import ownership

    traits = client.find_traits("OWNER_") | client.find_traits("CUSTOM_OWNER_")
    unmarked = ",".join(f"!{trait}" for trait in (*sorted(ownership.owners(traits)), _SHARED))
    candidates = client.list_providers(required=(unmarked,))
    if len(candidates) <= _MOST_READS:
        return [one for one in candidates if _offers(client, one.uuid)], True
    # These requests find only providers with free resources.
    offering = {
        provider.uuid
        for kind in client.list_resource_classes()
        if not kind.startswith(_NETWORK)
        for provider in client.list_providers(required=(unmarked,), resources={kind: 1})
    }
    return [one for one in candidates if one.uuid in offering], False


def _offers(client: "PlacementClient", uuid: str) -> bool:
    try:
        inventories = client.get_inventories(uuid).inventories
    except NotFound:
        return False  # deleted since it was listed
    return any(not kind.startswith(_NETWORK) for kind in inventories)


def _unused() -> Result:
    return Result(
        Code.SUCCESS, "Placement is embedded, and its database is created when it is first used."
    )


def _first_names(names: Sequence[str]) -> str:
    rest = len(names) - _NAMED
    shown = ", ".join(names[:_NAMED])
    return f"{shown}, and {rest} more" if rest > 0 else shown


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="wharfinger-status",
        description="Check that an upgrade is possible. Exits with 1 if there are warnings, and "
        "with 2 if there are failures.",
    )
    parser.add_argument(
        "--config-file",
        action="append",
        metavar="FILE",
        help="a configuration file (repeatable), as --config-file of the command wharfinger",
    )
    parser.add_argument(
        "--config-dir",
        action="append",
        metavar="DIR",
        help="a directory of *.conf files (repeatable), as --config-dir of the command wharfinger",
    )
    upgrade = parser.add_subparsers(metavar="upgrade", required=True).add_parser("upgrade")
    upgrade.add_argument("check", choices=("check",), help="check that an upgrade is possible")
    upgrade.add_argument("--json", action="store_true", help="print JSON")
    return parser


def main(argv: Iterable[str] | None = None) -> int:
    """Run the program and return its exit code."""
    from wharfinger import conf

    try:
        parsed = _parser().parse_args(None if argv is None else list(argv))
    except SystemExit as stop:
        return WRONG_USAGE if stop.code == _THEIR_WRONG_USAGE else 0
    # The results contain all messages.
    logging.getLogger().addHandler(logging.NullHandler())
    try:
        checks = Checks(conf.parse(parsed.config_file, parsed.config_dir))
    except ConfigurationFileError as error:
        print(with_code(error), file=sys.stderr)
        return UNCHECKED

    def check() -> int:
        try:
            return checks.check()
        except Exception:
            # upgradecheck would print the traceback without masking it.
            print(masked(f"Error:\n{traceback.format_exc()}"))
            return UNCHECKED

    parsed.action_fn = check
    # upgradecheck reads its options from this object, and needs no others.
    upgradecheck.CONF = cast("Any", argparse.Namespace(command=parsed))
    return upgradecheck.run(upgradecheck.CONF)


if __name__ == "__main__":
    sys.exit(main())
