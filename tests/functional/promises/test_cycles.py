"""Promises about cycles during which something else fails, is damaged or takes long."""

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from uuid import NAMESPACE_OID, uuid5

import pytest

from tests.functional.agent.drivers import FLEETS, TIMEOUT, Fleet, install
from tests.functional.promises.hosts import FleetHost
from tests.lab.cycles import Publishing, allocate, contents
from tests.lab.drivers import flat
from tests.lab.moments import Moments
from tests.lab.objects import opened
from tests.lab.placement import PlacementFixture, Requests
from tests.lab.reserving import CleaningDriver, drives, figures
from wharfinger.allocations.allocation_writer import Consumers
from wharfinger.exceptions import InventoryInUse, StateError
from wharfinger.objects import ComputeNodeList, Context, Service
from wharfinger.reconcile.reserve_and_release import Reservations

CONSUMER = str(uuid5(NAMESPACE_OID, "consumer"))
OTHER = str(uuid5(NAMESPACE_OID, "other consumer"))


@pytest.fixture
def driver(publishing: Publishing, placement: PlacementFixture) -> CleaningDriver:
    """A driver of five nodes. ``bad`` fails in each cycle: it drops a resource class in use."""
    driver = CleaningDriver()
    drives(publishing, driver)
    driver.nodes |= {name: flat(CUSTOM_GOLD=1) for name in ("metal", "bad", "a", "b", "c")}
    assert not publishing.cycle.sync().problems
    allocate(placement, CONSUMER, metal={"CUSTOM_GOLD": 1})
    allocate(placement, OTHER, bad={"CUSTOM_GOLD": 1})
    driver.nodes["bad"] = flat(CUSTOM_SILVER=1)
    return driver


def sync_with_one_failure(publishing: Publishing) -> None:
    assert [type(one) for one in publishing.cycle.sync().problems] == [InventoryInUse]


def test_reservation_of_a_cleaned_node_while_another_node_fails_ends(
    driver: CleaningDriver, publishing: Publishing, placement: PlacementFixture
) -> None:
    """A node that has been cleaned is free again, although another node fails in each cycle."""
    Consumers(publishing.client).release(
        CONSUMER, Reservations(publishing.client, publishing.context)
    )
    driver.says("metal", "metal", "cleaning")
    sync_with_one_failure(publishing)
    assert figures(placement, "metal") == {"CUSTOM_GOLD": (1, 1)}

    driver.says("metal", "metal")
    sync_with_one_failure(publishing)

    assert figures(placement, "metal") == {"CUSTOM_GOLD": (1, 0)}


