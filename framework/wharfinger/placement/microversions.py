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


def writable_allocations(
    allocations: Mapping[str, Mapping[str, Any]], server: Microversion
) -> tuple[Mapping[str, Mapping[str, Any]], Microversion]:
    """Return the allocations to write, by consumer uuid, and the newest microversion for it.

    They keep their consumer types if each has one and the server knows consumer types.
    """
    has_types = all("consumer_type" in written for written in allocations.values())
    if has_types and server >= Feature.CONSUMER_TYPES.value:
        return allocations, HIGHEST
    return {
        consumer: {key: value for key, value in written.items() if key != "consumer_type"}
        for consumer, written in allocations.items()
    }, BEFORE_CONSUMER_TYPES
