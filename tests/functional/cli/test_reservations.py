"""``wharfinger provider reserve``, ``provider release`` and ``reservation list``."""

import json
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.lab import inprocess, samples
from tests.lab.faults import FAULTS, Interceptor, Request
from tests.lab.objects import KeptInFile, statements
from tests.lab.placement import Requests
from tests.lab.program import Done, Program
from wharfinger.objects import ProviderRecordList
from wharfinger.objects.kinds import now
from wharfinger.placement.client import PlacementClient
from wharfinger.placement.embedded import EmbeddedPlacement
from wharfinger.placement.model import ProviderSummary
from wharfinger.providers import Inventory, Provider
from wharfinger.providers.record import encode

GPU = "gpu-host-1_pci_0000_84_00_0"
ANY = Inventory(total=1)
#: A driver's own name for itself as a holder, of the sample host's instance.
DRIVER = "driver gpus on gpu-host-1"


@pytest.fixture
def client(placement_service: EmbeddedPlacement) -> PlacementClient:
    """Beside the program's: what it asks is not counted."""
    return PlacementClient(placement_service.adapter)


@pytest.fixture
def published(program: Program, requests: Requests) -> Program:
    """The program, whose sample host is in Placement."""
    assert inprocess.run(program, "sync").code == 0
    requests.clear()
    return program


@pytest.fixture
def gpu(published: Program, client: PlacementClient) -> ProviderSummary:
    [found] = client.list_providers(name=GPU)
    return found


@pytest.fixture
def offline(tmp_path: Path) -> Program:
    """The program with a Placement that nobody could reach."""
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
    done = inprocess.run(program, "reservation", "list", *arguments, "-f", "json")
    assert (done.code, done.err) == (0, "")
    rows: list[dict[str, str | None]] = done.json()
    return rows


def refused(done: Done, *told: str) -> None:
    """It failed, and says why in words."""
    assert (done.code, done.out) == (1, "")
    for part in told:
        assert part in done.err
    assert "Traceback" not in done.err


def figures(client: PlacementClient, provider: ProviderSummary) -> dict[str, tuple[int, int]]:
    """What Placement says of a provider, total and reserved."""
    inventories = client.get_inventories(provider.uuid).inventories
    return {name: (one.total, one.reserved) for name, one in inventories.items()}


def reports(kept: KeptInFile, provider: ProviderSummary, *reasons: str) -> None:
    """Have the driver of the sample host report reasons, as a cycle would note them."""
    kept.write(
        "provider_records",
        {
            "reservations": json.dumps(reasons),
            "reserved_since": json.dumps({reason: now().timestamp() - 720 for reason in reasons}),
        },
        provider_uuid=provider.uuid,
    )


# Reserving.


@pytest.mark.parametrize("which", ["name", "uuid"])
def test_a_provider_is_reserved_at_once_by_name_and_by_uuid(
    published: Program, client: PlacementClient, gpu: ProviderSummary, kept: KeptInFile, which: str
) -> None:
    done = reserve(published, provider=getattr(gpu, which))

    assert (done.code, done.err) == (0, "")
    assert done.out == f"{GPU} ({gpu.uuid}): reserved: disk is loud (operator)\n"
    assert figures(client, gpu) == {"VGPU": (8, 8)}
    row = kept.row("reservations")
    assert (row["provider_uuid"], row["holder"]) == (gpu.uuid, "operator")
    assert row["expected_end"] is None


def test_reserving_and_releasing_ask_no_more_of_placement_than_they_need(
    published: Program, gpu: ProviderSummary, requests: Requests
) -> None:
    path = f"/resource_providers/{gpu.uuid}"

    reserve(published)

    assert requests.seen == [
        f"GET /resource_providers?name={GPU}",
        f"GET {path}/inventories",
        *[f"GET {path}/traits"] * 2,
        f"GET {path}/inventories",
        f"PUT {path}/inventories",
    ]
    requests.clear()
    release(published)
    assert requests.seen == [
        f"GET /resource_providers?name={GPU}",
        f"GET {path}/traits",
        f"GET {path}/inventories",
        f"PUT {path}/inventories",
        f"GET {path}/traits",
        f"GET {path}/inventories",
    ]


