"""What goes wrong while a device is programmed: where nobody knows what it holds, nobody has it."""

import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from typing import Any
from uuid import uuid4

import pytest

from tests.lab.faults import BAD_REQUEST, FAULTS, Request
from tests.lab.program import Done
from tests.lab.programming import Programming, changes, sound, trait
from tests.lab.running import Working
from wharfinger.exceptions import JobRefused
from wharfinger.placement.embedded import EmbeddedPlacement
from wharfinger_harnesses.cyborg import deployable, device

FAILURES = {"fails": "01", "fails late": "02", "raises": "03", "raises late": "04"}
REFUSALS = ("400", "401", "403", "404", "409")
LOST = ("reset", "reset when done", "500", "503", "nonsense when done")
REFUSED, ANSWERED, NO_IMAGE, SWEPT, CYCLED, GPU = ("05", "06", "10", "11", "12", "13")
#: What is loaded into these waits for a go.
CYBORG_KILLED, CYBORG_LATE, LATE, AT_WORK, NO_PLACEMENT = HELD = ("21", "22", "23", "24", "25")
DEVICES = [
    *(device(bus, programming=how) for how, bus in FAILURES.items()),
    *(device(bus) for bus in (REFUSED, ANSWERED, NO_IMAGE, SWEPT, CYCLED)),
    *(device(bus, hold=True) for bus in HELD),
    device(GPU, deployable(resource_class="PGPU"), kind="GPU"),
]
#: Seconds that Cyborg waits for its agent.
PATIENCE = 4
#: From this request on Placement is away.
AWAY = "refused"
SWEEP = ("503", "reset when done", AWAY)
NO_FUNCTION = frozenset[str]()


@pytest.fixture(scope="module")
def lab(placement_service: EmbeddedPlacement) -> Iterator[Programming]:
    options = {"DEFAULT": {"rpc_response_timeout": PATIENCE}}
    with Programming(placement_service, *DEVICES, options=options, is_between=True) as lab:
        yield lab


def is_programming(request: Request) -> bool:
    return request.method == "PATCH"


def is_unknown(lab: Programming, bus: str) -> bool:
    """Whether a job is one that somebody has to decide on, and the device reserved for that."""
    uuid = lab.uuid(bus)
    return (
        lab.state(bus) == ("unknown", True)
        and uuid in lab.reservations()
        and lab.figures(uuid) == [(1, 1)]
        and uuid not in lab.candidates().candidates
    )


def check_end(lab: Programming, bus: str, functions: frozenset[str] | set[str]) -> None:
    """A device is free, and says what it holds; an agent changes nothing of that."""
    uuid = lab.uuid(bus)
    is_so = (functions, [(1, 0)], False)
    assert state(lab, uuid) == is_so
    lab.restart()
    assert state(lab, uuid) == is_so


def state(lab: Programming, uuid: str) -> tuple[frozenset[str] | None, list[tuple[int, int]], bool]:
    """What can be had of a provider, its figures, and whether it is reserved."""
    can_be_had = lab.candidates().candidates.get(uuid)
    return can_be_had, lab.figures(uuid), uuid in lab.reservations()


def resolve(lab: Programming, bus: str, image: str, function: str) -> None:
    """Decide on what is not known, by looking at the device."""
    old = lab.functions(lab.uuid(bus))
    lab.restart()
    assert is_unknown(lab, bus)
    lab.resolve_by_looking(bus, image)
    check_end(lab, bus, {trait(function)} if lab.cyborg.programmed(bus) == image else old)


@pytest.mark.parametrize("how", FAILURES)
def test_a_device_that_fails_is_not_known(lab: Programming, how: str) -> None:
    bus = FAILURES[how]
    image = lab.cyborg.create_image("A")
    done = lab.program(bus, image, "A")
    assert done.code == 1
    assert "It stays reserved" in done.err and "device resolve" in done.err
    refused = lab.program(bus, image, "A")
    assert "has left it unresolved" in refused.err
    assert len(lab.cyborg.programmings(bus)) == 2
    assert (lab.cyborg.programmed(bus) == image) == how.endswith("late")
    resolve(lab, bus, image, "A")


@pytest.mark.parametrize("how", REFUSALS)
def test_what_cyborg_refuses_has_not_begun(lab: Programming, how: str) -> None:
    bus = REFUSED
    fault = BAD_REQUEST if how == "400" else FAULTS[how]
    lab.to_cyborg.expect(is_programming, replace(fault, carried_out=frozenset()))
    done = lab.program(bus, lab.cyborg.create_image("A"), "A")
    assert lab.to_cyborg.struck == 1
    lab.to_cyborg.expect()
    assert done.code == 1
    assert "was refused" in done.err and how in done.err
    assert lab.state(bus) == ("failed", False)
    assert not lab.cyborg.programmings(bus)
    check_end(lab, bus, NO_FUNCTION)


