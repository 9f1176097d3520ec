"""Devices of a real Cyborg are programmed: nobody can have them meanwhile, then anybody can again.

With ``-s``, the end-to-end test prints when everything happened.
"""

import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import pytest

from tests.lab.programming import (
    OWNER,
    Programming,
    Seen,
    changes,
    named,
    trait,
)
from tests.lab.running import Running, Working
from wharfinger import jobs
from wharfinger.exceptions import JobRefused
from wharfinger.placement.embedded import EmbeddedPlacement
from wharfinger_harnesses.cyborg import deployable, device

NO_CONTENT, CONFLICT = 204, 409
NO_FUNCTION = frozenset[str]()
#: What its own attributes say of a device that Cyborg found to hold something.
SAID = ["CUSTOM_FPGA_LAB", trait("SAID")]
#: One for each test: it leaves its own as it likes.
DEVICES = [
    device("01", hold=True),
    device("02", deployable(accelerators=3), hold=True),
    device("03"),
    device("04"),
    device("05"),
    device("06", deployable("r0"), deployable("r1"), hold=True),
    device("07", deployable("r0"), deployable("r1"), hold=True),
    device("08", hold=True),
    device("09", hold=True),
    device("0a"),
    device("0b", deployable(traits=SAID), deployable("r1")),
    device("0c", deployable("r0"), deployable("r1"), hold=True),
    device("0d", hold=True),
    device("0e"),
    device("0f", deployable(accelerators=2), hold=True),
    device("10", deployable(accelerators=2), hold=True),
]


@pytest.fixture(scope="module")
def lab(placement_service: EmbeddedPlacement) -> Iterator[Programming]:
    with Programming(placement_service, *DEVICES) as lab:
        yield lab


