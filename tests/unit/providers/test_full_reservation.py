"""Reserved amounts of fully reserved providers: who has set them, and what a release restores."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wharfinger.providers import Inventory, Provider
from wharfinger.providers.full_reservation import (
    disputed,
    foreign,
    own_reserved,
    release,
    reserve_fully,
    without_classes,
)
from wharfinger.providers.provider import Record

NODE = "6f9de2f4-9d0c-4d0f-a4a6-0c2c5b1f7d31"
CLASSES = ["VCPU", "VGPU", "CUSTOM_A"]


def provider(inventories: dict[str, Inventory], generation: int | None = 1) -> Provider:
    return Provider(
        uuid=NODE, name="node", root_uuid=NODE, generation=generation, inventories=inventories
    )


def vcpu(reserved: int, total: int = 8) -> dict[str, Inventory]:
    return {"VCPU": Inventory(total=total, reserved=reserved)}


def published(*, full: bool = False, intended: bool = False, **rest: Any) -> Record:
    """Return the record of 8 VCPUs that we have published, or intended to publish."""
    side = provider(vcpu(8 if full else 0))
    return Record(**{"intended" if intended else "applied": side, **rest})


@st.composite
def inventories(draw: st.DrawFn) -> dict[str, Inventory]:
    made = {}
    for name in draw(st.sets(st.sampled_from(CLASSES))):
        total = draw(st.integers(1, 8))
        made[name] = Inventory(
            total=total,
            reserved=draw(st.integers(0, total)),
            max_unit=total,
            allocation_ratio=draw(st.sampled_from([1.0, 16.0])),
        )
    return made


def remembered(before: dict[str, Inventory], record: Record | None = None) -> Record:
    """Return the record after the provider with these inventories is reserved."""
    record = record or Record()
    return replace(record, own_reserved=own_reserved(before, record))


@given(inventories())
def test_full_reservation_fills_each_class_and_changes_nothing_else(
    before: dict[str, Inventory],
) -> None:
    after = reserve_fully(before)
    assert all(inventory.reserved == inventory.total for inventory in after.values())
    for name, inventory in before.items():
        assert {**after[name].to_dict(), "reserved": 0} == {**inventory.to_dict(), "reserved": 0}
    assert after.keys() == before.keys()


@given(inventories())
def test_release_undoes_a_reservation(before: dict[str, Inventory]) -> None:
    assert release(reserve_fully(before), remembered(before)) == before


@given(inventories())
def test_repeated_reservation_keeps_the_recorded_amounts(
    before: dict[str, Inventory],
) -> None:
    once = remembered(before)
    assert remembered(reserve_fully(before), once) == once


@given(inventories(), st.sets(st.sampled_from(CLASSES)))
def test_class_that_was_full_before_our_reservation_is_foreign_during_it(
    before: dict[str, Inventory], classes: set[str]
) -> None:
    before = {**before, **reserve_fully({name: before[name] for name in classes & before.keys()})}
    full = {name for name, inventory in before.items() if inventory.is_fully_reserved}
    record = remembered(before)

    assert foreign(before, Record()) == full
    assert record.own_reserved.keys() == before.keys() - full
    assert foreign(reserve_fully(before), record) == full
    assert release(reserve_fully(before), record) == before


@given(inventories(), inventories())
def test_release_changes_only_reserved_and_not_above_the_total(
    before: dict[str, Inventory], later: dict[str, Inventory]
) -> None:
    after = release(later, remembered(before))
    assert after.keys() == later.keys()
    for name, inventory in later.items():
        assert replace(after[name], reserved=inventory.reserved) == inventory
        assert 0 <= after[name].reserved <= inventory.total


def test_amount_that_the_owner_wrote_since_is_the_new_own_amount() -> None:
    record = Record(own_reserved={"VCPU": 1})
    assert own_reserved(vcpu(3), record) == {"VCPU": 3}
    assert release(vcpu(3), record) == vcpu(3)


def test_full_amount_without_a_record_is_foreign_and_stays() -> None:
    for record in (Record(), published()):
        assert foreign(vcpu(8), record) == {"VCPU"}
        assert own_reserved(vcpu(8), record) == {}
        assert release(vcpu(8), record) == vcpu(8)


@pytest.mark.parametrize("intended", [False, True])
def test_full_amount_that_we_wrote_or_intended_is_ours(intended: bool) -> None:
    record = published(full=True, intended=intended)
    assert foreign(vcpu(8), record) == frozenset()
    assert own_reserved(vcpu(8), record) == {"VCPU": 8}


def test_full_amount_with_a_recorded_own_amount_is_ours() -> None:
    """We sent the write before a crash; Placement may have carried it out."""
    record = published(own_reserved={"VCPU": 0})
    assert foreign(vcpu(8), record) == frozenset()
    assert release(vcpu(8), record) == vcpu(0)


def test_full_amount_before_an_intended_release_is_ours() -> None:
    full, free = provider(vcpu(8)), provider(vcpu(0))
    record = Record(applied=full, intended=free, own_reserved={"VCPU": 0})
    assert foreign(vcpu(8), record) == frozenset()
    assert release(vcpu(8), record) == vcpu(0)
    assert release(vcpu(0), record) == vcpu(0)


def test_foreign_is_decided_for_each_class() -> None:
    live = {**vcpu(8), "VGPU": Inventory(total=4, reserved=4)}
    record = Record(own_reserved={"VGPU": 1})
    assert foreign(live, record) == {"VCPU"}
    assert own_reserved(live, record) == {"VGPU": 1}
    assert release(live, record) == {**vcpu(8), "VGPU": Inventory(total=4, reserved=1)}


def test_class_added_during_a_reservation_has_its_own_amount() -> None:
    live = {**vcpu(8), "VGPU": Inventory(total=4, reserved=1)}
    assert own_reserved(live, Record(own_reserved={"VCPU": 2})) == {"VCPU": 2, "VGPU": 1}


def test_amount_of_a_removed_class_is_deleted() -> None:
    assert own_reserved(vcpu(8), Record(own_reserved={"VCPU": 2, "VGPU": 1})) == {"VCPU": 2}


def test_own_amount_above_the_total_becomes_the_total() -> None:
    record = Record(own_reserved={"VCPU": 6})
    assert release(vcpu(4, total=4), record) == vcpu(4, total=4)


def test_own_amount_that_fits_again_is_restored() -> None:
    record = remembered(vcpu(4, total=4), Record(own_reserved={"VCPU": 6}))
    assert release(vcpu(8), record) == vcpu(6)


def test_amount_left_by_a_reshape_is_neither_foreign_nor_the_owners() -> None:
    left = provider(vcpu(5), generation=None)
    record = published(own_reserved={"VCPU": 1}, live=left)
    assert own_reserved(vcpu(5), record) == {"VCPU": 1}
    assert release(vcpu(5), record) == vcpu(1)
    assert own_reserved(vcpu(4), record) == {"VCPU": 4}, "its owner has written it since"
    assert own_reserved(vcpu(5, total=9), record) == {"VCPU": 5}, "its owner has written the total"


def test_amount_read_since_a_reshape_is_the_owners() -> None:
    record = published(own_reserved={"VCPU": 1}, live=provider(vcpu(5)))
    assert own_reserved(vcpu(5), record) == {"VCPU": 5}


def test_full_amount_left_by_a_reshape_is_ours() -> None:
    left = provider(vcpu(8), generation=None)
    assert foreign(vcpu(8), published(full=True, intended=True, live=left)) == frozenset()


def test_provider_without_classes_is_reserved_and_released() -> None:
    assert foreign({}, Record()) == frozenset()
    assert own_reserved({}, Record()) == {}
    assert reserve_fully({}) == release({}, Record()) == {}


# Several records of one provider.


@pytest.mark.parametrize(
    ("figures", "expected"),
    [
        ([], set()),
        ([{"VCPU": 1}], set()),
        ([{"VCPU": 1}, {"VCPU": 1}], set()),
        ([{"VCPU": 1}, {"VCPU": 2}], {"VCPU"}),
        ([{"VCPU": 1}, {}], {"VCPU"}),
        ([{"VCPU": 1, "VGPU": 0}, {"VGPU": 0}, {"VCPU": 1, "VGPU": 0}], {"VCPU"}),
    ],
)
def test_disputed_classes_are_those_in_which_any_two_records_differ(
    figures: list[dict[str, int]], expected: set[str]
) -> None:
    assert disputed([Record(own_reserved=one) for one in figures]) == expected


@pytest.mark.parametrize("record", [published(full=True), published(full=True, intended=True)])
def test_release_without_disputed_classes_leaves_them_full(record: Record) -> None:
    unclear = without_classes(replace(record, own_reserved={"VCPU": 1}), {"VCPU"})
    assert unclear.is_ours
    assert own_reserved(vcpu(8), unclear) == {}
    assert release(vcpu(8), unclear) == vcpu(8)
    assert own_reserved(vcpu(3), unclear) == {"VCPU": 3}
