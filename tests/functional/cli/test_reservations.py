"""The commands ``wharfinger provider reserve``, ``provider release`` and ``reservation list``."""

import json
import uuid
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.functional.cli.outcomes import failed, says, shown
from tests.lab import inprocess, samples
from tests.lab.database_writes import Transactions
from tests.lab.faults import FAULTS, Interceptor, Request
from tests.lab.objects import KeptInFile, statements
from tests.lab.placement import Requests
from tests.lab.program import Done, Program
from wharfinger.conformance.other_program_client import WritingClient
from wharfinger.objects import ProviderRecordList
from wharfinger.objects.field_types import now
from wharfinger.placement.embedded import EmbeddedPlacement
from wharfinger.placement.model import ProviderSummary
from wharfinger.providers import Inventory, Provider
from wharfinger.providers.provider import encode

GPU = "gpu-host-1_pci_0000_84_00_0"
FREE, FULL = {"VGPU": (8, 0)}, {"VGPU": (8, 8)}
#: The name of the sample host's driver instance as a holder of reservations.
DRIVER = "driver gpus on gpu-host-1"


@pytest.fixture
def client(placement_service: EmbeddedPlacement) -> WritingClient:
    """A client whose requests are not counted."""
    return WritingClient(placement_service.adapter)


@pytest.fixture
def published(program: Program, requests: Requests) -> Program:
    """The program after a sync, with its sample host in Placement."""
    assert inprocess.run(program, "sync").code == 0
    requests.clear()
    return program


@pytest.fixture
def gpu(published: Program, client: WritingClient) -> ProviderSummary:
    [found] = client.list_providers(name=GPU)
    return found


@pytest.fixture
def offline(tmp_path: Path) -> Program:
    """The program with the URL of a Placement that does not answer."""
    return Program(tmp_path, "http://127.0.0.1:9")


@pytest.fixture
def kept_offline(offline: Program) -> Iterator[KeptInFile]:
    with KeptInFile(offline.directory) as kept:
        yield kept


def reserve(program: Program, *arguments: str, provider: str = GPU) -> Done:
    return inprocess.run(
        program, "provider", "reserve", provider, "--reason", "disk is loud", *arguments
    )


def release(program: Program, *arguments: str, provider: str = GPU) -> Done:
    return inprocess.run(program, "provider", "release", provider, *arguments)


def listed(program: Program, *arguments: str) -> list[dict[str, str | None]]:
    rows: list[dict[str, str | None]] = shown(program, "reservation", "list", *arguments)
    return rows


def figures(client: WritingClient, provider: ProviderSummary) -> dict[str, tuple[int, int]]:
    """Return (total, reserved) of each resource class in Placement."""
    inventories = client.get_inventories(provider.uuid).inventories
    return {name: (one.total, one.reserved) for name, one in inventories.items()}


def reports(kept: KeptInFile, provider: ProviderSummary, *reasons: str) -> None:
    """Record reasons of the sample host's driver to reserve the provider, as a cycle does."""
    since = {reason: now().timestamp() - 720 for reason in reasons}
    kept.write(
        "provider_records",
        {"reservations": json.dumps(reasons), "reserved_since": json.dumps(since)},
        provider_uuid=provider.uuid,
    )


def spoil(kept: KeptInFile, table: str, column: str, value: str, where: str) -> None:
    """Write into a column a value that cannot be read."""
    with kept.engine.begin() as connection:
        done = connection.exec_driver_sql(
            f"UPDATE {table} SET {column} = ? WHERE {where}", (value,)
        )
        assert done.rowcount == 1


# Reserve.


def test_reserve_and_release_find_provider_by_name_and_uuid(
    published: Program, client: WritingClient, gpu: ProviderSummary, kept: KeptInFile
) -> None:
    for name in (gpu.name, gpu.uuid):
        done = reserve(published, provider=name)

        assert (done.code, done.err) == (0, "")
        assert done.out == f"{GPU} ({gpu.uuid}): reserved: disk is loud (operator)\n"
        assert figures(client, gpu) == FULL
        row = kept.row("reservations")
        assert (row["provider_uuid"], row["holder"]) == (gpu.uuid, "operator")
        assert row["expected_end"] is None

        done = release(published, provider=name)

        assert (done.code, done.out, done.err) == (0, f"{GPU} ({gpu.uuid}): free\n", "")
        assert figures(client, gpu) == FREE
        assert kept.rows("reservations") == []
    assert inprocess.run(published, "sync").out == "gpus: no change\n"


