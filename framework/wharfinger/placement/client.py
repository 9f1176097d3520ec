"""Client of the Placement API: transport, microversion and reads."""

from collections import Counter
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from threading import Lock
from types import MappingProxyType
from typing import Any, Final, TypeVar
from urllib.parse import quote

import msgspec
import requests
from keystoneauth1.adapter import Adapter
from keystoneauth1.exceptions import ClientException, EndpointNotFound

from wharfinger import request_id
from wharfinger.exceptions import MicroversionUnsupported
from wharfinger.placement import error_mapping, model, query_features
from wharfinger.placement.microversions import (
    BEFORE_CONSUMER_TYPES,
    HIGHEST,
    LOWEST,
    Feature,
    Microversion,
)
from wharfinger.placement.query_features import Query

Answer = TypeVar("Answer")


class PlacementClient:
    """A client of one Placement service; safe for several threads.

    Methods raise PlacementError, and with the embedded Placement also StateError.
    """

    def __init__(self, adapter: Adapter, connections: int = 1) -> None:
        #: The number of concurrent requests.
        self.connections: Final = connections
        #: The number of requests, by method and HTTP status (0: no answer).
        self.counts: Final[Counter[tuple[str, int]]] = Counter()
        self._counting: Final = Lock()
        self._adapter: Final = adapter
        self._microversion: Microversion | None = None

    @property
    def microversion(self) -> Microversion:
        """The newest microversion that the server and this client know."""
        if self._microversion is None:
            self._microversion = self._negotiate()
        return self._microversion

    def require(self, feature: Feature, purpose: str) -> None:
        """Raise MicroversionUnsupported if the server lacks the feature."""
        if self.microversion < feature.value:
            detail = f"needs microversion {feature.value}, the server has {self.microversion}."
            raise MicroversionUnsupported(request=purpose, detail=detail)

    # Providers.

    def list_providers(
        self,
        *,
        name: str | None = None,
        uuid: str | None = None,
        in_tree: str | None = None,
        required: tuple[str, ...] = (),
        member_of: tuple[str, ...] = (),
        resources: Mapping[str, int] = MappingProxyType({}),
    ) -> list[model.ProviderSummary]:
        """Return the providers that match all filters; raises MicroversionUnsupported.

        ``required`` and ``member_of`` are conditions in the syntax of the API, such as "in:A1,A2".
        """
        one_each = {"in_tree": in_tree, "name": name, "uuid": uuid}
        filters = [(key, value) for key, value in one_each.items() if value is not None]
        filters += [("required", condition) for condition in required]
        filters += [("member_of", condition) for condition in member_of]
        if resources:
            amounts = ",".join(f"{kind}:{amount}" for kind, amount in sorted(resources.items()))
            filters.append(("resources", amounts))
        encoded = query_features.encoded(filters)
        for feature in query_features.features(filters):
            self.require(feature, f"listing providers by {encoded}")
        path = f"/resource_providers?{encoded}" if filters else "/resource_providers"
        return self._get_member(path, "resource_providers", list[model.ProviderSummary])

    def get_inventories(self, uuid: str) -> model.Inventories:
        """Return the inventories of a provider."""
        return self._get(provider_path(uuid, "inventories"), model.Inventories)

    def get_traits(self, uuid: str) -> model.Traits:
        """Return the traits of a provider."""
        return self._get(provider_path(uuid, "traits"), model.Traits)

    def get_aggregates(self, uuid: str) -> model.Aggregates:
        """Return the aggregates of a provider."""
        return self._get(provider_path(uuid, "aggregates"), model.Aggregates)

    def get_usages(self, uuid: str) -> dict[str, int]:
        """Return how much of a provider is allocated, by resource class."""
        return self._get_member(provider_path(uuid, "usages"), "usages", dict[str, int])

    # Allocations.

    def get_provider_allocations(self, uuid: str) -> dict[str, Any]:
        """Return the allocations from a provider in the form of the API, by consumer uuid."""
        return self._get_member(provider_path(uuid, "allocations"), "allocations", dict[str, Any])

    def get_allocations(self, consumer_uuid: str) -> dict[str, Any]:
        """Return a consumer's allocations in the form of a request, without consumer type."""
        kind = model.ConsumerAllocations
        return {**self._get(consumer_path(consumer_uuid), kind, BEFORE_CONSUMER_TYPES)}

    def get_allocation_candidates(self, wanted: Query) -> model.AllocationCandidates:
        """Return the allocation candidates for a query; raises MicroversionUnsupported."""
        for feature in query_features.candidate_features(wanted):
            self.require(feature, f"allocation candidates for {query_features.encoded(wanted)}")
        if self.microversion < Feature.NAMED_GROUPS.value:
            wanted = query_features.numbered(wanted)
        path = f"/allocation_candidates?{query_features.encoded(wanted)}"
        return self._get(path, model.AllocationCandidates)

    # Names.

    def list_traits(self, names: Iterable[str]) -> frozenset[str]:
        """Return the traits among ``names`` that the server knows."""
        return self._find_traits(f"in:{','.join(sorted(names))}")

    def find_traits(self, prefix: str) -> frozenset[str]:
        """Return the traits with this prefix that the server knows."""
        return self._find_traits(f"startswith:{prefix}")

    def list_resource_classes(self) -> frozenset[str]:
        """Return all resource classes that the server knows."""
        found = self._get_member("/resource_classes", "resource_classes", list[model.ResourceClass])
        return frozenset(item.name for item in found)

    # Only provider_writes and allocation_writes may write with these methods.

    def send(
        self,
        method: str,
        path: str,
        body: object,
        kind: type[Answer],
        *,
        newest: Microversion = HIGHEST,
        subject: str = "",
    ) -> Answer:
        """Send a request with at most microversion ``newest``; return the decoded answer."""
        request, answer = self._request(method, path, body, newest, subject)
        try:
            return msgspec.json.decode(answer.content, type=kind)
        except model.UNDECODABLE as error:
            raise error_mapping.unexpected(request, answer, str(error)) from error

    def command(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        newest: Microversion = HIGHEST,
        subject: str = "",
    ) -> None:
        """Send a request; raises UnexpectedAnswer for a success other than 201 and 204."""
        request, answer = self._request(method, path, body, newest, subject)
        if answer.status_code not in (HTTPStatus.CREATED, HTTPStatus.NO_CONTENT):
            detail = f"expected status 201 or 204, not {answer.reason or 'this'}"
            raise error_mapping.unexpected(request, answer, detail)

    def _find_traits(self, condition: str) -> frozenset[str]:
        path = f"/traits?{query_features.encoded([('name', condition)])}"
        return self._get_member(path, "traits", frozenset[str])

    def _get(self, path: str, kind: type[Answer], newest: Microversion = HIGHEST) -> Answer:
        return self.send("GET", path, None, kind, newest=newest)

    def _get_member(self, path: str, member: str, kind: type[Answer]) -> Answer:
        whole = model.answer_with(member, kind)  # type: ignore[arg-type]  # a type is hashable
        value: Answer = getattr(self._get(path, whole), member)
        return value

    def _request(
        self, method: str, path: str, body: object, newest: Microversion | None, subject: str = ""
    ) -> tuple[str, requests.Response]:
        request = f"{method} {path} ({subject})" if subject else f"{method} {path}"
        content = {}
        if body is not None:
            content = {
                "data": msgspec.json.encode(body),
                "headers": {"Content-Type": "application/json"},
            }
        microversion = None if newest is None else str(min(self.microversion, newest))
        try:
            response: requests.Response = self._adapter.request(
                path,
                method,
                raise_exc=False,
                microversion=microversion,
                global_request_id=request_id.current(),
                **content,
            )
        except (ClientException, ValueError) as error:  # ValueError: the URL is malformed
            self._count(method, 0)
            if isinstance(error, EndpointNotFound):
                # The catalog comes with the token. A new one may have the endpoint.
                self._adapter.invalidate()
            raise error_mapping.from_keystoneauth(request, error) from error
        self._count(method, response.status_code)
        if response.status_code >= 400:
            raise error_mapping.from_response(request, response)
        return request, response

    def _count(self, method: str, status: int) -> None:
        with self._counting:  # several threads may send requests
            self.counts[method, status] += 1

    def _negotiate(self) -> Microversion:
        request, answer = self._request("GET", "/", None, None)
        kind = model.answer_with("versions", list[model.Version])
        try:
            versions = msgspec.json.decode(answer.content, type=kind).versions
            newest = max(
                Microversion(*map(int, version.max_version.split("."))) for version in versions
            )
        except (*model.UNDECODABLE, TypeError, ValueError) as error:
            raise error_mapping.unexpected(
                request,
                answer,
                f"the answer does not come from Placement ({error}); check that the endpoint in "
                "the catalog, or [placement] endpoint_override, belongs to Placement",
            ) from error
        if newest < LOWEST:
            detail = (
                f"the server's newest microversion is {newest}, but full reservations need "
                f"{LOWEST}: upgrade Placement to OpenStack Rocky or later."
            )
            raise MicroversionUnsupported(request=request, detail=detail)
        return min(newest, HIGHEST)


def provider_path(uuid: str, part: str = "") -> str:
    """Return the URL path of a provider, or of a part such as its traits."""
    path = f"/resource_providers/{quote(uuid, safe='')}"
    return f"{path}/{part}" if part else path


def consumer_path(uuid: str) -> str:
    """Return the URL path of the allocations of a consumer."""
    return f"/allocations/{quote(uuid, safe='')}"
