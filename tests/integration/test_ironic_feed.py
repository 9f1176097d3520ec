"""The change feed of a real Ironic: what is seen, and what it costs, in requests and in rows.

Each test has nodes of an owner of its own.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pytest

from tests.lab.bare_metal import GOLD, Metal, free, reserved
from tests.lab.between import Between
from tests.lab.cycles import everything
from tests.lab.faults import FAULTS, Answer
from tests.lab.placement import PlacementFixture
from tests.lab.postgresql import PostgreSQL
from wharfinger.conf import parse
from wharfinger.exceptions import BackendError
from wharfinger_harnesses.ironic import Ironic as Lab
from wharfinger_ironic import feed
from wharfinger_ironic import fleet as fleet_module
from wharfinger_ironic.client import Ironic
from wharfinger_ironic.config import FleetSection
from wharfinger_ironic.fleet import Fleet
from wharfinger_ironic.node import Node

DETAIL: Final = "/v1/nodes/detail"


def now(ago: float = 0) -> datetime:
    """The time as Ironic writes it into its database."""
    return datetime.now(UTC).replace(tzinfo=None) - timedelta(seconds=ago)


def long_ago(index: int) -> datetime:
    return now(30 * 86400) + timedelta(minutes=index)


@dataclass
class Followed:
    """A fleet that is followed, and what is between."""

    lab: Lab
    between: Between
    fleet: Fleet
    owner: str
    uuids: list[str]
    mark: str = ""

    def begins(self) -> None:
        self.mark = self.fleet.begin_following()
        self.fleet.refresh()
        self.between.expect()

    def poll(self) -> set[str]:
        self.between.expect()
        names, self.mark = self.fleet.changed_since(self.mark)
        return names

    def polled(self) -> tuple[set[str], list[int]]:
        """What a poll names, and the rows of each answer that it took."""
        return self.poll(), self.between.rows

    def write(self, count: int, at: datetime, *, first: int = 0, reason: str = "why") -> set[str]:
        """Have nodes be in maintenance, all at once and dated so; behind Ironic's back."""
        self.lab.execute(
            "UPDATE nodes SET maintenance = :on, maintenance_reason = :reason, updated_at = :at "
            "WHERE id IN (SELECT id FROM nodes WHERE owner = :owner "
            "ORDER BY id LIMIT :count OFFSET :first)",
            on=True,
            reason=reason,
            at=at.strftime("%Y-%m-%d %H:%M:%S.%f"),
            owner=self.owner,
            count=count,
            first=first,
        )
        return set(self.uuids[first : first + count])


def made(
    lab: Lab, between: Between, directory: Path, count: int, updated_at: Any = long_ago
) -> Followed:
    owner = uuid4().hex
    uuids = lab.insert_nodes(count, owner=owner, updated_at=updated_at)
    path = directory / f"{owner}.conf"
    path.write_text(f"[metal]\nauth_type = none\nendpoint = {between.url}\nnode_owner = {owner}\n")
    conf = parse([str(path)])
    fleet = Fleet(Ironic.connect(conf, FleetSection.read(conf, "metal")), "metal")
    followed = Followed(lab, between, fleet, owner, uuids)
    followed.begins()
    return followed


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with Lab() as lab:
        lab.create_node(None)
        yield lab


@pytest.fixture(scope="module")
def between(lab: Lab) -> Iterator[Between]:
    with Between(lab.url) as between:
        yield between


@pytest.fixture
def followed(lab: Lab, between: Between, tmp_path: Path) -> Followed:
    return made(lab, between, tmp_path, 200)


# What it costs.


@pytest.mark.parametrize("count", [10, 1000, 5000])
def test_a_fleet_at_rest_is_one_request_of_ten_rows(
    lab: Lab, between: Between, tmp_path: Path, count: int
) -> None:
    followed = made(lab, between, tmp_path, count)
    for _ in range(3):
        assert followed.polled() == (set(), [10])
    [asked] = between.asked
    assert asked.path.startswith(DETAIL)
    assert asked.query["owner"] == followed.owner


# Of how many that change: the rows of each answer, and those of the next poll.
COSTS: Final = {
    1: ([10], [10]),
    8: ([10], [10]),  # and the one before them, just after the start
    50: ([10, 100], [100]),
    150: ([10, 100, 1000], [1000]),
}


