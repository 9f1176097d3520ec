"""The funnel of a request: which providers drop out at each step, and why."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.lab.explained import CYBORG, NOVA, World, asking, stock, wanted
from tests.lab.samples import uuid
from wharfinger.placement.trait_conditions import TraitConditions
from wharfinger.scheduling import RequestGroup
from wharfinger.scheduling.candidate import Candidate
from wharfinger.scheduling.explanation import (
    Belonging,
    Explanation,
    Held,
    Misfit,
    Outside,
    Reason,
    Short,
    Small,
    Step,
    Traited,
    TreeStep,
    Untraited,
)
from wharfinger.scheduling.provider_details import UNKNOWN, Reserved
from wharfinger.scheduling.provider_facts import SHARES, Stock
from wharfinger.scheduling.request_funnel import holding

NOW = datetime(2031, 5, 1, 12, tzinfo=UTC)
FAST, SLOW = "CUSTOM_FAST", "CUSTOM_SLOW"
AGGREGATE = uuid("an aggregate")


@pytest.fixture
def world() -> World:
    return World()


def held(
    reason: str = "cleaning", minutes: int = 14, holder: str = "driver metal on a"
) -> Reserved:
    since = NOW - timedelta(minutes=minutes)
    return Reserved(provider_uuid=uuid("gpu"), reason=reason, holder=holder, since=since)


def counted(told: Explanation) -> dict[str, int]:
    """Return the number of providers left at each step of the explanation's only part."""
    [part] = told.parts
    return {str(stage.step): stage.count for stage in part.stages}


def missed(told: Explanation) -> dict[str, list[Reason]]:
    """Return the reasons of the nearest misses of the only part, by provider name."""
    [part] = told.parts
    return {
        one.name: [reason for reasons in one.reasons.values() for reason in reasons]
        for one in part.misses
    }


def trees(told: Explanation) -> dict[str, int]:
    return {str(stage.step): stage.count for stage in told.trees}


def test_step_counts_providers_that_pass_it_and_all_earlier_steps(world: World) -> None:
    world.has("cpu", {"VCPU": stock(4)}, NOVA)
    world.has("theirs", {"VGPU": stock(4)}, CYBORG)
    world.has("slow", {"VGPU": stock(4)}, NOVA)
    world.has("cleaned", {"VGPU": stock(4, reserved=4)}, NOVA, FAST)
    world.has("used", {"VGPU": stock(4, 4)}, NOVA, FAST)
    world.has("short", {"VGPU": stock(4, 3)}, NOVA, FAST)
    world.has("single", {"VGPU": stock(4, max_unit=1)}, NOVA, FAST)
    world.has("good", {"VGPU": stock(4)}, NOVA, FAST)

    told = world.told(wanted(asking(required=FAST, VGPU=2)))

    assert counted(told) == {
        "all": 8,
        "class": 7,
        "owner": 6,
        "traits": 5,
        "not_reserved": 4,
        "not_used_up": 3,
        "enough": 2,
        "fitting": 1,
    }
    assert list(missed(told)) == ["cleaned", "single", "short", "used", "slow", "theirs"]
    assert [stage.alone for stage in told.parts[0].stages] == [0, 0, 0, 1, 1, 1, 1, 1]


def test_steps_without_a_condition_are_omitted(world: World) -> None:
    world.has("gpu", {"VGPU": stock(4)}, CYBORG)

    told = world.told(wanted(asking(VGPU=1)), minds_owners=False)

    assert list(counted(told)) == [
        "all",
        "class",
        "not_reserved",
        "not_used_up",
        "enough",
        "fitting",
    ]
    assert counted(told)["fitting"] == 1


