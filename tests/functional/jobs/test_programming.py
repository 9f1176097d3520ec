"""Programming a device: whatever becomes of it, it is free only where it is known what it holds."""

import threading
from collections.abc import Callable
from datetime import timedelta
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
    WharfingerError,
)
from wharfinger.jobs import HOLDER, program, resolve
from wharfinger.objects import DeviceJob, DeviceJobList, ReservationList
from wharfinger.placement.holds import Holds

CONSUMER = uuid("consumer")
#: Seconds; what is waited for takes milliseconds.
PATIENCE = 30.0
BOTH = pytest.mark.parametrize("device", [OWN, CARD], indirect=True)
REFUSED = ProgrammingRefused(driver="scripted", provider=OWN, reason="wrong image")
FAILED = ProgrammingFailed(driver="scripted", provider=OWN, reason="bad checksum")


def raises(error: BaseException) -> Callable[[str, str | None], None]:
    """What a driver does that fails."""

    def loading(uuid: str, function: str | None) -> None:
        raise error

    return loading


class Told:
    """The steps that a job has told of; ``at`` is what is done when one of them is told."""

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
        """Have something done when a step is told next."""
        self._at[step] = act


def fail(error: BaseException) -> Callable[[], None]:
    def act() -> None:
        raise error

    return act


def awaited(is_so: Callable[[], bool]) -> None:
    """Look until something is so that another thread does."""
    pause = threading.Event()
    for _ in range(int(PATIENCE / 0.005)):
        if is_so():
            return
        pause.wait(0.005)
    raise AssertionError("it has not come to pass")


# What goes well.


@BOTH
def test_a_device_is_reserved_programmed_marked_and_released(
    device: Device, driver: ProgrammableDriver
) -> None:
    device.says("OLD")
    seen: list[Any] = []

    def loading(*_: Any) -> None:
        client = device.placement.client
        seen.append((device.figures, device.state, is_candidate(client, device.uuid, "FPGA")))

    driver.loading = loading
    told = Told()

    job = device.program("new", on_step=told)

    assert seen == [(FULL, "programming", False)]
    assert driver.programmed == [(device.uuid, IMAGE, "new")]
    assert device.is_free()
    assert device.functions == {"NEW"}
    assert is_candidate(device.placement.client, device.uuid, "FPGA")
    assert told.steps == ["reserved", "programming", "programmed", "released"]
    kept = device.job
    assert kept is not None
    assert job.revision == kept.revision
    assert (kept.state, kept.problem) == ("programmed", None)
    assert kept.trait == kept.held_trait == "CUSTOM_FPGA_FUNCTION_ID_NEW"
    assert kept.stale_traits == ["CUSTOM_FPGA_FUNCTION_ID_OLD"]
    assert kept.held_since is not None


@BOTH
def test_other_traits_stay_as_they_are(device: Device) -> None:
    before = contents(device.placement)
    device.program("new")
    after = contents(device.placement)
    after[device.name]["traits"] -= {"CUSTOM_FPGA_FUNCTION_ID_NEW"}
    assert after == before


def test_where_nobody_knows_the_function_nothing_says_one(device: Device) -> None:
    device.says("OLD")
    told = Told()
    job = device.program(on_step=told)
    assert (job.state, job.trait) == ("programmed", None)
    assert device.functions == set()
    assert device.is_free()
    assert "nothing says" in told.details["programmed"]


@pytest.mark.parametrize(
    ("given", "held", "functions"),
    [
        (None, "new", {"NEW"}),
        ("new", "new", {"NEW"}),
        ("NEW!", "new", {"NEW"}),
        (None, None, set()),
    ],
)
def test_what_the_device_says_that_it_holds_is_marked(
    device: Device,
    driver: ProgrammableDriver,
    given: str | None,
    held: str | None,
    functions: set[str],
) -> None:
    device.says("OLD")
    driver.held[device.uuid] = "old"
    driver.loading = lambda uuid, function: driver.held.update({uuid: held})
    job = device.program(given)
    assert device.functions == functions
    assert (job.state, device.is_free()) == ("programmed", True)


