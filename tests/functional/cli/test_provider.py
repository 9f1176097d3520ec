"""``wharfinger provider``: the contents of Placement, as text and JSON."""

import json
import uuid
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from tests.functional.cli.outcomes import failed, shown
from tests.functional.scheduling.hosts import publish_owners
from tests.lab import inprocess
from tests.lab import placement as lab
from tests.lab.objects import KeptInFile, statements
from tests.lab.placement import Requests
from tests.lab.program import Done, Program
from wharfinger.conformance.other_program_client import WritingClient
from wharfinger.objects.field_types import now
from wharfinger.placement.embedded import EmbeddedPlacement

TREE = """\
gpu-host-1  OWNER_NOVA
├── MEMORY_MB 0/262144  4096 reserved
├── VCPU 0/64  2 reserved
├── gpu-host-1_pci_0000_84_00_0  OWNER_NOVA
│   └── VGPU 0/8
└── gpu-host-1_pci_0000_c4_00_0  OWNER_NOVA
    └── CUSTOM_VGPU_LARGE 0/4
"""


@pytest.fixture
def published(program: Program) -> Program:
    assert inprocess.run(program, "sync").code == 0
    return program


@pytest.fixture
def hosts(program: Program, placement_service: EmbeddedPlacement) -> Program:
    """The program, with a host in Placement that has devices of several owners."""
    publish_owners(WritingClient(placement_service.adapter))
    return program


def listed(program: Program, *arguments: str) -> Done:
    return inprocess.run(program, "provider", "list", *arguments)


def test_provider_tree_is_drawn(published: Program) -> None:
    drawn = tree(published, "--inventory", "--usage")
    assert (drawn.code, drawn.out) == (0, TREE)

    of_one = tree(published, GPU, "--traits").out
    assert of_one.startswith("gpu-host-1  OWNER_NOVA\n")
    assert "traits: CUSTOM_VGPU_T4_2Q, CUSTOM_WHARFINGER_GPUS, OWNER_NOVA" in of_one

    picture = tree(published, "--format", "svg").out
    assert picture.startswith("<svg ")
    assert picture.count("OWNER_NOVA") == 3

    [root] = shown(published, "provider", "tree", "--inventory", "--traits", "--usage")
    child = root["children"][0]
    assert child["inventories"]["VGPU"]["total"] == 8
    assert child["usages"] == {"VGPU": 0}
    assert child["traits"] == ["CUSTOM_VGPU_T4_2Q", "CUSTOM_WHARFINGER_GPUS", "OWNER_NOVA"]
    assert "traits" not in shown(published, "provider", "tree")[0]
    for form in ("json", "yaml", "csv", "table"):
        done = listed(published, "-f", form)
        assert (done.code, GPU in done.out) == (0, True)


def test_provider_show_finds_by_name_and_uuid(published: Program) -> None:
    by_name = inprocess.run(published, "provider", "show", "gpu-host-1", "-f", "json").json()

    by_uuid = inprocess.run(published, "provider", "show", by_name["uuid"], "-f", "json").json()

    assert by_uuid == by_name
    assert by_name["inventories"]["VCPU"]["reserved"] == 2
    assert by_name["aggregates"] == []


def test_provider_name_with_escape_sequences_is_escaped(
    published: Program, placement_service: EmbeddedPlacement
) -> None:
    client = WritingClient(placement_service.adapter)
    client.create_provider(str(uuid.uuid4()), "\x1b[31mevil\x1b[0m [red]x[/red] :bus:", None)

    for command in (("list",), ("list", "-f", "csv"), ("tree",)):
        printed = inprocess.run(published, "provider", *command).out
        assert "\x1b" not in printed
        assert "\\x1b[31mevil" in printed
        assert "[red]x[/red] :bus:" in printed
    assert "\x1b" not in inprocess.run(published, "provider", "show", "\x1b[31m").err


def test_provider_show_of_missing_provider_names_it(published: Program) -> None:
    for command in ("show", "tree"):
        for name in ("nobody", ""):
            done = inprocess.run(published, "provider", command, name)
            failed(
                done,
                f"200: there is no provider with the name or uuid '{name}'. "
                "List all with `wharfinger provider list`.",
            )


