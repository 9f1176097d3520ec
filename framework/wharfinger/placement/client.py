"""The Placement API, typed.

One method for each request; errors are those of ``wharfinger.placement.errors``. What to
send, and when, is decided elsewhere.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeVar
from urllib.parse import quote, urlencode

import msgspec
import requests
from keystoneauth1 import exceptions as keystone_exceptions
from keystoneauth1.adapter import Adapter

from wharfinger.exceptions import (
    MicroversionUnsupported,
    PermissionRefused,
    PlacementUnavailable,
    UnexpectedAnswer,
)
from wharfinger.placement import errors, model
from wharfinger.placement.microversions import (
    BEFORE_CONSUMER_TYPES,
    HIGHEST,
    LOWEST,
    Feature,
    Microversion,
)
from wharfinger.providers.inventory import Inventory

Answer = TypeVar("Answer")


class PlacementClient:
    """A client for one Placement; safe for several threads.

    The microversion is negotiated at the first request: the newest that both sides know.
    Every method raises PlacementError.
    """

    def __init__(self, adapter: Adapter) -> None:
        self._adapter: Final = adapter
        self._microversion: Microversion | None = None

    @property
    def microversion(self) -> Microversion:
        """The one that all requests are made with."""
        if self._microversion is None:
            self._microversion = self._negotiate()
        return self._microversion

    def require(self, feature: Feature, purpose: str) -> None:
        """Raise MicroversionUnsupported, before anything is sent, without a feature."""
        if self.microversion < feature.value:
            raise MicroversionUnsupported(
                request=purpose,
                status=0,
                code="",
                detail=f"needs microversion {feature.value}, the server has {self.microversion}.",
            )

    # Providers.

    def list_providers(self, **filters: str) -> list[model.ProviderSummary]:
        """The providers that match all filters: name, uuid, in_tree, required, member_of."""
        query = f"?{urlencode(sorted(filters.items()))}" if filters else ""
        return self._get(f"/resource_providers{query}", model.ProviderList).resource_providers

    def create_provider(
        self, uuid: str, name: str, parent_uuid: str | None
    ) -> model.ProviderSummary:
        """Create a provider with nothing on it."""
        body = {"uuid": uuid, "name": name}
        if parent_uuid is not None:
            body["parent_provider_uuid"] = parent_uuid
        return self._send("POST", "/resource_providers", body, model.ProviderSummary)

    def update_provider(
        self, uuid: str, name: str, parent_uuid: str | None
    ) -> model.ProviderSummary:
        """Rename or move a provider; another parent than before needs 1.37."""
        body = {"name": name, "parent_provider_uuid": parent_uuid}
        return self._send("PUT", _provider(uuid), body, model.ProviderSummary)

    def delete_provider(self, uuid: str) -> None:
        """Delete a provider that has neither allocations nor children."""
        self._request("DELETE", _provider(uuid))

    # What a provider has. Each write names the generation it was decided on, raises
    # ConcurrentUpdate if that has passed, and returns the next.

    def get_inventories(self, uuid: str) -> model.Inventories:
        """A provider's inventories."""
        return self._get(_provider(uuid, "inventories"), model.Inventories)

    def set_inventories(
        self, uuid: str, generation: int, inventories: Mapping[str, Inventory]
    ) -> int:
        """Replace a provider's inventories."""
        return self._replace(uuid, generation, "inventories", inventories)

    def get_traits(self, uuid: str) -> model.Traits:
        """A provider's traits."""
        return self._get(_provider(uuid, "traits"), model.Traits)

    def set_traits(self, uuid: str, generation: int, traits: Iterable[str]) -> int:
        """Replace a provider's traits."""
        return self._replace(uuid, generation, "traits", sorted(traits))

    def get_aggregates(self, uuid: str) -> model.Aggregates:
        """The aggregates that a provider is in."""
        return self._get(_provider(uuid, "aggregates"), model.Aggregates)

    def set_aggregates(self, uuid: str, generation: int, aggregates: Iterable[str]) -> int:
        """Replace the aggregates that a provider is in."""
        return self._replace(uuid, generation, "aggregates", sorted(aggregates))

    def get_usages(self, uuid: str) -> dict[str, int]:
        """What of a provider is allocated, by resource class."""
        return self._get(_provider(uuid, "usages"), model.Usages).usages

    # Allocations.

    def get_provider_allocations(self, uuid: str) -> dict[str, Any]:
        """The allocations from a provider, by consumer uuid."""
        return self._get(_provider(uuid, "allocations"), model.ProviderAllocations).allocations

    def get_allocations(self, consumer_uuid: str) -> dict[str, Any]:
        """All allocations of a consumer, as ``reshape`` takes them back."""
        path = f"/allocations/{consumer_uuid}"
        answer = self._request("GET", path, newest=BEFORE_CONSUMER_TYPES)
        return self._decode("GET", path, answer, dict[str, Any])

    def reshape(
        self,
        inventories: Mapping[str, tuple[int, Mapping[str, Inventory]]],
        allocations: Mapping[str, Mapping[str, Any]],
    ) -> None:
        """Replace inventories and allocations together, all or nothing.

        ``inventories`` are by provider uuid, each with the provider's generation; one that
        has passed refuses the whole. Needs 1.30 and the service role.
        """
        body = {
            "inventories": {
                uuid: {"resource_provider_generation": generation, "inventories": content}
                for uuid, (generation, content) in inventories.items()
            },
            "allocations": allocations,
        }
        self._request("POST", "/reshaper", body, BEFORE_CONSUMER_TYPES)

    # Names.

    def list_traits(self, names: Iterable[str]) -> frozenset[str]:
        """Those of the named traits that the server knows."""
        query = urlencode({"name": f"in:{','.join(sorted(names))}"})
        return self._get(f"/traits?{query}", model.TraitNames).traits

    def find_traits(self, prefix: str) -> frozenset[str]:
        """The traits that the server knows whose names begin so."""
        query = urlencode({"name": f"startswith:{prefix}"})
        return self._get(f"/traits?{query}", model.TraitNames).traits

    def create_trait(self, name: str) -> None:
        """Make sure that a CUSTOM_ trait exists."""
        self._request("PUT", f"/traits/{name}")

    def create_resource_class(self, name: str) -> None:
        """Make sure that a CUSTOM_ resource class exists."""
        self._request("PUT", f"/resource_classes/{name}")

    # One request.

    def _replace(self, uuid: str, generation: int, part: str, content: object) -> int:
        body = {"resource_provider_generation": generation, part: content}
        answer = self._send("PUT", _provider(uuid, part), body, model.Raised)
        return answer.resource_provider_generation

    def _get(self, path: str, kind: type[Answer]) -> Answer:
        return self._decode("GET", path, self._request("GET", path), kind)

    def _send(self, method: str, path: str, body: object, kind: type[Answer]) -> Answer:
        return self._decode(method, path, self._request(method, path, body), kind)

    def _request(
        self, method: str, path: str, body: object = None, newest: Microversion = HIGHEST
    ) -> requests.Response:
        return self._exchange(method, path, body, str(min(self.microversion, newest)))

    def _exchange(
        self, method: str, path: str, body: object, microversion: str | None
    ) -> requests.Response:
        request = f"{method} {path}"
        content = {}
        if body is not None:
            content = {
                "data": msgspec.json.encode(body),
                "headers": {"Content-Type": "application/json"},
            }
        try:
            response: requests.Response = self._adapter.request(
                path, method, raise_exc=False, microversion=microversion, **content
            )
        except keystone_exceptions.HttpError as error:  # Keystone's answer, not Placement's
            kind = PermissionRefused if error.http_status in (401, 403) else PlacementUnavailable
            raise kind(
                request=request, status=error.http_status, code="", detail=str(error)
            ) from error
        except keystone_exceptions.ClientException as error:
            raise PlacementUnavailable(
                request=request, status=0, code="", detail=str(error)
            ) from error
        if response.status_code >= 400:
            raise errors.from_response(request, response)
        return response

    def _decode(
        self, method: str, path: str, response: requests.Response, kind: type[Answer]
    ) -> Answer:
        try:
            return msgspec.json.decode(response.content, type=kind)
        except msgspec.DecodeError as error:
            raise UnexpectedAnswer(
                request=f"{method} {path}",
                status=response.status_code,
                code="",
                detail=str(error),
            ) from error

    def _negotiate(self) -> Microversion:
        answer = self._exchange("GET", "/", None, None)
        versions = self._decode("GET", "/", answer, model.Versions).versions
        try:
            newest = max(Microversion.parse(version.max_version) for version in versions)
        except ValueError as error:
            raise UnexpectedAnswer(
                request="GET /", status=answer.status_code, code="", detail=str(error)
            ) from error
        if newest < LOWEST:
            raise MicroversionUnsupported(
                request="GET /",
                status=0,
                code="",
                detail=f"the server's newest microversion is {newest}, and nothing can be fully "
                f"reserved below {LOWEST}: upgrade it to OpenStack Rocky or later.",
            )
        return min(newest, HIGHEST)


def _provider(uuid: str, part: str = "") -> str:
    path = f"/resource_providers/{quote(uuid, safe='')}"
    return f"{path}/{part}" if part else path
