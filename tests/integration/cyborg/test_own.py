"""The Cyborg driver publishes the providers itself; Cyborg reports to another Placement."""

import json
from collections.abc import Callable
from typing import Any, Final
from uuid import uuid4

import pytest

from tests.integration.cyborg.conftest import Publish
from tests.lab.accelerators import Cards, figures, traits
from tests.lab.between import edited
from tests.lab.cyborg_harness import LISTING, MARKS, Harness, SecondPlacement, create
from tests.lab.cycles import everything
from tests.lab.faults import Answer
from tests.lab.placement import adapter_to
from wharfinger import jobs
from wharfinger.conformance.other_program_client import WritingClient
from wharfinger.exceptions import BackendError, PartialListing, ProgrammingRefused
from wharfinger.scheduling import provider_details
from wharfinger_harnesses.cyborg import deployable, device

#: The hosts; one name is a prefix of the other.
HOSTS: Final = ("fpga-host-1", "fpga-host-11")
TRAIT: Final = "CUSTOM_FPGA_LAB"
DEVICES: Final = (
    device("0c", deployable(accelerators=2), deployable("r1", traits=[TRAIT, "CUSTOM_LARGE"])),
    device("1c", deployable(resource_class="PGPU"), kind="GPU"),
)
MORE: Final = (
    device("2c", deployable(resource_class="VGPU", accelerators=4, traits=[]), kind="GPU"),
    device("3c", deployable(resource_class="CUSTOM_NIC"), kind="NIC"),
)
OTHERS: Final = {HOSTS[1]: [device("0c")]}
NAME: Final = f"{HOSTS[0]}_1c_r0"


@pytest.fixture
def cards(harness: Harness, publish: Publish, second_placement: SecondPlacement) -> Cards:
    """A driver instance for the devices of Cyborg, which has not published them yet."""
    harness.begin(*DEVICES, more=OTHERS, reports_to=second_placement.url)
    return publish(publish="own")


def told(client: WritingClient) -> dict[str, Any]:
    """Return the providers below the roots of this Placement, without our traits."""
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


def deployables(content: Any) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = content["deployables"]
    return listed


def test_driver_publishes_the_same_providers_as_cyborg(
    harness: Harness, cards: Cards, second_placement: SecondPlacement
) -> None:
    harness.cyborg.set_hardware(*DEVICES, *MORE)
    harness.cyborg.discover()
    roots = everything()

    assert len(cards.sync().steps) >= 6

    cyborgs = told(WritingClient(adapter_to(second_placement.url)))
    assert told(cards.client) == cyborgs
    assert len(cyborgs) == 6
    after = everything()
    assert {name: after[name] for name in HOSTS} == roots
    assert all(after[name]["traits"] >= MARKS for name in cyborgs)
    for one in harness.cyborg.deployables():
        assert after[one["name"]]["uuid"] == one["rp_uuid"]
    assert not cards.sync().steps
    assert not cards.drift().steps


def test_driver_does_not_need_cyborgs_providers(harness: Harness, cards: Cards) -> None:
    with_none = edited(lambda content: [one.update(rp_uuid=None) for one in deployables(content)])
    harness.between.replace(0, with_none)
    cards.sync()
    there = everything()
    for one in harness.cyborg.deployables():
        assert there[one["name"]]["uuid"] == one["rp_uuid"]
    harness.between.expect()
    assert not cards.sync().steps
    assert everything() == there


def test_children_of_other_owners_are_left_alone(cards: Cards) -> None:
    create(cards.client, "nova-gpu", HOSTS[0], {"VGPU": 4}, {"OWNER_NOVA"})
    before = everything()["nova-gpu"]
    for _ in range(3):
        cards.sync()
    assert everything()["nova-gpu"] == before


def test_changed_devices_are_updated(harness: Harness, cards: Cards) -> None:
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


def test_device_that_is_being_bound_is_reserved(harness: Harness, cards: Cards) -> None:
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


def test_removed_device_is_removed_after_two_listings(harness: Harness, cards: Cards) -> None:
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


def test_partial_listing_keeps_a_deployable_until_cyborg_deletes_it(
    harness: Harness, cards: Cards
) -> None:
    cards.sync()
    published = everything()

    def leave_out(content: Any) -> None:
        content["deployables"] = [one for one in deployables(content) if one["name"] != NAME]

    harness.between.replace(
        lambda request: request.path == LISTING[0], edited(leave_out), each_time=True
    )
    cards.cycle.sync()
    for _ in range(2):
        [problem] = cards.cycle.sync().problems
        assert isinstance(problem, PartialListing)
        assert problem.names == (NAME,)
        assert everything() == published

    harness.cyborg.remove_device("1c")
    harness.cyborg.discover()
    cards.sync()
    assert published.keys() - everything().keys() == {NAME}


def test_node_is_available_asks_cyborg_for_one_host(cards: Cards) -> None:
    assert all(map(cards.driver.node_is_available, HOSTS))
    assert not cards.driver.node_is_available("fpga-host")


def test_removal_after_a_restart_looks_for_the_deployable_in_a_new_list(
    harness: Harness, cards: Cards
) -> None:
    cards.sync()
    published = everything()
    harness.cyborg.remove_device("1c")
    harness.cyborg.discover()
    cards.sync()
    cards.restarted()
    cards.sync()
    assert published.keys() - everything().keys() == {NAME}


