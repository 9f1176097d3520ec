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
    Lacking,
    Misfit,
    Outside,
    Reason,
    Short,
    Small,
    Step,
    Traited,
    TreeStage,
    TreeStep,
    Unknown,
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
    """Add so many equal providers."""
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
        (Lacking(("VCPU", "VGPU")), ("no VCPU", "no VGPU")),
        (Unknown(), ("not examined",)),
        (Outside(Step.TREE), ("not in the tree",)),
        (Outside(Step.AGGREGATES), ("not in the aggregates",)),
        (Belonging((CYBORG,)), (CYBORG,)),
        (Belonging((CYBORG, NOVA)), (CYBORG, NOVA)),
        (Belonging(()), ("no owner",)),
        (Untraited((FAST,)), ("lacks", FAST)),
        (Untraited((FAST, SLOW)), ("lacks", FAST, "or", SLOW)),
        (Traited(SLOW), ("has", SLOW)),
        (Held("VGPU", ()), ("VGPU", "reserved by other programs")),
        (Held("VGPU", (held(),)), ("cleaning", "14m", HOLDER)),
        (
            Held("VGPU", (held(), held("disk is loud", 200))),
            ("cleaning", "14m", HOLDER, "disk is loud", "3h", HOLDER),
        ),
        (
            Held("VGPU", (Reserved(provider_uuid="x", reason=UNKNOWN, holder=UNKNOWN),)),
            (UNKNOWN, UNKNOWN, UNKNOWN),
        ),
        (Short("VGPU", 2, 4, 3), ("3 of 4 VGPU used", "2 requested")),
        (Short("VGPU", 2, 4, None), ("VGPU", "used up")),
        (Small("VGPU", 8, 4), ("4 VGPU", "8 requested")),
        (Misfit("VGPU", 2, "max_unit", 1), ("max_unit", "VGPU", "1", "2 requested")),
        (Misfit("VGPU", 2), ("VGPU=2", "units")),
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


def untagged_only(world: World) -> Explanation:
    have(world, 13, FREE, name="untagged")
    return others_have_it(world)


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


def units(**figures: int) -> Case:
    def build(world: World) -> Explanation:
        have(world, 2, {"VGPU": stock(8, **figures)}, NOVA)
        return world.told(wanted(asking(VGPU=3)))

    return build


def unknown_units(world: World) -> Explanation:
    told = units(max_unit=1)(world)
    [part] = told.parts
    last = part.stages[-1]
    unseen = tuple(replace(one, reasons={Step.FITTING: (Misfit("VGPU", 3),)}) for one in last.alone)
    stages = (*part.stages[:-1], replace(last, alone=unseen))
    return replace(told, parts=(replace(part, stages=stages),))


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
    """Return the explanation with these stages of two groups on one provider."""

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

