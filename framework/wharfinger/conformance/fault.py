"""Faults of a call that a driver makes to its backend."""

from enum import StrEnum


class Fault(StrEnum):
    """What can happen to a call that a driver makes to its backend."""

    #: It is refused, or the connection breaks.
    RAISE = "raise"
    #: It is not answered, until the next ``Harness.expect``; whoever waits still is refused then.
    HANG = "hang"
    #: The answer breaks off in its middle.
    HALF = "half"
    #: It is answered with an error, in the backend's own words: a status, a refusal.
    ERROR = "error"
    #: It is answered that whoever asks may not know.
    DENIED = "denied"
    #: It is answered as the same request was answered the last time, since ``Harness.forget``.
    STALE = "stale answer"
    #: The backend does what it is asked. Its answer comes with the next ``Harness.expect``.
    LATE = "late answer"
