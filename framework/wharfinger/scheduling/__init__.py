"""Request allocation candidates from Placement without mixing the resources of several owners.

A flavor, a device profile, a port or command arguments are translated to a request. Request
filters, which are plugins, add conditions to the request. The search sends it, and the filters
check the candidates in Placement's answer. This package does not publish providers or write
allocations.
"""

from wharfinger.placement.trait_conditions import TraitConditions
from wharfinger.scheduling.request import RequestGroup, ResourceRequest

__all__ = ["RequestGroup", "ResourceRequest", "TraitConditions"]
