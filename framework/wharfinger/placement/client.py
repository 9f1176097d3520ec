"""The Placement API, typed: transport, negotiation and reads.

One method for each read; ``error_mapping`` has the errors. Writes are in ``provider_writes`` and
``allocation_writes``. Callers decide which requests are sent, and when.
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

from wharfinger.conf.http_transport import AnswerTooLarge
from wharfinger.exceptions import MicroversionUnsupported, PlacementError, UnexpectedAnswer
from wharfinger.placement import error_mapping, model, query
from wharfinger.placement.microversions import (
    BEFORE_CONSUMER_TYPES,
    HIGHEST,
    LOWEST,
    Feature,
    Microversion,
)
from wharfinger.placement.query import Query

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

    # Parts of a provider.

    def get_inventories(self, uuid: str) -> model.Inventories:
        """A provider's inventories."""
        return self._get(provider_path(uuid, "inventories"), model.Inventories)

    def get_traits(self, uuid: str) -> model.Traits:
        """A provider's traits."""
        return self._get(provider_path(uuid, "traits"), model.Traits)

    def get_aggregates(self, uuid: str) -> model.Aggregates:
        """The aggregates that a provider is in."""
        return self._get(provider_path(uuid, "aggregates"), model.Aggregates)

    def get_usages(self, uuid: str) -> dict[str, int]:
        """What of a provider is allocated, by resource class."""
        return self._get(provider_path(uuid, "usages"), model.Usages).usages

    # Allocations.

    def get_provider_allocations(self, uuid: str) -> dict[str, Any]:
        """The allocations from a provider, by consumer uuid."""
        return self._get(provider_path(uuid, "allocations"), model.ProviderAllocations).allocations

    def get_allocations(self, consumer_uuid: str) -> dict[str, Any]:
        """All allocations of a consumer, in the form that writes take."""
        path = consumer_path(consumer_uuid)
        answer = self._request("GET", path, newest=BEFORE_CONSUMER_TYPES)
        return self._decode(f"GET {path}", answer, dict[str, Any])

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

    # Names.

    def list_traits(self, names: Iterable[str]) -> frozenset[str]:
        """Those of the named traits that the server knows."""
        named = query.encoded([("name", f"in:{','.join(sorted(names))}")])
        return self._get(f"/traits?{named}", model.TraitNames).traits

    def find_traits(self, prefix: str) -> frozenset[str]:
        """The traits that the server knows whose names begin so."""
        named = query.encoded([("name", f"startswith:{prefix}")])
        return self._get(f"/traits?{named}", model.TraitNames).traits

    def list_resource_classes(self) -> frozenset[str]:
        """All resource classes that the server knows."""
        answer = self._get("/resource_classes", model.ResourceClasses)
        return frozenset(item.name for item in answer.resource_classes)

    # Requests that write: for ``provider_writes`` and ``allocation_writes`` alone.

    def send(
        self, method: str, path: str, body: object, kind: type[Answer], *, subject: str = ""
    ) -> Answer:
        """Send a request and return its decoded answer; an error names the ``subject``."""
        answer = self._request(method, path, body, subject=subject)
        request = f"{method} {path} ({subject})" if subject else f"{method} {path}"
        return self._decode(request, answer, kind)

    def command(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        newest: Microversion = HIGHEST,
        subject: str = "",
    ) -> None:
        """Send a request, and check that its answer has status 201 or 204.

        The microversion is at most ``newest``. An error names the ``subject``.
        """
        answer = self._request(method, path, body, newest=newest, subject=subject)
        if answer.status_code not in (HTTPStatus.CREATED, HTTPStatus.NO_CONTENT):
            raise UnexpectedAnswer(
                request=f"{method} {path}",
                status=answer.status_code,
                code="",
                detail=f"201 or 204 was to be expected, not {answer.reason or 'this'}",
            )

    # One request.

    def _get(self, path: str, kind: type[Answer]) -> Answer:
        return self._decode(f"GET {path}", self._request("GET", path), kind)

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
                raise error_mapping.refused(
                    request, error.http_status, f"Keystone: {error}"
                ) from error
            raise error_mapping.unavailable(
                request, f"Keystone: {error}", error.http_status
            ) from error
        except keystone_exceptions.EndpointNotFound as error:
            self._adapter.invalidate()  # the catalog comes with the token: it may be there by now
            raise error_mapping.unavailable(request, f"no answer: {error}") from error
        except keystone_exceptions.UnknownConnectionError as error:
            raise self._unread(request, error) from error
        except (keystone_exceptions.ClientException, ValueError) as error:  # of a URL that is none
            raise error_mapping.unavailable(request, f"no answer: {error}") from error
        if response.status_code >= 400:
            raise error_mapping.from_response(request, response)
        return response

    def _unread(
        self, request: str, error: keystone_exceptions.UnknownConnectionError
    ) -> PlacementError:
        """Return the exception for an answer that keystoneauth could not read."""
        cause = error.original
        if not isinstance(cause, AnswerTooLarge):
            return error_mapping.unavailable(request, f"no answer: {error}")
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


def provider_path(uuid: str, part: str = "") -> str:
    """Return the path of a provider, or of a part of it."""
    path = f"/resource_providers/{quote(uuid, safe='')}"
    return f"{path}/{part}" if part else path


def consumer_path(uuid: str) -> str:
    """Return the path of the allocations of a consumer."""
    return f"/allocations/{quote(uuid, safe='')}"
