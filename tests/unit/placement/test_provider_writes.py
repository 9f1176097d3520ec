"""Traits and resource classes are created once, and again after a refusal or a deletion."""

from typing import Final

import pytest

from tests.unit.providers.world import Fuse, PlacementModel
from wharfinger.exceptions import PermissionRefused, PlacementError, PlacementUnavailable
from wharfinger.placement.error_mapping import refused
from wharfinger.placement.provider_writes import ProviderWrites

WRONG: Final = PlacementError(request="PUT", status=400, code="", detail="no such name")


class Names(PlacementModel):
    """Records the created names; refuses all names with ``error``, if it is set."""

    def __init__(self, error: PlacementError | None = None) -> None:
        super().__init__((), Fuse())
        self.error = error
        self.created: list[str] = []

    def create_trait(self, name: str) -> None:
        self.created.append(name)
        if self.error:
            raise self.error

    create_resource_class = create_trait


def test_name_is_created_once_until_all_are_forgotten() -> None:
    client = Names()
    known = ProviderWrites(client)
    for _ in range(2):
        assert known.ensure_names(["CUSTOM_A"], ["CUSTOM_B", "VCPU"]) == {}
    assert client.created == ["CUSTOM_A", "CUSTOM_B"]
    known.forget_names()
    known.ensure_names(["CUSTOM_A"], ["CUSTOM_B"])
    assert client.created == ["CUSTOM_A", "CUSTOM_B"] * 2


def test_refused_name_is_tried_again() -> None:
    client = Names(WRONG)
    known = ProviderWrites(client)
    for _ in range(2):
        assert known.ensure_names(["CUSTOM_A"], ["CUSTOM_B"]).keys() == {"CUSTOM_A", "CUSTOM_B"}
    assert client.created == ["CUSTOM_A", "CUSTOM_B"] * 2


@pytest.mark.parametrize(
    "error",
    [PlacementUnavailable(request="PUT", detail="no answer"), refused("PUT", 403, "no role")],
    ids=["unavailable", "refused"],
)
def test_error_that_is_not_about_a_name_is_raised(error: PlacementError) -> None:
    with pytest.raises((PlacementUnavailable, PermissionRefused)):
        ProviderWrites(Names(error)).ensure_names(["CUSTOM_A"], [])
