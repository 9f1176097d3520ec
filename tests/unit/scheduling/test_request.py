"""Requests as values: valid combinations, and errors of invalid ones."""

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.lab.samples import uuid
from wharfinger.exceptions import InvalidRequest
from wharfinger.placement.trait_conditions import NO_CONDITIONS, TraitConditions
from wharfinger.scheduling import RequestGroup, ResourceRequest
from wharfinger.scheduling.request import about, invalid

NOVA, CYBORG, ACME = "OWNER_NOVA", "OWNER_CYBORG", "CUSTOM_OWNER_ACME"
LARGEST = 2**31 - 1
GPU = RequestGroup(resources={"VGPU": 1})


def group(suffix: str = "", **values: Any) -> RequestGroup:
    return RequestGroup(suffix=suffix, **({"resources": {"VGPU": 1}} | values))


def traits(*values: str) -> TraitConditions:
    return TraitConditions.parse(values)


def no_group(**values: Any) -> tuple[str, object, str]:
    """Return key, value and problem of the error for this group."""
    with pytest.raises(InvalidRequest) as caught:
        group(**values)
    assert caught.value.subject == "request"
    return caught.value.key, caught.value.value, caught.value.problem


def no_request(*groups: RequestGroup, **values: Any) -> tuple[str, object, str]:
    with pytest.raises(InvalidRequest) as caught:
        ResourceRequest(groups=groups, **values)
    assert caught.value.subject == "request"
    return caught.value.key, caught.value.value, caught.value.problem


# Groups.


def test_group_by_default_has_no_owner_and_no_conditions() -> None:
    assert RequestGroup(resources={"VGPU": 1}) == RequestGroup(
        suffix="",
        resources={"VGPU": 1},
        traits=NO_CONDITIONS,
        member_of=(),
        forbidden_aggregates=frozenset(),
        in_tree=None,
        owner=None,
    )


@pytest.mark.parametrize("suffix", ["", "1", "_GPU", "a-b_C", uuid("port"), "x" * 64])
def test_valid_suffix_is_accepted(suffix: str) -> None:
    assert group(suffix).suffix == suffix


@pytest.mark.parametrize("suffix", ["a b", "a.b", "_\u00e4", "a\n", "\n", "x" * 65, "a,b"])
def test_invalid_suffix_is_refused(suffix: str) -> None:
    assert no_group(suffix=suffix) == (
        "suffix",
        suffix,
        "a suffix has at most 64 characters: letters, digits, _ and -.",
    )


@pytest.mark.parametrize("amount", [1, LARGEST])
def test_valid_amount_is_accepted(amount: int) -> None:
    assert group(resources={"CUSTOM_GOLD": amount}).resources == {"CUSTOM_GOLD": amount}


@pytest.mark.parametrize("amount", [0, -1, LARGEST + 1, True, 1.0, "1", None])
def test_invalid_amount_is_refused(amount: object) -> None:
    assert no_group(resources={"VGPU": amount}) == (
        "resources:VGPU",
        amount,
        f"it has to be a whole number from 1 to {LARGEST}.",
    )


@pytest.mark.parametrize("kind", ["", "vgpu", "VGPU\n", "CUSTOM-GOLD", "VGPU:1", "C" * 256])
def test_invalid_resource_class_is_refused(kind: str) -> None:
    key, value, problem = no_group(resources={"VCPU": 1, kind: 1})

    assert (key, value) == ("resources", kind)
    assert "consists of A-Z, 0-9 and _, such as VGPU or CUSTOM_GOLD" in problem


def test_longest_resource_class_is_accepted() -> None:
    assert group(resources={"C" * 255: 1}).resources == {"C" * 255: 1}


def test_uuid_in_any_form_is_normalized() -> None:
    first, second = uuid("first"), uuid("second")
    said = group(
        member_of=[[first.upper()], {second.replace("-", ""), first}],
        forbidden_aggregates=[f"{{{second}}}"],
        in_tree=first.upper(),
    )

    assert said.member_of == (frozenset({first}), frozenset({first, second}))
    assert said.forbidden_aggregates == {second}
    assert said.in_tree == first


