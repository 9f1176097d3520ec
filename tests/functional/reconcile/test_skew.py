"""Hosts of the oldest and of today's release, which share one store of objects."""

import json
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from tests.lab.claiming import noted, taken
from tests.lab.cycles import allocate, contents, everything
from tests.lab.objects import Served, elsewhere
from tests.lab.oldest import oldest
from tests.lab.placement import PlacementFixture, Requests
from tests.lab.postgresql import PostgreSQL
from tests.lab.skewed import OWNER, Beside, Host, Machine
from wharfinger.db.database import FILE_NAME
from wharfinger.objects import (
    OWNER_TAG_VERSION,
    ComputeNodeList,
    Instance,
    ReservationList,
    ServiceList,
)
from wharfinger.reconcile.reserve_and_release import Reservations

OLD, NEW = "old-host", "new-host"
CONSUMER = "6f9de2f4-9d0c-4d0f-a4a6-0c2c5b1f7d31"
MACHINE = Machine(own=1, vgpus=4)
Machines = dict[str, Machine] | None


@pytest.fixture(scope="module")
def process() -> Iterator[ProcessPoolExecutor]:
    with oldest() as process:
        yield process


@pytest.fixture(
    scope="module",
    autouse=True,
    params=[
        "file",
        pytest.param("server", marks=pytest.mark.drawn(2, of="module")),
        pytest.param("elsewhere", marks=pytest.mark.drawn(2, of="module")),
    ],
)
def where(request: pytest.FixtureRequest) -> Iterator[str]:
    """Where both releases store objects: in a file, on a database server, or in another process."""
    if request.param != "elsewhere":
        yield request.param
        return
    served: Served = request.getfixturevalue("keeper")
    with elsewhere(served):
        yield request.param
    served.questions.clear()


@pytest.fixture
def database(request: pytest.FixtureRequest, where: str) -> str | None:
    """The URL of a new database on a server; None for the file in a state directory."""
    if where != "server":
        return None
    server: PostgreSQL = request.getfixturevalue("postgresql")
    return server.create_database()


@pytest.fixture
def new(placement: PlacementFixture, tmp_path: Path, database: str | None) -> Iterator[Host]:
    """The host of today's release, which runs in this process."""
    host = Host(placement, tmp_path / "state", NEW, database, counts_devices=True)
    yield host
    host.close()


@pytest.fixture
def old(
    process: ProcessPoolExecutor,
    placement_url: tuple[str, Requests],
    new: Host,
    database: str | None,
) -> Iterator[Beside]:
    """The host of the oldest release, which runs in another process."""
    state = new.publishing.state_path
    with Beside(process, placement_url[0], state, OLD, database) as beside:
        yield beside


def rows(new: Host, table: str) -> list[dict[str, Any]]:
    """Return the rows of a table from the database."""
    url = new.publishing.database or f"sqlite:///{new.publishing.state_path / FILE_NAME}"
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    with engine.connect() as connection:
        found = connection.execute(sa.text(f"SELECT * FROM {table} ORDER BY id")).mappings()
        return [dict(row) for row in found]


def devices(new: Host) -> dict[str, int | None]:
    """Return the number of PCI devices by node; None where the release stores no number."""
    found = {}
    for row in rows(new, "compute_nodes"):
        if not row["deleted"]:
            stored = row["pci_stats"] and json.loads(row["pci_stats"])
            some = stored["wharfinger_object.data"]["objects"] if stored else []
            counts = [one["wharfinger_object.data"]["count"] for one in some]
            found[row["hypervisor_hostname"]] = sum(counts) if stored else None
    return found


def hosts(new: Host) -> dict[str, str]:
    found = ComputeNodeList.get_by_filters(new.publishing.context)
    return {one.hypervisor_hostname: one.host for one in found}


def assert_nothing_to_do(new: Host, old: Beside) -> None:
    """Assert that neither host has a planned step or a problem."""
    for plan in (new.plan(), old.call("plan")):
        assert (plan.steps, plan.problems) == ((), ())
    assert new.says()
    assert old.call("says")


