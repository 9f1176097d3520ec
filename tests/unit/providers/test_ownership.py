from dataclasses import replace
from typing import Final

import pytest

from wharfinger.exceptions import InvalidName
from wharfinger.providers import DesiredProvider, Inventory, Provider, PublishingMode
from wharfinger.providers.ownership import (
    Publisher,
    Standing,
    adopts,
    check_owner,
    instance_trait,
    is_published,
    obstacles,
    owners,
    standing,
    without_lost,
)
from wharfinger.providers.provider import Record

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
def test_standard_and_custom_owners_are_accepted(name: str) -> None:
    assert check_owner(name) == name


@pytest.mark.parametrize(
    "name", ["NOVA", "owner_nova", "OWNER_", "OWNER_ACME", "CUSTOM_OWNER_", "CUSTOM_ACME", ""]
)
def test_invalid_owner_trait_is_refused(name: str) -> None:
    with pytest.raises(InvalidName):
        check_owner(name)


def test_refused_owner_names_the_valid_forms() -> None:
    with pytest.raises(InvalidName, match="OWNER_NOVA, OWNER_CYBORG or of the form CUSTOM_OWNER_"):
        check_owner("ACME")


def test_owners_returns_only_owner_traits() -> None:
    found = owners(["OWNER_NOVA", "CUSTOM_OWNER_A", "CUSTOM_OWNED", "HW_GPU_API_VULKAN"])
    assert found == {"OWNER_NOVA", "CUSTOM_OWNER_A"}


def test_publisher_has_owner_and_instance_traits() -> None:
    marks = Publisher("gpu-hosts", "OWNER_NOVA").traits
    assert marks == {"OWNER_NOVA", "CUSTOM_WHARFINGER_GPU_HOSTS"}


def test_publisher_with_an_invalid_owner_is_refused() -> None:
    with pytest.raises(InvalidName):
        Publisher("gpus", "CUSTOM_ACME")


def test_instance_trait_is_a_valid_custom_trait() -> None:
    assert instance_trait("metal.2") == "CUSTOM_WHARFINGER_METAL_2"


@pytest.mark.parametrize(
    ("traits", "expected"),
    [
        (("OWNER_NOVA", "CUSTOM_A"), Standing.UNPROVEN),
        (("CUSTOM_A",), Standing.UNPROVEN),
        ((), Standing.UNPROVEN),
        (("OWNER_NOVA", "CUSTOM_WHARFINGER_OTHERS"), Standing.UNPROVEN),
        (("OWNER_NOVA", "CUSTOM_WHARFINGER_GPUS"), Standing.OURS),
        (("CUSTOM_WHARFINGER_GPUS",), Standing.OURS),
        (("OWNER_CYBORG",), Standing.FOREIGN),
        (("OWNER_NOVA", "OWNER_CYBORG"), Standing.FOREIGN),
        (("OWNER_NOVA", "CUSTOM_OWNER_ACME"), Standing.FOREIGN),
    ],
)
def test_standing_without_a_record_follows_our_instance_trait(
    traits: tuple[str, ...], expected: Standing
) -> None:
    assert standing(provider(*traits), US, Record()) is expected


BARE: Final = replace(provider(), generation=0)


@pytest.mark.parametrize(
    ("live", "record", "expected"),
    [
        (provider("OWNER_NOVA"), Record(applied=provider()), Standing.OURS),
        (provider(), Record(applied=provider(), mode=PublishingMode.OVERLAY), Standing.OURS),
        (provider("OWNER_NOVA"), Record(live=provider("OWNER_NOVA")), Standing.UNPROVEN),
        (BARE, Record(live=BARE), Standing.UNPROVEN),
        (BARE, Record(intended=provider()), Standing.OURS),
        (replace(BARE, generation=1), Record(intended=provider()), Standing.UNPROVEN),
        (provider("OWNER_NOVA"), Record(intended=provider()), Standing.UNPROVEN),
        (provider(classes=("VGPU",)), Record(intended=provider()), Standing.UNPROVEN),
        (replace(BARE, aggregates=frozenset([UUID])), Record(intended=BARE), Standing.UNPROVEN),
    ],
    ids=[
        "applied",
        "applied as an overlay",
        "only seen",
        "only seen, bare",
        "intended, bare",
        "intended, written since",
        "intended, tagged with our owner",
        "intended, with inventory",
        "intended, in an aggregate",
    ],
)
def test_standing_with_a_record_follows_its_proof(
    live: Provider, record: Record, expected: Standing
) -> None:
    assert standing(live, US, record) is expected


MARK: Final = "CUSTOM_WHARFINGER_GPUS"
FORMER: Final = "CUSTOM_OWNER_BEFORE"


def published_before(*owners: str, mode: PublishingMode = PublishingMode.OWN) -> Record:
    """Return the record of a provider that we published with these owner traits."""
    return Record(applied=provider(MARK, *owners), mode=mode)


def test_standing_of_our_provider_under_a_former_owner_is_ours() -> None:
    found = standing(provider(FORMER, MARK), US, published_before(FORMER))
    assert found is Standing.OURS


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
def test_standing_of_a_former_owner_without_full_proof_is_foreign(
    traits: tuple[str, ...], record: Record
) -> None:
    assert standing(provider(*traits), US, record) is Standing.FOREIGN


# A provider that was deleted and created again with the same uuid.


def at(generation: int | None, *traits: str) -> Provider:
    return replace(provider(*traits), generation=generation)


