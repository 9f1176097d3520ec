import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wharfinger.exceptions import InvalidInventory, InvalidName
from wharfinger.providers.inventory import MAX_INT, Inventory, check_inventories

FIGURES = ("total", "reserved", "min_unit", "max_unit", "step_size")
LOWEST = {"total": 1, "reserved": 0, "min_unit": 1, "max_unit": 1, "step_size": 1}


def figures(**changed: object) -> dict[str, Any]:
    return {"total": MAX_INT, "max_unit": MAX_INT, **changed}


def test_defaults_are_those_of_placement() -> None:
    assert Inventory(total=4).to_dict() == {
        "total": 4,
        "reserved": 0,
        "min_unit": 1,
        "max_unit": 2147483647,
        "step_size": 1,
        "allocation_ratio": 1.0,
    }


@pytest.mark.parametrize("name", FIGURES)
def test_field_may_have_its_lowest_and_highest_value(name: str) -> None:
    for value in (LOWEST[name], MAX_INT):
        assert getattr(Inventory(**figures(**{name: value})), name) == value


@pytest.mark.parametrize("name", FIGURES)
def test_field_out_of_bounds_is_refused_by_name(name: str) -> None:
    for value in (LOWEST[name] - 1, MAX_INT + 1):
        expected = f"{name} must be from {LOWEST[name]} to {MAX_INT}, not {value}"
        with pytest.raises(InvalidInventory, match=re.escape(expected)):
            Inventory(**figures(**{name: value}))


@pytest.mark.parametrize("name", FIGURES)
@pytest.mark.parametrize("value", ["4", 4.0, None, True])
def test_field_that_is_no_whole_number_is_refused(name: str, value: object) -> None:
    expected = f"{name} must be a whole number, not {value!r}"
    with pytest.raises(InvalidInventory, match=re.escape(expected)):
        Inventory(**figures(**{name: value}))


def test_reserved_may_equal_total_and_not_exceed_it() -> None:
    assert Inventory(total=4, reserved=4).is_fully_reserved
    assert not Inventory(total=4, reserved=3).is_fully_reserved
    with pytest.raises(InvalidInventory, match="reserved 5 is more than total 4"):
        Inventory(total=4, reserved=5).check()


def test_min_unit_may_equal_max_unit_and_not_exceed_it() -> None:
    assert Inventory(total=4, min_unit=2, max_unit=2).check().min_unit == 2
    with pytest.raises(InvalidInventory, match="min_unit 3 is more than max_unit 2"):
        Inventory(total=4, min_unit=3, max_unit=2).check()


@pytest.mark.parametrize("ratio", [0, -1, -0.5, float("nan"), float("inf")])
def test_allocation_ratio_of_zero_or_less_is_refused(ratio: float) -> None:
    with pytest.raises(InvalidInventory, match="allocation_ratio must be above 0"):
        Inventory(total=1, allocation_ratio=ratio).check()


@pytest.mark.parametrize("ratio", ["1.0", None, True])
def test_allocation_ratio_that_is_no_number_is_refused(ratio: Any) -> None:
    with pytest.raises(InvalidInventory, match="allocation_ratio must be a number"):
        Inventory(total=1, allocation_ratio=ratio)


@pytest.mark.parametrize("ratio", [3.5e38, 10**400], ids=["3.5e38", "10**400"])
def test_allocation_ratio_above_placements_limit_is_refused(ratio: float) -> None:
    # placement.db.constants.SQL_SP_FLOAT_MAX is 3.40282e+38.
    with pytest.raises(InvalidInventory, match="allocation_ratio"):
        Inventory(total=1, allocation_ratio=ratio)


@pytest.mark.parametrize("ratio", [3.5e38, -3.5e38, float("nan"), float("-inf")])
def test_allocation_ratio_that_placement_cannot_store_is_refused_unchecked(ratio: float) -> None:
    """Answers of Placement, which have no further checks, are refused, too."""
    with pytest.raises(InvalidInventory, match="allocation_ratio"):
        Inventory(total=1, allocation_ratio=ratio)


