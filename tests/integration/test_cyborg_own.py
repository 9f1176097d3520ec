"""The Cyborg driver where nobody else publishes: Cyborg reports to another Placement."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pytest

from tests.lab.accelerators import Cards, Clock, figures, traits
from tests.lab.between import edited
from tests.lab.cyborg_harness import LISTING, MARKS, Harness, SecondPlacement, create
from tests.lab.cycles import everything
from tests.lab.faults import Answer
from tests.lab.placement import adapter_to
from wharfinger import jobs
from wharfinger.exceptions import ProgrammingRefused
from wharfinger.placement import survey
from wharfinger.placement.client import PlacementClient
from wharfinger.placement.embedded import EmbeddedPlacement
from wharfinger_harnesses.cyborg import deployable, device

#: One is the beginning of the other.
HOSTS: Final = ("fpga-host-1", "fpga-host-11")
TRAIT: Final = "CUSTOM_FPGA_LAB"
DEVICES: Final = (
    device("0c", deployable(accelerators=2), deployable("r1", traits=[TRAIT, "CUSTOM_LARGE"])),
    device("1c", deployable(resource_class="PGPU"), kind="GPU"),
    device("2c", deployable(resource_class="VGPU", accelerators=4, traits=[]), kind="GPU"),
    device("3c", deployable(resource_class="CUSTOM_NIC"), kind="NIC"),
)
OTHERS: Final = {HOSTS[1]: [device("0c")]}
NAME: Final = f"{HOSTS[0]}_1c_r0"


@pytest.fixture(scope="module")
def second() -> Iterator[SecondPlacement]:
    with SecondPlacement(*HOSTS) as second:
        yield second


@pytest.fixture(scope="module")
def harness(placement_service: EmbeddedPlacement, second: SecondPlacement) -> Iterator[Harness]:
    with Harness(placement_service, *HOSTS, reports_to=second.url) as harness:
        yield harness


@pytest.fixture
def cards(harness: Harness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cards]:
    """What Cyborg has and nobody publishes yet."""
    Clock.stopped(monkeypatch)
    harness.begin(*DEVICES, more=OTHERS)
    with Cards(harness.placement, harness.url, tmp_path, publish="own") as cards:
        yield cards


def told(client: PlacementClient) -> dict[str, Any]:
    """What a Placement has below the roots."""
    listed = client.list_providers()
    names = {one.uuid: one.name for one in listed}
    return {
        one.name: (
            one.uuid,
            names[one.parent_provider_uuid],
            client.get_inventories(one.uuid).inventories,
            client.get_traits(one.uuid).traits - MARKS,
        )
        for one in listed
        if one.parent_provider_uuid is not None
    }


def test_it_publishes_what_cyborg_would(
    harness: Harness, cards: Cards, second: SecondPlacement
) -> None:
    roots = everything()

    assert len(cards.sync().steps) >= 6

    cyborgs = told(PlacementClient(adapter_to(second.url)))
    assert told(cards.client) == cyborgs
    assert len(cyborgs) == 6
    after = everything()
    assert {name: after[name] for name in HOSTS} == roots
    assert all(after[name]["traits"] >= MARKS for name in cyborgs)
    for one in harness.cyborg.deployables():
        assert after[one["name"]]["uuid"] == one["rp_uuid"]
    assert not cards.sync().steps
    assert not cards.drift().steps


def test_it_needs_no_provider_of_cyborgs(harness: Harness, cards: Cards) -> None:
    with_none = edited(lambda content: [one.update(rp_uuid=None) for one in deployables(content)])
    harness.between.replace(0, with_none)
    cards.sync()
    there = everything()
    harness.between.expect()
    assert not cards.sync().steps  # its uuid was the one that Cyborg gives it
    assert everything() == there


def deployables(content: Any) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = content["deployables"]
    return listed


def test_the_children_of_others_are_left_alone(cards: Cards) -> None:
    create(cards.client, "nova-gpu", HOSTS[0], {"VGPU": 4}, {"OWNER_NOVA"})
    before = everything()["nova-gpu"]
    for _ in range(3):
        cards.sync()
    assert everything()["nova-gpu"] == before


def test_what_changes_is_changed(harness: Harness, cards: Cards) -> None:
    cards.sync()
    cards.hold(harness.uuid("0c"))
    parts = [deployable(accelerators=3, traits=["CUSTOM_OTHER"]), DEVICES[0]["deployables"][1]]
    harness.cyborg.change_device("0c", deployables=parts)
    harness.cyborg.add_device("4c")
    harness.cyborg.discover()

    cards.poll()

    assert figures(harness.name("0c")) == {"FPGA": (3, 3)}
    assert traits(harness.name("0c")) == {"CUSTOM_OTHER"} | MARKS
    assert figures(harness.name("4c")) == {"FPGA": (1, 0)}
    cards.release(harness.uuid("0c"))
    assert figures(harness.name("0c")) == {"FPGA": (3, 0)}
    assert not cards.sync().steps


def test_what_is_being_bound_is_reserved(harness: Harness, cards: Cards) -> None:
    cards.sync()
    cyborg = harness.cyborg
    cyborg.change_device("0c", hold=True)
    image = cyborg.create_image("3AFB")
    request = cyborg.bind(harness.uuid("0c"), bitstream_id=image)
    cyborg.wait_for_programming("0c")
    cards.poll()
    assert figures(harness.name("0c")) == {"FPGA": (2, 2)}
    assert figures(harness.name("0c", "r1")) == {"FPGA": (1, 1)}
    cyborg.go("0c")
    cyborg.wait_for_request(request, "Bound")
    cards.poll()
    assert figures(harness.name("0c")) == {"FPGA": (2, 0)}
    assert figures(harness.name("0c", "r1")) == {"FPGA": (1, 0)}


def test_what_is_gone_is_removed_after_two_listings(harness: Harness, cards: Cards) -> None:
    cards.sync()
    before = everything()
    harness.cyborg.remove_device("1c")
    harness.cyborg.discover()

    cards.poll()
    cards.drift()
    assert NAME in everything()
    assert [one.name for one in cards.sync().pending] == [NAME]
    assert NAME in everything()
    cards.sync()

    del before[NAME]
    assert everything() == before


def test_what_is_used_is_not_removed(harness: Harness, cards: Cards) -> None:
    cards.sync()
    cards.allocate(NAME, str(uuid4()), PGPU=1)
    harness.cyborg.remove_device("1c")
    harness.cyborg.discover()
    for _ in range(4):
        cards.cycle.sync()
    assert figures(NAME) == {"PGPU": (1, 1)}


@pytest.mark.parametrize("at", range(len(LISTING)))
def test_nothing_is_removed_for_a_listing_that_failed(
    harness: Harness, cards: Cards, at: int
) -> None:
    cards.sync()
    before = everything()
    for _ in range(4):
        harness.between.replace(at, lambda _answer: Answer(503))
        with pytest.raises(Exception, match="answers 503"):
            cards.cycle.sync()
    harness.between.expect()
    assert not cards.sync().steps
    assert everything() == before


# What its devices hold: Cyborg goes on saying what it has found first.


SAID: Final = "CUSTOM_FPGA_FUNCTION_ID_LAB_SAID"


@pytest.fixture
def programmable(harness: Harness, cards: Cards) -> Iterator[str]:
    """The name of a provider that says by Cyborg's word which function it has."""
    harness.cyborg.add_device("5c", deployable(traits=[TRAIT, SAID]))
    harness.cyborg.discover()
    cards.sync()
    name = harness.name("5c")
    assert traits(name) == {TRAIT, SAID} | MARKS
    yield name
    harness.cyborg.remove_device("5c")
    harness.cyborg.discover()


