"""Explanations in words, with the facts that each sentence must contain; and as JSON."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from tests.lab.explained import CYBORG, NOVA, World, asking, stock, wanted
from tests.lab.samples import uuid
from wharfinger.console import exclusion_reasons, explanation, request_advice
from wharfinger.placement.trait_conditions import NO_CONDITIONS, TraitConditions
from wharfinger.scheduling import RequestGroup
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
    TreeStage,
    TreeStep,
    Untraited,
)
from wharfinger.scheduling.provider_details import UNKNOWN, UNSAID, Reserved
from wharfinger.scheduling.provider_facts import Stock

NOW = datetime(2031, 5, 1, 12, tzinfo=UTC)
FAST, SLOW = "CUSTOM_FAST", "CUSTOM_SLOW"
DISABLED = TraitConditions(forbidden=frozenset(["COMPUTE_STATUS_DISABLED"]))
PLACE = frozenset([uuid("an aggregate")])
#: A name that no terminal should see unescaped.
EVIL = "theirs\x1b[31m"
FREE, USED, FULL = ({"VGPU": stock(4, used, reserved=n)} for used, n in ((0, 0), (4, 0), (0, 4)))


def held(reason: str = "cleaning", minutes: int = 14) -> Reserved:
    since = NOW - timedelta(minutes=minutes)
    holder = "driver metal on host-a"
    return Reserved(provider_uuid=uuid("x"), reason=reason, holder=holder, since=since)


def have(world: World, count: int, stocks: dict[str, Stock], *traits: str, name: str = "n") -> None:
    """Add ``count`` equal providers."""
    for number in range(count):
        world.has(f"{name}{number}", stocks, *traits)


def said(told: Explanation) -> str:
    return request_advice.sentence(told, NOW)


def assert_says(text: str, *facts: str) -> None:
    """Assert that the text contains these facts in this order."""
    at = 0
    for fact in facts:
        found = text.find(fact, at)
        assert found >= 0, f"{fact!r} is not in {text[at:]!r} of {text!r}"
        at = found + len(fact)


HOLDER = "driver metal on host-a"


@pytest.mark.parametrize(
    ("reason", "facts"),
    [
        (Outside(Step.TREE), ("not in the requested tree",)),
        (Outside(Step.AGGREGATES), ("excluded by its aggregates",)),
        (Belonging((CYBORG,)), (CYBORG,)),
        (Belonging((CYBORG, NOVA)), (CYBORG, NOVA)),
        (Belonging(()), ("no owner",)),
        (Untraited((FAST,)), ("lacks", FAST)),
        (Untraited((FAST, SLOW)), ("lacks", FAST, "or", SLOW)),
        (Traited(SLOW), ("has", SLOW)),
        (Held("VGPU", ()), ("all VGPU", "reserved by other programs")),
        (Held("VGPU", (held(),)), ("cleaning", "14m", HOLDER)),
        (
            Held("VGPU", (held(), held("disk is loud", 200))),
            ("cleaning", "14m", HOLDER, "disk is loud", "3h", HOLDER),
        ),
        (
            Held("VGPU", (Reserved(provider_uuid="x", reason=UNKNOWN, holder=UNKNOWN),)),
            (UNKNOWN, UNKNOWN, UNKNOWN),
        ),
        (Short("VGPU", 2, 4, 3), ("3 of 4 VGPU in use",)),
        (Short("VGPU", 2, 4, None), ("no VGPU free",)),
        (Small("VGPU", 8, 4), ("only 4 VGPU",)),
        (Misfit("VGPU", 2, "max_unit", 1), ("max_unit 1", "VGPU")),
        (Misfit("VGPU", 2), ("VGPU=2", "one allocation")),
    ],
    ids=repr,
)
def test_words_of_a_reason_contain_its_facts(reason: Reason, facts: tuple[str, ...]) -> None:
    assert_says(exclusion_reasons.words(reason, NOW), *facts)


# Advice.

Case = Callable[[World], Explanation]


def nothing(world: World) -> Explanation:
    return world.told(wanted(asking(VGPU=1)))


def no_class(world: World) -> Explanation:
    have(world, 2, {"VCPU": stock(4)}, NOVA)
    return nothing(world)


def no_provider_of_all(world: World) -> Explanation:
    have(world, 2, {"VCPU": stock(4)}, NOVA)
    return world.told(wanted(asking("_A", VGPU=1, VCPU=1)))


def not_all_looked_at(world: World) -> Explanation:
    have(world, 2, {"VCPU": stock(4)}, NOVA)
    world.has("unseen", None, NOVA)
    return nothing(world)


def more_not_looked_at_than_counted(world: World) -> Explanation:
    have(world, 2, USED, NOVA)
    for number in range(3):
        world.has(f"unseen-{number}", None, NOVA)
    return nothing(world)


def others_have_it(world: World) -> Explanation:
    have(world, 12, FREE, CYBORG)
    return nothing(world)


def untagged(world: World) -> Explanation:
    have(world, 13, FREE)
    return nothing(world)


def two_owners(world: World) -> Explanation:
    world.has("both", FREE, NOVA, CYBORG)
    return nothing(world)


def one_trait_lacks(world: World) -> Explanation:
    have(world, 3, FREE, NOVA)
    have(world, 2, FREE, CYBORG, FAST, name="theirs")
    return world.told(wanted(asking(required=FAST, VGPU=1)))


def one_trait_is_against_it(world: World) -> Explanation:
    world.has("slow", FREE, NOVA, SLOW)
    return world.told(wanted(asking(required=f"!{SLOW}", VGPU=1)))


def one_trait_lacks_and_one_is_against_it(world: World) -> Explanation:
    world.has("slow", FREE, NOVA, SLOW)
    return world.told(wanted(asking(required=f"{FAST},!{SLOW}", VGPU=1)))


def reserved(world: World) -> Explanation:
    for number in range(7):
        world.has(f"r{number}", FULL, NOVA, reserved=(held(minutes=14 - number),))
    return nothing(world)


def reserved_and_too_small(world: World) -> Explanation:
    full = {"VGPU": stock(4, reserved=4, max_unit=4)}
    world.has("r", full, NOVA, reserved=(held(),))
    return world.told(wanted(asking(VGPU=5)))


def reserved_for_several_reasons(world: World) -> Explanation:
    have(world, 2, FULL, NOVA)
    world.has("one", FULL, NOVA, reserved=(held("disk is loud", 60),))
    for number in range(3):
        unsaid = Reserved(provider_uuid="x", reason=UNSAID, holder=HOLDER)
        world.has(f"unsaid{number}", FULL, NOVA, reserved=(unsaid,))
    return nothing(world)


def all_used_up(world: World) -> Explanation:
    have(world, 4, USED, NOVA)
    have(world, 9, FREE, CYBORG, name="theirs")
    return nothing(world)


def reserved_and_used_up(world: World) -> Explanation:
    have(world, 19, USED, NOVA)
    return reserved(world)


def less_is_free(world: World) -> Explanation:
    have(world, 2, {"VGPU": stock(4, 2)}, NOVA)
    world.has("less", {"VGPU": stock(4, 3)}, NOVA)
    return world.told(wanted(asking(VGPU=3)))


def more_than_there_is(world: World) -> Explanation:
    have(world, 2, {"VGPU": stock(4)}, NOVA)
    world.has("large", {"VGPU": stock(6)}, NOVA)
    return world.told(wanted(asking(VGPU=9)))


def units(**figures: int) -> Case:
    def build(world: World) -> Explanation:
        have(world, 2, {"VGPU": stock(8, **figures)}, NOVA)
        return world.told(wanted(asking(VGPU=3)))

    return build


def unknown_units(world: World) -> Explanation:
    told = units(max_unit=1)(world)
    [part] = told.parts
    unseen = [replace(one, reasons={Step.FITTING: (Misfit("VGPU", 3),)}) for one in part.misses]
    return replace(told, parts=(replace(part, misses=tuple(unseen)),))


def least_is_not_free(world: World) -> Explanation:
    have(world, 2, {"VGPU": stock(8, 5, min_unit=4)}, NOVA)
    return world.told(wanted(asking(VGPU=2)))


def least_is_free_somewhere(world: World) -> Explanation:
    have(world, 1, {"VGPU": stock(8, 4, min_unit=4)}, NOVA, name="room")
    return least_is_not_free(world)


def would_not_do_were_it_free(**figures: int) -> Case:
    def build(world: World) -> Explanation:
        have(world, 2, {"VGPU": stock(used=figures["total"], **figures)}, NOVA)
        return world.told(wanted(asking(VGPU=8)))

    return build


def in_other_aggregates(world: World) -> Explanation:
    have(world, 3, FREE, NOVA)
    group = RequestGroup(suffix="_A", resources={"VGPU": 1}, member_of=(PLACE,), owner=NOVA)
    return world.told(wanted(group))


def in_other_trees(world: World) -> Explanation:
    have(world, 3, FREE, NOVA)
    world.has("other", {"VCPU": stock(4)}, NOVA)
    group = RequestGroup(resources={"VGPU": 1}, in_tree=uuid("other"), owner=NOVA)
    return world.told(wanted(group))


def several_things_wrong(world: World) -> Explanation:
    have(world, 3, USED, CYBORG)
    return nothing(world)


def parts_in_several_trees(world: World) -> Explanation:
    have(world, 2, {"VCPU": stock(4)}, NOVA)
    world.has("gpu", FREE, NOVA)
    return world.told(wanted(asking("_A", VCPU=1), asking("_B", VGPU=1)))


def part_used_up_in_its_tree(world: World) -> Explanation:
    world.has("both", {"VCPU": stock(4)}, NOVA)
    world.has("used", USED, NOVA, below="both")
    return parts_in_several_trees(world)


def service_disabled(world: World) -> Explanation:
    have(world, 2, FREE, NOVA, "COMPUTE_STATUS_DISABLED")
    return world.told(wanted(asking(VGPU=1)), root=DISABLED)


def wrong_root(world: World) -> Explanation:
    world.has("n", FREE, NOVA, SLOW)
    return world.told(wanted(asking(VGPU=1)), root=TraitConditions.parse([f"{FAST},!{SLOW}"]))


def no_tree_has_anything(world: World) -> Explanation:
    world.has("disk", {"DISK_GB": stock(4)}, NOVA)
    told = replace(world.told(wanted(asking(DISK_GB=1))), tree_misses=())
    return replace(told, trees=(told.trees[0], TreeStage(TreeStep.PARTS, frozenset())))


def traits_not_together(world: World) -> Explanation:
    world.has("host", {"VCPU": stock(4)}, NOVA)
    world.has("gpu", FREE, NOVA, below="host")
    return world.told(wanted(asking(required=FAST, VCPU=1, VGPU=1)))


NONE, ONE = frozenset[str](), frozenset([uuid("gpu")])
TOGETHER = TreeStage(TreeStep.TOGETHER, ONE, 3)


def ends_at(*stages: TreeStage, subtree: bool = False) -> Case:
    """Return a case whose explanation has these stages, for two groups on one provider."""

    def build(world: World) -> Explanation:
        world.has("gpu", FREE, NOVA)
        together = {"same_subtree": (frozenset(["_A", "_B"]),)} if subtree else {}
        policy = {"group_policy": "isolate"} if subtree else {}
        groups = asking("_A", VGPU=1), asking("_B", VGPU=1)
        return world.told(wanted(*groups, **policy, **together), *stages)

    return build


def changed_meanwhile(world: World) -> Explanation:
    world.has("gpu", FREE, NOVA)
    return nothing(world)


LAST = TreeStage(TreeStep.TOGETHER, frozenset(map(uuid, ("n0", "n1", "n2"))), 3)
FASTER = wanted(asking(required=FAST, VGPU=1))


def nothing_narrowed(world: World) -> Explanation:
    have(world, 3, FREE, NOVA, FAST)
    return world.told(FASTER, LAST, candidates=3)


def most_is_used(world: World) -> Explanation:
    have(world, 3, FREE, NOVA)
    have(world, 3, USED, NOVA, name="used")
    return world.told(wanted(asking(VGPU=1)), LAST, candidates=3)


def less_is_used(world: World) -> Explanation:
    world.has("free", FREE, NOVA)
    return most_is_used(world)


def worst_of_two_groups(world: World) -> Explanation:
    have(world, 2, USED, NOVA)
    return world.told(wanted(asking("_A", VGPU=1), asking("_B", VCPU=1)))


def traits_narrowed(world: World) -> Explanation:
    have(world, 3, FREE, NOVA, FAST)
    have(world, 2, FREE, NOVA, name="plain")
    have(world, 1, FREE, CYBORG, FAST, name="theirs")
    return world.told(FASTER, replace(LAST, is_all=False), candidates=1)


def trees_kept_out(*stages: TreeStage, root: bool = False, candidates: int = 1) -> Case:
    def build(world: World) -> Explanation:
        have(world, 4, FREE, NOVA, "COMPUTE_STATUS_DISABLED")
        have(world, 1, {"VCPU": stock(4)}, NOVA, "COMPUTE_STATUS_DISABLED", name="without")
        world.has("last", FREE, NOVA)
        conditions = DISABLED if root else NO_CONDITIONS
        return world.told(wanted(asking(VGPU=1)), *stages, candidates=candidates, root=conditions)

    return build


def maybe_more_trees(world: World) -> Explanation:
    have(world, 1, FREE, NOVA)
    stage = TreeStage(TreeStep.TOGETHER, frozenset([uuid("n0")]), 4)
    told = world.told(wanted(asking(VGPU=1)), stage, candidates=4)
    return replace(told, not_looked_at=2)


#: The tree of one provider is left.
OF_ONE = TreeStage(TreeStep.TOGETHER, frozenset([uuid("last")]), 1)
OF_THREE = TreeStage(TreeStep.TOGETHER, frozenset(map(uuid, ("n0", "n1", "last"))), 9)

#: Requests with the facts that their advice contains, in order; it starts with the first one.
ADVICE: list[tuple[str, Case, tuple[str, ...]]] = [
    ("no providers", nothing, ("Publish", "VGPU", "Placement has none")),
    ("no class", no_class, ("Publish", "VGPU", "Placement has none")),
    ("no provider of all classes", no_provider_of_all, ("Split the group", "VGPU and VCPU")),
    ("not all looked at", not_all_looked_at, ("Release", "VGPU=1", "not all were examined")),
    (
        "more not looked at than counted",
        more_not_looked_at_than_counted,
        ("Release 1 VGPU", f"n0 ({uuid('n0')})", "4 of 4 VGPU"),
    ),
    ("others have it", others_have_it, ("Request the owner", CYBORG, "n0", "belongs to", CYBORG)),
    ("without an owner", untagged, ("Set the owner trait", "n0", "no owner")),
    ("two owners", two_owners, ("Remove an owner trait", "both", CYBORG, NOVA)),
    ("one trait lacks", one_trait_lacks, ("Do not require", FAST, "n0", "lacks", FAST)),
    ("one trait is against it", one_trait_is_against_it, ("Do not forbid", SLOW, "slow", SLOW)),
    (
        "one lacks and one is against it",
        one_trait_lacks_and_one_is_against_it,
        ("Do not require", FAST, "do not forbid", SLOW, "lacks", FAST, "has", SLOW),
    ),
    ("reserved", reserved, ("Wait", "r0", "cleaning", "14m", HOLDER)),
    (
        "reserved by other programs",
        reserved_for_several_reasons,
        ("Wait until the reservation ends, or end it", "n0", "other programs"),
    ),
    (
        "reserved and too small",
        reserved_and_too_small,
        ("Request less VGPU in a group and wait", "has only 4 VGPU and is reserved (cleaning"),
    ),
    ("all used up", all_used_up, ("Release 1 VGPU", "n0", "4 of 4 VGPU")),
    ("a reservation comes before use", reserved_and_used_up, ("Wait", "r0", "cleaning", "14m")),
    ("less is free", less_is_free, ("Release 1 VGPU", "n0", "2 of 4 VGPU")),
    (
        "more than there is",
        more_than_there_is,
        ("Request less VGPU in a group", "large", "only 6 VGPU"),
    ),
    ("max_unit", units(max_unit=1), ("Request less VGPU in a group", "max_unit 1")),
    ("min_unit", units(min_unit=4), ("Request another amount of VGPU", "min_unit 4")),
    ("step_size", units(step_size=2), ("Request another amount of VGPU", "step_size 2")),
    ("unknown units", unknown_units, ("Request another amount of VGPU", "VGPU=3")),
    (
        "least is not free",
        least_is_not_free,
        ("Request another amount of VGPU and release 1 VGPU", "min_unit 4", "5 of 8 VGPU"),
    ),
    (
        "least is free",
        least_is_free_somewhere,
        ("Request another amount of VGPU:", "room0", "min_unit 4"),
    ),
    (
        "too small",
        would_not_do_were_it_free(total=4),
        ("Release 4 VGPU and request less VGPU in a group:", "4 of 4 VGPU", "only 4 VGPU"),
    ),
    (
        "too small units",
        would_not_do_were_it_free(total=16, max_unit=4),
        ("Release 8 VGPU", "request less VGPU in a group", "max_unit 4"),
    ),
    ("in other aggregates", in_other_aggregates, ("Request other aggregates", "n0")),
    ("in other trees", in_other_trees, ("Request another tree", "n0")),
    (
        "several wrong",
        several_things_wrong,
        ("Request the owner", CYBORG, "release 1 VGPU", "n0", CYBORG, "4 of 4 VGPU"),
    ),
    ("worst of two groups", worst_of_two_groups, ("Publish", "VCPU")),
    ("several trees", parts_in_several_trees, ("Make VCPU=1 available", "the tree of gpu")),
    ("used up in its tree", part_used_up_in_its_tree, ("Release 1 VGPU", "used", "4 of 4 VGPU")),
    ("service disabled", service_disabled, ("Enable the service", "n0")),
    ("wrong root", wrong_root, ("Do not require", FAST, "do not forbid", SLOW, "lacks", FAST)),
    ("no tree has anything", no_tree_has_anything, ("Request other trees or aggregates",)),
    ("traits not together", traits_not_together, ("Require fewer traits", "tree of host", FAST)),
    (
        "not enough together",
        ends_at(TreeStage(TreeStep.TOGETHER, NONE, 0)),
        ("Request less", "tree of gpu", "too little for all groups together"),
    ),
    (
        "filters",
        ends_at(TreeStage(TreeStep.TOGETHER, NONE, 0, dropped={"owner": 2})),
        ("Check the request filters", "owner dropped 2 candidates"),
    ),
    (
        "policy",
        ends_at(TOGETHER, TreeStage(TreeStep.POLICY, NONE, 0)),
        ("Use --group-policy none:", "3 candidates."),
    ),
    (
        "policy and subtree",
        ends_at(TOGETHER, TreeStage(TreeStep.POLICY, NONE, 0), subtree=True),
        ("Use --group-policy none", "omit --same-subtree", "3 candidates."),
    ),
    (
        "subtree",
        ends_at(TOGETHER, TreeStage(TreeStep.SUBTREE, NONE, 0), subtree=True),
        ("Omit --same-subtree:", "3 candidates."),
    ),
    ("changed meanwhile", changed_meanwhile, ("Repeat", "changed")),
    ("most is used", most_is_used, ("Release 1 VGPU to get more candidates", "used0")),
    (
        "roots kept out",
        trees_kept_out(OF_ONE, root=True),
        ("Enable the service", "to get more candidates", "n0"),
    ),
    (
        "policy kept out",
        trees_kept_out(OF_THREE, TreeStage(TreeStep.POLICY, OF_ONE.roots, 3), candidates=3),
        ("Use --group-policy none to get more candidates", "9 candidates"),
    ),
    (
        "filters kept out",
        trees_kept_out(replace(OF_ONE, dropped={"mine": 7})),
        ("Check the request filters to get more candidates", "mine dropped 7 candidates"),
    ),
]


@pytest.mark.parametrize(
    ("case", "facts"), [row[1:] for row in ADVICE], ids=[row[0] for row in ADVICE]
)
def test_advice_starts_with_the_remedy_and_has_the_reason(
    case: Case, facts: tuple[str, ...]
) -> None:
    text = said(case(World()))
    assert_says(text, *facts)
    assert text.startswith(facts[0])
    assert text.endswith(".")


@pytest.mark.parametrize(
    "case", [nothing_narrowed, traits_narrowed, less_is_used, maybe_more_trees]
)
def test_request_with_enough_candidates_gets_no_advice(case: Case) -> None:
    assert said(case(World())) == ""


# The whole explanation.


@pytest.fixture
def told() -> Explanation:
    """Four providers: cleaned, used, of another owner, and without VGPU."""
    world = World()
    world.has("cleaned", FULL, NOVA, reserved=(held(),))
    world.has("used", USED, NOVA)
    world.has(EVIL, FREE, CYBORG)
    world.has("cpu", {"VCPU": stock(4)}, NOVA)
    return world.told(wanted(asking("_GPU", VGPU=1)))


def lines(told: Explanation) -> list[str]:
    return list(explanation.as_text(told, NOW))


def test_text_has_candidates_then_counts_then_advice(told: Explanation) -> None:
    assert lines(told) == [
        "No candidates.",
        "group _GPU: VGPU=1: 0 of 4 providers suitable: "
        "1 without VGPU, 1 of another owner, 1 reserved, 1 used up.",
        f"Wait until the reservation ends, or end it: cleaned ({uuid('cleaned')}) is reserved "
        "(cleaning, 14m, driver metal on host-a).",
    ]


def test_text_escapes_names() -> None:
    world = World()
    world.has(EVIL, USED, NOVA)
    assert_says(lines(nothing(world))[-1], "theirs\\x1b[31m")


@pytest.mark.parametrize(
    ("group", "stocks", "traits", "text"),
    [
        (asking("_A", VGPU=1, VCPU=1), FREE, (NOVA,), "1 without VGPU or without VCPU"),
        (asking(VGPU=1), None, (NOVA,), "1 not examined"),
        (asking(VGPU=1), FREE, (CYBORG,), "1 of another owner"),
        (asking(VGPU=1), FREE, (), "1 without an owner"),
        (asking(required=FAST, VGPU=1), FREE, (NOVA,), "1 with the wrong traits"),
        (replace(asking(VGPU=1), in_tree=uuid("x")), FREE, (NOVA,), "1 in another tree"),
        (replace(asking(VGPU=1), member_of=(PLACE,)), FREE, (NOVA,), "1 in the wrong aggregates"),
        (asking(VGPU=1), FULL, (NOVA,), "1 reserved"),
        (asking(VGPU=1), USED, (NOVA,), "1 used up"),
        (asking(VGPU=5), FREE, (NOVA,), "1 with too little free"),
        (
            asking(VGPU=1),
            {"VGPU": stock(4, min_unit=2)},
            (NOVA,),
            "1 that do not allow this amount",
        ),
    ],
    ids=repr,
)
def test_text_counts_the_providers_that_each_reason_excludes(
    group: RequestGroup, stocks: dict[str, Stock] | None, traits: tuple[str, ...], text: str
) -> None:
    world = World()
    world.has("n", stocks, *traits)
    counts = lines(world.told(wanted(group)))[1]
    assert counts.endswith(f": 0 of 1 provider suitable: {text}.")


def test_text_joins_classes_that_the_same_providers_have() -> None:
    world = World()
    world.has("host", {"VCPU": stock(4), "MEMORY_MB": stock(4)}, NOVA)
    world.has("gpu", FREE, NOVA, below="host")

    told = world.told(wanted(asking(VCPU=1, MEMORY_MB=2, VGPU=3)))

    assert lines(told)[1:3] == [
        "MEMORY_MB=2 VCPU=1: 1 of 2 providers suitable.",
        "VGPU=3: 1 of 2 providers suitable.",
    ]


@pytest.mark.parametrize(
    ("case", "text"),
    [
        (nothing_narrowed, "3 candidates in 3 trees."),
        (traits_narrowed, "3 candidates or more in 3 trees."),
        (maybe_more_trees, "4 candidates in 1 tree or more."),
        (nothing, "No candidates."),
    ],
)
def test_text_starts_with_the_candidates(case: Case, text: str) -> None:
    assert lines(case(World()))[0] == text


def test_data_has_all_numbers_reasons_and_ages(told: Explanation) -> None:
    data = explanation.as_data(told, NOW)

    assert data["candidates"] == 0
    assert data["advice"] == said(told)
    [part] = data["parts"]
    assert (part["group"], part["resources"], part["not_looked_at"]) == ("_GPU", {"VGPU": 1}, 0)
    steps = ("all", "class", "owner", "not_reserved", "not_used_up", "enough", "fitting")
    assert [(one["step"], one["providers"]) for one in part["stages"]] == [
        *zip(steps, (4, 3, 2, 1, 0, 0, 0), strict=True)
    ]
    known = {
        "reason": "cleaning",
        "holder": HOLDER,
        "since": "2031-05-01T11:46:00+00:00",
        "expected_end": None,
        "age": 840,
    }
    assert part["reserved"] == [{"reason": "cleaning", "providers": 1, "first": known}]
    nearest = part["nearest"][0]
    assert (nearest["uuid"], nearest["name"]) == (uuid("cleaned"), "cleaned")
    assert (nearest["step"], nearest["reserved"]) == ("not_reserved", [known])
    assert_says(nearest["reasons"][0], "cleaning", "14m", HOLDER)
    assert [(one["step"], one["trees"]) for one in data["trees"]] == [("all", 4), ("parts", 0)]


def test_data_has_the_nearest_trees_with_their_missing_parts() -> None:
    world = World()
    world.has("host", {"VCPU": stock(4)}, NOVA, SLOW)
    world.has("gpu", FREE, NOVA)
    request = wanted(asking("_A", VCPU=1), asking("_B", VGPU=1))
    told = world.told(request, root=TraitConditions.parse([f"!{SLOW}"]))

    [first, second] = explanation.as_data(told, NOW)["nearest_trees"]
    assert (first["step"], first["without"], first["reasons"]) == (
        "parts",
        ["group _A: VCPU=1"],
        [],
    )
    assert second["reasons"] == ["has CUSTOM_SLOW"]


def test_data_counts_unread_unowned_and_recorded_providers() -> None:
    world = World()
    world.has("unseen", None, NOVA)
    world.has("untagged", FREE)
    world.has("gpu", {"VGPU": stock(4, None)}, NOVA)
    world.facts = replace(world.facts, last_seen=frozenset([uuid("gpu")]))

    [part] = explanation.as_data(nothing(world), NOW)["parts"]

    assert (part["not_looked_at"], part["unowned"], part["as_last_seen"]) == (1, 1, 1)


def test_data_counts_candidates_with_the_dropped_ones() -> None:
    world = World()
    world.has("gpu", FREE, NOVA)
    stage = TreeStage(TreeStep.TOGETHER, ONE, 3, is_all=False, dropped={"owner": 2})
    told = world.told(wanted(asking(VGPU=1)), stage, candidates=3)

    data = explanation.as_data(replace(told, not_looked_at=12), NOW)

    assert data["sharing_not_looked_at"] == 12
    assert data["trees"][-1] == {
        "step": "together",
        "trees": 1,
        "candidates": 3,
        "is_all": False,
        "dropped": {"owner": 2},
    }
