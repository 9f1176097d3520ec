"""The contract of a request filter."""

from dataclasses import dataclass

from wharfinger.conf import Options
from wharfinger.objects import Context
from wharfinger.placement.client import PlacementClient
from wharfinger.scheduling.candidate import Candidate
from wharfinger.scheduling.request import ResourceRequest


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What filters are made with."""

    conf: Options
    placement: PlacementClient
    objects: Context


class RequestFilter:
    """A rule that requests have to obey.

    It narrows what Placement is asked, and checks what Placement answers; either alone may do,
    and is then all that is implemented. One filter serves many requests, from several threads.
    Any WharfingerError that it raises ends the request.
    """

    def __init__(self, surroundings: Surroundings) -> None:
        """Nothing is to be asked of any service here. Raises ConfigurationError."""

    def apply(self, request: ResourceRequest) -> ResourceRequest:
        """The request with the rule's conditions; with none less than it has.

        Called again when candidates of the same request are asked for once more.
        """
        return request

    def forget(self) -> None:
        """Forget what is remembered of Placement: it has refused the request as it was narrowed.

        The request is then narrowed and sent once more.
        """

    def objection(self, request: ResourceRequest, candidate: Candidate) -> str | None:
        """Why a candidate of the request cannot be used; None where it can.

        ``request`` is that which was sent. What all candidates that obey the rule pass, and no
        other does: a candidate that is objected to is dropped.
        """
        return None
