"""From Placement's answers to exceptions; the one place where that is done."""

from typing import Final

import msgspec
import requests

from wharfinger import exceptions
from wharfinger.exceptions import PermissionRefused, PlacementError, PlacementUnavailable
from wharfinger.placement.model import Error, Errors

_BY_CODE: Final[dict[str, type[PlacementError]]] = {
    "placement.concurrent_update": exceptions.ConcurrentUpdate,
    "placement.inventory.inuse": exceptions.InventoryInUse,
    "placement.resource_provider.inuse": exceptions.ProviderInUse,
    "placement.resource_provider.cannot_delete_parent": exceptions.ProviderInUse,
    "placement.resource_provider.not_found": exceptions.NotFound,
    "placement.duplicate_name": exceptions.DuplicateProvider,
}
_BY_STATUS: Final[dict[int, type[PlacementError]]] = {
    404: exceptions.NotFound,
    406: exceptions.MicroversionUnsupported,
    409: exceptions.Conflict,
}
#: Placement, or what stands before it, asks to come back later.
_LATER: Final = {429, 502, 503, 504}
_FORBIDDEN: Final = 403


def from_response(request: str, response: requests.Response) -> PlacementError:
    """The exception for an answer of 400 or above to ``request`` ("PUT /traits/X")."""
    status, error = response.status_code, _first_error(response)
    if status in (401, _FORBIDDEN):
        return refused(request, status, error.detail, error.code)
    if status in _LATER:
        return unavailable(request, f"{status}: not available now: {error.detail}", status)
    kind = _BY_CODE.get(error.code) or _BY_STATUS.get(status, PlacementError)
    return kind(request=request, status=status, code=error.code, detail=error.detail)


def refused(request: str, status: int, detail: str, code: str = "") -> PermissionRefused:
    """The exception for credentials that are not taken, or lack a role.

    The roles are those of Placement's default policy: service alone for /reshaper, admin
    or service for all else that we ask for.
    """
    if status == _FORBIDDEN:
        roles = "service role" if request == "POST /reshaper" else "admin or the service role"
        remedy = f"The user of [placement] lacks a role: this takes the {roles}."
    else:
        remedy = "Check the credentials in [placement]."
    return PermissionRefused(
        request=request, status=status, code=code, detail=_sentence(detail), remedy=remedy
    )


def unavailable(request: str, detail: str, status: int = 0) -> PlacementUnavailable:
    """The exception for a request that got no answer, or none now."""
    return PlacementUnavailable(request=request, status=status, code="", detail=detail)


def _first_error(response: requests.Response) -> Error:
    try:
        first = msgspec.json.decode(response.content, type=Errors).errors[0]
    except (msgspec.DecodeError, IndexError):
        # A proxy's page, or an empty body: the reason phrase is all there is.
        return Error(detail=response.reason or "no explanation was given")
    # Placement puts a standard sentence and an empty line before what it has to say.
    return Error(code=first.code, detail=" ".join(first.detail.split("\n\n")[-1].split()))


def _sentence(text: str) -> str:
    return text if text.endswith(".") else f"{text}."
