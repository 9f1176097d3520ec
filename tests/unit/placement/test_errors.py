"""Answers that are not Placement's own: what becomes of them."""

import pytest
import requests

from wharfinger.exceptions import PermissionRefused, PlacementUnavailable, UnexpectedAnswer
from wharfinger.placement.errors import from_response


def answer(status: int, content: bytes = b"<html>a proxy's page</html>") -> requests.Response:
    response = requests.Response()
    response.status_code, response._content = status, content
    return response


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_what_asks_to_come_back_later_is_not_available_now(status: int) -> None:
    error = from_response("GET /traits", answer(status))
    assert isinstance(error, PlacementUnavailable)
    assert error.status == status


@pytest.mark.parametrize("content", [b"", b"<html>", b'{"errors": []}'])
def test_a_404_that_is_not_placements_word_says_nothing_is_gone(content: bytes) -> None:
    assert isinstance(from_response("GET /traits", answer(404, content)), UnexpectedAnswer)


@pytest.mark.parametrize(
    ("request_", "status", "remedy"),
    [
        ("GET /traits", 401, "Check the credentials"),
        ("GET /traits", 403, "admin or the service role"),
        ("POST /reshaper", 403, "this takes the service role"),
    ],
)
def test_a_refusal_says_which_role_lacks(request_: str, status: int, remedy: str) -> None:
    error = from_response(request_, answer(status))
    assert isinstance(error, PermissionRefused)
    assert remedy in error.remedy
