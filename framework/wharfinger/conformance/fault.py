"""Faults of a call that a driver makes to its backend."""

from enum import StrEnum


class Fault(StrEnum):
    """The fault of one call that a driver makes to its backend."""

    #: It is refused, or the connection breaks.
    RAISE = "raise"
    #: It is not answered until the next ``Harness.expect``, and then the connection breaks.
    HANG = "hang"
    #: The answer breaks off in its middle.
    HALF = "half"
    #: It is answered with an error, in the backend's own words: a status, a refusal.
    ERROR = "error"
    #: The backend denies the request: the driver has no right to ask.
    DENIED = "denied"
    #: It is answered as the same request was answered the last time, since ``Harness.forget``.
    STALE = "stale answer"
    #: The backend does what it is asked. Its answer comes with the next ``Harness.expect``.
    LATE = "late answer"
