"""The function trait that a job sets stays until another job or program replaces it."""

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tests.lab.cycles import Publishing, allocate, contents
from tests.lab.devices import (
    CARD,
    FREE,
    OWN,
    SIBLING,
    Device,
    ProgrammableDriver,
    publish_devices,
)
from tests.lab.drawing import Draw
from tests.lab.drivers import flat
from tests.lab.objects import statements
from tests.lab.placement import PlacementFixture
from tests.lab.reserving import Steps, drives, node, overlaid
from tests.lab.samples import uuid
from wharfinger.driver import Allocations
from wharfinger.exceptions import BackendError, JobRefused, ProgrammingRefused
from wharfinger.providers import ProviderTree, PublishingMode
from wharfinger.reconcile.cycle import Reconciler
from wharfinger.reconcile.device_jobs import supersede_functions

CONSUMER = uuid("consumer")
#: Seconds to wait for an event, which usually takes milliseconds.
PATIENCE = 30.0
BOTH = pytest.mark.parametrize("device", [OWN, CARD], indirect=True)
CYCLES: dict[str, Callable[[Reconciler], object]] = {
    "sync": lambda cycle: cycle.sync(),
    "drift": lambda cycle: cycle.drift(),
}


def handed_back(tree: ProviderTree, name: str, allocations: Allocations | None) -> None:
    """Overlay a node of another owner without changing it."""
    tree.set_publishing_mode(name, PublishingMode.OVERLAY)


def in_use(device: Device) -> None:
    """Start a job that is refused because the device is in use."""
    allocate(device.placement, CONSUMER, "1.39", **{device.name: {"FPGA": 1}})
    with pytest.raises(JobRefused, match="it is in use"):
        device.program("never")
    device.placement.client.delete_allocations(CONSUMER)


def refused(device: Device) -> None:
    """Start a job that the driver refuses."""
    loading, error = (
        device.driver.loading,
        ProgrammingRefused(driver="scripted", provider=device.name, reason="wrong image"),
    )

    def refuse(uuid: str, function: str | None) -> None:
        raise error

    device.driver.loading = refuse
    with pytest.raises(ProgrammingRefused):
        device.program("never")
    device.driver.loading = loading


@BOTH
def test_function_of_a_job_is_published_until_another_program_sets_another(
    device: Device, publishing: Publishing
) -> None:
    device.program("new")
    device.says()
    publishing.restarted().sync()
    assert device.functions == {"NEW"}
    device.says()
    publishing.placement.requests.clear()
    assert [step.name for step in publishing.cycle.plan().steps] == [device.name]
    assert not publishing.placement.requests.writes
    for cycle in CYCLES.values():
        for _ in range(2):  # cycles without a change, because three changes in a row are a fight
            publishing.cycle.sync()
        device.says()
        cycle(publishing.cycle)
        assert device.functions == {"NEW"}
    for _ in range(2):
        publishing.cycle.sync()
    publishing.placement.requests.clear()
    publishing.cycle.sync()
    assert not publishing.placement.requests.writes

    for how in CYCLES.values():
        device.says("NEW", "THEIRS")
        how(publishing.cycle)
        assert device.functions == {"THEIRS"}
        publishing.cycle.sync()
        assert device.functions == {"THEIRS"}
        device.says()
        publishing.cycle.sync()
        assert device.functions == set(), "the function of the job has ended"

        for function in ("one", "two", None, "new"):
            device.program(function)
            publishing.restarted().sync()
            assert device.functions == ({function.upper()} if function else set())


@pytest.mark.parametrize("come_to_nothing", [in_use, refused])
def test_refused_job_changes_no_function(
    device: Device, sibling: Device, publishing: Publishing, come_to_nothing: Callable[..., None]
) -> None:
    device.says("THEIRS")
    come_to_nothing(device)
    for cycle in CYCLES.values():
        cycle(publishing.cycle)
        assert (device.functions, sibling.functions) == ({"THEIRS"}, set())
    device.says()
    for cycle in CYCLES.values():
        cycle(publishing.cycle)
        assert device.functions == set()
    device.program("new")
    come_to_nothing(device)
    device.says()
    for cycle in CYCLES.values():
        cycle(publishing.cycle)
        assert device.functions == {"NEW"}


# A driver that reports an outdated function.


def reports(tree: ProviderTree, function: str) -> None:
    for name in (OWN, SIBLING):
        tree.update_traits(name, [f"CUSTOM_FPGA_FUNCTION_ID_{function}"])


@pytest.fixture
def reported(device: Device, publishing: Publishing) -> list[str]:
    """A list whose last item is the function that the driver reports for both functions."""
    edit, reported = device.driver.nodes["cn"], ["OLD"]

    def with_reported(tree: ProviderTree, name: str, allocations: Allocations | None) -> None:
        edit(tree, name, allocations)
        reports(tree, reported[-1])

    device.driver.nodes["cn"] = with_reported
    publishing.cycle.sync()
    assert device.functions == {"OLD"}
    return reported


#: The jobs in turn: the function it programs (None: unknown), or a job that is refused.
STORIES: list[tuple[Any, ...]] = [("one", None, "two"), ("one", refused, "two", in_use)]


