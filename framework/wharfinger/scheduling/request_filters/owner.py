"""The request filter ``owner``: no group takes another owner's resources."""

from dataclasses import replace
from typing import Final

import os_traits

from wharfinger.conf import SchedulingSection
from wharfinger.placement.microversions import Feature
from wharfinger.placement.owner_trait_reader import OwnerTraits
from wharfinger.placement.trait_conditions import TraitConditions
from wharfinger.providers import ownership
from wharfinger.scheduling.candidate import Candidate
from wharfinger.scheduling.owner_tagging_gates import Gates
from wharfinger.scheduling.request import RequestGroup, ResourceRequest
from wharfinger.scheduling.request_filters.base import RequestFilter, Surroundings

_SHARES: Final = os_traits.MISC_SHARES_VIA_AGGREGATE
#: The largest number of forbidden traits of all groups: gunicorn limits a URL to 4,094 bytes.
_MOST_FORBIDDEN: Final = 60


class OwnerFilter(RequestFilter):
    """Keep each group of a request away from resources of other owners.

    Placement cannot express this rule, so the filter also checks each candidate.
    """

    def __init__(self, surroundings: Surroundings) -> None:
        section = SchedulingSection.read(surroundings.conf)
        self._placement: Final = surroundings.placement
        self._owners: Final = OwnerTraits(surroundings.placement, section.cache_time)
        self._gates: Final = Gates(surroundings.objects, section.cache_time)
        self._allows_untagged: Final = section.allows_untagged

    def apply(self, request: ResourceRequest) -> ResourceRequest:
        """Add conditions on owner traits. Raises MicroversionUnsupported."""
        if len({group.owner for group in request.groups if group.resources}) > 1:
            self._placement.require(Feature.MAPPINGS, "a request for several owners' resources")
        known = self._owners.get()
        # With more traits, the URL would be too long, and only ``objection`` applies the rule.
        forbids = len(known) * len(request.groups) <= _MOST_FORBIDDEN
        return replace(
            request,
            groups=tuple(self._confined(group, known, forbids=forbids) for group in request.groups),
        )

    def objection(self, request: ResourceRequest, candidate: Candidate) -> str | None:
        """Return a text that names a provider that a group may not use; None without one."""
        for group in request.groups:
            if not group.resources:
                continue
            for uuid in candidate.sources(group.suffix):
                traits = candidate.providers[uuid].traits
                if not self.may_take(group, traits):
                    found = ownership.owners(traits)
                    self._owners.learn(found)
                    taken = ", ".join(sorted(candidate.allocations.get(uuid, group.resources)))
                    return (
                        f"it takes {taken} for {group.owner or 'no owner'} from {uuid}, which "
                        f"belongs to {' and '.join(sorted(found)) or 'no owner'}"
                    )
        return None

    def may_take(self, group: RequestGroup, traits: frozenset[str]) -> bool:
        """Return whether a group may take resources of a provider with these traits.

        Raises ObjectError and StateError.
        """
        found = ownership.owners(traits)
        if found or group.owner is None:
            return found == ({group.owner} if group.owner else set())
        return _SHARES in traits or self._takes_untagged(group.owner)

    def forget(self) -> None:
        """Clear the cached owner traits."""
        self._owners.forget()

    def _confined(
        self, group: RequestGroup, known: frozenset[str], *, forbids: bool
    ) -> RequestGroup:
        if not group.resources:
            return group
        others = known - {group.owner} if forbids else frozenset[str]()
        conditions = TraitConditions(forbidden=others)
        # If the server cannot require one of several traits (before 1.39), or does not know the
        # owner trait yet, only ``objection`` applies the rule.
        if (
            group.owner in known
            and not self._takes_untagged(group.owner)
            and self._placement.microversion >= Feature.ANY_TRAITS.value
            and (choice := {group.owner, _SHARES} - group.traits.forbidden)
        ):
            conditions &= TraitConditions(any_of=frozenset([frozenset(choice)]))
        return replace(group, traits=group.traits & conditions)

    def _takes_untagged(self, owner: str) -> bool:
        return self._allows_untagged or not self._gates.is_on(owner)
