import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wharfinger.exceptions import InvalidName
from wharfinger.providers import names

A_UUID = "3f0c6f5e-9f0b-4a53-8a60-7b6a3c1f7d0e"


@pytest.mark.parametrize("name", ["HW_CPU_X86_VMX", "OWNER_NOVA", "CUSTOM_GOLD", "CUSTOM_1_A"])
def test_standard_and_custom_traits_are_accepted(name: str) -> None:
    assert names.check_trait(name) == name


@pytest.mark.parametrize("name", ["VCPU", "VGPU", "FPGA", "CUSTOM_BAREMETAL_GOLD"])
def test_standard_and_custom_classes_are_accepted(name: str) -> None:
    assert names.check_resource_class(name) == name


WRONG = [
    "",
    "GOLD",
    "CUSTOM_",
    "CUSTOM_gold",
    "CUSTOM_A-B",
    "CUSTOM_A B",
    "CUSTOM_GOLD\n",
    "custom_gold",
    "CUSTOM_É",
]


@pytest.mark.parametrize("name", [*WRONG, None, 5, ["CUSTOM_A"]])
def test_invalid_name_is_refused_with_the_valid_forms(name: Any) -> None:
    with pytest.raises(InvalidName, match=r"trait .* neither in os-traits nor .* CUSTOM_\["):
        names.check_trait(name)
    with pytest.raises(InvalidName, match=r"resource class .* os-resource-classes nor"):
        names.check_resource_class(name)


def test_trait_is_no_resource_class_and_vice_versa() -> None:
    with pytest.raises(InvalidName):
        names.check_resource_class("HW_CPU_X86_VMX")
    with pytest.raises(InvalidName):
        names.check_trait("VCPU")


def test_custom_names_have_at_most_255_characters() -> None:
    longest = "CUSTOM_" + "A" * 248
    assert names.check_trait(longest) == longest
    with pytest.raises(InvalidName, match="at most 255"):
        names.check_trait(longest + "A")


def test_provider_names_have_1_to_200_characters() -> None:
    for name in ("a", "ü b", "a" * 200):
        assert names.check_provider_name(name) == name
    for wrong in ("", "a" * 201):
        with pytest.raises(InvalidName, match="must have 1 to 200 characters"):
            names.check_provider_name(wrong)


@pytest.mark.parametrize("name", ["a\nb", "a\tb", "\x00", "a\x1b[0m"])
def test_provider_names_have_no_control_characters(name: str) -> None:
    with pytest.raises(InvalidName, match="must have only printable characters"):
        names.check_provider_name(name)


@given(st.uuids())
def test_uuid_in_any_usual_form_is_returned_in_one(value: uuid.UUID) -> None:
    for form in (str(value), str(value).upper(), value.hex, f"{{{value}}}", value.urn):
        assert names.check_uuid(form) == str(value)


@pytest.mark.parametrize("value", ["", "x", A_UUID[:-1], A_UUID + "0", None, 5, ["x"]])
def test_invalid_uuid_is_refused(value: Any) -> None:
    with pytest.raises(InvalidName, match=r"uuid .*is not a uuid"):
        names.check_uuid(value)


def test_aggregates_are_uuids_in_their_canonical_form() -> None:
    assert names.check_aggregates([A_UUID.upper(), A_UUID]) == {A_UUID}
    with pytest.raises(InvalidName):
        names.check_aggregates([A_UUID, "rack-1"])


class Text(str):
    """A subclass of str, such as a driver's backend may return."""

    __slots__ = ()

    def __str__(self) -> str:
        return "something else"


def test_text_of_a_derived_type_becomes_a_plain_string() -> None:
    """Only plain strings can be stored and sent."""
    taken: list[str] = [
        names.check_trait(Text("CUSTOM_GOLD")),
        names.check_resource_class(Text("CUSTOM_GOLD")),
        names.check_provider_name(Text("CUSTOM_GOLD")),
        names.check_reason(Text("CUSTOM_GOLD")),
        *names.several([Text("CUSTOM_GOLD")], "trait"),
    ]
    assert taken == ["CUSTOM_GOLD"] * 5
    assert {type(name) for name in taken} == {str}
    assert names.check_uuid(Text(A_UUID.upper())) == A_UUID


@pytest.mark.parametrize("wrong", ["CUSTOM_A", b"CUSTOM_B", {"CUSTOM_A": True}, 5, None, [[]]])
def test_names_in_another_type_than_a_collection_are_refused(wrong: Any) -> None:
    with pytest.raises(InvalidName, match="must be a list or set of names"):
        names.several(wrong, "trait")


@pytest.mark.parametrize("wrong", ["", "a\nb", None, 5])
def test_reason_that_is_no_printable_text_is_refused(wrong: Any) -> None:
    with pytest.raises(InvalidName, match="must be printable text, and not empty"):
        names.check_reason(wrong)


@given(st.text(min_size=1), st.text(min_size=1))
def test_generated_uuids_are_stable_and_different_for_different_names(one: str, other: str) -> None:
    assert names.root_uuid(one) == names.root_uuid(one)
    assert (names.root_uuid(one) == names.root_uuid(other)) == (one == other)
    parent = names.root_uuid(one)
    assert (names.child_uuid(parent, one) == names.child_uuid(parent, other)) == (one == other)


def test_children_of_one_name_below_different_parents_have_different_uuids() -> None:
    first, second = names.root_uuid("a"), names.root_uuid("b")
    assert names.child_uuid(first, "gpu") != names.child_uuid(second, "gpu")
