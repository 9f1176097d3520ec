"""Resolutions of jobs: only an operator, and no process, decides how a job has ended."""

from collections.abc import Iterator

import pytest

from tests.functional.jobs.test_device_programming import NO_ANSWER, TRAIT, raises
from tests.lab.cycles import contents
from tests.lab.devices import CARD, FREE, FULL, OWN, SIBLING, Device, ProgrammableDriver
from tests.lab.objects import Served, elsewhere
from tests.lab.reserving import node, summary
from wharfinger.exceptions import JobRefused, JobUnresolved, ReservationRefused
from wharfinger.jobs import resolve
from wharfinger.objects import JOB_HOLDER, DeviceJob, DeviceJobList, ReservationList
from wharfinger.providers.names import child_uuid
from wharfinger.reconcile.cycle import Reconciler
from wharfinger.reconcile.reserve_and_release import Reservations

SAID = f"{TRAIT}SAID"


@pytest.fixture(scope="module", autouse=True)
def where(keeper: Served) -> Iterator[None]:
    """Store the objects only in another process, which tests more than local objects do."""
    with elsewhere(keeper):
        yield
    keeper.questions.clear()


def leave(device: Device, sibling: Device) -> DeviceJob:
    """Leave a job of unknown outcome, with both functions of the device reserved."""
    for one in (device, sibling):
        one.says("OLD")
    device.driver.loading = raises(NO_ANSWER)
    with pytest.raises(JobUnresolved):
        device.program("new")
    assert device.is_left()
    assert device.job is not None
    return device.job


@pytest.fixture
def left(device: Device, sibling: Device) -> DeviceJob:
    """A job of unknown outcome, with both functions of the device reserved."""
    return leave(device, sibling)


def decide(device: Device, *, programmed: bool, **more: object) -> tuple[str, ...] | None:
    return resolve(
        device.publishing.client,
        device.context,
        device.uuid,
        programmed=programmed,
        **more,  # type: ignore[arg-type]
    )


# The operator's decision.


def test_resolve_sets_the_function_that_the_operator_names(device: Device, sibling: Device) -> None:
    for asked, programmed, trait, function in (
        (device, True, None, "NEW"),
        (sibling, True, SAID, "SAID"),
        (device, False, None, "OLD"),
        (sibling, False, SAID, "OLD"),
    ):
        leave(device, sibling)
        assert decide(asked, programmed=programmed, trait=trait) == ()
        for one in (device, sibling):
            assert one.is_free()
            assert one.functions == {function}
        assert device.state == ("programmed" if programmed else "failed")
        with pytest.raises(JobRefused, match="the device has no unresolved job"):
            decide(asked, programmed=programmed)
    device.driver.loading = lambda uuid, function: None
    device.program("newer")
    assert device.functions == {"NEWER"}


def test_resolve_returns_the_reasons_that_keep_the_device_reserved(
    device: Device, sibling: Device, left: DeviceJob
) -> None:
    holds = Reservations(device.publishing.client, device.context)
    for one in (device, sibling):
        holds.reserve(one.summary, holder="operator", reason="a fan is loud")
    assert decide(device, programmed=True) == ("a fan is loud (held by operator)",)
    assert (device.figures, device.is_held) == (FULL, False)


def test_resolve_of_a_reservation_without_a_job_only_releases(device: Device) -> None:
    holds = Reservations(device.publishing.client, device.context)
    for has_job in (False, True):
        if has_job:
            device.program("new")
        before, state = contents(device.placement), device.state
        for programmed in (True, False):
            with pytest.raises(JobRefused, match="the device has no unresolved job"):
                decide(device, programmed=programmed)
            holds.reserve(device.summary, holder=JOB_HOLDER, reason="programming")
            assert decide(device, programmed=programmed, trait=SAID) == ()
            assert contents(device.placement) == before
            assert device.state == state
    device.job.destroy()  # type: ignore[union-attr]
    holds.reserve(device.summary, holder=JOB_HOLDER, reason="programming")
    gone(device)
    assert decide(device, programmed=False) is None
    assert is_forgotten(device)


@pytest.mark.parametrize("device", [CARD], indirect=True)
def test_resolve_of_a_device_that_another_owner_took_only_releases(
    device: Device, driver: ProgrammableDriver
) -> None:
    driver.loading = raises(NO_ANSWER)
    with pytest.raises(JobUnresolved):
        device.program("new")
    client = device.placement.client
    generation = client.get_traits(device.uuid).resource_provider_generation
    client.set_traits(device.uuid, generation, ["OWNER_CYBORG"])

    with pytest.raises((JobRefused, ReservationRefused)):
        decide(device, programmed=True)
    assert (device.state, device.is_held) == ("unknown", True)

    decide(device, programmed=False)
    assert (device.state, device.is_held) == ("failed", False)
    assert contents(device.placement)[CARD]["traits"] == {"OWNER_CYBORG"}


# Processes that still run.


