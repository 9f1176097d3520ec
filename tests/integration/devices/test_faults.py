"""Failures while a device is programmed: a device whose function is unknown stays reserved."""

import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from typing import Any
from uuid import uuid4

import pytest

from tests.integration.devices.conftest import Begin
from tests.lab.drawing import Draw
from tests.lab.faults import BAD_REQUEST, FAULTS, Request
from tests.lab.program import Done
from tests.lab.programming import Programming, changes, sound, trait
from tests.lab.running import Working
from wharfinger.exceptions import JobRefused
from wharfinger_harnesses.cyborg import deployable, device

FAILURES = ("fails", "fails late", "raises", "raises late")
REFUSALS = ("400", "404")
LOST = ("reset when done", "500", "nonsense when done")
BUS = "0c"
#: A device on which the loading of an image waits for a signal.
HELD = device(BUS, hold=True)
#: A fault after which Placement stays down.
AWAY = "refused"
SWEEP = ("503", "reset when done", AWAY)
#: The least number of requests to Placement in a successful job for a device that was programmed
#: before.
REQUESTS = 10
NO_FUNCTION = frozenset[str]()


def is_programming(request: Request) -> bool:
    return request.method == "PATCH"


def is_unknown(lab: Programming, bus: str) -> bool:
    """Return whether the job's outcome is unknown, and the device is reserved and no candidate."""
    uuid = lab.uuid(bus)
    return (
        lab.state(bus) == ("unknown", True)
        and uuid in lab.reservations()
        and lab.figures(uuid) == [(1, 1)]
        and uuid not in lab.candidates().candidates
    )


def check_end(lab: Programming, bus: str, functions: frozenset[str] | set[str]) -> None:
    """Assert that the device is free with this function, also after a restart of the agent."""
    uuid = lab.uuid(bus)
    expected = (functions, [(1, 0)], False)
    assert state(lab, uuid) == expected
    lab.restart()
    assert state(lab, uuid) == expected


def state(lab: Programming, uuid: str) -> tuple[frozenset[str] | None, list[tuple[int, int]], bool]:
    """Return the device's functions as a candidate, its inventory, and whether it is reserved."""
    candidate_functions = lab.candidates().candidates.get(uuid)
    return candidate_functions, lab.figures(uuid), uuid in lab.reservations()


def resolve(lab: Programming, bus: str, image: str, function: str) -> None:
    """Resolve the job as the device shows: programmed if the device has the image."""
    old = lab.functions(lab.uuid(bus))
    lab.restart()
    assert is_unknown(lab, bus)
    lab.resolve_by_looking(bus, image)
    check_end(lab, bus, {trait(function)} if lab.cyborg.programmed(bus) == image else old)


def test_device_that_fails_is_reserved_until_its_job_is_resolved(begin: Begin) -> None:
    lab = begin(*(device(f"{bus:02}", programming=how) for bus, how in enumerate(FAILURES)))
    for number, how in enumerate(FAILURES):
        bus = f"{number:02}"
        image = lab.cyborg.create_image("A")
        done = lab.program(bus, image, "A")
        assert done.code == 1
        assert "The device stays reserved" in done.err and "device resolve" in done.err
        refused = lab.program(bus, image, "A")
        assert "or unresolved" in refused.err
        assert len(lab.cyborg.programmings(bus)) == 2
        assert (lab.cyborg.programmed(bus) == image) == how.endswith("late"), how
        resolve(lab, bus, image, "A")


def test_request_that_cyborg_refuses_fails_the_job(begin: Begin) -> None:
    lab = begin(device(BUS), is_between=True)
    for how in REFUSALS:
        fault = BAD_REQUEST if how == "400" else FAULTS[how]
        lab.to_cyborg.expect(is_programming, replace(fault, carried_out=frozenset()))
        done = lab.program(BUS, lab.cyborg.create_image("A"), "A")
        assert lab.to_cyborg.struck == 1
        lab.to_cyborg.expect()
        assert done.code == 1
        assert "was refused" in done.err and how in done.err
        assert lab.state(BUS) == ("failed", False)
        assert not lab.cyborg.programmings(BUS)
    check_end(lab, BUS, NO_FUNCTION)