def test_allocation_ratio_at_placements_limit_is_accepted() -> None:
    assert Inventory(total=1, allocation_ratio=3.40282e38).check().allocation_ratio == 3.40282e38


def test_field_of_a_derived_type_becomes_a_plain_int() -> None:
    class Figure(int):
        pass

    assert type(Inventory(total=Figure(4)).total) is int


def test_allocation_ratio_as_int_equals_its_float() -> None:
    inventory = Inventory(total=1, allocation_ratio=2)
    assert inventory == Inventory(total=1, allocation_ratio=2.0)
    assert isinstance(inventory.allocation_ratio, float)


@given(st.data())
def test_from_mapping_of_to_dict_is_the_same_inventory(data: st.DataObject) -> None:
    total = data.draw(st.integers(1, MAX_INT))
    smallest = data.draw(st.integers(1, MAX_INT))
    inventory = Inventory(
        total=total,
        reserved=data.draw(st.integers(0, total)),
        min_unit=smallest,
        max_unit=data.draw(st.integers(smallest, MAX_INT)),
        step_size=data.draw(st.integers(1, MAX_INT)),
        allocation_ratio=data.draw(st.floats(min_value=0.001, max_value=1e6)),
    )
    assert Inventory.from_mapping(inventory.to_dict()) == inventory


def test_from_mapping_requires_only_total() -> None:
    assert Inventory.from_mapping({"total": 2}) == Inventory(total=2)
    with pytest.raises(InvalidInventory, match="total is missing"):
        Inventory.from_mapping({"reserved": 1})


def test_from_mapping_with_unknown_field_names_it_and_the_known_ones() -> None:
    with pytest.raises(
        InvalidInventory, match=r"unknown keys: totals; the known keys are .*step_size, total"
    ):
        Inventory.from_mapping({"total": 2, "totals": 2})


def test_inventories_of_a_provider_are_taken_as_dicts_and_as_inventories() -> None:
    checked = check_inventories("gpu", {"VGPU": {"total": 2}, "CUSTOM_X": Inventory(total=3)})
    assert checked == {"VGPU": Inventory(total=2), "CUSTOM_X": Inventory(total=3)}


def test_contradicting_fields_are_accepted_only_if_placement_has_them() -> None:
    theirs = {"VGPU": Inventory(total=2, reserved=3)}
    assert check_inventories("gpu", theirs, theirs) == theirs
    for there in ({}, {"VGPU": Inventory(total=2)}, {"VCPU": theirs["VGPU"]}):
        with pytest.raises(InvalidInventory, match="gpu, VGPU: reserved 3 is more than total 2"):
            check_inventories("gpu", theirs, there)


@pytest.mark.parametrize("wrong", [None, 5, ["VGPU"], "VGPU"])
def test_inventories_that_are_no_dict_are_refused(wrong: Any) -> None:
    with pytest.raises(InvalidInventory, match="must be a dict by resource class"):
        check_inventories("gpu", wrong)


@pytest.mark.parametrize(
    ("record", "problem"),
    [
        ({"total": 0}, "total must be from 1"),
        ({}, "total is missing"),
        (7, "must be an Inventory or a dict, not 7"),
        (None, "must be an Inventory or a dict, not None"),
    ],
)
def test_invalid_inventory_names_provider_and_class(record: Any, problem: str) -> None:
    expected = f"inventory of host-1, VGPU: {problem}"
    with pytest.raises(InvalidInventory, match=re.escape(expected)):
        check_inventories("host-1", {"VGPU": record})


def test_invalid_class_names_provider_and_class() -> None:
    with pytest.raises(InvalidName) as caught:
        check_inventories("host-1", {"GPUS": {"total": 1}})
    assert "'GPUS'" in str(caught.value)
    assert "host-1" in str(caught.value)
