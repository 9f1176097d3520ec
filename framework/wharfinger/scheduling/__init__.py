"""Asking Placement for resources, so that owners are never mixed.

A request is a value, made of a flavor, a device profile, a port or arguments. Filters narrow
it, each a plugin; it is encoded and sent; and what comes back is checked by them again.
Nothing here publishes, or allocates.
"""

from wharfinger.placement.trait_conditions import TraitConditions
from wharfinger.scheduling.request import RequestGroup, ResourceRequest

__all__ = ["RequestGroup", "ResourceRequest", "TraitConditions"]
