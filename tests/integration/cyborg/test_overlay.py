"""The Cyborg driver overlays providers that a real Cyborg publishes in the real Placement."""

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from typing import Final

from tests.integration.cyborg.conftest import Publish
from tests.lab.accelerators import Cards, figures, traits, without_marks
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
from tests.lab.inprocess import run
from tests.lab.program import Program
from tests.lab.samples import service
from wharfinger.conf import parse
from wharfinger.objects import OWNER_TAG_VERSION, DeviceJobList
from wharfinger.providers.plan import SetTraits
from wharfinger.scheduling import RequestGroup, ResourceRequest
from wharfinger.scheduling.candidates import CandidateSearch
from wharfinger.scheduling.request_filters import Surroundings
from wharfinger.scheduling.request_filters.owner import OwnerFilter
from wharfinger_harnesses.cyborg import Cyborg, deployable, device

HOST: Final = "fpga-host-1"
TRAIT: Final = "CUSTOM_FPGA_LAB"
HELD: Final = "CUSTOM_FPGA_FUNCTION_ID_LAB_"
#: Devices of all kinds: a card with two functions, GPUs, and a card with a custom class.
VARIED: Final = (
    device("0c", deployable(accelerators=2), deployable("r1", traits=[TRAIT, "CUSTOM_LARGE"])),
    device("1c", deployable(resource_class="PGPU"), kind="GPU"),
    device("2c", deployable(resource_class="VGPU", accelerators=4, traits=[OURS]), kind="GPU"),
    device("3c", deployable(resource_class="CUSTOM_NIC"), kind="NIC"),
)
#: An FPGA with two functions, and a GPU.
SOME: Final = VARIED[:2]


def marked(before: Contents, *names: str) -> Contents:
    """Return these contents of Placement with our traits added to the named providers."""
    return {
        name: {**one, "traits": one["traits"] | MARKS} if name in names else one
        for name, one in before.items()
    }


def published(harness: Harness, publish: Publish) -> Cards:
    """Return a driver instance that has tagged all devices."""
    harness.begin(*SOME)
    cards = publish()
    cards.sync()
    return cards


def changes(harness: Harness, bus: str, *traits: str) -> None:
    """Change the traits that a device reports to Cyborg."""
    harness.cyborg.change_device(bus, deployables=[deployable(traits=traits)])
    harness.cyborg.discover()


# Discovery.


def test_all_providers_of_cyborg_are_tagged_once_and_otherwise_unchanged(
    harness: Harness, publish: Publish
) -> None:
    harness.begin(*VARIED)
    cards = publish()
    before = everything()
    ours = [name for name, one in before.items() if one["parent"] is not None]
    assert {kind for name in ours for kind in before[name]["inventories"]} == {
        *("FPGA", "PGPU", "VGPU", "CUSTOM_NIC")
    }
    assert len(ours) == 5

    with cards.costing() as first:
        steps = cards.sync().steps
    assert everything() == marked(before, *ours)
    assert sorted(step.name for step in steps if isinstance(step, SetTraits)) == sorted(ours)
    assert len(steps) == len(ours)
    assert len(first.writes) == len(ours) + 1  # the last write creates the instance trait

    for again in (cards.cycle, cards.restarted()):
        harness.between.expect()
        with cards.costing() as second:
            assert not again.sync().steps
        assert [one.path for one in harness.between.asked] == [*LISTING]
        assert len(second) == 1
    harness.between.expect()
    with cards.costing() as third:
        assert not cards.drift().steps
    assert (harness.between.asked, len(third)) == ([], 1)
    assert everything() == marked(before, *ours)


def test_novas_root_and_children_are_never_touched(harness: Harness, publish: Publish) -> None:
    harness.begin(*SOME)
    cards = publish()
    create(cards.client, "nova-gpu", HOST, {"VGPU": 4}, {NOVA, "CUSTOM_BLUE"})
    create(cards.client, "neutron-port", HOST, {"NET_BW_EGR_KILOBIT_PER_SEC": 9}, ())
    alien = {"nova-gpu", "neutron-port", HOST}
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


def test_deployable_of_another_owner_is_a_conflict_and_the_others_are_tagged(
    harness: Harness, publish: Publish
) -> None:
    harness.begin(*SOME)
    cards = publish()
    name = harness.name("0c")
    add_traits(cards.client, harness.uuid("0c"), NOVA)
    before = everything()

    for _ in range(2):
        (problem,) = cards.cycle.sync().problems
        assert type(problem).__name__ == "OwnershipConflict"
        assert name in str(problem)
        assert NOVA in str(problem)

    others = [one for one in before if before[one]["parent"] is not None and one != name]
    assert everything() == marked(before, *others)

    change_traits(cards.client, harness.uuid("0c"), {TRAIT})
    cards.sync()
    assert traits(name) == {TRAIT} | MARKS


