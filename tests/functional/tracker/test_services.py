"""The row of a host's service after cycles."""

import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from tests.functional.reconcile.places import ANYWHERE
from tests.lab.objects import opened
from wharfinger.db.database import FILE_NAME
from wharfinger.objects import (
    AGENT_BINARY,
    OWNER_TAG_VERSION,
    SERVICE_VERSION,
    Context,
    Service,
    ServiceList,
)
from wharfinger.tracker.service_record import begin, report

pytestmark = ANYWHERE


@pytest.fixture
def context(tmp_path: Path) -> Iterator[Context]:
    context = opened(tmp_path)
    yield context
    context.close()


def service(context: Context) -> Service:
    return Service.get_by_host_and_binary(context, "h", AGENT_BINARY)


def told(context: Context) -> tuple[list[str], int]:
    found = service(context)
    return list(found.owners), found.version


def test_report_takes_the_version_of_the_owner_trait_when_all_owners_are_published(
    context: Context,
) -> None:
    for count, (owner, complete, expected) in enumerate(
        [
            ("OWNER_NOVA", False, (["OWNER_NOVA"], 1)),
            ("OWNER_NOVA", True, (["OWNER_NOVA"], OWNER_TAG_VERSION)),
            ("OWNER_NOVA", False, (["OWNER_NOVA"], OWNER_TAG_VERSION)),
            ("OWNER_CYBORG", False, (["OWNER_CYBORG", "OWNER_NOVA"], 1)),
            ("OWNER_CYBORG", True, (["OWNER_CYBORG"], OWNER_TAG_VERSION)),
        ],
        start=1,
    ):
        report(context, "h", {owner}, complete=complete)
        assert told(context) == expected
        assert service(context).report_count == count
    assert service(context).last_seen_up is not None


@pytest.mark.parametrize("column", ["owners", "version"])
def test_complete_cycle_repairs_an_unreadable_row(
    context: Context, tmp_path: Path, column: str
) -> None:
    report(context, "h", {"OWNER_NOVA"}, complete=True)
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as connection, connection:
        connection.execute(f"UPDATE services SET {column} = 'nonsense'")

    report(context, "h", {"OWNER_NOVA"}, complete=True)

    assert told(context) == (["OWNER_NOVA"], OWNER_TAG_VERSION)


@pytest.mark.parametrize(
    ("complete", "version"), [(True, OWNER_TAG_VERSION), (False, SERVICE_VERSION)]
)
def test_version_of_a_newer_program_is_lowered_to_ours(
    context: Context, complete: bool, version: int
) -> None:
    owners = ["OWNER_NOVA"]
    newer = SERVICE_VERSION + 1
    Service(context, host="h", binary=AGENT_BINARY, owners=owners, version=newer).create()
    report(context, "h", owners, complete=complete)
    assert told(context) == (owners, version)


def test_operators_save_during_a_report_is_kept(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    report(context, "h", {"OWNER_NOVA"}, complete=False)
    get = Service.get_by_host_and_binary

    def meanwhile(*args: object) -> Service:
        found = get(*args)  # type: ignore[arg-type]
        if not found.disabled:
            other = service_of(context)
            other.disabled = True
            other.save()
        return found

    def service_of(context: Context) -> Service:
        return Service.get_by_uuid(context, get(context, "h", AGENT_BINARY).uuid)

    monkeypatch.setattr(Service, "get_by_host_and_binary", meanwhile)
    report(context, "h", {"OWNER_NOVA"}, complete=True)
    monkeypatch.undo()

    assert service(context).disabled
    assert told(context) == (["OWNER_NOVA"], OWNER_TAG_VERSION)


@pytest.mark.parametrize(
    "say", [partial(report, owners={"OWNER_NOVA"}, complete=True), begin], ids=["report", "begin"]
)
def test_reports_of_several_threads_create_one_service(
    context: Context, say: Callable[..., None]
) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: say(context, "h"), range(16)))
    [found] = ServiceList.get_by_filters(context)
    assert found.report_count == 16