def test_drift_cycle_with_one_failure_asks_the_driver_for_one_node(
    driver: CleaningDriver, publishing: Publishing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a restart, a node that fails does not make drift cycles ask for all the others."""
    publishing.restarted()
    sync_with_one_failure(publishing)
    asked: list[str] = []
    update = driver.update_provider_tree

    def noted(tree: object, node: str, *args: object, **more: object) -> None:
        asked.append(node)
        update(tree, node, *args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(driver, "update_provider_tree", noted)

    for _ in range(3):
        publishing.cycle.drift()

    assert set(asked) <= {"bad"}


def test_damaged_record_that_is_deleted_is_no_problem_in_the_next_cycle(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    """The remedy of a damaged record works in the next cycle, without a restart of the agent."""
    publishing.driver.nodes["cn"] = flat(VCPU=1)
    publishing.cycle.sync()
    change_records(publishing, "UPDATE provider_records SET own_reserved = 'what'")
    agent = publishing.restarted()
    publishing.driver.nodes["cn"] = flat(VCPU=2)
    [problem] = agent.sync().problems
    assert isinstance(problem, StateError)
    assert "the agent needs no restart" in str(problem)

    change_records(publishing, "DELETE FROM provider_records")

    assert not agent.drift().problems
    assert contents(placement)["cn"]["inventories"] == {"VCPU": (2, 0)}


def change_records(publishing: Publishing, statement: str) -> None:
    """Change the database with plain SQL, as an operator does."""
    connection = sqlite3.connect(publishing.state_path / "wharfinger.sqlite")
    with closing(connection), connection:
        assert connection.execute(statement).rowcount == 1


# Two hosts that list the same nodes.


@pytest.fixture
def metal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fleet]:
    """The fleet that both hosts list."""
    monkeypatch.syspath_prepend(str(install(tmp_path)))
    FLEETS["metal"] = Fleet("metal-1")
    yield FLEETS["metal"]
    FLEETS.clear()


@pytest.fixture
def here(tmp_path: Path, placement_url: tuple[str, Requests]) -> FleetHost:
    return FleetHost(tmp_path, "here", placement_url[0], service_down_time=1)


@pytest.fixture
def there(here: FleetHost, tmp_path: Path, placement_url: tuple[str, Requests]) -> FleetHost:
    return FleetHost(tmp_path, "there", placement_url[0])


@pytest.fixture
def context(here: FleetHost, tmp_path: Path) -> Iterator[Context]:
    """The database context of both hosts."""
    with closing(opened(tmp_path)) as context:
        yield context


def test_dry_run_prints_what_sync_does(metal: Fleet, there: FleetHost, tmp_path: Path) -> None:
    """A dry run shows the steps that sync takes, and writes nothing, not even to the database."""
    metal.nodes["metal-1"] = "cleaning"
    assert there.sync().code == 0
    metal.nodes["metal-1"] = ""
    before = Moments(tmp_path).take()

    planned = there.sync("--dry-run", "-f", "json")

    assert Moments(tmp_path).take() == before
    done = there.sync("-f", "json")
    assert (planned.code, done.code) == (2, 0)
    assert planned.json()[0]["steps"] == done.json()[0]["steps"]
    assert [step["step"] for step in done.json()[0]["steps"]] == ["set inventories"]


def test_host_whose_driver_takes_longer_than_the_down_time_keeps_its_nodes(
    metal: Fleet, here: FleetHost, there: FleetHost, context: Context, reports: "Reports"
) -> None:
    """A host is up while its sync runs, however long its driver takes for one call."""
    assert here.sync().code == 0
    attempts = []

    def takes_long() -> None:
        metal.acts.clear()
        service = Service.get_by_host_and_binary(context, "here", "wharfinger")
        assert service.last_seen_up is not None
        service.last_seen_up = service.last_seen_up.replace(year=2001)
        service.save()
        reports.wait_for_one()
        attempts.append(there.sync())

    metal.acts["update_provider_tree"] = takes_long
    assert here.sync().code == 0

    [attempt] = attempts
    assert attempt.code == 1
    assert "is published by driver instance metal on host here" in attempt.err
    assert [node.host for node in ComputeNodeList.get_by_filters(context)] == ["here"]


def test_heartbeat_that_cannot_be_written_while_a_driver_takes_long_is_reported(
    metal: Fleet, here: FleetHost, reports: "Reports"
) -> None:
    """Sync warns the operator when it could not report during a cycle that the host is up."""

    def takes_long() -> None:
        reports.error = StateError(path="the database", problem="it is away.", remedy="Look.")
        reports.wait_for_one()
        reports.error = None
        reports.wait_for_one()

    metal.acts["update_provider_tree"] = takes_long

    synced = here.sync()

    assert (
        "the service of host here is not reported as up: state in the database: it is" in synced.err
    )
    assert "other hosts that list the nodes of this host take the nodes over" in synced.err


class Reports:
    """Counts the reports of services, and raises ``error`` for each if it is set."""

    def __init__(self) -> None:
        self.error: StateError | None = None
        self._report = Service.report
        self._came = threading.Condition()
        self._count = 0

    def report(self, service: Service) -> None:
        error = self.error
        if error is None:
            self._report(service)
        with self._came:
            self._count += 1
            self._came.notify_all()
        if error is not None:
            raise error

    def wait_for_one(self) -> None:
        """Wait for a report that begins after this call."""
        with self._came:
            wanted = self._count + 2  # the first one may have begun before this call
            assert self._came.wait_for(lambda: self._count >= wanted, TIMEOUT)


@pytest.fixture
def reports(monkeypatch: pytest.MonkeyPatch) -> Reports:
    reports = Reports()

    def report(service: Service) -> None:
        reports.report(service)

    monkeypatch.setattr(Service, "report", report)
    return reports