# Reservations and their holders.

GPU = "gpu-host-1_pci_0000_84_00_0"
LARGE = "gpu-host-1_pci_0000_c4_00_0"


def tree(program: Program, *arguments: str) -> Done:
    return inprocess.run(program, "provider", "tree", *arguments)


def reserve(program: Program, *arguments: str) -> None:
    done = inprocess.run(
        program, "provider", "reserve", GPU, "--reason", "disk is loud", *arguments
    )
    assert done.code == 0


def reports(kept: KeptInFile, provider: str, reason: str, seconds: float) -> None:
    """Record that the driver has given this reason for so many seconds."""
    [record] = [
        one for one in kept.rows("provider_records") if f'"{provider}"' in (one["applied"] or "")
    ]
    kept.write(
        "provider_records",
        {
            "reservations": json.dumps([reason]),
            "reserved_since": json.dumps({reason: now().timestamp() - seconds}),
        },
        id=record["id"],
    )


def fill(placement_service: EmbeddedPlacement, provider: str) -> str:
    """Reserve all inventories of a provider as another program; return the provider's uuid."""
    client = WritingClient(placement_service.adapter)
    [found] = client.list_providers(name=provider)
    live = client.get_inventories(found.uuid)
    full = {name: replace(one, reserved=one.total) for name, one in live.inventories.items()}
    client.set_inventories(found.uuid, live.resource_provider_generation, full)
    return found.uuid


def test_provider_tree_shows_holder_and_start_of_reservations(
    published: Program, kept: KeptInFile
) -> None:
    reserve(published, "--until", "2031-05-01T08:00")
    kept.write("reservations", {"since": datetime.now(UTC) - timedelta(hours=2, minutes=5)})
    reports(kept, GPU, "cleaning", 725)
    reports(kept, LARGE, "programming", 86500)

    drawn = tree(published)

    assert (drawn.code, drawn.err) == (0, "")
    assert drawn.out == (
        "gpu-host-1  OWNER_NOVA\n"
        f"├── {GPU}  OWNER_NOVA\n"
        "│   ├── reserved: disk is loud, 2h, until 2031-05-01T08:00:00+00:00 (operator)\n"
        "│   └── reserved: cleaning, 12m (driver gpus on gpu-host-1)\n"
        f"└── {LARGE}  OWNER_NOVA\n"
        "    └── reserved: programming, 1d (driver gpus on gpu-host-1)\n"
    )


def test_provider_tree_as_json_has_reservations(published: Program, kept: KeptInFile) -> None:
    reserve(published)
    since = kept.row("reservations")["since"].replace(tzinfo=UTC).isoformat()

    [root] = shown(published, "provider", "tree")

    reserved, free = root["children"]
    assert reserved["reservations"] == [
        {"reason": "disk is loud", "holder": "operator", "since": since, "expected_end": None}
    ]
    assert free["reservations"] == root["reservations"] == []
    assert "reserved_by_others" not in reserved
    kept.write("reservations", {"expected_end": datetime(2020, 1, 1)})
    assert "until 2020-01-01T00:00:00+00:00, overdue (operator)" in tree(published).out


def test_provider_tree_with_inventory_shows_foreign_reservations(
    published: Program, placement_service: EmbeddedPlacement
) -> None:
    uuid = fill(placement_service, LARGE)
    reserve(published)

    assert "by other programs" not in tree(published).out
    drawn = tree(published, "--inventory").out
    assert drawn.endswith(
        f"└── {LARGE}  OWNER_NOVA\n"
        "    ├── reserved by other programs: CUSTOM_VGPU_LARGE (to end this: "
        f"`wharfinger provider release {uuid} --foreign`)\n"
        "    └── CUSTOM_VGPU_LARGE 4  fully reserved\n"
    )
    assert drawn.count("by other programs") == 1
    [root] = tree(published, "--inventory", "-f", "json").json()
    assert [one["reserved_by_others"] for one in root["children"]] == [[], ["CUSTOM_VGPU_LARGE"]]


