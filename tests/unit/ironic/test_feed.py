"""The change feed: its requests to Ironic, and its results if clocks differ."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest

from tests.unit.ironic.model import BEGINNING, Model, clock
from wharfinger.exceptions import BackendError
from wharfinger_ironic.client import PAGE
from wharfinger_ironic.feed import OVERLAP
from wharfinger_ironic.fleet import Fleet

#: Seconds after which the feed cannot have missed an update.
LONG = 60
#: More nodes than the shortest answer has.
MORE = 15


class Followed:
    """A fleet without recent updates, and the changes that its feed reports."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.fleet = Fleet(model, "metal")
        self.mark = self.fleet.begin_following()
        self.fleet.refresh()
        self.rest()

    def rest(self) -> None:
        """Advance time until no update can have been missed."""
        for _ in range(3):
            self.poll()
            self.model.now += LONG

    def poll(self) -> set[str]:
        self.model.now += 2
        self.model.asked.clear()
        names, self.mark = self.fleet.changed_since(self.mark)
        return names


@contextmanager
def followed(
    count: int, *, dated: bool = True, nulls_first: bool = False, has_date: bool = True
) -> Iterator[Followed]:
    """Yield a fleet whose nodes were all updated long ago, or were never updated."""
    model = Model(nulls_first=nulls_first, has_date=has_date, page=PAGE)
    for index, uuid in enumerate(model.create(count)):
        model.date(uuid, BEGINNING - timedelta(days=1, seconds=LONG * index) if dated else None)
    with clock(model):
        yield Followed(model)


def update(
    model: Model, count: int, skew: float = 0.0, *, reason: str | None = "a", first: int = 0
) -> set[str]:
    uuids = list(model.rows)[first : first + count]
    for uuid in uuids:
        model.update(uuid, reason, skew=skew)
    return set(uuids)


# Number and size of requests.


@pytest.mark.parametrize("count", [1, 9, 10, 11, 99, 100, 1000, 1600])
@pytest.mark.parametrize("nulls_first", [False, True])
def test_poll_of_an_unchanged_fleet_is_one_request_of_ten_rows(
    count: int, nulls_first: bool
) -> None:
    with followed(count, nulls_first=nulls_first) as fleet:
        for _ in range(3):
            assert fleet.poll() == set()
            assert fleet.model.asked == [("latest", min(10, count))]


#: By number of changed nodes: the sizes of the answers to this poll, and to the next one.
COSTS = {
    1: [[10], [10]],
    9: [[10], [10]],
    10: [[10, 100], [100]],
    50: [[10, 100], [100]],
    99: [[10, 100], [100]],
    100: [[10, 100, 1000], [1000]],
    999: [[10, 100, 1000], [1000]],
}


@pytest.mark.parametrize("count", COSTS)
def test_poll_requests_as_many_rows_as_have_changed(count: int) -> None:
    with followed(1600) as fleet:
        changed = update(fleet.model, count)
        first, second = COSTS[count]

        assert fleet.poll() == changed
        assert fleet.model.asked == [("latest", size) for size in first]

        assert fleet.poll() == set()
        assert fleet.model.asked == [("latest", size) for size in second]

        fleet.rest()
        assert fleet.poll() == set()
        assert fleet.model.asked == [("latest", 10)]


@pytest.mark.parametrize("count", [1000, 1001, 1500, 1600])
def test_poll_with_more_changes_than_a_page_is_a_complete_listing(count: int) -> None:
    with followed(1600) as fleet:
        changed = update(fleet.model, count)
        assert fleet.poll() == changed
        asked = [what for what, _ in fleet.model.asked]
        assert asked == ["latest"] * 3 + ["check", "last"] + ["page"] * 3

        fleet.rest()
        assert fleet.poll() == set()
        assert fleet.model.asked == [("latest", 10)]


def test_fleet_that_fits_into_an_answer_needs_no_listing() -> None:
    with followed(7) as fleet:
        assert fleet.poll() == set()
        assert update(fleet.model, 7) == fleet.poll()
        assert fleet.model.asked == [("latest", 7)]


# Rows with the same time.


@pytest.mark.parametrize("count", [10, 100, 1600])
def test_rows_with_the_same_time_are_all_reported(count: int) -> None:
    with followed(1600) as fleet:
        stamp = BEGINNING + timedelta(seconds=fleet.model.now)
        changed = update(fleet.model, count)
        assert {fleet.model.rows[uuid].updated for uuid in changed} == {stamp}
        assert fleet.poll() == changed
        assert fleet.poll() == set()