def cycle(
    new: Host,
    old: Beside,
    cycle_type: str = "sync",
    *,
    mine: Machines = None,
    its: Machines = None,
) -> None:
    """Run a cycle on each host, and assert that it has no problems.

    ``mine`` are the machines of today's host, ``its`` those of the old host.
    """
    for told in (old.call("cycle", its, cycle_type), new.cycle(mine, cycle_type)):
        assert told.problems == ()


# Side by side.


def test_both_releases_publish_their_nodes_and_keep_the_others(new: Host, old: Beside) -> None:
    mine, its = {"new-0": MACHINE, "new-1": Machine(4)}, {"old-0": MACHINE, "old-1": Machine(4)}
    cycle(new, old, mine=mine, its=its)
    first = everything()
    assert first.keys() == {*mine, *its, "new-0-gpu", "old-0-gpu"}
    for cycle_type in ("drift", "sync", "poll"):
        cycle(new, old, cycle_type)
        assert everything() == first
    assert hosts(new) == {"new-0": NEW, "new-1": NEW, "old-0": OLD, "old-1": OLD}
    assert devices(new) == {"new-0": 2, "new-1": 2, "old-0": None, "old-1": None}
    services = {one.host: one for one in ServiceList.get_by_filters(new.publishing.context)}
    assert services.keys() == {NEW, OLD}
    for one in services.values():
        assert (one.version, one.owners, one.report_count) == (OWNER_TAG_VERSION, [OWNER], 4)
    assert_nothing_to_do(new, old)

    why = Machine(own=1, vgpus=4, why="cleaning")
    cycle(new, old, mine=mine | {"new-0": why}, its=its | {"old-0": why})
    for _ in range(2):
        now = everything()
        assert [now[name]["inventories"]["VCPU"] for name in ("new-0", "old-0")] == [(8, 8)] * 2
        cycle(new, old, "drift")
    assert_nothing_to_do(new, old)

    cycle(new, old, mine={"new-0": Machine(16)}, its={"old-0": Machine(16), "old-2": MACHINE})
    cycle(new, old)
    now = everything()
    assert now.keys() == {"new-0", "old-0", "old-2", "old-2-gpu"}
    figures = {name: now[name]["inventories"]["VCPU"] for name in ("new-0", "old-0", "old-2")}
    assert figures == {"new-0": (16, 0), "old-0": (16, 0), "old-2": (8, 1)}
    assert hosts(new) == {"new-0": NEW, "old-0": OLD, "old-2": OLD}
    assert_nothing_to_do(new, old)


def test_cycles_of_both_releases_at_once_keep_new_instances(new: Host, old: Beside) -> None:
    cycle(new, old, mine={"new-0": MACHINE}, its={"old-0": MACHINE})
    claimed = []
    for number in range(5):
        vcpus = 4 + number % 8
        beside = old.start("cycle", {"old-0": Machine(vcpus)}, "sync")
        assert not new.cycle({"new-0": Machine(vcpus)}, "sync").problems
        assert not beside.result().problems
        later = old.start("claim", "old-0", 1)
        claimed += [new.claim("new-0", 1), later.result()]
    assert noted(new.publishing.context) == taken(new.publishing.context)
    assert noted(new.publishing.context) == {(NEW, "new-0"): (5, 0, 0), (OLD, "old-0"): (5, 0, 0)}
    for uuid in claimed:
        assert Instance.get_by_uuid(new.publishing.context, uuid).host in {NEW, OLD}
    assert devices(new) == {"new-0": 2, "old-0": None}
    assert_nothing_to_do(new, old)


