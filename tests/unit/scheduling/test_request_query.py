"""Requests as queries: their parameters, and the microversions that they need."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.lab.samples import uuid
from wharfinger.placement.microversions import Feature
from wharfinger.placement.query_features import candidate_features
from wharfinger.placement.trait_conditions import TraitConditions
from wharfinger.scheduling import RequestGroup, ResourceRequest
from wharfinger.scheduling.request_query import encode

RACK, ROW, TREE = sorted(uuid(name) for name in ("rack", "row", "tree"))


def group(suffix: str = "", **values: Any) -> RequestGroup:
    return RequestGroup(suffix=suffix, **({"resources": {"VGPU": 1}} | values))


def traits(*values: str) -> TraitConditions:
    return TraitConditions.parse(values)


def encoded(*groups: RequestGroup, **values: Any) -> list[tuple[str, str]]:
    return list(encode(ResourceRequest(groups=groups, **values)))


def test_query_has_amounts_in_the_order_of_classes() -> None:
    assert encoded(group(resources={"VGPU": 2, "MEMORY_MB": 512, "CUSTOM_GOLD": 1})) == [
        ("resources", "CUSTOM_GOLD:1,MEMORY_MB:512,VGPU:2")
    ]


def test_query_has_groups_in_order_with_their_suffixes() -> None:
    assert encoded(
        group(traits=traits("T1,!T2"), in_tree=TREE),
        group("_GPU", traits=traits("in:T4,T3", "T5"), member_of=[[ROW, RACK], [TREE]]),
        group(uuid("port"), forbidden_aggregates=[ROW, RACK]),
        group_policy="isolate",
    ) == [
        ("resources", "VGPU:1"),
        ("required", "T1,!T2"),
        ("in_tree", TREE),
        ("resources_GPU", "VGPU:1"),
        ("required_GPU", "T5"),
        ("required_GPU", "in:T3,T4"),
        ("member_of_GPU", f"in:{RACK},{ROW}"),
        ("member_of_GPU", f"in:{TREE}"),
        (f"resources{uuid('port')}", "VGPU:1"),
        (f"member_of{uuid('port')}", f"!in:{RACK},{ROW}"),
        ("group_policy", "isolate"),
    ]


def test_query_of_a_group_without_resources_has_its_conditions() -> None:
    top = group("_T", resources={}, traits=traits("T1"))
    below = (frozenset({"_T", "_A"}), frozenset({"_A"}))

    assert encoded(group("_A"), top, group_policy="none", same_subtree=below) == [
        ("resources_A", "VGPU:1"),
        ("required_T", "T1"),
        ("group_policy", "none"),
        ("same_subtree", "_A,_T"),
        ("same_subtree", "_A"),
    ]


def test_query_has_conditions_of_the_whole_request_last() -> None:
    assert encoded(group(), root=traits("T1,!T2"), limit=5) == [
        ("resources", "VGPU:1"),
        ("root_required", "T1,!T2"),
        ("limit", "5"),
    ]


def test_query_does_not_contain_the_owner() -> None:
    assert encoded(group(owner="OWNER_NOVA")) == [("resources", "VGPU:1")]


@pytest.mark.parametrize(
    ("said", "needed"),
    [
        (["T1,!T2"], set()),
        (["T1", "!T2", "T3"], set()),
        (["in:T1"], set()),
        (["in:T1,T2"], {Feature.ANY_TRAITS}),
        (["T1", "in:T2,T3"], {Feature.ANY_TRAITS}),
    ],
)
@pytest.mark.parametrize("suffix", ["", "_A"])
def test_query_without_a_choice_needs_only_an_older_microversion(
    said: list[str], needed: set[Feature], suffix: str
) -> None:
    query = encoded(group(suffix, traits=traits(*said)))

    assert set(candidate_features(query)) == needed | {Feature.NESTED_CANDIDATES}


TRAITS = st.frozensets(st.sampled_from(["T1", "T2", "T3", "T4"]), max_size=3)


@given(
    st.dictionaries(
        st.sampled_from(["", "1", "_A", "_B"]),
        st.tuples(TRAITS, st.frozensets(TRAITS.filter(bool), max_size=3)),
        min_size=1,
    )
)
def test_query_has_one_required_parameter_per_group_unless_there_is_a_choice(
    said: dict[str, tuple[frozenset[str], frozenset[frozenset[str]]]],
) -> None:
    query = encoded(
        *(
            group(suffix, traits=TraitConditions(required=required, any_of=choices))
            for suffix, (required, choices) in said.items()
        ),
        group_policy="none",
    )

    for suffix, (required, choices) in said.items():
        found = [value for key, value in query if key == f"required{suffix}"]
        assert TraitConditions.parse(found) == TraitConditions(required=required, any_of=choices)
        several = len(found) > 1 or any(value.startswith("in:") for value in found)
        assert several is any(len(choice) > 1 for choice in choices)