def test_fleet_whose_rows_have_the_same_old_time_needs_one_short_request() -> None:
    model = Model(page=PAGE)
    for uuid in model.create(1600):
        model.date(uuid, BEGINNING - timedelta(days=1))
    with clock(model):
        fleet = Followed(model)
        assert fleet.poll() == set()
        assert model.asked == [("latest", 10)]


@pytest.mark.parametrize(("less", "are_all_seen"), [(0.0, True), (0.001, False)])
def test_rows_at_the_limit_of_the_overlap_are_seen(less: float, are_all_seen: bool) -> None:
    with followed(200) as fleet:
        # The feed knows Ironic's time only from the date of this answer.
        update(fleet.model, 1)
        latest = fleet.model.now
        fleet.poll()
        skew = latest - fleet.model.now - OVERLAP.total_seconds() - less
        changed = update(fleet.model, MORE, skew, first=100)
        assert (fleet.poll() == changed) is are_all_seen


# Nodes that were never updated.


@pytest.mark.parametrize("nulls_first", [False, True])
@pytest.mark.parametrize("count", [10, 100, 2000])
def test_fleet_without_updates_needs_one_more_request(count: int, nulls_first: bool) -> None:
    with followed(count, dated=False, nulls_first=nulls_first) as fleet:
        assert fleet.poll() == set()
        assert fleet.model.asked == [("latest", 10), ("nulls", 1)]

        changed = update(fleet.model, 1)
        assert fleet.poll() == changed


def never_updated_too(fleet: Followed, count: int) -> None:
    """Add ``count`` nodes that were never updated, and list them."""
    fleet.model.create(count)
    fleet.fleet.refresh()
    fleet.rest()


def test_never_updated_nodes_that_come_last_need_no_larger_answer() -> None:
    with followed(100) as fleet:
        never_updated_too(fleet, 2000)
        assert fleet.poll() == set()
        assert fleet.model.asked == [("latest", 10)]


@pytest.mark.parametrize(("count", "size"), [(5, 10), (9, 10), (50, 100), (998, 1000)])
def test_never_updated_nodes_that_come_first_need_as_many_more_rows(count: int, size: int) -> None:
    with followed(2000, nulls_first=True) as fleet:
        never_updated_too(fleet, count)
        assert fleet.poll() == set()
        assert fleet.model.asked == [("latest", size)]
        changed = update(fleet.model, 1)
        assert fleet.poll() == changed


def test_more_never_updated_nodes_than_a_page_need_a_listing() -> None:
    with followed(100, nulls_first=True) as fleet:
        never_updated_too(fleet, PAGE + 200)
        changed = update(fleet.model, 3)
        assert fleet.poll() == changed
        assert [what for what, _ in fleet.model.asked][-3:] == ["page"] * 3


# Listings that are necessary because no answer is short.


def test_listings_for_lack_of_a_short_answer_have_pauses_between_them() -> None:
    with followed(100, nulls_first=True) as fleet:
        never_updated_too(fleet, PAGE + 200)
        fleet.model.takes = 1.0
        fleet.model.now += 1000
        fleet.poll()
        listings, began = 0, fleet.model.now
        while fleet.model.now < began + 1000:
            fleet.poll()
            listings += ("check", 0) in fleet.model.asked
        # Each listing takes 5 s and is followed by a pause of 50 s.
        assert 15 <= listings <= 1000 // 55


def test_change_during_the_pause_is_reported_after_it() -> None:
    with followed(100, nulls_first=True) as fleet:
        never_updated_too(fleet, PAGE + 200)
        fleet.model.takes = 1.0
        fleet.model.now += 1000
        fleet.poll()
        assert ("check", 0) in fleet.model.asked
        changed = update(fleet.model, 3)
        assert fleet.poll() == set()
        assert ("check", 0) not in fleet.model.asked
        fleet.model.now += LONG
        assert fleet.poll() == changed


def test_change_before_the_pause_is_read_again_after_it() -> None:
    with followed(1600) as fleet:
        fleet.model.takes = 1.0
        many = update(fleet.model, 1500)
        assert fleet.poll() == many
        few = update(fleet.model, 1500, reason="b")
        early = fleet.poll()  # a listing has just ended, so this poll makes none
        assert early < few
        # The other changes are reported after the pause.
        fleet.model.now += 200
        assert early | fleet.poll() == few


