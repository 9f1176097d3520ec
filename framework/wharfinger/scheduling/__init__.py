"""Request allocation candidates from Placement without mixing the resources of several owners."""

from wharfinger.placement.trait_conditions import TraitConditions
from wharfinger.scheduling.request import RequestGroup, ResourceRequest

__all__ = ["RequestGroup", "ResourceRequest", "TraitConditions"]
