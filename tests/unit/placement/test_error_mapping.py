"""Exceptions for answers of Placement, and for answers of other programs such as proxies."""

import json

import pytest
import requests

from wharfinger import exceptions
from wharfinger.exceptions import PermissionRefused, PlacementUnavailable, UnexpectedAnswer
from wharfinger.placement.error_mapping import from_response


def answer(status: int, content: bytes = b"<html>a proxy's page</html>") -> requests.Response:
    response = requests.Response()
    response.status_code, response._content = status, content
    return response


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_answer_that_asks_to_retry_later_is_placement_unavailable(status: int) -> None:
    error = from_response("GET /traits", answer(status))
    assert isinstance(error, PlacementUnavailable)
    assert error.status == status


@pytest.mark.parametrize("content", [b"", b"<html>", b'{"errors": []}'])
def test_404_that_is_not_from_placement_is_an_unexpected_answer(content: bytes) -> None:
    assert isinstance(from_response("GET /traits", answer(404, content)), UnexpectedAnswer)


@pytest.mark.parametrize(
    ("request_", "status", "remedy"),
    [
        ("GET /traits", 401, "Check the credentials"),
        ("GET /traits", 403, "admin or the service role"),
        ("POST /reshaper", 403, "it needs the service role"),
    ],
)
def test_refusal_names_the_missing_role(request_: str, status: int, remedy: str) -> None:
    error = from_response(request_, answer(status))
    assert isinstance(error, PermissionRefused)
    assert remedy in error.remedy


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (409, "placement.concurrent_update", exceptions.ConcurrentUpdate),
        (409, "placement.inventory.inuse", exceptions.InventoryInUse),
        (409, "placement.resource_provider.inuse", exceptions.ProviderInUse),
        (409, "placement.resource_provider.cannot_delete_parent", exceptions.ProviderInUse),
        (409, "placement.duplicate_name", exceptions.DuplicateProvider),
        (409, "placement.undefined_code", exceptions.Conflict),
        (404, "placement.resource_provider.not_found", exceptions.NotFound),
        (404, "", exceptions.NotFound),
        (406, "", exceptions.MicroversionUnsupported),
        (400, "placement.undefined_code", exceptions.PlacementError),
        (500, "", exceptions.PlacementError),
    ],
)
def test_answer_of_placement_is_the_exception_of_its_code_or_status(
    status: int, code: str, kind: type[exceptions.PlacementError]
) -> None:
    detail = "A standard sentence.\n\n  It is\n in use\x1b. "
    told = json.dumps({"errors": [{"code": code, "detail": detail, "status": status}]})
    error = from_response("PUT /x", answer(status, told.encode()))
    assert type(error) is kind
    assert (error.request, error.status, error.code) == ("PUT /x", status, code)
    assert error.detail == "It is in use\\x1b."