def timeline(lab: Programming, running: Running, seen: Sequence[Seen], bus: str) -> list[str]:
    """What happened when, in seconds since the program was started, and what could be had then."""
    uuid = lab.uuid(bus)
    happened = [(at, line.split(": ", 1)[1]) for at, line in running.told]
    happened += [
        (one["at"], f"hardware: {one['event']}")
        for one in lab.cyborg.programmings(bus)
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


def test_nobody_can_have_a_device_while_it_is_programmed(lab: Programming) -> None:
    uuid = lab.uuid("01")
    image = lab.cyborg.create_image("B")
    lab.cyborg.go("01")
    assert lab.program("01", lab.cyborg.create_image("A"), "A").code == 0
    assert lab.functions(uuid) == {trait("A")}
    status, consumer = lab.claim(uuid)
    assert status == NO_CONTENT
    lab.client.delete_allocations(consumer)
    with lab.watched() as seen:
        running = lab.start("01", image, "--function", "B")
        reserved = running.wait_for("reserved")
        begun = lab.cyborg.wait_for_programming("01")
        claimed_at_first, _ = lab.claim(uuid)
        running.wait_for("programming")
        assert lab.figures(uuid) == [(1, 1)]
        assert lab.functions(uuid) == {trait("A")}
        assert lab.state("01") == ("programming", True)
        claimed_later, _ = lab.claim(uuid)
        lab.cyborg.go("01")
        done = running.end()
        programmed, released = running.wait_for("programmed"), running.wait_for("released")
    assert done.code == 0, done.err
    print("\n".join(["", *timeline(lab, running, seen, "01")]))
    assert (claimed_at_first, claimed_later) == (CONFLICT, CONFLICT)
    assert changes(seen, uuid) == [{trait("A")}, None, {trait("B")}]
    ended = lab.cyborg.wait_until_programmed("01")
    assert reserved < begun["at"] < ended["at"] < programmed < released
    meanwhile = [one for one in seen if one.asked > reserved and one.told < ended["at"]]
    assert meanwhile
    assert not [one for one in meanwhile if uuid in one.candidates]
    assert lab.cyborg.programmed("01") == image
    assert lab.figures(uuid) == [(1, 0)]
    assert lab.state("01") == ("programmed", False)
    assert uuid not in lab.reservations()
    assert uuid in lab.candidates(trait("B")).candidates
    assert not lab.candidates(trait("A")).candidates
    assert lab.claim(uuid)[0] == NO_CONTENT
    assert running.steps() == [
        f"{named('01')}: reserved: nothing more can be allocated from it",
        f"{named('01')}: programming: image {image}",
        f"{named('01')}: programmed: {trait('B')}",
        f"{named('01')}: released: free",
    ]
    lab.sync()
    assert lab.functions(uuid) == {trait("B")}
    assert OWNER in lab.client.get_traits(uuid).traits


def test_what_its_owner_has_reserved_is_so_again(lab: Programming) -> None:
    uuid = lab.uuid("02")
    live = lab.client.get_inventories(uuid)
    [(resource_class, inventory)] = live.inventories.items()
    mine = {resource_class: replace(inventory, reserved=2)}
    lab.client.set_inventories(uuid, live.resource_provider_generation, mine)
    working = lab.begin("02", lab.cyborg.create_image())
    lab.cyborg.wait_for_programming("02")
    assert lab.figures(uuid) == [(3, 3)]
    lab.restart()
    assert lab.figures(uuid) == [(3, 3)]
    lab.cyborg.go("02")
    assert working.end().code == 0
    assert lab.figures(uuid) == [(3, 2)]
    lab.sync()
    assert lab.figures(uuid) == [(3, 2)]
    assert f"{named('02')}: programmed: nothing says which function it has" in working.steps()


def test_what_is_in_use_is_not_programmed(lab: Programming) -> None:
    uuid = lab.uuid("03")
    _, consumer = lab.claim(uuid)
    done = lab.program("03", lab.cyborg.create_image("A"), "A")
    assert done.code == 1
    assert consumer in done.err and "--wait-for-idle" in done.err
    assert not lab.cyborg.programmings("03")
    assert lab.figures(uuid) == [(1, 0)]
    assert lab.functions(uuid) == NO_FUNCTION
    assert lab.state("03") == ("failed", False)
    lab.client.delete_allocations(consumer)
    assert uuid in lab.candidates().candidates


def test_what_is_in_use_is_waited_for(lab: Programming) -> None:
    uuid = lab.uuid("04")
    image = lab.cyborg.create_image("A")
    _, consumer = lab.claim(uuid)
    working = lab.begin("04", image, "A", wait_for_idle=60)
    working.wait_for("waiting")
    assert lab.state("04") == ("waiting", True)
    assert lab.figures(uuid) == [(1, 1)]
    assert not lab.cyborg.programmings("04")
    with lab.watched() as seen:
        lab.client.delete_allocations(consumer)
        assert working.end().code == 0
    assert changes(seen, uuid) == [None, {trait("A")}]
    assert lab.cyborg.programmed("04") == image
    waits = [step for step in working.steps() if ": waiting: " in step]
    assert set(waits) == {f"{named('04')}: waiting: it is in use by {consumer}"}


def test_waiting_has_an_end(lab: Programming) -> None:
    uuid = lab.uuid("05")
    _, consumer = lab.claim(uuid)
    working = lab.begin("05", lab.cyborg.create_image("A"), wait_for_idle=0.5)
    done = working.end()
    assert done.code == 1
    assert f"after 0.5 s of waiting: it is in use by {consumer}" in done.err
    assert working.when("waiting") is not None
    assert not lab.cyborg.programmings("05")
    assert lab.figures(uuid) == [(1, 0)]
    assert lab.state("05") == ("failed", False)


def test_a_device_is_programmed_as_a_whole(lab: Programming) -> None:
    first, second, beside = lab.uuid("06", "r0"), lab.uuid("06", "r1"), lab.uuid("0e")
    image = lab.cyborg.create_image("A")
    _, consumer = lab.claim(second)
    done = lab.program("06", image, "A")
    assert (done.code, consumer in done.err) == (1, True)
    assert not lab.cyborg.programmings("06")
    lab.client.delete_allocations(consumer)
    with lab.watched() as seen:
        working = lab.begin("06", image, "A")
        lab.cyborg.wait_for_programming("06")
        assert {first, second}.isdisjoint(lab.candidates().candidates)
        lab.cyborg.go("06")
        assert working.end().code == 0
    for uuid in (first, second):
        assert changes(seen, uuid) == [NO_FUNCTION, None, {trait("A")}]
        assert lab.figures(uuid) == [(1, 0)]
    assert changes(seen, beside) == [NO_FUNCTION]
    assert lab.cyborg.programmed("0e") is None
    assert working.steps() == [
        f"{named('06')}: reserved: nothing more can be allocated from it, nor from "
        f"{named('06', 'r1')}",
        f"{named('06')}: programming: image {image}",
        f"{named('06')}: programmed: {trait('A')}",
        *(
            f"{named('06')}: released: {named('06', name)}: free"
            for name in sorted(("r0", "r1"), key=lambda name: lab.uuid("06", name))
        ),
    ]


def compete(
    lab: Programming,
    bus: str,
    names: Sequence[str],
    begin: Callable[[str, str, str, str], Running | Working],
) -> tuple[str, str]:
    """Have so many load an image of their own each; the image, and its trait, that came to be."""
    functions = [f"F{number}" for number in range(len(names))]
    images = [lab.cyborg.create_image(function) for function in functions]
    racers = [begin(bus, *how) for how in zip(images, functions, names, strict=True)]
    begun = lab.cyborg.wait_for_programming(bus)
    place = images.index(begun["image"])
    winner = racers[place]
    for one in racers:
        if one is not winner:
            lost = one.end()
            assert lost.code == 1
            assert "another job has it, or has left it unresolved" in lost.err
            assert "wharfinger device jobs" in lost.err
            assert not one.told
    assert not winner.when("programmed")
    lab.cyborg.go(bus)
    assert winner.end().code == 0, winner.end().err
    assert [one["event"] for one in lab.cyborg.programmings(bus)] == ["start", "end"]
    return begun["image"], trait(functions[place])


@pytest.mark.parametrize(("bus", "count"), [("08", 2), ("09", 8)], ids=["processes", "threads"])
def test_of_several_jobs_one_programs_a_device(lab: Programming, bus: str, count: int) -> None:
    def begin(bus: str, image: str, function: str, _name: str) -> Running | Working:
        if bus == "08":
            return lab.start(bus, image, "--function", function)
        return lab.begin(bus, image, function)

    uuid = lab.uuid(bus)
    with lab.watched() as seen:
        image, held = compete(lab, bus, ["r0"] * count, begin)
    assert lab.cyborg.programmed(bus) == image
    assert changes(seen, uuid) == [NO_FUNCTION, None, {held}]
    assert lab.figures(uuid) == [(1, 0)]
    assert lab.state(bus) == ("programmed", False)


def test_of_jobs_for_two_parts_of_a_device_one_goes(lab: Programming) -> None:
    def begin(bus: str, image: str, function: str, name: str) -> Running | Working:
        return lab.begin(bus, image, function, name=name)

    parts = [lab.uuid("07", name) for name in ("r0", "r1")]
    with lab.watched() as seen:
        image, held = compete(lab, "07", ["r0", "r1"], begin)
    assert lab.cyborg.programmed("07") == image
    for uuid in parts:
        assert changes(seen, uuid) == [NO_FUNCTION, None, {held}]
        assert lab.figures(uuid) == [(1, 0)]
    # Who has lost says nothing of what they hold.
    for uuid in parts:
        lab.says(uuid)
    lab.restart()
    assert [lab.functions(uuid) for uuid in parts] == [{held}] * 2


def test_a_job_that_comes_to_nothing_says_nothing(lab: Programming) -> None:
    first, second = lab.uuid("0b"), lab.uuid("0b", "r1")
    assert lab.functions(first) == {trait("SAID")}
    assert lab.functions(second) == NO_FUNCTION
    _, consumer = lab.claim(first)
    assert lab.program("0b", lab.cyborg.create_image("A"), "A").code == 1
    lab.client.delete_allocations(consumer)
    for said in ({trait("SAID")}, NO_FUNCTION):
        lab.restart()
        assert lab.functions(first) == said
        assert lab.functions(second) == NO_FUNCTION
        assert {first, second} <= lab.candidates().candidates.keys()
        # Cyborg finds nothing on it any more.
        lab.cyborg.change_device("0b", deployables=[deployable(), deployable("r1")])
        lab.cyborg.discover()


def test_who_is_stopped_while_he_waits_lets_go(lab: Programming) -> None:
    uuid = lab.uuid("0a")
    lab.claim(uuid)
    running = lab.start("0a", lab.cyborg.create_image(), "--wait-for-idle", "60")
    running.wait_for("waiting")
    running.signal(signal.SIGINT)
    assert running.end().code != 0
    assert lab.figures(uuid) == [(1, 0)]
    assert lab.state("0a") == ("failed", False)
    assert not lab.cyborg.programmings("0a")


def test_who_is_stopped_while_he_programs_leaves_it_reserved(lab: Programming) -> None:
    uuid = lab.uuid("0d")
    image = lab.cyborg.create_image("A")
    running = lab.start("0d", image, "--function", "A")
    lab.cyborg.wait_for_programming("0d")
    running.wait_for("programming")
    with lab.watched() as seen:
        running.signal(signal.SIGTERM)
        done = running.end()
        assert done.code != 0
        assert lab.state("0d") == ("unknown", True)
        lab.cyborg.go("0d")
        lab.cyborg.wait_until_programmed("0d")
        lab.sync()
    assert changes(seen, uuid) == [None]
    assert "Traceback" not in done.err
    listed = lab.run("device", "jobs", "--unfinished", "-f", "json").json()
    assert [(one["Provider"], one["State"]) for one in listed] == [(named("0d"), "unknown")]
    resolved = lab.run("device", "resolve", named("0d"), "--programmed")
    assert resolved.code == 0, resolved.err
    assert lab.candidates().candidates[uuid] == {trait("A")}
    assert lab.figures(uuid) == [(1, 0)]


def test_what_cyborgs_agent_reports_meanwhile_changes_nothing(lab: Programming) -> None:
    uuid = lab.uuid("0f")
    image = lab.cyborg.create_image("A")
    with lab.watched() as seen:
        working = lab.begin("0f", image, "A")
        lab.cyborg.wait_for_programming("0f")
        lab.cyborg.discover()
        assert lab.figures(uuid) == [(2, 2)]
        lab.cyborg.go("0f")
        assert working.end().code == 0
        lab.cyborg.discover()
    assert changes(seen, uuid) == [NO_FUNCTION, None, {trait("A")}]
    assert lab.figures(uuid) == [(2, 0)]
    assert OWNER in lab.client.get_traits(uuid).traits


def test_a_job_reserves_again_what_cyborg_has_changed(lab: Programming) -> None:
    uuid = lab.uuid("0f")
    working = lab.begin("0f", lab.cyborg.create_image("B"), "B")
    lab.cyborg.wait_for_programming("0f")
    lab.cyborg.resize("0f", 4)
    lab.cyborg.discover()
    lab.wait("it is not reserved again", lambda: lab.figures(uuid) == [(4, 4)])
    assert uuid not in lab.candidates().candidates
    lab.cyborg.go("0f")
    assert working.end().code == 0
    assert lab.figures(uuid) == [(4, 0)]
    assert lab.functions(uuid) == {trait("B")}


def left(lab: Programming, bus: str, image: str) -> None:
    """A device is programmed, and the process that has had that done is gone."""
    running = lab.start(bus, image, "--function", "A")
    lab.cyborg.wait_for_programming(bus)
    running.kill()


def test_where_the_job_is_gone_a_cycle_reserves_it_again(lab: Programming) -> None:
    uuid = lab.uuid("10")
    image = lab.cyborg.create_image("A")
    left(lab, "10", image)
    lab.cyborg.resize("10", 4)
    lab.cyborg.discover()
    assert lab.figures(uuid) == [(4, 0)]
    lab.drift()
    assert lab.figures(uuid) == [(4, 4)]
    lab.cyborg.go("10")
    lab.cyborg.wait_until_programmed("10")
    with pytest.raises(JobRefused, match="is at work on it"):
        lab.resolve_by_looking("10", image)
    lab.time_passes("10")
    assert lab.state("10") == ("interrupted while programming", True)
    lab.resolve_by_looking("10", image)
    assert lab.figures(uuid) == [(4, 0)]
    assert lab.functions(uuid) == {trait("A")}


def test_what_is_left_of_a_device_that_is_gone_does_not_reserve_another(lab: Programming) -> None:
    parts = [lab.uuid("0c", name) for name in ("r0", "r1")]
    left(lab, "0c", lab.cyborg.create_image("A"))
    lab.cyborg.go("0c")
    lab.cyborg.wait_until_programmed("0c")
    lab.time_passes("0c")
    lab.cyborg.remove_device("0c")
    lab.cyborg.discover()
    lab.restart()
    assert set(lab.reservations()) == {*parts}

    # By any of its parts.
    assert jobs.resolve(lab.client, lab.context, parts[1], programmed=True) is None

    assert not lab.reservations()
    assert lab.job("0c") is None
    lab.cyborg.add_device("0c", deployable("r0"), deployable("r1"))
    lab.cyborg.discover()
    lab.restart()
    assert [lab.cyborg.deployable("0c", name)["rp_uuid"] for name in ("r0", "r1")] == parts
    for uuid in parts:
        assert lab.figures(uuid) == [(1, 0)]
        assert lab.functions(uuid) == NO_FUNCTION
    assert lab.program("0c", lab.cyborg.create_image("B"), "B").code == 0