#: Requests with the facts that their advice contains, in order.
ADVICE: list[tuple[str, Case, tuple[str, ...]]] = [
    ("no providers", nothing, ("no providers",)),
    ("no class", no_class, ("No provider", "VGPU and VCPU")),
    ("not all looked at", not_all_looked_at, ("VGPU", "1 was not examined")),
    (
        "more not looked at than counted",
        more_not_looked_at_than_counted,
        ("2", "used up", "3 more were not examined"),
    ),
    ("others have it", others_have_it, ("12", CYBORG, "VGPU=1", "request that owner")),
    ("without an owner", untagged_only, ("13", "without an owner", "VGPU=1", "owner trait")),
    ("one trait lacks", one_trait_lacks, ("3 providers lack only", FAST)),
    ("one trait is against it", one_trait_is_against_it, ("1 provider", SLOW, "forbids")),
    (
        "one lacks and one is against it",
        one_trait_lacks_and_one_is_against_it,
        ("1 provider lacks only", FAST, SLOW, "forbids"),
    ),
    ("reserved", reserved, ("7 providers", "reserved for cleaning", "14m")),
    (
        "reserved for several reasons",
        reserved_for_several_reasons,
        ("6 providers", "3 for no reason", "2 by other programs", "1 for disk is loud", "1h"),
    ),
    ("all used up", all_used_up, ("4", "used up.")),
    (
        "a reservation that ends by itself comes first",
        reserved_and_used_up,
        ("7 providers", "cleaning", "14m", "19", "used up."),
    ),
    ("less is free", less_is_free, ("3", "VGPU free", "2 at most", "3 are requested")),
    ("max_unit 1", units(max_unit=1), ("max_unit of VGPU is 1", "3 groups")),
    ("max_unit 2", units(max_unit=2), ("max_unit of VGPU is 2", "2 groups")),
    ("min_unit", units(min_unit=4), ("min_unit of VGPU is 4", "request at least that many")),
    ("step_size", units(step_size=2), ("step_size of VGPU is 2", "multiple")),
    ("unknown units", unknown_units, ("2 providers", "units")),
    ("least is not free", least_is_not_free, ("min_unit of VGPU is 4", "2 providers", "less free")),
    (
        "least is free",
        least_is_free_somewhere,
        ("min_unit of VGPU is 4", "request at least that many"),
    ),
    (
        "too small",
        would_not_do_were_it_free(total=4),
        ("2 providers", "several reasons", "usage", "nearest misses of VGPU=8"),
    ),
    (
        "too small units",
        would_not_do_were_it_free(total=16, max_unit=4),
        ("2 providers", "several reasons", "usage", "nearest misses of VGPU=8"),
    ),
    ("in other aggregates", in_other_aggregates, ("3", "aggregates", "group _A: VGPU=1")),
    ("in other trees", in_other_trees, ("3", "other trees", "VGPU=1")),
    ("several wrong", several_things_wrong, ("3 providers", "owner", "nearest misses of VGPU=1")),
    ("several trees", parts_in_several_trees, ("2 trees", "that of n0", "group _B: VGPU=1")),
    ("service disabled", service_disabled, ("2 trees", "`wharfinger service enable`")),
    ("wrong root", wrong_root, ("1 tree has all resources", "root", "lacks", FAST, "has", SLOW)),
    ("no tree has anything", no_tree_has_anything, ("No tree",)),
    ("traits not together", traits_not_together, ("1 tree has all resources", FAST)),
    (
        "not enough together",
        ends_at(TreeStage(TreeStep.TOGETHER, NONE, 0)),
        ("1 tree", "not enough for all groups together", "tree of gpu"),
    ),
    (
        "filters",
        ends_at(TreeStage(TreeStep.TOGETHER, NONE, 0, dropped={"owner": 2})),
        ("filters dropped all candidates", "2 by owner"),
    ),
    (
        "policy",
        ends_at(TOGETHER, TreeStage(TreeStep.POLICY, NONE, 0)),
        ("--group-policy none", "3 candidates."),
    ),
    (
        "policy and subtree",
        ends_at(TOGETHER, TreeStage(TreeStep.POLICY, NONE, 0), subtree=True),
        ("--group-policy none", "without --same-subtree", "3 candidates."),
    ),
    (
        "subtree",
        ends_at(TOGETHER, TreeStage(TreeStep.SUBTREE, NONE, 0)),
        ("Omit --same-subtree", "3 candidates."),
    ),
    ("changed meanwhile", changed_meanwhile, ("Repeat", "no candidates")),
    ("nothing narrowed", nothing_narrowed, ("3 candidates in 3 trees;", "suitable")),
    (
        "traits narrowed",
        traits_narrowed,
        ("3 candidates or more", "3 trees", "1 is listed", "traits", "5 to 3", "VGPU=1"),
    ),
    (
        "roots kept out",
        trees_kept_out(OF_ONE, root=True),
        ("is 1 candidate in 1 tree;", "4 trees", "`wharfinger service enable`"),
    ),
    (
        "policy kept out",
        trees_kept_out(OF_THREE, TreeStage(TreeStep.POLICY, OF_ONE.roots, 3), candidates=3),
        ("3 candidates in 1 tree;", "group policy", "2 trees"),
    ),
    (
        "amounts or filters kept out",
        trees_kept_out(replace(OF_ONE, dropped={"mine": 7})),
        ("1 candidate in 1 tree;", "amounts together or request filters", "4 trees"),
    ),
    ("maybe more trees", maybe_more_trees, ("4 candidates in 1 tree or more;",)),
]


@pytest.mark.parametrize(
    ("case", "facts"), [row[1:] for row in ADVICE], ids=[row[0] for row in ADVICE]
)
def test_advice_names_the_main_obstacle_and_the_remedy(case: Case, facts: tuple[str, ...]) -> None:
    text = said(case(World()))
    assert_says(text, *facts)
    assert text.endswith(".")