@pytest.mark.parametrize(
    ("values", "key"),
    [
        ({"member_of": [["rack"]]}, "aggregate of the group without a suffix"),
        ({"forbidden_aggregates": {"rack"}}, "aggregate of the group without a suffix"),
        ({"in_tree": "rack"}, "uuid of the group without a suffix"),
        ({"suffix": "_GPU", "in_tree": "rack"}, "uuid of group _GPU"),
    ],
)
def test_invalid_uuid_is_refused(values: dict[str, Any], key: str) -> None:
    assert no_group(**values) == (key, "rack", "is not a uuid")


def test_empty_uuid_is_refused() -> None:
    assert no_group(in_tree="") == ("uuid of the group without a suffix", "", "is not a uuid")


def test_text_as_list_of_aggregates_is_refused() -> None:
    aggregate = uuid("rack")
    key, value, problem = no_group(member_of=[aggregate])

    assert (key, value) == ("aggregates of the group without a suffix", aggregate)
    assert problem == "must be a list or set of names"


def test_empty_set_of_aggregates_is_refused() -> None:
    problem = "it names no aggregate."

    assert no_group(member_of=[[uuid("rack")], []]) == ("member_of", "", problem)


def test_group_is_immutable_and_hashable() -> None:
    amounts = {"VGPU": 1}
    said = RequestGroup(resources=amounts)
    amounts["VGPU"] = 2

    assert said == GPU
    assert {said: "found"}[GPU] == "found"
    with pytest.raises(TypeError):
        said.resources["VGPU"] = 3  # type: ignore[index]
    with pytest.raises(dataclasses.FrozenInstanceError):
        said.owner = NOVA  # type: ignore[misc]
    assert dataclasses.replace(said, owner=NOVA).resources == {"VGPU": 1}


# Owners.


@pytest.mark.parametrize("owner", [NOVA, CYBORG, ACME, "OWNER_SOMEBODY_NEW", None])
def test_valid_owner_is_accepted(owner: str | None) -> None:
    if owner == "OWNER_SOMEBODY_NEW":
        key, value, problem = no_group(owner=owner)
        assert (key, value) == ("owner of the group without a suffix", owner)
        assert "os-traits" in problem
    else:
        assert group(owner=owner).owner == owner


@pytest.mark.parametrize(
    "said",
    [
        [ACME],
        [f"CUSTOM_FAST,{ACME}"],
        [f"in:{ACME}"],
        [f"in:CUSTOM_FAST,{ACME}"],
        ["T1", f"{ACME}"],
    ],
)
def test_group_with_an_owner_trait_has_that_owner(said: list[str]) -> None:
    assert group(traits=traits(*said)).owner == ACME
    assert group(traits=traits(*said), owner=ACME).owner == ACME


def test_owner_trait_of_a_newer_server_is_accepted() -> None:
    assert group(traits=traits("OWNER_SOMEBODY_NEW")).owner == "OWNER_SOMEBODY_NEW"


@pytest.mark.parametrize("trait", ["CUSTOM_OWNER", "CUSTOM_OWNER_", "NO_OWNER_NOVA", "OWNER_"])
def test_trait_that_resembles_an_owner_trait_is_no_owner(trait: str) -> None:
    assert group(traits=traits(trait)).owner is None


def test_forbidden_owner_trait_is_no_owner() -> None:
    assert group(traits=traits(f"!{CYBORG}")).owner is None
    assert group(traits=traits(f"!{CYBORG}"), owner=NOVA).owner == NOVA


@pytest.mark.parametrize(
    ("said", "owner"),
    [
        ([f"{NOVA},{CYBORG}"], None),
        ([NOVA, f"in:CUSTOM_FAST,{CYBORG}"], None),
        ([f"in:{NOVA},{CYBORG}"], None),
        ([CYBORG], NOVA),
        ([f"in:CUSTOM_FAST,{CYBORG}"], NOVA),
    ],
)
def test_group_of_two_owners_is_refused(said: list[str], owner: str | None) -> None:
    key, value, problem = no_group(suffix="_GPU", traits=traits(*said), owner=owner)

    assert (key, value) == ("required of group _GPU", f"{CYBORG},{NOVA}")
    assert problem == (
        "a provider has one owner, and so has a group. Request each owner's "
        "resources in a group of its own."
    )


@pytest.mark.parametrize("owner", ["CUSTOM_FAST", "NOVA", "owner_nova", f"{NOVA}\n", "OWNER_"])
def test_invalid_owner_is_refused(owner: str) -> None:
    key, value, problem = no_group(suffix="_GPU", owner=owner)

    assert (key, value) == ("owner of group _GPU", owner)
    assert problem == (f"must be {NOVA}, {CYBORG} or of the form CUSTOM_OWNER_[A-Z0-9_]+")