def test_the_program_reserves_and_releases(published: Program, gpu: ProviderSummary) -> None:
    arguments = ("--reason", "a fan", "--until", "2031-05-01T08:00", "--holder", "night shift")

    reserved = published.run("provider", "reserve", GPU, *arguments)
    assert (reserved.code, reserved.err) == (0, "")
    assert reserved.out == (
        f"{GPU} ({gpu.uuid}): reserved: a fan, until 2031-05-01T08:00:00+00:00 (night shift)\n"
    )
    assert "night shift" in published.run("reservation", "list").out

    released = published.run("provider", "release", GPU, "--holder", "night shift")
    assert (released.code, released.err) == (0, "")
    assert released.out == f"{GPU} ({gpu.uuid}): free\n"


@pytest.mark.parametrize(
    ("given", "end"),
    [
        ("2031-05-01", "2031-05-01T00:00:00+00:00"),
        ("2031-05-01T08:00", "2031-05-01T08:00:00+00:00"),
        ("2031-05-01 08:00:30.5", "2031-05-01T08:00:30+00:00"),
        ("2031-05-01T08:00Z", "2031-05-01T08:00:00+00:00"),
        ("2031-05-01T08:00:00+02:00", "2031-05-01T06:00:00+00:00"),
    ],
)
def test_an_expected_end_is_a_time_in_utc_unless_it_has_a_zone(
    published: Program, given: str, end: str
) -> None:
    done = reserve(published, "--until", given)

    assert done.code == 0
    assert f", until {end} (operator)\n" in done.out
    [row] = listed(published)
    assert row["Expected End"] == end


@pytest.mark.parametrize(
    ("given", "length"),
    [
        ("7000s", timedelta(seconds=7000)),
        ("90m", timedelta(minutes=90)),
        ("2h", timedelta(hours=2)),
        ("3d", timedelta(days=3)),
    ],
)
def test_an_expected_end_may_be_said_from_now_on(
    published: Program, kept: KeptInFile, given: str, length: timedelta
) -> None:
    before = now()

    assert reserve(published, "--until", given).code == 0

    end = kept.row("reservations")["expected_end"].replace(tzinfo=UTC)
    assert before + length <= end <= now() + length


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("2020-01-01", "'2020-01-01' is not in the future"),
        ("0m", "'0m' is not in the future"),
        ("soon", "'soon' is neither a time, such as 2031-05-01T08:00, nor how far it is from"),
        ("", "'' is neither a time"),
        ("2031", "'2031' is neither a time"),
        ("90", "'90' is neither a time"),
        ("2 h", "'2 h' is neither a time"),
        ("-2h", "expected one argument"),
        ("999999999d", "'999999999d' is neither a time"),
        ("9999-12-31T23:59-12:00", "is neither a time"),
    ],
)
def test_an_expected_end_that_cannot_be_is_wrong_usage(
    offline: Program, given: str, told: str
) -> None:
    done = reserve(offline, "--until", given)

    assert (done.code, done.out) == (64, "")
    assert told in done.err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((GPU,), "the following arguments are required: --reason"),
        ((GPU, "--reason", ""), "argument --reason: '' is not text of 1 to 255 characters"),
        ((GPU, "--reason", "r" * 256), "argument --reason: "),
        ((GPU, "--reason", "r", "--holder", ""), "argument --holder: ''"),
        (("--reason", "r"), "the following arguments are required: PROVIDER"),
    ],
)
def test_what_could_not_be_kept_is_wrong_usage(
    offline: Program, arguments: tuple[str, ...], told: str
) -> None:
    done = inprocess.run(offline, "provider", "reserve", *arguments)

    assert (done.code, done.out) == (64, "")
    assert told in done.err