def test_lost_answer_of_cyborg_leaves_the_device_reserved(begin: Begin) -> None:
    lab = begin(device(BUS), is_between=True)
    for number, how in enumerate(LOST):
        function = f"L{number}"
        fault = FAULTS[how]
        is_carried_out = "PUT" in fault.carried_out
        if is_carried_out:
            fault = replace(fault, carried_out=frozenset({"PATCH"}))
        image = lab.cyborg.create_image(function)
        lab.to_cyborg.expect(is_programming, fault)
        done = lab.program(BUS, image, function)
        assert lab.to_cyborg.struck == 1
        lab.to_cyborg.expect()
        assert done.code == 1
        assert "The device stays reserved" in done.err
        assert (lab.cyborg.programmed(BUS) == image) == is_carried_out, how
        resolve(lab, BUS, image, function)


def test_image_that_glance_does_not_have_is_not_loaded(begin: Begin) -> None:
    lab = begin(device(BUS))
    image = str(uuid4())
    done = lab.program(BUS, image, "A")
    assert done.code == 1
    assert f"Image not found with uuid={image}" in done.err
    assert not lab.cyborg.programmings(BUS)
    assert lab.state(BUS) == ("failed", False)
    check_end(lab, BUS, NO_FUNCTION)


def test_device_that_no_driver_of_cyborg_programs_is_free_again(begin: Begin) -> None:
    """Cyborg's agent finds this out before it does anything else."""
    lab = begin(device(BUS, deployable(resource_class="PGPU"), kind="GPU"))
    uuid = lab.uuid(BUS)
    done = lab.program(BUS, lab.cyborg.create_image("A"), "A")
    assert done.code == 1
    assert "was refused" in done.err and "Not find the FPGA driver" in done.err
    assert lab.state(BUS) == ("failed", False)
    assert not lab.cyborg.programmings(BUS)
    assert lab.figures(uuid) == [(1, 0)]
    assert lab.functions(uuid) == NO_FUNCTION
    assert uuid not in lab.reservations()


def test_failure_of_placement_at_any_request_leaves_a_sound_state(begin: Begin, draw: Draw) -> None:
    """The drawn requests meet the faults of SWEEP in turn."""
    lab = begin(device(BUS), is_between=True)
    for function in ("A", "B"):
        lab.to_placement.expect()
        done = lab.program(BUS, lab.cyborg.create_image(function), function)
        assert done.code == 0, done.err
    count = len(lab.to_placement.seen)
    assert count >= REQUESTS
    faults = [
        fault
        for place in draw(range(count), 3)
        for fault in strike(lab, place, SWEEP[place % len(SWEEP)])
    ]
    assert not faults, "\n".join(faults)


def strike(lab: Programming, place: int, fault: str) -> Iterator[str]:
    """Let this request of a job fail, and resolve the job; yield what is wrong."""
    uuid = lab.uuid(BUS)
    old = frozenset(lab.functions(uuid))
    function = f"F{place}"
    image = lab.cyborg.create_image(function)
    lab.to_placement.expect(place, FAULTS[fault])
    done = lab.program(BUS, image, function)
    asked, struck = lab.to_placement.seen[place : place + 1], lab.to_placement.struck
    lab.to_placement.expect()
    seen = [lab.candidates().candidates.get(uuid)]
    lab.restart()
    seen.append(lab.candidates().candidates.get(uuid))
    is_loaded = lab.cyborg.programmed(BUS) == image
    truth = frozenset({trait(function)}) if is_loaded else old
    state, is_reserved = lab.state(BUS)
    before = f"{place} {asked}: {state}, reserved: {is_reserved}, loaded: {is_loaded}"
    print(before)
    if not struck:
        yield f"{before}: nothing happened"
    if set(seen) - {truth, None} or (is_reserved and seen[-1] is not None):
        yield f"{before}: {seen} could be had"
    if (done.code == 0) != (is_loaded and state == "programmed" and not is_reserved):
        yield f"{before}: {done}"
    if is_reserved or state not in ("programmed", "failed"):
        lab.time_passes(BUS)
        lab.resolve_by_looking(BUS, image)
        lab.restart()
    end = (lab.candidates().candidates.get(uuid), lab.figures(uuid))
    if end != (truth, [(1, 0)]) or uuid in lab.reservations():
        yield f"{before}: {end} at the end"


def hold(lab: Programming, image: str, **more: Any) -> Working:
    """Begin to program the device, which waits for a signal."""
    working = lab.begin(BUS, image, "A", **more)
    lab.cyborg.wait_for_programming(BUS)
    return working