@pytest.mark.parametrize("held", ["old", None])
def test_a_device_that_says_that_it_holds_another_stays_reserved(
    device: Device, driver: ProgrammableDriver, held: str | None
) -> None:
    driver.held[device.uuid] = held
    with pytest.raises(JobUnresolved, match=f"holds function {held or 'none'}"):
        device.program("new")
    assert device.is_left()
    assert device.functions == set()


def test_a_device_is_programmed_again_and_again(device: Device) -> None:
    for function in ("a", "b", "b", None, "c"):
        device.program(function)
        assert device.functions == ({function.upper()} if function else set())
        assert device.is_free()
    assert len(DeviceJobList.get_by_filters(device.context)) == 1


# What does not begin.


def test_what_is_no_uuid_is_no_image(device: Device, driver: ProgrammableDriver) -> None:
    with pytest.raises(InvalidName, match="image"):
        program(device.publishing.client, device.context, driver, device.summary, image="my.bit")
    assert device.is_free()
    assert device.job is None


@pytest.mark.parametrize("function", ["", "--", "x" * 300])
def test_a_function_that_no_trait_can_say_is_refused(device: Device, function: str) -> None:
    with pytest.raises(InvalidName):
        device.program(function)
    assert device.is_free()
    assert device.job is None


def test_a_driver_that_cannot_program_is_not_asked_to(device: Device) -> None:
    before = contents(device.placement)
    with pytest.raises(JobRefused, match=r"does not program devices \(there is nothing to"):
        program(
            device.publishing.client,
            device.context,
            ScriptedDriver(),
            device.summary,
            image=IMAGE,
        )
    assert contents(device.placement) == before
    assert device.job is None


@pytest.mark.parametrize("owner", [None, "CUSTOM_OWNER_ACME"])
def test_what_nobody_publishes_here_is_left_alone(device: Device, owner: str | None) -> None:
    client = device.placement.client
    theirs = makes(device.placement, "theirs", **FREE)
    if owner:
        client.create_trait(owner)
        generation = client.get_traits(theirs).resource_provider_generation
        client.set_traits(theirs, generation, [owner])
    before = contents(device.placement)

    with pytest.raises(ReservationRefused, match=owner or "nobody known"):
        Device(device.publishing, device.placement, "theirs").program("new")

    assert contents(device.placement) == before
    assert not ReservationList.get_by_filters(device.context)
    assert not device.driver.programmed
    [job] = DeviceJobList.get_by_filters(device.context, provider_uuid=theirs)
    assert job.state == "failed"


def test_what_is_gone_already_is_told(device: Device) -> None:
    device.placement.client.delete_provider(device.uuid)
    with pytest.raises(JobRefused, match=f"not in Placement .{device.uuid}"):
        device.program("new")
    assert device.job is None
    assert not device.is_held


# What is in use.


def in_use(device: Device, *consumers: str) -> None:
    for consumer in consumers or (CONSUMER,):
        allocate(device.placement, consumer, "1.39", **{device.name: {"FPGA": 1}})


def test_what_is_in_use_is_refused_at_once_and_free_again(device: Device) -> None:
    in_use(device)
    with pytest.raises(JobRefused, match=f"it is in use by {CONSUMER}"):
        device.program("new")
    assert device.is_free()
    assert device.state == "failed"
    assert not device.driver.programmed


def test_what_is_in_use_for_too_long_is_refused_and_free_again(device: Device) -> None:
    in_use(device, *(uuid(f"consumer {number}") for number in range(3)))
    told = Told()
    with pytest.raises(JobRefused, match=r"after 0\.01 s of waiting"):
        device.program("new", wait_for_idle=0.01, on_step=told)
    assert device.is_free()
    assert device.state == "failed"
    assert set(told.steps) - {"waiting"} == {"reserved", "released"}