def test_operators_reservation_holds_on_nodes_of_both_releases(
    new: Host, old: Beside, placement: PlacementFixture
) -> None:
    cycle(new, old, mine={"new-0": MACHINE}, its={"old-0": MACHINE})
    free = contents(placement)
    client = placement.new_client()
    holds = Reservations(client, new.publishing.context)
    names = ("new-0", "old-0")
    providers = {name: client.list_providers(name=name)[0] for name in names}
    for one in providers.values():
        holds.reserve(one, holder="people", reason="operator")
    before = rows(new, "reservations")
    assert len(before) == 2
    for cycle_type in ("sync", "drift"):
        cycle(new, old, cycle_type)
        assert [everything()[name]["inventories"]["VCPU"] for name in names] == [(8, 8)] * 2
        assert rows(new, "reservations") == before, "the figures to restore are in them"
    for one in providers.values():
        holds.release(client.list_providers(uuid=one.uuid)[0], "people")
    cycle(new, old)
    assert contents(placement) == free
    assert not ReservationList.get_by_filters(new.publishing.context).objects
    assert_nothing_to_do(new, old)


# Moves between releases.


def test_node_moves_to_the_old_release_and_back_with_all_its_facts(
    new: Host, old: Beside, placement: PlacementFixture
) -> None:
    why = Machine(own=1, vgpus=4, why="cleaning")
    cycle(new, old, mine={"cn": MACHINE, "new": Machine()}, its={"old": Machine()})
    uuid = new.claim("cn", 3)
    use: dict[str, Any] = {"cn": {"VCPU": 3}, "cn-gpu": {"VGPU": 1}}
    allocate(placement, CONSUMER, **use)
    free = contents(placement)
    cycle(new, old, mine={"cn": why, "new": Machine()})
    before = everything()
    assert len(rows(new, "provider_records")) == 4
    for owner in (OLD, NEW):
        mine, its = {"new": Machine()}, {"old": Machine()}
        (mine if owner == NEW else its)["cn"] = why
        # The former host releases the node before the other host takes it.
        first, second = (new.cycle, lambda *rest: old.call("cycle", *rest))
        order = [(second, its), (first, mine)] if owner == NEW else [(first, mine), (second, its)]
        for do, machines in (*order, *order):
            told = do(machines)
            assert told.problems == ()
        assert everything() == before
        assert hosts(new) == {"cn": owner, "new": NEW, "old": OLD}
        assert Instance.get_by_uuid(new.publishing.context, uuid).host == owner
        assert noted(new.publishing.context)[owner, "cn"] == (3, 0, 0)
        # Fields that the old release does not know keep their values.
        assert devices(new) == {"cn": 2, "new": 2, "old": None}
        assert_nothing_to_do(new, old)
    cycle(new, old, mine={"cn": MACHINE, "new": Machine()})
    assert contents(placement) == free


def test_host_after_an_upgrade_and_after_a_downgrade_writes_nothing(
    process: ProcessPoolExecutor,
    placement_url: tuple[str, Requests],
    placement: PlacementFixture,
    tmp_path: Path,
    database: str | None,
) -> None:
    state = tmp_path / "state"
    machines = {"cn-0": MACHINE, "cn-1": Machine(own=2, why="maintenance")}
    published: dict[str, Any] = {}
    for upgraded in (False, True, False, True):
        if upgraded:
            new = Host(placement, state, OLD, database, counts_devices=True)
            for cycle_type in ("sync", "drift"):
                told = new.cycle(machines, cycle_type)
                assert told.problems == ()
                assert not published or told.steps == ()
            assert devices(new) == {"cn-0": 2, "cn-1": 2}
            since = {
                row["provider_uuid"]: row["reserved_since"] for row in rows(new, "provider_records")
            }
            assert [one for one in since.values() if one]
            new.close()
        else:
            with Beside(process, placement_url[0], state, OLD, database) as old:
                for cycle_type in ("sync", "drift"):
                    told = old.call("cycle", machines, cycle_type)
                    assert told.problems == ()
                    assert not published or told.steps == ()
                assert old.call("says")
        assert not published or everything() == published
        published = everything()
    # The old release has kept the fields that it does not know.
    new = Host(placement, state, OLD, database, counts_devices=True)
    assert {
        row["provider_uuid"]: row["reserved_since"] for row in rows(new, "provider_records")
    } == since
    assert new.plan().steps == ()
    new.close()
