"""Gates: when an owner's services count as tagging all providers, and the reads that this takes.

The gate of an owner is on if all services of the owner have a version that tags each provider.
"""

import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.functional.scheduling.hosts import publish_owners
from tests.functional.scheduling.searching import (
    ACME,
    BEFORE,
    CACHE_TIME,
    CYBORG,
    NOVA,
    Searching,
    asking,
    takers,
    wanted,
)
from tests.lab.objects import statements
from tests.lab.placement import PlacementFixture
from tests.lab.samples import service
from wharfinger.exceptions import StateError
from wharfinger.objects import OWNER_TAG_VERSION, Context, Service, ServiceList
from wharfinger.scheduling.candidates import CandidateSearch
from wharfinger.scheduling.owner_tagging_gates import Gates
from wharfinger.scheduling.request_filters import Surroundings
from wharfinger.scheduling.request_filters.owner import OwnerFilter

TAGS = OWNER_TAG_VERSION


@pytest.fixture
def searching(placement: PlacementFixture, tmp_path: Path) -> Iterator[Searching]:
    with Searching(placement, tmp_path) as fixture:
        yield fixture


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Callable[[], list[tuple[str, str]]]:
    """A function that returns level and text of the log lines about gates since its last call."""
    caplog.set_level(logging.INFO, logger="wharfinger.scheduling.owner_tagging_gates")

    def lines() -> list[tuple[str, str]]:
        found = [
            (record.levelname, record.getMessage())
            for record in caplog.records
            if record.name == "wharfinger.scheduling.owner_tagging_gates"
        ]
        caplog.clear()
        return found

    return lines


def has(searching: Searching, number: int, version: int, *owners: str, **values: Any) -> Service:
    """Create the compute service of host-``number`` with this version and these owners."""
    its = service(searching.kept.context, number, owners=list(owners), version=version, **values)
    its.create()
    return its


def are_on(searching: Searching) -> set[str]:
    """Return the owners whose gates are on, read with an empty cache."""
    its = Gates(searching.kept.context, CACHE_TIME)
    return {owner for owner in (NOVA, CYBORG, ACME) if its.is_on(owner)}


# Rows of the database.


def test_gate_of_an_owner_is_on_when_each_existing_service_of_the_owner_tags_everything(
    searching: Searching,
) -> None:
    assert are_on(searching) == set()
    has(searching, 1, TAGS, NOVA, ACME)
    assert are_on(searching) == {NOVA, ACME}
    old = has(searching, 2, BEFORE, NOVA)
    assert are_on(searching) == {ACME}

    old.destroy()

    assert are_on(searching) == {NOVA, ACME}
    assert len(searching.kept.rows("services")) == 2


@pytest.mark.parametrize(
    ("column", "value", "on"),
    [
        ("version", "new", {ACME}),
        ("version", -1, {ACME}),
        ("owners", "nonsense", set()),
        ("owners", "[1]", set()),
        ("owners", "[" * 5000, set()),
    ],
    ids=lambda it: repr(it)[:15],
)
def test_unreadable_row_counts_as_an_old_service_of_any_owner(
    searching: Searching, column: str, value: object, on: set[str]
) -> None:
    has(searching, 1, TAGS, NOVA, ACME)
    has(searching, 2, TAGS, NOVA)
    searching.kept.write("services", {column: value}, host="host-2")

    assert are_on(searching) == on


def test_unreadable_database_is_an_error(searching: Searching) -> None:
    its = Gates(Context(), CACHE_TIME)

    for _ in range(2):
        with pytest.raises(StateError):
            its.is_on(NOVA)


def test_failed_read_is_repeated_at_once(searching: Searching) -> None:
    has(searching, 1, TAGS, NOVA)
    its = Gates(searching.kept.context, CACHE_TIME)
    with searching.kept.engine.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE services RENAME TO elsewhere")
    with pytest.raises(StateError):
        its.is_on(NOVA)
    with searching.kept.engine.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE elsewhere RENAME TO services")

    assert its.is_on(NOVA)


# Log lines.


