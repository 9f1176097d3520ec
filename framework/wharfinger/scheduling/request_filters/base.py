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

    A filter adds conditions to requests, refuses candidates, or does both; it overrides only the
    methods that it needs. One filter serves many requests, from several threads. Any
    WharfingerError that it raises ends the request.
    """

    def __init__(self, surroundings: Surroundings) -> None:
        """Read the configuration, and send no requests yet. Raises ConfigurationError."""

    def apply(self, request: ResourceRequest) -> ResourceRequest:
        """Return the request with the conditions of this rule added; do not remove conditions.

        If the search repeats a request, it calls this method again.
        """
        return request

    def forget(self) -> None:
        """Clear cached data of Placement, because Placement has refused the request.

        The search then calls ``apply`` and sends the request once more.
        """

    def objection(self, request: ResourceRequest, candidate: Candidate) -> str | None:
        """Return why a candidate breaks this rule, None if it does not.

        ``request`` is the request as sent. The search drops a candidate that breaks the rule.
        """
        return None