@pytest.mark.parametrize("how", LOST)
def test_what_cyborg_does_not_say_is_not_known(lab: Programming, how: str) -> None:
    bus = ANSWERED
    function = f"L{LOST.index(how)}"
    fault = FAULTS[how]
    is_carried_out = "PUT" in fault.carried_out
    if is_carried_out:
        fault = replace(fault, carried_out=frozenset({"PATCH"}))
    image = lab.cyborg.create_image(function)
    lab.to_cyborg.expect(is_programming, fault)
    done = lab.program(bus, image, function)
    assert lab.to_cyborg.struck == 1
    lab.to_cyborg.expect()
    assert done.code == 1
    assert "It stays reserved" in done.err
    assert (lab.cyborg.programmed(bus) == image) == is_carried_out
    resolve(lab, bus, image, function)


def test_an_image_that_glance_does_not_have_is_not_loaded(lab: Programming) -> None:
    image = str(uuid4())
    done = lab.program(NO_IMAGE, image, "A")
    assert done.code == 1
    assert f"Image not found with uuid={image}" in done.err
    assert not lab.cyborg.programmings(NO_IMAGE)
    assert lab.state(NO_IMAGE) == ("failed", False)
    check_end(lab, NO_IMAGE, NO_FUNCTION)


def test_what_no_driver_of_cyborgs_programs_is_free_again(lab: Programming) -> None:
    """Its agent finds that out before anything else."""
    uuid = lab.uuid(GPU)
    done = lab.program(GPU, lab.cyborg.create_image("A"), "A")
    assert done.code == 1
    assert "was refused" in done.err and "Not find the FPGA driver" in done.err
    assert lab.state(GPU) == ("failed", False)
    assert not lab.cyborg.programmings(GPU)
    assert lab.figures(uuid) == [(1, 0)]
    assert lab.functions(uuid) == NO_FUNCTION
    assert uuid not in lab.reservations()


@pytest.fixture(scope="module")
def requests(lab: Programming) -> int:
    """How many requests to Placement a job makes that goes well, where it was programmed before."""
    for function in ("A", "B"):
        lab.to_placement.expect()
        done = lab.program(SWEPT, lab.cyborg.create_image(function), function)
        assert done.code == 0, done.err
    return len(lab.to_placement.seen)


@pytest.mark.parametrize("first", range(len(SWEEP)), ids=SWEEP)
def test_placement_fails_at_each_request(lab: Programming, requests: int, first: int) -> None:
    """At each with one of the faults in turn; here those with the one that is named."""
    assert requests > len(SWEEP)
    faults = [
        fault
        for place in range(first, requests, len(SWEEP))
        for fault in strike(lab, place, SWEEP[first])
    ]
    assert not faults, "\n".join(faults)


def strike(lab: Programming, place: int, fault: str) -> Iterator[str]:
    """Have a request of a job fail, and decide on what is left; what is wrong with that."""
    uuid = lab.uuid(SWEPT)
    old = frozenset(lab.functions(uuid))
    function = f"F{place}"
    image = lab.cyborg.create_image(function)
    lab.to_placement.expect(place, FAULTS[fault])
    done = lab.program(SWEPT, image, function)
    asked, struck = lab.to_placement.seen[place : place + 1], lab.to_placement.struck
    lab.to_placement.expect()
    seen = [lab.candidates().candidates.get(uuid)]
    lab.restart()
    seen.append(lab.candidates().candidates.get(uuid))
    is_loaded = lab.cyborg.programmed(SWEPT) == image
    truth = frozenset({trait(function)}) if is_loaded else old
    state, is_reserved = lab.state(SWEPT)
    before = f"{place} {asked}: {state}, reserved: {is_reserved}, loaded: {is_loaded}"
    print(before)
    if not struck:
        yield f"{before}: nothing happened"
    if set(seen) - {truth, None} or (is_reserved and seen[-1] is not None):
        yield f"{before}: {seen} could be had"
    if (done.code == 0) != (is_loaded and state == "programmed" and not is_reserved):
        yield f"{before}: {done}"
    if is_reserved or state not in ("programmed", "failed"):
        lab.time_passes(SWEPT)
        lab.resolve_by_looking(SWEPT, image)
        lab.restart()
    end = (lab.candidates().candidates.get(uuid), lab.figures(uuid))
    if end != (truth, [(1, 0)]) or uuid in lab.reservations():
        yield f"{before}: {end} at the end"


def hold(lab: Programming, bus: str, image: str, **more: Any) -> Working:
    """Begin to program a device that holds there."""
    working = lab.begin(bus, image, "A", **more)
    lab.cyborg.wait_for_programming(bus)
    return working