def test_reserve_and_release_send_no_unneeded_requests(
    published: Program, gpu: ProviderSummary, requests: Requests
) -> None:
    path = f"/resource_providers/{gpu.uuid}"

    with Transactions() as transactions:
        reserve(published)

    assert len(transactions.reads) + len(transactions.writes) == 4
    assert requests.seen == [
        f"GET /resource_providers?name={GPU}",
        f"GET {path}/traits",
        f"GET {path}/inventories",
        f"PUT {path}/inventories",
    ]
    requests.clear()
    with Transactions() as transactions:
        release(published)
    assert len(transactions.reads) + len(transactions.writes) == 4
    assert requests.seen == [
        f"GET /resource_providers?name={GPU}",
        f"GET {path}/traits",
        f"GET {path}/inventories",
        f"PUT {path}/inventories",
    ]


def test_expected_end_without_a_zone_is_utc(published: Program) -> None:
    for given, end in {
        "2031-05-01": "2031-05-01T00:00:00+00:00",
        "2031-05-01T08:00": "2031-05-01T08:00:00+00:00",
        "2031-05-01 08:00:30.5": "2031-05-01T08:00:30+00:00",
        "2031-05-01T08:00Z": "2031-05-01T08:00:00+00:00",
        "2031-05-01T08:00:00+02:00": "2031-05-01T06:00:00+00:00",
    }.items():
        done = reserve(published, "--until", given, "--holder", given)
        assert done.code == 0
        assert f", until {end} ({given})\n" in done.out
        [row] = listed(published, "--holder", given)
        assert row["Expected End"] == end


def test_expected_end_may_be_relative(published: Program, kept: KeptInFile) -> None:
    for given, length in {
        "7000s": timedelta(seconds=7000),
        "90m": timedelta(minutes=90),
        "2h": timedelta(hours=2),
        "3d": timedelta(days=3),
    }.items():
        before = now()
        assert reserve(published, "--until", given, "--holder", given).code == 0
        [row] = [row for row in kept.rows("reservations") if row["holder"] == given]
        assert before + length <= row["expected_end"].replace(tzinfo=UTC) <= now() + length


def test_reservation_after_its_expected_end_stays(
    published: Program, client: WritingClient, gpu: ProviderSummary, kept: KeptInFile
) -> None:
    told = " ".join(inprocess.run(published, "help", "provider", "reserve").out.split())
    assert "does not end by itself" in told
    reserve(published, "--until", "1h")
    kept.write("reservations", {"expected_end": datetime(2020, 1, 1)})

    assert inprocess.run(published, "sync").out == "gpus: no change\n"

    assert figures(client, gpu) == FULL
    table = inprocess.run(published, "reservation", "list").out
    assert "2020-01-01T00:00:00+00:00 (overdue)" in table
    [row] = listed(published)
    assert row["Expected End"] == "2020-01-01T00:00:00+00:00"


def test_second_reservation_of_the_same_holder_shows_the_first(
    published: Program, kept: KeptInFile
) -> None:
    night = ("--holder", "night shift")
    reserve(published, *night)
    kept.write("reservations", {"since": datetime(2026, 1, 2, 3, 4, 5)})

    failed(
        reserve(published, *night, "--until", "2h"),
        "the holder night shift, since 2026-01-02T03:04:05+00:00 (disk is loud).",
        f"`wharfinger provider release {GPU} --holder 'night shift'`",
    )
    for column in ("reason", "since"):
        spoil(kept, "reservations", column, "", "id = 1")
        failed(
            reserve(published, *night), "already has a reservation of the holder night shift", "?"
        )
    assert len(kept.rows("reservations")) == 1


def test_reserve_of_unpublished_provider_is_refused(
    published: Program, client: WritingClient, kept: KeptInFile, requests: Requests
) -> None:
    client.create_provider(str(uuid.uuid4()), "stranger", None)

    done = reserve(published, provider="stranger")

    failed(done, "stranger (", "no driver instance publishes it", "Ask the owner")
    assert kept.rows("reservations") == []
    for name in ("nobody", str(uuid.uuid4()), ""):
        for command in (reserve, release):
            failed(command(published, provider=name), f"the name or uuid '{name}'")
    assert not requests.writes


