"""Placement's answers, as far as we read them.

msgspec decodes them straight from the bytes: a list of ten thousand providers takes milliseconds
and no dicts. It passes over fields that are not named here.
"""

from functools import cache
from typing import Any, Final

from msgspec import DecodeError, Struct, defstruct

from wharfinger.providers.inventory import Inventory

#: Errors of msgspec for bytes that do not have the described form; some are not its own.
UNDECODABLE: Final = (DecodeError, UnicodeDecodeError, RecursionError)


class ProviderSummary(Struct, frozen=True):
    """A provider in a list: its name, parent and root, without its contents."""

    uuid: str
    name: str
    generation: int
    root_provider_uuid: str
    parent_provider_uuid: str | None = None


class Raised(Struct, frozen=True):
    """The new generation in the answer to a write of a part of a provider."""

    resource_provider_generation: int


class Inventories(Raised, frozen=True):
    """GET /resource_providers/{uuid}/inventories."""

    inventories: dict[str, Inventory]


class Traits(Raised, frozen=True):
    """GET /resource_providers/{uuid}/traits."""

    traits: frozenset[str]


class Aggregates(Raised, frozen=True):
    """GET /resource_providers/{uuid}/aggregates, from 1.19."""

    aggregates: frozenset[str]


class ResourceClass(Struct, frozen=True):
    """A resource class in GET /resource_classes."""

    name: str


class Amounts(Struct, frozen=True):
    """An allocation from one provider: amounts by resource class."""

    resources: dict[str, int]


class AllocationRequest(Struct, frozen=True):
    """One candidate: amounts by provider uuid; ``mappings`` by group suffix, from 1.34."""

    allocations: dict[str, Amounts]
    mappings: dict[str, list[str]] = {}


class Capacity(Struct, frozen=True):
    """The capacity of a resource class on a provider, and the used amount."""

    capacity: int
    used: int


class CandidateProvider(Struct, frozen=True):
    """A provider in the trees of the candidates."""

    resources: dict[str, Capacity]
    traits: frozenset[str]
    root_provider_uuid: str
    parent_provider_uuid: str | None = None


class AllocationCandidates(Struct, frozen=True):
    """GET /allocation_candidates, from 1.29; ``provider_summaries`` by provider uuid."""

    allocation_requests: list[AllocationRequest]
    provider_summaries: dict[str, CandidateProvider]


class Version(Struct, frozen=True):
    """A range of microversions that GET / lists."""

    min_version: str
    max_version: str


class Error(Struct, frozen=True):
    """An error of an answer of 400 or above; the code is there from 1.23."""

    detail: str = ""
    code: str = ""


@cache
def answer_with(member: str, kind: Any) -> type[Any]:
    """Return the type for an answer whose other members are not read."""
    return defstruct("Answer", [(member, kind)], frozen=True)