def test_removed_device_with_allocations_is_reserved_and_kept(
    harness: Harness, cards: Cards
) -> None:
    cards.sync()
    cards.allocate(NAME, str(uuid4()), PGPU=1)
    harness.cyborg.remove_device("1c")
    harness.cyborg.discover()
    for _ in range(4):
        cards.cycle.sync()
    assert figures(NAME) == {"PGPU": (1, 1)}


def test_failed_listing_removes_nothing(harness: Harness, cards: Cards) -> None:
    cards.sync()
    before = everything()
    for at in [*range(len(LISTING))] * 2:
        harness.between.replace(at, lambda _answer: Answer(503))
        with pytest.raises(BackendError, match="answers 503"):
            cards.cycle.sync()
    harness.between.expect()
    assert not cards.sync().steps
    assert everything() == before


# Functions of devices: Cyborg keeps reporting the function that it found first.


SAID: Final = "CUSTOM_FPGA_FUNCTION_ID_LAB_SAID"


@pytest.fixture
def programmable(harness: Harness, cards: Cards) -> str:
    """The name of a provider whose function Cyborg reports."""
    harness.cyborg.add_device("5c", deployable(traits=[TRAIT, SAID]))
    harness.cyborg.discover()
    cards.sync()
    name = harness.name("5c")
    assert traits(name) == {TRAIT, SAID} | MARKS
    return name


def loads(harness: Harness, cards: Cards, name: str, function: str | None) -> None:
    """Program a device with an image of this function; None is an unknown function."""
    image = harness.cyborg.create_image(function)
    provider = provider_details.find(cards.client, name)
    jobs.program(
        cards.client, cards.context, cards.driver, provider, image=image, function=function
    )


def test_outdated_function_from_cyborg_is_not_published(
    harness: Harness, cards: Cards, programmable: str
) -> None:
    for function in ("B", "C", None):
        loads(harness, cards, programmable, function)
        held = {f"CUSTOM_FPGA_FUNCTION_ID_LAB_{function}"} if function else set()
        for again in (cards.sync, cards.drift, lambda: cards.restarted().sync()):
            again()
            assert traits(programmable) == {TRAIT} | held | MARKS
    assert figures(programmable) == {"FPGA": (1, 0)}


def test_failed_job_keeps_the_function(harness: Harness, cards: Cards, programmable: str) -> None:
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
    """Try to program a device with an image that Glance does not have."""
    provider = provider_details.find(cards.client, name)
    image = str(uuid4())
    jobs.program(cards.client, cards.context, cards.driver, provider, image=image, function="C")


# Deployables that cannot be published.


def attributes(*pairs: tuple[str, Any]) -> str:
    return json.dumps([{key: value} for key, value in pairs])


#: By words of the error: wrong values of a deployable; more: tests/unit/cyborg/test_deployable.py.
BAD: Final[dict[str, dict[str, Any]]] = {
    "not understood": {"attributes_list": "{'rc': 'FPGA'}"},
    "2 resource classes": {"attributes_list": attributes(("rc", "FPGA"), ("rc", "PGPU"))},
    str(2**31): {"num_accelerators": 2**31},
}


def saying(**values: Any) -> Callable[[Answer], Answer]:
    """Return a change of an answer that gives one deployable these values."""

    def change(content: Any) -> None:
        for one in deployables(content):
            if one["name"] == NAME:
                one.update(values)

    return edited(change)


def is_listing(request: Any) -> bool:
    return bool(request.path == LISTING[0])


def test_unpublishable_deployable_is_reported_and_its_provider_unchanged(
    harness: Harness, cards: Cards
) -> None:
    uuid = harness.cyborg.deployable("1c")["uuid"]
    for told, values in BAD.items():  # the deployable was never valid before
        harness.between.replace(is_listing, saying(**values), each_time=True)
        (problem,) = cards.problems()
        assert f"deployable {NAME} ({uuid}): " in problem
        assert told in problem
        there = everything()
        assert NAME not in there
        assert len(there) == len(HOSTS) + 3

    harness.between.expect()
    cards.sync()
    assert figures(NAME) == {"PGPU": (1, 0)}
    before = everything()
    for values in BAD.values():
        harness.between.replace(is_listing, saying(**values), each_time=True)
        (problem,) = cards.problems()
        assert f"deployable {NAME} ({uuid}): " in problem
        assert everything() == before
    harness.between.expect()
    assert not cards.sync().steps


def test_deployable_without_accelerators_has_no_inventory(harness: Harness, cards: Cards) -> None:
    cards.sync()
    harness.between.replace(is_listing, saying(num_accelerators=0), each_time=True)
    cards.sync()
    assert figures(NAME) == {}
    harness.between.expect()
    cards.sync()
    assert figures(NAME) == {"PGPU": (1, 0)}


def test_deployable_name_without_a_known_host_is_reported(harness: Harness, cards: Cards) -> None:
    name = "fpga-host-111_1c_r0"
    harness.between.replace(is_listing, saying(name=name), each_time=True)
    (problem,) = cards.problems()
    assert f"deployable {name} (" in problem
    assert all(host in problem for host in HOSTS)
    assert {name, NAME}.isdisjoint(everything())
    assert len(everything()) == len(HOSTS) + 3


def test_host_without_a_root_is_reported(harness: Harness, cards: Cards) -> None:
    cards.client.delete_provider(everything()[HOSTS[1]]["uuid"])
    problems = cards.problems()
    assert any(HOSTS[1] in problem for problem in problems)
    assert HOSTS[1] not in everything()
    assert len(everything()) == 1 + 3