@pytest.mark.usefixtures("no_waiting")
def test_reserve_during_an_outage_is_written_by_the_next_cycle(
    tmp_path: Path, placement_service: EmbeddedPlacement, client: WritingClient
) -> None:
    def looks(request: Request) -> bool:
        return request.path.endswith("/inventories")

    def fills(request: Request) -> bool:
        return request.method == "PUT" and looks(request)

    with Interceptor(placement_service.application) as placement:
        program = Program(tmp_path, placement.url)
        assert inprocess.run(program, "sync").code == 0
        [gpu] = client.list_providers(name=GPU)

        placement.expect(looks, FAULTS["503"])
        done = reserve(program)
        failed(done, "503")
        assert "stored" not in done.err
        assert listed(program) == []

        placement.expect(fills, FAULTS["503"])
        failed(reserve(program), "is stored", "writes the rest", "503")
        assert placement.struck == 1
        assert figures(client, gpu) == FREE
        assert [row["Provider"] for row in listed(program)] == [GPU]
        assert inprocess.run(program, "sync").code == 0
        assert figures(client, gpu) == FULL

        placement.expect(fills, FAULTS["503"])
        failed(release(program), "503")
        assert placement.struck == 1
        assert len(listed(program)) == 1
        assert figures(client, gpu) == FULL
        assert release(program).out == f"{GPU} ({gpu.uuid}): free\n"


def test_reserve_with_unreadable_database_fails_before_writes(
    published: Program, requests: Requests
) -> None:
    (published.directory / "wharfinger.sqlite").write_bytes(b"nonsense" * 1000)

    for command in (reserve, release):
        failed(command(published), "wharfinger.sqlite: file is not a database")
    assert not requests.writes


# Release.


def test_provider_stays_reserved_until_the_last_holder_releases(
    published: Program, client: WritingClient, gpu: ProviderSummary, kept: KeptInFile
) -> None:
    which = f"{GPU} ({gpu.uuid})"
    failed(
        release(published),
        "no reservation of the holder operator.",
        "no reservation of any holder.",
    )
    reserve(published)
    reserve(published, "--holder", "night shift")

    first = release(published)
    assert (first.code, first.err) == (0, "")
    assert first.out == f"{which}: still reserved: disk is loud (held by night shift)\n"
    assert figures(client, gpu) == FULL
    reports(kept, gpu, "cleaning")
    failed(
        release(published),
        f"provider {which} has no reservation of the holder operator.",
        f"It has reservations of: {DRIVER}, night shift.",
        "ends only when the driver no longer reports the reservation",
    )

    second = release(published, "--holder", "night shift")
    assert (second.code, second.out) == (0, f"{which}: still reserved: cleaning\n")
    assert figures(client, gpu) == FULL


def test_reservation_of_deleted_provider_is_released_by_uuid(
    published: Program, client: WritingClient, gpu: ProviderSummary, kept: KeptInFile
) -> None:
    reserve(published)
    client.delete_provider(gpu.uuid)

    failed(release(published, "--holder", "other", provider=gpu.uuid), "there is no provider")
    done = release(published, provider=gpu.uuid.upper())

    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(f"{gpu.uuid}: released")
    assert kept.rows("reservations") == []


@pytest.mark.parametrize("stored", [None, "{"])
def test_release_with_damaged_figures_frees_the_provider(
    published: Program,
    client: WritingClient,
    gpu: ProviderSummary,
    kept: KeptInFile,
    stored: str | None,
) -> None:
    reserve(published)
    assert inprocess.run(published, "sync").code == 0
    kept.write("reservations", {"own_reserved": stored})

    done = release(published)

    assert (done.code, done.out) == (0, f"{GPU} ({gpu.uuid}): free\n")
    assert figures(client, gpu) == FREE


# Foreign reservations, which other programs have made.


def fill(client: WritingClient, provider: ProviderSummary) -> None:
    """Reserve all inventories of a provider as another program."""
    live = client.get_inventories(provider.uuid)
    full = {name: replace(one, reserved=one.total) for name, one in live.inventories.items()}
    client.set_inventories(provider.uuid, live.resource_provider_generation, full)


def test_release_foreign_frees_a_provider_that_another_program_has_reserved(
    published: Program, client: WritingClient, gpu: ProviderSummary
) -> None:
    """Runs the command that sync prints; later cycles do not report the reservation again."""
    fill(client, gpu)
    told = inprocess.run(published, "sync").out
    command = told.split("`")[1]
    assert command == f"wharfinger provider release {gpu.uuid} --foreign"

    done = inprocess.run(published, *command.split()[1:])

    assert (done.code, done.out, done.err) == (0, f"{GPU} ({gpu.uuid}): free\n", "")
    assert figures(client, gpu) == FREE
    assert inprocess.run(published, "sync").out == "gpus: no change\n"