REASONS = {
    "belongs": (Stock(4, 0), (CYBORG, FAST), [Belonging((CYBORG,))]),
    "unowned": (Stock(4, 0), (FAST,), [Belonging(())]),
    "lacks": (Stock(4, 0), (NOVA,), [Untraited((FAST,))]),
    "has": (Stock(4, 0), (NOVA, FAST, SLOW), [Traited(SLOW)]),
    "both": (Stock(4, 0), (NOVA, SLOW), [Untraited((FAST,)), Traited(SLOW)]),
    "by others": (stock(4, reserved=4), (NOVA, FAST), [Held("VGPU", ())]),
    "used up": (Stock(4, 4), (NOVA, FAST), [Short("VGPU", 3, 4, 4)]),
    "used up, unseen": (stock(4, None), (NOVA, FAST), [Short("VGPU", 3, 4, None)]),
    "short": (Stock(4, 2), (NOVA, FAST), [Short("VGPU", 3, 4, 2)]),
    "max_unit": (stock(4, max_unit=2), (NOVA, FAST), [Misfit("VGPU", 3, "max_unit", 2)]),
    "min_unit": (stock(4, min_unit=4), (NOVA, FAST), [Misfit("VGPU", 3, "min_unit", 4)]),
    "step_size": (stock(4, step_size=2), (NOVA, FAST), [Misfit("VGPU", 3, "step_size", 2)]),
    "never enough": (Stock(2, 2), (NOVA, FAST), [Short("VGPU", 3, 2, 2), Small("VGPU", 3, 2)]),
    "reserved and never enough": (
        stock(2, reserved=2),
        (NOVA, FAST),
        [Held("VGPU", ()), Small("VGPU", 3, 2)],
    ),
    "used up and in ones": (
        stock(4, 4, max_unit=1),
        (NOVA, FAST),
        [Short("VGPU", 3, 4, 4), Misfit("VGPU", 3, "max_unit", 1)],
    ),
    "the least is not free": (
        stock(8, 5, min_unit=4),
        (NOVA, FAST),
        [Misfit("VGPU", 3, "min_unit", 4), Short("VGPU", 4, 8, 5)],
    ),
    "theirs and short": (
        Stock(4, 2),
        (CYBORG, FAST),
        [Belonging((CYBORG,)), Short("VGPU", 3, 4, 2)],
    ),
}


@pytest.mark.parametrize("name", REASONS)
def test_miss_has_all_reasons(world: World, name: str) -> None:
    it, traits, reasons = REASONS[name]
    world.has(name, {"VGPU": it}, *traits)

    told = world.told(wanted(asking(required=f"{FAST},!{SLOW}", VGPU=3)))

    assert missed(told) == {name: reasons}


def test_choice_of_traits_needs_only_one_of_them(world: World) -> None:
    world.has("fast", {"VGPU": stock(4)}, NOVA, FAST)
    world.has("plain", {"VGPU": stock(4)}, NOVA)

    told = world.told(wanted(asking(required=f"in:{SLOW},{FAST}", VGPU=1)))

    assert missed(told) == {"plain": [Untraited((FAST, SLOW))]}


def test_miss_names_the_holders(world: World) -> None:
    world.has("gpu", {"VGPU": stock(4, reserved=4)}, NOVA, reserved=(held(), held("loud")))

    assert missed(world.told(wanted(asking(VGPU=1)))) == {
        "gpu": [Held("VGPU", (held(), held("loud")))]
    }


def test_held_provider_of_unknown_use_counts_as_reserved(
    world: World,
) -> None:
    world.has("gpu", {"VGPU": stock(4, None)}, NOVA, reserved=(held(),))

    assert missed(world.told(wanted(asking(VGPU=1)))) == {"gpu": [Held("VGPU", (held(),))]}


def test_reservations_are_counted_by_reason_with_the_first_holder(world: World) -> None:
    full = {"VGPU": stock(4, reserved=4)}
    for number in range(3):
        world.has(f"cleaned {number}", full, NOVA, reserved=(held(minutes=10 * number),))
    world.has("loud", full, NOVA, reserved=(held("loud"), held("cleaning", 5)))
    world.has("foreign", full, NOVA)
    undated = Reserved(provider_uuid=uuid("x"), reason="loud", holder="x", since=UNKNOWN)
    world.has("undated", full, NOVA, reserved=(undated,))
    world.has("theirs", full, CYBORG, reserved=(held(minutes=99),))

    [part] = world.told(wanted(asking(VGPU=1))).parts

    assert [(one.reason, one.providers, one.first) for one in part.holdings] == [
        ("cleaning", 4, held(minutes=20)),
        ("loud", 2, held("loud")),
        ("", 1, None),
    ]


def test_misses_with_the_fewest_reasons_come_first(world: World) -> None:
    for number in range(4):
        world.has(f"b{number}", {"VGPU": stock(4, 4)}, NOVA)
    for number in range(3):
        world.has(f"a{number}", {"VGPU": stock(4, 4)}, NOVA, SLOW)
    world.has("c", {"VGPU": stock(4, 4)}, CYBORG)

    told = world.told(wanted(asking(required=f"!{SLOW}", VGPU=1)))

    assert list(missed(told)) == [
        *("b0", "b1", "b2", "b3"),
        *("a0", "a1", "a2", "c"),
    ]


def test_misses_for_the_same_reason_are_sorted_by_missing_amount(world: World) -> None:
    world.has("a, of unknown use", {"VGPU": Stock(4, None)}, NOVA)
    world.has("b, overcommitted", {"VGPU": Stock(4, 9)}, NOVA)
    world.has("c, used up", {"VGPU": Stock(4, 4)}, NOVA)

    told = world.told(wanted(asking(VGPU=1)))

    assert list(missed(told)) == ["c, used up", "b, overcommitted", "a, of unknown use"]