def loads(harness: Harness, cards: Cards, name: str, *functions: str | None) -> None:
    """Load an image of each function into a device; where there is None nobody knows which."""
    for function in functions:
        image = harness.cyborg.create_image(function)
        provider = survey.find(cards.client, name)
        jobs.program(
            cards.client, cards.context, cards.driver, provider, image=image, function=function
        )


@pytest.mark.parametrize("functions", [["B"], ["B", "C"], ["B", None], [None]])
def test_what_cyborg_goes_on_saying_is_not_published(
    harness: Harness, cards: Cards, programmable: str, functions: list[str | None]
) -> None:
    loads(harness, cards, programmable, *functions)
    last = functions[-1]
    held = {f"CUSTOM_FPGA_FUNCTION_ID_LAB_{last}"} if last else set()
    for again in (cards.sync, cards.drift, lambda: cards.restarted().sync()):
        again()
        assert traits(programmable) == {TRAIT} | held | MARKS
    assert figures(programmable) == {"FPGA": (1, 0)}


def test_a_job_that_comes_to_nothing_changes_nothing_of_that(
    harness: Harness, cards: Cards, programmable: str
) -> None:
    with pytest.raises(ProgrammingRefused):
        loads_nothing(harness, cards, programmable)
    cards.sync()
    assert traits(programmable) == {TRAIT, SAID} | MARKS

    loads(harness, cards, programmable, "B")
    cards.sync()
    with pytest.raises(ProgrammingRefused):
        loads_nothing(harness, cards, programmable)
    for again in (cards.sync, cards.drift):
        again()
        assert traits(programmable) == {TRAIT, "CUSTOM_FPGA_FUNCTION_ID_LAB_B"} | MARKS