def test_cyborg_is_killed_midway(lab: Programming) -> None:
    bus = CYBORG_KILLED
    direct = lab.configure("direct.conf", endpoint=lab.cyborg.url)
    image = lab.cyborg.create_image("A")
    with lab.watched() as seen:
        working = hold(lab, bus, image, config=direct)
        lab.cyborg.stop(signal.SIGKILL)
        done = working.end()
        assert (done.code, "It stays reserved" in done.err) == (1, True)
        assert lab.state(bus) == ("unknown", True)
        lab.cyborg.start_again()
        lab.cyborg.discover()
        lab.restart()
    assert changes(seen, lab.uuid(bus)) == [NO_FUNCTION, None]
    assert lab.cyborg.programmed(bus) is None
    resolve(lab, bus, image, "A")
    again = hold(lab, bus, image)
    lab.cyborg.go(bus)
    assert again.end().code == 0
    check_end(lab, bus, {trait("A")})


@pytest.mark.parametrize(
    ("bus", "driver", "said"),
    [(CYBORG_LATE, {}, "500"), (LATE, {"program_timeout": 2}, "timed out")],
    ids=["Cyborg's", "ours"],
)
def test_what_takes_too_long_goes_on_reserved(
    lab: Programming, bus: str, driver: dict[str, int], said: str
) -> None:
    uuid = lab.uuid(bus)
    image = lab.cyborg.create_image("A")
    with lab.watched() as seen:
        working = hold(lab, bus, image, config=lab.configure("hasty.conf", **driver))
        done = working.end()
        assert done.code == 1
        assert said in done.err and "It stays reserved" in done.err
        assert lab.cyborg.underway(bus)
        assert is_unknown(lab, bus)
        lab.cyborg.go(bus)
        lab.cyborg.wait_until_programmed(bus)
        lab.cyborg.discover()
        lab.restart()
        assert is_unknown(lab, bus)
    assert changes(seen, uuid) == [NO_FUNCTION, None]
    # It holds the image; what is said is believed.
    if bus == LATE:
        lab.resolve(uuid, programmed=True, trait=trait("OTHER"))
        check_end(lab, bus, {trait("OTHER")})
        assert lab.state(bus) == ("programmed", False)
    else:
        lab.resolve(uuid, programmed=False)
        check_end(lab, bus, NO_FUNCTION)
        assert lab.state(bus) == ("failed", False)
    with pytest.raises(JobRefused, match="no job has left anything of it"):
        lab.resolve(uuid, programmed=True)


def test_nobody_decides_on_a_job_that_is_at_work(lab: Programming) -> None:
    image = lab.cyborg.create_image("A")
    working = hold(lab, AT_WORK, image)
    working.wait_for("programming")
    for programmed in (False, True):
        with pytest.raises(JobRefused, match=rf"process {os.getpid()} on ctl is at work on it"):
            lab.resolve(lab.uuid(AT_WORK), programmed=programmed)
    lab.cyborg.go(AT_WORK)
    assert working.end().code == 0
    check_end(lab, AT_WORK, {trait("A")})


def test_a_job_is_at_work_while_placement_is_away(lab: Programming) -> None:
    """It says so all the same, as often as it would."""
    image = lab.cyborg.create_image("A")
    working = hold(lab, NO_PLACEMENT, image, down_time=3.0)
    working.wait_for("programming")
    lab.to_placement.expect(lambda _request: True, replace(FAULTS["503"], persistent=True))
    begun = lab.job(NO_PLACEMENT)
    assert begun is not None
    lab.wait("it says nothing", lambda: said_later(lab, begun.seen_at))
    assert lab.state(NO_PLACEMENT) == ("programming", True)
    lab.to_placement.expect()
    lab.cyborg.go(NO_PLACEMENT)
    assert working.end().code == 0
    check_end(lab, NO_PLACEMENT, {trait("A")})


def test_a_cycle_that_began_before_a_job_ended_does_not_say_what_was_held_before(
    lab: Programming,
) -> None:
    """Cyborg's listing, in which the job ends, takes long."""
    bus = CYCLED
    assert lab.program(bus, lab.cyborg.create_image("A"), "A").code == 0
    with lab.cycle() as cycle:
        sound(cycle.sync())
        ends: list[Done] = []

        def program() -> None:
            ends.append(lab.program(bus, lab.cyborg.create_image()))

        lab.to_cyborg.act(0, program)
        sound(cycle.sync())
        lab.to_cyborg.expect()
        assert [done.code for done in ends] == [0]
        for again in (cycle.sync, cycle.drift):
            assert state(lab, lab.uuid(bus)) == (NO_FUNCTION, [(1, 0)], False)
            sound(again())
    check_end(lab, bus, NO_FUNCTION)


def said_later(lab: Programming, before: datetime) -> bool:
    """Whether a job was heard of after that."""
    job = lab.job(NO_PLACEMENT)
    return job is not None and job.seen_at > before
