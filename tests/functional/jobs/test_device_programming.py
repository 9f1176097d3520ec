"""Jobs that program a device. Afterwards the device is free only if its function is known."""

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from keystoneauth1.exceptions import ConnectFailure

from tests.lab.cycles import allocate, contents
from tests.lab.devices import CARD, FREE, FULL, IMAGE, OWN, Device, ProgrammableDriver
from tests.lab.drivers import ScriptedDriver
from tests.lab.reserving import is_candidate, makes, writes
from tests.lab.samples import uuid
from wharfinger.exceptions import (
    BackendError,
    InvalidName,
    JobRefused,
    JobUnresolved,
    ProgrammingFailed,
    ProgrammingRefused,
    ReservationRefused,
    StateError,
)
from wharfinger.jobs import program, resolve
from wharfinger.objects import JOB_HOLDER, DeviceJob, DeviceJobList, ReservationList
from wharfinger.reconcile.reserve_and_release import Reservations

CONSUMER = uuid("consumer")
#: Seconds to wait for an event, which usually takes milliseconds.
PATIENCE = 30.0
REFUSED = ProgrammingRefused(driver="scripted", provider=OWN, reason="wrong image")
FAILED = ProgrammingFailed(driver="scripted", provider=OWN, reason="bad checksum")
NO_ANSWER = OSError("no answer")
TRAIT = "CUSTOM_FPGA_FUNCTION_ID_"


def raises(error: BaseException) -> Callable[..., None]:
    def act(*_: Any) -> None:
        raise error

    return act


class StepRecorder:
    """Records the steps that a job reports; ``at`` has a function to call at some steps."""

    def __init__(self, **at: Callable[[], object]) -> None:
        self.steps: list[str] = []
        self.details: dict[str, str] = {}
        self._at = at

    def __call__(self, step: str, detail: str) -> None:
        self.steps.append(step)
        self.details[step] = detail
        if step in self._at:
            self._at.pop(step)()

    def act(self, step: str, act: Callable[[], object]) -> None:
        """Call the function at the next report of this step."""
        self._at[step] = act


def wait_until(condition: Callable[[], bool]) -> None:
    pause = threading.Event()
    for _ in range(int(PATIENCE / 0.005)):
        if condition():
            return
        pause.wait(0.005)
    raise AssertionError("it has not come to pass")


def revision(device: Device) -> int:
    assert device.job is not None
    return device.job.revision


def resolve_as_unchanged(device: Device) -> None:
    """Resolve the job with the decision that the device was not programmed."""
    resolve(device.publishing.client, device.context, device.uuid, programmed=False)
    assert device.is_free()


def in_use(device: Device, *consumers: str) -> None:
    for consumer in consumers or (CONSUMER,):
        allocate(device.placement, consumer, "1.39", **{device.name: {"FPGA": 1}})


# Success.


@pytest.mark.parametrize("device", [OWN, CARD], indirect=True)
def test_device_is_reserved_programmed_tagged_and_released(
    device: Device, driver: ProgrammableDriver
) -> None:
    device.says("OLD")
    before = contents(device.placement)
    seen: list[Any] = []
    client = device.placement.client

    def loading(*_: Any) -> None:
        seen.append((device.figures, device.state, is_candidate(client, device.uuid, "FPGA")))

    driver.loading = loading
    told = StepRecorder()

    job = device.program("new", on_step=told)

    assert seen == [(FULL, "programming", False)]
    assert driver.programmed == [(device.uuid, IMAGE, "new")]
    assert is_candidate(client, device.uuid, "FPGA")
    assert told.steps == ["reserved", "programming", "programmed", "released"]
    kept = device.job
    assert kept is not None
    assert job.revision == kept.revision
    assert (kept.state, kept.problem) == ("programmed", None)
    assert kept.trait == kept.held_trait == f"{TRAIT}NEW"
    assert kept.stale_traits == [f"{TRAIT}OLD"]
    assert kept.held_since is not None
    # Only the function traits have changed.
    before[device.name]["traits"] ^= {f"{TRAIT}OLD", f"{TRAIT}NEW"}
    assert contents(device.placement) == before
    assert device.is_free()


