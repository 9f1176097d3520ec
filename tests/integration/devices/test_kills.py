"""A process that programs a device is killed with SIGKILL at each of its steps.

If the device is reserved at that moment, it stays reserved, even if other processes start later. An
operator looks at the device and resolves the job.
"""

from collections.abc import Sequence, Set

import pytest

from tests.integration.devices.conftest import Begin
from tests.lab.drawing import Draw
from tests.lab.programming import Programming, named, trait
from wharfinger_harnesses.cyborg import deployable, device

BUS = "0c"
PARTS = ("r0", "r1")
KILLED = -9
#: State of the job, whether the device is reserved, and whether it has the new image.
Left = tuple[str | None, bool, bool]
RESERVING = "interrupted while reserving"
PROGRAMMING = "interrupted while programming"
#: The state after a kill at each boundary, for a device with two functions programmed before.
BOUNDARIES: dict[str, Left] = {
    "before update device_jobs": (None, False, False),
    "after update device_jobs": (RESERVING, False, False),
    "before insert reservations": (RESERVING, False, False),
    "after insert reservations": (RESERVING, True, False),
    "before PUT /resource_providers/0c_r0/inventories": (RESERVING, True, False),
    "after PUT /resource_providers/0c_r0/inventories": (RESERVING, True, False),
    "before write provider_records": (RESERVING, True, False),
    "after write provider_records": (RESERVING, True, False),
    "before insert reservations #2": (RESERVING, True, False),
    "after insert reservations #2": (RESERVING, True, False),
    "before PUT /resource_providers/0c_r1/inventories": (RESERVING, True, False),
    "after PUT /resource_providers/0c_r1/inventories": (RESERVING, True, False),
    "before write provider_records #2": (RESERVING, True, False),
    "after write provider_records #2": (RESERVING, True, False),
    "before update device_jobs #2": (RESERVING, True, False),
    "after update device_jobs #2": (PROGRAMMING, True, False),
    "before PATCH /accelerator/v2/deployables/0c_r0/program": (PROGRAMMING, True, False),
    "after PATCH /accelerator/v2/deployables/0c_r0/program": (PROGRAMMING, True, True),
    "before update device_jobs #3": (PROGRAMMING, True, True),
    "after update device_jobs #3": (PROGRAMMING, True, True),
    "before write provider_records #3": (PROGRAMMING, True, True),
    "after write provider_records #3": (PROGRAMMING, True, True),
    "before PUT /traits/CUSTOM_FPGA_FUNCTION_ID_LAB_B": (PROGRAMMING, True, True),
    "after PUT /traits/CUSTOM_FPGA_FUNCTION_ID_LAB_B": (PROGRAMMING, True, True),
    "before PUT /resource_providers/0c_r0/traits": (PROGRAMMING, True, True),
    "after PUT /resource_providers/0c_r0/traits": (PROGRAMMING, True, True),
    "before write provider_records #4": (PROGRAMMING, True, True),
    "after write provider_records #4": (PROGRAMMING, True, True),
    "before write provider_records #5": (PROGRAMMING, True, True),
    "after write provider_records #5": (PROGRAMMING, True, True),
    "before PUT /resource_providers/0c_r1/traits": (PROGRAMMING, True, True),
    "after PUT /resource_providers/0c_r1/traits": (PROGRAMMING, True, True),
    "before write provider_records #6": (PROGRAMMING, True, True),
    "after write provider_records #6": (PROGRAMMING, True, True),
    "before update device_jobs #4": (PROGRAMMING, True, True),
    "after update device_jobs #4": ("programmed", True, True),
    "before write provider_records #7": ("programmed", True, True),
    "after write provider_records #7": ("programmed", True, True),
    "before PUT /resource_providers/0c_r0/inventories #2": ("programmed", True, True),
    "after PUT /resource_providers/0c_r0/inventories #2": ("programmed", True, True),
    "before delete reservations": ("programmed", True, True),
    "after delete reservations": ("programmed", True, True),
    "before write provider_records #8": ("programmed", True, True),
    "after write provider_records #8": ("programmed", True, True),
    "before PUT /resource_providers/0c_r1/inventories #2": ("programmed", True, True),
    "after PUT /resource_providers/0c_r1/inventories #2": ("programmed", True, True),
    "before delete reservations #2": ("programmed", True, True),
    "after delete reservations #2": ("programmed", False, True),
}


