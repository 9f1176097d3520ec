"""Find traits and classes of a request that Placement does not know."""

from collections.abc import Collection, Iterator
from difflib import get_close_matches
from typing import Final

from wharfinger.exceptions import InvalidRequest
from wharfinger.objects import Flavor
from wharfinger.placement.client import PlacementClient
from wharfinger.scheduling.flavor_request import keys_of, split
from wharfinger.scheduling.known_extra_specs import DEVICE_PROFILE
from wharfinger.scheduling.request import UNNUMBERED, ResourceRequest

#: Where a request has names: its source, the key ("{}" stands for the name), and the names.
Place = tuple[str, str, Collection[str]]
Named = Collection[Place]

_TRAIT: Final = "trait"
_RESOURCES: Final = "resources"


def of_flavor(flavor: Flavor, request: ResourceRequest) -> tuple[list[Place], list[Place]]:
    """Return where a flavor's request names traits, and where it names classes.

    Raises InvalidRequest.
    """
    keys = keys_of(flavor)
    suffixes = {UNNUMBERED, *(suffix for _kind, suffix, _name in keys)}
    subject = f"flavor {flavor.name}"
    profile = f"device profile {flavor.extra_specs.get(DEVICE_PROFILE)}"
    found: dict[str, list[Place]] = {_TRAIT: [], _RESOURCES: []}
    for group in request.groups:
        traits = group.traits.wanted | group.traits.forbidden
        for kind, names in ((_TRAIT, traits), (_RESOURCES, group.resources)):
            for name in names:
                key = keys.get((kind, group.suffix, name))
                if group.suffix not in suffixes:
                    place = profile, f"{kind}:{{}}", [name]
                elif key is None or split(key):
                    place = subject, f"{kind}{group.suffix}:{{}}", [name]
                else:
                    place = subject, f"{kind} of {key}", [name]
                found[kind].append(place)
    for trait in sorted(request.root.required):
        found[_TRAIT].append((subject, f"trait of {keys[_TRAIT, None, trait]}", [trait]))
    return found[_TRAIT], found[_RESOURCES]


def check_known(client: PlacementClient, traits: Named, classes: Named = ()) -> None:
    """Raise InvalidRequest for a name that Placement does not know."""
    for problem in unknown(_TRAIT, traits, client.find_traits("")):
        raise problem
    known = client.list_resource_classes() if classes else ()
    for problem in unknown("resource class", classes, known):
        raise problem


def unknown(kind: str, named: Named, known: Collection[str]) -> Iterator[InvalidRequest]:
    """Yield an error for each name that is not known."""
    for subject, where, names in named:
        for name in sorted(names):
            if name not in known:
                close = get_close_matches(name, known, 1)
                hint = f" Did you mean {close[0]}?" if close else ""
                yield InvalidRequest(
                    subject=subject,
                    key=where.format(name),
                    value=name,
                    problem=f"Placement does not know this {kind}.{hint}",
                )