def test_each_group_has_its_own_owner() -> None:
    request = ResourceRequest(
        groups=(group(owner=NOVA), group("_A", traits=traits(CYBORG)), group("_P")),
        group_policy="none",
    )

    assert [one.owner for one in request.groups] == [NOVA, CYBORG, None]


def test_group_that_forbids_its_own_owner_is_refused() -> None:
    key, value, _problem = no_group(suffix="_GPU", traits=traits(f"!{NOVA}"), owner=NOVA)

    assert (key, value) == ("forbidden of group _GPU", NOVA)


# Requests.


def test_request_is_immutable_and_hashable() -> None:
    first, second = (ResourceRequest(groups=(GPU, group("_A")), limit=5) for _ in "ab")

    assert {first: "found"}[second] == "found"
    with pytest.raises(dataclasses.FrozenInstanceError):
        first.limit = 6  # type: ignore[misc]


@pytest.mark.parametrize("limit", [1, LARGEST, None])
def test_valid_limit_is_accepted(limit: int | None) -> None:
    assert ResourceRequest(groups=(GPU,), limit=limit).limit == limit


@pytest.mark.parametrize("limit", [0, -1, LARGEST + 1])
def test_invalid_limit_is_refused(limit: int) -> None:
    assert no_request(GPU, limit=limit) == (
        "limit",
        limit,
        f"it has to be a whole number from 1 to {LARGEST}.",
    )


def test_two_groups_with_the_same_suffix_are_refused() -> None:
    both = group("_A"), group("_A", owner=NOVA)

    assert no_request(*both, group_policy="none") == (
        "suffix",
        "_A",
        "two groups have this suffix.",
    )
    assert no_request(GPU, GPU) == ("suffix", "", "two groups have this suffix.")


@pytest.mark.parametrize("groups", [(), (group("_A", resources={}),)], ids=["none", "empty"])
def test_request_without_resources_is_refused(groups: tuple[RequestGroup, ...]) -> None:
    together = tuple(frozenset({one.suffix}) for one in groups)

    assert no_request(*groups, same_subtree=together) == (
        "resources",
        "",
        "no resources are requested.",
    )


@pytest.mark.parametrize(
    ("suffix", "name"), [("", "the group without a suffix"), ("_T", "group _T")]
)
def test_group_without_resources_outside_same_subtree_is_refused(suffix: str, name: str) -> None:
    told = f"{name} has no resources, and is in no same_subtree."

    assert no_request(group("_A"), group(suffix, resources={}), group_policy="none") == (
        "resources",
        "",
        told,
    )


def test_group_without_resources_and_conditions_is_refused() -> None:
    # The query would not contain this group, so Placement would refuse same_subtree.
    together = (frozenset({"_A", "_TOP"}),)
    key, _value, problem = no_request(
        group("_A"), group("_TOP", resources={}), group_policy="none", same_subtree=together
    )

    assert key == "resources"
    assert "group _TOP" in problem


def test_group_without_resources_may_be_the_top_of_a_subtree() -> None:
    top = group("_TOP", resources={}, traits=traits("HW_NUMA_ROOT"))
    request = ResourceRequest(
        groups=(group("_A"), top),
        group_policy="none",
        same_subtree=(frozenset({"_A", "_TOP"}),),
    )

    assert request.groups[1].resources == {}


@pytest.mark.parametrize("suffix", ["_B", ""])
def test_same_subtree_of_an_unknown_suffix_is_refused(suffix: str) -> None:
    groups = group(), group("_A")

    assert no_request(*groups, same_subtree=(frozenset({"_A", suffix}),)) == (
        "same_subtree",
        suffix,
        "no group has this suffix.",
    )


def test_empty_same_subtree_is_refused() -> None:
    key, value, _problem = no_request(GPU, group("_A"), same_subtree=(frozenset(),))

    assert (key, value) == ("same_subtree", "")


@pytest.mark.parametrize("policy", ["", "any", "ISOLATE"])
def test_invalid_group_policy_is_refused(policy: str) -> None:
    assert no_request(GPU, group_policy=policy) == (
        "group_policy",
        policy,
        "it has to be none or isolate.",
    )


