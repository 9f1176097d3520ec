"""Hosts for these tests: what is copied is what would be published."""

from pathlib import Path

import pytest

from tests.functional.scheduling.hosts import FAST, publish_owners
from tests.lab.moments import Moments
from tests.lab.placement import PlacementFixture
from tests.lab.samples import uuid


@pytest.mark.parametrize("other", [None, "CUSTOM_IN_ITS_PLACE"])
def test_a_copy_means_the_same_names_in_a_placement_that_forgot_them(
    placement: PlacementFixture, tmp_path: Path, other: str | None
) -> None:
    """Placement numbers its names; another one may have the number by now."""
    client, moments = placement.client, Moments(tmp_path)
    for name in (FAST, "CUSTOM_OWNER_ACME"):
        client.create_trait(name)
        placement.adapter.request(f"/traits/{name}", "DELETE", microversion="1.39")
    without_names = moments.take()
    publish_owners(client)
    moments.go_back(without_names)
    if other is not None:
        client.create_trait(other)
    publish_owners(client)
    assert client.get_traits(uuid("n")).traits == {"OWNER_NOVA", FAST}
    assert client.get_traits(uuid("a")).traits == {"CUSTOM_OWNER_ACME"}
