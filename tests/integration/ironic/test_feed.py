"""The change feed of a real Ironic: its results, and its number of requests and rows.

Each test has nodes with its own owner. tests/unit/ironic/test_feed.py has the other cases.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pytest

from tests.integration.conftest import IRONIC_PAGE
from tests.lab.bare_metal import GOLD, Metal, free, reserved
from tests.lab.between import Between
from tests.lab.cycles import everything
from tests.lab.placement import PlacementFixture
from wharfinger.conf import parse
from wharfinger_harnesses.ironic import Ironic as Lab
from wharfinger_ironic import fleet as fleet_module
from wharfinger_ironic.client import Ironic
from wharfinger_ironic.config import FleetSection
from wharfinger_ironic.fleet import Fleet
from wharfinger_ironic.node import Node

DETAIL: Final = "/v1/nodes/detail"
COUNT: Final = 300


def now(ago: float = 0) -> datetime:
    """Return the time as Ironic writes it into its database."""
    return datetime.now(UTC).replace(tzinfo=None) - timedelta(seconds=ago)


def long_ago(index: int) -> datetime:
    return now(30 * 86400) + timedelta(minutes=index)


def never_updated(count: int) -> Callable[[int], datetime | None]:
    """Return a function of update times: the first ``count`` nodes were never updated."""
    return lambda index: None if index < count else long_ago(index)


@dataclass
class Followed:
    """A fleet whose change feed a test polls, and the proxy to Ironic."""

    lab: Lab
    between: Between
    fleet: Fleet
    owner: str
    uuids: list[str]
    mark: str = ""

    def poll(self) -> set[str]:
        self.between.expect()
        return self.go_on()

    def go_on(self) -> set[str]:
        """Poll without a new ``expect`` of the proxy."""
        names, self.mark = self.fleet.changed_since(self.mark)
        return names

    def polled(self) -> tuple[set[str], list[int]]:
        """Poll; return the changed names, and the number of rows in each answer."""
        return self.poll(), self.between.rows

    def write(self, count: int, *, first: int = 0, reason: str = "why") -> set[str]:
        """Put nodes into maintenance in Ironic's database, all with the current time."""
        self.lab.execute(
            "UPDATE nodes SET maintenance = :on, maintenance_reason = :reason, updated_at = :at "
            "WHERE id IN (SELECT id FROM nodes WHERE owner = :owner "
            "ORDER BY id LIMIT :count OFFSET :first)",
            on=True,
            reason=reason,
            at=now().strftime("%Y-%m-%d %H:%M:%S.%f"),
            owner=self.owner,
            count=count,
            first=first,
        )
        return set(self.uuids[first : first + count])


Follow = Callable[..., Followed]


def following(lab: Lab, between: Between, directory: Path) -> Follow:
    """Return a function that creates a fleet of ``count`` nodes with a change feed."""

    def follow(count: int, updated_at: Any = long_ago) -> Followed:
        owner = uuid4().hex
        uuids = lab.insert_nodes(
            count, owner=owner, updated_at=updated_at, provision_state="enroll"
        )
        path = directory / f"{owner}.conf"
        path.write_text(
            f"[metal]\nauth_type = none\nendpoint = {between.url}\nnode_owner = {owner}\n"
        )
        conf = parse([str(path)])
        fleet = Fleet(Ironic.connect(conf, FleetSection.read(conf, "metal")), "metal")
        followed = Followed(lab, between, fleet, owner, uuids, fleet.begin_following())
        fleet.refresh()
        return followed

    return follow


@pytest.fixture
def follow(ironic: Lab, between: Between, tmp_path: Path) -> Follow:
    return following(ironic, between, tmp_path)


@pytest.fixture
def follow_on_postgresql(ironic_on_postgresql: Lab, tmp_path: Path) -> Iterator[Follow]:
    with Between(ironic_on_postgresql.url) as between:
        yield following(ironic_on_postgresql, between, tmp_path)