def test_candidates_of_one_owner_never_use_providers_of_the_other(
    harness: Harness, publish: Publish
) -> None:
    harness.begin(*VARIED)
    cards = publish()
    create(cards.client, "nova-gpu", HOST, {"VGPU": 4, "PGPU": 1}, {NOVA})
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
    both = takes(
        cards,
        RequestGroup(resources={"VCPU": 1, "VGPU": 1}, owner=NOVA),
        RequestGroup(suffix="_accel", resources={"VGPU": 2}, owner=OURS),
    )
    assert both == {HOST, "nova-gpu", harness.name("2c")}


def takes(cards: Cards, *groups: RequestGroup) -> set[str]:
    """Return the names of the providers in the candidates for these groups."""
    surroundings = Surroundings(parse([]), cards.client, cards.context)
    search = CandidateSearch(cards.client, {"owner": OwnerFilter(surroundings)})
    found = search.find(ResourceRequest(groups=groups, group_policy="none")).candidates
    uuids = {uuid for one in found for uuid in one.allocations}
    return {name for name, one in everything().items() if one["uuid"] in uuids}


# Changes by Cyborg.


def test_new_device_is_tagged_and_a_removed_one_forgotten(
    harness: Harness, publish: Publish
) -> None:
    cards = published(harness, publish)
    gone = {harness.uuid("1c")}
    harness.cyborg.remove_device("1c")
    harness.cyborg.add_device("4c", deployable(resource_class="PGPU"), kind="GPU")
    harness.cyborg.discover()
    before = everything()
    assert gone.isdisjoint(one["uuid"] for one in before.values())

    with cards.costing() as requests:
        for run_cycle in (cards.poll, cards.drift, cards.sync) * 2:
            run_cycle()
            assert everything() == marked(before, harness.name("4c"))
    assert not [one for one in requests.seen if one.startswith("DELETE")]
    assert gone.isdisjoint(cards.cycle.store.records)


def test_reservation_of_an_operator_is_restored_after_a_resize(
    harness: Harness, publish: Publish
) -> None:
    cards = published(harness, publish)
    name = harness.name("0c")
    cards.hold(harness.uuid("0c"))
    assert figures(name) == {"FPGA": (2, 2)}
    for size, run_cycle in enumerate((cards.sync, cards.drift, cards.poll), start=5):
        harness.cyborg.resize("0c", size)
        harness.cyborg.discover()
        assert figures(name) == {"FPGA": (size, 0)}
        before = everything()
        run_cycle()
        assert figures(name) == {"FPGA": (size, size)}
        before[name]["inventories"] = {"FPGA": (size, size)}
        assert everything() == before
    cards.release(harness.uuid("0c"))
    assert figures(name) == {"FPGA": (size, 0)}
    cards.sync()
    assert figures(name) == {"FPGA": (size, 0)}


#: Traits that a device reports in turn: they change, appear, disappear, or are our own trait.
SAID: Final[tuple[list[str], ...]] = (
    [TRAIT],
    ["CUSTOM_OTHER"],
    ["CUSTOM_OTHER", "CUSTOM_LARGE"],
    ["CUSTOM_OTHER"],
    [OURS],
    [TRAIT],
    [TRAIT, OURS],
    [TRAIT],
    [],
)


def test_traits_and_class_that_cyborg_changes_stay_changed(
    harness: Harness, publish: Publish
) -> None:
    harness.begin(device("0c"))
    cards = publish()
    cards.sync()
    name = harness.name("0c")
    for its, run_cycle in zip(SAID, cycle((cards.sync, cards.drift)), strict=False):
        changes(harness, "0c", *its)
        run_cycle()
        assert traits(name) == {*its} | MARKS

    cards.hold(harness.uuid("0c"))
    harness.cyborg.change_device("0c", deployables=[deployable(resource_class="CUSTOM_FPGA_X")])
    harness.cyborg.discover()
    assert figures(name) == {"CUSTOM_FPGA_X": (1, 0)}
    cards.sync()
    assert figures(name) == {"CUSTOM_FPGA_X": (1, 1)}
    assert traits(name) == {TRAIT} | MARKS


# Missing providers.


@contextmanager
def lacking_provider(harness: Harness, name: str) -> Iterator[None]:
    """Let Cyborg report during the block that it has not published the deployable."""
    (uuid,) = (one["rp_uuid"] for one in harness.cyborg.deployables() if one["name"] == name)
    change = "UPDATE deployables SET rp_uuid = :uuid WHERE name = :name"
    harness.cyborg.execute(change, uuid=None, name=name)
    try:
        yield
    finally:
        harness.cyborg.execute(change, uuid=uuid, name=name)