@pytest.mark.parametrize("count", COSTS)
def test_as_many_rows_are_asked_for_as_have_changed(
    lab: Lab, between: Between, tmp_path: Path, count: int
) -> None:
    followed = made(lab, between, tmp_path, 1200)
    changed = followed.write(count, now())
    first, second = COSTS[count]
    assert followed.polled() == (changed, first)
    assert followed.polled() == (set(), second)


def test_more_changes_than_a_page_has_are_a_complete_listing(
    lab: Lab, between: Between, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet_module, "_PAUSE", 0)  # else it waits after the listing just now
    large = made(lab, between, tmp_path, 5000)
    changed = large.write(1500, now())
    listing = [1, 1, *[1000] * 5, 0]
    assert large.polled() == (changed, [10, 100, 1000, *listing])
    assert {large.fleet.nodes[uuid].maintenance_reason for uuid in changed} == {"why"}
    # They are of the last seconds still, of which some may have been missed.
    assert large.polled() == (set(), [1000, *listing])


def test_a_fleet_that_one_answer_holds_needs_no_listing(
    lab: Lab, between: Between, tmp_path: Path
) -> None:
    followed = made(lab, between, tmp_path, 7)
    changed = followed.write(7, now())
    assert followed.polled() == (changed, [7])


# Dates.


@pytest.mark.parametrize("count", [9, 50, 200])
def test_rows_of_one_moment_are_all_seen(followed: Followed, count: int) -> None:
    assert followed.write(count, now()) == followed.poll()
    assert followed.poll() == set()


@pytest.mark.parametrize("ago", [0, 1, 5, 9, -5, -3600])
def test_a_clock_may_be_wrong_by_some_seconds(followed: Followed, ago: float) -> None:
    # The newest row is of now, for all that Ironic knows.
    followed.write(1, now())
    followed.poll()
    assert followed.write(1, now(ago), first=1) == followed.poll()
    assert followed.write(1, now(), first=2) == followed.poll()


def test_dates_of_whole_seconds_will_do(followed: Followed) -> None:
    for index in range(8):
        changed = followed.write(1, now().replace(microsecond=0), first=index)
        assert followed.poll() == changed


def test_a_fleet_of_one_old_moment_is_at_rest(
    lab: Lab, between: Between, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet_module, "_PAUSE", 0)
    followed = made(lab, between, tmp_path, 1200, updated_at=now(86400))
    # After the start they may be read for some seconds: nothing else says what time it is there.
    followed.poll()
    monkeypatch.setattr(feed, "monotonic", lambda: time.monotonic() + 60)
    followed.poll()
    followed.poll()
    assert followed.polled() == (set(), [10])


def test_a_row_that_changes_between_two_answers_is_seen(followed: Followed) -> None:
    many = followed.write(50, now())
    followed.between.act(0, lambda: followed.write(1, now(), first=100))
    names, followed.mark = followed.fleet.changed_since(followed.mark)
    assert len(followed.between.asked) == 2
    assert names | followed.poll() == many | {followed.uuids[100]}
    assert followed.poll() == set()


def test_a_row_that_changes_again_between_two_answers_is_as_it_is(followed: Followed) -> None:
    followed.write(50, now())
    followed.between.act(0, lambda: followed.write(1, now(), first=20, reason="another"))
    _, followed.mark = followed.fleet.changed_since(followed.mark)
    followed.poll()
    assert followed.fleet.nodes[followed.uuids[20]].maintenance_reason == "another"


# What has changed.

Change = Callable[[Lab, str], object]


def manages(lab: Lab, uuid: str) -> None:
    lab.provision(uuid, "manage")
    lab.wait_for(uuid, "manageable")


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
        lambda node: node.name[:5] if node.name else None,
        "name-",
    ),
    "state": (
        manages,
        lambda node: node.provision_state,
        "manageable",
    ),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_change_is_seen(followed: Followed, what: str) -> None:
    change, look, value = CHANGES[what]
    uuid = followed.uuids[77]
    assert look(followed.fleet.nodes[uuid]) != value
    change(followed.lab, uuid)
    assert followed.polled() == ({uuid}, [10])
    assert look(followed.fleet.nodes[uuid]) == value
    assert followed.poll() == set()


