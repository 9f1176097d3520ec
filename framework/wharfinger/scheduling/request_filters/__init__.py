"""Request filters: rules that all requests for allocation candidates have to follow."""

from wharfinger.placement.trait_conditions import TraitConditions
from wharfinger.scheduling.candidate import Candidate
from wharfinger.scheduling.request import RequestGroup, ResourceRequest
from wharfinger.scheduling.request_filters.base import RequestFilter, Surroundings

__all__ = [
    "Candidate",
    "RequestFilter",
    "RequestGroup",
    "ResourceRequest",
    "Surroundings",
    "TraitConditions",
]