def test_tree_with_a_used_up_provider_is_nearer_than_one_without_any(world: World) -> None:
    world.has("a", {"VCPU": stock(4)}, NOVA)
    world.has("b", {"VCPU": stock(4)}, NOVA)
    world.has("gpu", {"VGPU": stock(4, 4)}, NOVA, below="b")
    world.has("free", {"VGPU": stock(4)}, NOVA)

    nearest = world.told(wanted(asking("_A", VCPU=1), asking("_B", VGPU=1))).tree_misses[0]

    assert (nearest.name, [one.name for one in nearest.part_misses]) == ("b", ["gpu"])


def test_provider_without_the_class_is_no_near_miss(world: World) -> None:
    world.has("cpu", {"VCPU": stock(4)}, NOVA)

    told = world.told(wanted(asking("_A", VGPU=1, VCPU=1)))

    assert counted(told)["class"] == 0
    assert missed(told) == {}


def test_unread_provider_is_counted(world: World) -> None:
    world.has("unseen", None, NOVA)
    world.has("seen", {"VCPU": stock(4)}, NOVA)

    [part] = world.told(wanted(asking(VGPU=1))).parts

    assert part.not_looked_at == 1
    assert part.stages[1].count == 0


def test_group_with_a_suffix_is_one_part_and_each_class_of_the_group_without_is_one(
    world: World,
) -> None:
    world.has("host", {"VCPU": stock(4)}, NOVA)
    world.has("gpu", {"VGPU": stock(4), "SRIOV_NET_VF": stock(1)}, NOVA, below="host")
    request = wanted(asking(VGPU=1, VCPU=1), asking("_A", VGPU=1, SRIOV_NET_VF=1))

    told = world.told(request)

    assert [(one.suffix, dict(one.resources), len(one.survivors)) for one in told.parts] == [
        ("", {"VCPU": 1}, 1),
        ("", {"VGPU": 1}, 1),
        ("_A", {"VGPU": 1, "SRIOV_NET_VF": 1}, 1),
    ]
    assert trees(told) == {"all": 1, "parts": 1}


def test_aggregates_of_a_root_apply_to_its_tree_only_in_the_group_without_suffix(
    world: World,
) -> None:
    world.has("host", {"VCPU": stock(4)}, NOVA, aggregates=frozenset([AGGREGATE]))
    world.has("gpu", {"VGPU": stock(4)}, NOVA, below="host")
    place = frozenset([AGGREGATE])

    for suffix, forbids, survivors in (
        ("", False, 1),
        ("_A", False, 0),
        ("", True, 0),
        ("_A", True, 1),
    ):
        group = RequestGroup(
            suffix=suffix,
            resources={"VGPU": 1},
            member_of=() if forbids else (place,),
            forbidden_aggregates=place if forbids else frozenset(),
            owner=NOVA,
        )
        [part] = world.told(wanted(group)).parts
        assert len(part.survivors) == survivors
        assert survivors or part.misses[0].reasons == {Step.AGGREGATES: (Outside(Step.AGGREGATES),)}


def test_tree_misses_exclude_trees_that_may_have_a_sharing_provider(world: World) -> None:
    world.has("cn", {"VCPU": stock(4)}, NOVA)
    world.has("pool", {"DISK_GB": stock(4)}, NOVA, SHARES)
    request = wanted(asking(VCPU=1, DISK_GB=1))
    assert {one.name for one in world.told(request).tree_misses} == {"cn", "pool"}
    world.facts = replace(world.facts, not_reached=1)
    assert {one.name for one in world.told(request).tree_misses} == {"pool"}


def test_sharing_provider_counts_for_its_trees(world: World) -> None:
    world.has("host", {"VCPU": stock(4)}, NOVA)
    world.has("other", {"VCPU": stock(4)}, NOVA)
    world.has("disk", {"DISK_GB": stock(4)}, NOVA, SHARES)
    request = wanted(asking(VCPU=1, DISK_GB=1))
    assert trees(world.told(request)) == {"all": 3, "parts": 0}

    world.shares("disk", "host")

    assert trees(world.told(request)) == {"all": 3, "parts": 1}


@pytest.mark.parametrize(("traits", "left"), [((FAST,), 1), ((), 0)])
def test_required_traits_may_come_from_several_providers(
    world: World, traits: tuple[str, ...], left: int
) -> None:
    world.has("host", {"VCPU": stock(4)}, NOVA, SLOW)
    world.has("gpu", {"VGPU": stock(4)}, NOVA, *traits, below="host")

    told = world.told(wanted(asking(required=f"{FAST},{SLOW}", VCPU=1, VGPU=1)))

    assert [len(part.survivors) for part in told.parts] == [1, 1]
    assert trees(told) == {"all": 1, "parts": 1, "traits": left}


