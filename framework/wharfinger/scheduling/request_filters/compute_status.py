"""The filter ``compute_status``: nothing is placed on what a disabled service publishes."""

from dataclasses import replace
from typing import Final

import os_traits

from wharfinger.placement.microversions import Feature
from wharfinger.placement.trait_conditions import TraitConditions
from wharfinger.scheduling.candidate import Candidate
from wharfinger.scheduling.request import ResourceRequest, invalid
from wharfinger.scheduling.request_filters.base import RequestFilter, Surroundings

_DISABLED: Final = os_traits.COMPUTE_STATUS_DISABLED
#: What it asks of the root of what is taken from.
OF_ROOTS: Final = TraitConditions(forbidden=frozenset([_DISABLED]))


class ComputeStatusFilter(RequestFilter):
    """Takes nothing from trees whose roots have COMPUTE_STATUS_DISABLED.

    ``wharfinger service disable`` sets it, and so does nova.
    """

    def __init__(self, surroundings: Surroundings) -> None:
        self._placement: Final = surroundings.placement

    def apply(self, request: ResourceRequest) -> ResourceRequest:
        """The request with the trait forbidden on the root.

        A server that cannot be told (before 1.35) is not: the check remains. Raises InvalidRequest
        for a request that requires it.
        """
        if _DISABLED in request.root.required:
            raise invalid(
                "root_required",
                _DISABLED,
                "the request filter compute_status forbids it: nothing is placed there.",
            )
        if self._placement.microversion < Feature.ROOT_REQUIRED.value:
            return request
        return replace(request, root=request.root & OF_ROOTS)

    def objection(self, request: ResourceRequest, candidate: Candidate) -> str | None:
        """Names the disabled root of what is to be taken from."""
        for uuid in candidate.allocations:
            root = candidate.providers[uuid].root_provider_uuid
            if _DISABLED in candidate.providers[root].traits:
                return f"the service that publishes {root} is disabled"
        return None