@pytest.mark.parametrize("side", ["applied", "intended"])
def test_without_lost_with_a_lower_generation_drops_the_published_side(side: str) -> None:
    before = Record(**{side: provider()}, live=at(5))  # type: ignore[arg-type]
    assert not without_lost(before, at(4, "OWNER_NOVA"), US).is_ours


@pytest.mark.parametrize(
    ("known", "live", "mode"),
    [
        (at(5), at(5), PublishingMode.OWN),
        (at(5), at(6, "OWNER_NOVA"), PublishingMode.OWN),
        (at(5), at(4, "OWNER_NOVA", MARK), PublishingMode.OWN),
        (at(None), at(4), PublishingMode.OWN),
        (None, at(4), PublishingMode.OWN),
        (at(5), None, PublishingMode.OWN),
        (at(5), at(4), PublishingMode.OVERLAY),
    ],
    ids=["as it was", "written", "marked", "after a reshape", "not seen", "gone", "overlaid"],
)
def test_without_lost_otherwise_keeps_the_record(
    known: Provider | None, live: Provider | None, mode: PublishingMode
) -> None:
    record = Record(applied=provider(), live=known, mode=mode)
    assert without_lost(record, live, US) is record


# Providers of any driver instance, which operators and jobs may reserve.


@pytest.mark.parametrize(
    ("traits", "record", "expected"),
    [
        ((), Record(), False),
        (("OWNER_NOVA",), Record(live=provider("OWNER_NOVA")), False),
        (("OWNER_NOVA",), Record(intended=provider("OWNER_NOVA", MARK)), False),
        (("OWNER_NOVA", MARK), Record(intended=provider("OWNER_NOVA", MARK)), True),
        (("OWNER_NOVA",), Record(applied=provider("OWNER_NOVA", MARK)), True),
        ((MARK,), Record(), True),
        (("OWNER_CYBORG", MARK), Record(applied=provider("OWNER_NOVA", MARK)), False),
    ],
)
def test_is_published_takes_a_mark_or_an_applied_record(
    traits: tuple[str, ...], record: Record, expected: bool
) -> None:
    assert is_published(traits, record) is expected


# Adoption.

WANTED: Final = DesiredProvider(provider=provider(classes=("VGPU",)), reported=True)
ADOPTING: Final = replace(US, adopts_matching=True)


@pytest.mark.parametrize("traits", [(), ("OWNER_NOVA",), ("CUSTOM_A",)])
def test_adopts_a_matching_provider_only_where_the_instance_may(traits: tuple[str, ...]) -> None:
    live = provider(*traits, classes=("VGPU",))
    assert adopts(ADOPTING, live, WANTED)
    assert adopts(replace(US, adopts=frozenset([UUID])), live, WANTED)
    assert not adopts(replace(US, adopts=frozenset([PARENT])), live, WANTED)
    assert not adopts(US, live, WANTED)


@pytest.mark.parametrize(
    "traits",
    [("OWNER_CYBORG",), ("OWNER_NOVA", "OWNER_CYBORG"), ("OWNER_NOVA", "CUSTOM_WHARFINGER_OTHERS")],
)
def test_adopts_no_provider_of_another_owner_or_instance(traits: tuple[str, ...]) -> None:
    assert not adopts(ADOPTING, provider(*traits, classes=("VGPU",)), WANTED)


@pytest.mark.parametrize(
    ("live", "expected"),
    [
        (replace(provider(classes=("VGPU",)), uuid=PARENT), f"its uuid is {PARENT}"),
        (
            provider(name="another", classes=("VGPU",)),
            "its name is another; the driver reports gpu",
        ),
        (provider(parent=None, classes=("VGPU",)), f"is none; the driver reports {PARENT}"),
        (provider(), "its resource classes are none; the driver reports VGPU"),
        (
            provider(classes=("VGPU", "DISK_GB")),
            "its resource classes are DISK_GB, VGPU; the driver reports VGPU",
        ),
    ],
    ids=["uuid", "name", "parent", "no classes", "more classes"],
)
def test_obstacles_name_what_differs_with_both_values(live: Provider, expected: str) -> None:
    (found,) = obstacles(live, WANTED)
    assert expected in found
    assert not adopts(replace(ADOPTING, adopts=frozenset([live.uuid])), live, WANTED)


def test_obstacles_compare_the_uuid_that_the_driver_reports() -> None:
    live = provider(classes=("VGPU",))
    (found,) = obstacles(live, replace(WANTED, reported_uuid=PARENT))
    assert found == f"its uuid is {UUID}; the driver reports {PARENT}"


def test_obstacles_leave_out_classes_that_the_driver_moved_away() -> None:
    live = provider(classes=("VGPU", "DISK_GB"))
    assert not list(obstacles(live, WANTED, ["DISK_GB"]))


def test_obstacles_of_a_root_with_vcpu_leave_it_to_nova() -> None:
    wanted = replace(WANTED, provider=provider(parent=None, classes=("VCPU",)))
    (found,) = obstacles(provider(parent=None, classes=("VCPU",)), wanted)
    assert "root with VCPU" in found


def test_obstacles_of_a_provider_of_which_the_driver_reports_no_inventory_name_its_classes() -> (
    None
):
    (found,) = obstacles(provider(classes=("VGPU",)), replace(WANTED, reported=False))
    assert found == "its resource classes are VGPU; the driver reports none"
