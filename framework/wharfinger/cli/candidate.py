"""The commands ``wharfinger candidate list`` and ``candidate explain``."""

import argparse
import json
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from cliff.columns import FormattableColumn
from cliff.lister import Lister

from wharfinger.cli import request_options as options
from wharfinger.cli.flavor import find as find_flavor
from wharfinger.cli.object_command import UNSET, ObjectCommand, row, text
from wharfinger.cli.trait_options import SUBJECT, naming_unknown, usage
from wharfinger.exceptions import StateError, printable, shown

if TYPE_CHECKING:
    from wharfinger.objects import Context
    from wharfinger.scheduling import ResourceRequest
    from wharfinger.scheduling.candidate import Candidate
    from wharfinger.scheduling.candidates import Candidates
    from wharfinger.scheduling.request_filters import RequestFilter
    from wharfinger.scheduling.requested_names import Place

#: The name of the group without a suffix in tables.
_UNNUMBERED: Final = "(no suffix)"


class _CandidateCommand(ObjectCommand):
    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        self._parser = parser = super().get_parser(prog_name)
        parser.add_argument(
            "--flavor",
            metavar="FLAVOR",
            type=text(),
            help="request the resources of this flavor, by id or name",
        )
        parser.add_argument(
            "--device-profile",
            metavar="NAME",
            type=text(),
            help="request the devices of this device profile. Section [accelerator] of the "
            "configuration says whether profiles are read from Cyborg or from a file",
        )
        options.add_options(parser)
        parser.add_argument(
            "--no-filters",
            action="store_true",
            help="do not apply the configured request filters: candidates may have resources of "
            "any owner",
        )
        return parser

    def _request(self, parsed_args: argparse.Namespace) -> "ResourceRequest":
        from wharfinger.scheduling import provider_details

        find = cache(lambda name: provider_details.find(self.placement, name).uuid)
        with usage(self._parser):
            groups = options.written(parsed_args.groups, find)
        sources = list(self._sources(parsed_args))
        if not groups and not sources:
            self._parser.error("the request is empty: add --flavor, --device-profile or --resource")
        with usage(self._parser):
            return options.whole(parsed_args, sources, groups)

    def _sources(self, parsed_args: argparse.Namespace) -> "Iterator[ResourceRequest]":
        from wharfinger.scheduling import requested_names
        from wharfinger.scheduling.flavor_request import from_flavor
        from wharfinger.scheduling.known_extra_specs import DEVICE_PROFILE
        from wharfinger.scheduling.profile_sources import read_profile

        #: The source of each group by suffix, and the suffix of the group's keys in that source.
        self._origins: dict[str, tuple[str, str]] = {}
        #: Where the flavor names traits, and where it names resource classes.
        self._of_flavor: tuple[list[Place], list[Place]] = ([], [])

        def profile(name: str) -> "ResourceRequest":
            request = read_profile(self.conf, name)
            for group in request.groups:
                self._origins[group.suffix] = (f"device profile {name}", "")
            return request

        if parsed_args.flavor is not None:
            flavor = find_flavor(self.objects, parsed_args.flavor)
            if parsed_args.device_profile is not None and DEVICE_PROFILE in flavor.extra_specs:
                self._parser.error(
                    f"argument --device-profile: flavor {printable(flavor.name)} already requests "
                    f"the device profile {shown(flavor.extra_specs[DEVICE_PROFILE])}: omit "
                    "--device-profile"
                )
            request = from_flavor(flavor, profile)
            self._of_flavor = requested_names.of_flavor(flavor, request)
            for group in request.groups:
                self._origins.setdefault(group.suffix, (f"flavor {flavor.name}", group.suffix))
            yield request
        if parsed_args.device_profile is not None:
            yield profile(parsed_args.device_profile)

    def _traits(self, request: "ResourceRequest") -> Iterator[tuple[str, str, Collection[str]]]:
        yield from self._of_flavor[0]
        for group in request.groups:
            suffix, traits = group.suffix, group.traits
            if origin := self._origins.get(suffix):
                yield origin[0], f"trait{origin[1]}:{{}}", traits.wanted | traits.forbidden
            else:
                yield SUBJECT, f"required{_of(suffix)}", traits.wanted
                yield SUBJECT, f"forbidden{_of(suffix)}", traits.forbidden
        yield SUBJECT, "root_required", request.root.wanted | request.root.forbidden

    def _classes(self, request: "ResourceRequest") -> Iterator[tuple[str, str, Collection[str]]]:
        yield from self._of_flavor[1]
        for group in request.groups:
            if origin := self._origins.get(group.suffix):
                yield origin[0], f"resources{origin[1]}:{{}}", group.resources
            else:
                yield SUBJECT, f"resources{_of(group.suffix)}", group.resources

    def _filters(self) -> "Mapping[str, RequestFilter]":
        from wharfinger.conf import SchedulingSection
        from wharfinger.scheduling.request_filters import Surroundings, loader

        names = SchedulingSection.read(self.conf).request_filters
        return loader.load(names, Surroundings(self.conf, self.placement, self.objects))

    def _unknown_owners(
        self, parsed_args: argparse.Namespace, found: Set[str]
    ) -> Iterator[Exception]:
        from wharfinger.placement import owner_trait_reader
        from wharfinger.scheduling.requested_names import unknown

        chosen = [one for group in parsed_args.groups.values() for one in group]
        named = {owner for option, owner in chosen if option == "owner" and owner}
        if absent := named - found:
            known = owner_trait_reader.find(self.placement)
            yield from unknown("trait", [(SUBJECT, "owner", absent)], known)


