"""The gates: when an owner's services are believed to tag everything, and what it costs to know."""

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
from tests.lab.samples import service, uuid
from wharfinger.exceptions import StateError
from wharfinger.objects import OWNER_TAG_VERSION, Context, Service, ServiceList
from wharfinger.scheduling.candidates import CandidateSearch
from wharfinger.scheduling.filters import Surroundings
from wharfinger.scheduling.filters.owner import OwnerFilter
from wharfinger.scheduling.gates import Gate, Gates, gates

TAGS = OWNER_TAG_VERSION


@pytest.fixture
def searching(placement: PlacementFixture, tmp_path: Path) -> Iterator[Searching]:
    with Searching(placement, tmp_path) as fixture:
        yield fixture


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Callable[[], list[tuple[str, str]]]:
    """Gives the lines about gates, level and message, since it was last asked for them."""
    caplog.set_level(logging.INFO, logger="wharfinger.scheduling.gates")

    def lines() -> list[tuple[str, str]]:
        found = [
            (record.levelname, record.getMessage())
            for record in caplog.records
            if record.name == "wharfinger.scheduling.gates"
        ]
        caplog.clear()
        return found

    return lines


def has(searching: Searching, number: int, version: int, *owners: str, **values: Any) -> Service:
    """A service host-N that publishes for these owners."""
    its = service(searching.kept.context, number, owners=list(owners), version=version, **values)
    its.create()
    return its


def now(searching: Searching) -> dict[str, Gate]:
    return gates(ServiceList.get_by_filters(searching.kept.context))


def are_on(searching: Searching) -> set[str]:
    """For whom the gate is on, to one who asks for the first time."""
    its = Gates(searching.kept.context, CACHE_TIME)
    return {owner for owner in (NOVA, CYBORG, ACME) if its.is_on(owner)}


# When they are on.


def test_there_is_no_gate_of_an_owner_for_whom_nobody_publishes(searching: Searching) -> None:
    assert now(searching) == {}
    assert are_on(searching) == set()


@pytest.mark.parametrize(
    ("versions", "on"),
    [
        ([TAGS], True),
        ([TAGS, TAGS], True),
        ([TAGS, TAGS + 1], True),
        ([BEFORE], False),
        ([BEFORE, TAGS], False),
        ([TAGS, TAGS + 5, BEFORE], False),
        ([TAGS, 0], False),
    ],
)
def test_a_gate_is_on_when_each_service_tags_everything(
    searching: Searching, versions: list[int], on: bool
) -> None:
    for number, version in enumerate(versions):
        has(searching, number, version, NOVA)

    behind = [
        f"host-{number}/wharfinger-agent"
        for number, version in enumerate(versions)
        if version < TAGS
    ]
    assert now(searching) == {NOVA: Gate(NOVA, len(versions), tuple(behind))}
    assert now(searching)[NOVA].is_on is on
    assert are_on(searching) == ({NOVA} if on else set())


def test_each_owner_has_a_gate_of_its_own(searching: Searching) -> None:
    has(searching, 1, TAGS, NOVA)
    has(searching, 2, BEFORE, CYBORG)
    has(searching, 3, TAGS, ACME, NOVA)

    assert now(searching) == {
        NOVA: Gate(NOVA, 2, ()),
        CYBORG: Gate(CYBORG, 1, ("host-2/wharfinger-agent",)),
        ACME: Gate(ACME, 1, ()),
    }
    assert are_on(searching) == {NOVA, ACME}


def test_a_service_that_is_behind_holds_back_each_of_its_owners(searching: Searching) -> None:
    has(searching, 1, TAGS, NOVA, CYBORG, ACME)
    has(searching, 2, BEFORE, NOVA, CYBORG)

    assert are_on(searching) == {ACME}


def test_a_service_that_publishes_for_nobody_holds_back_nobody(searching: Searching) -> None:
    has(searching, 1, TAGS, NOVA)
    has(searching, 2, BEFORE)

    assert are_on(searching) == {NOVA}


@pytest.mark.parametrize("binary", ["wharfinger-agent", "nova-compute"])
@pytest.mark.parametrize(
    "values", [{"disabled": True}, {"forced_down": True}, {}], ids=["disabled", "down", "silent"]
)
def test_services_that_do_nothing_just_now_count(
    searching: Searching, values: dict[str, bool], binary: str
) -> None:
    has(searching, 1, TAGS, NOVA).report()
    has(searching, 2, BEFORE, NOVA, binary=binary, **values)

    assert are_on(searching) == set()


