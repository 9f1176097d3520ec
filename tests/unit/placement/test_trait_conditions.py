"""Conditions on traits: their meaning, and how they are parsed and encoded."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wharfinger.exceptions import InvalidRequest
from wharfinger.placement.trait_conditions import NO_CONDITIONS, TraitConditions, check_name

LONGEST = "CUSTOM_" + "A" * 248

TRAITS = st.frozensets(st.sampled_from([f"T{number}" for number in range(6)]), max_size=3)


@st.composite
def conditions(draw: st.DrawFn) -> TraitConditions:
    """Draw conditions that a provider can meet."""
    required, forbidden = draw(TRAITS), draw(TRAITS)
    choices = draw(st.frozensets(TRAITS.filter(bool), max_size=3))
    return TraitConditions(
        required=required,
        any_of=frozenset(choice for choice in choices if not choice <= forbidden - required),
        forbidden=forbidden - required,
    )


def refusal(*values: str) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        TraitConditions.parse(values)
    assert (caught.value.subject, caught.value.key) == ("request", "required")
    return caught.value


# Parsing and encoding.


def test_conditions_in_the_syntax_of_the_api_are_parsed() -> None:
    assert TraitConditions.parse(["T1,T2", "in:T3,T4", "!T5", "T6,!T7", "in:T8,T9"]) == (
        TraitConditions(
            required=frozenset({"T1", "T2", "T6"}),
            any_of=frozenset({frozenset({"T3", "T4"}), frozenset({"T8", "T9"})}),
            forbidden=frozenset({"T5", "T7"}),
        )
    )


def test_spaces_beside_commas_are_ignored() -> None:
    assert TraitConditions.parse(["T1 , !T2", "in:T3 , T4"]) == (
        TraitConditions.parse(["T1,!T2", "in:T3,T4"])
    )


def test_empty_list_is_no_condition() -> None:
    assert TraitConditions.parse([]) == NO_CONDITIONS
    assert not NO_CONDITIONS
    assert NO_CONDITIONS.values() == ()
    assert NO_CONDITIONS.wanted == frozenset()


@pytest.mark.parametrize("value", ["T1", "!T1", "in:T1,T2"])
def test_any_value_is_a_condition(value: str) -> None:
    assert TraitConditions.parse([value])


def test_values_have_plain_conditions_in_one_and_each_choice_in_another() -> None:
    written = TraitConditions.parse(["in:T9,T8", "!T5", "T2,T1", "in:T4,T3", "!T6"]).values()

    assert written == ("T1,T2,!T5,!T6", "in:T3,T4", "in:T8,T9")


def test_choice_of_one_trait_becomes_required() -> None:
    assert TraitConditions.parse(["in:T1", "in:T2,T2"]).values() == ("T1,T2",)
    assert TraitConditions(any_of=frozenset({frozenset({"T1"})})).any_of == frozenset()


def test_wanted_has_required_traits_and_choices() -> None:
    assert TraitConditions.parse(["T1", "in:T2,T3", "!T4"]).wanted == {"T1", "T2", "T3"}


def test_combination_has_the_conditions_of_both() -> None:
    both = TraitConditions.parse(["T1", "in:T2,T3", "!T4"]) & (
        TraitConditions.parse(["T5", "in:T6,T7", "!T8"])
    )

    assert both.values() == ("T1,T5,!T4,!T8", "in:T2,T3", "in:T6,T7")


def test_conditions_from_plain_sets_are_hashable() -> None:
    given = TraitConditions(
        required={"T1"},  # type: ignore[arg-type]
        any_of=[{"T2", "T3"}],  # type: ignore[arg-type]
        forbidden={"T4"},  # type: ignore[arg-type]
    )

    assert {given} == {TraitConditions.parse(["T1", "in:T2,T3", "!T4"])}


@given(conditions())
def test_encoded_conditions_are_parsed_to_the_same(said: TraitConditions) -> None:
    assert TraitConditions.parse(said.values()) == said


@given(conditions())
def test_values_are_several_only_with_a_choice(said: TraitConditions) -> None:
    plain = [value for value in said.values() if not value.startswith("in:")]

    assert len(plain) == bool(said.required or said.forbidden)
    assert len(said.values()) - len(plain) == len(said.any_of)


@given(conditions(), conditions())
def test_combination_has_all_conditions_or_is_refused(
    one: TraitConditions, other: TraitConditions
) -> None:
    try:
        both = one & other
    except InvalidRequest:
        required = one.required | other.required
        forbidden = one.forbidden | other.forbidden
        choices = [*one.any_of, *other.any_of, *({trait} for trait in required)]
        assert any(choice <= forbidden for choice in choices)
    else:
        assert both == other & one
        assert both.required == one.required | other.required
        assert both.any_of == one.any_of | other.any_of
        assert both.forbidden == one.forbidden | other.forbidden


# Invalid conditions.


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("", "a trait is missing: name one."),
        (",", "a trait is missing"),
        ("T1,", "a trait is missing"),
        ("T1,,T2", "a trait is missing"),
        ("!", "a trait is missing"),
        ("T1,!", "a trait is missing"),
        ("in:", "a trait is missing"),
        ("in:T1,", "a trait is missing"),
        ("in: ", "a trait is missing"),
        ("in:T1,!T2", "no trait after in: can be forbidden. Write !T2 as a condition of its own."),
        ("in:!T1", "no trait after in: can be forbidden. Write !T1 as a condition of its own."),
        (
            "T1,in:T2",
            "in: has to be the beginning of a condition of its own, such as in:T1,T2.",
        ),
        ("!in:T1,T2", "in: has to be the beginning of a condition of its own"),
        ("in:in:T1", "in: has to be the beginning of a condition of its own"),
        ("!!T1", "'!T1' cannot be a trait"),
        ("IN:T1", "'IN:T1' cannot be a trait"),
        ("hw_fast", "'hw_fast' cannot be a trait"),
        ("T1 T2", "'T1 T2' cannot be a trait"),
        ("T1;T2", "'T1;T2' cannot be a trait"),
        ("T\u0661", "cannot be a trait"),
        ("T1\nT2", "such as HW_CPU_X86_VMX or CUSTOM_FAST, and has at most 255 characters."),
        (LONGEST + "A", "and has at most 255 characters"),
    ],
)
def test_invalid_condition_is_refused_with_its_value(value: str, told: str) -> None:
    error = refusal("T0", value)

    assert str(error.value).strip() == value.strip()
    assert told in error.problem


@pytest.mark.parametrize(
    ("values", "told"),
    [
        (["T1,!T1"], "T1 cannot be required and forbidden."),
        (["T1", "!T1"], "T1 cannot be required and forbidden."),
        (
            ["in:T2,T1", "!T1,!T2,!T3"],
            "one of T1 and T2 is required, but all of them are forbidden.",
        ),
        (["in:T1", "!T1"], "T1 cannot be required and forbidden."),
    ],
)
def test_trait_that_is_required_and_forbidden_is_refused(values: list[str], told: str) -> None:
    error = refusal(*values)

    assert error.problem == told
    assert error.value == " ".join(values)


def test_trait_of_a_choice_may_be_forbidden() -> None:
    assert TraitConditions.parse(["in:T1,T2", "!T1"]).values() == ("!T1", "in:T1,T2")


def test_conditions_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="T1 cannot be required and forbidden"):
        TraitConditions.parse(["T1"]) & TraitConditions.parse(["!T1"])


@pytest.mark.parametrize("field", ["required", "forbidden"])
def test_condition_with_an_invalid_trait_is_refused(field: str) -> None:
    said: Any = {field: frozenset({"fast"})}
    with pytest.raises(InvalidRequest, match="'fast' cannot be a trait"):
        TraitConditions(**said)


def test_choice_with_an_invalid_trait_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="'fast' cannot be a trait"):
        TraitConditions(any_of=frozenset({frozenset({"T1", "fast"})}))


def test_empty_choice_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="it needs at least one trait"):
        TraitConditions(any_of=frozenset({frozenset()}))


def test_error_names_the_place_of_the_conditions() -> None:
    for values in (["fast"], ["T1,!T1"]):
        with pytest.raises(InvalidRequest) as caught:
            TraitConditions.parse(values, "--required")
        assert caught.value.key == "--required"


# Names.


@pytest.mark.parametrize("name", ["T", "OWNER_NOVA", "CUSTOM_1", "_", LONGEST])
def test_valid_trait_is_accepted(name: str) -> None:
    assert check_name(name) == name


@pytest.mark.parametrize("name", ["T\n", "CUSTOM-FAST", "Custom_Fast", "\u00c4", " T"])
def test_invalid_trait_is_refused(name: str) -> None:
    with pytest.raises(InvalidRequest, match="cannot be a trait") as caught:
        check_name(name)
    assert caught.value.value == name


@given(st.lists(st.text(alphabet="T1,!in: _\n\u00e9"), max_size=3))
def test_any_text_is_parsed_or_refused(values: list[str]) -> None:
    try:
        said = TraitConditions.parse(values)
    except InvalidRequest:
        return
    assert TraitConditions.parse(said.values()) == said
