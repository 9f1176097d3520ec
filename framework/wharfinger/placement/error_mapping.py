"""Turn answers of Placement and errors of keystoneauth into PlacementErrors."""

import re
from http import HTTPStatus
from typing import Final

import msgspec
import requests
from keystoneauth1.exceptions import EndpointNotFound, HttpError

from wharfinger import exceptions, request_id
from wharfinger.conf.bounded_transport import AnswerTooLarge, RequestTimedOut
from wharfinger.exceptions import PermissionRefused, PlacementError, PlacementUnavailable
from wharfinger.placement import model

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
    # Of Placement, or of a proxy before it.
    **dict.fromkeys((429, 502, 503, 504), PlacementUnavailable),
}
#: Statuses with which Keystone refuses credentials, or an expired token (404).
_KEYSTONE_REFUSES: Final = {401, 403, 404}
_REQUEST_ID: Final = re.compile(r"req-[0-9a-f-]{1,64}\Z")
#: Characters of an explanation.
_LONGEST: Final = 1000


def from_response(request: str, response: requests.Response) -> PlacementError:
    """Return the exception for an answer with status 400 or above."""
    status, found = response.status_code, _first_error(response)
    # An answer of a proxy, or an empty one, has only the reason phrase as an explanation.
    error = found or model.Error(detail=response.reason or "no explanation was given")
    if found is None and status == HTTPStatus.NOT_FOUND:
        # The answer does not come from Placement, so it does not prove that anything is gone.
        return unexpected(request, response, f"{error.detail}, not from Placement")
    answered_id = _answered_id(response)
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        return refused(request, status, error.detail, error.code, answered_id)
    kind = _BY_CODE.get(error.code) or _BY_STATUS.get(status, PlacementError)
    detail = error.detail
    if kind is PlacementUnavailable:
        detail = f"{status}: not available now: {detail}"
    return kind(
        request=request, status=status, code=error.code, detail=detail, request_id=answered_id
    )


def unexpected(
    request: str, response: requests.Response, detail: str
) -> exceptions.UnexpectedAnswer:
    """Return the exception for an answer that does not follow the API."""
    return exceptions.UnexpectedAnswer(
        request=request,
        status=response.status_code,
        detail=detail,
        request_id=_answered_id(response),
    )


def from_keystoneauth(request: str, error: Exception) -> PlacementError:
    """Return the exception for an error that keystoneauth has raised."""
    if isinstance(error, HttpError):  # the answer of Keystone
        status, detail = error.http_status, f"Keystone: {error}"
        if status in _KEYSTONE_REFUSES:
            return refused(request, status, detail)
        return PlacementUnavailable(request=request, status=status, detail=detail)
    cause = getattr(error, "original", None)
    if isinstance(cause, AnswerTooLarge):
        detail = f"{cause.url}: {cause}"  # the URL may be Keystone's
        return exceptions.UnexpectedAnswer(request=request, status=cause.status, detail=detail)
    if isinstance(cause, RequestTimedOut):
        error = cause  # keystoneauth reports it as an unexpected exception
    if isinstance(error, EndpointNotFound):
        remedy = "Add it to Keystone's catalog, or set [placement] endpoint_override."
        detail = f"{str(error).removesuffix('.')}. {remedy}"
        return PlacementUnavailable(request=request, detail=detail)
    # Placement may have received the request, and logged it with our request id.
    return PlacementUnavailable(
        request=request, detail=f"no answer: {_text(error)}", request_id=request_id.current() or ""
    )


def refused(
    request: str, status: int, detail: str, code: str = "", request_id: str = ""
) -> PermissionRefused:
    """Return the exception for credentials that are refused or lack a role."""
    remedy = "Check the credentials in [placement]."
    if status == HTTPStatus.FORBIDDEN:
        needs_service = request.startswith("POST /reshaper")
        roles = "service role" if needs_service else "admin or the service role"
        remedy = f"The user of [placement] lacks a role: it needs the {roles}, on a project."
    detail = f"{detail.removesuffix('.')}."
    return PermissionRefused(
        request=request,
        status=status,
        code=code,
        detail=detail,
        remedy=remedy,
        request_id=request_id,
    )


def _text(error: Exception) -> str:
    # keystoneauth, requests and urllib3 each wrap the error of the socket in a longer text.
    text, wrapped = str(error), str(error.__context__)
    reason = error.__context__
    while isinstance(reason, requests.RequestException) or not isinstance(reason, OSError | None):
        reason = reason.__cause__ or reason.__context__
    found = str(reason or "")
    return text.replace(wrapped, found) if found and found in wrapped else text


def _answered_id(response: requests.Response) -> str:
    found = response.headers.get("x-openstack-request-id", "")
    return found if _REQUEST_ID.match(found) else ""


def _first_error(response: requests.Response) -> model.Error | None:
    kind = model.answer_with("errors", list[model.Error])
    try:
        first = msgspec.json.decode(response.content, type=kind).errors[0]
    except (*model.UNDECODABLE, IndexError):
        return None
    # A standard sentence and an empty line come before Placement's explanation.
    detail = " ".join(first.detail.split("\n\n")[-1].split())
    return model.Error(code=first.code, detail=exceptions.printable(detail)[:_LONGEST])