def test_deployable_without_a_provider_is_reported_and_the_others_are_tagged(
    harness: Harness, publish: Publish
) -> None:
    cards = published(harness, publish)
    name = harness.name("1c")
    before = traits(name)
    with lacking_provider(harness, name):
        harness.cyborg.add_device("4c")
        harness.cyborg.discover()
        (problem,) = cards.problems()
        assert f"deployable {name} (" in problem
        assert "no resource provider" in problem
        # The provider still exists and keeps its traits.
        assert traits(name) == before
        assert traits(harness.name("4c")) == {TRAIT} | MARKS
        assert cards.problems() == [problem]
    cards.sync()


def test_provider_deleted_by_another_client_is_reported_and_not_created(
    harness: Harness, publish: Publish
) -> None:
    cards = published(harness, publish)
    name, uuid = harness.name("0c"), harness.uuid("0c")
    cards.client.delete_provider(uuid)
    before = everything()
    for one in (cards.cycle, cards.cycle, cards.restarted()):
        (problem,) = map(str, one.sync().problems)
        assert f"deployable {name} (" in problem
        assert uuid in problem
        assert HOST in problem
    assert everything() == before

    harness.report({HOST: SOME[1:]})
    cards.sync()
    harness.report({HOST: SOME})
    assert len(cards.sync().steps) == 2
    assert traits(name) == {TRAIT} | MARKS

    # A missing root is not created, either.
    there = everything()
    for gone in sorted(there, key=lambda one: there[one]["parent"] is None):
        cards.client.delete_provider(there[gone]["uuid"])
    for _ in range(2):
        assert len(cards.problems()) >= len(harness.cyborg.deployables())
        assert everything() == {}


def test_program_prints_the_deployable_that_it_could_not_publish(
    harness: Harness, tmp_path: Path
) -> None:
    harness.begin(*SOME)
    program = Program(tmp_path, harness.placement_url)
    state, name = tmp_path / "state", harness.name("1c")
    program.config.write_text(
        f"[DEFAULT]\nenabled_drivers = fpga\nhost = ctl\nstate_path = {state}\n"
        f"[fpga]\ndriver = cyborg\nauth_type = none\nendpoint = {harness.url}\n"
        f"[placement]\nembedded = false\nauth_type = admin_token\ntoken = admin\n"
        f"endpoint = {harness.placement_url}\nendpoint_override = {harness.placement_url}\n"
    )
    with lacking_provider(harness, name):
        done = run(program, "sync")
        assert done.code == 1
        assert f"fpga: driver fpga: publishing failed: deployable {name} (" in done.err
        assert "2 changes written" in done.out
    done = run(program, "sync")
    assert (done.code, done.err) == (0, "")
    assert "1 change written" in done.out
    assert run(program, "sync", "--dry-run").code == 0


# Functions of devices.


def trait_of(function: str) -> str:
    return f"{HELD}{function}"


def test_function_of_a_job_is_published_again(harness: Harness, publish: Publish) -> None:
    harness.begin(device("0c"))
    cards = publish()
    cards.sync()
    name = harness.name("0c")
    cards.was_programmed(harness.uuid("0c"), trait_of("3AFB"))
    cards.sync()
    assert traits(name) == {TRAIT, trait_of("3AFB")} | MARKS
    # When the device reports other traits, Cyborg deletes the function trait of the job.
    its: list[str]
    for its, again in (
        ([trait_of("3AFB")], cards.cycle.sync),
        ([TRAIT], cards.cycle.drift),
        ([trait_of("3AFB")], cards.cycle.drift),
        (["CUSTOM_OTHER"], cards.cycle.sync),
    ):
        changes(harness, "0c", *its)
        # Cyborg may delete a trait which no provider has any more, just before we set it.
        if any("No such trait" in str(problem) for problem in again().problems):
            assert not again().problems
        assert traits(name) == {*its, trait_of("3AFB")} | MARKS
    assert not cards.sync().steps

    # A function that Cyborg has published since replaces that of the job.
    request = harness.cyborg.bind(
        harness.uuid("0c"), bitstream_id=harness.cyborg.create_image("4AFB")
    )
    harness.cyborg.wait_for_request(request, "Bound")
    for again in (cards.cycle.sync, cards.cycle.drift):
        assert not again().problems
        assert traits(name) == {"CUSTOM_OTHER", trait_of("4AFB")} | MARKS


def test_function_that_the_agent_reports_is_published_once(
    harness: Harness, publish: Publish
) -> None:
    harness.begin(device("3c", function="1111", reports_function=True))
    cards = publish()
    cards.sync()
    name, uuid = harness.name("3c"), harness.uuid("3c")
    assert traits(name) == {TRAIT, trait_of("1111")} | MARKS
    image = harness.cyborg.create_image("2222")
    assert harness.cyborg.program(harness.cyborg.deployable("3c")["uuid"], image).ok
    cards.was_programmed(uuid, trait_of("2222"), trait_of("1111"))
    change = {TRAIT, trait_of("2222")} | MARKS

    harness.cyborg.discover()
    cards.sync()
    assert traits(name) == change
    cards.restarted()
    cards.sync()
    assert traits(name) == change
    assert cards.driver.current_function(uuid) == "2222"


