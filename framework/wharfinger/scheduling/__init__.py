"""Request allocation candidates, and keep the owners apart."""

from wharfinger.placement.trait_conditions import TraitConditions
from wharfinger.scheduling.request import RequestGroup, ResourceRequest

__all__ = ["RequestGroup", "ResourceRequest", "TraitConditions"]