def test_reservation_released_only_in_the_database_is_not_foreign(
    published: Program, placement_service: EmbeddedPlacement, kept: KeptInFile
) -> None:
    reserve(published)
    assert inprocess.run(published, "sync").code == 0
    with kept.engine.begin() as connection:
        connection.exec_driver_sql("DELETE FROM reservations")

    drawn = tree(published, GPU, "--inventory").out

    assert "VGPU 8  fully reserved" in drawn
    assert "reserved:" not in drawn
    assert "by other programs" not in drawn


def test_provider_tree_reads_reservations_with_three_statements(
    published: Program, placement_service: EmbeddedPlacement, kept: KeptInFile
) -> None:
    def said() -> int:
        with statements() as executed:
            assert tree(published, "--inventory").code == 0
        return len([one for one in executed if " reservations" in one or "_records" in one])

    fill(placement_service, LARGE)
    few = said()
    client = WritingClient(placement_service.adapter)
    [gpu] = client.list_providers(name=GPU)
    figures = client.get_inventories(gpu.uuid).inventories
    for number in range(5):
        found = client.create_provider(str(uuid.uuid4()), f"more-{number}", None)
        client.set_inventories(found.uuid, found.generation, figures)
        fill(placement_service, f"more-{number}")

    assert few == said() == 3


def test_provider_tree_with_reservations_sends_no_additional_requests(
    published: Program, requests: Requests
) -> None:
    reserve(published)
    requests.clear()

    tree(published)

    assert requests.seen == [
        "GET /resource_providers",
        "GET /traits?name=startswith:OWNER_",
        "GET /traits?name=startswith:CUSTOM_OWNER_",
        *(one for one in requests.seen if one.startswith("GET /resource_providers?required=")),
    ]


def test_provider_tree_creates_no_database(
    program: Program, placement_service: EmbeddedPlacement
) -> None:
    publish_owners(WritingClient(placement_service.adapter))
    before = set(program.directory.iterdir())

    fill(placement_service, "n")
    drawn = tree(program, "--inventory")

    assert (drawn.code, drawn.err) == (0, "")
    assert "cn  OWNER_NOVA" in drawn.out
    assert drawn.out.count("reserved by other programs: ") == 1
    assert set(program.directory.iterdir()) == before


def test_provider_tree_without_a_database_is_drawn(published: Program) -> None:
    reserve(published)
    (published.directory / "wharfinger.sqlite").write_bytes(b"nonsense" * 1000)

    drawn = tree(published, "--inventory", "--usage")
    [root] = tree(published, "--inventory", "-f", "json").json()

    assert drawn.code == 0
    assert drawn.out == TREE.replace("VGPU 0/8", "VGPU 0/8  fully reserved")
    assert "so they are not shown: state in " in drawn.err
    assert "file is not a database" in drawn.err
    assert "Traceback" not in drawn.err
    assert not {"reservations", "reserved_by_others"} & root["children"][0].keys()


def test_provider_tree_with_damaged_rows_shows_question_marks(
    published: Program, placement_service: EmbeddedPlacement, kept: KeptInFile
) -> None:
    reserve(published)
    kept.write("reservations", {"reason": "", "holder": ""})
    fill(placement_service, LARGE)
    kept.write("provider_records", {"applied": "nonsense"})

    drawn = tree(published, "--inventory")

    assert drawn.code == 0
    assert "├── reserved: ?, " in drawn.out
    assert (
        "by other programs" not in drawn.out
    )  # the program does not know who has reserved the provider
    assert "the value of reservations.reason cannot be read" in drawn.err
    assert "is not used, since it is damaged" in drawn.err
    assert "Traceback" not in drawn.err


# Filters by traits.