def test_job_of_a_removed_device_is_forgotten(harness: Harness, publish: Publish) -> None:
    devices = [device("0c"), device("1c")]
    harness.begin(*devices)
    cards = publish()
    cards.sync()
    cards.was_programmed(harness.uuid("1c"), trait_of("3AFB"))
    cards.sync()
    harness.report({HOST: devices[:1]})
    for _ in range(2):
        cards.sync()
    assert not DeviceJobList.get_by_filters(cards.context)

    harness.report({HOST: devices})
    cards.sync()
    assert traits(harness.name("1c")) == {TRAIT} | MARKS


# Continuous reports.


@contextmanager
def reporting(cyborg: Cyborg) -> Iterator[None]:
    """Let Cyborg's agent report repeatedly in another thread during the block."""
    over = threading.Event()
    failed: list[Exception] = []

    def report() -> None:
        try:
            while not over.wait(0.02):
                cyborg.discover()
        except Exception as error:
            failed.append(error)

    thread = threading.Thread(target=report, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    # A report fails if we write during it; Cyborg repeats it.
    assert all("generation" in str(error) for error in failed), failed


def test_continuous_reports_of_cyborg_and_our_writes_do_not_undo_each_other(
    harness: Harness, publish: Publish
) -> None:
    chance = random.Random(8)
    buses = ["01", "02", "03", "04"]
    harness.begin(*map(device, buses))
    cyborg = harness.cyborg
    cards = publish()
    cards.cycle.sync()
    cards.hold(harness.uuid(buses[0]))
    with reporting(cyborg), harness.watching() as writes:
        for _ in range(12):
            change_something(cyborg, chance, buses)
            getattr(cards.cycle, chance.choice(["poll", "drift", "sync"]))()
    assert writes
    assert [write.harm for write in writes if write.harm] == []
    # If we write between Cyborg's read and write, its write fails, but it counts as done. So only
    # a later report is certain to be in Placement.
    harness.report({HOST: [device(bus, deployable(accelerators=12)) for bus in buses]})
    cards.sync()
    after = everything()
    described = {one["name"]: one["rp_uuid"] for one in cyborg.deployables()}
    assert {name: one["uuid"] for name, one in after.items() if name != HOST} == described
    assert all(after[name]["traits"] >= MARKS for name in described)
    assert after[HOST]["traits"] == {NOVA, "COMPUTE_NODE"}
    assert [figures(harness.name(bus)) for bus in buses] == [
        {"FPGA": (12, 12)},
        *[{"FPGA": (12, 0)}] * 3,
    ]
    assert not cards.sync().steps


def change_something(cyborg: Cyborg, chance: random.Random, buses: list[str]) -> None:
    """Resize, change or replace a random device; the first device is only resized."""
    bus = chance.choice(buses)
    size, trait = chance.randint(1, 9), f"CUSTOM_T{chance.randint(1, 3)}"
    match chance.choice(["resize", "trait", "replace"]):
        case "trait" if bus != buses[0]:
            cyborg.change_device(bus, deployables=[deployable(traits=[trait])])
        case "replace" if bus != buses[0]:
            cyborg.remove_device(bus)
            cyborg.discover()
            cyborg.add_device(bus)
        case _:
            cyborg.resize(bus, size)


def test_same_changes_without_us_have_the_same_result(harness: Harness, publish: Publish) -> None:
    devices = (device("0c", deployable(accelerators=2), deployable("r1")), device("1c"))

    def go_through(step: int) -> None:
        chance = random.Random(step)
        names = ["CUSTOM_A", "CUSTOM_B", "CUSTOM_C", TRAIT]
        its = chance.sample(names, chance.randint(0, 4))
        changed = [deployable(accelerators=chance.randint(1, 5), traits=its), deployable("r1")]
        harness.cyborg.change_device("0c", deployables=changed)
        harness.cyborg.discover()

    harness.begin(*devices)
    cards = publish()
    cycles = (cards.sync, cards.drift, cards.poll)
    for step in range(6):
        go_through(step)
        cycles[step % 3]()
        assert all(one["traits"] >= MARKS for name, one in everything().items() if name != HOST)
    with_us = without_marks(everything())

    harness.begin(*devices)
    for step in range(6):
        go_through(step)
    without_us = everything()
    without_us[HOST]["uuid"] = with_us[HOST]["uuid"]
    assert with_us == without_us
