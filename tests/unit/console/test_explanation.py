"""Explanations in words: the exact text; and as JSON."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from tests.lab.explained import CYBORG, NOVA, World, asking, stock, wanted
from tests.lab.samples import uuid
from wharfinger.console import advice, explanation, reasons
from wharfinger.placement.survey import UNKNOWN, UNSAID, Reserved
from wharfinger.placement.trait_conditions import TraitConditions
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
from wharfinger.scheduling.facts import Stock

NOW = datetime(2031, 5, 1, 12, tzinfo=UTC)
FAST, SLOW = "CUSTOM_FAST", "CUSTOM_SLOW"
DISABLED = TraitConditions(forbidden=frozenset(["COMPUTE_STATUS_DISABLED"]))
AGGREGATE = uuid("an aggregate")
#: A name that no terminal should see.
EVIL = "theirs\x1b[31m"
FULL = {"VGPU": stock(4, reserved=4)}


@pytest.fixture
def world() -> World:
    return World()


def held(reason: str = "cleaning", minutes: int = 14) -> Reserved:
    since = NOW - timedelta(minutes=minutes)
    holder = "driver metal on host-a"
    return Reserved(provider_uuid=uuid("x"), reason=reason, holder=holder, since=since)


def have(world: World, count: int, stocks: dict[str, Stock], *traits: str, name: str = "n") -> None:
    """There are so many alike."""
    for number in range(count):
        world.has(f"{name}{number}", stocks, *traits)


def said(told: Explanation) -> str:
    return advice.sentence(told, NOW)


WORDS: list[tuple[Reason, str]] = [
    (Lacking(("VCPU", "VGPU")), "has no VCPU and no VGPU"),
    (Unknown(), "was not looked at"),
    (Outside(Step.TREE), "is not in the tree"),
    (Outside(Step.AGGREGATES), "is not in the aggregates"),
    (Belonging((CYBORG,)), "belongs to OWNER_CYBORG"),
    (Belonging((CYBORG, NOVA)), "belongs to OWNER_CYBORG and OWNER_NOVA"),
    (Belonging(()), "belongs to nobody"),
    (Untraited((FAST,)), "lacks CUSTOM_FAST"),
    (Untraited((FAST, SLOW)), "lacks CUSTOM_FAST or CUSTOM_SLOW"),
    (Traited(SLOW), "has CUSTOM_SLOW"),
    (Held("VGPU", ()), "VGPU is reserved by others"),
    (Held("VGPU", (held(),)), "reserved: cleaning, 14m (driver metal on host-a)"),
    (
        Held("VGPU", (held(), held("disk is loud", 200))),
        "reserved: cleaning, 14m (driver metal on host-a); "
        "disk is loud, 3h (driver metal on host-a)",
    ),
    (
        Held("VGPU", (Reserved(provider_uuid="x", reason=UNKNOWN, holder=UNKNOWN),)),
        "reserved: ?, ? (?)",
    ),
    (Short("VGPU", 2, 4, 3), "3 of 4 VGPU used, 2 asked for"),
    (Short("VGPU", 2, 4, None), "VGPU is used up"),
    (Small("VGPU", 8, 4), "has 4 VGPU at most, 8 asked for"),
    (Misfit("VGPU", 2, "max_unit", 1), "max_unit of VGPU is 1, 2 asked for"),
    (Misfit("VGPU", 2), "VGPU=2 does not fit its units"),
]


@pytest.mark.parametrize(("reason", "text"), WORDS, ids=[text for _reason, text in WORDS])
def test_a_reason_in_words(reason: Reason, text: str) -> None:
    assert reasons.words(reason, NOW) == text


# What would help.


def test_that_there_are_no_providers(world: World) -> None:
    assert said(world.told(wanted(asking(VGPU=1)))) == "There are no providers in Placement."


def test_that_nobody_has_the_class(world: World) -> None:
    have(world, 2, {"VCPU": stock(4)}, NOVA)

    assert said(world.told(wanted(asking(VGPU=1)))) == "No provider has VGPU."
    assert (
        said(world.told(wanted(asking("_A", VGPU=1, VCPU=1)))) == "No provider has VGPU and VCPU."
    )


def test_that_not_all_were_looked_at(world: World) -> None:
    have(world, 2, {"VCPU": stock(4)}, NOVA)
    world.has("unseen", None, NOVA)

    assert said(world.told(wanted(asking(VGPU=1)))) == (
        "No provider that was looked at has VGPU; 1 was not looked at, and would not give it now."
    )


def test_that_more_were_not_looked_at_than_those_that_are_counted(world: World) -> None:
    have(world, 2, {"VGPU": stock(4, used=4)}, NOVA)
    for number in range(3):
        world.has(f"unseen-{number}", None, NOVA)

    assert said(world.told(wanted(asking(VGPU=1)))) == (
        "All 2 that would do are used up. 3 more were not looked at."
    )


def test_who_else_has_it(world: World) -> None:
    have(world, 12, {"VGPU": stock(4)}, CYBORG)

    assert said(world.told(wanted(asking(VGPU=1)))) == (
        "12 of OWNER_CYBORG have VGPU=1: ask for that owner."
    )
    have(world, 13, {"VGPU": stock(4)}, name="untagged")
    assert said(world.told(wanted(asking(VGPU=1)))) == (
        "13 of nobody's have VGPU=1: tag what is the owner's, or ask for nobody's."
    )


def test_what_is_lacking_alone(world: World) -> None:
    have(world, 3, {"VGPU": stock(4)}, NOVA)
    have(world, 2, {"VGPU": stock(4)}, CYBORG, FAST, name="theirs")

    told = world.told(wanted(asking(required=FAST, VGPU=1)))
    assert said(told) == "3 providers lack only CUSTOM_FAST."


def test_what_is_there_and_may_not_be(world: World) -> None:
    world.has("slow", {"VGPU": stock(4)}, NOVA, SLOW)

    told = world.told(wanted(asking(required=f"!{SLOW}", VGPU=1)))
    assert said(told) == "1 provider has only CUSTOM_SLOW against it."
    told = world.told(wanted(asking(required=f"{FAST},!{SLOW}", VGPU=1)))
    assert said(told) == ("1 provider lacks only CUSTOM_FAST and has CUSTOM_SLOW against it.")


def test_how_many_are_reserved_and_since_when(world: World) -> None:
    for number in range(7):
        world.has(f"n{number}", FULL, NOVA, reserved=(held(minutes=14 - number),))

    told = world.told(wanted(asking(VGPU=1)))
    assert said(told) == "7 providers are reserved for cleaning, the first since 14m."


def test_reservations_of_several_reasons(world: World) -> None:
    have(world, 2, FULL, NOVA)
    world.has("one", FULL, NOVA, reserved=(held("disk is loud", 60),))
    for number in range(3):
        unsaid = Reserved(provider_uuid="x", reason=UNSAID, holder="driver metal on host-a")
        world.has(f"unsaid{number}", FULL, NOVA, reserved=(unsaid,))

    assert said(world.told(wanted(asking(VGPU=1)))) == (
        "6 providers are reserved: 3 for no reason given; 2 by others; "
        "1 for disk is loud, since 1h."
    )


def test_that_all_are_used_up(world: World) -> None:
    have(world, 4, {"VGPU": stock(4, 4)}, NOVA)
    have(world, 9, {"VGPU": stock(4)}, CYBORG, name="theirs")

    told = world.told(wanted(asking(VGPU=1)))
    assert said(told) == "All 4 that would do are used up."


def test_what_ends_by_itself_comes_before_what_others_have(world: World) -> None:
    have(world, 19, {"VGPU": stock(4, 4)}, NOVA)
    for number in range(7):
        world.has(f"m{number}", FULL, NOVA, reserved=(held(minutes=14 - number),))

    assert said(world.told(wanted(asking(VGPU=1)))) == (
        "7 providers are reserved for cleaning, the first since 14m. All 19 that would do are used "
        "up."
    )


def test_that_the_only_one_is_used_up(world: World) -> None:
    world.has("gpu", {"VGPU": stock(4, 4)}, NOVA)

    told = world.told(wanted(asking(VGPU=1)))
    assert said(told) == "1 that would do is used up."


def test_that_less_is_free(world: World) -> None:
    have(world, 2, {"VGPU": stock(4, 2)}, NOVA)
    world.has("less", {"VGPU": stock(4, 3)}, NOVA)

    told = world.told(wanted(asking(VGPU=3)))
    assert said(told) == "All 3 have VGPU free, 2 at most: 3 are asked for."


@pytest.mark.parametrize(
    ("figures", "sentence"),
    [
        ({"max_unit": 1}, "max_unit of VGPU is 1: ask in 3 groups."),
        ({"max_unit": 2}, "max_unit of VGPU is 2: ask in 2 groups."),
        ({"min_unit": 4}, "min_unit of VGPU is 4: ask for that many."),
        ({"step_size": 2}, "step_size of VGPU is 2: ask for a multiple of it."),
    ],
)
def test_which_units_there_are(world: World, figures: dict[str, int], sentence: str) -> None:
    have(world, 2, {"VGPU": stock(8, **figures)}, NOVA)

    assert said(world.told(wanted(asking(VGPU=3)))) == sentence


def test_that_the_least_that_is_given_is_not_free(world: World) -> None:
    have(world, 2, {"VGPU": stock(8, 5, min_unit=4)}, NOVA)

    request = wanted(asking(VGPU=2))
    assert said(world.told(request)) == "min_unit of VGPU is 4, and 2 providers have less free."
    have(world, 1, {"VGPU": stock(8, 4, min_unit=4)}, NOVA, name="room")
    assert said(world.told(request)) == "min_unit of VGPU is 4: ask for that many."


@pytest.mark.parametrize("figures", [{"total": 4}, {"total": 16, "max_unit": 4}])
def test_that_it_would_not_do_were_it_free(world: World, figures: dict[str, int]) -> None:
    total = figures["total"]
    have(world, 2, {"VGPU": stock(used=total, **figures)}, NOVA)

    told = world.told(wanted(asking(VGPU=8)))
    assert said(told) == (
        "2 providers came as far as what is used up, each kept out by more than that: "
        "see the nearest misses of VGPU=8."
    )


def test_that_units_do_not_fit_where_nobody_knows_them(world: World) -> None:
    have(world, 2, {"VGPU": stock(8, max_unit=1)}, NOVA)
    told = world.told(wanted(asking(VGPU=3)))
    [part] = told.parts
    last = part.stages[-1]
    unseen = tuple(replace(one, reasons={Step.FITTING: (Misfit("VGPU", 3),)}) for one in last.alone)
    stages = (*part.stages[:-1], replace(last, alone=unseen))

    assert said(replace(told, parts=(replace(part, stages=stages),))) == (
        "2 providers would do, but for the units that they give."
    )


def test_what_is_elsewhere(world: World) -> None:
    have(world, 3, {"VGPU": stock(4)}, NOVA)
    place = frozenset([AGGREGATE])

    group = RequestGroup(suffix="_A", resources={"VGPU": 1}, member_of=(place,), owner=NOVA)
    assert said(world.told(wanted(group))) == (
        "All 3 that would do are not in such aggregates: ask for group _A: VGPU=1 there."
    )
    world.has("other", {"VCPU": stock(4)}, NOVA)
    group = RequestGroup(resources={"VGPU": 1}, in_tree=uuid("other"), owner=NOVA)
    assert said(world.told(wanted(group))) == (
        "All 3 that would do are in other trees: ask for VGPU=1 there."
    )


def test_where_several_things_are_wrong_with_each(world: World) -> None:
    have(world, 3, {"VGPU": stock(4, 4)}, CYBORG)

    assert said(world.told(wanted(asking(VGPU=1)))) == (
        "3 providers came as far as the owner, each kept out by more than that: "
        "see the nearest misses of VGPU=1."
    )


# Of trees.


def test_which_part_a_tree_has_nothing_for(world: World) -> None:
    for host in ("a", "b"):
        world.has(host, {"VCPU": stock(4)}, NOVA)
    world.has("gpu", {"VGPU": stock(4)}, NOVA)

    told = world.told(wanted(asking("_A", VCPU=1), asking("_B", VGPU=1)))
    assert said(told) == (
        "No tree has it all: 2 trees, such as that of a, have nothing for group _B: VGPU=1."
    )


def test_that_the_service_is_disabled(world: World) -> None:
    have(world, 2, {"VGPU": stock(4)}, NOVA, "COMPUTE_STATUS_DISABLED")

    assert said(world.told(wanted(asking(VGPU=1)), root=DISABLED)) == (
        "2 trees have it all, and are of a disabled service: `wharfinger service enable`."
    )


def test_what_is_wrong_with_roots(world: World) -> None:
    world.has("n", {"VGPU": stock(4)}, NOVA, SLOW)
    root = TraitConditions.parse([f"{FAST},!{SLOW}"])

    assert said(world.told(wanted(asking(VGPU=1)), root=root)) == (
        "1 tree has it all, but the root lacks CUSTOM_FAST and has CUSTOM_SLOW."
    )


def test_that_no_tree_has_anything(world: World) -> None:
    world.has("disk", {"DISK_GB": stock(4)}, NOVA)
    empty = TreeStage(TreeStep.PARTS, frozenset())
    told = replace(world.told(wanted(asking(DISK_GB=1))), tree_misses=())

    assert said(replace(told, trees=(told.trees[0], empty))) == "No tree has any of it."


def test_that_traits_are_not_had_together(world: World) -> None:
    world.has("host", {"VCPU": stock(4)}, NOVA)
    world.has("gpu", {"VGPU": stock(4)}, NOVA, below="host")

    assert said(world.told(wanted(asking(required=FAST, VCPU=1, VGPU=1)))) == (
        "1 tree has it all, and not CUSTOM_FAST among those that would give it."
    )


def asked(world: World, *stages: TreeStage) -> str:
    """What is said where Placement has told these stages of two groups on one provider."""
    world.has("gpu", {"VGPU": stock(4)}, NOVA)
    request = wanted(asking("_A", VGPU=1), asking("_B", VGPU=1))
    return said(world.told(request, *stages))


NONE, ONE = frozenset[str](), frozenset([uuid("gpu")])


def test_that_there_is_not_enough_for_all_groups(world: World) -> None:
    assert asked(world, TreeStage(TreeStep.TOGETHER, NONE, 0)) == (
        "1 tree has something for each group, and not enough for all of them together: "
        "see the tree of gpu."
    )


def test_what_request_filters_dropped(world: World) -> None:
    assert asked(world, TreeStage(TreeStep.TOGETHER, NONE, 0, dropped={"owner": 2})) == (
        "Request filters dropped all candidates: 2 by owner."
    )


def test_what_there_would_be_without_the_policy_or_the_subtree(world: World) -> None:
    together = TreeStage(TreeStep.TOGETHER, ONE, 3)
    policy, subtree = (TreeStage(step, NONE, 0) for step in (TreeStep.POLICY, TreeStep.SUBTREE))

    assert asked(world, together, policy) == "With --group-policy none there would be 3."
    assert asked(world, together, subtree) == "Without --same-subtree there would be 3."
    request = wanted(
        asking("_A", VGPU=1),
        asking("_B", VGPU=1),
        group_policy="isolate",
        same_subtree=(frozenset(["_A", "_B"]),),
    )
    assert said(world.told(request, together, policy)) == (
        "With --group-policy none and without --same-subtree there would be 3."
    )


def test_what_narrowed_most_where_there_are_candidates(world: World) -> None:
    have(world, 3, {"VGPU": stock(4)}, NOVA, FAST)
    last = TreeStage(TreeStep.TOGETHER, frozenset(map(uuid, ("n0", "n1", "n2"))), 3)
    request = wanted(asking(required=FAST, VGPU=1))
    assert said(world.told(request, last, candidates=3)) == (
        "There are 3 candidates in 3 trees; all that have the classes would do."
    )
    have(world, 2, {"VGPU": stock(4)}, NOVA, name="plain")
    have(world, 1, {"VGPU": stock(4)}, CYBORG, FAST, name="theirs")
    many = replace(last, is_all=False)
    assert said(world.told(request, many, candidates=1)) == (
        "There are 3 candidates or more in 3 trees, of which 1 is listed; "
        "the traits narrowed most: 5 to 3 for VGPU=1."
    )


def test_that_trees_were_kept_out_most_where_there_are_candidates(world: World) -> None:
    have(world, 4, {"VGPU": stock(4)}, NOVA, "COMPUTE_STATUS_DISABLED")
    have(world, 1, {"VCPU": stock(4)}, NOVA, "COMPUTE_STATUS_DISABLED", name="without")
    world.has("last", {"VGPU": stock(4)}, NOVA)
    request = wanted(asking(VGPU=1))
    last = TreeStage(TreeStep.TOGETHER, frozenset([uuid("last")]), 1)
    assert said(world.told(request, last, candidates=1, root=DISABLED)) == (
        "There is 1 candidate in 1 tree; 4 trees have it all, and are of a disabled service: "
        "`wharfinger service enable`."
    )
    several = TreeStage(TreeStep.TOGETHER, frozenset(map(uuid, ("n0", "n1", "last"))), 9)
    isolated = TreeStage(TreeStep.POLICY, last.roots, 3)
    assert said(world.told(request, several, isolated, candidates=3)) == (
        "There are 3 candidates in 1 tree; the group policy kept out most: 2 trees."
    )
    filtered = replace(last, dropped={"mine": 7})
    assert said(world.told(request, filtered, candidates=1)) == (
        "There is 1 candidate in 1 tree; the amounts together or request filters kept out most: "
        "4 trees."
    )


def test_that_there_may_be_more_trees_than_are_known(world: World) -> None:
    have(world, 1, {"VGPU": stock(4)}, NOVA)
    last = TreeStage(TreeStep.TOGETHER, frozenset([uuid("n0")]), 4)
    told = replace(world.told(wanted(asking(VGPU=1)), last, candidates=4), not_looked_at=2)
    assert said(told) == (
        "There are 4 candidates in 1 tree or more; all that have the classes would do."
    )


def test_that_placement_has_changed_meanwhile(world: World) -> None:
    world.has("gpu", {"VGPU": stock(4)}, NOVA)

    assert said(world.told(wanted(asking(VGPU=1)))) == (
        "Placement has no candidates now: ask again, this may have changed meanwhile."
    )


# All of it.


@pytest.fixture
def told(world: World) -> Explanation:
    """One is cleaned, one is used, one belongs to others; one has no VGPU."""
    world.has("cleaned", FULL, NOVA, reserved=(held(),))
    world.has("used", {"VGPU": stock(4, 4)}, NOVA)
    world.has(EVIL, {"VGPU": stock(4)}, CYBORG)
    world.has("cpu", {"VCPU": stock(4)}, NOVA)
    return world.told(wanted(asking("_GPU", VGPU=1)))


def test_the_text_is_a_table_and_the_nearest_misses(told: Explanation) -> None:
    assert [line.plain for line in explanation.as_text(told, NOW)] == [
        "group _GPU: VGPU=1",
        "  providers           4",
        "  with VGPU           3  1 out",
        "  open to OWNER_NOVA  2  1 out, 1 by this alone",
        "  not fully reserved  1  1 out",
        "  not used up         0  1 out, 1 by this alone",
        "  1 reserved: cleaning, 14m (driver metal on host-a)",
        f"  used ({uuid('used')}) 4 of 4 VGPU used, 1 asked for",
        f"  cleaned ({uuid('cleaned')}) reserved: cleaning, 14m (driver metal on host-a)",
        f"  theirs\\x1b[31m ({uuid(EVIL)}) belongs to OWNER_CYBORG",
        "",
        "the whole request",
        "  trees                          4",
        "  with something for each group  0",
        "",
        "1 provider is reserved for cleaning, since 14m.",
    ]


def test_the_data_has_all_numbers_reasons_and_ages(told: Explanation) -> None:
    data = explanation.as_data(told, NOW)

    assert data["candidates"] == 0
    assert data["advice"] == "1 provider is reserved for cleaning, since 14m."
    [part] = data["parts"]
    assert (part["group"], part["resources"], part["not_looked_at"]) == ("_GPU", {"VGPU": 1}, 0)
    assert [(one["step"], one["providers"]) for one in part["stages"]] == [
        ("all", 4),
        ("class", 3),
        ("owner", 2),
        ("not_reserved", 1),
        ("not_used_up", 0),
        ("enough", 0),
        ("fitting", 0),
    ]
    known = {
        "reason": "cleaning",
        "holder": "driver metal on host-a",
        "since": "2031-05-01T11:46:00+00:00",
        "expected_end": None,
        "age": 840,
    }
    assert part["reserved"] == [{"reason": "cleaning", "providers": 1, "first": known}]
    assert part["nearest"][1] == {
        "uuid": uuid("cleaned"),
        "name": "cleaned",
        "step": "not_reserved",
        "reasons": ["reserved: cleaning, 14m (driver metal on host-a)"],
        "reserved": [known],
    }
    assert [(one["step"], one["trees"]) for one in data["trees"]] == [("all", 4), ("parts", 0)]


def test_trees_are_told_with_what_they_lack(world: World) -> None:
    world.has("host", {"VCPU": stock(4)}, NOVA, SLOW)
    world.has("gpu", {"VGPU": stock(4)}, NOVA)
    request = wanted(asking("_A", VCPU=1), asking("_B", VGPU=1))
    told = world.told(request, root=TraitConditions.parse([f"!{SLOW}"]))

    text = [line.plain for line in explanation.as_text(told, NOW)]
    assert text[-4:-2] == [
        f"  the tree of gpu ({uuid('gpu')}) has no provider for group _A: VCPU=1",
        f"  the tree of host ({uuid('host')}) has no provider for group _B: VGPU=1, "
        "has a root that has CUSTOM_SLOW",
    ]
    [first, second] = explanation.as_data(told, NOW)["nearest_trees"]
    assert (first["step"], first["without"], first["reasons"]) == (
        "parts",
        ["group _A: VCPU=1"],
        [],
    )
    assert second["reasons"] == ["has CUSTOM_SLOW"]


def test_what_was_not_looked_at_is_said(world: World) -> None:
    world.has("unseen", None, NOVA)
    told = world.told(wanted(asking(VGPU=1)))

    assert [line.plain for line in explanation.as_text(told, NOW)][2] == (
        "  with VGPU  0  1 out; 1 not looked at"
    )
    assert explanation.as_data(told, NOW)["parts"][0]["not_looked_at"] == 1


def test_what_is_as_it_was_last_seen_is_said(world: World) -> None:
    world.has("gpu", {"VGPU": stock(4, None)}, NOVA)
    world.facts = replace(world.facts, last_seen=frozenset([uuid("gpu")]))
    told = world.told(wanted(asking(VGPU=1)))

    text = [line.plain for line in explanation.as_text(told, NOW)]
    assert "  not fully reserved  1  1 as last seen by their drivers" in text
    assert explanation.as_data(told, NOW)["parts"][0]["as_last_seen"] == 1


def test_that_some_who_share_were_not_looked_at_is_said(world: World) -> None:
    told = replace(world.told(wanted(asking(VGPU=1))), not_looked_at=12)

    text = [line.plain for line in explanation.as_text(told, NOW)]
    assert text[-3] == "  trees  0"
    world.has("gpu", {"VGPU": stock(4)}, NOVA)
    told = replace(world.told(wanted(asking(VGPU=1))), not_looked_at=12)
    text = [line.plain for line in explanation.as_text(told, NOW)]
    assert text[-3] == "  with something for each group  1  12 that share not looked at"
    assert explanation.as_data(told, NOW)["sharing_not_looked_at"] == 12


def test_candidates_are_counted_with_what_filters_dropped(world: World) -> None:
    world.has("gpu", {"VGPU": stock(4)}, NOVA)
    stage = TreeStage(TreeStep.TOGETHER, ONE, 3, is_all=False, dropped={"owner": 2})
    told = world.told(wanted(asking(VGPU=1)), stage, candidates=3)

    text = [line.plain for line in explanation.as_text(told, NOW)]
    assert "  with enough for all groups     1  3 or more candidates, 2 dropped by owner" in text
    assert explanation.as_data(told, NOW)["trees"][-1] == {
        "step": "together",
        "trees": 1,
        "candidates": 3,
        "is_all": False,
        "dropped": {"owner": 2},
    }