def test_nothing_ends_by_itself(
    published: Program, client: PlacementClient, gpu: ProviderSummary, kept: KeptInFile
) -> None:
    reserve(published, "--until", "1h")
    kept.write("reservations", {"expected_end": datetime(2020, 1, 1)})

    assert inprocess.run(published, "sync").out == "gpus: no change\n"

    assert figures(client, gpu) == {"VGPU": (8, 8)}
    assert (
        "2020-01-01T00:00:00+00:00 (overdue)" in inprocess.run(published, "reservation", "list").out
    )
    [row] = listed(published)
    assert row["Expected End"] == "2020-01-01T00:00:00+00:00"


def test_the_help_says_that_nothing_ends_by_itself(program: Program) -> None:
    told = " ".join(inprocess.run(program, "help", "provider", "reserve").out.split())

    assert "It is reserved until it is released: nothing ends by itself" in told
    assert "such as 90m, 2h or 3d" in told


def test_a_second_reservation_by_one_holder_says_of_the_first(
    published: Program, kept: KeptInFile
) -> None:
    reserve(published)
    kept.write("reservations", {"since": datetime(2026, 1, 2, 3, 4, 5)})

    refused(
        reserve(published, "--until", "2h"),
        "operator has reserved it already, since 2026-01-02T03:04:05+00:00: disk is loud.",
        f"`wharfinger provider release {GPU}`",
        "--holder",
    )
    assert len(kept.rows("reservations")) == 1


def test_what_to_do_about_it_can_be_pasted_into_a_shell(published: Program) -> None:
    reserve(published, "--holder", "night shift")

    refused(
        reserve(published, "--holder", "night shift"),
        f"`wharfinger provider release {GPU} --holder 'night shift'`",
    )


@pytest.mark.parametrize("column", ["reason", "since"])
def test_a_second_reservation_is_refused_although_the_first_is_damaged(
    published: Program, kept: KeptInFile, column: str
) -> None:
    reserve(published)
    spoil(kept, "reservations", column, "", "id = 1")

    refused(reserve(published), "operator has reserved it already", "?")


def test_what_nobody_here_publishes_is_refused_and_not_written(
    published: Program, client: PlacementClient, kept: KeptInFile, requests: Requests
) -> None:
    client.create_provider(str(uuid.uuid4()), "stranger", None)

    done = reserve(published, provider="stranger")

    refused(done, "stranger (", "no driver instance publishes it", "Ask its owner")
    assert kept.rows("reservations") == []
    assert not requests.writes


@pytest.mark.parametrize("command", [reserve, release])
def test_a_provider_that_is_not_there_is_told(
    program: Program, command: Callable[..., Done]
) -> None:
    for name in ("nobody", str(uuid.uuid4()), ""):
        done = command(program, provider=name)
        refused(done, f"there is no provider with the name or uuid '{name}'")


def test_what_was_stored_when_placement_went_away_is_written_by_the_next_cycle(
    tmp_path: Path, placement_service: EmbeddedPlacement, client: PlacementClient
) -> None:
    def fills(request: Request) -> bool:
        return request.method == "PUT" and request.path.endswith("/inventories")

    with Interceptor(placement_service.application) as placement:
        program = Program(tmp_path, placement.url)
        assert inprocess.run(program, "sync").code == 0
        [gpu] = client.list_providers(name=GPU)
        placement.expect(fills, FAULTS["503"])

        refused(
            reserve(program),
            "the reservation is stored",
            "the next cycle (`wharfinger sync`) writes it",
            "503",
        )

        assert placement.struck == 1
        assert figures(client, gpu) == {"VGPU": (8, 0)}
        assert [row["Provider"] for row in listed(program)] == [GPU]
        assert inprocess.run(program, "sync").code == 0
        assert figures(client, gpu) == {"VGPU": (8, 8)}


def test_nothing_is_stored_when_placement_is_away_before(
    tmp_path: Path, placement_service: EmbeddedPlacement
) -> None:
    def looks(request: Request) -> bool:
        return request.path.endswith("/inventories")

    with Interceptor(placement_service.application) as placement:
        program = Program(tmp_path, placement.url)
        assert inprocess.run(program, "sync").code == 0
        placement.expect(looks, FAULTS["503"])

        done = reserve(program)

        refused(done, "503")
        assert "stored" not in done.err
        assert listed(program) == []


