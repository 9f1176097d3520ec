"""The Cyborg driver over what a real Cyborg publishes in the real Placement."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.lab.accelerators import Cards, Clock, figures, traits
from tests.lab.cyborg_harness import (
    LISTING,
    MARKS,
    NOVA,
    OURS,
    Contents,
    Harness,
    add_traits,
    change_traits,
    create,
)
from tests.lab.cycles import everything
from tests.lab.samples import service
from wharfinger.conf import parse
from wharfinger.objects import OWNER_TAG_VERSION
from wharfinger.placement.embedded import EmbeddedPlacement
from wharfinger.providers.plan import SetTraits
from wharfinger.scheduling import RequestGroup, ResourceRequest
from wharfinger.scheduling.candidates import CandidateSearch
from wharfinger.scheduling.filters import Surroundings
from wharfinger.scheduling.filters.owner import OwnerFilter
from wharfinger_harnesses.cyborg import deployable, device

HOSTS: Final = ("fpga-host-1", "fpga-host-2")
TRAIT: Final = "CUSTOM_FPGA_LAB"
#: What a Cyborg may have: two parts of one card, cards of other kinds, and a class of its own.
VARIED: Final = (
    device("0c", deployable(accelerators=2), deployable("r1", traits=[TRAIT, "CUSTOM_LARGE"])),
    device("1c", deployable(resource_class="PGPU"), kind="GPU"),
    device("2c", deployable(resource_class="VGPU", accelerators=4, traits=[OURS]), kind="GPU"),
    device("3c", deployable(resource_class="CUSTOM_NIC"), kind="NIC"),
)
OTHERS: Final = {HOSTS[1]: [device("0c")]}


@pytest.fixture(scope="module")
def harness(placement_service: EmbeddedPlacement) -> Iterator[Harness]:
    with Harness(placement_service, *HOSTS) as harness:
        yield harness


@pytest.fixture(scope="module")
def many(placement_service: EmbeddedPlacement) -> Iterator[Harness]:
    """With twelve hosts."""
    with Harness(placement_service, *(f"fpga-host-{index:02}" for index in range(12))) as harness:
        yield harness


@pytest.fixture
def cards(harness: Harness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cards]:
    """An instance, before Cyborg has anything."""
    Clock.stopped(monkeypatch)
    with Cards(harness.placement, harness.url, tmp_path) as cards:
        yield cards
    print(harness.cyborg.log()[-20_000:])  # is shown where a test has failed


def marked(before: Contents, *names: str) -> Contents:
    """What Placement had before, with marks on what has these names."""
    return {
        name: {**one, "traits": one["traits"] | MARKS} if name in names else one
        for name, one in before.items()
    }


# Discovery.


def test_all_that_cyborg_publishes_is_tagged_and_else_as_it_was(
    harness: Harness, cards: Cards
) -> None:
    harness.begin(*VARIED, more=OTHERS)
    before = everything()
    ours = [name for name, one in before.items() if one["parent"] is not None]
    assert {kind for name in ours for kind in before[name]["inventories"]} == {
        *("FPGA", "PGPU", "VGPU", "CUSTOM_NIC")
    }
    assert len(ours) == 6

    steps = cards.sync().steps

    assert everything() == marked(before, *ours)
    assert sorted(step.name for step in steps if isinstance(step, SetTraits)) == sorted(ours)
    assert len(steps) == len(ours)


def test_what_is_tagged_is_written_once(harness: Harness, cards: Cards) -> None:
    harness.begin(*VARIED)
    with cards.costing() as first:
        cards.sync()
    assert len(first.writes) == 5 + 1  # and the instance's trait

    for again in (cards.cycle, cards.restarted()):
        harness.between.expect()
        before = everything()
        with cards.costing() as second:
            assert not again.sync().steps
        assert [one.path for one in harness.between.asked] == [*LISTING]
        assert len(second) == 1
        assert everything() == before


def test_novas_root_and_novas_children_are_never_touched(harness: Harness, cards: Cards) -> None:
    harness.begin(*VARIED)
    create(cards.client, "nova-gpu", HOSTS[0], {"VGPU": 4}, {NOVA, "CUSTOM_BLUE"})
    create(cards.client, "neutron-port", HOSTS[0], {"NET_BW_EGR_KILOBIT_PER_SEC": 9}, ())
    alien = {"nova-gpu", "neutron-port", *HOSTS}
    before = everything()
    uuids = {before[name]["uuid"] for name in alien}

    with cards.costing() as requests:
        cards.sync()
        cards.hold(harness.uuid("0c"))
        harness.cyborg.resize("0c", 7)
        harness.cyborg.discover()
        cards.drift()

    after = everything()
    assert {name: after[name] for name in alien} == {name: before[name] for name in alien}
    assert not [one for one in requests.writes if any(uuid in one for uuid in uuids)]


@pytest.mark.parametrize("owner", [NOVA, "CUSTOM_OWNER_ACME"])
def test_a_deployable_that_is_somebody_elses_is_a_conflict_and_the_rest_goes_on(
    harness: Harness, cards: Cards, owner: str
) -> None:
    harness.begin(*VARIED)
    name = harness.name("0c")
    add_traits(cards.client, harness.uuid("0c"), owner)
    before = everything()

    for _ in range(2):
        (problem,) = cards.cycle.sync().problems
        assert type(problem).__name__ == "OwnershipConflict"
        assert name in str(problem)
        assert owner in str(problem)

    others = [one for one in before if before[one]["parent"] is not None and one != name]
    assert everything() == marked(before, *others)

    change_traits(cards.client, harness.uuid("0c"), {TRAIT})
    cards.sync()
    assert traits(name) == {TRAIT} | MARKS


def test_cyborgs_own_owner_trait_is_the_one(harness: Harness, cards: Cards) -> None:
    harness.begin(device("2c", deployable(traits=[OURS])), device("3c"))
    assert OURS in traits(harness.name("2c"))

    cards.sync()

    assert traits(harness.name("2c")) == MARKS
    # Cyborg takes it away where its driver does not say it any more, and puts it there again.
    for its in ([TRAIT], [OURS], []):
        harness.cyborg.change_device("2c", deployables=[deployable(traits=its)])
        harness.cyborg.discover()
        cards.drift()
        assert traits(harness.name("2c")) == {*its} | MARKS


@pytest.mark.parametrize("count", [1, 2, 8, 12])
def test_an_unchanged_drift_cycle_is_one_request(many: Harness, tmp_path: Path, count: int) -> None:
    many.begin(device("0c"), more={host: [device("0c")] for host in many.hosts[1:count]})
    with Cards(many.placement, many.url, tmp_path) as cards:
        assert len(cards.sync().steps) == count
        many.between.expect()

        with cards.costing() as requests:
            assert not cards.drift().steps

        assert not many.between.asked
        assert len(requests) == 1


# Beside nova.


def test_neither_ever_gets_what_is_the_others(harness: Harness, cards: Cards) -> None:
    harness.begin(*VARIED)
    create(cards.client, "nova-gpu", HOSTS[0], {"VGPU": 4, "PGPU": 1}, {NOVA})
    cards.sync()
    service(cards.context, 0, owners=[NOVA, OURS], version=OWNER_TAG_VERSION).create()
    taken = {
        (kind, owner): takes(cards, RequestGroup(resources={kind: 1}, owner=owner))
        for kind in ("VGPU", "PGPU", "FPGA")
        for owner in (NOVA, OURS)
    }
    assert taken == {
        ("VGPU", NOVA): {"nova-gpu"},
        ("VGPU", OURS): {harness.name("2c")},
        ("PGPU", NOVA): {"nova-gpu"},
        ("PGPU", OURS): {harness.name("1c")},
        ("FPGA", NOVA): set(),
        ("FPGA", OURS): {harness.name("0c"), harness.name("0c", "r1")},
    }
    # One request for both.
    both = takes(
        cards,
        RequestGroup(resources={"VCPU": 1, "VGPU": 1}, owner=NOVA),
        RequestGroup(suffix="_accel", resources={"VGPU": 2}, owner=OURS),
    )
    assert both == {HOSTS[0], "nova-gpu", harness.name("2c")}


def takes(cards: Cards, *groups: RequestGroup) -> set[str]:
    """The names of the providers of which candidates for these groups take anything."""
    surroundings = Surroundings(parse([]), cards.client, cards.context)
    search = CandidateSearch(cards.client, {"owner": OwnerFilter(surroundings)})
    found = search.find(ResourceRequest(groups=groups, group_policy="none")).candidates
    uuids = {uuid for one in found for uuid in one.allocations}
    return {name for name, one in everything().items() if one["uuid"] in uuids}


# What Cyborg does to its own.


def again(cards: Cards, pace: str) -> None:
    """A cycle, or a poll, without problems."""
    {"sync": cards.sync, "drift": cards.drift, "poll": cards.poll}[pace]()


PACES: Final = ["sync", "drift"]


def test_a_device_that_is_added_is_tagged(harness: Harness, cards: Cards) -> None:
    harness.begin(device("0c"))
    cards.sync()
    harness.cyborg.add_device("1c", deployable(resource_class="PGPU"), kind="GPU")
    harness.cyborg.discover()
    before = everything()

    again(cards, "poll")

    assert everything() == marked(before, harness.name("1c"))


def test_a_device_that_is_removed_is_forgotten_and_deleted_by_cyborg_alone(
    harness: Harness, cards: Cards
) -> None:
    harness.begin(*VARIED)
    cards.sync()
    gone = {harness.uuid("1c")}
    harness.cyborg.remove_device("1c")
    harness.cyborg.discover()
    before = everything()
    assert gone.isdisjoint(one["uuid"] for one in before.values())

    with cards.costing() as requests:
        for pace in ("poll", "drift", "sync") * 2:
            again(cards, pace)

    assert everything() == before
    assert not [one for one in requests.seen if one.startswith("DELETE")]
    assert gone.isdisjoint(cards.cycle.memory.records)


@pytest.mark.parametrize("pace", [*PACES, "poll"])
def test_what_an_operator_reserved_comes_back_after_a_resize(
    harness: Harness, cards: Cards, pace: str
) -> None:
    harness.begin(*VARIED)
    cards.sync()
    name = harness.name("0c")
    cards.hold(harness.uuid("0c"))
    assert figures(name) == {"FPGA": (2, 2)}
    harness.cyborg.resize("0c", 5)
    harness.cyborg.discover()
    assert figures(name) == {"FPGA": (5, 0)}
    before = everything()

    again(cards, pace)

    assert figures(name) == {"FPGA": (5, 5)}
    before[name]["inventories"] = {"FPGA": (5, 5)}
    assert everything() == before
    cards.release(harness.uuid("0c"))
    assert figures(name) == {"FPGA": (5, 0)}
    cards.sync()
    assert figures(name) == {"FPGA": (5, 0)}


CHANGES: Final[dict[str, tuple[list[str], list[str]]]] = {
    "changed": ([TRAIT], ["CUSTOM_OTHER"]),
    "added": ([TRAIT], [TRAIT, "CUSTOM_OTHER"]),
    "taken": ([TRAIT, "CUSTOM_LARGE"], [TRAIT]),
    "all taken": ([TRAIT, "CUSTOM_LARGE"], []),
    "our own said": ([TRAIT], [OURS]),
    "our own not said any more": ([OURS], [TRAIT]),
    "our own gone": ([TRAIT, OURS], [TRAIT]),
}


@pytest.mark.parametrize("pace", PACES)
@pytest.mark.parametrize("what", CHANGES)
def test_an_attribute_may_change(harness: Harness, cards: Cards, what: str, pace: str) -> None:
    first, then = CHANGES[what]
    harness.begin(device("0c", deployable(traits=first)))
    cards.sync()
    harness.cyborg.change_device("0c", deployables=[deployable(traits=then)])
    harness.cyborg.discover()

    again(cards, pace)

    assert traits(harness.name("0c")) == {*then} | MARKS


def test_a_class_may_change(harness: Harness, cards: Cards) -> None:
    harness.begin(device("0c"))
    cards.sync()
    cards.hold(harness.uuid("0c"))
    harness.cyborg.change_device("0c", deployables=[deployable(resource_class="CUSTOM_FPGA_X")])
    harness.cyborg.discover()
    assert figures(harness.name("0c")) == {"CUSTOM_FPGA_X": (1, 0)}

    cards.sync()

    assert figures(harness.name("0c")) == {"CUSTOM_FPGA_X": (1, 1)}
    assert traits(harness.name("0c")) == {TRAIT} | MARKS
