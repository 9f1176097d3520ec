"""Placement's answers, with the fields that we read."""

from functools import cache
from typing import Any, Final, Required, TypedDict

from msgspec import DecodeError, Struct, defstruct

from wharfinger.providers.inventory import Inventory

#: Errors that msgspec raises for bytes that do not have the described form.
UNDECODABLE: Final = (DecodeError, UnicodeDecodeError, RecursionError)


class ProviderSummary(Struct, frozen=True):
    """A provider in the answer to GET /resource_providers."""

    uuid: str
    name: str
    generation: int
    root_provider_uuid: str
    parent_provider_uuid: str | None = None


class WithGeneration(Struct, frozen=True):
    """The generation in an answer about a part of a provider."""

    resource_provider_generation: int


class Inventories(WithGeneration, frozen=True):
    """Answer to GET /resource_providers/{uuid}/inventories."""

    inventories: dict[str, Inventory]


class Traits(WithGeneration, frozen=True):
    """Answer to GET /resource_providers/{uuid}/traits."""

    traits: frozenset[str]


class Aggregates(WithGeneration, frozen=True):
    """Answer to GET /resource_providers/{uuid}/aggregates."""

    aggregates: frozenset[str]


class ResourceClass(Struct, frozen=True):
    """A resource class in the answer to GET /resource_classes."""

    name: str


class Allocation(TypedDict):
    """The amounts that a consumer has, or a candidate takes, from one provider."""

    #: By resource class.
    resources: dict[str, int]


class ConsumerAllocations(TypedDict, total=False):
    """Answer to GET /allocations/{uuid}, in the form of a request that writes allocations."""

    #: By provider uuid.
    allocations: Required[dict[str, Allocation]]
    project_id: str | None
    user_id: str | None
    #: From microversion 1.28.
    consumer_generation: int | None


class AllocationRequest(Struct, frozen=True):
    """One allocation candidate."""

    #: By provider uuid.
    allocations: dict[str, Allocation]
    #: The provider uuids that serve each request group, by group suffix; from microversion 1.34.
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
    """Answer to GET /allocation_candidates."""

    allocation_requests: list[AllocationRequest]
    #: By provider uuid.
    provider_summaries: dict[str, CandidateProvider]


class Version(Struct, frozen=True):
    """A version of the API in the answer to GET /."""

    max_version: str


class Error(Struct, frozen=True):
    """An error in an answer with status 400 or above."""

    detail: str = ""
    code: str = ""


@cache
def answer_with(member: str, kind: Any) -> type[Any]:
    """Return the type of an answer of which only one member is read."""
    return defstruct("Answer", [(member, kind)], frozen=True)
