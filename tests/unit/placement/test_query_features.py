"""Features that a query needs, and the same query for a server without named groups."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wharfinger.placement.microversions import HIGHEST, Feature, Microversion
from wharfinger.placement.query_features import (
    Query,
    candidate_features,
    encoded,
    features,
    numbered,
)

A = "00000000-0000-0000-0000-00000000000a"
B = "00000000-0000-0000-0000-00000000000b"
GROUPED = re.compile(r"(resources|required|member_of|in_tree)(.*)\Z")


@pytest.mark.parametrize(
    ("query", "needed"),
    [
        ([], set()),
        ([("name", "cn"), ("uuid", A), ("resources", "VCPU:1")], set()),
        ([("required", "OWNER_NOVA,!OWNER_CYBORG")], set()),
        ([("required", "T1"), ("required_A", "T2"), ("required1", "T3")], set()),
        ([("member_of", A), ("member_of", f"in:{A},{B}")], set()),
        ([("in_tree", A)], set()),
        ([("required", "T1"), ("required", "T2")], {Feature.ANY_TRAITS}),
        ([("required_A", "T1"), ("required_A", "!T2")], {Feature.ANY_TRAITS}),
        ([("required", "in:T1,T2")], {Feature.ANY_TRAITS}),
        ([("required1", "in:T1,T2")], {Feature.ANY_TRAITS}),
        ([("member_of", f"!{A}")], {Feature.FORBIDDEN_AGGREGATES}),
        ([("member_of_A", f"!in:{A},{B}")], {Feature.FORBIDDEN_AGGREGATES}),
        ([("root_required", "OWNER_NOVA")], {Feature.ROOT_REQUIRED}),
        ([("same_subtree", "_A,_B")], {Feature.SAME_SUBTREE}),
        (
            [("required", "in:T1"), ("member_of", f"!{A}"), ("root_required", "T")],
            {Feature.ANY_TRAITS, Feature.FORBIDDEN_AGGREGATES, Feature.ROOT_REQUIRED},
        ),
    ],
)
def test_query_needs_the_features_of_its_conditions(query: Query, needed: set[Feature]) -> None:
    assert set(features(query)) == needed
    beside = {Feature.CANDIDATES_IN_TREE} if ("in_tree", A) in query else set()
    assert set(candidate_features(query)) == needed | beside | {Feature.NESTED_CANDIDATES}


@pytest.mark.parametrize("key", ["in_tree", "in_tree1", "in_tree_NET"])
def test_query_for_one_tree_needs_candidates_in_tree(key: str) -> None:
    assert Feature.CANDIDATES_IN_TREE in set(candidate_features([(key, A)]))


def test_named_groups_are_numbered_one_by_one() -> None:
    query = [
        ("resources", "VCPU:1"),
        ("resources_GPU", "VGPU:1"),
        ("required_GPU", "T1"),
        ("resources_NET", "NET_BW_EGR_KILOBIT_PER_SEC:1"),
        ("member_of_NET", A),
        ("in_tree_GPU", B),
        ("required", "OWNER_NOVA"),
        ("root_required", "OWNER_NOVA"),
        ("group_policy", "none"),
        ("limit", "10"),
    ]

    assert list(numbered(query)) == [
        ("resources", "VCPU:1"),
        ("resources1", "VGPU:1"),
        ("required1", "T1"),
        ("resources2", "NET_BW_EGR_KILOBIT_PER_SEC:1"),
        ("member_of2", A),
        ("in_tree1", B),
        ("required", "OWNER_NOVA"),
        ("root_required", "OWNER_NOVA"),
        ("group_policy", "none"),
        ("limit", "10"),
    ]


def test_numbered_groups_keep_their_numbers_and_named_groups_get_free_numbers() -> None:
    query = [(f"resources{suffix}", "VGPU:1") for suffix in ("_A", "1", "_B", "3", "_C")]

    assert [key for key, _value in numbered(query)] == [
        "resources2",
        "resources1",
        "resources4",
        "resources3",
        "resources5",
    ]


@pytest.mark.parametrize("suffix", ["01", "0", "\u00b2", "\u0661", "_1", "-1"])
def test_suffix_that_resembles_a_number_is_numbered(suffix: str) -> None:
    # An old server accepts only the suffixes [1-9][0-9]*.
    assert list(numbered([(f"resources{suffix}", "VGPU:1")])) == [("resources1", "VGPU:1")]


def test_query_without_groups_is_unchanged() -> None:
    query = [("resources", "VCPU:1"), ("required", "T1"), ("limit", "1"), ("group_policy", "none")]

    assert list(numbered(query)) == query


suffixes = st.one_of(
    st.just(""),
    st.integers(1, 12).map(str),
    st.from_regex(r"\A[a-zA-Z0-9_-]{1,64}\Z"),
    st.sampled_from(["_A", "_B", "01", "_1", "_required", "_of"]),
)
conditions = st.tuples(
    st.tuples(st.sampled_from(["resources", "required", "member_of", "in_tree"]), suffixes).map(
        "".join
    ),
    st.sampled_from(["VCPU:1", "T1", "!T2", A, f"in:{A},{B}", "_A,_B"]),
)
others = st.tuples(
    st.sampled_from(["root_required", "same_subtree", "group_policy", "limit", "name"]),
    st.sampled_from(["T1", "_A,_B", "none", "5"]),
)
queries = st.lists(st.one_of(conditions, others), max_size=12)


def parts(key: str) -> tuple[str, str | None]:
    """Return the condition and the suffix of its group; the suffix is None outside of groups."""
    match = GROUPED.match(key)
    return (match[1], match[2]) if match else (key, None)


@given(queries)
def test_numbering_changes_only_suffixes(query: Query) -> None:
    after = numbered(query)

    assert [(parts(key)[0], value) for key, value in after] == [
        (parts(key)[0], value) for key, value in query
    ]
    for (old, _), (new, _) in zip(query, after, strict=True):
        if not parts(old)[1]:
            assert new == old


@given(queries)
def test_numbered_suffixes_are_digits(query: Query) -> None:
    for key, _value in numbered(query):
        assert re.fullmatch(r"([1-9][0-9]*)?", parts(key)[1] or "")


@given(queries)
def test_numbering_neither_merges_nor_splits_groups(query: Query) -> None:
    pairs = {
        (parts(old)[1], parts(new)[1])
        for (old, _), (new, _) in zip(query, numbered(query), strict=True)
        if parts(old)[1]
    }

    assert len({old for old, _ in pairs}) == len({new for _, new in pairs}) == len(pairs)


@given(queries)
def test_repeated_numbering_changes_nothing(query: Query) -> None:
    once = list(numbered(query))

    assert list(numbered(once)) == once


@given(queries)
def test_numbering_does_not_change_the_needed_features(query: Query) -> None:
    assert set(features(numbered(query))) == set(features(query))
    assert set(candidate_features(numbered(query))) == set(candidate_features(query))


def test_encoded_query_is_readable() -> None:
    assert encoded([("required", "in:A,!B"), ("name", "a b&c")]) == "required=in:A,!B&name=a+b%26c"


def test_microversions_are_written_and_ordered_as_numbers() -> None:
    assert Microversion(1, 9) < Microversion(1, 39) == HIGHEST
    assert str(HIGHEST) == "1.39"
