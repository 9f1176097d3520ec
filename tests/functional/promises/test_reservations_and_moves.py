"""Promises about reservations, moves, and nodes that move to another host."""

import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from tests.lab.claiming import instance, migration
from tests.lab.cycles import HOST, Publishing, allocate, everything, stored
from tests.lab.devices import FULL, OWN, Device, publish_devices
from tests.lab.drawing import Draw
from tests.lab.placement import PlacementFixture, Requests
from tests.lab.reserving import (
    CleaningDriver,
    drives,
    figures,
    is_full,
    node,
    seen_free,
    summary,
)
from tests.lab.taking_over import TAKEOVERS, TakingOver
from wharfinger.allocations.allocation_writer import Consumers
from wharfinger.exceptions import ObjectExists
from wharfinger.jobs import resolve
from wharfinger.objects import (
    ComputeNode,
    Context,
    MigrationList,
    ProviderRecordList,
    Reservation,
)
from wharfinger.reconcile.record_store import to_object, to_record
from wharfinger.reconcile.reserve_and_release import Reservations

pytestmark = pytest.mark.usefixtures("no_waiting")

FAR = "far-host"
CONSUMER = "6f9de2f4-9d0c-4d0f-a4a6-0c2c5b1f7d31"
#: Seconds to wait for an event before a test fails.
TIMEOUT = 60.0


@pytest.fixture
def near(publishing: Publishing) -> Publishing:
    """A driver instance on one host; its driver cleans released devices."""
    drives(publishing, CleaningDriver())
    return publishing


@pytest.fixture
def far(near: Publishing, placement: PlacementFixture) -> Iterator[Publishing]:
    """The same driver instance on another host, with the same database."""
    with Publishing(placement, near.state_path, host=FAR) as fixture:
        driver = CleaningDriver()
        driver.host = FAR
        drives(fixture, driver)
        yield fixture


def sync(publishing: Publishing) -> None:
    outcome = publishing.cycle.sync()
    assert not outcome.problems, outcome.problems


def host_of(context: Context, uuid: str) -> str:
    return ComputeNode.get_by_uuid(context, uuid).host


def test_device_released_during_a_takeover_stays_reserved_until_it_is_cleaned(
    near: Publishing, far: Publishing, placement: PlacementFixture
) -> None:
    """A device released while its node moves to another host is never free before it is clean."""
    machine = node({"CUSTOM_GOLD": (1, 0)})
    near.driver.nodes["metal"] = machine
    sync(near)
    allocate(placement, CONSUMER, metal={"CUSTOM_GOLD": 1})
    uuid = summary(placement, "metal").uuid
    del near.driver.nodes["metal"]
    sync(near)
    far.driver.nodes |= {"metal": machine, "new": machine}

    released: list[str] = []

    def release(method: str, path: str) -> None:
        """Release the device when the new host has taken over the node, and has not
        written it yet.
        """
        if method == "POST" and not released:
            released.append(path)
            assert host_of(far.context, uuid) == FAR
            Consumers(far.client).release(CONSUMER, Reservations(far.client, far.context))

    with seen_free(placement, uuid, "CUSTOM_GOLD") as free:
        look = placement.adapter.before

        def release_and_look(method: str, path: str) -> None:
            release(method, path)
            look(method, path)

        placement.adapter.before = release_and_look
        sync(far)
        assert released
        assert not everything()["metal"]["allocations"]
        assert isinstance(far.driver, CleaningDriver)
        far.driver.says("metal", "metal", "cleaning")
        sync(far)
        assert is_full(placement, "metal")
    assert not free

    far.driver.says("metal", "metal")
    sync(far)
    assert not is_full(placement, "metal")


def test_two_moves_begun_at_once_leave_one_in_progress(publishing: Publishing) -> None:
    """When two processes begin to move one instance at the same time, exactly one succeeds."""
    moved = instance(publishing.context, 1, place=(HOST, "cn-0"))

    def begin(_number: int) -> bool:
        try:
            return migration(publishing.context, moved, (HOST, "cn-0")).is_in_progress
        except ObjectExists:
            return False

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(begin, range(2))) == [False, True]
    [move] = MigrationList.get_by_filters(publishing.context)
    assert move.is_in_progress


@pytest.mark.parametrize("kind", TAKEOVERS)
def test_takeover_killed_at_any_step_leaves_no_instance_behind(
    placement: PlacementFixture,
    placement_url: tuple[str, Requests],
    tmp_path: Path,
    draw: Draw,
    kind: str,
) -> None:
    """Instances and moves are on the host of their node, whenever a takeover is killed."""
    apart = []
    with TakingOver(placement, placement_url[0], tmp_path, kind) as taking_over:
        assert taking_over.hosts() == {FAR}
        for number in draw(range(len(taking_over.boundaries)), 3):
            ended = taking_over.play(kill_at=number)
            assert ended.code == -signal.SIGKILL, (number, ended)
            hosts = taking_over.hosts()
            apart += [(ended.boundaries[-1], hosts)] if len(hosts) > 1 else []
    assert not apart


def test_job_release_leaves_the_reservation_of_the_next_job(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    """A job ends only its own reservations, never those of a later job."""
    driver = publish_devices(publishing, placement)
    device = Device(publishing, placement, OWN)
    begun, may_end = Event(), Event()

    def load(_uuid: str, function: str | None) -> None:
        if function == "second":
            begun.set()
            assert may_end.wait(TIMEOUT)

    driver.loading = load
    with ThreadPoolExecutor() as pool:
        jobs: list[Any] = []

        def take_over(step: str, _detail: str) -> None:
            """Resolve the job as an operator, and start another one, before it releases."""
            if step == "programmed":
                resolve(publishing.client, device.context, device.uuid, programmed=True)
                jobs.append(pool.submit(device.program, "second"))
                assert begun.wait(TIMEOUT)

        device.program("first", on_step=take_over)
        try:
            assert device.figures == FULL
            assert device.is_held
        finally:
            may_end.set()
        jobs[0].result(TIMEOUT)

    assert device.is_free()
    assert device.functions == {"SECOND"}


def test_release_restores_the_reserved_amounts_of_the_host_that_has_the_node(
    near: Publishing,
    far: Publishing,
    placement: PlacementFixture,
) -> None:
    """An outdated record of another host never decides the reserved amounts after a release."""
    near.driver.nodes["cn"] = node({"VCPU": (8, 1)})
    assert isinstance(near.driver, CleaningDriver)
    near.driver.says("cn", "cn", "cleaning")
    sync(near)
    del near.driver.nodes["cn"]
    sync(near)
    left = ProviderRecordList.get_by_filters(near.context, host=HOST)
    assert isinstance(far.driver, CleaningDriver)
    far.driver.says("cn", "cn", "cleaning")
    far.driver.nodes["cn"] = node({"VCPU": (8, 2)})
    sync(far)
    # Restore the records of the former host, as an old release would leave them.
    copies = ProviderRecordList(
        objects=[to_object(one.provider_uuid, to_record(one)) for one in left]
    )
    ProviderRecordList.replace(near.context, HOST, near.publisher.instance, copies, [])
    assert stored(far.state_path, host=HOST)
    holds, provider = Reservations(far.client, far.context), summary(placement, "cn")

    held = holds.reserve(provider, holder="ann", reason="a fan is loud")

    assert isinstance(held, Reservation)
    assert held.own_reserved == {"VCPU": 2}
    far.driver.says("cn", "cn")
    sync(far)
    assert holds.release(provider, "ann") == ()
    assert figures(placement, "cn") == {"VCPU": (8, 2)}
