"""Requests to Placement for allocation candidates that never mix owners.

A flavor, a device profile, a port or command arguments become a request. Request filters, each a
plugin, narrow the request; the search sends it; the filters check the candidates of the answer.
Nothing here publishes providers or writes allocations.
"""

from wharfinger.placement.trait_conditions import TraitConditions
from wharfinger.scheduling.request import RequestGroup, ResourceRequest

__all__ = ["RequestGroup", "ResourceRequest", "TraitConditions"]