def test_advice_reads_as_sentences() -> None:
    """This is the only test with complete sentences."""
    assert (
        said(others_have_it(World()))
        == "12 providers of OWNER_CYBORG have VGPU=1: request that owner."
    )
    assert said(reserved(World())) == (
        "7 providers are reserved for cleaning, the first since 14m."
    )
    assert said(service_disabled(World())) == (
        "2 trees have all resources, but are of a disabled service: "
        "run `wharfinger service enable`."
    )


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
    return [line.plain for line in explanation.as_text(told, NOW)]


def test_text_is_a_table_with_the_nearest_misses(told: Explanation) -> None:
    assert lines(told) == [
        "group _GPU: VGPU=1",
        "  providers           4",
        "  with VGPU           3  1 out",
        "  open to OWNER_NOVA  2  1 out, 1 for this reason alone",
        "  not fully reserved  1  1 out",
        "  not used up         0  1 out, 1 for this reason alone",
        "  1 reserved: cleaning, 14m (driver metal on host-a)",
        f"  used ({uuid('used')}) 4 of 4 VGPU used, 1 requested",
        f"  cleaned ({uuid('cleaned')}) reserved: cleaning, 14m (driver metal on host-a)",
        f"  theirs\\x1b[31m ({uuid(EVIL)}) belongs to OWNER_CYBORG",
        "",
        "the whole request",
        "  trees                           4",
        "  with a provider for each group  0",
        "",
        "1 provider is reserved for cleaning, since 14m.",
    ]


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
    nearest = part["nearest"][1]
    assert (nearest["uuid"], nearest["name"]) == (uuid("cleaned"), "cleaned")
    assert (nearest["step"], nearest["reserved"]) == ("not_reserved", [known])
    assert_says(nearest["reasons"][0], "cleaning", "14m", HOLDER)
    assert [(one["step"], one["trees"]) for one in data["trees"]] == [("all", 4), ("parts", 0)]


def test_nearest_trees_are_shown_with_their_missing_parts() -> None:
    world = World()
    world.has("host", {"VCPU": stock(4)}, NOVA, SLOW)
    world.has("gpu", FREE, NOVA)
    request = wanted(asking("_A", VCPU=1), asking("_B", VGPU=1))
    told = world.told(request, root=TraitConditions.parse([f"!{SLOW}"]))

    gpu, host = lines(told)[-4:-2]
    assert_says(gpu, f"gpu ({uuid('gpu')})", "no provider for group _A: VCPU=1")
    assert_says(host, f"host ({uuid('host')})", "no provider for group _B: VGPU=1", f"has {SLOW}")
    [first, second] = explanation.as_data(told, NOW)["nearest_trees"]
    assert (first["step"], first["without"], first["reasons"]) == (
        "parts",
        ["group _A: VCPU=1"],
        [],
    )
    assert second["reasons"] == ["has CUSTOM_SLOW"]


def test_unread_and_recorded_providers_are_counted() -> None:
    world = World()
    world.has("unseen", None, NOVA)
    told = nothing(world)
    assert_says(lines(told)[2], "VGPU", "0", "1 out", "1 not examined")
    assert explanation.as_data(told, NOW)["parts"][0]["not_looked_at"] == 1

    world = World()
    world.has("gpu", {"VGPU": stock(4, None)}, NOVA)
    world.facts = replace(world.facts, last_seen=frozenset([uuid("gpu")]))
    told = nothing(world)
    [line] = [line for line in lines(told) if "not fully reserved" in line]
    assert_says(line, "1", "1 by the last report")
    assert explanation.as_data(told, NOW)["parts"][0]["as_last_seen"] == 1


def test_unread_sharing_providers_are_counted() -> None:
    world = World()
    assert_says(lines(replace(nothing(world), not_looked_at=12))[-3], "trees", "0")
    world.has("gpu", FREE, NOVA)
    told = replace(nothing(world), not_looked_at=12)
    assert_says(lines(told)[-3], "1", "12 sharing providers not examined")
    assert explanation.as_data(told, NOW)["sharing_not_looked_at"] == 12


def test_candidates_are_counted_with_the_dropped_ones() -> None:
    world = World()
    world.has("gpu", FREE, NOVA)
    stage = TreeStage(TreeStep.TOGETHER, ONE, 3, is_all=False, dropped={"owner": 2})
    told = world.told(wanted(asking(VGPU=1)), stage, candidates=3)

    [line] = [line for line in lines(told) if "for all groups" in line]
    assert_says(line, "1", "3 or more candidates", "2 dropped by owner")
    assert explanation.as_data(told, NOW)["trees"][-1] == {
        "step": "together",
        "trees": 1,
        "candidates": 3,
        "is_all": False,
        "dropped": {"owner": 2},
    }
