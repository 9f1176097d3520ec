"""Devices of a real Cyborg are programmed: they are reserved meanwhile, and free afterwards.

With ``-s``, the first test prints the time of each event. tests/functional/jobs tests jobs with
failures of the driver, Placement or the database.
"""

import signal
from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.integration.devices.conftest import Begin
from tests.lab.programming import OWNER, Programming, Seen, changes, named, trait
from tests.lab.running import Running
from wharfinger import jobs
from wharfinger.exceptions import JobRefused
from wharfinger_harnesses.cyborg import deployable, device

BUS = "0c"
NO_CONTENT, CONFLICT = 204, 409
NO_FUNCTION = frozenset[str]()
#: Traits of a device of which Cyborg reports a function.
SAID = ["CUSTOM_FPGA_LAB", trait("SAID")]
PARTS = (deployable("r0"), deployable("r1"))


def timeline(lab: Programming, running: Running, seen: Sequence[Seen]) -> list[str]:
    """Return the events with their times since the start of the program, and the candidates.

    The candidates are those at the time of each event.
    """
    uuid = lab.uuid(BUS)
    happened = [(at, line.split(": ", 1)[1]) for at, line in running.told]
    happened += [
        (one["at"], f"hardware: {one['event']}")
        for one in lab.cyborg.programmings(BUS)
        if one["at"] > running.begun
    ]
    before = object()
    for one in seen:
        now = one.candidates.get(uuid)
        if now != before:
            said = "no candidate" if now is None else f"candidate with {sorted(now)}"
            happened.append((one.told, said))
        before = now
    looks = len([one for one in seen if uuid not in one.candidates])
    happened.append((seen[-1].told, f"of {len(seen)} looks, {looks} found no candidate"))
    return [f"{at - running.begun:7.3f} s  {what}" for at, what in sorted(happened)]


def test_device_is_no_candidate_while_it_is_programmed(begin: Begin) -> None:
    lab = begin(device(BUS, hold=True))
    uuid = lab.uuid(BUS)
    image = lab.cyborg.create_image("B")
    lab.cyborg.go(BUS)
    assert lab.program(BUS, lab.cyborg.create_image("A"), "A").code == 0
    assert lab.functions(uuid) == {trait("A")}
    status, consumer = lab.claim(uuid)
    assert status == NO_CONTENT
    lab.client.delete_allocations(consumer)
    with lab.watched() as seen:
        running = lab.start(BUS, image, "--function", "B")
        reserved = running.wait_for("reserved")
        begun = lab.cyborg.wait_for_programming(BUS)
        claimed_at_first, _ = lab.claim(uuid)
        running.wait_for("programming")
        assert lab.figures(uuid) == [(1, 1)]
        assert lab.functions(uuid) == {trait("A")}
        assert lab.state(BUS) == ("programming", True)
        claimed_later, _ = lab.claim(uuid)
        lab.cyborg.go(BUS)
        done = running.end()
        programmed, released = running.wait_for("programmed"), running.wait_for("released")
    assert done.code == 0, done.err
    print("\n".join(["", *timeline(lab, running, seen)]))
    assert (claimed_at_first, claimed_later) == (CONFLICT, CONFLICT)
    assert changes(seen, uuid) == [{trait("A")}, None, {trait("B")}]
    ended = lab.cyborg.wait_until_programmed(BUS)
    assert reserved < begun["at"] < ended["at"] < programmed < released
    meanwhile = [one for one in seen if one.asked > reserved and one.told < ended["at"]]
    assert meanwhile
    assert not [one for one in meanwhile if uuid in one.candidates]
    assert lab.cyborg.programmed(BUS) == image
    assert lab.figures(uuid) == [(1, 0)]
    assert lab.state(BUS) == ("programmed", False)
    assert uuid not in lab.reservations()
    assert uuid in lab.candidates(trait("B")).candidates
    assert not lab.candidates(trait("A")).candidates
    assert lab.claim(uuid)[0] == NO_CONTENT
    assert running.steps() == [
        f"{named(BUS)}: reserved: no new allocations from it",
        f"{named(BUS)}: programming: image {image}",
        f"{named(BUS)}: programmed: {trait('B')}",
        f"{named(BUS)}: released: free",
    ]
    lab.sync()
    assert lab.functions(uuid) == {trait("B")}
    assert OWNER in lab.client.get_traits(uuid).traits