# Requests and rows of a poll.


def test_poll_reads_as_many_rows_as_have_changed(
    follow: Follow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet_module, "_PAUSE", 0)  # no pause after the recent listing
    followed = follow(COUNT)
    for _ in range(2):
        assert followed.polled() == (set(), [10])
    [asked] = followed.between.asked
    assert asked.path.startswith(DETAIL)
    assert asked.query["owner"] == followed.owner

    many = followed.write(50, first=100)
    assert followed.polled() == (many, [10, 100])
    assert followed.polled() == (
        set(),
        [100],
    )  # reads the last seconds again, because it may have missed changes

    # If more nodes change than Ironic's page has, a complete listing is necessary.
    changed = followed.write(150)
    listing = [1, 1, *[IRONIC_PAGE] * 3, 0]
    names, rows = followed.polled()
    assert (changed - names <= many, rows) == (True, [100, 100, *listing])
    assert {followed.fleet.nodes[uuid].maintenance_reason for uuid in changed} == {"why"}


def test_fleet_that_fits_into_one_answer_needs_no_listing(follow: Follow) -> None:
    followed = follow(7)
    changed = followed.write(7)
    assert followed.polled() == (changed, [7])


# Nodes that a poll reports.

Change = Callable[[Lab, str], object]
CHANGES: Final[dict[str, tuple[Change, Callable[[Node], object], object]]] = {
    "traits": (
        lambda lab, uuid: lab.set_traits(uuid, "CUSTOM_A"),
        lambda node: node.traits,
        frozenset({"CUSTOM_A"}),
    ),
    "maintenance": (
        lambda lab, uuid: lab.set_maintenance(uuid, "a fan"),
        lambda node: (node.maintenance, node.maintenance_reason),
        (True, "a fan"),
    ),
    "retired": (
        lambda lab, uuid: lab.update_node(uuid, retired=True, retired_reason="sold"),
        lambda node: (node.retired, node.retired_reason),
        (True, "sold"),
    ),
    "resource class": (
        lambda lab, uuid: lab.update_node(uuid, resource_class="silver"),
        lambda node: node.custom_class,
        "CUSTOM_SILVER",
    ),
    "name": (
        lambda lab, uuid: lab.update_node(uuid, name=f"name-{uuid}"),
        lambda node: node.name and node.name[:5],
        "name-",
    ),
    "state": (
        lambda lab, uuid: lab.provision(uuid, "manage"),
        lambda node: node.provision_state,
        "manageable",
    ),
    "no maintenance": (
        lambda lab, uuid: lab.end_maintenance(uuid),
        lambda node: (node.maintenance, node.maintenance_reason),
        (False, None),
    ),
    "no traits": (
        lambda lab, uuid: lab.set_traits(uuid),
        lambda node: node.traits,
        frozenset(),
    ),
}


@pytest.mark.parametrize("database", ["", "_on_postgresql"])
def test_change_is_reported_once_and_takes_one_request(
    request: pytest.FixtureRequest, database: str
) -> None:
    follow: Follow = request.getfixturevalue(f"follow{database}")
    followed = follow(40)
    uuid = followed.uuids[17]
    for what, (change, look, value) in CHANGES.items():
        assert look(followed.fleet.nodes[uuid]) != value, what
        change(followed.lab, uuid)
        if what == "state":
            followed.lab.wait_for(uuid, "manageable")
        assert followed.polled() == ({uuid}, [10]), what
        assert look(followed.fleet.nodes[uuid]) == value, what
        assert followed.poll() == set(), what


def test_change_between_two_answers_is_reported_with_its_last_value(follow: Follow) -> None:
    followed = follow(COUNT)
    many = followed.write(50)

    def write_more() -> None:
        followed.write(1, first=100)
        followed.write(1, first=20, reason="another")

    followed.between.act(0, write_more)
    names = followed.go_on()
    assert len(followed.between.asked) == 2
    assert names | followed.poll() == many | {followed.uuids[100]}
    assert followed.fleet.nodes[followed.uuids[20]].maintenance_reason == "another"
    assert followed.poll() == set()