def test_services_that_are_deleted_do_not_count(searching: Searching) -> None:
    has(searching, 1, TAGS, NOVA)
    old = has(searching, 2, BEFORE, NOVA)
    assert are_on(searching) == set()

    old.destroy()

    assert now(searching) == {NOVA: Gate(NOVA, 1, ())}
    assert len(searching.kept.rows("services")) == 2


# Rows that cannot be read.


@pytest.mark.parametrize("version", ["new", -1], ids=repr)
def test_a_service_of_an_unknown_version_may_be_an_old_one(
    searching: Searching, version: object
) -> None:
    has(searching, 1, TAGS, NOVA, ACME)
    has(searching, 2, TAGS, NOVA)
    searching.kept.write("services", {"version": version}, host="host-2")

    assert now(searching)[NOVA] == Gate(NOVA, 2, ("host-2/wharfinger-agent",))
    assert are_on(searching) == {ACME}


@pytest.mark.parametrize(
    "owners",
    ["nonsense", "{}", "[1]", '"OWNER_NOVA"', "[" * 5000],
    ids=lambda it: repr(it)[:15],
)
def test_a_service_of_unknown_owners_may_publish_for_each(
    searching: Searching, owners: str
) -> None:
    has(searching, 1, TAGS, NOVA, ACME)
    has(searching, 2, TAGS, NOVA)
    searching.kept.write("services", {"owners": owners}, host="host-2")

    behind = ("host-2/wharfinger-agent",)
    assert now(searching) == {NOVA: Gate(NOVA, 1, behind), ACME: Gate(ACME, 1, behind)}
    assert are_on(searching) == set()


def test_a_service_of_unknown_owners_alone_publishes_for_nobody_one_knows(
    searching: Searching,
) -> None:
    has(searching, 1, TAGS, NOVA)
    searching.kept.write("services", {"owners": "nonsense"})

    assert now(searching) == {}
    assert are_on(searching) == set()


@pytest.mark.parametrize("column", ["host", "binary"])
def test_a_service_without_a_name_is_told_by_its_uuid(searching: Searching, column: str) -> None:
    has(searching, 1, BEFORE, NOVA)
    searching.kept.write("services", {column: ""})

    assert now(searching)[NOVA].behind == (uuid("service 1"),)


def test_a_database_that_cannot_be_read_is_an_error_and_no_gate(searching: Searching) -> None:
    its = Gates(Context(), CACHE_TIME)

    for _ in range(2):
        with pytest.raises(StateError):
            its.is_on(NOVA)


def test_what_could_not_be_read_is_read_again_at_once(searching: Searching) -> None:
    has(searching, 1, TAGS, NOVA)
    its = Gates(searching.kept.context, CACHE_TIME)
    with searching.kept.engine.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE services RENAME TO elsewhere")
    with pytest.raises(StateError):
        its.is_on(NOVA)
    with searching.kept.engine.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE elsewhere RENAME TO services")

    assert its.is_on(NOVA)


# What is told.


def test_each_change_of_a_gate_is_one_line(
    searching: Searching, told: Callable[[], list[tuple[str, str]]]
) -> None:
    its = Gates(searching.kept.context, CACHE_TIME)

    def later() -> list[tuple[str, str]]:
        """What is told of all gates, which are asked for several times."""
        for owner in (NOVA, CYBORG, NOVA):
            searching.clock.advance(CACHE_TIME)
            its.is_on(owner)
        return told()

    assert later() == []

    first = has(searching, 1, BEFORE, NOVA)
    assert later() == []

    first.version = TAGS
    first.save()
    second = has(searching, 2, TAGS, NOVA)
    assert later() == [
        (
            "INFO",
            "the gate of OWNER_NOVA is on: all 2 services that publish for it tag everything; "
            "only what has that trait is offered to those who ask for it.",
        )
    ]

    old = has(searching, 3, BEFORE, NOVA, CYBORG)
    assert later() == [
        (
            "WARNING",
            "the gate of OWNER_NOVA is off: host-3/wharfinger-agent publishes for it and "
            "does not tag everything; what has no owner trait is offered to those who ask for it, "
            "too.",
        )
    ]

    has(searching, 4, BEFORE, NOVA)
    assert later() == []

    for number in (3, 4):
        row = Service.get_by_uuid(searching.kept.context, uuid(f"service {number}"))
        row.version = TAGS
        row.save()
    assert [(level, line.partition(":")[0]) for level, line in later()] == [
        ("INFO", "the gate of OWNER_CYBORG is on"),
        ("INFO", "the gate of OWNER_NOVA is on"),
    ]

    for one in ServiceList.get_by_filters(searching.kept.context):
        one.destroy()
    assert old.uuid == uuid("service 3")
    assert second.uuid == uuid("service 2")
    assert [(level, line.partition(";")[0]) for level, line in later()] == [
        ("WARNING", "the gate of OWNER_CYBORG is off: no service publishes for it"),
        ("WARNING", "the gate of OWNER_NOVA is off: no service publishes for it"),
    ]


