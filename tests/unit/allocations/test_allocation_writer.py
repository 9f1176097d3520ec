"""Errors of Placement when allocations are written, and sums of allocations."""

import pytest

from wharfinger.allocations.allocation_writer import amounts_of, is_unsure, was_refused
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


def test_amounts_of_allocations_are_added_up_by_class() -> None:
    taken = {"cn": {"VCPU": 2, "MEMORY_MB": 512}, "numa": {"VCPU": 1}}
    assert amounts_of(taken.values()) == {"VCPU": 3, "MEMORY_MB": 512}
    assert amounts_of([]) == {}