def test_device_is_tagged_with_its_reported_or_else_the_requested_function(
    device: Device, driver: ProgrammableDriver
) -> None:
    device.says("OLD")
    #: The requested function, the functions that the driver reports, and the traits afterwards.
    cases: list[tuple[str | None, dict[str, str | None], set[str]]] = [
        ("a", {}, {"A"}),
        (None, {}, set()),
        (None, {device.uuid: "new"}, {"NEW"}),
        ("new", {device.uuid: "new"}, {"NEW"}),
        ("NEW!", {device.uuid: "new"}, {"NEW"}),
        (None, {device.uuid: None}, set()),
        ("b", {}, {"B"}),
    ]

    def report(holds: dict[str, str | None], _uuid: str, _function: str | None) -> None:
        driver.held.update(holds)

    for given, holds, functions in cases:
        driver.held = dict.fromkeys(holds, "old")
        driver.loading = partial(report, holds)
        told = StepRecorder()
        job = device.program(given, on_step=told)
        assert device.functions == functions, (given, holds)
        assert (job.state, device.is_free()) == ("programmed", True)
        assert ("is unknown" in told.details["programmed"]) is (not functions), (given, holds)
    assert len(DeviceJobList.get_by_filters(device.context)) == 1

    driver.loading = lambda uuid, function: None
    for held in ("old", None):
        driver.held[device.uuid] = held
        with pytest.raises(JobUnresolved, match=f"reports the function {held or 'none'}"):
            device.program("new")
        assert device.is_left()
        assert device.functions == {"B"}
        resolve_as_unchanged(device)


# Jobs that are refused.


def test_refused_job_leaves_no_row(device: Device, driver: ProgrammableDriver) -> None:
    client, context = device.publishing.client, device.context
    before = contents(device.placement)
    with pytest.raises(InvalidName, match="image"):
        program(client, context, driver, device.summary, image="my.bit")
    for function in ("", "--", "x" * 300):
        with pytest.raises(InvalidName):
            device.program(function)
    with pytest.raises(JobRefused, match=r"does not program devices \(there is nothing to"):
        program(client, context, ScriptedDriver(), device.summary, image=IMAGE)
    assert contents(device.placement) == before
    device.placement.client.delete_provider(device.uuid)
    with pytest.raises(JobRefused, match=f"{device.uuid} of the device are not in Placement"):
        device.program("new")
    assert (device.job, device.is_held, driver.programmed) == (None, False, [])


@pytest.mark.parametrize("owner", [None, "CUSTOM_OWNER_ACME"])
def test_device_that_this_service_does_not_publish_is_refused(
    device: Device, owner: str | None
) -> None:
    client = device.placement.client
    theirs = makes(device.placement, "theirs", **FREE)
    if owner:
        client.create_trait(owner)
        generation = client.get_traits(theirs).resource_provider_generation
        client.set_traits(theirs, generation, [owner])
    before = contents(device.placement)

    with pytest.raises(ReservationRefused, match=owner or "an unknown owner"):
        Device(device.publishing, device.placement, "theirs").program("new")

    assert contents(device.placement) == before
    assert not ReservationList.get_by_filters(device.context)
    assert not device.driver.programmed
    [job] = DeviceJobList.get_by_filters(device.context, provider_uuid=theirs)
    assert job.state == "failed"


