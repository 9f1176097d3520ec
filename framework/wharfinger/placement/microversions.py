"""Placement's microversions, and what needs which.

A number here is the first microversion of the Placement API that has the feature, from
the API's own version history.
"""

from enum import Enum
from typing import Final, NamedTuple, Self


class Microversion(NamedTuple):
    """A version of the API; compares as a number does."""

    major: int
    minor: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read "1.39"; raises ValueError for anything else."""
        major, minor = text.split(".")
        return cls(int(major), int(minor))

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


class Feature(Enum):
    """What we use that not every supported server has."""

    RESHAPE = Microversion(1, 30)
    REPARENT = Microversion(1, 37)


#: The last one in which allocations have no consumer types. What was written without one
#: is answered later with the type "unknown", which is refused when it is sent back.
BEFORE_CONSUMER_TYPES: Final = Microversion(1, 37)
#: reserved == total. A server below it cannot do what this software is for.
LOWEST: Final = Microversion(1, 26)
#: The newest one that we have been tested with; a newer server is asked for this.
HIGHEST: Final = Microversion(1, 39)