def test_what_ends_is_seen_too(followed: Followed) -> None:
    uuid = followed.uuids[77]
    followed.lab.set_traits(uuid, "CUSTOM_A")
    followed.lab.set_maintenance(uuid, "a fan")
    followed.poll()
    followed.lab.end_maintenance(uuid)
    followed.lab.set_traits(uuid)
    assert followed.poll() == {uuid}
    node = followed.fleet.nodes[uuid]
    assert (node.maintenance, node.maintenance_reason, node.traits) == (False, None, frozenset())


def test_a_node_that_is_written_as_it_was_is_read_and_not_named(followed: Followed) -> None:
    uuid = followed.uuids[0]
    followed.lab.update_node(uuid, resource_class="baremetal.gold")
    assert followed.lab.node(uuid)["updated_at"] > now(60).isoformat()
    assert followed.polled() == (set(), [10])


def test_a_new_node_is_seen_when_it_is_updated(followed: Followed) -> None:
    [new] = followed.lab.insert_nodes(1, owner=followed.owner, updated_at=None)
    assert followed.poll() == set()
    followed.lab.set_maintenance(new, "a fan")
    assert followed.poll() == {new}
    assert followed.fleet.nodes[new].maintenance


def test_a_node_that_is_gone_is_not_named(followed: Followed) -> None:
    followed.lab.delete_node(followed.uuids[0])
    assert followed.poll() == set()
    assert followed.uuids[0] in followed.fleet.nodes


# What fails.


@pytest.mark.parametrize("at", [0, 1])
@pytest.mark.parametrize("what", ["500", "401", "503", "page", "reset when done", "refused"])
def test_a_poll_that_fails_leaves_all_to_the_next(followed: Followed, what: str, at: int) -> None:
    changed = followed.write(50, now())
    before = dict(followed.fleet.nodes)
    followed.between.expect(at, FAULTS[what])
    with pytest.raises(BackendError) as caught:
        followed.fleet.changed_since(followed.mark)
    assert str(caught.value).startswith(
        "driver metal: asking for the nodes that have changed failed: "
    )
    assert followed.fleet.nodes == before
    assert followed.poll() == changed


def test_without_a_date_of_the_answer_changes_are_seen(followed: Followed) -> None:
    for index in range(5):
        changed = followed.write(1, now(), first=index)
        followed.between.replace(0, without_date)
        names, followed.mark = followed.fleet.changed_since(followed.mark)
        assert names == changed
        assert followed.between.struck == 1


def without_date(answer: Answer) -> Answer:
    headers = tuple(one for one in answer.headers if one[0].lower() != "date")
    assert headers != answer.headers
    return replace(answer, headers=headers)


# Nodes that were never updated.


@pytest.fixture(scope="module")
def lab_on_postgresql() -> Iterator[Lab]:
    """An Ironic whose database sorts them to the beginning."""
    with (
        PostgreSQL() as server,
        Lab({"database": {"connection": server.create_database()}}) as lab,
    ):
        lab.create_node(None)
        yield lab


@pytest.fixture(scope="module")
def before_postgresql(lab_on_postgresql: Lab) -> Iterator[Between]:
    with Between(lab_on_postgresql.url) as between:
        yield between


def never_updated(count: int) -> Callable[[int], datetime | None]:
    """As many of them were never updated, the others long ago."""
    return lambda index: None if index < count else long_ago(index)


# How many were never updated, and the rows of each answer of the first polls.
@pytest.mark.parametrize(("count", "rows"), [(5, [[10]] * 3), (50, [[10, 100], [100], [100]])])
def test_where_they_come_first_so_many_more_are_asked_for(
    lab_on_postgresql: Lab,
    before_postgresql: Between,
    tmp_path: Path,
    count: int,
    rows: list[list[int]],
) -> None:
    # What is asked whether they come first has one row, and is asked where a page has no other.
    asked = [[*one, 1] if one == [10, 100] else one for one in rows]
    followed = made(lab_on_postgresql, before_postgresql, tmp_path, 300, never_updated(count))
    for one in asked:
        names, found = followed.polled()
        assert (names, sorted(found)) == (set(), sorted(one))
    changed = followed.write(3, now(), first=count)
    assert followed.poll() == changed
    changed = followed.write(3, now())  # for the first time
    assert followed.poll() == changed
    assert followed.poll() == set()