def test_owners_reserved_amount_is_restored(begin: Begin) -> None:
    lab = begin(device(BUS, deployable(accelerators=3), hold=True))
    uuid = lab.uuid(BUS)
    live = lab.client.get_inventories(uuid)
    [(resource_class, inventory)] = live.inventories.items()
    mine = {resource_class: replace(inventory, reserved=2)}
    lab.client.set_inventories(uuid, live.resource_provider_generation, mine)
    working = lab.begin(BUS, lab.cyborg.create_image())
    lab.cyborg.wait_for_programming(BUS)
    assert lab.figures(uuid) == [(3, 3)]
    lab.restart()
    assert lab.figures(uuid) == [(3, 3)]
    lab.cyborg.go(BUS)
    assert working.end().code == 0
    assert lab.figures(uuid) == [(3, 2)]
    lab.sync()
    assert lab.figures(uuid) == [(3, 2)]
    assert f"{named(BUS)}: programmed: its function is unknown" in working.steps()


def test_job_that_waits_for_idle_programs_a_device_after_its_last_release(begin: Begin) -> None:
    lab = begin(device(BUS))
    uuid = lab.uuid(BUS)
    image = lab.cyborg.create_image("A")
    _, consumer = lab.claim(uuid)
    done = lab.program(BUS, image, "A")
    assert done.code == 1
    assert consumer in done.err and "--wait-for-idle" in done.err
    assert lab.state(BUS) == ("failed", False)

    working = lab.begin(BUS, image, "A", wait_for_idle=60)
    working.wait_for("waiting")
    assert lab.state(BUS) == ("waiting", True)
    assert lab.figures(uuid) == [(1, 1)]
    assert not lab.cyborg.programmings(BUS)
    with lab.watched() as seen:
        lab.client.delete_allocations(consumer)
        assert working.end().code == 0
    assert changes(seen, uuid) == [None, {trait("A")}]
    assert lab.cyborg.programmed(BUS) == image
    waits = [step for step in working.steps() if ": waiting: " in step]
    assert set(waits) == {f"{named(BUS)}: waiting: it is in use by {consumer}"}


def test_device_is_programmed_as_a_whole(begin: Begin) -> None:
    lab = begin(device(BUS, *PARTS, hold=True), device("1c"))
    parts, beside = [lab.uuid(BUS, name) for name in ("r0", "r1")], lab.uuid("1c")
    image = lab.cyborg.create_image("A")
    _, consumer = lab.claim(parts[1])
    done = lab.program(BUS, image, "A")
    assert (done.code, consumer in done.err) == (1, True)
    assert not lab.cyborg.programmings(BUS)
    lab.client.delete_allocations(consumer)
    with lab.watched() as seen:
        working = lab.begin(BUS, image, "A")
        lab.cyborg.wait_for_programming(BUS)
        assert lab.candidates().candidates.keys().isdisjoint(parts)
        lab.cyborg.go(BUS)
        assert working.end().code == 0
    for uuid in parts:
        assert changes(seen, uuid) == [NO_FUNCTION, None, {trait("A")}]
        assert lab.figures(uuid) == [(1, 0)]
    assert changes(seen, beside) == [NO_FUNCTION]
    assert lab.cyborg.programmed("1c") is None
    assert working.steps()[0].endswith(f"from it, nor from {named(BUS, 'r1')}")


