"""Faults that a harness injects into the calls of a driver to its backend."""

from enum import StrEnum


class Fault(StrEnum):
    """A fault of one call that a driver makes to its backend."""

    #: The connection is refused, or breaks.
    RAISE = "a connection error"
    #: The call stays unanswered until the next ``Harness.expect``. Then the connection breaks.
    HANG = "no answer"
    #: The answer breaks off in its middle.
    HALF = "half an answer"
    #: The backend answers with an error of its own kind, such as an HTTP status.
    ERROR = "an error answer"
    #: The backend does not accept the driver's credentials, such as HTTP 401.
    DENIED = "a denial of access"
    #: The backend accepts the credentials and forbids this call, such as HTTP 403.
    FORBIDDEN = "a forbidden answer"
    #: The backend answers that it does not have the object or the list, such as HTTP 404.
    MISSING = "a not-found answer"
    #: The call gets the last answer to the same request again. ``Harness.forget`` deletes these.
    STALE = "a stale answer"
    #: The backend executes the call at once. Its answer arrives at the next ``Harness.expect``.
    LATE = "a late answer"
