"""The contract of a request filter."""

from dataclasses import dataclass

from wharfinger.conf import Options
from wharfinger.objects import Context
from wharfinger.placement.client import PlacementClient
from wharfinger.scheduling.candidate import Candidate
from wharfinger.scheduling.request import ResourceRequest


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The configuration, client and database that filters are created with."""

    conf: Options
    placement: PlacementClient
    objects: Context


class RequestFilter:
    """A rule that requests have to obey.

    A filter narrows requests, checks candidates, or does both; it overrides only the methods that
    it needs. One filter serves many requests, from several threads. Any WharfingerError that it
    raises ends the request.
    """

    def __init__(self, surroundings: Surroundings) -> None:
        """Read the configuration; send no requests here. Raises ConfigurationError."""

    def apply(self, request: ResourceRequest) -> ResourceRequest:
        """Return the request with the rule's conditions added; remove no condition.

        The search calls it again when it repeats a request.
        """
        return request

    def forget(self) -> None:
        """Clear cached data of Placement, since Placement refused the narrowed request.

        The search then narrows and sends the request once more.
        """

    def objection(self, request: ResourceRequest, candidate: Candidate) -> str | None:
        """Return why a candidate breaks the rule, None if it does not.

        ``request`` is the request as sent. The search drops the candidate if there is a reason.
        """
        return None
