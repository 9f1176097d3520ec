"""The commands ``wharfinger provider list``, ``provider show`` and ``provider tree``."""

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any

from cliff.lister import Lister
from cliff.show import ShowOne

from wharfinger.cli.command import Json, WharfingerCommand
from wharfinger.cli.object_command import ObjectCommand, owner
from wharfinger.cli.trait_options import (
    SUBJECT,
    SYNTAX,
    forbidden,
    naming_unknown,
    required,
    together,
    usage,
)
from wharfinger.exceptions import ObjectError, StateError, printable

if TYPE_CHECKING:
    from wharfinger.placement.model import ProviderSummary
    from wharfinger.scheduling.provider_details import Details


class ProviderList(WharfingerCommand, Lister):
    """List the resource providers in Placement with their owners."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        self._parser = parser = super().get_parser(prog_name)
        parser.add_argument(
            "--owner", metavar="TRAIT", type=owner, help="only providers with this owner trait"
        )
        parser.add_argument(
            "--required",
            dest="traits",
            metavar="TRAITS",
            type=required,
            action="append",
            default=[],
            help=f"only providers with these traits: {SYNTAX}",
        )
        parser.add_argument(
            "--forbidden",
            dest="traits",
            metavar="TRAIT",
            type=forbidden,
            action="append",
            help="only providers without this trait (repeatable)",
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        from wharfinger.placement import owner_trait_reader

        providers = sorted(self._found(parsed_args), key=lambda provider: provider.name)
        owners = owner_trait_reader.by_provider(self.placement)
        names = self._names(providers)
        rows = (
            (
                printable(provider.name),
                provider.uuid,
                printable(names.get(provider.parent_provider_uuid or "", "")),
                " ".join(owners.get(provider.uuid, ())),
                provider.generation,
            )
            for provider in providers
        )
        return ("Name", "UUID", "Parent", "Owner", "Generation"), rows

    def _found(self, parsed_args: argparse.Namespace) -> "list[ProviderSummary]":
        owners = [required(parsed_args.owner)] if parsed_args.owner else []
        with usage(self._parser):
            wanted = together([*owners, *parsed_args.traits])
        named = ((SUBJECT, "required", wanted.wanted), (SUBJECT, "forbidden", wanted.forbidden))
        with naming_unknown(self.placement, named):
            return self.placement.list_providers(required=wanted.values())

    def _names(self, providers: "list[ProviderSummary]") -> dict[str, str]:
        parents = {provider.parent_provider_uuid for provider in providers} - {None}
        if not parents <= {provider.uuid for provider in providers}:
            providers = self.placement.list_providers()
        return {provider.uuid: provider.name for provider in providers}


class ProviderShow(WharfingerCommand, ShowOne):
    """Show one resource provider with its owners, inventories, usages, traits and aggregates.

    For a child with allocations, blocks_deletion_of is the uuid of its root, which Placement does
    not delete while the child has them.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument(
            "provider", metavar="PROVIDER", help="the provider to show, by name or uuid"
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        from wharfinger.console import tree
        from wharfinger.scheduling import provider_details

        provider = provider_details.find(self.placement, parsed_args.provider)
        [found] = provider_details.details(
            self.placement, [provider], inventory=True, traits=True, usage=True
        )
        data = tree.provider_data(found)
        data["name"] = printable(data["name"])
        data["aggregates"] = sorted(self.placement.get_aggregates(provider.uuid).aggregates)
        # Placement refuses to delete the root of such a provider, and nova does not report that.
        is_used = provider.parent_provider_uuid and any((found.usages or {}).values())
        data["blocks_deletion_of"] = provider.root_provider_uuid if is_used else None
        return tuple(data), tuple(
            Json(value) if isinstance(value, dict | list) else value for value in data.values()
        )


class ProviderTreeCommand(ObjectCommand):
    """Draw the trees of resource providers with their owners and reservations."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument(
            "provider",
            metavar="PROVIDER",
            nargs="?",
            help="draw only the tree that this provider is in, by name or uuid; default: all trees",
        )
        parser.add_argument(
            "--inventory",
            action="store_true",
            help="also show inventories, and which of them other programs have fully reserved",
        )
        parser.add_argument("--traits", action="store_true", help="also show traits")
        parser.add_argument("--usage", action="store_true", help="also show usages")
        parser.add_argument(
            "-f", "--format", choices=("text", "json", "svg"), default="text", help="default: text"
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        from wharfinger.console import tree
        from wharfinger.objects.field_types import now
        from wharfinger.scheduling import provider_details

        in_tree = None
        if parsed_args.provider is not None:
            in_tree = provider_details.find(self.placement, parsed_args.provider).uuid
        providers = provider_details.details(
            self.placement,
            self.placement.list_providers(in_tree=in_tree),
            inventory=parsed_args.inventory,
            traits=parsed_args.traits,
            usage=parsed_args.usage,
        )
        providers = self._with_reservations(providers)
        if parsed_args.format == "json":
            json.dump(tree.as_data(providers), sys.stdout, indent=2)
            sys.stdout.write("\n")
            return
        drawings = tree.as_drawing(providers, now())
        if parsed_args.format == "svg":
            sys.stdout.write(tree.as_svg(drawings))
            return
        # Lines are wrapped only on a terminal.
        from rich.console import Console

        console = Console(highlight=False, width=None if sys.stdout.isatty() else tree.UNLIMITED)
        for drawing in drawings:
            console.print(drawing)
        if not providers:
            self.app.LOG.warning(
                "Placement has no resource providers. `wharfinger sync` "
                "publishes those of the enabled driver instances."
            )

    def _with_reservations(self, providers: "list[Details]") -> "list[Details]":
        from wharfinger.objects.database_context import look
        from wharfinger.scheduling import provider_details

        try:
            is_empty = look(self.conf).schema.current is None
            return provider_details.with_reservations(None if is_empty else self.objects, providers)
        except (ObjectError, StateError) as error:
            self.app.LOG.warning(
                "The reservations cannot be read from the database, so they are not shown: %s",
                error,
            )
            return providers