def test_release_foreign_of_a_provider_with_a_stored_reservation_frees_it_after_that(
    published: Program, client: WritingClient, gpu: ProviderSummary
) -> None:
    """The stored reservation goes on. After its end, the foreign one does not return."""
    fill(client, gpu)
    reserve(published)

    done = release(published, "--foreign")

    assert done.out == f"{GPU} ({gpu.uuid}): still reserved: disk is loud (held by operator)\n"
    assert figures(client, gpu) == FULL
    assert inprocess.run(published, "sync").out == "gpus: no change\n"
    assert release(published).out == f"{GPU} ({gpu.uuid}): free\n"
    assert figures(client, gpu) == FREE


def test_release_foreign_without_a_foreign_reservation_is_refused(
    published: Program, client: WritingClient, gpu: ProviderSummary, requests: Requests
) -> None:
    """The stored reservation of this program is not a foreign one."""
    reserve(published)
    requests.clear()

    failed(
        release(published, "--foreign"),
        f"provider {GPU} ({gpu.uuid}): no other program has fully reserved it.",
    )

    assert requests.writes == []


def test_release_foreign_of_a_provider_that_no_driver_publishes_is_refused(
    published: Program, client: WritingClient, requests: Requests
) -> None:
    stranger = client.create_provider(str(uuid.uuid4()), "stranger", None)
    full = {"VGPU": Inventory(total=1, reserved=1)}
    client.set_inventories(stranger.uuid, stranger.generation, full)
    requests.clear()

    failed(
        release(published, "--foreign", provider="stranger"),
        "VGPU is fully reserved, but no driver instance",
    )

    assert requests.writes == []


# List.


def has_record(kept: KeptInFile, number: int, **values: object) -> str:
    """Store a record of a provider for a driver instance; return the provider's uuid."""
    record = samples.record(number, **values)
    ProviderRecordList.replace(
        kept.context, "host-1", "metal", ProviderRecordList(objects=[record]), []
    )
    return record.provider_uuid


def document(name: str, number: int) -> str:
    found, inventories = samples.uuid(f"provider {number}"), {"VCPU": Inventory(total=1)}
    return encode(Provider(uuid=found, name=name, root_uuid=found, inventories=inventories))


def test_reservation_list_has_stored_and_reported_reservations(
    offline: Program, kept_offline: KeptInFile
) -> None:
    assert listed(offline) == []
    present = now()
    ago = present - timedelta(hours=2, minutes=5)
    node = has_record(
        kept_offline,
        1,
        applied=document("node-1", 1),
        reservations=["cleaning", "maintenance"],
        reserved_since={"cleaning": (present - timedelta(days=3)).timestamp() + 0.5},
    )
    has_record(kept_offline, 2, applied=document("node-2", 2), reservations=[])
    samples.reservation(
        kept_offline.context,
        1,
        provider_uuid=node,
        reason="disk is loud",
        holder="operator",
        since=ago,
        expected_end=datetime(2031, 5, 1, tzinfo=UTC),
    ).create()
    samples.reservation(
        kept_offline.context, 2, provider_uuid=samples.uuid("unknown"), since=ago
    ).create()

    driver = {"UUID": node, "Provider": "node-1", "Holder": "driver metal on host-1"}
    rows = sorted(listed(offline), key=lambda row: str(row["Reason"]))
    [unknown] = [row for row in rows if row["Provider"] == samples.uuid("unknown")]
    assert [row for row in rows if row != unknown] == [
        {
            **driver,
            "Reason": "cleaning",
            "Since": (present - timedelta(days=3)).isoformat(),
            "Age": "3d",
            "Expected End": None,
        },
        {
            "Provider": "node-1",
            "UUID": node,
            "Reason": "disk is loud",
            "Holder": "operator",
            "Since": ago.isoformat(),
            "Age": "2h",
            "Expected End": "2031-05-01T00:00:00+00:00",
        },
        {**driver, "Reason": "maintenance", "Since": "?", "Age": "?", "Expected End": None},
    ]
    assert (unknown["UUID"], unknown["Holder"]) == (samples.uuid("unknown"), "holder-2")
    for form in ("json", "yaml", "csv", "table", "value"):
        done = inprocess.run(offline, "reservation", "list", "-f", form)
        assert (done.code, done.err) == (0, "")
        assert "2031-05-01T00:00:00+00:00" in done.out
        assert "overdue" not in done.out