def test_jobs_of_two_processes_for_one_device_have_one_winner(begin: Begin) -> None:
    lab = begin(device(BUS, *PARTS, hold=True))
    parts = [lab.uuid(BUS, name) for name in ("r0", "r1")]
    functions = ("F0", "F1")
    images = [lab.cyborg.create_image(function) for function in functions]
    with lab.watched() as seen:
        racers = [
            lab.start(BUS, image, "--function", function, name=name)
            for image, function, name in zip(images, functions, ("r0", "r1"), strict=True)
        ]
        place = images.index(lab.cyborg.wait_for_programming(BUS)["image"])
        winner, loser = racers[place], racers[1 - place]
        lost = loser.end()
        assert lost.code == 1
        assert "another job of this device is in progress or unresolved" in lost.err
        assert "wharfinger device jobs" in lost.err
        assert not loser.told
        assert not winner.when("programmed")
        lab.cyborg.go(BUS)
        assert winner.end().code == 0, winner.end().err
    assert [one["event"] for one in lab.cyborg.programmings(BUS)] == ["start", "end"]
    assert lab.cyborg.programmed(BUS) == images[place]
    held = trait(functions[place])
    for uuid in parts:
        assert changes(seen, uuid) == [NO_FUNCTION, None, {held}]
        assert lab.figures(uuid) == [(1, 0)]
        lab.says(uuid)
    # The refused job publishes no function.
    lab.restart()
    assert [lab.functions(uuid) for uuid in parts] == [{held}] * 2


def test_refused_job_publishes_no_function(begin: Begin) -> None:
    lab = begin(device(BUS, deployable(traits=SAID), deployable("r1")))
    first, second = lab.uuid(BUS), lab.uuid(BUS, "r1")
    assert lab.functions(first) == {trait("SAID")}
    assert lab.functions(second) == NO_FUNCTION
    _, consumer = lab.claim(first)
    assert lab.program(BUS, lab.cyborg.create_image("A"), "A").code == 1
    lab.client.delete_allocations(consumer)
    for said in ({trait("SAID")}, NO_FUNCTION):
        lab.restart()
        assert lab.functions(first) == said
        assert lab.functions(second) == NO_FUNCTION
        assert {first, second} <= lab.candidates().candidates.keys()
        # Cyborg then reports no function of the device.
        lab.cyborg.change_device(BUS, deployables=[*PARTS])
        lab.cyborg.discover()


def test_process_stopped_while_it_waits_releases_the_device(begin: Begin) -> None:
    lab = begin(device(BUS))
    lab.claim(lab.uuid(BUS))
    running = lab.start(BUS, lab.cyborg.create_image(), "--wait-for-idle", "60")
    running.wait_for("waiting")
    running.signal(signal.SIGINT)
    assert running.end().code != 0
    assert lab.figures(lab.uuid(BUS)) == [(1, 0)]
    assert lab.state(BUS) == ("failed", False)
    assert not lab.cyborg.programmings(BUS)


def test_process_stopped_while_it_programs_leaves_the_device_reserved(
    begin: Begin,
) -> None:
    lab = begin(device(BUS, hold=True))
    uuid = lab.uuid(BUS)
    running = lab.start(BUS, lab.cyborg.create_image("A"), "--function", "A")
    lab.cyborg.wait_for_programming(BUS)
    running.wait_for("programming")
    with lab.watched() as seen:
        running.signal(signal.SIGTERM)
        done = running.end()
        assert done.code != 0
        assert lab.state(BUS) == ("unknown", True)
        lab.cyborg.go(BUS)
        lab.cyborg.wait_until_programmed(BUS)
        lab.sync()
    assert changes(seen, uuid) == [None]
    assert "Traceback" not in done.err
    listed = lab.run("device", "jobs", "--unfinished", "-f", "json").json()
    assert [(one["Provider"], one["State"]) for one in listed] == [(named(BUS), "unknown")]
    resolved = lab.run("device", "resolve", named(BUS), "--programmed")
    assert resolved.code == 0, resolved.err
    assert lab.candidates().candidates[uuid] == {trait("A")}
    assert lab.figures(uuid) == [(1, 0)]