class CandidateList(_CandidateCommand, Lister):
    """List the allocation candidates for a request; the command allocates nothing.

    A flavor, a device profile, group options, or several of these together describe the request. By
    default, no group gets another owner's resources.
    """

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        from wharfinger.scheduling.candidates import CandidateSearch
        from wharfinger.scheduling.requested_names import check_known

        request = self._request(parsed_args)
        filters = {} if parsed_args.no_filters else self._filters()
        traits, classes = list(self._traits(request)), list(self._classes(request))
        with naming_unknown(self.placement, traits, classes), usage(self._parser):
            found = CandidateSearch(self.placement, filters).find(request)
        if not found.candidates:
            # Placement does not report each unknown name: it may stop before it reads the name.
            check_known(self.placement, traits, classes)
        self._warn(parsed_args, found, ", ".join(filters))
        return (
            "Candidate",
            "Provider",
            "UUID",
            "Owner",
            "Allocation",
            "Groups",
            "Used/Capacity",
        ), list(self._rows(found.candidates))

    def _warn(self, parsed_args: argparse.Namespace, found: "Candidates", filters: str) -> None:
        warn = self.app.LOG.warning
        if found.dropped:
            counts = ", ".join(f"{count} by {name}" for name, count in found.dropped.items())
            warn(
                "Wharfinger dropped candidates: %s. -v shows the first reason of each filter.",
                counts,
            )
        if not found.candidates:
            hint = (
                f" --no-filters lists candidates without filtering by {filters}." if filters else ""
            )
            warn(
                "No candidates. To see why, run `wharfinger candidate explain` with the same "
                "options.%s",
                hint,
            )
        elif parsed_args.limit is None and len(found.candidates) == options.LIMIT:
            warn("The list ends after %d candidates; for more, raise --limit.", options.LIMIT)
        for problem in self._unknown_owners(parsed_args, _owners(found)) if filters else ():
            warn("%s", problem)

    def _rows(self, candidates: "Sequence[Candidate]") -> Iterator[tuple[Any, ...]]:
        if not candidates:
            return
        names = {provider.uuid: provider.name for provider in self.placement.list_providers()}
        for number, candidate in enumerate(candidates, 1):
            involved = set(candidate.allocations).union(*candidate.mappings.values())
            for uuid in sorted(involved, key=lambda one: (names.get(one, ""), one)):
                yield row(number, names.get(uuid, UNSET), uuid, *_cells(candidate, uuid))


class CandidateExplain(_CandidateCommand):
    """Explain why a request has its candidates, or why it has none.

    Prints the number of candidates, how many providers of each group are suitable or excluded,
    and advice.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument(
            "-f", "--format", choices=("text", "json"), default="text", help="default: text"
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        from wharfinger.console import explanation
        from wharfinger.objects.field_types import now
        from wharfinger.scheduling.explainer import Explaining

        request = self._request(parsed_args)
        filters = {} if parsed_args.no_filters else self._filters()
        traits, classes = list(self._traits(request)), list(self._classes(request))
        with naming_unknown(self.placement, traits, classes), usage(self._parser):
            explaining = Explaining(self.placement, filters, self._database())
            explained = explaining.explain(request)
        for problem in self._unknown_owners(parsed_args, explained.owners) if filters else ():
            self.app.LOG.warning("%s", problem)
        if parsed_args.format == "json":
            json.dump(explanation.as_data(explained, now()), sys.stdout, indent=2)
            sys.stdout.write("\n")
            return
        for line in explanation.as_text(explained, now()):
            self.app.stdout.write(f"{line}\n")

    def _database(self) -> "Context | None":
        from wharfinger.objects.database_context import look

        try:
            is_there = self.has_opened or look(self.conf).schema.current is not None
            return self.objects if is_there else None
        except StateError as error:
            self.app.LOG.warning(
                "The database cannot be read, so the explanation shows reservations by Wharfinger "
                "as those of other programs: %s",
                error,
            )
            return None


class _Cell(FormattableColumn[Any]):
    def __init__(self, data: Any, text: str) -> None:
        super().__init__(data)
        self._text: Final = text

    def human_readable(self) -> str:
        return self._text


def _owners(found: "Candidates") -> set[str]:
    from wharfinger.providers import ownership

    return {
        owner
        for candidate in found.candidates
        for uuid in candidate.allocations
        for owner in ownership.owners(candidate.providers[uuid].traits)
    }


def _cells(candidate: "Candidate", uuid: str) -> Iterator[Any]:
    from wharfinger.providers import ownership

    provider = candidate.providers.get(uuid)  # None for a provider of a group without resources
    amounts = dict(sorted(candidate.allocations.get(uuid, {}).items()))
    resources = provider.resources if provider else {}
    stock = {kind: its for kind, its in sorted(resources.items()) if kind in amounts}
    yield " ".join(sorted(ownership.owners(provider.traits))) if provider else UNSET
    yield _Cell(amounts, "\n".join(f"{kind}={amount}" for kind, amount in amounts.items()))
    if candidate.mappings:
        suffixes = sorted(one for one, uuids in candidate.mappings.items() if uuid in uuids)
        yield _Cell(suffixes, "\n".join(suffix or _UNNUMBERED for suffix in suffixes))
    else:
        yield UNSET
    yield _Cell(
        {kind: {"used": its.used, "capacity": its.capacity} for kind, its in stock.items()},
        "\n".join(f"{kind}={its.used}/{its.capacity}" for kind, its in stock.items()),
    )


def _of(suffix: str) -> str:
    return f" of group {suffix}" if suffix else ""