def test_a_gate_that_is_on_from_the_start_is_told_once(
    searching: Searching, told: Callable[[], list[tuple[str, str]]]
) -> None:
    has(searching, 1, TAGS, NOVA)
    its = Gates(searching.kept.context, CACHE_TIME)

    for _ in range(3):
        assert its.is_on(NOVA)

    assert [level for level, _line in told()] == ["INFO"]


def test_a_gate_that_is_off_from_the_start_is_told_once_and_is_no_warning(
    searching: Searching, told: Callable[[], list[tuple[str, str]]]
) -> None:
    has(searching, 1, BEFORE, NOVA)
    its = Gates(searching.kept.context, CACHE_TIME)

    for _ in range(3):
        assert not its.is_on(NOVA)
        searching.clock.advance(CACHE_TIME)

    assert [(level, line.partition(" publishes")[0]) for level, line in told()] == [
        ("INFO", "the gate of OWNER_NOVA is off: host-1/wharfinger-agent")
    ]


@pytest.mark.parametrize(
    ("count", "names"),
    [
        (2, "host-1/b, host-2/b"),
        (5, "host-1/b, host-2/b, host-3/b, host-4/b, host-5/b"),
        (7, "host-1/b, host-2/b, host-3/b, host-4/b, host-5/b and 2 more"),
    ],
)
def test_a_warning_names_a_few_of_many(
    searching: Searching,
    told: Callable[[], list[tuple[str, str]]],
    count: int,
    names: str,
) -> None:
    has(searching, 0, TAGS, NOVA)
    its = Gates(searching.kept.context, CACHE_TIME)
    assert its.is_on(NOVA)
    told()
    for number in range(1, count + 1):
        has(searching, number, BEFORE, NOVA, binary="b")

    searching.clock.advance(CACHE_TIME)
    assert not its.is_on(NOVA)

    [(_level, line)] = told()
    assert f"is off: {names} publishes for it" in line


# What it costs, and for how long it is believed.


def reads(said: list[str]) -> list[str]:
    """What was said to the table of services."""
    return [one for one in said if "services" in one]


def test_a_thousand_requests_within_the_time_cost_one_read(searching: Searching) -> None:
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
        for _ in range(1000):
            searching.clock.advance(CACHE_TIME / 1001)
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
    ids=["untagged allowed", "nobody's", "an owner's"],
)
def test_gates_are_read_only_for_those_whom_they_concern(
    searching: Searching, line: str, owner: str | None, count: int
) -> None:
    publish_owners(searching.placement.client)
    search = searching.search(line)

    with statements() as said:
        search.find(wanted(asking(owner=owner, VGPU=1)))

    assert len(reads(said)) == count


def test_many_threads_read_the_gates_once(searching: Searching) -> None:
    has(searching, 1, TAGS, NOVA)
    its = Gates(searching.kept.context, CACHE_TIME)

    with statements() as said, ThreadPoolExecutor(16) as pool:
        found = list(pool.map(its.is_on, [NOVA, CYBORG] * 32))

    assert found == [True, False] * 32
    assert len(reads(said)) == 1


def test_a_gate_is_believed_for_as_long_as_is_configured_and_no_longer(
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


def test_without_a_database_no_request_is_answered(searching: Searching) -> None:
    publish_owners(searching.placement.client)
    its = searching.surroundings()
    owner = OwnerFilter(Surroundings(its.conf, its.placement, Context()))

    with pytest.raises(StateError):
        CandidateSearch(its.placement, {"owner": owner}).find(wanted(asking(owner=NOVA, VGPU=1)))