def test_cyborg_that_is_killed_midway_leaves_the_device_reserved(begin: Begin) -> None:
    lab = begin(HELD)
    image = lab.cyborg.create_image("A")
    with lab.watched() as seen:
        working = hold(lab, image)
        lab.cyborg.stop(signal.SIGKILL)
        done = working.end()
        assert (done.code, "The device stays reserved" in done.err) == (1, True)
        assert lab.state(BUS) == ("unknown", True)
        lab.start_cyborg_again()
        lab.cyborg.discover()
        lab.restart()
    assert changes(seen, lab.uuid(BUS)) == [NO_FUNCTION, None]
    assert lab.cyborg.programmed(BUS) is None
    resolve(lab, BUS, image, "A")
    again = hold(lab, image)
    lab.cyborg.go(BUS)
    assert again.end().code == 0
    check_end(lab, BUS, {trait("A")})


def test_job_after_its_timeout_leaves_the_device_reserved(begin: Begin) -> None:
    lab = begin(HELD)
    uuid = lab.uuid(BUS)
    with lab.watched() as seen:
        config = lab.configure("hasty.conf", program_timeout=1)
        working = hold(lab, lab.cyborg.create_image("A"), config=config)
        done = working.end()
        assert done.code == 1
        assert "timed out" in done.err and "The device stays reserved" in done.err
        assert lab.cyborg.underway(BUS)
        assert is_unknown(lab, BUS)
        lab.cyborg.go(BUS)
        lab.cyborg.wait_until_programmed(BUS)
        lab.cyborg.discover()
        lab.restart()
        assert is_unknown(lab, BUS)
    assert changes(seen, uuid) == [NO_FUNCTION, None]
    # The operator names another function than that of the image; this decision counts.
    lab.resolve(uuid, programmed=True, trait=trait("OTHER"))
    check_end(lab, BUS, {trait("OTHER")})
    assert lab.state(BUS) == ("programmed", False)
    with pytest.raises(JobRefused, match="the device has no unresolved job"):
        lab.resolve(uuid, programmed=True)


def test_job_whose_agent_does_not_answer_cyborg_in_time_leaves_the_device_reserved(
    begin: Begin,
) -> None:
    lab = begin(HELD)
    image = lab.cyborg.create_image("A")
    with lab.cyborg.impatient():
        done = hold(lab, image).end()
    assert done.code == 1
    assert "answers 500" in done.err and "The device stays reserved" in done.err
    lab.cyborg.go(BUS)  # let the hardware continue
    lab.cyborg.wait_until_programmed(BUS)
    resolve(lab, BUS, image, "A")


def test_job_in_progress_cannot_be_resolved_even_while_placement_is_down(
    begin: Begin,
) -> None:
    """The job still reports signs of life at its interval."""
    lab = begin(HELD, is_between=True)
    working = hold(lab, lab.cyborg.create_image("A"), down_time=3.0)
    working.wait_for("programming")
    for programmed in (False, True):
        with pytest.raises(JobRefused, match=rf"in progress: process {os.getpid()} on host ctl"):
            lab.resolve(lab.uuid(BUS), programmed=programmed)
    lab.to_placement.expect(lambda _request: True, replace(FAULTS["503"], persistent=True))
    begun = lab.job(BUS)
    assert begun is not None
    lab.wait("it says nothing", lambda: reported_after(lab, begun.seen_at))
    assert lab.state(BUS) == ("programming", True)
    lab.to_placement.expect()
    lab.cyborg.go(BUS)
    assert working.end().code == 0
    check_end(lab, BUS, {trait("A")})


def test_cycle_begun_before_the_end_of_a_job_does_not_publish_the_former_function(
    begin: Begin,
) -> None:
    """The job ends while the cycle waits for Cyborg's listing."""
    lab = begin(device(BUS), is_between=True)
    assert lab.program(BUS, lab.cyborg.create_image("A"), "A").code == 0
    with lab.cycle() as cycle:
        sound(cycle.sync())
        ends: list[Done] = []

        def program() -> None:
            ends.append(lab.program(BUS, lab.cyborg.create_image()))

        lab.to_cyborg.act(0, program)
        sound(cycle.sync())
        lab.to_cyborg.expect()
        assert [done.code for done in ends] == [0]
        for again in (cycle.sync, cycle.drift):
            assert state(lab, lab.uuid(BUS)) == (NO_FUNCTION, [(1, 0)], False)
            sound(again())
    check_end(lab, BUS, NO_FUNCTION)


def reported_after(lab: Programming, before: datetime) -> bool:
    """Return whether the job has reported a sign of life after this time."""
    job = lab.job(BUS)
    return job is not None and job.seen_at > before
