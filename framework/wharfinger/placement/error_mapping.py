"""From Placement's answers to exceptions; the one place where that is done."""

from http import HTTPStatus
from typing import Final

import msgspec
import requests

from wharfinger import exceptions
from wharfinger.exceptions import (
    PermissionRefused,
    PlacementError,
    PlacementUnavailable,
    printable,
)
from wharfinger.placement.model import UNDECODABLE, Error, Errors

_BY_CODE: Final[dict[str, type[PlacementError]]] = {
    "placement.concurrent_update": exceptions.ConcurrentUpdate,
    "placement.inventory.inuse": exceptions.InventoryInUse,
    "placement.resource_provider.inuse": exceptions.ProviderInUse,
    "placement.resource_provider.cannot_delete_parent": exceptions.ProviderInUse,
    "placement.resource_provider.not_found": exceptions.NotFound,
    "placement.duplicate_name": exceptions.DuplicateProvider,
}
_BY_STATUS: Final[dict[int, type[PlacementError]]] = {
    HTTPStatus.NOT_FOUND: exceptions.NotFound,
    HTTPStatus.NOT_ACCEPTABLE: exceptions.MicroversionUnsupported,
    HTTPStatus.CONFLICT: exceptions.Conflict,
}
#: Placement, or what stands before it, asks to come back later.
_LATER: Final = {429, 502, 503, 504}
#: Characters of an explanation that are shown.
_LONGEST: Final = 1000


def from_response(request: str, response: requests.Response) -> PlacementError:
    """The exception for an answer of 400 or above to ``request`` ("PUT /traits/X")."""
    status, told = response.status_code, _first_error(response)
    # A proxy's page, or an empty body: the reason phrase is all there is.
    error = told or Error(detail=response.reason or "no explanation was given")
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        return refused(request, status, error.detail, error.code)
    if status in _LATER:
        return unavailable(request, f"{status}: not available now: {error.detail}", status)
    if told is None and status == HTTPStatus.NOT_FOUND:
        # Not Placement's word: nothing may be taken to be gone for it.
        return exceptions.UnexpectedAnswer(
            request=request, status=status, code="", detail=f"{error.detail}, not from Placement"
        )
    kind = _BY_CODE.get(error.code) or _BY_STATUS.get(status, PlacementError)
    return kind(request=request, status=status, code=error.code, detail=error.detail)


def refused(request: str, status: int, detail: str, code: str = "") -> PermissionRefused:
    """The exception for credentials that are not taken, or lack a role.

    The roles are those of Placement's default policy: service alone for /reshaper, admin
    or service for all else that we ask for.
    """
    if status == HTTPStatus.FORBIDDEN:
        roles = (
            "service role" if request.startswith("POST /reshaper") else "admin or the service role"
        )
        remedy = f"The user of [placement] lacks a role: this takes the {roles}, on a project."
    else:
        remedy = "Check the credentials in [placement]."
    return PermissionRefused(
        request=request, status=status, code=code, detail=_sentence(detail), remedy=remedy
    )


def unavailable(request: str, detail: str, status: int = 0) -> PlacementUnavailable:
    """The exception for a request that got no answer, or none now."""
    return PlacementUnavailable(request=request, status=status, code="", detail=detail)


def _first_error(response: requests.Response) -> Error | None:
    """What Placement says is wrong; None where it is not Placement that answers."""
    try:
        first = msgspec.json.decode(response.content, type=Errors).errors[0]
    except (*UNDECODABLE, IndexError):
        return None
    # Placement puts a standard sentence and an empty line before what it has to say.
    detail = " ".join(first.detail.split("\n\n")[-1].split())
    return Error(code=first.code, detail=printable(detail)[:_LONGEST])


def _sentence(text: str) -> str:
    return text if text.endswith(".") else f"{text}."
