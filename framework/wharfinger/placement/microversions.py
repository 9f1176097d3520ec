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
    """What we use that not every supported server has.

    Without it, a request is refused before anything is sent, unless a fallback is named.
    """

    #: Without it, two writers of a consumer's allocations would not see each other.
    CONSUMER_GENERATION = Microversion(1, 28)
    #: Without it, nothing below a root is ever a candidate, and no error says so.
    NESTED_CANDIDATES = Microversion(1, 29)
    #: Inventories fall back to one request a provider; moving allocations does not.
    RESHAPE = Microversion(1, 30)
    CANDIDATES_IN_TREE = Microversion(1, 31)
    FORBIDDEN_AGGREGATES = Microversion(1, 32)
    #: Falls back to numbered groups.
    NAMED_GROUPS = Microversion(1, 33)
    #: Without it, nobody can tell which group of a request takes what of a candidate.
    MAPPINGS = Microversion(1, 34)
    ROOT_REQUIRED = Microversion(1, 35)
    SAME_SUBTREE = Microversion(1, 36)
    REPARENT = Microversion(1, 37)
    #: Falls back to consumers without a type.
    CONSUMER_TYPES = Microversion(1, 38)
    #: Without it, only the last of several ``required`` holds, and no error says so.
    ANY_TRAITS = Microversion(1, 39)


#: The last one in which allocations have no consumer types. What was written without one
#: is answered later with the type "unknown", which is refused when it is sent back.
BEFORE_CONSUMER_TYPES: Final = Microversion(1, 37)
#: reserved == total. A server below it cannot do what this software is for.
LOWEST: Final = Microversion(1, 26)
#: The newest one that we have been tested with; a newer server is asked for this.
HIGHEST: Final = Microversion(1, 39)
