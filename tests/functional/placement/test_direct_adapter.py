"""The quick ways in which tests and the kit call Placement give the usual answers."""

from collections.abc import Callable
from typing import Any

import pytest
from keystoneauth1.adapter import Adapter
from keystoneauth1.exceptions import NotFound

from tests.lab.placement import PlacementFixture
from wharfinger.conformance.direct_adapter import DirectAdapter
from wharfinger.placement.embedded import EmbeddedPlacement

MISSING = "00000000-0000-0000-0000-000000000001"
REQUESTS: list[tuple[str, str, dict[str, Any]]] = [
    ("/", "GET", {}),
    ("/nowhere", "GET", {}),
    ("/resource_providers?name=a b%20%C3%A9&required=!HW_X,in:A#b", "GET", {}),
    (f"/resource_providers/{MISSING}/traits", "GET", {"microversion": "1.39"}),
    ("/resource_providers/a%2Fb", "GET", {"global_request_id": f"req-{MISSING}"}),
    ("/resource_providers", "POST", {"microversion": "1.39", "json": {"name": 1}}),
    ("/resource_providers", "POST", {"microversion": "9.9", "data": b"{}"}),
    (
        "/reshaper",
        "POST",
        {"microversion": "1.39", "data": b"{", "headers": {"Content-Type": "application/json"}},
    ),
]


@pytest.mark.parametrize(("path", "method", "options"), REQUESTS)
def test_direct_adapter_gives_the_answers_of_the_usual_adapter(
    placement: PlacementFixture,
    placement_service: EmbeddedPlacement,
    path: str,
    method: str,
    options: dict[str, Any],
) -> None:
    usual, direct = (
        adapter.request(path, method, raise_exc=False, **options)
        for adapter in (placement_service.adapter, DirectAdapter(placement_service))
    )
    assert direct.status_code == usual.status_code
    told = [_without_id(one.json()) for one in (direct, usual)]
    assert told[0] == told[1]


def test_direct_adapter_raises_the_errors_of_the_usual_adapter(
    placement: PlacementFixture, placement_service: EmbeddedPlacement
) -> None:
    for adapter in (placement_service.adapter, DirectAdapter(placement_service)):
        with pytest.raises(NotFound):
            adapter.request(f"/resource_providers/{MISSING}", "GET")


def test_no_caller_gets_the_permissions_of_another_one(
    placement: PlacementFixture, placement_service: EmbeddedPlacement
) -> None:
    admin = _caller(placement_service, "user:theirs", "admin")
    reader = _caller(placement_service, "user:theirs", "reader")
    other = _caller(placement_service, "other:others", "reader")
    for _ in range(2):
        assert [one("/resource_providers") for one in (admin, reader, other)] == [200, 403, 403]
        usages = "/usages?project_id=theirs"
        assert [one(usages) for one in (reader, other, admin)] == [200, 403, 200]


def _caller(service: EmbeddedPlacement, token: str, role: str) -> Callable[[str], int]:
    adapter: Adapter = DirectAdapter(service)
    headers = {"X-Auth-Token": token, "X-Roles": role}

    def status(path: str) -> int:
        answer = adapter.request(path, "GET", raise_exc=False, microversion="1.39", headers=headers)
        code: int = answer.status_code
        return code

    return status


def _without_id(answer: dict[str, Any]) -> dict[str, Any]:
    for error in answer.get("errors", ()):
        error.pop("request_id")
    return answer