OWNERS = [
    "GET /traits?name=startswith:OWNER_",
    "GET /traits?name=startswith:CUSTOM_OWNER_",
    "GET /resource_providers?required=CUSTOM_OWNER_ACME",
    "GET /resource_providers?required=OWNER_CYBORG",
    "GET /resource_providers?required=OWNER_NOVA",
]
CONDITIONS = {
    "": "a cn n s u y",
    "--required OWNER_NOVA": "cn n",
    "--required OWNER_NOVA,CUSTOM_FAST": "n",
    "--required OWNER_NOVA --required CUSTOM_FAST": "n",
    "--required OWNER_NOVA,!CUSTOM_FAST": "cn",
    "--required !OWNER_NOVA --required !OWNER_CYBORG": "a s u",
    "--required in:OWNER_CYBORG,CUSTOM_FAST": "n y",
    "--required in:OWNER_CYBORG,CUSTOM_FAST --required in:OWNER_NOVA,CUSTOM_OWNER_ACME": "n",
    "--required in:OWNER_CYBORG,CUSTOM_FAST --forbidden OWNER_NOVA": "y",
    "--forbidden OWNER_NOVA --forbidden OWNER_CYBORG": "a s u",
    "--required OWNER_NOVA,OWNER_CYBORG": "",
    "--owner OWNER_NOVA": "cn n",
    "--owner OWNER_NOVA --required CUSTOM_FAST": "n",
    "--owner OWNER_NOVA --forbidden CUSTOM_FAST": "cn",
    "--owner OWNER_NOVA --required OWNER_CYBORG": "",
}


def test_provider_list_filters_by_traits(hosts: Program) -> None:
    def names(conditions: str) -> str:
        done = listed(hosts, *conditions.split(), "-f", "json")
        assert (done.code, done.err) == (0, "")
        return " ".join(provider["Name"] for provider in done.json())

    assert {conditions: names(conditions) for conditions in CONDITIONS} == CONDITIONS


def test_provider_list_lets_placement_filter_by_traits(hosts: Program, requests: Requests) -> None:
    listed(hosts)
    assert requests.seen == ["GET /resource_providers", *OWNERS]
    requests.clear()

    listed(
        hosts,
        *("--owner", "OWNER_NOVA", "--forbidden", "CUSTOM_FAST"),
        *("--required", "in:OWNER_NOVA,OWNER_CYBORG"),
    )

    asked = "required=OWNER_NOVA,!CUSTOM_FAST&required=in:OWNER_CYBORG,OWNER_NOVA"
    assert requests.seen == [f"GET /resource_providers?{asked}", *OWNERS]


def test_provider_list_names_a_parent_outside_the_list(hosts: Program, requests: Requests) -> None:
    [gpu] = listed(hosts, "--owner", "OWNER_CYBORG", "-f", "json").json()

    assert (gpu["Name"], gpu["Parent"], gpu["Owner"]) == ("y", "cn", "OWNER_CYBORG")
    assert requests.seen == [
        "GET /resource_providers?required=OWNER_CYBORG",
        *OWNERS,
        "GET /resource_providers",
    ]


def test_provider_list_on_older_placement_refuses_only_alternative_traits(
    hosts: Program, requests: Requests, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.lower(monkeypatch, "1.38")

    done = listed(hosts, "--required", "in:OWNER_NOVA,OWNER_CYBORG", "--required", "CUSTOM_FAST")

    failed(done, "in:OWNER_CYBORG,OWNER_NOVA", "needs microversion 1.39, the server has 1.38")
    assert not requests
    for arguments, name in (
        (("--required", "OWNER_NOVA", "--required", "CUSTOM_FAST"), "n"),
        (("--owner", "OWNER_NOVA", "--forbidden", "CUSTOM_FAST"), "cn"),
        (("--required", "in:OWNER_CYBORG"), "y"),
    ):
        [provider] = shown(hosts, "provider", "list", *arguments)
        assert provider["Name"] == name


def test_provider_list_of_unknown_trait_fails_with_suggestion(hosts: Program) -> None:
    for option, trait, known in (
        ("--required", "CUSTOM_FATS", "CUSTOM_FAST?"),
        ("--required", "in:OWNER_NOVA,CUSTOM_FATS", "CUSTOM_FAST?"),
        ("--forbidden", "CUSTOM_FATS", "CUSTOM_FAST?"),
        ("--owner", "CUSTOM_OWNER_ACNE", "CUSTOM_OWNER_ACME?"),
    ):
        name = trait.rpartition(",")[2]
        failed(listed(hosts, option, trait), f"'{name}'", "does not know this trait", known)