def test_groups_with_suffixes_without_a_policy_are_refused() -> None:
    key, value, problem = no_request(group(), group("_A"), group("_B"))

    assert (key, value) == ("group_policy", "")
    assert problem.startswith("there are groups _A, _B: set whether one provider may give")
    assert problem.endswith("(none) or not (isolate).")


@pytest.mark.parametrize("groups", [(GPU,), (GPU, group("_A")), (group("_A"),)])
def test_one_group_with_a_suffix_needs_no_policy(groups: tuple[RequestGroup, ...]) -> None:
    assert ResourceRequest(groups=groups).group_policy is None


def test_choice_between_traits_of_a_root_is_refused() -> None:
    key, value, problem = no_request(GPU, root=traits("T1", "in:T2,T3"))

    assert (key, value) == ("root_required", "T1,in:T2,T3")
    assert problem == "a root's traits are required or forbidden; there is no choice between them."


# Combination of several requests.


def asked(*suffixes: str, **values: Any) -> ResourceRequest:
    policy = "none" if len(suffixes) > 2 else None
    groups = tuple(group(suffix) for suffix in suffixes)
    return ResourceRequest(groups=groups, **({"group_policy": policy} | values))


def test_also_concatenates_the_groups_in_order() -> None:
    whole = asked("", "_A").also(asked("_B")).also(asked("_C"))

    assert [one.suffix for one in whole.groups] == ["", "_A", "_B", "_C"]


def test_also_of_groups_with_suffixes_sets_the_policy_none() -> None:
    assert asked("", "_A").also(asked("_B")).group_policy == "none"
    assert asked("_A").also(asked("_B")).group_policy == "none"


def test_also_of_one_group_with_a_suffix_sets_no_policy() -> None:
    assert asked("").also(asked("_A")).group_policy is None


@pytest.mark.parametrize(
    ("first", "second", "policy"),
    [
        ("isolate", None, "isolate"),
        (None, "isolate", "isolate"),
        ("isolate", "none", "isolate"),
        ("none", "isolate", "none"),
    ],
)
def test_also_keeps_the_first_policy(first: Any, second: Any, policy: str) -> None:
    whole = asked("_A", group_policy=first).also(asked("_B", group_policy=second))

    assert whole.group_policy == policy


@pytest.mark.parametrize(
    ("first", "second", "limit"), [(5, None, 5), (None, 3, 3), (5, 3, 5), (None, None, None)]
)
def test_also_keeps_the_first_limit(
    first: int | None, second: int | None, limit: int | None
) -> None:
    assert asked("", limit=first).also(asked("_A", limit=second)).limit == limit


def test_also_combines_subtrees_and_root_conditions() -> None:
    first, second = frozenset({"_A"}), frozenset({"_B"})
    whole = asked("_A", same_subtree=(first,), root=traits("T1")).also(
        asked("_B", same_subtree=(second,), root=traits("!T2"))
    )

    assert whole.same_subtree == (first, second)
    assert whole.root == traits("T1,!T2")


def test_also_of_groups_with_the_same_suffix_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="suffix = '_A': two groups have this suffix"):
        asked("_A").also(asked("_A"))


SUFFIXES = st.lists(
    st.sampled_from(["", *(f"_{letter}" for letter in "ABCDEF")]), min_size=1, unique=True
)


@given(SUFFIXES, st.data())
def test_also_is_associative(suffixes: list[str], data: st.DataObject) -> None:
    cuts = data.draw(st.lists(st.integers(1, len(suffixes)), max_size=3).map(sorted))
    parts = [
        suffixes[start:end]
        for start, end in zip([0, *cuts], [*cuts, len(suffixes)], strict=True)
        if start < end
    ]
    whole, *others = [asked(*part, group_policy="none") for part in parts]
    for other in others:
        whole = whole.also(other)

    assert whole == asked(*suffixes, group_policy="none")


# Errors.


def test_error_has_the_outermost_subject() -> None:
    with (
        pytest.raises(InvalidRequest) as caught,
        about("flavor gold"),
        about("device profile fast"),
        about("nothing"),
    ):
        raise invalid("resources:VGPU", "many", "must be a number.")

    assert str(caught.value) == "nothing: resources:VGPU = 'many': must be a number."


def test_about_passes_other_errors() -> None:
    with pytest.raises(KeyError, match="gold"), about("flavor gold"):
        raise KeyError("gold")
