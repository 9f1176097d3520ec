"""Stored reservations end only with the write that frees the provider, by its current host."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.lab.cycles import Publishing, allocate, contents
from tests.lab.drivers import DEVICE, also, flat, with_device
from tests.lab.placement import PlacementFixture
from tests.lab.reserving import CleaningDriver, drives, figures, is_full, node, rows, summary
from tests.lab.samples import uuid
from wharfinger.allocations.allocation_writer import Consumers
from wharfinger.driver import Allocations
from wharfinger.exceptions import BackendError, ConcurrentUpdate, UnexpectedAnswer
from wharfinger.objects import AGENT_BINARY, Service
from wharfinger.placement.client import PlacementClient
from wharfinger.providers import ProviderTree
from wharfinger.reconcile import apply
from wharfinger.reconcile.apply import Writer
from wharfinger.reconcile.reserve_and_release import Reservations
from wharfinger.tracker import service_record

CONSUMER = uuid("a consumer")
GOLD = {"CUSTOM_GOLD": (2, 0)}


@pytest.fixture
def driver(publishing: Publishing) -> CleaningDriver:
    """A driver that cleans the node cn, which has two units."""
    driver = CleaningDriver()
    drives(publishing, driver)
    driver.nodes["cn"] = flat(CUSTOM_GOLD=2)
    return driver


@pytest.fixture
def cleaned(publishing: Publishing, placement: PlacementFixture, driver: CleaningDriver) -> str:
    """The uuid of the node cn after a consumer has released it and cleaning has begun."""
    assert not publishing.cycle.sync().problems
    release_allocation(publishing, placement, cn={"CUSTOM_GOLD": 1})
    driver.says("cn", "cn", "cleaning")
    assert not publishing.cycle.sync().problems
    return summary(placement, "cn").uuid


@pytest.fixture
def far(publishing: Publishing, placement: PlacementFixture) -> Iterator[Publishing]:
    """The same driver instance on another host; its driver also reports a cleaning of the node."""
    with Publishing(placement, publishing.state_path, host="far") as fixture:
        driver = CleaningDriver()
        driver.host = "far"
        drives(fixture, driver)
        driver.nodes["cn"] = flat(CUSTOM_GOLD=2)
        driver.says("cn", "cn", "cleaning")
        yield fixture


def release_allocation(publishing: Publishing, placement: PlacementFixture, **use: Any) -> None:
    allocate(placement, CONSUMER, **use)
    Consumers(publishing.client).release(
        CONSUMER, Reservations(publishing.client, publishing.context)
    )


def without_device(tree: ProviderTree, name: str, _allocations: Allocations | None) -> None:
    tree.update_inventory(name, {"VCPU": {"total": 1}})
    for child in tree.get_provider_uuids(name)[1:]:
        tree.remove(child)


def test_disabled_service_without_its_driver_keeps_stored_reservations(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    publishing.driver.nodes["cn"] = flat(CUSTOM_GOLD=2)
    publishing.cycle.sync()
    reservations = Reservations(publishing.client, publishing.context)
    reservations.reserve(summary(placement, "cn"), holder="ann", reason="why")
    service_record.begin(publishing.context, publishing.host)
    service = Service.get_by_host_and_binary(publishing.context, publishing.host, AGENT_BINARY)
    service.disabled = True
    service.save()
    publishing.driver.fails = True

    with pytest.raises(BackendError):
        publishing.cycle.sync()

    assert "COMPUTE_STATUS_DISABLED" in contents(placement)["cn"]["traits"]
    assert is_full(placement, "cn")


def test_reservation_of_a_provider_that_another_owner_took_stays_and_nothing_is_written(
    publishing: Publishing, placement: PlacementFixture, driver: CleaningDriver, cleaned: str
) -> None:
    client = placement.client
    client.create_trait("CUSTOM_OWNER_X")
    there = client.get_traits(cleaned)
    client.set_traits(cleaned, there.resource_provider_generation, {"CUSTOM_OWNER_X"})
    driver.says("cn", "cn")
    placement.requests.clear()

    assert publishing.cycle.sync().problems

    assert not placement.requests.writes
    assert rows(publishing.context)


def test_reservation_of_a_provider_whose_move_fails_does_not_end(
    publishing: Publishing,
    placement: PlacementFixture,
    driver: CleaningDriver,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    driver.nodes |= {"cn": with_device(flat(VCPU=1)), "other": without_device}
    publishing.cycle.sync()
    release_allocation(publishing, placement, device={"FPGA": 1})
    driver.says("cn", DEVICE, "cleaning")
    publishing.cycle.sync()
    driver.says("cn", DEVICE)
    driver._reasons.clear()
    driver.nodes |= {"cn": without_device, "other": with_device(flat(VCPU=1))}
    send = PlacementClient.send

    def refuse(client: PlacementClient, method: str, path: str, *args: Any, **kwargs: Any) -> Any:
        if method == "PUT" and path.endswith(DEVICE):
            raise ConcurrentUpdate(request="a move", status=409, code="", detail="refused")
        return send(client, method, path, *args, **kwargs)

    with monkeypatch.context() as patched:
        patched.setattr(PlacementClient, "send", refuse)
        assert publishing.cycle.sync().problems
    assert rows(publishing.context)
    assert is_full(placement, "device")

    assert not publishing.cycle.sync().problems
    assert not rows(publishing.context)
    assert figures(placement, "device") == {"FPGA": (2, 0)}


def test_reservation_in_a_tree_that_cannot_be_planned_does_not_end(
    publishing: Publishing, placement: PlacementFixture, driver: CleaningDriver, cleaned: str
) -> None:
    driver.says("cn", "cn")
    driver.nodes["cn"] = also(lambda tree: tree.add_traits("cn", "CUSTOM_WHARFINGER_OTHER"))(
        flat(CUSTOM_GOLD=2)
    )
    for _ in range(2):
        assert publishing.cycle.sync().problems
        assert rows(publishing.context)
        assert is_full(placement, "cn")


def test_reservation_in_a_tree_whose_look_up_fails_does_not_end(
    publishing: Publishing,
    placement: PlacementFixture,
    driver: CleaningDriver,
    cleaned: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    driver.says("cn", "cn")
    driver.nodes["cn"] = node(GOLD, child=GOLD)
    list_providers = PlacementClient.list_providers

    def garbled(client: PlacementClient, **query: Any) -> Any:
        if query.get("name") == "child":
            raise UnexpectedAnswer(request="GET", status=200, code="", detail="garbled")
        return list_providers(client, **query)

    with monkeypatch.context() as patched:
        patched.setattr(PlacementClient, "list_providers", garbled)
        assert publishing.cycle.sync().problems
    assert rows(publishing.context)
    assert is_full(placement, "cn")
    assert not publishing.cycle.sync().problems
    assert not rows(publishing.context)


@pytest.mark.parametrize("is_clean", [False, True], ids=["moves on", "ends"])
def test_host_that_slept_before_its_write_changes_no_reservation_of_the_new_host(
    publishing: Publishing,
    far: Publishing,
    driver: CleaningDriver,
    monkeypatch: pytest.MonkeyPatch,
    is_clean: bool,
) -> None:
    placement = publishing.placement
    publishing.cycle.sync()
    service_record.report(publishing.context, publishing.host, {"OWNER_NOVA"}, complete=True)
    release_allocation(publishing, placement, cn={"CUSTOM_GOLD": 1})
    reservations = Reservations(publishing.client, publishing.context)
    reservations.reserve(summary(placement, "cn"), holder="ann", reason="why")
    if is_clean:
        driver.clean.add(summary(placement, "cn").uuid)
    else:
        driver.says("cn", "cn", "cleaning")
        for _ in range(2):
            publishing.cycle.sync()
        driver.says("cn", "cn")
    write = Writer.apply
    slept: list[object] = []
    expected = {}

    def sleep(writer: Writer, *args: Any, **kwargs: Any) -> None:
        if not slept:
            slept.append(writer)
            service = Service.get_by_host_and_binary(
                publishing.context, publishing.host, AGENT_BINARY
            )
            service.forced_down = True
            service.save()
            assert not far.cycle.sync().problems
            service_record.report(far.context, "far", {"OWNER_NOVA"}, complete=True)
            expected.update({key: one.phase for key, one in rows(far.context).items()})
        write(writer, *args, **kwargs)

    monkeypatch.setattr(Writer, "apply", sleep)
    publishing.cycle.sync()

    assert len(expected) == 2
    assert {key: one.phase for key, one in rows(far.context).items()} == expected


def test_release_while_a_cycle_changes_the_phase_is_repeated(
    publishing: Publishing,
    placement: PlacementFixture,
    driver: CleaningDriver,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    publishing.cycle.sync()
    release_allocation(publishing, placement, cn={"CUSTOM_GOLD": 1})
    [held] = rows(publishing.context).values()
    store = apply._store_results
    changed: list[object] = []

    def change_phase_then_store(*args: Any) -> None:
        if not changed:
            changed.append(held)
            [row] = rows(publishing.context).values()
            row.phase = "cleaning"
            row.save()
        store(*args)

    monkeypatch.setattr(apply, "_store_results", change_phase_then_store)
    assert Reservations(publishing.client, publishing.context).release_one(held.uuid) == ()

    assert changed
    assert not rows(publishing.context)
    assert figures(placement, "cn") == GOLD