def test_reservation_list_filters_by_provider_or_holder(
    offline: Program, kept_offline: KeptInFile
) -> None:
    one = has_record(kept_offline, 1, applied=document("node-1", 1), reservations=["cleaning"])
    two = has_record(kept_offline, 2, live=document("node-2", 2))
    for number, provider in enumerate([one, two, two]):
        samples.reservation(kept_offline.context, number, provider_uuid=provider).create()

    def holders(*arguments: str) -> list[str]:
        return sorted(str(row["Holder"]) for row in listed(offline, *arguments))

    assert holders() == ["driver metal on host-1", "holder-0", "holder-1", "holder-2"]
    assert holders("--provider", "node-2") == ["holder-1", "holder-2"]
    assert holders("--provider", two.upper()) == ["holder-1", "holder-2"]
    assert holders("--holder", "driver metal on host-1") == ["driver metal on host-1"]
    assert holders("--provider", "node-2", "--holder", "holder-1") == ["holder-1"]
    assert holders("--provider", "node-1", "--holder", "holder-1") == []
    assert holders("--provider", "node-3") == []


def test_reservation_list_takes_names_from_the_latest_description(
    offline: Program, kept_offline: KeptInFile
) -> None:
    cases: dict[str, dict[str, object]] = {
        "live": {"live": document("live", 1), "applied": document("applied", 1)},
        "applied": {"applied": document("applied", 2), "intended": document("intended", 2)},
        "intended": {"applied": None, "intended": document("intended", 3)},
    }
    for number, values in enumerate(cases.values(), 1):
        has_record(kept_offline, number, reservations=["cleaning"], **values)

    assert {row["Provider"] for row in listed(offline)} == set(cases)


def test_reservation_list_with_damaged_rows_lists_the_others(
    offline: Program, kept_offline: KeptInFile
) -> None:
    for number in range(3):
        samples.reservation(kept_offline.context, number).create()
    damaged = {"provider_uuid": "nobody", "reason": "", "expected_end": "soon", "since": "once"}
    for column, value in damaged.items():
        spoil(kept_offline, "reservations", column, value, "holder = 'holder-1'")
    has_record(kept_offline, 1, reservations=["cleaning"], reserved_since={"cleaning": 1e300})
    has_record(kept_offline, 2, reservations=["cleaning"])
    spoil(kept_offline, "provider_records", "reservations", "[", f"id = {2}")
    has_record(kept_offline, 3, reservations=["cleaning"], live="{", applied="nonsense")

    done = inprocess.run(offline, "reservation", "list", "-f", "json")

    assert done.code == 0
    says(
        done,
        *(f"the value of reservations.{column} cannot be read" for column in damaged),
        "the value of provider_records.reservations cannot be read",
        "is out of range: 1e+300 s after 1970",
        f"live of ProviderRecord {samples.uuid('provider 3')} is not used",
    )
    rows = {(row["Holder"], row["UUID"]): row for row in done.json()}
    assert len(rows) == 6
    by_holder = rows["holder-1", "?"]
    assert by_holder.pop("Holder") == "holder-1"
    assert set(by_holder.values()) == {"?"}
    driver = "driver metal on host-1"
    assert rows[driver, samples.uuid("provider 1")]["Since"] == "?"
    assert rows[driver, samples.uuid("provider 2")]["Reason"] == "?"
    assert rows[driver, samples.uuid("provider 3")]["Provider"] == samples.uuid("provider 3")


def test_control_characters_in_reservations_are_escaped(published: Program) -> None:
    arguments = ("--reason", "\x1b[31mred", "--holder", "a\nb")
    done = inprocess.run(published, "provider", "reserve", GPU, *arguments)
    again = inprocess.run(published, "provider", "reserve", GPU, *arguments)
    table = inprocess.run(published, "reservation", "list")

    assert done.code == 0
    for printed in (done.out, again.err, table.out):
        assert "\x1b" not in printed
        assert "\\x1b[31mred" in printed


def test_reservation_list_of_any_length_reads_with_three_statements(
    offline: Program, kept_offline: KeptInFile
) -> None:
    taken = []
    for number in range(20):
        provider = has_record(
            kept_offline, number, applied=document("n", number), reservations=["cleaning"]
        )
        samples.reservation(kept_offline.context, number, provider_uuid=provider).create()
        if number in (1, 19):
            with statements() as executed:
                listed(offline)
            counted = [one for one in executed if " reservations" in one or "_records" in one]
            taken.append(len(counted))

    assert taken == [3, 3]
