from dataclasses import replace
from typing import Final

import pytest

from wharfinger.exceptions import InvalidName
from wharfinger.providers import DesiredProvider, Inventory, Provider, PublishingMode
from wharfinger.providers.ownership import (
    Publisher,
    Standing,
    check_owner,
    instance_trait,
    may_adopt,
    owners,
    standing,
)
from wharfinger.providers.record import Record

UUID: Final = "3f0c6f5e-9f0b-4a53-8a60-7b6a3c1f7d0e"
PARENT: Final = "8a9e9c7e-53a5-4ac8-b2a4-0f3d9c3c2f4e"
US: Final = Publisher("gpus", "OWNER_NOVA")


def provider(
    *traits: str, name: str = "gpu", parent: str | None = PARENT, classes: tuple[str, ...] = ()
) -> Provider:
    return Provider(
        uuid=UUID,
        name=name,
        root_uuid=PARENT,
        parent_uuid=parent,
        inventories={kind: Inventory(total=1) for kind in classes},
        traits=frozenset(traits),
    )


@pytest.mark.parametrize("name", ["OWNER_NOVA", "OWNER_CYBORG", "CUSTOM_OWNER_ACME"])
def test_standard_and_custom_owners_are_taken(name: str) -> None:
    assert check_owner(name) == name


@pytest.mark.parametrize(
    "name", ["NOVA", "owner_nova", "OWNER_", "OWNER_ACME", "CUSTOM_OWNER_", "CUSTOM_ACME", ""]
)
def test_what_is_no_owner_trait_is_refused(name: str) -> None:
    with pytest.raises(InvalidName):
        check_owner(name)


def test_the_refusal_of_an_owner_says_what_would_be_right() -> None:
    with pytest.raises(InvalidName, match="OWNER_NOVA, OWNER_CYBORG or of the form CUSTOM_OWNER_"):
        check_owner("ACME")


def test_owners_are_the_owner_traits_among_others() -> None:
    found = owners(["OWNER_NOVA", "CUSTOM_OWNER_A", "CUSTOM_OWNED", "HW_GPU_API_VULKAN"])
    assert found == {"OWNER_NOVA", "CUSTOM_OWNER_A"}


def test_a_publisher_marks_with_its_owner_and_its_instance() -> None:
    marks = Publisher("gpu-hosts", "OWNER_NOVA").traits
    assert marks == {"OWNER_NOVA", "CUSTOM_WHARFINGER_GPU_HOSTS"}


def test_a_publisher_without_a_valid_owner_cannot_be() -> None:
    with pytest.raises(InvalidName):
        Publisher("gpus", "CUSTOM_ACME")


def test_the_mark_of_an_instance_is_a_custom_trait() -> None:
    assert instance_trait("metal.2") == "CUSTOM_WHARFINGER_METAL_2"


@pytest.mark.parametrize(
    ("traits", "expected"),
    [
        (("OWNER_NOVA", "CUSTOM_A"), Standing.OURS),
        (("CUSTOM_A",), Standing.UNTAGGED),
        ((), Standing.UNTAGGED),
        (("OWNER_CYBORG",), Standing.FOREIGN),
        (("OWNER_NOVA", "OWNER_CYBORG"), Standing.FOREIGN),
        (("OWNER_NOVA", "CUSTOM_OWNER_ACME"), Standing.FOREIGN),
    ],
)
def test_the_owner_traits_say_whose_a_provider_is(
    traits: tuple[str, ...], expected: Standing
) -> None:
    assert standing(provider(*traits), US, Record()) is expected


MARK: Final = "CUSTOM_WHARFINGER_GPUS"
FORMER: Final = "CUSTOM_OWNER_BEFORE"


def published_before(*owners: str, mode: PublishingMode = PublishingMode.OWN) -> Record:
    """What is remembered of a provider that was published with these owner traits."""
    return Record(applied=provider(MARK, *owners), mode=mode)


def test_what_we_published_under_another_owner_was_ours_before() -> None:
    found = standing(provider(FORMER, MARK), US, published_before(FORMER))
    assert found is Standing.OURS_BEFORE


@pytest.mark.parametrize(
    ("traits", "record"),
    [
        ((FORMER, MARK), Record()),
        ((FORMER, MARK), Record(live=provider(FORMER, MARK))),
        ((FORMER, MARK), published_before("CUSTOM_OWNER_STILL_EARLIER")),
        ((FORMER, MARK), published_before("OWNER_NOVA")),
        ((FORMER, MARK), published_before(FORMER, mode=PublishingMode.OVERLAY)),
        ((FORMER,), published_before(FORMER)),
        ((FORMER, "CUSTOM_WHARFINGER_OTHERS"), published_before(FORMER)),
        ((FORMER, "OWNER_CYBORG", MARK), published_before(FORMER)),
        ((FORMER, "OWNER_NOVA", MARK), published_before(FORMER)),
    ],
    ids=[
        "no record",
        "a record that is only a cache",
        "under a third owner",
        "only under the owner of today",
        "as an overlay",
        "our mark is gone",
        "another instance's mark",
        "a second owner has come",
        "the owner of today has been added",
    ],
)
def test_another_owners_trait_without_all_proof_that_it_was_ours_is_anothers(
    traits: tuple[str, ...], record: Record
) -> None:
    assert standing(provider(*traits), US, record) is Standing.FOREIGN


def test_an_untagged_provider_with_no_more_than_the_wanted_classes_may_be_adopted() -> None:
    wanted = DesiredProvider(provider=provider(classes=("VGPU", "CUSTOM_A")), reported=True)
    assert may_adopt(provider(classes=("VGPU",)), wanted)
    assert may_adopt(provider(), wanted)
    assert not may_adopt(provider(classes=("VGPU", "CUSTOM_B")), wanted)


def test_an_untagged_provider_has_to_have_the_parent_and_the_uuid_or_the_name() -> None:
    wanted = DesiredProvider(provider=provider(), reported=True)
    assert may_adopt(provider(name="other"), wanted)
    assert may_adopt(replace(provider(), uuid=PARENT), wanted)
    assert not may_adopt(replace(provider(name="other"), uuid=PARENT), wanted)
    assert not may_adopt(provider(parent=None), wanted)


def test_an_untagged_provider_of_which_the_driver_reported_no_inventory_may_not() -> None:
    wanted = DesiredProvider(provider=provider(classes=("VGPU",)), reported=False)
    assert not may_adopt(provider(classes=("VGPU",)), wanted)
