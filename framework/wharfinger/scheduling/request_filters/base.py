"""The interface of a request filter."""

from dataclasses import dataclass

from wharfinger.conf import Options
from wharfinger.objects import Context
from wharfinger.placement.client import PlacementClient
from wharfinger.scheduling.candidate import Candidate
from wharfinger.scheduling.request import ResourceRequest


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The configuration, Placement client and database that a filter is created with."""

    conf: Options
    placement: PlacementClient
    objects: Context


class RequestFilter:
    """A rule that all requests for allocation candidates have to follow.

    Override only the methods that the rule needs. Several threads use one filter. A WharfingerError
    ends the request.
    """

    def __init__(self, surroundings: Surroundings) -> None:
        """Read the configuration; send no requests. Raises ConfigurationError."""

    def apply(self, request: ResourceRequest) -> ResourceRequest:
        """Add the conditions of this rule to the request, and remove none."""
        return request

    def forget(self) -> None:
        """Clear cached data of Placement."""

    def objection(self, request: ResourceRequest, candidate: Candidate) -> str | None:
        """Return why a candidate breaks this rule; None if it does not.

        ``request`` is the request as sent to Placement.
        """
        return None
