"""The filter ``owner``: what a group asks for is taken from its owner's providers alone.

A group with an owner takes from providers of which that owner's trait is the only owner trait.
From one that nobody has tagged it takes if that shares through an aggregate, if the
configuration allows it, or for as long as the owner's gate is off. A group without an owner
takes from what nobody has tagged. Groups that ask for no resources take nothing.

Placement cannot be asked for just that: in the group without a suffix, a required trait need
only be had by one of the providers. So it is asked for what comes nearest, and each candidate is
checked.
"""

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
#: Traits in all groups together; with gunicorn a URL has less than 4,094 bytes.
_MOST_FORBIDDEN: Final = 60


class OwnerFilter(RequestFilter):
    """Never lets a group take another owner's resources."""

    def __init__(self, surroundings: Surroundings) -> None:
        section = SchedulingSection.read(surroundings.conf)
        self._placement: Final = surroundings.placement
        self._owners: Final = OwnerTraits(surroundings.placement, section.cache_time)
        self._gates: Final = Gates(surroundings.objects, section.cache_time)
        self._allows_untagged: Final = section.allows_untagged

    def apply(self, request: ResourceRequest) -> ResourceRequest:
        """The request with other owners forbidden in each group, and its own required.

        Raises MicroversionUnsupported where the server (before 1.34) does not say which group of
        several owners' takes what.
        """
        if len({group.owner for group in request.groups if group.resources}) > 1:
            self._placement.require(Feature.MAPPINGS, "a request for several owners' resources")
        known = self._owners.get()
        # With more, the check alone has to do: servers take URLs of some thousand characters.
        forbids = len(known) * len(request.groups) <= _MOST_FORBIDDEN
        return replace(
            request,
            groups=tuple(self._confined(group, known, forbids=forbids) for group in request.groups),
        )

    def objection(self, request: ResourceRequest, candidate: Candidate) -> str | None:
        """Names the provider that a group would take from, and may not."""
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
                        f"it takes {taken} for {group.owner or 'nobody'} from {uuid}, which "
                        f"belongs to {' and '.join(sorted(found)) or 'nobody'}"
                    )
        return None

    def may_take(self, group: RequestGroup, traits: frozenset[str]) -> bool:
        """Whether a group may take from a provider with these traits.

        Raises ObjectError, StateError.
        """
        found = ownership.owners(traits)
        if found or group.owner is None:
            return found == ({group.owner} if group.owner else set())
        return _SHARES in traits or self._takes_untagged(group.owner)

    def forget(self) -> None:
        """Which owner traits there are is asked for anew: one may have been deleted."""
        self._owners.forget()

    def _confined(
        self, group: RequestGroup, known: frozenset[str], *, forbids: bool
    ) -> RequestGroup:
        if not group.resources:
            return group
        others = known - {group.owner} if forbids else frozenset[str]()
        conditions = TraitConditions(forbidden=others)
        # Where there is no choice between traits (before 1.39), or the owner's is not known yet,
        # the check remains.
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