def loads_nothing(harness: Harness, cards: Cards, name: str) -> None:
    """Have an image be loaded that Glance does not have."""
    provider = survey.find(cards.client, name)
    image = str(uuid4())
    jobs.program(cards.client, cards.context, cards.driver, provider, image=image, function="C")


# What cannot be published.


def attributes(*pairs: tuple[str, Any]) -> str:
    return json.dumps([{key: value} for key, value in pairs])


#: What Cyborg may say of a deployable, and what is told of it.
BAD: Final[dict[str, tuple[dict[str, Any], str]]] = {
    "not JSON": ({"attributes_list": "{'rc': 'FPGA'}"}, "not understood"),
    "empty": ({"attributes_list": ""}, "not understood"),
    "an object": ({"attributes_list": '{"rc": "FPGA"}'}, "not understood"),
    "numbers": ({"attributes_list": "[1, 2]"}, "not understood"),
    "no class": ({"attributes_list": attributes(("trait0", TRAIT))}, "0 resource classes"),
    "none": ({"attributes_list": "[]"}, "0 resource classes"),
    "two classes": ({"attributes_list": attributes(("rc", "FPGA"), ("rc", "PGPU"))}, "2 resource"),
    "no such class": ({"attributes_list": attributes(("rc", "fpga card"))}, "fpga card"),
    "a class null": ({"attributes_list": attributes(("rc", None))}, "not understood"),
    "a bad trait": ({"attributes_list": attributes(("rc", "PGPU"), ("trait0", "no good"))}, "no g"),
    "huge": ({"num_accelerators": 2**31}, str(2**31)),
    "negative": ({"num_accelerators": -1}, "-1"),
}


def saying(**values: Any) -> Callable[[Answer], Answer]:
    """Cyborg says this of one deployable."""

    def change(content: Any) -> None:
        for one in deployables(content):
            if one["name"] == NAME:
                one.update(values)

    return edited(change)


def is_listing(request: Any) -> bool:
    return bool(request.path == LISTING[0])


@pytest.mark.parametrize("what", BAD)
def test_what_cannot_be_published_is_told_and_stays_as_it_was(
    harness: Harness, cards: Cards, what: str
) -> None:
    values, part = BAD[what]
    cards.sync()
    before = everything()
    uuid = harness.cyborg.deployable("1c")["uuid"]

    harness.between.replace(is_listing, saying(**values), each_time=True)
    for _ in range(2):
        (problem,) = cards.problems()
        assert f"deployable {NAME} ({uuid}): " in problem
        assert part in problem
        assert everything() == before
    harness.between.expect()
    assert not cards.sync().steps


@pytest.mark.parametrize("what", ["not JSON", "two classes", "a bad trait", "huge"])
def test_what_never_could_be_published_keeps_nothing_else_from_it(
    harness: Harness, cards: Cards, what: str
) -> None:
    harness.between.replace(is_listing, saying(**BAD[what][0]), each_time=True)
    (problem,) = cards.problems()
    assert f"deployable {NAME} (" in problem
    there = everything()
    assert NAME not in there
    assert len(there) == len(HOSTS) + 5

    harness.between.expect()
    cards.sync()
    assert figures(NAME) == {"PGPU": (1, 0)}


def test_one_of_no_accelerators_has_nothing_to_give(harness: Harness, cards: Cards) -> None:
    cards.sync()
    harness.between.replace(is_listing, saying(num_accelerators=0), each_time=True)
    cards.sync()
    assert figures(NAME) == {}
    harness.between.expect()
    cards.sync()
    assert figures(NAME) == {"PGPU": (1, 0)}


@pytest.mark.parametrize("name", ["elsewhere_1c_r0", "fpga-host-12", "fpga-host-111_1c_r0", "_"])
def test_a_name_that_tells_no_host_is_told(harness: Harness, cards: Cards, name: str) -> None:
    harness.between.replace(is_listing, saying(name=name), each_time=True)
    (problem,) = cards.problems()
    assert f"deployable {name} (" in problem
    assert all(host in problem for host in HOSTS)
    assert {name, NAME}.isdisjoint(everything())
    assert len(everything()) == len(HOSTS) + 5


def test_a_host_without_a_root_is_told(harness: Harness, cards: Cards) -> None:
    cards.client.delete_provider(everything()[HOSTS[1]]["uuid"])
    problems = cards.problems()
    assert any(HOSTS[1] in problem for problem in problems)
    assert HOSTS[1] not in everything()
    assert len(everything()) == 1 + 5
