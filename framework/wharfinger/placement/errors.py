"""From Placement's answers to exceptions; the one place where that is done."""

from typing import Final

import msgspec
import requests

from wharfinger import exceptions
from wharfinger.exceptions import PlacementError
from wharfinger.placement.model import Error, Errors

_BY_CODE: Final[dict[str, type[PlacementError]]] = {
    "placement.concurrent_update": exceptions.ConcurrentUpdate,
    "placement.inventory.inuse": exceptions.InventoryInUse,
    "placement.resource_provider.inuse": exceptions.ProviderInUse,
    "placement.resource_provider.cannot_delete_parent": exceptions.ProviderInUse,
    "placement.duplicate_name": exceptions.DuplicateProvider,
}
_BY_STATUS: Final[dict[int, type[PlacementError]]] = {
    401: exceptions.PermissionRefused,
    403: exceptions.PermissionRefused,
    404: exceptions.NotFound,
    406: exceptions.MicroversionUnsupported,
    409: exceptions.Conflict,
}


def from_response(request: str, response: requests.Response) -> PlacementError:
    """The exception for an answer of 400 or above to ``request`` ("PUT /traits/X")."""
    error = _first_error(response)
    kind = _BY_CODE.get(error.code) or _BY_STATUS.get(response.status_code, PlacementError)
    return kind(request=request, status=response.status_code, code=error.code, detail=error.detail)


def _first_error(response: requests.Response) -> Error:
    try:
        first = msgspec.json.decode(response.content, type=Errors).errors[0]
    except (msgspec.DecodeError, IndexError):
        # A proxy's page, or an empty body: the reason phrase is all there is.
        return Error(detail=response.reason or "no explanation was given")
    # Placement puts a standard sentence and an empty line before what it has to say.
    return Error(code=first.code, detail=" ".join(first.detail.split("\n\n")[-1].split()))