def test_what_is_in_use_is_waited_for_and_reserved_meanwhile(device: Device) -> None:
    in_use(device)
    seen: list[Any] = []

    def waiting() -> None:
        seen.append((device.figures, device.state))
        device.placement.client.delete_allocations(CONSUMER)

    told = Told(waiting=waiting)
    device.program("new", wait_for_idle=PATIENCE, on_step=told)

    assert seen == [(FULL, "waiting")]
    assert CONSUMER in told.details["waiting"]
    assert (device.functions, device.is_free()) == ({"NEW"}, True)


def test_what_ends_a_wait_lets_go_of_the_device(device: Device) -> None:
    in_use(device)
    with pytest.raises(KeyboardInterrupt):
        device.program(
            "new", wait_for_idle=PATIENCE, on_step=Told(waiting=fail(KeyboardInterrupt()))
        )
    assert device.is_free()
    assert device.state == "failed"


# What fails.


def test_a_driver_that_refuses_leaves_it_as_it_was(
    device: Device, driver: ProgrammableDriver
) -> None:
    device.says("OLD")
    driver.loading = raises(REFUSED)
    with pytest.raises(ProgrammingRefused, match="wrong image"):
        device.program("new")
    assert device.is_free()
    assert device.functions == {"OLD"}
    job = device.job
    assert job is not None
    assert job.state == "failed"
    assert "wrong image" in (job.problem or "")


@pytest.mark.parametrize("held", ["old", None])
def test_a_failure_releases_what_is_known_to_hold_what_it_held(
    device: Device, driver: ProgrammableDriver, held: str | None
) -> None:
    device.says("OLD")
    driver.held[device.uuid] = held
    driver.loading = raises(FAILED)
    with pytest.raises(ProgrammingFailed, match="bad checksum"):
        device.program("new")
    assert (device.is_free(), device.state) == (True, "failed")
    assert device.functions == {"OLD"}


#: What it says before and after, if anything.
UNKNOWN: list[tuple[list[str | None], list[str | None]]] = [
    ([], []),
    ([], ["old"]),
    (["old"], []),
    (["old"], ["other"]),
    (["old"], [None]),
    ([None], ["old"]),
]


@pytest.mark.parametrize(("before", "after"), UNKNOWN, ids=str)
def test_a_failure_keeps_reserved_what_is_not_known_to_hold_what_it_held(
    device: Device,
    driver: ProgrammableDriver,
    before: list[str | None],
    after: list[str | None],
) -> None:
    driver.held = dict.fromkeys([device.uuid], before[0]) if before else {}

    def loading(*_: Any) -> None:
        driver.held = dict.fromkeys([device.uuid], after[0]) if after else {}
        raise FAILED

    driver.loading = loading
    with pytest.raises(JobUnresolved, match="bad checksum") as caught:
        device.program("new")
    assert caught.value.__cause__ is FAILED
    assert device.is_left()


