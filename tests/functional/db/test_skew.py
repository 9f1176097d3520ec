"""Code and schema of different versions: what works, which errors occur, and which data stay."""

import logging
import threading

import pytest
import sqlalchemy as sa

from tests.functional.db import spine
from tests.functional.db.databases import FUTURE, HOST, Place, upgrade
from tests.lab import samples
from tests.lab.cycles import record_store
from wharfinger.db.tables import METADATA
from wharfinger.exceptions import FieldUnset, StateError
from wharfinger.objects import (
    ComputeNode,
    ComputeNodeList,
    DeviceJobList,
    FlavorList,
    ProviderRecordList,
    ReservationList,
    ServiceList,
)

#: Queries for statements that wait for a lock on a table.
WAITING = {
    "postgresql": "pg_locks WHERE NOT granted",
    "mysql": "information_schema.processlist WHERE state = 'Waiting for table metadata lock'",
}
UUID = samples.node(None).uuid
TABLES = (
    "compute_nodes",
    "services",
    "flavors",
    "reservations",
    "provider_records",
    "device_jobs",
)
#: The columns that each version of the schema lacks, by table.
LACKING = {
    "0003": {
        "reservations": {"own_reserved", "consumer_uuid", "phase"},
        "provider_records": {"reserved_since", "absence", "undone", "revision"},
        "instances": {"task_state", "updated_at", "claimed_allocations"},
    },
}
LACKING["0002"] = LACKING["0003"] | {"compute_nodes": {"pci_stats"}}
#: Columns of tables that later versions than these create.
LATER = {"device_jobs": set(METADATA.tables["device_jobs"].columns.keys())}


def counted(node: ComputeNode) -> int:
    assert node.pci_stats is not None
    return node.pci_stats[0].count


def become_future(place: Place) -> None:
    """Upgrade the database, and add the columns and tables of a future version."""
    place.upgrade()
    for table in TABLES:
        place.execute(
            f"ALTER TABLE {table} ADD COLUMN later_text TEXT",
            f"ALTER TABLE {table} ADD COLUMN later_number INTEGER NOT NULL DEFAULT 7",
        )
    place.execute(
        "CREATE TABLE later_things (id INTEGER PRIMARY KEY)",
        f"UPDATE alembic_version SET version_num = '{FUTURE}'",
    )


# An older schema.


def test_field_without_a_column_in_an_older_schema_is_unset_until_the_upgrade(place: Place) -> None:
    place.upgrade("0002")
    context = place.open()

    made = samples.node(context, vcpus=4, pci_stats=samples.gpus())
    made.create()

    node = ComputeNode.get_by_uuid(context, UUID)
    assert node.vcpus == 4
    assert not node.obj_attr_is_set("pci_stats")
    with pytest.raises(FieldUnset, match=r"no column compute_nodes\.pci_stats yet"):
        _ = node.pci_stats
    # A field that has a column is saved, even if a field without a column has changed.
    node.vcpus_used, node.pci_stats = 2, samples.gpus()
    node.save()
    node.pci_stats = samples.gpus(3)
    node.save()
    assert ComputeNode.get_by_uuid(context, UUID).vcpus_used == 2
    assert context.db.missing() == LACKING["0002"] | LATER

    upgrade(place.url, place.directory)
    node = ComputeNode.get_by_uuid(context, UUID)
    node.pci_stats = samples.gpus(5)
    node.save()
    assert counted(ComputeNode.get_by_uuid(context, UUID)) == 5
    assert not context.db.missing()