@pytest.mark.parametrize("command", [reserve, release])
def test_a_database_that_cannot_be_opened_is_told(
    published: Program, requests: Requests, command: Callable[..., Done]
) -> None:
    (published.directory / "wharfinger.sqlite").write_bytes(b"nonsense" * 1000)

    refused(command(published), "wharfinger.sqlite: file is not a database")
    assert not requests.writes


# Releasing.


def test_a_provider_is_free_when_the_last_holder_releases_it(
    published: Program, client: PlacementClient, gpu: ProviderSummary
) -> None:
    reserve(published)
    reserve(published, "--holder", "night shift")
    which = f"{GPU} ({gpu.uuid})"

    first = release(published)
    assert (first.code, first.err) == (0, "")
    assert first.out == f"{which}: still reserved: disk is loud (held by night shift)\n"
    assert figures(client, gpu) == {"VGPU": (8, 8)}

    last = release(published, "--holder", "night shift")
    assert (last.code, last.out) == (0, f"{which}: free\n")
    assert figures(client, gpu) == {"VGPU": (8, 0)}
    assert inprocess.run(published, "sync").out == "gpus: no change\n"


def test_what_a_driver_still_reports_is_said(
    published: Program, client: PlacementClient, gpu: ProviderSummary, kept: KeptInFile
) -> None:
    reserve(published)
    reports(kept, gpu, "cleaning")

    done = release(published)

    assert (done.code, done.out) == (0, f"{GPU} ({gpu.uuid}): still reserved: cleaning\n")
    assert figures(client, gpu) == {"VGPU": (8, 8)}


def test_who_has_reserved_it_is_told_to_whom_has_not(
    published: Program, gpu: ProviderSummary, kept: KeptInFile
) -> None:
    refused(release(published), "no reservation by operator. Nobody here has reserved it.")
    reserve(published, "--holder", "night shift")
    reports(kept, gpu, "cleaning")

    refused(
        release(published),
        f"{GPU} ({gpu.uuid}): there is no reservation by operator.",
        f"It is reserved by {DRIVER}, night shift.",
        "ends when the driver reports it no more",
    )


def test_a_reservation_of_a_provider_that_is_gone_is_released_by_uuid(
    published: Program, client: PlacementClient, gpu: ProviderSummary, kept: KeptInFile
) -> None:
    reserve(published)
    client.delete_provider(gpu.uuid)

    refused(release(published, "--holder", "other", provider=gpu.uuid), "there is no provider")
    done = release(published, provider=gpu.uuid.upper())

    assert (done.code, done.err) == (0, "")
    assert done.out == f"{gpu.uuid}: released; there is no such provider any more\n"
    assert kept.rows("reservations") == []


def test_a_provider_stays_held_when_placement_is_away(
    tmp_path: Path, placement_service: EmbeddedPlacement, client: PlacementClient
) -> None:
    with Interceptor(placement_service.application) as placement:
        program = Program(tmp_path, placement.url)
        assert inprocess.run(program, "sync").code == 0
        [gpu] = client.list_providers(name=GPU)
        reserve(program)
        placement.expect(lambda request: request.method == "PUT", FAULTS["503"])

        refused(release(program), "503")

        assert placement.struck == 1
        assert len(listed(program)) == 1
        assert figures(client, gpu) == {"VGPU": (8, 8)}
        assert release(program).out == f"{GPU} ({gpu.uuid}): free\n"


@pytest.mark.parametrize("stored", [None, "{"])
def test_what_a_cycle_has_seen_is_released_although_its_figures_are_damaged(
    published: Program,
    client: PlacementClient,
    gpu: ProviderSummary,
    kept: KeptInFile,
    stored: str | None,
) -> None:
    reserve(published)
    assert inprocess.run(published, "sync").code == 0
    kept.write("reservations", {"own_reserved": stored})

    done = release(published)

    assert (done.code, done.out) == (0, f"{GPU} ({gpu.uuid}): free\n")
    assert figures(client, gpu) == {"VGPU": (8, 0)}


# The list.