def test_inventory_that_cyborgs_agent_reports_during_a_job_is_reserved(begin: Begin) -> None:
    lab = begin(device(BUS, deployable(accelerators=2), hold=True))
    uuid = lab.uuid(BUS)
    with lab.watched() as seen:
        working = lab.begin(BUS, lab.cyborg.create_image("A"), "A")
        lab.cyborg.wait_for_programming(BUS)
        lab.cyborg.discover()
        assert lab.figures(uuid) == [(2, 2)]
        lab.cyborg.go(BUS)
        assert working.end().code == 0
        lab.cyborg.discover()
    assert changes(seen, uuid) == [NO_FUNCTION, None, {trait("A")}]
    assert lab.figures(uuid) == [(2, 0)]
    assert OWNER in lab.client.get_traits(uuid).traits

    working = lab.begin(BUS, lab.cyborg.create_image("B"), "B")
    lab.cyborg.wait_for_programming(BUS)
    lab.cyborg.resize(BUS, 4)
    lab.cyborg.discover()
    lab.wait("it is not reserved again", lambda: lab.figures(uuid) == [(4, 4)])
    assert uuid not in lab.candidates().candidates
    lab.cyborg.go(BUS)
    assert working.end().code == 0
    assert lab.figures(uuid) == [(4, 0)]
    assert lab.functions(uuid) == {trait("B")}


def program_and_die(lab: Programming, image: str) -> None:
    """Begin to program a device in a process, and kill the process."""
    running = lab.start(BUS, image, "--function", "A")
    lab.cyborg.wait_for_programming(BUS)
    running.kill()


def test_cycle_after_the_death_of_a_job_reserves_the_device_again(begin: Begin) -> None:
    lab = begin(device(BUS, deployable(accelerators=2), hold=True))
    uuid = lab.uuid(BUS)
    image = lab.cyborg.create_image("A")
    program_and_die(lab, image)
    lab.cyborg.resize(BUS, 4)
    lab.cyborg.discover()
    assert lab.figures(uuid) == [(4, 0)]
    lab.drift()
    assert lab.figures(uuid) == [(4, 4)]
    lab.cyborg.go(BUS)
    lab.cyborg.wait_until_programmed(BUS)
    with pytest.raises(JobRefused, match="the job of the device is in progress"):
        lab.resolve_by_looking(BUS, image)
    lab.time_passes(BUS)
    assert lab.state(BUS) == ("interrupted while programming", True)
    lab.resolve_by_looking(BUS, image)
    assert lab.figures(uuid) == [(4, 0)]
    assert lab.functions(uuid) == {trait("A")}


def test_reservation_of_a_removed_device_does_not_reserve_a_new_one(begin: Begin) -> None:
    lab = begin(device(BUS, *PARTS, hold=True), device("1c"))
    parts = [lab.uuid(BUS, name) for name in ("r0", "r1")]
    program_and_die(lab, lab.cyborg.create_image("A"))
    lab.cyborg.go(BUS)
    lab.cyborg.wait_until_programmed(BUS)
    lab.time_passes(BUS)
    lab.cyborg.remove_device(BUS)
    lab.cyborg.discover()
    lab.restart()
    assert set(lab.reservations()) == {*parts}

    # The job can be resolved by any part of the device.
    assert jobs.resolve(lab.client, lab.context, parts[1], programmed=True) is None

    assert not lab.reservations()
    assert lab.job(BUS) is None
    lab.cyborg.add_device(BUS, *PARTS)
    lab.cyborg.discover()
    lab.restart()
    assert [lab.cyborg.deployable(BUS, name)["rp_uuid"] for name in ("r0", "r1")] == parts
    for uuid in parts:
        assert lab.figures(uuid) == [(1, 0)]
        assert lab.functions(uuid) == NO_FUNCTION
    assert lab.program(BUS, lab.cyborg.create_image("B"), "B").code == 0