def test_root_conditions_drop_trees(world: World) -> None:
    world.has("fast", {"VCPU": stock(4)}, NOVA, FAST)
    world.has("slow", {"VCPU": stock(4)}, NOVA, FAST, SLOW)
    world.has("plain", {"VCPU": stock(4)}, NOVA)
    root = TraitConditions.parse([f"{FAST},!{SLOW}"])

    told = world.told(wanted(asking(VCPU=1)), root=root)

    assert trees(told) == {"all": 3, "root": 1, "parts": 1}
    assert [(one.name, one.step, one.reasons) for one in told.tree_misses] == [
        ("plain", TreeStep.ROOT, (Untraited((FAST,)),)),
        ("slow", TreeStep.ROOT, (Traited(SLOW),)),
    ]


def test_tree_misses_name_the_missing_parts(world: World) -> None:
    world.has("host", {"VCPU": stock(4)}, NOVA)
    world.has("gpu", {"VGPU": stock(4)}, NOVA)
    world.has("both", {"VCPU": stock(4), "VGPU": stock(1, 1)}, NOVA)
    world.has("none", {"DISK_GB": stock(4)}, NOVA)

    groups = [asking("_A", VCPU=1), asking("_B", VGPU=1), asking("_C", VCPU=1)]
    told = world.told(wanted(*groups))

    assert [(one.name, one.step, one.parts) for one in told.tree_misses] == [
        ("both", TreeStep.PARTS, (1,)),
        ("host", TreeStep.PARTS, (1,)),
        ("gpu", TreeStep.PARTS, (0, 2)),
    ]


@pytest.mark.parametrize(
    ("suffix", "of"), [("", "host"), ("", "gpu"), ("", "?"), ("_A", "gpu"), ("_A", "?")]
)
def test_group_in_a_tree_takes_from_that_tree_alone(world: World, suffix: str, of: str) -> None:
    world.has("host", {"VCPU": stock(4)}, NOVA)
    world.has("gpu", {"VGPU": stock(4)}, NOVA, below="host")
    world.has("other", {"VGPU": stock(4)}, NOVA)

    told = world.told(wanted(replace(asking(suffix, VGPU=1), in_tree=uuid(of))))

    outside = [Outside(Step.TREE)]
    assert missed(told) == {"other": outside} | ({"gpu": outside} if of == "?" else {})


@pytest.mark.parametrize(
    "values",
    [{"in_tree": uuid("disk")}, {"forbidden_aggregates": frozenset([AGGREGATE])}],
    ids=str,
)
def test_unnumbered_group_alone_takes_nothing_in_a_tree_that_it_excludes(
    world: World, values: Any
) -> None:
    world.has("host", {"VCPU": stock(4)}, NOVA, aggregates=frozenset([AGGREGATE]))
    world.has("disk", {"DISK_GB": stock(4)}, NOVA, SHARES)
    world.shares("disk", "host")

    told = world.told(wanted(replace(asking(DISK_GB=1), **values), asking("_A", DISK_GB=1)))

    assert [(one.name, one.parts) for one in told.tree_misses] == [("host", (0,))]


HOLDING: dict[str, tuple[dict[str, tuple[str, ...]], set[str]]] = {
    "in one tree": ({"": ("cpu", "gpu")}, {"cn"}),
    "in two": ({"": ("cpu", "far")}, set()),
    "of what shares": ({"": ("disk",)}, {"cn", "other", "disk"}),
    "of its own and of what shares": ({"": ("far", "disk")}, {"other"}),
    "of what is gone": ({"": ("gone",)}, set()),
    "and of what is gone": ({"": ("cpu", "gone")}, {"cn"}),
    "for a group without resources": ({"": ("disk",), "_A": ("gpu",)}, {"cn"}),
}


@pytest.mark.parametrize("name", HOLDING)
def test_holding_finds_the_trees_that_a_candidate_is_in(world: World, name: str) -> None:
    mappings, roots = HOLDING[name]
    for root, child in (("cn", "cpu"), ("cn", "gpu"), ("other", "far"), ("disk", "disk")):
        if uuid(root) not in world.facts.providers:
            world.has(root, {})
        if child != root:
            world.has(child, {}, below=root)
    world.shares("disk", "cn", "other")
    candidate = Candidate(
        allocations={uuid(one): {"VCPU": 1} for one in mappings[""]},
        mappings={suffix: tuple(map(uuid, names)) for suffix, names in mappings.items()},
        providers={},
    )
    everything = frozenset(map(uuid, ("cn", "other", "disk")))

    assert holding([candidate], world.facts, everything) == frozenset(map(uuid, roots))
    assert holding([candidate], world.facts, everything - {uuid("cn")}) == frozenset(
        map(uuid, roots - {"cn"})
    )