def test_job_for_a_device_in_use_waits_while_it_is_reserved(device: Device) -> None:
    in_use(device)
    with pytest.raises(JobRefused, match=f"it is in use by {CONSUMER}"):
        device.program("new")
    assert (device.is_free(), device.state) == (True, "failed")
    told = StepRecorder()
    with pytest.raises(JobRefused, match=r"after 0\.01 s of waiting"):
        device.program("new", wait_for_idle=0.01, on_step=told)
    assert (device.is_free(), device.state) == (True, "failed")
    assert set(told.steps) - {"waiting"} == {"reserved", "released"}
    interrupt = raises(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        device.program("new", wait_for_idle=PATIENCE, on_step=StepRecorder(waiting=interrupt))
    assert (device.is_free(), device.state) == (True, "failed")
    assert not device.driver.programmed

    seen: list[Any] = []

    def waiting() -> None:
        seen.append((device.figures, device.state))
        device.placement.client.delete_allocations(CONSUMER)

    told = StepRecorder(waiting=waiting)
    device.program("new", wait_for_idle=PATIENCE, on_step=told)
    assert seen == [(FULL, "waiting")]
    assert CONSUMER in told.details["waiting"]
    assert (device.functions, device.is_free()) == ({"NEW"}, True)


# Failures.


@pytest.mark.parametrize(
    ("error", "holds"),
    [(REFUSED, []), (FAILED, ["old"]), (FAILED, [None])],
    ids=["refused", "holds the old one", "holds none"],
)
def test_failure_releases_a_device_that_reports_its_former_function(
    device: Device, driver: ProgrammableDriver, error: Exception, holds: list[str | None]
) -> None:
    device.says("OLD")
    driver.held = dict.fromkeys([device.uuid], holds[0]) if holds else {}
    driver.loading = raises(error)
    with pytest.raises(type(error)) as caught:
        device.program("new")
    assert caught.value is error
    assert (device.is_free(), device.functions) == (True, {"OLD"})
    job = device.job
    assert job is not None
    assert job.state == "failed"
    assert str(error) in (job.problem or "")


#: The functions that the device reports before and after the failure; empty: it reports none.
UNKNOWN: list[tuple[list[str | None], list[str | None]]] = [
    ([], []),
    ([], ["old"]),
    (["old"], []),
    (["old"], ["other"]),
    (["old"], [None]),
    ([None], ["old"]),
]


def test_failure_keeps_a_device_of_unknown_function_reserved(
    device: Device, driver: ProgrammableDriver
) -> None:
    for before, after in UNKNOWN:
        driver.held = dict.fromkeys([device.uuid], before[0]) if before else {}

        def loading(*_: Any, after: list[str | None] = after) -> None:
            driver.held = dict.fromkeys([device.uuid], after[0]) if after else {}
            raise FAILED

        driver.loading = loading
        with pytest.raises(JobUnresolved, match="bad checksum") as caught:
            device.program("new")
        assert caught.value.__cause__ is FAILED
        assert device.is_left(), (before, after)
        resolve_as_unchanged(device)


def test_error_without_a_known_outcome_keeps_the_device_reserved(
    device: Device, driver: ProgrammableDriver
) -> None:
    device.says("OLD")
    for error in (
        BackendError(driver="scripted", operation="programming", reason="no answer"),
        NO_ANSWER,
        SystemExit("no answer"),
        KeyboardInterrupt("no answer"),
    ):
        # The device may report its former function while it still writes the new one.
        driver.held[device.uuid] = "old"
        driver.loading = raises(error)
        with pytest.raises(JobUnresolved, match="no answer") as caught:
            device.program("new")
        assert caught.value.__cause__ is error
        assert "device resolve" in str(caught.value)
        assert device.is_left()
        assert device.functions == {"OLD"}
        assert device.job is not None
        assert "no answer" in (device.job.problem or "")
        resolve_as_unchanged(device)


def test_device_with_an_unresolved_job_is_refused(
    device: Device, driver: ProgrammableDriver
) -> None:
    driver.loading = raises(NO_ANSWER)
    with pytest.raises(JobUnresolved):
        device.program("new")
    driver.programmed.clear()
    for state in ("unknown", "programming", "waiting", "reserving"):
        job = device.job
        assert job is not None
        job.state = state
        job.save()
        with pytest.raises(JobRefused, match="another job of this device"):
            device.program("new")
        assert (device.is_held, device.state) == (True, state)
    device.falls_silent()
    resolve_as_unchanged(device)
    # A reservation of a job without its row must be resolved, too.
    holds = Reservations(device.publishing.client, device.context)
    holds.reserve(device.summary, holder=JOB_HOLDER, reason="programming")
    with pytest.raises(JobRefused, match="another job of this device"):
        device.program("newer")
    assert device.is_held
    assert not driver.programmed


@pytest.mark.parametrize(
    ("step", "error"),
    [
        ("reserved", KeyboardInterrupt()),
        ("programming", BrokenPipeError("no reader")),
        ("programming", KeyboardInterrupt()),
        ("programmed", BrokenPipeError("no reader")),
        ("released", KeyboardInterrupt()),
    ],
    ids=repr,
)
def test_failed_report_of_a_step_keeps_the_device_reserved_only_with_an_error(
    device: Device, sibling: Device, step: str, error: BaseException
) -> None:
    with pytest.raises(BaseException) as caught:
        device.program("new", on_step=StepRecorder(**{step: raises(error)}))
    assert isinstance(caught.value, JobUnresolved) or caught.value is error
    assert isinstance(caught.value, JobUnresolved) is device.is_held
    if step == "programming":
        assert device.is_left()
        assert sibling.is_held
    else:
        assert device.is_free()
        assert sibling.is_free()


# Writes of other processes during a job.


def test_device_deleted_during_a_job_leaves_it_to_be_resolved(
    device: Device, driver: ProgrammableDriver
) -> None:
    driver.loading = lambda uuid, _: device.placement.client.delete_provider(uuid)
    with pytest.raises(JobUnresolved, match="it was programmed, but"):
        device.program("new")
    assert device.state == "unknown"


def test_device_that_another_owner_took_during_a_job_is_not_tagged(
    card: Device, driver: ProgrammableDriver
) -> None:
    client = card.placement.client

    def loading(*_: Any) -> None:
        generation = client.get_traits(card.uuid).resource_provider_generation
        client.set_traits(card.uuid, generation, ["OWNER_CYBORG"])

    driver.loading = loading
    with pytest.raises(JobUnresolved, match="belongs to OWNER_CYBORG now"):
        card.program("new")
    assert contents(card.placement)[CARD]["traits"] == {"OWNER_CYBORG"}
    assert card.state == "unknown"


def test_figures_that_the_owner_writes_during_a_job_are_reserved_and_restored(
    card: Device, driver: ProgrammableDriver
) -> None:
    def loading(*_: Any) -> None:
        writes(card.placement, CARD, FPGA=(6, 2))
        wait_until(lambda: card.figures == {"FPGA": (6, 6)})
        requests.clear()
        wait_until(lambda: len(requests) > 3)
        assert not requests.writes

    requests = card.placement.requests
    driver.loading = loading
    card.program("new")
    assert card.figures == {"FPGA": (6, 2)}
    assert not card.is_held


def test_device_that_an_operator_reserved_too_stays_reserved(device: Device) -> None:
    holds = Reservations(device.publishing.client, device.context)
    holds.reserve(device.summary, holder="operator", reason="a fan is loud")
    told = StepRecorder()
    device.program("new", on_step=told)
    assert (device.figures, device.is_held, device.state) == (FULL, False, "programmed")
    assert told.details["released"] == "still reserved: a fan is loud (held by operator)"
    assert holds.release(device.summary, "operator") == ()
    assert device.is_free()


def test_device_released_during_a_job_is_not_reserved_again(
    device: Device, driver: ProgrammableDriver
) -> None:
    looks = threading.Event()

    def look(method: str, path: str) -> None:
        if threading.current_thread().name != JOB_HOLDER and method == "GET":
            looks.set()

    def loading(*_: Any) -> None:
        Reservations(device.placement.new_client(), device.context).release(
            device.summary, JOB_HOLDER
        )
        device.placement.adapter.after = look
        for _look in range(3):
            looks.clear()
            assert looks.wait(PATIENCE)
        device.placement.adapter.after = lambda method, path: None
        assert device.figures == FREE

    driver.loading = loading
    job = device.program("new")
    assert (job.state, device.functions, device.is_free()) == ("programmed", {"NEW"}, True)


def test_job_resolved_while_it_runs_ends_as_resolved(
    device: Device, driver: ProgrammableDriver
) -> None:
    def loading(*_: Any) -> None:
        device.falls_silent()
        client = device.placement.new_client()
        assert resolve(client, device.context, device.uuid, programmed=False) == ()

    device.says("OLD")
    driver.loading = loading
    with pytest.raises(JobUnresolved, match="another process has resolved or deleted the job"):
        device.program("new")
    assert (device.state, device.functions, device.is_free()) == ("failed", {"OLD"}, True)


# Signs of life (reports that the job still runs), and outages.


@pytest.mark.parametrize(
    "what", ["Placement is away", "Placement hangs", "the database is away", "nothing"]
)
def test_job_reports_signs_of_life_during_an_outage(
    device: Device, driver: ProgrammableDriver, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    is_back, asked, save = threading.Event(), threading.Semaphore(0), DeviceJob.save

    def away(method: str, path: str) -> None:
        asked.release()
        if what == "Placement hangs":
            is_back.wait(PATIENCE)
        elif not is_back.is_set():
            raise ConnectFailure("no server")

    def unwritable(job: DeviceJob) -> None:
        if not is_back.is_set():
            asked.release()
            raise StateError(path="state", problem="it is away.", remedy="Wait.")
        save(job)

    def loading(*_: Any) -> None:
        if what == "the database is away":
            monkeypatch.setattr(DeviceJob, "save", unwritable)
        elif what != "nothing":
            device.placement.adapter.before = away
        try:
            for _look in range({"nothing": 0, "Placement hangs": 1}.get(what, 3)):
                assert asked.acquire(timeout=PATIENCE)
            if what != "the database is away":
                began = revision(device)
                wait_until(lambda: revision(device) > began + 1)
        finally:
            is_back.set()

    driver.loading = loading
    monkeypatch.setattr("wharfinger.jobs.device_programming._BEATS", 6000)  # one report in 10 ms
    device.program("new")
    assert (device.state, device.functions, device.is_free()) == ("programmed", {"NEW"}, True)


def test_job_reports_signs_of_life_while_it_reserves_and_waits(
    device: Device, sibling: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wharfinger.jobs.device_programming._BEATS", 10**9)
    in_use(device)
    revisions: list[int] = []

    def look() -> None:
        revisions.append(revision(device))

    def waiting() -> None:
        look()
        told.act("waiting", again)

    def again() -> None:
        look()
        device.placement.client.delete_allocations(CONSUMER)

    told = StepRecorder(reserved=look, waiting=waiting)
    device.program("new", wait_for_idle=PATIENCE, on_step=told)
    first, second, third = revisions
    assert first >= 2
    assert second > first
    assert third > second


@pytest.mark.parametrize("away", ["Placement", "the database"])
def test_device_programmed_before_an_outage_is_left_to_be_resolved(
    device: Device, driver: ProgrammableDriver, monkeypatch: pytest.MonkeyPatch, away: str
) -> None:
    def loading(*_: Any) -> None:
        if away == "Placement":
            device.placement.adapter.before = raises(ConnectFailure("no server"))
        else:
            error = StateError(path="state", problem="it is away.", remedy="Wait.")
            monkeypatch.setattr(DeviceJob, "save", raises(error))

    driver.loading = loading
    with pytest.raises(JobUnresolved, match="it was programmed, but"):
        device.program("new")
    device.placement.adapter.before = lambda method, path: None
    monkeypatch.undo()
    assert device.figures == FULL
    assert device.is_held
    assert device.state == ("unknown" if away == "Placement" else "programming")


# Other functions of the device.


def test_all_functions_of_a_device_are_reserved_tagged_and_released(
    device: Device, sibling: Device, driver: ProgrammableDriver
) -> None:
    seen: list[Any] = []
    sibling.says("OLD")
    driver.loading = lambda *_: seen.append((device.figures, sibling.figures))
    told = StepRecorder()

    job = device.program("new", on_step=told)

    assert seen == [(FULL, FULL)]
    assert (device.functions, sibling.functions) == ({"NEW"}, {"NEW"})
    assert device.is_free()
    assert sibling.is_free()
    assert job.siblings == [sibling.uuid]
    assert sibling.job is None
    assert sibling.name in told.details["reserved"]


def test_function_that_cannot_be_reserved_prevents_the_job(
    device: Device, sibling: Device, driver: ProgrammableDriver
) -> None:
    in_use(sibling)
    with pytest.raises(JobRefused, match="it is in use"):
        device.program("new")
    assert device.is_free()
    assert sibling.is_free()
    device.placement.client.delete_allocations(CONSUMER)

    theirs = makes(device.placement, "theirs", **FREE)
    driver.scopes[device.uuid] = [device.uuid, sibling.uuid, theirs]
    with pytest.raises(ReservationRefused, match="theirs"):
        device.program("new")
    assert (device.is_free(), device.state) == (True, "failed")
    assert sibling.is_free()
    driver.scopes[device.uuid] = [device.uuid, sibling.uuid]

    holds = Reservations(device.publishing.client, device.context)
    holds.reserve(sibling.summary, holder=JOB_HOLDER, reason="programming")
    with pytest.raises(JobRefused, match="another job of this device"):
        device.program("new")
    assert device.is_free()
    assert (sibling.figures, sibling.is_held) == (FULL, True)
    assert not driver.programmed


def test_function_of_another_job_prevents_the_job(
    device: Device, sibling: Device, driver: ProgrammableDriver
) -> None:
    refusals: list[str] = []

    def refused() -> None:
        with pytest.raises(JobRefused, match="another job of this device") as caught:
            sibling.program("other")
        refusals.append(str(caught.value))

    driver.loading = lambda *_: refused()
    device.program("new")
    assert device.is_free()
    assert sibling.is_free()

    driver.loading = raises(NO_ANSWER)
    with pytest.raises(JobUnresolved):
        device.program("new")
    refused()
    assert device.is_left()
    assert (sibling.figures, sibling.is_held) == (FULL, True)
    assert len(refusals) == 2
    assert sibling.job is None
