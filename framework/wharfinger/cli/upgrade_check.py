"""The ``wharfinger-status`` program: whether all is ready for an upgrade.

Exit codes are oslo.upgradecheck's: 0 all is well, 1 warnings, 2 failures, 255 nothing could be
checked; and 64 wrong usage. Nothing is written, but where Placement is embedded.
"""

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
from wharfinger.exceptions import ConfigurationFileError, NotFound, WharfingerError, printable
from wharfinger.masking import masked

if TYPE_CHECKING:
    from wharfinger.conf import Options
    from wharfinger.objects.database_context import Condition
    from wharfinger.placement.client import PlacementClient
    from wharfinger.placement.model import ProviderSummary
    from wharfinger.reconcile.driver_instance_loader import Instance

UNCHECKED: Final = 255
#: What argparse exits with, and upgradecheck means a failure by.
_THEIR_WRONG_USAGE: Final = 2
#: Of what is wrong in many places, so many are named.
_NAMED: Final = 10
#: Up to so many providers are looked at one by one.
_FEW: Final = 50
#: What ports ask for: in request groups without an owner, which no gate concerns.
_NETWORK: Final = ("NET_", "IPV4_ADDRESS")
_SHARED: Final = "MISC_SHARES_VIA_AGGREGATE"


def _told(check: "Callable[[Checks], Result]") -> "Callable[[Checks], Result]":
    """Tell what keeps a check from being made as its failure, and nothing unprintable."""

    @functools.wraps(check)
    def told(self: "Checks") -> Result:
        try:
            result = check(self)
        except WharfingerError as error:
            return Result(Code.FAILURE, str(error))
        lines = (result.details or "").split("\n")
        return Result(result.code, "\n".join(map(printable, lines)))

    return told


class Checks(UpgradeCommands):
    """The checks of one configuration."""

    def __init__(self, conf: "Options") -> None:
        self._conf: Final = conf

    @cached_property
    def _database(self) -> "Condition":
        from wharfinger.objects.database_context import look

        return look(self._conf)

    @cached_property
    def _placement(self) -> "PlacementClient | None":
        """A client; None where Placement is embedded and has never been used."""
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
        """Those of the enabled driver instances that can be loaded."""
        from wharfinger.conf import DefaultSection
        from wharfinger.reconcile import driver_instance_loader

        found = []
        for name in DefaultSection.read(self._conf).enabled_drivers:
            try:
                found.append(driver_instance_loader.load(self._conf, name))
            except WharfingerError:
                continue  # told by the check of the drivers
        return found

    @_told
    def _check_database(self) -> Result:
        from wharfinger.conf import DatabaseSection

        found = self._database
        if found.schema.current is not None:
            return _judged(found)
        if DatabaseSection.read(self._conf).connection is None:
            return Result(Code.SUCCESS, f"{found.name} is created when it is first used.")
        return Result(Code.FAILURE, f"{found.name} has no tables yet. Run `wharfinger db upgrade`.")

    @_told
    def _check_drivers(self) -> Result:
        from wharfinger.cli import config

        problems = config.check(self._conf).problems
        if problems:
            return Result(Code.FAILURE, "\n".join(map(str, problems)))
        loaded = ", ".join(f"{one.section.name} ({one.section.driver})" for one in self._instances)
        return Result(
            Code.SUCCESS, f"Loaded: {loaded}." if loaded else "No driver instance is enabled."
        )

    @_told
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
                + ". Upgrade os-traits beside it to 2.8 or later, and restart it.",
            )
        lacking = [one for one in Feature if there < one.value]
        if lacking:
            names = (f"{one.name.lower().replace('_', ' ')} ({one.value})" for one in lacking)
            return Result(
                Code.WARNING,
                f"Placement has microversion {there}, and lacks: {', '.join(names)}. What needs "
                "them is refused, or done in another way. Upgrade it.",
            )
        return Result(
            Code.SUCCESS, f"Microversion {there}; it knows the owner traits that are used here."
        )

    @_told
    def _check_services(self) -> Result:
        from wharfinger.objects import OWNER_TAG_VERSION

        if (unread := self._not_read()) is not None:
            return unread
        oldest, behind = self._services()
        if not oldest:
            return Result(Code.SUCCESS, "No service publishes yet.")
        versions = "; ".join(f"{owner}: {version}" for owner, version in oldest.items())
        if not behind:
            return Result(Code.SUCCESS, f"The oldest for each owner: {versions}.")
        named = "; ".join(f"{owner}: {_some(services)}" for owner, services in behind.items())
        return Result(
            Code.WARNING,
            f"The oldest for each owner: {versions}. Below {OWNER_TAG_VERSION}: {named}. As long "
            "as there are any, what nobody has tagged is offered for that owner's, too. Upgrade "
            "them, and have them publish everything once; delete those that are gone for good.",
        )

    def _not_read(self) -> Result | None:
        """Return the result of a check that cannot read the database; None if it can."""
        schema = self._database.schema
        if schema.current is None:
            return Result(Code.SUCCESS, "No service publishes yet.")
        if self._database.missing or (schema.is_known and not schema.is_head):
            return Result(
                Code.WARNING, "They are not looked at before the database has been upgraded."
            )
        return None

    def _services(self) -> tuple[dict[str, int], dict[str, list[str]]]:
        """By owner, the oldest version, and the services that do not tag everything."""
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

    @_told
    def _check_untagged(self) -> Result:
        if self._placement is None:
            return _unused()
        untagged, complete = _untagged(self._placement)
        if untagged:
            names = _some([f"{one.name} ({one.uuid})" for one in untagged])
            return Result(
                Code.WARNING,
                f"{'' if complete else 'At least '}{len(untagged)} with inventory: {names}. "
                "Requests that are confined to an owner pass them by: have who publishes them tag "
                "them.",
            )
        return Result(
            Code.SUCCESS,
            "There are none." if complete else "There are none that have anything free.",
        )

    @_told
    def _check_foreign_reservations(self) -> Result:
        from wharfinger.objects import connect
        from wharfinger.providers import full_reservation
        from wharfinger.scheduling import provider_details

        if (unread := self._not_read()) is not None:
            return unread
        context = connect(self._conf)
        try:
            found = provider_details.foreign_reservations(context)
        finally:
            context.close()
        if not found:
            return Result(Code.SUCCESS, "There are none.")
        named = _some(
            [f"{one.name} (`{full_reservation.release_command(one.uuid)}`)" for one in found]
        )
        return Result(
            Code.SUCCESS,
            f"{len(found)} fully reserved, and not by us: kept. If no program needs such a "
            f"reservation, its command ends it: {named}.",
        )

    _upgrade_checks = (
        ("Database", _check_database),
        ("Configuration and drivers", _check_drivers),
        ("Placement", _check_placement),
        ("Versions of services", _check_services),
        ("Providers without an owner", _check_untagged),
        ("Reservations by other programs", _check_foreign_reservations),
    )


