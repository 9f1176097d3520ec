"""The Placement API, typed.

One method for each request; errors are those of ``wharfinger.placement.errors``. What to
send, and when, is decided elsewhere.
"""

from collections.abc import Iterable, Mapping
from http import HTTPStatus
from types import MappingProxyType
from typing import Any, Final, TypeVar
from urllib.parse import quote

import msgspec
import requests
from keystoneauth1 import exceptions as keystone_exceptions
from keystoneauth1.adapter import Adapter

from wharfinger.conf.transport import AnswerTooLarge
from wharfinger.exceptions import MicroversionUnsupported, PlacementError, UnexpectedAnswer
from wharfinger.placement import errors, model, query
from wharfinger.placement.microversions import (
    BEFORE_CONSUMER_TYPES,
    HIGHEST,
    LOWEST,
    Feature,
    Microversion,
)
from wharfinger.placement.query import Query
from wharfinger.providers.inventory import Inventory

Answer = TypeVar("Answer")
#: What Keystone answers to credentials that it does not take; 404 to a token that has ended.
_KEYSTONE_REFUSES: Final = (401, 403, 404)


class PlacementClient:
    """A client for one Placement; safe for several threads.

    ``connections`` is how many requests may be sent at the same time. The microversion is
    negotiated at the first request: the newest that both sides know. Every method raises
    PlacementError.
    """

    def __init__(self, adapter: Adapter, connections: int = 1) -> None:
        self.connections: Final = connections
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
        """The providers that match all filters.

        ``in_tree`` is the uuid of any provider of a tree. ``required`` and ``member_of`` are
        conditions on traits and aggregates as the API writes them ("T1,!T2", "in:A1,A2"); all
        have to hold. More than one on traits, or an "in:" among them, needs 1.39.
        ``resources`` are amounts, by class, that have to be free.
        """
        one_each = {"in_tree": in_tree, "name": name, "uuid": uuid}
        filters = [(key, value) for key, value in one_each.items() if value is not None]
        filters += [("required", condition) for condition in required]
        filters += [("member_of", condition) for condition in member_of]
        if resources:
            amounts = ",".join(f"{kind}:{amount}" for kind, amount in sorted(resources.items()))
            filters.append(("resources", amounts))
        for feature in query.features(filters):
            self.require(feature, f"listing providers by {query.encoded(filters)}")
        path = f"/resource_providers?{query.encoded(filters)}" if filters else "/resource_providers"
        return self._get(path, model.ProviderList).resource_providers

    def create_provider(
        self, uuid: str, name: str, parent_uuid: str | None
    ) -> model.ProviderSummary:
        """Create a provider with nothing on it."""
        body = {"uuid": uuid, "name": name}
        if parent_uuid is not None:
            body["parent_provider_uuid"] = parent_uuid
        answer = self._request("POST", "/resource_providers", body, subject=name)
        return self._decode(f"POST /resource_providers ({name})", answer, model.ProviderSummary)

    def update_provider(
        self, uuid: str, name: str, parent_uuid: str | None
    ) -> model.ProviderSummary:
        """Rename or move a provider; another parent than before needs 1.37."""
        body = {"name": name, "parent_provider_uuid": parent_uuid}
        return self._send("PUT", _provider(uuid), body, model.ProviderSummary)

    def delete_provider(self, uuid: str) -> None:
        """Delete a provider that has neither allocations nor children."""
        self._command("DELETE", _provider(uuid))

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
        path = f"/allocations/{quote(consumer_uuid, safe='')}"
        answer = self._request("GET", path, newest=BEFORE_CONSUMER_TYPES)
        return self._decode(f"GET {path}", answer, dict[str, Any])

    def set_allocations(self, allocations: Mapping[str, Mapping[str, Any]]) -> None:
        """Replace all allocations of one or more consumers together, all or nothing.

        By consumer uuid, in the form that ``get_allocations`` gives, each with the consumer's
        generation (None: it has had none), and with its ``consumer_type``, which is not sent to a
        server that knows none. A generation that has passed refuses the whole with
        ConcurrentUpdate. Needs 1.28.
        """
        self.require(Feature.CONSUMER_GENERATION, "writing allocations")
        if self.microversion < Feature.CONSUMER_TYPES.value:
            allocations = {
                consumer: {key: value for key, value in its.items() if key != "consumer_type"}
                for consumer, its in allocations.items()
            }
        self._command("POST", "/allocations", allocations)

    def delete_allocations(self, consumer_uuid: str, held: Mapping[str, Any] | None = None) -> None:
        """Delete all allocations of a consumer.

        ``held`` is what ``get_allocations`` has given: raises ConcurrentUpdate where it is not what
        the consumer has any more. Without it, and on servers without generations of consumers
        (before 1.28), whatever the consumer has by then.
        """
        if held is None or self.microversion < Feature.CONSUMER_GENERATION.value:
            self._command("DELETE", f"/allocations/{quote(consumer_uuid, safe='')}")
            return
        nothing = {consumer_uuid: {**held, "allocations": {}}}
        subject = f"none for {consumer_uuid}"
        self._command(
            "POST", "/allocations", nothing, newest=BEFORE_CONSUMER_TYPES, subject=subject
        )

    def get_allocation_candidates(self, wanted: Query) -> model.AllocationCandidates:
        """What could be allocated for a query, as the API writes it.

        Needs 1.29, and what the query needs besides. Groups with names get numbers where the
        server knows no names.
        """
        for feature in query.candidate_features(wanted):
            self.require(feature, f"allocation candidates for {query.encoded(wanted)}")
        if self.microversion < Feature.NAMED_GROUPS.value:
            wanted = query.numbered(wanted)
        path = f"/allocation_candidates?{query.encoded(wanted)}"
        return self._get(path, model.AllocationCandidates)

    def reshape(
        self,
        inventories: Mapping[str, tuple[int, Mapping[str, Inventory]]],
        allocations: Mapping[str, Mapping[str, Any]],
        subject: str = "",
    ) -> None:
        """Replace inventories and allocations together, all or nothing.

        ``inventories`` are by provider uuid, each with the provider's generation; one that
        has passed refuses the whole. ``subject`` is what an error is to name. Needs 1.30 and
        the service role.
        """
        body = {
            "inventories": {
                uuid: {"resource_provider_generation": generation, "inventories": content}
                for uuid, (generation, content) in inventories.items()
            },
            "allocations": allocations,
        }
        self.require(Feature.RESHAPE, "POST /reshaper")
        self._command("POST", "/reshaper", body, newest=BEFORE_CONSUMER_TYPES, subject=subject)

    # Names.

    def list_traits(self, names: Iterable[str]) -> frozenset[str]:
        """Those of the named traits that the server knows."""
        named = query.encoded([("name", f"in:{','.join(sorted(names))}")])
        return self._get(f"/traits?{named}", model.TraitNames).traits

    def find_traits(self, prefix: str) -> frozenset[str]:
        """The traits that the server knows whose names begin so."""
        named = query.encoded([("name", f"startswith:{prefix}")])
        return self._get(f"/traits?{named}", model.TraitNames).traits

    def create_trait(self, name: str) -> None:
        """Make sure that a CUSTOM_ trait exists."""
        self._command("PUT", f"/traits/{name}")

    def list_resource_classes(self) -> frozenset[str]:
        """All resource classes that the server knows."""
        answer = self._get("/resource_classes", model.ResourceClasses)
        return frozenset(item.name for item in answer.resource_classes)

    def create_resource_class(self, name: str) -> None:
        """Make sure that a CUSTOM_ resource class exists."""
        self._command("PUT", f"/resource_classes/{name}")

    # One request.

    def _replace(self, uuid: str, generation: int, part: str, content: object) -> int:
        body = {"resource_provider_generation": generation, part: content}
        answer = self._send("PUT", _provider(uuid, part), body, model.Raised)
        return answer.resource_provider_generation

    def _get(self, path: str, kind: type[Answer]) -> Answer:
        return self._decode(f"GET {path}", self._request("GET", path), kind)

    def _send(self, method: str, path: str, body: object, kind: type[Answer]) -> Answer:
        return self._decode(f"{method} {path}", self._request(method, path, body), kind)

    def _command(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        newest: Microversion = HIGHEST,
        subject: str = "",
    ) -> None:
        """A request whose answer says nothing but that it was done."""
        answer = self._request(method, path, body, newest=newest, subject=subject)
        if answer.status_code not in (HTTPStatus.CREATED, HTTPStatus.NO_CONTENT):
            raise UnexpectedAnswer(
                request=f"{method} {path}",
                status=answer.status_code,
                code="",
                detail=f"201 or 204 was to be expected, not {answer.reason or 'this'}",
            )

    def _request(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        newest: Microversion = HIGHEST,
        subject: str = "",
    ) -> requests.Response:
        microversion = str(min(self.microversion, newest))
        return self._exchange(method, path, body, microversion, subject)

    def _exchange(
        self, method: str, path: str, body: object, microversion: str | None, subject: str = ""
    ) -> requests.Response:
        request = f"{method} {path} ({subject})" if subject else f"{method} {path}"
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
            if error.http_status in _KEYSTONE_REFUSES:
                raise errors.refused(request, error.http_status, f"Keystone: {error}") from error
            raise errors.unavailable(request, f"Keystone: {error}", error.http_status) from error
        except keystone_exceptions.EndpointNotFound as error:
            self._adapter.invalidate()  # the catalog comes with the token: it may be there by now
            raise errors.unavailable(request, f"no answer: {error}") from error
        except keystone_exceptions.UnknownConnectionError as error:
            raise self._unread(request, error) from error
        except (keystone_exceptions.ClientException, ValueError) as error:  # of a URL that is none
            raise errors.unavailable(request, f"no answer: {error}") from error
        if response.status_code >= 400:
            raise errors.from_response(request, response)
        return response

    def _unread(
        self, request: str, error: keystone_exceptions.UnknownConnectionError
    ) -> PlacementError:
        """Return the exception for an answer that keystoneauth could not read."""
        cause = error.original
        if not isinstance(cause, AnswerTooLarge):
            return errors.unavailable(request, f"no answer: {error}")
        detail = f"{cause.url}: {cause}"  # the URL may be Keystone's
        return UnexpectedAnswer(request=request, status=cause.status, code="", detail=detail)

    def _decode(self, request: str, response: requests.Response, kind: type[Answer]) -> Answer:
        try:
            return msgspec.json.decode(response.content, type=kind)
        except model.UNDECODABLE as error:
            raise UnexpectedAnswer(
                request=request,
                status=response.status_code,
                code="",
                detail=str(error),
            ) from error

    def _negotiate(self) -> Microversion:
        answer = self._exchange("GET", "/", None, None)
        try:
            versions = msgspec.json.decode(answer.content, type=model.Versions).versions
            oldest = min(Microversion.parse(version.min_version) for version in versions)
            newest = max(Microversion.parse(version.max_version) for version in versions)
        except (*model.UNDECODABLE, ValueError) as error:
            raise UnexpectedAnswer(
                request="GET /",
                status=answer.status_code,
                code="",
                detail=f"it does not come from Placement ({error}); see that the endpoint in the "
                "catalog, or [placement] endpoint_override, is Placement's",
            ) from error
        if oldest > HIGHEST:
            raise MicroversionUnsupported(
                request="GET /",
                status=0,
                code="",
                detail=f"the server's oldest microversion is {oldest}, and none above {HIGHEST} is "
                "known here: install a newer Wharfinger.",
            )
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
