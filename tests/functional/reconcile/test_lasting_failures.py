"""One tree fails in every cycle; the other trees are written."""

import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from uuid import NAMESPACE_OID, uuid5

import os_traits
import pytest

from tests.functional.reconcile.test_reserved_despite_failures import NEWER, unknown
from tests.lab.cycles import Publishing, allocate, contents
from tests.lab.devices import Device, publish_devices
from tests.lab.drivers import also, flat
from tests.lab.placement import PlacementFixture
from tests.lab.reserving import CleaningDriver, Figures, drives, figures, node, rows, summary
from wharfinger.allocations.allocation_writer import Consumers
from wharfinger.driver import Allocations
from wharfinger.exceptions import (
    BackendError,
    ConcurrentUpdate,
    InventoryInUse,
    UnknownTrait,
    WharfingerError,
)
from wharfinger.objects import AGENT_BINARY, Service
from wharfinger.providers import ProviderTree
from wharfinger.reconcile.reserve_and_release import Reservations
from wharfinger.tracker import service_record

CONSUMER = str(uuid5(NAMESPACE_OID, "consumer"))
OTHER = str(uuid5(NAMESPACE_OID, "other consumer"))
GOLD: Figures = {"CUSTOM_GOLD": (2, 0)}
SILVER: Figures = {"CUSTOM_SILVER": (2, 0)}


class Fleet:
    """Five nodes; a test can make the node ``bad`` fail."""

    def __init__(self, publishing: Publishing, placement: PlacementFixture) -> None:
        self.publishing = publishing
        self.placement = placement
        self.driver = CleaningDriver()
        drives(publishing, self.driver)
        self.asked: Counter[str] = Counter()
        for name in ("metal", "bad", "cn-1", "cn-2", "cn-3"):
            self.reports(name, GOLD)
        assert not publishing.cycle.sync().problems
        allocate(placement, CONSUMER, metal={"CUSTOM_GOLD": 1})
        allocate(placement, OTHER, bad={"CUSTOM_GOLD": 1})

    def reports(self, name: str, has: Figures, *traits: str) -> None:
        """Let the driver report the node from now on; ``asked`` counts the edits of its tree."""
        edit = also(lambda tree: tree.add_traits(name, *traits))(node(has))

        def counted(tree: ProviderTree, name: str, allocations: Allocations | None) -> None:
            self.asked[name] += 1
            edit(tree, name, allocations)

        self.driver.nodes[name] = counted

    def sync(self) -> list[type[WharfingerError]]:
        return [type(problem) for problem in self.publishing.cycle.sync().problems]

    def release_allocation(self, consumer: str = CONSUMER) -> None:
        Consumers(self.publishing.client).release(
            consumer, Reservations(self.publishing.client, self.publishing.context)
        )

    def phases(self) -> list[str | None]:
        return [one.phase for one in rows(self.publishing.context).values()]

    # Failures of ``bad``.

    def gives_up_a_class_in_use(self) -> type[WharfingerError]:
        self.reports("bad", SILVER)
        return InventoryInUse

    def wants_an_unknown_trait(self) -> type[WharfingerError]:
        self.reports("bad", GOLD, NEWER)
        return UnknownTrait

    def is_written_by_another_client(self) -> type[WharfingerError]:
        """Let another client change the tree of ``bad`` before each of our writes."""
        self.reports("bad", {"CUSTOM_GOLD": (3, 0)})
        bad, theirs = summary(self.placement, "bad").uuid, self.placement.new_client()
        adapter = self.placement.adapter

        def before(method: str, path: str) -> None:
            if method != "GET":
                adapter.before = lambda method, path: None
                generation = theirs.get_traits(bad).resource_provider_generation
                theirs.set_aggregates(bad, generation, [])
                adapter.before = before

        adapter.before = before
        return ConcurrentUpdate

    def reports_a_problem(self) -> type[WharfingerError]:
        """Let the driver report a problem that belongs to no tree."""
        self.driver.get_problems = lambda: ["no answer from the shelf"]  # type: ignore[method-assign]
        return BackendError


Fails = Callable[[Fleet], type[WharfingerError]]
FAILURES: dict[str, Fails] = {
    "in use": Fleet.gives_up_a_class_in_use,
    "unknown trait": Fleet.wants_an_unknown_trait,
    "conflict": Fleet.is_written_by_another_client,
    "reported": Fleet.reports_a_problem,
}


@pytest.fixture(autouse=True)
def placement_is_older(placement: PlacementFixture) -> Iterator[None]:
    """Let Placement not know the trait NEWER, as an older Placement."""
    with unknown(NEWER):
        yield


@pytest.fixture
def fleet(publishing: Publishing, placement: PlacementFixture) -> Fleet:
    return Fleet(publishing, placement)