def _judged(found: "Condition") -> Result:
    """What a database that has tables is good for."""
    schema = found.schema
    lacking = "; ".join(f"table {table} {lacks}" for table, lacks in found.lacks.items())
    there = f"{found.name} is at {schema.current}"
    if not schema.is_known and lacking:
        return Result(
            Code.FAILURE,
            f"{there}, of a newer version: {lacking}. Run that version here.",
        )
    if not schema.is_known:
        return Result(
            Code.WARNING,
            f"{there}, of a newer version, and has all that this one needs. {schema.head} is the "
            "newest that is known here: upgrade Wharfinger.",
        )
    if not schema.is_head:
        return Result(
            Code.FAILURE,
            f"{there}, and {schema.head} is the newest: {lacking or 'nothing is lacking'}. Run "
            "`wharfinger db upgrade`.",
        )
    if lacking:
        return Result(
            Code.FAILURE,
            f"{there}, the newest, but {lacking}. Restore it from a backup.",
        )
    return Result(Code.SUCCESS, f"{there}, the newest.")


def _untagged(client: "PlacementClient") -> "tuple[list[ProviderSummary], bool]":
    """The providers with inventory that no owner's trait marks.

    And whether that is all of them: where there are many, it is those with something free, by one
    list for each resource class.
    """
    from wharfinger.providers import ownership

    traits = client.find_traits("OWNER_") | client.find_traits("CUSTOM_OWNER_")
    unmarked = ",".join(f"!{trait}" for trait in (*sorted(ownership.owners(traits)), _SHARED))
    candidates = client.list_providers(required=(unmarked,))
    if len(candidates) <= _FEW:
        return [one for one in candidates if _offers(client, one.uuid)], True
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


def _some(names: Sequence[str]) -> str:
    rest = len(names) - _NAMED
    shown = ", ".join(names[:_NAMED])
    return f"{shown}, and {rest} more" if rest > 0 else shown


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="wharfinger-status",
        description="Say whether all is ready for an upgrade. Exits with 0 if it is, with 1 where "
        "there are warnings, with 2 where there are failures.",
    )
    parser.add_argument(
        "--config-file",
        action="append",
        metavar="FILE",
        help="a configuration file, as for wharfinger",
    )
    parser.add_argument(
        "--config-dir", action="append", metavar="DIR", help="a directory of *.conf files"
    )
    upgrade = parser.add_subparsers(metavar="upgrade", required=True).add_parser("upgrade")
    upgrade.add_argument("check", choices=("check",), help="look, and write nothing")
    upgrade.add_argument("--json", action="store_true", help="print JSON")
    return parser


def main(argv: Iterable[str] | None = None) -> int:
    """Run the program; returns its exit code."""
    from wharfinger import conf

    try:
        parsed = _parser().parse_args(None if argv is None else list(argv))
    except SystemExit as stop:
        return WRONG_USAGE if stop.code == _THEIR_WRONG_USAGE else 0
    # What there is to say stands in the results.
    logging.getLogger().addHandler(logging.NullHandler())
    try:
        checks = Checks(conf.parse(parsed.config_file, parsed.config_dir))
    except ConfigurationFileError as error:
        print(error, file=sys.stderr)
        return UNCHECKED

    def check() -> int:
        try:
            return checks.check()
        except Exception:
            # upgradecheck would print the traceback without masking it.
            print(masked(f"Error:\n{traceback.format_exc()}"))
            return UNCHECKED

    parsed.action_fn = check
    # upgradecheck takes its own options from there; it needs no others.
    upgradecheck.CONF = cast("Any", argparse.Namespace(command=parsed))
    return upgradecheck.run(upgradecheck.CONF)


if __name__ == "__main__":
    sys.exit(main())
