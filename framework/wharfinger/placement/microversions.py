"""Microversions of Placement, and the features that need them."""

from collections.abc import Mapping
from enum import Enum
from typing import Any, Final, NamedTuple


class Microversion(NamedTuple):
    """A microversion of the Placement API, such as 1.39."""

    major: int
    minor: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


class Feature(Enum):
    """A feature that some servers lack, with the first microversion that has it."""

    #: Without it, two writers of a consumer's allocations overwrite each other.
    CONSUMER_GENERATION = Microversion(1, 28)
    #: Without it, candidates never have providers below a root, and there is no error.
    NESTED_CANDIDATES = Microversion(1, 29)
    #: Fallback for inventories: one request for each provider. No fallback for allocations.
    RESHAPE = Microversion(1, 30)
    CANDIDATES_IN_TREE = Microversion(1, 31)
    FORBIDDEN_AGGREGATES = Microversion(1, 32)
    #: Fallback: numbered groups.
    NAMED_GROUPS = Microversion(1, 33)
    #: Without it, a candidate does not show which provider serves which request group.
    MAPPINGS = Microversion(1, 34)
    ROOT_REQUIRED = Microversion(1, 35)
    SAME_SUBTREE = Microversion(1, 36)
    REPARENT = Microversion(1, 37)
    #: Fallback: consumers without a type.
    CONSUMER_TYPES = Microversion(1, 38)
    #: Without it, only the last of several ``required`` counts, and there is no error.
    ANY_TRAITS = Microversion(1, 39)


#: The last microversion without consumer types. Later ones return the type "unknown" for
#: allocations that were written without a type, but refuse "unknown" in a write.
BEFORE_CONSUMER_TYPES: Final = Microversion(1, 37)
#: The first microversion with reserved == total, which full reservations need.
LOWEST: Final = Microversion(1, 26)
#: The newest microversion that our tests cover. Requests to a newer server use this one.
HIGHEST: Final = Microversion(1, 39)


def without_types(allocations: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return allocations, by consumer uuid, without their consumer types."""
    return {
        consumer: {key: value for key, value in written.items() if key != "consumer_type"}
        for consumer, written in allocations.items()
    }