def test_where_more_come_first_than_a_page_has_all_are_listed(
    lab_on_postgresql: Lab,
    before_postgresql: Between,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fleet_module, "_PAUSE", 0)
    followed = made(lab_on_postgresql, before_postgresql, tmp_path, 1300, never_updated(1200))
    changed = followed.write(3, now(), first=1250)
    names, rows = followed.polled()
    assert names == changed
    listing = [1, 1, 1000, 300, 0]
    assert rows == [10, 1, 100, 1, 1000, 1, *listing]
    assert followed.polled() == (set(), [1000, 1, *listing])


@pytest.mark.parametrize("count", [10, 300])
def test_where_none_was_ever_updated_that_is_asked_too_on_postgresql(
    lab_on_postgresql: Lab, before_postgresql: Between, tmp_path: Path, count: int
) -> None:
    followed = made(lab_on_postgresql, before_postgresql, tmp_path, count, None)
    assert followed.polled() == (set(), [10, 1])
    changed = followed.write(1, now())
    assert followed.poll() == changed


@pytest.mark.parametrize("count", [10, 300])
def test_where_none_was_ever_updated_that_is_asked_too(
    lab: Lab, between: Between, tmp_path: Path, count: int
) -> None:
    followed = made(lab, between, tmp_path, count, None)
    assert followed.polled() == (set(), [10, 1])
    changed = followed.write(1, now())
    assert followed.polled() == (changed, [10])


def test_where_they_come_last_they_cost_nothing(lab: Lab, between: Between, tmp_path: Path) -> None:
    followed = made(lab, between, tmp_path, 1300, never_updated(1200))
    assert followed.polled() == (set(), [10])
    changed = followed.write(3, now(), first=1250)
    assert followed.polled() == (changed, [10])


@pytest.mark.parametrize("what", CHANGES)
def test_a_change_is_seen_on_postgresql(
    lab_on_postgresql: Lab, before_postgresql: Between, tmp_path: Path, what: str
) -> None:
    followed = made(lab_on_postgresql, before_postgresql, tmp_path, 20)
    change, look, value = CHANGES[what]
    uuid = followed.uuids[7]
    change(followed.lab, uuid)
    assert followed.polled() == ({uuid}, [10])
    assert look(followed.fleet.nodes[uuid]) == value


# The three paces, through to Placement.


def test_5000_nodes_at_once(
    placement: PlacementFixture, lab: Lab, between: Between, tmp_path: Path
) -> None:
    owner = uuid4().hex
    uuids = lab.insert_nodes(
        5000,
        owner=owner,
        updated_at=long_ago,
        provision_state="available",
        power_state="power off",
    )
    between.expect()
    with Metal(placement, lab, tmp_path / "state", url=between.url, owner=owner) as metal:
        metal.sync()
        # The mark, and a listing: whether all are seen, the last, 5 pages, and that no more come.
        assert between.rows == [10, 1, 1, *[1000] * 5, 0]
        assert len(placement.requests) <= 2 * 5000 + 5000 // 100 + 60
        assert metal.shows(uuids[0]) == metal.shows(uuids[-1]) == free()
        assert sum(GOLD in one["inventories"] for one in everything().values()) == 5000

        for pace, of_ironic, of_placement in (
            (metal.cycle.poll, [10], 0),
            (metal.cycle.drift, [], 1),
            (metal.cycle.sync, [1, 1, *[1000] * 5, 0], 1),
        ):
            between.expect()
            placement.requests.clear()
            outcome = pace()
            assert (outcome.steps, outcome.problems) == ((), ())
            assert (between.rows, len(placement.requests)) == (of_ironic, of_placement)

        lab.set_maintenance(uuids[2500], "a fan")
        between.expect()
        placement.requests.clear()
        metal.poll()
        assert between.rows == [10]
        assert len(placement.requests.writes) == 1
        assert metal.shows(uuids[2500]) == reserved("maintenance: a fan")