# Wrong clocks.


@pytest.mark.parametrize("ahead", [1, 3600, 10**8])
def test_row_with_a_future_time_hides_no_other(ahead: float) -> None:
    with followed(100) as fleet:
        future = update(fleet.model, 1, skew=ahead)
        assert fleet.poll() == future
        for reason in ("b", "c"):
            changed = update(fleet.model, MORE, reason=reason, first=50)
            assert fleet.poll() == changed
            fleet.rest()


def test_clock_of_the_api_that_is_ahead_hides_nothing() -> None:
    with followed(100) as fleet:
        fleet.model.skew = 3600
        fleet.rest()
        for reason in ("b", "c"):
            changed = update(fleet.model, MORE, reason=reason)
            assert fleet.poll() == changed
            fleet.rest()


@pytest.mark.parametrize("has_date", [True, False])
@pytest.mark.parametrize("skew", [-9.0, -5.0, -0.5, 0.0, 0.5, 5.0, 9.0])
def test_clocks_may_differ_a_little(skew: float, has_date: bool) -> None:
    with followed(200, has_date=has_date) as fleet:
        for index in range(10):
            changed = update(fleet.model, MORE, skew if index % 2 else 0.0, first=index * MORE)
            assert fleet.poll() == changed


def test_row_of_a_clock_far_behind_is_reported_by_the_next_listing() -> None:
    with followed(200) as fleet:
        update(fleet.model, 1)
        fleet.poll()
        changed = update(fleet.model, MORE, first=1, skew=-5 * LONG)
        assert fleet.poll() < changed
        fleet.fleet.refresh()
        assert fleet.fleet.nodes == fleet.model.nodes()


def test_answers_without_a_date_need_no_more_requests() -> None:
    with followed(2000, has_date=False) as fleet:
        assert fleet.poll() == set()
        assert fleet.model.asked == [("latest", 10)]
        changed = update(fleet.model, 3)
        assert fleet.poll() == changed
        assert fleet.model.asked == [("latest", 10)]


def test_fleet_without_any_date_is_listed_completely() -> None:
    with followed(2000, dated=False, has_date=False) as fleet:
        changed = update(fleet.model, 1)
        assert fleet.poll() == changed
        changed = update(fleet.model, 2, reason="b")
        assert fleet.poll() == changed


# Failures.


@pytest.mark.parametrize("at", range(9))
def test_failed_poll_leaves_all_changes_to_the_next(at: int) -> None:
    with followed(1600) as fleet:
        before = dict(fleet.fleet.nodes)
        changed = update(fleet.model, 1500)
        fleet.model.fails_at = at
        if at < 8:
            with pytest.raises(BackendError):
                fleet.poll()
            assert fleet.fleet.nodes == before
        assert fleet.poll() == changed


def test_unacknowledged_change_is_reported_again() -> None:
    with followed(100) as fleet:
        old = fleet.mark
        changed = update(fleet.model, 2)
        assert fleet.poll() == changed
        fleet.model.now += LONG
        new = fleet.mark
        assert fleet.fleet.changed_since(old)[0] == changed
        assert fleet.fleet.changed_since(new)[0] == set()


def test_mark_of_another_process_reports_all_nodes() -> None:
    with followed(10) as fleet:
        fleet.mark = "4f1d:7"
        assert fleet.poll() == set(fleet.model.rows)
        assert fleet.poll() == set()


# Nodes without a change.


def test_node_written_without_a_change_is_not_reported() -> None:
    with followed(100) as fleet:
        uuid = next(iter(fleet.model.rows))
        fleet.model.date(uuid, BEGINNING + timedelta(seconds=fleet.model.now))
        assert fleet.poll() == set()


def test_new_node_is_reported_at_its_first_update_and_a_deleted_one_never() -> None:
    with followed(100) as fleet:
        (new,) = fleet.model.create()
        assert fleet.poll() == set()
        fleet.model.update(new, "a")
        gone = next(iter(fleet.model.rows))
        fleet.model.delete(gone)
        assert fleet.poll() == {new}
        assert gone in fleet.fleet.nodes
        fleet.fleet.refresh()
        assert fleet.fleet.nodes == fleet.model.nodes()


def test_node_first_seen_in_a_listing_is_reported_by_the_next_poll() -> None:
    with followed(100) as fleet:
        new = fleet.model.create(3)
        fleet.fleet.refresh()
        assert fleet.poll() == set(new)
        assert fleet.poll() == set()