def test_reservations_and_records_work_on_the_schema_before_and_after_an_upgrade(
    place: Place,
) -> None:
    place.upgrade("0003")
    context = place.open()
    assert context.db.missing() == LACKING["0003"] | LATER

    samples.released(context).create()
    record = samples.record(
        applied=None, reserved_since={"cleaning": 5.5}, reservations=["cleaning"]
    )
    records = ProviderRecordList(objects=[record])
    ProviderRecordList.replace(context, HOST, "gpus", records, [])

    [one] = ReservationList.get_by_filters(context)
    assert not [name for name in LACKING["0003"]["reservations"] if name in one]
    with pytest.raises(FieldUnset, match=r"no column reservations\.phase yet"):
        _ = one.phase
    one.phase, one.reason = "cleaning", "programming"
    one.save()
    assert ReservationList.get_by_filters(context)[0].reason == "programming"
    [reserved] = ProviderRecordList.get_reserved(context)
    assert "reserved_since" not in reserved
    memory = record_store(context, HOST, "gpus")
    assert memory.get(record.provider_uuid).reservations == ("cleaning",)

    upgrade(place.url, place.directory)

    [one] = ReservationList.get_by_filters(context)
    assert "own_reserved" not in one, "it is older than what it could say"
    assert (one.consumer_uuid, one.phase) == (None, None)
    one.own_reserved, one.phase = {"VGPU": 1}, "releasing"
    one.save()
    [one] = ReservationList.get_by_filters(context)
    assert (one.own_reserved, one.phase) == ({"VGPU": 1}, "releasing")
    [kept] = ProviderRecordList.get_by_filters(context)
    assert "reserved_since" not in kept
    record.reserved_since = {"cleaning": 5.5}
    ProviderRecordList.replace(context, HOST, "gpus", records, [])
    assert ProviderRecordList.get_reserved(context)[0].reserved_since == {"cleaning": 5.5}
    assert not context.db.missing()


def test_use_of_a_table_that_the_schema_lacks_is_an_error_with_the_remedy(place: Place) -> None:
    place.upgrade("0004")
    context = place.open()
    samples.node(context).create()

    with pytest.raises(StateError, match=r"no table device_jobs yet.*wharfinger db upgrade"):
        DeviceJobList.get_by_filters(context)
    with pytest.raises(StateError, match=r"no table device_jobs yet"):
        samples.device_job(context).create()
    upgrade(place.url, place.directory)

    samples.device_job(context).create()
    assert len(DeviceJobList.get_by_filters(context)) == len(place.rows("compute_nodes")) == 1


def test_missing_columns_are_logged_once(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    place.upgrade("0002")
    with caplog.at_level(logging.WARNING):
        context = place.open()
        for number in range(3):
            samples.node(context, number, pci_stats=samples.gpus()).create()
            ComputeNodeList.get_by_filters(context)

    told = {
        frozenset(message.partition(" the values of ")[2].replace(",", " ").split())
        for message in caplog.messages
    }
    assert len(caplog.messages) == len(told) == len(LACKING["0002"] | LATER)
    for table, columns in LACKING["0002"].items():
        assert any({"columns", *columns, "of", "table", table} <= words for words in told)
    for table, columns in LATER.items():
        assert any({"table", table} <= words and not columns & words for words in told)
    assert all("wharfinger db upgrade" in message for message in caplog.messages)


@pytest.mark.parametrize("server", ["on_postgresql", "on_mariadb"])
def test_upgrade_waits_for_a_save_and_the_save_does_not_wait(
    request: pytest.FixtureRequest, server: str
) -> None:
    place: Place = request.getfixturevalue(server)
    place.upgrade("0002")
    if place.kind == "mysql":
        # If the save also waits for the upgrade, it fails after 20 seconds.
        place.execute("SET GLOBAL lock_wait_timeout = 20")
    context = place.open()
    node = samples.node(context)
    node.create()
    other = threading.Thread(target=upgrade, args=(place.url, place.directory))

    def hold(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        if "FOR UPDATE" in statement:
            other.start()
            while not place.rows(WAITING[place.kind]):
                other.join(0.01)

    sa.event.listen(sa.Engine, "after_cursor_execute", hold)
    try:
        node.vcpus_used = 2
        node.save()
    finally:
        sa.event.remove(sa.Engine, "after_cursor_execute", hold)
    other.join()

    assert ComputeNode.get_by_uuid(context, UUID).vcpus_used == 2
    assert place.differences() == []


def test_configured_database_without_an_upgrade_is_refused(
    place: Place,
) -> None:
    with pytest.raises(StateError, match="wharfinger db upgrade"):
        place.open()
    assert sa.inspect(place.engine).get_table_names() == []
    place.upgrade("0001")
    spine.keep(place, "gpus", spine.documents())

    context = place.open()

    with pytest.raises(StateError, match="wharfinger db upgrade"):
        record_store(context, HOST, "gpus")
    with pytest.raises(StateError, match="wharfinger db upgrade"):
        ServiceList.get_by_filters(context)
    with pytest.raises(StateError, match="wharfinger db upgrade"):
        samples.node(context).create()
    upgrade(place.url, place.directory)
    assert record_store(context, HOST, "gpus").records == spine.RECORDS


# A newer schema.


def test_newer_schema_with_additions_is_used_and_keeps_them(place: Place) -> None:
    become_future(place)
    context = place.open()
    assert not context.db.missing()
    for make in (samples.service, samples.flavor, samples.reservation, samples.device_job):
        make(context).create()
    samples.node(context, pci_stats=samples.gpus()).create()
    record = samples.record()
    ProviderRecordList.replace(context, HOST, "gpus", ProviderRecordList(objects=[record]), [])
    assert counted(ComputeNode.get_by_uuid(context, UUID)) == 2
    for table in TABLES:
        [row] = place.rows(table)
        assert (row["later_text"], row["later_number"]) == (None, 7)
    for table in TABLES:
        place.execute(f"UPDATE {table} SET later_text = 'kept', later_number = 8")

    [node] = ComputeNodeList.get_by_filters(context)
    node.vcpus_used = 1
    node.save()
    [service] = ServiceList.get_by_filters(context)
    service.disabled = True
    service.save()
    service.report()
    flavors = FlavorList.get_by_filters(context)
    flavors[0].swap = 1
    flavors.save()
    [reservation] = ReservationList.get_by_filters(context)
    reservation.reason = "programming"
    reservation.save()
    [job] = DeviceJobList.get_by_filters(context)
    job.state = "programmed"
    job.save()
    record.mode = "overlay"
    ProviderRecordList.replace(context, HOST, "gpus", ProviderRecordList(objects=[record]), [])

    for table in TABLES:
        [row] = place.rows(table)
        assert (row["later_text"], row["later_number"]) == ("kept", 8), table
    assert ComputeNode.get_by_uuid(context, UUID).vcpus_used == 1
    assert ProviderRecordList.get_by_filters(context)[0].mode == "overlay"


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE compute_nodes DROP COLUMN pci_stats",
        "ALTER TABLE flavors RENAME TO kinds",
    ],
)
def test_newer_schema_without_a_needed_column_is_refused_and_kept(
    place: Place, change: str
) -> None:
    place.upgrade()
    place.execute(change, f"UPDATE alembic_version SET version_num = '{FUTURE}'")
    before = place.columns()

    with pytest.raises(StateError, match="since a newer release") as caught:
        place.open()
    with pytest.raises(StateError, match="since a newer release"):
        upgrade(place.url, place.directory)

    assert caught.value.remedy == "Run that release, or configure another database."
    assert place.columns() == before
    assert place.rows("alembic_version") == [{"version_num": FUTURE}]