def test_job_in_progress_is_neither_resolved_nor_forgotten(
    device: Device, sibling: Device, left: DeviceJob
) -> None:
    for state in ("reserving", "waiting", "programming"):
        left.state = state
        left.save()
        if state == "programming":
            gone(device, sibling)
        with pytest.raises(JobRefused) as caught:
            decide(device, programmed=False)
        assert f"in progress: process {left.process_id} on host {left.host}" in str(caught.value)
        assert "60 s" in str(caught.value)
        assert (device.state, device.is_held, sibling.is_held) == (state, True, True)
    device.falls_silent()
    assert decide(device, programmed=False) is None
    assert is_forgotten(device, sibling)


# Two decisions at once.


def first_put(method: str, path: str) -> bool:
    return method == "PUT" and path.endswith("/traits")


def test_two_resolutions_of_one_job_at_once_have_one_winner(
    device: Device, sibling: Device
) -> None:
    for programmed in (True, False):
        leave(device, sibling)

        def other(programmed: bool = programmed) -> None:
            client = device.placement.new_client()
            resolve(client, device.context, device.uuid, programmed=programmed)

        struck = device.placement.adapter.once_before(first_put, other)
        with pytest.raises(JobRefused, match="another process has changed or resolved"):
            decide(device, programmed=True, trait=SAID)
        assert struck
        assert device.state == ("programmed" if programmed else "failed")
        assert device.is_free()
        assert sibling.is_free()


# Absent devices.


def gone(*devices: Device) -> None:
    for device in devices:
        device.placement.client.delete_provider(device.uuid)


def is_forgotten(*devices: Device) -> bool:
    """Return whether no job and no reservation of the devices is left."""
    uuids = {device.uuid for device in devices}
    context = devices[0].context
    return not any(
        uuids & {*one.scope} for one in DeviceJobList.get_by_filters(context)
    ) and not ReservationList.get_by_filters(context, provider_uuid=sorted(uuids))


def test_device_that_returns_is_free_once_its_job_is_forgotten(
    device: Device, sibling: Device, left: DeviceJob
) -> None:
    gone(device, sibling)
    device.publishing.restarted()
    device.publishing.cycle.sync()
    assert device.is_left()
    assert sibling.figures == FULL
    gone(device, sibling)
    assert decide(sibling, programmed=True) is None
    assert is_forgotten(device, sibling)
    with pytest.raises(JobRefused, match="the device has no unresolved job"):
        decide(sibling, programmed=True)

    device.publishing.restarted()
    device.publishing.cycle.sync()

    assert device.is_free()
    assert sibling.is_free()
    assert device.functions == sibling.functions == set()
    device.driver.loading = lambda uuid, function: None
    sibling.program("newer")
    assert device.functions == sibling.functions == {"NEWER"}


@pytest.mark.parametrize(
    ("lost", "asked", "programmed"),
    [("it", "it", True), ("it", "other", False), ("other", "it", False), ("other", "other", True)],
)
def test_resolve_of_a_device_with_an_absent_part_uses_the_other_part(
    device: Device, sibling: Device, lost: str, asked: str, programmed: bool
) -> None:
    leave(device, sibling)
    parts = {"it": device, "other": sibling}
    gone(parts[lost])
    assert decide(parts[asked], programmed=programmed) == ()
    there = sibling if lost == "it" else device
    assert there.is_free()
    assert there.functions == ({"NEW"} if programmed else {"OLD"})
    assert device.state == ("programmed" if programmed else "failed")
    assert not ReservationList.get_by_filters(device.context, holder=JOB_HOLDER)


def test_part_that_appears_later_is_reserved_with_the_device(
    device: Device, sibling: Device, left: DeviceJob
) -> None:
    late = child_uuid(summary(device.placement, "cn").uuid, "fpga-3")
    device.driver.scopes[device.uuid] = [device.uuid, late]
    parts = dict.fromkeys((OWN, SIBLING, "fpga-3"), FREE)
    device.driver.nodes["cn"] = node({"VCPU": (8, 0)}, **parts)

    device.publishing.cycle.sync()
    assert contents(device.placement)["fpga-3"]["inventories"] == FULL

    decide(device, programmed=True)
    device.publishing.cycle.sync()
    assert contents(device.placement)["fpga-3"]["inventories"] == FREE


def test_restart_does_not_release_an_unresolved_device(
    device: Device, sibling: Device, left: DeviceJob
) -> None:
    cycles = (Reconciler.sync, Reconciler.drift)
    for _ in range(2):
        device.publishing.restarted()
        for cycle in cycles:
            assert not cycle(device.publishing.cycle).problems
            assert device.is_left()
            assert sibling.figures == FULL
    with pytest.raises(JobRefused):
        device.program("new")
    assert device.is_left()

    decide(device, programmed=True)

    device.publishing.cycle.sync()
    assert device.is_free()
    assert device.functions == sibling.functions == {"NEW"}