def has_record(kept: KeptInFile, number: int, **values: object) -> str:
    """Have a driver instance remember a provider; its uuid."""
    record = samples.record(number, **values)
    ProviderRecordList.replace(
        kept.context, "host-1", "metal", ProviderRecordList(objects=[record]), []
    )
    return record.provider_uuid


def document(name: str, number: int) -> str:
    found = samples.uuid(f"provider {number}")
    return encode(Provider(uuid=found, name=name, root_uuid=found, inventories={"VCPU": ANY}))


def test_what_is_stored_and_what_drivers_report_is_listed_together(
    offline: Program, kept_offline: KeptInFile
) -> None:
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


@pytest.mark.parametrize("form", ["json", "yaml", "csv", "table", "value"])
def test_the_list_has_every_format(offline: Program, kept_offline: KeptInFile, form: str) -> None:
    samples.reservation(kept_offline.context, expected_end=datetime(2031, 5, 1)).create()

    done = inprocess.run(offline, "reservation", "list", "-f", form)

    assert (done.code, done.err) == (0, "")
    assert "maintenance" in done.out
    assert "2031-05-01T00:00:00+00:00" in done.out
    assert "overdue" not in done.out


def test_a_list_is_of_a_provider_a_holder_or_both(
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


def test_a_provider_is_named_by_what_is_known_of_it_last(
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


def test_damaged_rows_are_listed_with_the_others_and_told(
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
    assert "Traceback" not in done.err
    for told in (
        *(f"what is stored in reservations.{column} cannot be read" for column in damaged),
        "what is stored in provider_records.reservations cannot be read",
        "1e+300 s since the epoch is no time",
        f"live of ProviderRecord {samples.uuid('provider 3')} cannot be read",
    ):
        assert told in done.err
    rows = {(row["Holder"], row["UUID"]): row for row in done.json()}
    assert len(rows) == 6
    by_holder = rows["holder-1", "?"]
    assert by_holder.pop("Holder") == "holder-1"
    assert set(by_holder.values()) == {"?"}
    driver = "driver metal on host-1"
    assert rows[driver, samples.uuid("provider 1")]["Since"] == "?"
    assert rows[driver, samples.uuid("provider 2")]["Reason"] == "?"
    assert rows[driver, samples.uuid("provider 3")]["Provider"] == samples.uuid("provider 3")


def spoil(kept: KeptInFile, table: str, column: str, value: str, where: str) -> None:
    """Write what no column of its type would take elsewhere."""
    with kept.engine.begin() as connection:
        done = connection.exec_driver_sql(
            f"UPDATE {table} SET {column} = ? WHERE {where}", (value,)
        )
        assert done.rowcount == 1


def test_what_a_terminal_would_not_take_is_escaped(published: Program, kept: KeptInFile) -> None:
    arguments = ("--reason", "\x1b[31mred", "--holder", "a\nb")
    done = inprocess.run(published, "provider", "reserve", GPU, *arguments)
    again = inprocess.run(published, "provider", "reserve", GPU, *arguments)
    table = inprocess.run(published, "reservation", "list")

    assert done.code == 0
    for printed in (done.out, again.err, table.out):
        assert "\x1b" not in printed
        assert "\\x1b[31mred" in printed


def test_a_list_takes_three_statements_however_many_there_are(
    offline: Program, kept_offline: KeptInFile
) -> None:
    def said() -> int:
        with statements() as executed:
            listed(offline)
        return len([one for one in executed if " reservations" in one or "_records" in one])

    for number in range(2):
        provider = has_record(
            kept_offline, number, applied=document("n", number), reservations=["cleaning"]
        )
        samples.reservation(kept_offline.context, number, provider_uuid=provider).create()
    few = said()
    for number in range(2, 60):
        provider = has_record(
            kept_offline, number, applied=document("n", number), reservations=["cleaning"]
        )
        samples.reservation(kept_offline.context, number, provider_uuid=provider).create()

    assert few == said() == 3


def test_nothing_is_listed_where_nothing_is_reserved(offline: Program) -> None:
    assert listed(offline) == []
