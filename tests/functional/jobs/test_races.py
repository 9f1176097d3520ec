"""Two jobs for one device at the same time: the second one begins at any step of the first."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tests.lab import reserving
from tests.lab.devices import Device, ProgrammableDriver
from tests.lab.drawing import Draw
from tests.lab.reserving import Steps
from wharfinger.exceptions import JobRefused
from wharfinger.objects import DeviceJob

#: A number that no step has.
NEVER = 10**9


@pytest.fixture(scope="module", autouse=True)
def where() -> str:
    """Store the objects only in this process: the steps are the same with any store."""
    return "here"


@pytest.fixture
def jobs_are_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Count writes of jobs as steps, too."""
    more = (*reserving._WRITES, (DeviceJob, ("create", "save", "destroy")))
    monkeypatch.setattr(reserving, "_WRITES", more)


def forgotten(device: Device) -> None:
    if device.job is not None:
        device.job.destroy()


def remembered(device: Device) -> None:
    if device.job is None:
        device.program("first")


class Overlap:
    """Records how many calls of the driver program the device at the same time."""

    def __init__(self) -> None:
        self.under_way = 0

    def loading(self, *_: Any) -> None:
        self.under_way += 1
        assert self.under_way == 1
        self.under_way -= 1


@pytest.mark.usefixtures("jobs_are_steps")
@pytest.mark.parametrize(
    ("of", "prepare"),
    [("it", forgotten), ("another part", remembered)],
    ids=["the first of it", "one more of another part"],
)
def test_second_job_at_any_step_of_a_job_is_refused_or_comes_first(
    device: Device,
    sibling: Device,
    driver: ProgrammableDriver,
    *,
    draw: Draw,
    of: str,
    prepare: Callable[[Device], None],
) -> None:
    driver.loading = Overlap().loading
    other = device if of == "it" else sibling

    def attempt(done: list[str], which: Device, function: str) -> None:
        try:
            which.program(function)
        except JobRefused:
            done.append("refused")
        else:
            done.append(function)

    def run(act_at: int) -> tuple[list[str], list[str]]:
        """Run a job with another job before step ``act_at``; return the outcomes and the steps."""
        prepare(device)
        forgotten(sibling)
        for one in (device, sibling):
            one.says()
        done: list[str] = []
        intrude = partial(attempt, done, other, "other")
        with Steps(device.placement, act_at=act_at, act=intrude) as steps:
            attempt(done, device, "one")
        return done, steps.passed

    run(NEVER)  # the first run creates the traits
    _, steps = run(NEVER)
    # Begin the other job only before writes: the data that the first job has read may be outdated.
    before_writes = [
        number
        for number, step in enumerate(steps)
        if step.startswith("before ") and not step.startswith("before GET")
    ]
    assert len(before_writes) > 10
    for number in draw(before_writes, 2):
        done, passed = run(number)
        step = passed[number]
        assert sorted(done) in (["one", "refused"], ["other", "refused"], ["one", "other"]), step
        last = [name for name in done if name != "refused"][-1]
        for one in (device, sibling):
            assert one.is_free(), (step, done)
            assert one.functions == {last.upper()}, (step, done)
            assert one.state in ("programmed", "failed", None), (step, done)
