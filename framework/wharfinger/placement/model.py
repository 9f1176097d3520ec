"""What Placement answers, as far as we read it.

Decoded straight from the bytes: a list of ten thousand providers takes milliseconds and
no dicts. Fields that are not named here are passed over.
"""

from typing import Any, Final

import msgspec

from wharfinger.providers.inventory import Inventory

#: What msgspec raises for bytes that are not what is described; not all of it is its own.
UNDECODABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class _Answer(msgspec.Struct, frozen=True):
    pass


class ProviderSummary(_Answer, frozen=True):
    """A provider in a list: who and where it is, not what it has."""

    uuid: str
    name: str
    generation: int
    root_provider_uuid: str
    parent_provider_uuid: str | None = None


class ProviderList(_Answer, frozen=True):
    """GET /resource_providers."""

    resource_providers: list[ProviderSummary]


class Inventories(_Answer, frozen=True):
    """GET and PUT /resource_providers/{uuid}/inventories."""

    resource_provider_generation: int
    inventories: dict[str, Inventory]


class Traits(_Answer, frozen=True):
    """GET and PUT /resource_providers/{uuid}/traits."""

    resource_provider_generation: int
    traits: frozenset[str]


class Aggregates(_Answer, frozen=True):
    """GET and PUT /resource_providers/{uuid}/aggregates, from 1.19."""

    resource_provider_generation: int
    aggregates: frozenset[str]


class Raised(_Answer, frozen=True):
    """What a write of a provider's contents answers, as far as it is news."""

    resource_provider_generation: int


class Usages(_Answer, frozen=True):
    """GET /resource_providers/{uuid}/usages: amounts by resource class."""

    usages: dict[str, int]


class ResourceClass(_Answer, frozen=True):
    """One of the resource classes."""

    name: str


class ResourceClasses(_Answer, frozen=True):
    """GET /resource_classes."""

    resource_classes: list[ResourceClass]


class Amounts(_Answer, frozen=True):
    """What is taken from one provider: amounts by resource class."""

    resources: dict[str, int]


class AllocationRequest(_Answer, frozen=True):
    """One candidate: amounts by provider uuid; ``mappings`` by group suffix, from 1.34."""

    allocations: dict[str, Amounts]
    mappings: dict[str, list[str]] = {}


class Capacity(_Answer, frozen=True):
    """How much of a class a provider has to give, and how much is taken."""

    capacity: int
    used: int


class CandidateProvider(_Answer, frozen=True):
    """A provider in the trees of the candidates."""

    resources: dict[str, Capacity]
    traits: frozenset[str]
    root_provider_uuid: str
    parent_provider_uuid: str | None = None


class AllocationCandidates(_Answer, frozen=True):
    """GET /allocation_candidates, from 1.29; ``provider_summaries`` by provider uuid."""

    allocation_requests: list[AllocationRequest]
    provider_summaries: dict[str, CandidateProvider]


class TraitNames(_Answer, frozen=True):
    """GET /traits."""

    traits: frozenset[str]


class ProviderAllocations(_Answer, frozen=True):
    """GET /resource_providers/{uuid}/allocations: by consumer."""

    allocations: dict[str, Any]


class VersionDocument(_Answer, frozen=True):
    """One of the versions that GET / lists."""

    id: str
    min_version: str = ""
    max_version: str = ""


class Versions(_Answer, frozen=True):
    """GET /."""

    versions: list[VersionDocument]


class Error(_Answer, frozen=True):
    """One error of an error document; the code is there from 1.23."""

    detail: str = ""
    code: str = ""


class Errors(_Answer, frozen=True):
    """The body of an answer of 400 or above."""

    errors: list[Error]
