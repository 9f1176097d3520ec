"""Microversions of Placement, and the features that need them."""

from collections.abc import Mapping
from enum import Enum
from typing import Any, Final, NamedTuple, Self


class Microversion(NamedTuple):
    """A version of the API."""

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
    """A feature that some supported servers lack, with the first microversion that has it.

    The source is the version history of the Placement API. Without the feature, the client refuses
    a request before it sends anything, unless a fallback is named here.
    """

    #: Without it, two writers of a consumer's allocations overwrite each other.
    CONSUMER_GENERATION = Microversion(1, 28)
    #: Without it, no provider below a root is a candidate, without an error.
    NESTED_CANDIDATES = Microversion(1, 29)
    #: Inventories fall back to one request for each provider; moves of allocations do not.
    RESHAPE = Microversion(1, 30)
    CANDIDATES_IN_TREE = Microversion(1, 31)
    FORBIDDEN_AGGREGATES = Microversion(1, 32)
    #: Falls back to numbered groups.
    NAMED_GROUPS = Microversion(1, 33)
    #: Without it, a candidate does not show which group of a request takes from which provider.
    MAPPINGS = Microversion(1, 34)
    ROOT_REQUIRED = Microversion(1, 35)
    SAME_SUBTREE = Microversion(1, 36)
    REPARENT = Microversion(1, 37)
    #: Falls back to consumers without a type.
    CONSUMER_TYPES = Microversion(1, 38)
    #: Without it, only the last of several ``required`` holds, without an error.
    ANY_TRAITS = Microversion(1, 39)


#: The last one in which allocations have no consumer types. Later ones answer the type "unknown"
#: for allocations that were written without one, and refuse it in a write.
BEFORE_CONSUMER_TYPES: Final = Microversion(1, 37)
#: The first one with reserved == total, which full reservation needs.
LOWEST: Final = Microversion(1, 26)
#: The newest one that our tests cover. The client asks a newer server for this one.
HIGHEST: Final = Microversion(1, 39)


def without_types(allocations: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return allocations by consumer uuid, for a server that does not know consumer types."""
    return {
        consumer: {key: value for key, value in its.items() if key != "consumer_type"}
        for consumer, its in allocations.items()
    }
