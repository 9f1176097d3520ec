"""Errors of Placement when allocations are written."""

import pytest

from wharfinger.allocations.allocation_writer import is_unsure, was_refused
from wharfinger.exceptions import ConcurrentUpdate, Conflict, PlacementError

POST = "POST /allocations"


@pytest.mark.parametrize(
    ("kind", "request_", "status", "refused", "unsure"),
    [
        (Conflict, POST, 409, True, False),
        (ConcurrentUpdate, POST, 409, False, False),
        (PlacementError, POST, 400, True, False),
        (PlacementError, POST, 403, False, False),
        (PlacementError, POST, 499, False, False),
        (PlacementError, POST, 500, False, True),
        (PlacementError, POST, 0, False, True),
        (PlacementError, "GET /allocations", 500, False, False),
    ],
)
def test_write_of_allocations_is_done_refused_or_of_unknown_outcome(
    kind: type[PlacementError], request_: str, status: int, refused: bool, unsure: bool
) -> None:
    error = kind(request=request_, status=status, code="", detail="no.")
    assert (was_refused(error), is_unsure(error)) == (refused, unsure)
