"""The commands ``wharfinger flavor``."""

import argparse
import math
import re
import shlex
import sys
from typing import TYPE_CHECKING, Any, Final

from wharfinger.cli.app import DONE, FAILED
from wharfinger.cli.object_command import (
    ObjectCommand,
    ObjectLister,
    ObjectShow,
    number,
    row,
    text,
    values,
)
from wharfinger.exceptions import (
    CommandFailed,
    ObjectExists,
    ObjectNotFound,
    WharfingerError,
    printable,
    shown,
)

if TYPE_CHECKING:
    from wharfinger.objects import Context, Flavor

_AUTO: Final = "auto"
#: nova's patterns for the ids of flavors and the keys of extra specs.
_ID: Final = re.compile(r"(?! )[a-zA-Z0-9. _-]{1,255}(?<! )\Z")
_KEY: Final = re.compile(r"[a-zA-Z0-9 _.:-]{1,255}\Z")


class FlavorCreate(ObjectShow):
    """Create a flavor in Wharfinger's database, and show it."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument(
            "name",
            metavar="NAME",
            type=_name,
            help="the name of the new flavor; no other flavor may have this name",
        )
        parser.add_argument(
            "--id",
            metavar="ID",
            type=_id,
            default=_AUTO,
            help="the id of the new flavor; no other flavor may have this id. Default: auto, for "
            "a new uuid",
        )
        parser.add_argument(
            "--vcpus",
            metavar="N",
            type=number(1),
            default=1,
            help="number of virtual CPUs; default: 1",
        )
        parser.add_argument(
            "--ram", metavar="MIB", type=number(1), default=256, help="memory in MiB; default: 256"
        )
        parser.add_argument(
            "--disk", metavar="GIB", type=number(0), default=0, help="root disk in GiB; default: 0"
        )
        parser.add_argument(
            "--ephemeral",
            metavar="GIB",
            type=number(0),
            default=0,
            help="ephemeral disk in GiB; default: 0",
        )
        parser.add_argument(
            "--swap", metavar="MIB", type=number(0), default=0, help="swap in MiB; default: 0"
        )
        parser.add_argument(
            "--rxtx-factor",
            metavar="FACTOR",
            type=_factor,
            default=1.0,
            help="the factor for the network bandwidth of instances; stored, but not used by "
            "Wharfinger. Default: 1.0",
        )
        access = parser.add_mutually_exclusive_group()
        access.add_argument(
            "--public",
            action="store_true",
            default=True,
            help="record that all projects may use the flavor; the default",
        )
        access.add_argument(
            "--private",
            dest="public",
            action="store_false",
            help="record that not all projects may use the flavor; Wharfinger does not check "
            "projects",
        )
        parser.add_argument("--description", metavar="TEXT", type=text(65535), help="a description")
        parser.add_argument(
            "--property",
            metavar="KEY=VALUE",
            type=_property,
            action=_Properties,
            default={},
            help="an extra spec of the flavor, such as resources:VGPU=1 (repeatable)",
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        from uuid import uuid4

        from wharfinger.objects import Flavor

        flavor = Flavor(
            self.objects,
            flavorid=str(uuid4()) if parsed_args.id == _AUTO else parsed_args.id,
            name=parsed_args.name,
            vcpus=parsed_args.vcpus,
            memory_mb=parsed_args.ram,
            root_gb=parsed_args.disk,
            ephemeral_gb=parsed_args.ephemeral,
            swap=parsed_args.swap,
            rxtx_factor=parsed_args.rxtx_factor,
            is_public=parsed_args.public,
            description=parsed_args.description,
            extra_specs=parsed_args.property,
        )
        try:
            flavor.create()
        except ObjectExists as error:
            raise self._taken(flavor) or error from error
        return self.shown(flavor)

    def _taken(self, flavor: "Flavor") -> WharfingerError | None:
        from wharfinger.objects import Flavor

        for kind, value, get in (
            ("id", flavor.flavorid, Flavor.get_by_flavor_id),
            ("name", flavor.name, Flavor.get_by_name),
        ):
            try:
                get(self.objects, value)
            except ObjectNotFound:
                continue
            return CommandFailed(
                reason=f"no flavor was created: a flavor with the {kind} {value} already exists. "
                f"Choose another {kind}"
            )
        return None


class FlavorList(ObjectLister):
    """List the flavors."""

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        from wharfinger.objects import FlavorList as Flavors

        return ("ID", "Name", "RAM", "Disk", "Ephemeral", "Swap", "VCPUs", "Is Public"), [
            row(
                *values(flavor, "flavorid", "name", "memory_mb", "root_gb", "ephemeral_gb"),
                *values(flavor, "swap", "vcpus", "is_public"),
            )
            for flavor in Flavors.get_by_filters(self.objects)
        ]


class FlavorShow(ObjectShow):
    """Show one flavor; with --for nova, extra specs that keep nova from other owners' providers."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument(
            "flavor", metavar="FLAVOR", type=text(), help="the flavor, by id or name"
        )
        parser.add_argument(
            "--for",
            dest="program",
            choices=["nova"],
            help="print the `openstack flavor set` command for nova's flavor of the same name. "
            "The command sets extra specs with which nova takes no resources from providers of "
            "other owners. Formats other than table print only the extra specs. A flavor that "
            "extra specs cannot protect is refused",
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        flavor = find(self.objects, parsed_args.flavor)
        if parsed_args.program is None:
            return self.shown(flavor)

        from wharfinger.scheduling.nova_flavors import confined

        specs = confined(flavor)
        self._name = flavor.name
        return tuple(specs), tuple(specs.values())

    def produce_output(self, parsed_args: argparse.Namespace, column_names: Any, data: Any) -> int:
        if parsed_args.program is None or parsed_args.formatter != "table":
            return super().produce_output(parsed_args, column_names, data)
        properties = (f"{key}={value}" for key, value in zip(column_names, data, strict=True))
        lines = [*(f"--property {shlex.quote(one)}" for one in properties), shlex.quote(self._name)]
        sys.stdout.write(" \\\n    ".join(["openstack flavor set", *lines]) + "\n")
        return DONE


class FlavorDelete(ObjectCommand):
    """Delete flavors; instances and migrations keep their own copies.

    Exits with 1 if a flavor cannot be deleted.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument(
            "flavors", metavar="FLAVOR", type=text(), nargs="+", help="a flavor, by id or name"
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        failures = 0
        context = self.objects
        for wanted in dict.fromkeys(parsed_args.flavors):
            try:
                flavor = find(context, wanted)
                flavor.destroy()
            except WharfingerError as error:
                failures += 1
                self.app.LOG.error("%s: %s", printable(wanted), error)
            else:
                sys.stdout.write(f"{printable(flavor.name)} ({printable(flavor.key)}): deleted\n")
        return FAILED if failures else DONE


class _Properties(argparse.Action):
    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, *_: Any
    ) -> None:
        key, value = values
        properties = getattr(namespace, self.dest)
        if key in properties:
            raise argparse.ArgumentError(self, f"{key} occurs twice")
        setattr(namespace, self.dest, {**properties, key: value})


def find(context: "Context", wanted: str) -> "Flavor":
    """Return the flavor with this id or name. Raises ObjectNotFound."""
    from wharfinger.objects import Flavor

    try:
        return Flavor.get_by_flavor_id(context, wanted)
    except ObjectNotFound:
        return Flavor.get_by_name(context, wanted)


def _name(given: str) -> str:
    if not 1 <= len(given) <= 255 or not given.isprintable() or given != given.strip():
        raise argparse.ArgumentTypeError(
            f"{shown(given)} is not a name: 1 to 255 printable characters, without space "
            "around them"
        )
    return given


def _id(given: str) -> str:
    if not _ID.match(given):
        raise argparse.ArgumentTypeError(
            f"{shown(given)} is not an id: 1 to 255 letters, digits, spaces and . _ -, without "
            "space around them"
        )
    return given


def _factor(given: str) -> float:
    try:
        factor = float(given)
    except ValueError:
        factor = math.nan
    if not 0 < factor < math.inf:
        raise argparse.ArgumentTypeError(f"{shown(given)} is not a number above 0")
    return factor


def _property(given: str) -> tuple[str, str]:
    key, is_pair, value = given.partition("=")
    if not is_pair:
        raise argparse.ArgumentTypeError(f"{shown(given)} is not KEY=VALUE")
    if not _KEY.match(key):
        raise argparse.ArgumentTypeError(
            f"{shown(key)} is not a key: 1 to 255 letters, digits, spaces and - _ . :"
        )
    try:
        return key, text(shortest=0)(value)
    except argparse.ArgumentTypeError as error:
        raise argparse.ArgumentTypeError(f"the value of {key}: {error}") from None
