"""Placement's candidates for nova's request of a flavor, before and after it is confined.

A confined flavor has extra specs that keep nova from using devices of other owners.
"""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from tests.functional.scheduling.hosts import publish_owners
from tests.functional.scheduling.searching import takers
from tests.lab import samples
from tests.lab.placement import PlacementFixture
from wharfinger.placement.trait_conditions import TraitConditions
from wharfinger.scheduling.candidates import CandidateSearch
from wharfinger.scheduling.flavor_request import from_flavor
from wharfinger.scheduling.nova_flavors import confined


def nova_takes(placement: PlacementFixture, specs: Mapping[str, str]) -> set[str]:
    """Return the GPUs in nova's candidates; nova requires its owner trait only on the root."""
    flavor = samples.flavor(None, vcpus=1, extra_specs={"resources:MEMORY_MB": "0", **specs})
    flavor.obj_set_defaults()
    request = replace(from_flavor(flavor), root=TraitConditions(required=frozenset(["OWNER_NOVA"])))
    found = CandidateSearch(placement.new_client(), {}).find(request)
    return set(takers(found.candidates, "n", "y", "a", "u"))


@pytest.mark.parametrize(
    ("specs", "all_of", "safe"),
    [
        ({"resources:VGPU": "1"}, {"n", "y", "a", "u"}, {"n"}),
        ({"resources1:VGPU": "1"}, {"n", "y", "a", "u"}, {"n"}),
        (
            {"resources1:VGPU": "1", "trait1:CUSTOM_FAST": "forbidden"},
            {"y", "a", "u"},
            set(),
        ),
        (
            {"resources:VGPU": "1", "resources:DISK_GB": "1", "trait:OWNER_NOVA": "required"},
            {"n", "y", "a", "u"},
            {"n"},
        ),
        ({"resources:VGPU": "1", "resources:VCPU": "0"}, {"n", "y", "a", "u"}, {"n"}),
    ],
)
def test_candidates_of_confined_flavor_use_no_child_of_another_owner(
    placement: PlacementFixture, specs: dict[str, str], all_of: set[str], safe: set[str]
) -> None:
    publish_owners(placement.client)
    flavor = samples.flavor(None, vcpus=1, extra_specs=specs)
    flavor.obj_set_defaults()

    assert nova_takes(placement, specs) == all_of
    assert nova_takes(placement, confined(flavor)) == safe