@pytest.mark.parametrize(
    "error",
    [
        BackendError(driver="scripted", operation="programming", reason="no answer"),
        OSError("no answer"),
        SystemExit("no answer"),
        KeyboardInterrupt("no answer"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_is_not_known_keeps_it_reserved(
    device: Device, driver: ProgrammableDriver, error: BaseException
) -> None:
    device.says("OLD")
    # Not even where it says the old one: that may be while it is still being written.
    driver.held[device.uuid] = "old"
    driver.loading = raises(error)
    with pytest.raises(JobUnresolved, match="no answer") as caught:
        device.program("new")
    assert caught.value.__cause__ is error
    assert "device resolve" in str(caught.value)
    assert device.is_left()
    assert device.functions == {"OLD"}
    job = device.job
    assert job is not None
    assert "no answer" in (job.problem or "")


@pytest.mark.parametrize("left", ["unknown", "programming", "waiting", "reserving"])
def test_what_was_left_is_not_programmed_until_it_is_resolved(
    device: Device, driver: ProgrammableDriver, left: str
) -> None:
    driver.loading = raises(OSError("no answer"))
    with pytest.raises(JobUnresolved):
        device.program("new")
    job = device.job
    assert job is not None
    job.state = left
    job.save()
    driver.programmed.clear()

    with pytest.raises(JobRefused, match="another job has it"):
        device.program("new")

    assert not driver.programmed
    assert device.is_held
    assert device.state == left


def test_a_reservation_that_was_left_alone_is_one_to_resolve(device: Device) -> None:
    device.program("new")
    holds = Holds(device.publishing.client, device.context)
    holds.reserve(device.summary, holder=HOLDER, reason="programming")
    with pytest.raises(JobRefused, match="another job has it"):
        device.program("newer")
    assert (device.is_held, device.functions) == (True, {"NEW"})


# Whoever listens.


@pytest.mark.parametrize("error", [KeyboardInterrupt(), BrokenPipeError("nobody reads")], ids=repr)
@pytest.mark.parametrize("step", ["reserved", "programming", "programmed", "released"])
def test_who_listens_and_fails_keeps_nothing_reserved_unsaid(
    device: Device, sibling: Device, error: BaseException, step: str
) -> None:
    with pytest.raises(BaseException) as caught:
        device.program("new", on_step=Told(**{step: fail(error)}))
    assert isinstance(caught.value, JobUnresolved) or caught.value is error
    assert isinstance(caught.value, JobUnresolved) is device.is_held
    if step == "programming":
        assert device.is_left()
        assert sibling.is_held
    else:
        assert device.is_free()
        assert sibling.is_free()


# What happens meanwhile.


def test_a_device_that_goes_meanwhile_is_left_for_somebody_to_resolve(
    device: Device, driver: ProgrammableDriver
) -> None:
    driver.loading = lambda uuid, _: device.placement.client.delete_provider(uuid)
    with pytest.raises(JobUnresolved, match="it was programmed, and then"):
        device.program("new")
    assert device.state == "unknown"


def test_what_has_another_owner_meanwhile_is_not_marked(
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


def test_what_its_owner_writes_meanwhile_is_reserved_and_comes_back(
    card: Device, driver: ProgrammableDriver
) -> None:
    def loading(*_: Any) -> None:
        writes(card.placement, CARD, FPGA=(6, 2))
        awaited(lambda: card.figures == {"FPGA": (6, 6)})

    driver.loading = loading
    card.program("new")
    assert card.figures == {"FPGA": (6, 2)}
    assert not card.is_held


def test_what_an_operator_has_reserved_besides_stays_reserved(device: Device) -> None:
    holds = Holds(device.publishing.client, device.context)
    holds.reserve(device.summary, holder="operator", reason="a fan is loud")
    told = Told()
    device.program("new", on_step=told)
    assert (device.figures, device.is_held, device.state) == (FULL, False, "programmed")
    assert told.details["released"] == "still reserved: a fan is loud (held by operator)"
    assert holds.release(device.summary, "operator") == ()
    assert device.is_free()


def test_what_somebody_releases_meanwhile_is_not_reserved_again(
    device: Device, driver: ProgrammableDriver
) -> None:
    looks = threading.Event()

    def look(method: str, path: str) -> None:
        if threading.current_thread().name != HOLDER and method == "GET":
            looks.set()

    def loading(*_: Any) -> None:
        Holds(device.placement.new_client(), device.context).release(device.summary, HOLDER)
        device.placement.adapter.after = look
        for _look in range(3):
            looks.clear()
            assert looks.wait(PATIENCE)
        device.placement.adapter.after = lambda method, path: None
        assert device.figures == FREE

    driver.loading = loading
    job = device.program("new")
    assert (job.state, device.functions, device.is_free()) == ("programmed", {"NEW"}, True)


def test_what_somebody_resolves_meanwhile_is_as_they_say(
    device: Device, driver: ProgrammableDriver
) -> None:
    def loading(*_: Any) -> None:
        device.falls_silent()
        client = device.placement.new_client()
        assert resolve(client, device.context, device.uuid, programmed=False) == ()

    device.says("OLD")
    driver.loading = loading
    with pytest.raises(JobUnresolved, match="somebody else has decided on the job"):
        device.program("new")
    assert (device.state, device.functions, device.is_free()) == ("failed", {"OLD"}, True)


def test_a_job_says_that_it_is_under_way(device: Device, driver: ProgrammableDriver) -> None:
    def loading(*_: Any) -> None:
        began = revision()
        awaited(lambda: revision() > began + 1)

    def revision() -> int:
        assert device.job is not None
        return device.job.revision

    driver.loading = loading
    device.program("new", down_time=timedelta(seconds=0.03))
    assert (device.state, device.is_free()) == ("programmed", True)


@pytest.mark.parametrize("how", ["answers nobody", "hangs"])
def test_a_job_says_that_it_is_under_way_while_placement_is_away(
    device: Device, driver: ProgrammableDriver, how: str
) -> None:
    is_back, asked = threading.Event(), threading.Event()

    def away(method: str, path: str) -> None:
        asked.set()
        if how == "hangs":
            is_back.wait(PATIENCE)
        elif not is_back.is_set():
            raise ConnectFailure("nobody listens")

    def loading(*_: Any) -> None:
        device.placement.adapter.before = away
        try:
            assert asked.wait(PATIENCE)
            began = revision()
            awaited(lambda: revision() > began + 2)
        finally:
            is_back.set()

    def revision() -> int:
        assert device.job is not None
        return device.job.revision

    driver.loading = loading
    device.program("new", down_time=timedelta(seconds=0.03))
    assert (device.state, device.functions, device.is_free()) == ("programmed", {"NEW"}, True)


def test_a_job_says_that_it_is_under_way_while_it_reserves_and_waits(
    device: Device, sibling: Device
) -> None:
    in_use(device)
    revisions: list[int] = []

    def look() -> None:
        assert device.job is not None
        revisions.append(device.job.revision)

    def waiting() -> None:
        look()
        told.act("waiting", again)

    def again() -> None:
        look()
        device.placement.client.delete_allocations(CONSUMER)

    told = Told(reserved=look, waiting=waiting)
    device.program("new", wait_for_idle=PATIENCE, down_time=timedelta(0), on_step=told)
    first, second, third = revisions
    assert first >= 2
    assert second > first
    assert third > second


def test_placement_that_is_away_for_a_while_stops_nothing(
    device: Device, driver: ProgrammableDriver
) -> None:
    failed: list[str] = []

    def loading(*_: Any) -> None:
        device.placement.adapter.before = away
        awaited(lambda: len(failed) > 2)
        device.placement.adapter.before = lambda method, path: None

    def away(method: str, path: str) -> None:
        failed.append(path)
        raise ConnectFailure("nobody listens")

    driver.loading = loading
    device.program("new")
    assert (device.state, device.functions, device.is_free()) == ("programmed", {"NEW"}, True)


def test_a_database_that_is_away_for_a_while_stops_nothing(
    device: Device, driver: ProgrammableDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    save, failed = DeviceJob.save, list[str]()

    def away(job: DeviceJob) -> None:
        if not is_back.is_set():
            failed.append(job.state)
            raise StateError(path="state", problem="it is away.", remedy="Wait.")
        save(job)

    is_back = threading.Event()

    def loading(*_: Any) -> None:
        monkeypatch.setattr(DeviceJob, "save", away)
        awaited(lambda: len(failed) > 2)
        is_back.set()

    driver.loading = loading
    device.program("new", down_time=timedelta(seconds=0.03))
    assert (device.state, device.functions, device.is_free()) == ("programmed", {"NEW"}, True)


@pytest.mark.parametrize("away", ["Placement", "the database"])
def test_what_is_away_when_it_is_programmed_leaves_it_to_be_resolved(
    device: Device, driver: ProgrammableDriver, monkeypatch: pytest.MonkeyPatch, away: str
) -> None:
    def unreachable(method: str, path: str) -> None:
        raise ConnectFailure("nobody listens")

    def unwritable(job: DeviceJob) -> None:
        raise StateError(path="state", problem="it is away.", remedy="Wait.")

    def loading(*_: Any) -> None:
        if away == "Placement":
            device.placement.adapter.before = unreachable
        else:
            monkeypatch.setattr(DeviceJob, "save", unwritable)

    driver.loading = loading
    with pytest.raises(JobUnresolved, match="it was programmed, and then"):
        device.program("new")
    device.placement.adapter.before = lambda method, path: None
    monkeypatch.undo()
    assert device.figures == FULL
    assert device.is_held
    assert device.state == ("unknown" if away == "Placement" else "programming")


# Other parts of the device.


def test_all_parts_of_a_device_are_reserved_marked_and_released(
    device: Device, sibling: Device, driver: ProgrammableDriver
) -> None:
    seen: list[Any] = []
    sibling.says("OLD")
    driver.loading = lambda *_: seen.append((device.figures, sibling.figures))
    told = Told()

    job = device.program("new", on_step=told)

    assert seen == [(FULL, FULL)]
    assert (device.functions, sibling.functions) == ({"NEW"}, {"NEW"})
    assert device.is_free()
    assert sibling.is_free()
    assert job.siblings == [sibling.uuid]
    assert sibling.job is None
    assert sibling.name in told.details["reserved"]


def test_a_part_that_is_in_use_keeps_the_device_from_being_programmed(
    device: Device, sibling: Device
) -> None:
    in_use(sibling)
    with pytest.raises(JobRefused, match="it is in use"):
        device.program("new")
    assert device.is_free()
    assert sibling.is_free()


def test_a_part_that_nobody_publishes_here_keeps_the_device_from_being_programmed(
    device: Device, sibling: Device, driver: ProgrammableDriver
) -> None:
    theirs = makes(device.placement, "theirs", **FREE)
    driver.scopes[device.uuid] = [device.uuid, sibling.uuid, theirs]
    with pytest.raises(ReservationRefused, match="theirs"):
        device.program("new")
    assert device.is_free()
    assert sibling.is_free()
    assert device.state == "failed"


@pytest.mark.parametrize("outcome", ["under way", "left"])
def test_a_part_that_another_job_has_keeps_the_device_from_being_programmed(
    device: Device, sibling: Device, driver: ProgrammableDriver, outcome: str
) -> None:
    refusals: list[WharfingerError] = []

    def loading(*_: Any) -> None:
        with pytest.raises(JobRefused, match="another job has it") as caught:
            sibling.program("other")
        refusals.append(caught.value)
        if outcome == "left":
            raise OSError("no answer")

    driver.loading = loading
    if outcome == "left":
        with pytest.raises(JobUnresolved):
            device.program("new")
        with pytest.raises(JobRefused, match="another job has it"):
            sibling.program("other")
        assert device.is_left()
        assert (sibling.figures, sibling.is_held) == (FULL, True)
    else:
        device.program("new")
        assert device.is_free()
        assert sibling.is_free()
    assert len(refusals) == 1
    assert sibling.job is None


def test_a_part_that_is_reserved_for_another_job_alone_keeps_it_from_being_programmed(
    device: Device, sibling: Device
) -> None:
    holds = Holds(device.publishing.client, device.context)
    holds.reserve(sibling.summary, holder=HOLDER, reason="programming")
    with pytest.raises(JobRefused, match="another job has it"):
        device.program("new")
    assert device.is_free()
    assert (sibling.figures, sibling.is_held) == (FULL, True)
