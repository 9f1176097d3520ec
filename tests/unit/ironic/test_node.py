"""A node's resource class in Placement, and the node's name in messages."""

import os_resource_classes
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.ironic.samples import FREE, node
from wharfinger.exceptions import InvalidName
from wharfinger.providers import names
from wharfinger_ironic.node import FIELDS

CLASSES = {
    "baremetal": "CUSTOM_BAREMETAL",
    "baremetal.gold": "CUSTOM_BAREMETAL_GOLD",
    "Bare-Metal 2": "CUSTOM_BARE_METAL_2",
    "a--b..c": "CUSTOM_A_B_C",
    "_x_": "CUSTOM__X_",
    "CUSTOM_GOLD": "CUSTOM_CUSTOM_GOLD",
    "VCPU": "CUSTOM_VCPU",
    "42": "CUSTOM_42",
    "größe": "CUSTOM_GR_E",
    " gold\n": "CUSTOM__GOLD_",
    "x" * 248: "CUSTOM_" + "X" * 248,
}


@pytest.mark.parametrize("given", CLASSES)
def test_custom_class_has_novas_name(given: str) -> None:
    assert node(resource_class=given).custom_class == CLASSES[given]
    # The same as nova's normalize_rc_name.
    assert os_resource_classes.normalize_name(given) == CLASSES[given]


@pytest.mark.parametrize("given", [None, "", " ", "???", "._-", "日本", "é", "x" * 249, "-" * 300])
def test_class_without_a_valid_name_has_no_custom_class(given: str | None) -> None:
    assert node(resource_class=given).custom_class is None


@given(st.text(max_size=300))
def test_custom_class_is_valid_in_placement(given: str) -> None:
    found = node(resource_class=given).custom_class
    if found is None:
        try:
            names.check_resource_class(os_resource_classes.normalize_name(given))
        except InvalidName:
            return
        # Placement accepts CUSTOM__, but a flavor cannot request it in a meaningful way.
        assert not any(char.isascii() and char.isalnum() for char in given)
    else:
        assert names.check_resource_class(found) == found
        assert found == os_resource_classes.normalize_name(given)


@given(st.text(max_size=80), st.text(max_size=80))
def test_classes_that_differ_for_nova_differ_here(one: str, other: str) -> None:
    first, second = node(resource_class=one).custom_class, node(resource_class=other).custom_class
    if first is not None and second is not None:
        same = os_resource_classes.normalize_name(one) == os_resource_classes.normalize_name(other)
        assert (first == second) == same


def test_known_as_includes_the_name() -> None:
    assert FREE.known_as() == FREE.uuid
    assert node(name="rack-1").known_as() == f"{FREE.uuid} (rack-1)"


def test_fields_of_the_request_are_those_of_the_node() -> None:
    assert tuple(FREE.__struct_fields__) == FIELDS
    assert {"uuid", "traits", "provision_state", "fault", "retired"} <= set(FIELDS)
