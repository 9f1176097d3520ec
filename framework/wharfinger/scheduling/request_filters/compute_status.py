"""The request filter ``compute_status``, which excludes the trees of disabled services."""

from dataclasses import replace
from typing import Final

import os_traits

from wharfinger.placement.microversions import Feature
from wharfinger.placement.trait_conditions import TraitConditions
from wharfinger.scheduling.candidate import Candidate
from wharfinger.scheduling.request import ResourceRequest, invalid
from wharfinger.scheduling.request_filters.base import RequestFilter, Surroundings

_DISABLED: Final = os_traits.COMPUTE_STATUS_DISABLED
#: The condition on the root providers of trees.
OF_ROOTS: Final = TraitConditions(forbidden=frozenset([_DISABLED]))


class ComputeStatusFilter(RequestFilter):
    """Exclude trees whose root providers have the trait COMPUTE_STATUS_DISABLED."""

    def __init__(self, surroundings: Surroundings) -> None:
        self._placement: Final = surroundings.placement

    def apply(self, request: ResourceRequest) -> ResourceRequest:
        """Forbid the trait on the root provider, if Placement can. Raises InvalidRequest."""
        if _DISABLED in request.root.required:
            raise invalid(
                "root_required",
                _DISABLED,
                "the request filter compute_status forbids this trait. Remove it.",
            )
        if self._placement.microversion < Feature.ROOT_REQUIRED.value:
            return request
        return replace(request, root=request.root & OF_ROOTS)

    def objection(self, request: ResourceRequest, candidate: Candidate) -> str | None:
        """Return a text that names a disabled root; None without one."""
        for uuid in candidate.allocations:
            root = candidate.providers[uuid].root_provider_uuid
            if _DISABLED in candidate.providers[root].traits:
                return f"the service that publishes {root} is disabled"
        return None