@pytest.fixture
def lab(begin: Begin) -> Programming:
    """Cyborg with a device of two functions that was programmed before."""
    lab = begin(device(BUS, *(deployable(name) for name in PARTS)))
    done = lab.program(BUS, lab.cyborg.create_image("A"), "A")
    assert done.code == 0, done.err
    return lab


def test_boundaries_of_a_job_are_all_known(lab: Programming) -> None:
    ended = lab.kill(None, BUS, lab.cyborg.create_image("B"), "B")
    assert ended.code == 0
    assert list(ended.boundaries) == list(BOUNDARIES)
    image = lab.cyborg.create_image("B")
    command = ("device", "program", named(BUS), "--image", image, "--function", "B")
    done, passed = lab.run_until(None, *command)
    assert done.code == 0, done.err
    # A repeated job does not write the trait that the provider already has.
    every = [one.partition(" #")[0] for one in BOUNDARIES]
    first, end = (
        list(BOUNDARIES).index(f"{one} update device_jobs #{number}")
        for one, number in (("after", 3), ("before", 4))
    )
    assert [one.partition(" #")[0] for one in passed] == every[: first + 1] + every[end:]


def test_job_that_is_killed_leaves_the_device_reserved_until_it_is_resolved(
    lab: Programming, draw: Draw
) -> None:
    boundaries = [*BOUNDARIES]
    for boundary in draw(boundaries, 2):
        place = boundaries.index(boundary)
        # The state before a step equals that after the previous step, which is another case.
        is_new = boundary.startswith("after ") or place == 0
        left = killed(lab, BUS, place, f"F{place}", is_new=is_new)
        assert left == BOUNDARIES[boundary], boundary


def test_first_job_of_a_device_is_killed(begin: Begin) -> None:
    lab = begin(device(BUS, *(deployable(name) for name in PARTS)))
    assert killed(lab, BUS, 0, "A", is_new=True) == (None, False, False)
    assert killed(lab, BUS, 1, "A", is_new=True) == (RESERVING, False, False)


def killed(lab: Programming, bus: str, place: int, function: str, *, is_new: bool) -> Left:
    """Kill a programming job at a boundary, and resolve it; return the state after the kill."""
    parts = [lab.uuid(bus, name) for name in PARTS]
    [old] = {frozenset(lab.functions(uuid)) for uuid in parts}
    image = lab.cyborg.create_image(function)
    assert lab.kill(place, bus, image, function).code == KILLED
    left = look(lab, bus, image)
    truth = {trait(function)} if left[2] else old
    offered = check_offers(lab, parts, truth)
    if is_new:
        lab.restart()
        # A provider that is not offered is not offered after a restart, either.
        assert check_offers(lab, parts, truth) <= offered
        assert look(lab, bus, image) == left
    if left[0] in (RESERVING, PROGRAMMING) or left[1]:
        if is_new:
            refuse_another(lab, bus)
        lab.resolve_by_looking(bus, image)
        assert not lab.reservations()
        lab.restart()
    assert check_offers(lab, parts, truth) == {*parts}
    for uuid in parts:
        assert lab.figures(uuid) == [(1, 0)]
    assert not lab.reservations()
    return left


def check_offers(lab: Programming, parts: Sequence[str], truth: Set[str]) -> set[str]:
    """Assert that each offered part has the function ``truth``; return the offered parts.

    The other parts are reserved as long as the job reserves any part.
    """
    candidates = lab.candidates().candidates
    offered = {uuid for uuid in parts if uuid in candidates}
    for uuid in offered:
        assert candidates[uuid] == truth
    for uuid in {*parts} - offered:
        assert not {*parts}.isdisjoint(lab.reservations())
        assert lab.figures(uuid) == [(1, 1)]
    return offered


def look(lab: Programming, bus: str, image: str) -> Left:
    """Return the state of a job after its process counts as dead."""
    is_loaded = lab.cyborg.programmed(bus) == image
    job = lab.job(bus)
    if job is None or job.image != image:
        return None, False, is_loaded
    lab.time_passes(bus)
    return *lab.state(bus), is_loaded


def refuse_another(lab: Programming, bus: str) -> None:
    count = len(lab.cyborg.programmings(bus))
    refused = lab.program(bus, lab.cyborg.create_image("X"), "X")
    assert refused.code == 1
    assert "another job of this device is in progress or unresolved" in refused.err
    assert len(lab.cyborg.programmings(bus)) == count