def test_newer_file_of_our_own_is_used_and_kept(file: Place) -> None:
    become_future(file)
    before = file.columns()

    context = file.open_as_our_own()
    samples.node(context).create()

    assert len(ComputeNodeList.get_by_filters(context)) == 1
    assert file.columns() == before
    assert file.rows("alembic_version") == [{"version_num": FUTURE}]


@pytest.mark.parametrize("server", ["on_postgresql", "on_mariadb"])
def test_upgrade_after_the_upgrade_of_a_newer_version_changes_nothing(
    request: pytest.FixtureRequest, server: str
) -> None:
    place: Place = request.getfixturevalue(server)
    place.upgrade("0002")

    late: list[str] = []

    def be_late(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        if "_lock(" in statement.lower() and not late:
            late.append(statement)
            place.execute(
                *(
                    f"ALTER TABLE {table} ADD COLUMN {column} TEXT"
                    for table, columns in LACKING["0002"].items()
                    for column in sorted(columns)
                ),
                *(
                    f"CREATE TABLE {table} ({', '.join(f'{one} VARCHAR(9)' for one in columns)})"
                    for table, columns in LATER.items()
                ),
                f"UPDATE alembic_version SET version_num = '{FUTURE}'",
            )

    sa.event.listen(sa.Engine, "before_cursor_execute", be_late)
    try:
        upgrade(place.url, place.directory)
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", be_late)

    assert late
    assert place.rows("alembic_version") == [{"version_num": FUTURE}]
    assert not place.open().db.missing()


def test_column_lost_during_use_is_an_error_and_nothing_is_written(place: Place) -> None:
    place.upgrade()
    context = place.open()
    samples.service(context).create()
    place.execute("ALTER TABLE services RENAME COLUMN topic TO subject")

    with pytest.raises(StateError, match="topic"):
        ServiceList.get_by_filters(context)
    with pytest.raises(StateError, match="topic"):
        samples.service(context, 1).create()
    assert len(place.rows("services")) == 1