def test_each_change_of_a_gate_is_logged_once(
    searching: Searching, told: Callable[[], list[tuple[str, str]]]
) -> None:
    its = Gates(searching.kept.context, CACHE_TIME)

    def later() -> list[tuple[str, str]]:
        """Ask for gates several times; return the level and the start of each log line."""
        for owner in (NOVA, CYBORG, NOVA):
            searching.clock.advance(CACHE_TIME)
            its.is_on(owner)
        return [(level, line[: line.index(":")]) for level, line in told()]

    on, off = (f"The gate of OWNER_NOVA is {state}" for state in ("on", "off"))
    assert later() == []
    first = has(searching, 1, BEFORE, NOVA)
    assert later() == []
    first.version = TAGS
    first.save()
    assert later() == [("INFO", on)]
    for number in range(2, 9):
        has(searching, number, BEFORE, NOVA, CYBORG)
    searching.clock.advance(CACHE_TIME)
    its.is_on(NOVA)
    [(level, line)] = told()
    assert (level, line[: line.index(":")]) == ("WARNING", off)
    # The log line names only some of many services.
    assert "host-2/wharfinger-agent, " in line
    assert "host-6/wharfinger-agent and 2 more" in line
    assert "host-7" not in line
    for one in ServiceList.get_by_filters(searching.kept.context):
        one.version = TAGS
        one.save()
    assert later() == [("INFO", "The gate of OWNER_CYBORG is on"), ("INFO", on)]
    for one in ServiceList.get_by_filters(searching.kept.context):
        one.destroy()
    assert later() == [("WARNING", "The gate of OWNER_CYBORG is off"), ("WARNING", off)]


@pytest.mark.parametrize(("version", "state"), [(TAGS, "on"), (BEFORE, "off")])
def test_first_state_of_a_gate_is_logged_once_as_info(
    searching: Searching,
    told: Callable[[], list[tuple[str, str]]],
    version: int,
    state: str,
) -> None:
    has(searching, 1, version, NOVA)
    its = Gates(searching.kept.context, CACHE_TIME)

    for _ in range(3):
        assert its.is_on(NOVA) is (state == "on")
        searching.clock.advance(CACHE_TIME)

    [(level, line)] = told()
    assert (level, line[: line.index(":")]) == ("INFO", f"The gate of OWNER_NOVA is {state}")


# Reads and cache.


def reads(said: list[str]) -> list[str]:
    """Return the statements that read the table of services."""
    return [one for one in said if "services" in one]


def test_hundred_requests_within_the_cache_time_take_one_read(searching: Searching) -> None:
    publish_owners(searching.placement.client)
    has(searching, 1, TAGS, NOVA)
    has(searching, 2, TAGS, CYBORG)
    request = wanted(asking(owner=NOVA, VCPU=1), asking(suffix="_Y", owner=CYBORG, VGPU=1))
    owner = OwnerFilter(searching.surroundings())
    search = CandidateSearch(searching.placement.client, {"owner": owner})
    with statements() as said:
        [candidate] = search.find(request).candidates
    assert len(reads(said)) == 1
    searching.asked()

    with statements() as said:
        for _ in range(100):
            searching.clock.advance(CACHE_TIME / 101)
            narrowed = owner.apply(request)
            assert owner.objection(narrowed, candidate) is None

    assert said == []
    assert searching.asked() == []

    searching.clock.advance(CACHE_TIME)
    with statements() as said:
        search.find(request)
    assert len(reads(said)) == 1


@pytest.mark.parametrize(
    ("line", "owner", "count"),
    [("untagged = allow", NOVA, 0), ("", None, 0), ("", NOVA, 1)],
    ids=["untagged allowed", "unowned", "an owner's"],
)
def test_gates_are_read_only_for_groups_with_an_owner(
    searching: Searching, line: str, owner: str | None, count: int
) -> None:
    publish_owners(searching.placement.client)
    search = searching.search(line)

    with statements() as said:
        search.find(wanted(asking(owner=owner, VGPU=1)))

    assert len(reads(said)) == count


def test_several_threads_read_the_gates_only_once(searching: Searching) -> None:
    has(searching, 1, TAGS, NOVA)
    its = Gates(searching.kept.context, CACHE_TIME)

    with statements() as said, ThreadPoolExecutor(16) as pool:
        found = list(pool.map(its.is_on, [NOVA, CYBORG] * 32))

    assert found == [True, False] * 32
    assert len(reads(said)) == 1


def test_gate_is_cached_for_the_configured_time(
    searching: Searching,
) -> None:
    publish_owners(searching.placement.client)
    has(searching, 1, TAGS, NOVA)
    search = searching.search()

    def offered() -> list[str]:
        found = search.find(wanted(asking(owner=NOVA, VGPU=1))).candidates
        return sorted(takers(found, *"nyau"))

    assert offered() == ["n"]

    old = has(searching, 2, BEFORE, NOVA)
    searching.clock.advance(CACHE_TIME - 0.1)
    assert offered() == ["n"]
    searching.clock.advance(0.1)
    assert offered() == ["n", "u"]

    old.version = TAGS
    old.save()
    searching.clock.advance(CACHE_TIME - 0.1)
    assert offered() == ["n", "u"]
    searching.clock.advance(0.1)
    assert offered() == ["n"]


def test_search_without_a_database_fails(searching: Searching) -> None:
    publish_owners(searching.placement.client)
    its = searching.surroundings()
    owner = OwnerFilter(Surroundings(its.conf, its.placement, Context()))

    with pytest.raises(StateError):
        CandidateSearch(its.placement, {"owner": owner}).find(wanted(asking(owner=NOVA, VGPU=1)))