@pytest.mark.parametrize(
    ("story", "meanwhile"), zip(STORIES, [True, False], strict=True), ids=["meanwhile", "after"]
)
def test_former_function_from_the_driver_is_ignored(
    device: Device, publishing: Publishing, reported: list[str], story: Any, meanwhile: bool
) -> None:
    def all_cycles(*_: Any) -> None:
        for cycle in CYCLES.values():
            cycle(publishing.cycle)

    if meanwhile:
        device.driver.loading = all_cycles
    function = "OLD"
    for job in story:
        if callable(job):
            job(device)
        else:
            device.program(job)
            function = job and job.upper()
        for cycle in CYCLES.values():
            cycle(publishing.cycle)
            assert device.functions == ({function} if function else set())


def test_function_that_the_driver_reports_late_is_ignored_after_the_next_job(
    device: Device, publishing: Publishing, reported: list[str]
) -> None:
    device.program("one")
    reported.append("ONE")
    publishing.cycle.sync()
    device.driver.loading = lambda *_: publishing.cycle.sync()

    device.program("two")

    for cycle in CYCLES.values():
        cycle(publishing.cycle)
        assert device.functions == {"TWO"}
    reported.append("THREE")
    for cycle in CYCLES.values():
        cycle(publishing.cycle)
        assert device.functions == {"THREE"}


def test_function_trait_of_one_part_is_outdated_after_a_job_of_another_part(
    device: Device, sibling: Device, publishing: Publishing, reported: list[str]
) -> None:
    # All jobs end within one second, so their stored times are equal.
    for part, function in ((sibling, "one"), (device, "two"), (sibling, "three"), (device, None)):
        part.program(function)
        for cycle in CYCLES.values():
            cycle(publishing.cycle)
            expected = {function.upper()} if function else set()
            assert device.functions == sibling.functions == expected


# Jobs that end during a cycle.


@pytest.mark.parametrize("device", [CARD], indirect=True)
def test_job_that_ends_during_the_snapshot_of_a_cycle_sets_the_function(
    device: Device, publishing: Publishing
) -> None:
    device.driver.nodes[CARD] = handed_back
    device.program("one")
    publishing.cycle.sync()
    for function in ("two", None):
        expected = {function.upper()} if function else set()
        device.driver.meanwhile = partial(device.program, function)
        for _ in range(2):
            publishing.cycle.sync()
            assert device.functions == expected


@pytest.mark.parametrize(
    ("device", "how"), [(OWN, "drift"), (CARD, "sync")], indirect=["device"], ids=["own", "card"]
)
def test_job_that_ends_at_any_step_of_a_cycle_sets_the_function(
    device: Device, publishing: Publishing, how: str, draw: Draw
) -> None:
    device.driver.nodes[CARD] = handed_back
    device.program("one")

    def run(act_at: int) -> list[str]:
        """Run a cycle that restores the function trait; a job ends before the step ``act_at``."""
        device.program("one")
        for _ in range(2):  # cycles without a change, so that several runs are no fight
            publishing.cycle.sync()
        device.says()
        with Steps(device.placement, act_at=act_at, act=device.program) as steps:
            CYCLES[how](publishing.cycle)
        return steps.passed

    run(10**9)  # the first run creates the traits
    steps = run(10**9)
    assert device.functions == {"ONE"}
    before = [number for number, step in enumerate(steps) if step.startswith("before ")]
    writes = [one for one in before if "PUT" in steps[one] and steps[one].endswith("/traits")]
    assert writes
    for number in draw(before, 1, keep=writes):
        assert run(number)[number] == steps[number]
        assert device.functions == set(), steps[number]
        for cycle in CYCLES.values():
            cycle(publishing.cycle)
            assert device.functions == set(), steps[number]


@pytest.mark.parametrize("device", [CARD], indirect=True)
def test_job_that_ends_at_any_step_of_a_cycle_is_not_superseded_by_a_former_function(
    device: Device, publishing: Publishing, draw: Draw
) -> None:
    device.driver.nodes[CARD] = handed_back
    device.program("new")

    def run(act_at: int) -> list[str]:
        """Run a cycle while the device reports a former function; a job ends at step ``act_at``."""
        device.program("new")
        publishing.cycle.sync()
        device.says("OLD")
        with Steps(device.placement, act_at=act_at, act=lambda: device.program("new")) as steps:
            publishing.cycle.sync()
        return steps.passed

    run(10**9)  # creates the traits
    steps = run(10**9)
    assert device.functions == {"OLD"}
    looks = [number for number, step in enumerate(steps) if step.startswith("before ")]
    assert looks
    for number in draw(looks, 2):
        assert run(number)[number] == steps[number]
        device.says()
        publishing.cycle.sync()
        assert device.functions == {"NEW"}, steps[number]