def test_node_is_reported_when_it_is_updated_and_not_when_it_is_added_or_removed(
    follow: Follow,
) -> None:
    followed = follow(20)
    uuid = followed.uuids[0]
    followed.lab.update_node(uuid, resource_class="baremetal.gold")  # the same value as before
    assert followed.lab.node(uuid)["updated_at"] > now(60).isoformat()
    assert followed.polled() == (set(), [10])

    [new] = followed.lab.insert_nodes(1, owner=followed.owner, updated_at=None)
    assert followed.poll() == set()
    followed.lab.set_maintenance(new, "a fan")
    assert followed.poll() == {new}
    assert followed.fleet.nodes[new].maintenance

    followed.lab.delete_node(uuid)
    assert followed.poll() == set()
    assert uuid in followed.fleet.nodes


# Nodes that were never updated: databases sort them to one end or the other.


def test_never_updated_nodes_come_first_on_postgresql(follow_on_postgresql: Follow) -> None:
    few = follow_on_postgresql(COUNT, never_updated(5))
    assert few.polled() == (set(), [10])
    many = follow_on_postgresql(COUNT, never_updated(50))
    names, rows = many.polled()
    # The answer with one row shows whether these nodes come first.
    assert (names, sorted(rows)) == (set(), [1, 10, 100])
    assert many.polled() == (set(), [100])
    for first in (50, 0):
        assert many.write(3, first=first) == many.poll()
    assert many.poll() == set()


def test_never_updated_nodes_come_last_on_other_databases(follow: Follow) -> None:
    followed = follow(COUNT, never_updated(250))
    assert followed.polled() == (set(), [10])
    changed = followed.write(3, first=270)
    assert followed.polled() == (changed, [10])


@pytest.mark.parametrize("database", ["", "_on_postgresql"])
def test_fleet_without_updates_takes_one_more_row(
    request: pytest.FixtureRequest, database: str
) -> None:
    follow: Follow = request.getfixturevalue(f"follow{database}")
    followed = follow(30, None)
    assert followed.polled() == (set(), [10, 1])
    changed = followed.write(1)
    assert followed.poll() == changed


# Cycles of all types, with Placement.


def test_unchanged_large_fleet_takes_the_fewest_requests(
    placement: PlacementFixture, ironic: Lab, between: Between, tmp_path: Path
) -> None:
    pages = [IRONIC_PAGE] * 3
    owner = uuid4().hex
    uuids = ironic.insert_nodes(
        COUNT,
        owner=owner,
        updated_at=long_ago,
        provision_state="available",
        power_state="power off",
    )
    with Metal(placement, ironic, tmp_path / "state", url=between.url, owner=owner) as metal:
        metal.sync()
        # Rows of: the mark; the check of the listing; the last node; the pages; the end.
        assert between.rows == [10, 1, 1, *pages, 0]
        assert len(placement.requests) <= 2 * COUNT + 60
        assert metal.shows(uuids[0]) == metal.shows(uuids[-1]) == free()
        assert sum(GOLD in one["inventories"] for one in everything().values()) == COUNT

        for cycle, of_ironic, of_placement in (
            (metal.cycle.poll, [10], 0),
            (metal.cycle.drift, [], 1),
            (metal.cycle.sync, [1, 1, *pages, 0], 1),
        ):
            between.expect()
            placement.requests.clear()
            outcome = cycle()
            assert (outcome.steps, outcome.problems) == ((), ())
            assert (between.rows, len(placement.requests)) == (of_ironic, of_placement)

        ironic.set_maintenance(uuids[COUNT // 2], "a fan")
        between.expect()
        placement.requests.clear()
        metal.poll()
        assert between.rows == [10]
        assert len(placement.requests.writes) == 1
        assert metal.shows(uuids[COUNT // 2]) == reserved("maintenance: a fan")