@pytest.fixture(params=FAILURES)
def fails(request: pytest.FixtureRequest) -> Fails:
    return FAILURES[request.param]


def test_trees_beside_a_failing_tree_end_their_reservations_and_drift_cycles_skip_them(
    fleet: Fleet, fails: Fails
) -> None:
    error = fails(fleet)
    fleet.release_allocation()
    fleet.driver.says("metal", "metal", "cleaning")
    assert fleet.sync() == [error]
    assert fleet.phases() == ["cleaning"]

    fleet.driver.says("metal", "metal")
    assert fleet.sync() == [error]

    assert fleet.phases() == []
    assert figures(fleet.placement, "metal") == GOLD
    fleet.publishing.restarted()
    assert fleet.sync() == [error]
    fleet.asked.clear()
    for _ in range(3):
        fleet.publishing.cycle.drift()
    assert fleet.asked.keys() <= {"bad"}


@pytest.mark.parametrize(
    ("phase", "column"), [("released", "since"), ("releasing", "consumer_uuid")]
)
def test_unreadable_reservation_stays_and_stops_no_other_tree(
    fleet: Fleet, phase: str, column: str
) -> None:
    fleet.release_allocation()
    fleet.release_allocation(OTHER)
    damaged = summary(fleet.placement, "bad").uuid
    connection = sqlite3.connect(fleet.publishing.state_path / "wharfinger.sqlite")
    with closing(connection), connection:
        for name, value in ("phase", phase), (column, "what"):
            connection.execute(
                f"UPDATE reservations SET {name} = ? WHERE provider_uuid = ?", (value, damaged)
            )
    fleet.driver.says("metal", "metal", "cleaning")
    assert fleet.sync() == []

    fleet.driver.says("metal", "metal")
    assert fleet.sync() == []

    assert figures(fleet.placement, "metal") == GOLD
    assert figures(fleet.placement, "bad") == {"CUSTOM_GOLD": (2, 2)}


def test_reservation_in_the_failing_tree_ends_only_when_the_tree_is_written(fleet: Fleet) -> None:
    allocate(fleet.placement, str(uuid5(NAMESPACE_OID, "third")), bad={"CUSTOM_GOLD": 1})
    fleet.release_allocation(OTHER)
    error = fleet.gives_up_a_class_in_use()
    fleet.driver.says("bad", "bad", "cleaning")
    assert fleet.sync() == [error]
    fleet.driver.says("bad", "bad")
    for _ in range(2):
        assert fleet.sync() == [error]
        assert fleet.phases() == ["cleaning"], "it is reserved, and that its cleaning was seen"
        assert figures(fleet.placement, "bad") == {"CUSTOM_GOLD": (2, 2)}

    fleet.placement.client.delete_allocations(str(uuid5(NAMESPACE_OID, "third")))
    assert fleet.sync() == []
    assert fleet.phases() == []
    assert figures(fleet.placement, "bad") == SILVER


def test_drift_cycle_marks_a_repaired_tree_as_disabled(fleet: Fleet) -> None:
    fleet.wants_an_unknown_trait()
    context, host = fleet.publishing.context, fleet.publishing.host
    service_record.begin(context, host)
    service = Service.get_by_host_and_binary(context, host, AGENT_BINARY)
    service.disabled = True
    service.save()
    assert fleet.sync() == [UnknownTrait]
    assert disabled(fleet) == {"metal", "cn-1", "cn-2", "cn-3"}

    fleet.reports("bad", GOLD)
    assert not fleet.publishing.cycle.drift().problems

    assert disabled(fleet) == {"metal", "cn-1", "cn-2", "cn-3", "bad"}
    fleet.asked.clear()
    fleet.publishing.cycle.drift()
    assert not fleet.asked


def disabled(fleet: Fleet) -> set[str]:
    trait = os_traits.COMPUTE_STATUS_DISABLED
    return {name for name, one in contents(fleet.placement).items() if trait in one["traits"]}


@pytest.mark.parametrize("is_failing", [False, True])
def test_function_trait_of_a_finished_job_is_held_until_the_device_tree_is_written(
    publishing: Publishing, placement: PlacementFixture, is_failing: bool
) -> None:
    driver = publish_devices(publishing, placement)
    device = Device(publishing, placement, "fpga")
    device.program("new")
    publishing.cycle.sync()
    device.says("NEW", "THEIRS")
    where = "cn" if is_failing else "bad"
    driver.nodes.setdefault("bad", flat(VCPU=1))
    driver.nodes[where] = also(lambda tree: tree.add_traits(where, NEWER))(driver.nodes[where])

    assert [type(one) for one in publishing.cycle.sync().problems] == [UnknownTrait]

    job = device.job
    assert job is not None
    assert (job.held_trait is None) is not is_failing
    assert device.functions == ({"NEW", "THEIRS"} if is_failing else {"THEIRS"})