@pytest.mark.parametrize("device", [CARD], indirect=True)
def test_late_write_of_a_cycle_does_not_replace_the_function_of_a_job(
    device: Device, publishing: Publishing
) -> None:
    device.driver.nodes[CARD] = handed_back
    device.program("one")
    publishing.cycle.sync()
    device.says()
    is_about_to, may_go_on = threading.Event(), threading.Event()

    def before(method: str, path: str) -> None:
        is_cycle = threading.current_thread() is not threading.main_thread()
        if is_cycle and method == "PUT" and path.endswith("/traits"):
            is_about_to.set()
            assert may_go_on.wait(PATIENCE)

    def on_step(step: str, detail: str) -> None:
        if step == "reserved":
            device.placement.adapter.before = before
            cycling.start()
            assert is_about_to.wait(PATIENCE)
        elif step == "programmed":
            may_go_on.set()
            cycling.join(PATIENCE)
            device.placement.adapter.before = lambda method, path: None

    cycling = threading.Thread(target=publishing.cycle.sync)
    device.program(on_step=on_step)
    assert not cycling.is_alive()

    for cycle in CYCLES.values():
        cycle(publishing.cycle)
        assert device.functions == set()


@pytest.mark.parametrize("state", ["reserving", "unknown", "programmed"])
def test_job_of_an_absent_device_is_forgotten_unless_it_is_unfinished(
    device: Device, publishing: Publishing, state: str
) -> None:
    device.program("new")
    job = device.job
    assert job is not None
    assert job.state == "programmed"
    job.state = state
    job.save()
    device.driver.nodes["cn"] = node({"VCPU": (8, 0)})
    for _ in range(4):
        publishing.cycle.sync()
    assert OWN not in contents(publishing.placement)
    assert (device.job is None) == (state == "programmed")


# Other jobs and other hosts.


def test_job_with_the_same_function_during_a_cycle_is_not_superseded(
    publishing: Publishing, placement: PlacementFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish_devices(publishing, placement)
    device = Device(publishing, placement, CARD)
    device.driver.nodes[CARD] = handed_back
    device.program("new")
    publishing.cycle.sync()
    device.says("OLD")

    def late(*args: Any) -> None:
        device.program("new")
        supersede_functions(*args)

    with monkeypatch.context() as patched:
        patched.setattr("wharfinger.reconcile.cycle.supersede_functions", late)
        publishing.cycle.sync()
    publishing.cycle.sync()
    assert device.functions == {"NEW"}


def test_jobs_of_a_device_belong_to_the_host_that_takes_it_over(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    drives(publishing, ProgrammableDriver())
    publishing.driver.nodes |= {
        "cn": node({"VCPU": (8, 0)}, **{OWN: FREE}),
        "stays": flat(VCPU=1),
    }
    publishing.cycle.sync()
    device = Device(publishing, placement, OWN)
    device.program("new")
    host = publishing.driver.nodes.pop("cn")
    publishing.cycle.sync()
    with Publishing(placement, publishing.state_path, host="far") as far:
        driver = ProgrammableDriver()
        driver.host = "far"
        drives(far, driver)
        driver.nodes["cn"] = host
        for one in (far, publishing, far, publishing):
            assert not one.cycle.sync().problems
        assert device.job is not None
        assert device.job.host == "far"
        assert device.functions == {"NEW"}


# Problems of a driver.


def test_problem_that_a_driver_reports_is_shown_and_stops_nothing_else(
    device: Device, publishing: Publishing
) -> None:
    device.driver.problems = ["deployable x has no provider"]
    device.driver.nodes["new"] = flat(VCPU=1)
    device.driver.nodes["cn"] = node({"VCPU": (8, 0)})
    for _ in range(3):
        result = publishing.cycle.sync()
        [problem] = result.problems
        assert "deployable x has no provider" in str(problem)
        assert "scripted" in str(problem)
    assert "new" in contents(publishing.placement)
    assert OWN not in contents(publishing.placement)

    device.driver.problems = []
    assert not publishing.cycle.sync().problems


def test_driver_with_invalid_problems_fails_and_nothing_is_removed(
    device: Device, publishing: Publishing
) -> None:
    device.driver.problems = None  # type: ignore[assignment]
    device.driver.nodes["cn"] = node({"VCPU": (8, 0)})
    for _ in range(3):
        with pytest.raises(BackendError, match="get_problems"):
            publishing.cycle.sync()
        assert OWN in contents(publishing.placement)
    device.driver.problems = []
    device.driver.nodes["cn"] = overlaid
    assert not publishing.cycle.sync().problems


def test_driver_without_programming_reads_no_jobs(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    publishing.driver.nodes["cn"] = flat(VCPU=8)
    with statements(publishing.state_path) as said:
        publishing.cycle.sync()
        publishing.cycle.drift()
    assert said
    assert not [one for one in said if "device_jobs" in one]
    publish_devices(publishing, placement)
    with statements(publishing.state_path) as said:
        publishing.cycle.sync()
    assert [one for one in said if "device_jobs" in one]


def test_function_of_another_process_is_published(device: Device, publishing: Publishing) -> None:
    device.program("new")
    job = device.job
    assert job is not None
    for field in ("driver_instance", "host"):
        setattr(job, field, "other")
        job.save()
        device.says()
        publishing.cycle.sync()
        assert device.functions == {"NEW"}
