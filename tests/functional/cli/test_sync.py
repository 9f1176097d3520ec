"""``wharfinger sync`` and its results, as an operator sees them."""

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.functional.cli.outcomes import failed, says, shown
from tests.lab import inprocess
from tests.lab.faults import FAULTS, Interceptor, Request
from tests.lab.objects import KeptInFile
from tests.lab.placement import Requests
from tests.lab.program import Program
from wharfinger.conformance.other_program_client import WritingClient
from wharfinger.placement.embedded import EmbeddedPlacement

GPU = "gpu-host-1_pci_0000_84_00_0"


def test_sync_publishes_the_host_and_later_only_changes(
    program: Program, requests: Requests
) -> None:
    first = inprocess.run(program, "sync", "--dry-run")
    assert first.code == 2
    says(first, f"+ {GPU} (", "    + OWNER_NOVA\n", "    + VGPU 8\n")
    assert not requests.writes

    synced = inprocess.run(program, "sync")
    assert (synced.code, synced.err) == (0, "")
    rows = shown(program, "provider", "list")
    assert {row["Name"]: row["Owner"] for row in rows} == dict.fromkeys(
        ["gpu-host-1", GPU, "gpu-host-1_pci_0000_c4_00_0"], "OWNER_NOVA"
    )
    assert inprocess.run(program, "sync", "--dry-run").code == 0

    program.has_host("host-grown.xml")
    [instance] = shown(program, "sync")
    assert {step["name"] for step in instance["steps"]} == {"gpu-host-1_pci_0000_c5_00_0"}
    assert [step["step"] for step in instance["steps"]] == [
        "create",
        "set traits",
        "set inventories",
    ]
    assert instance["foreign"] == []
    assert inprocess.run(program, "sync").out == "gpus: no change\n"


def test_new_process_on_unchanged_host_makes_one_request(
    program: Program, requests: Requests
) -> None:
    inprocess.run(program, "sync")
    requests.clear()

    again = program.run("sync")

    assert again.out == "gpus: no change\n"
    assert len(requests) == 1, requests.seen


def test_driver_without_connection_fails_and_changes_nothing(
    program: Program, requests: Requests
) -> None:
    inprocess.run(program, "sync")
    requests.clear()
    (program.directory / "host.xml").unlink()

    failed(inprocess.run(program, "sync"), "gpus: ")

    assert not requests.writes


def test_instance_that_cannot_be_loaded_does_not_stop_the_others(program: Program) -> None:
    text = program.config.read_text()
    program.config.write_text(text.replace("= gpus\n", "= nonsense, gpus\n"))

    synced = inprocess.run(program, "sync")

    assert synced.code == 1
    says(synced, "driver nonsense cannot be loaded: entry point: ", "cyborg", "ironic", "libvirt")
    says(synced, "correct the name or the option driver in the section of the instance")
    assert "gpus: 9 changes written" in synced.out
    assert inprocess.run(program, "sync", "--driver", "gpus").code == 0


def test_sync_whose_output_is_closed_syncs_all_instances(program: Program) -> None:
    text = program.config.read_text()
    more = text[text.index("[gpus]") :].replace("gpus", "more").replace("gpu-host-1", "gpu-host-2")
    program.config.write_text(text.replace("= gpus\n", "= gpus, more\n") + more)

    program.run_without_reader("sync")

    names = {row["Name"] for row in inprocess.run(program, "provider", "list", "-f", "json").json()}
    assert {"gpu-host-1", "gpu-host-2"} <= names


def test_unopenable_lock_file_fails_with_its_path(program: Program) -> None:
    (program.directory / "gpus.lock").mkdir()

    failed = inprocess.run(program, "sync")

    assert failed.code == 1
    assert f"state in {program.directory / 'gpus.lock'}" in failed.err


def test_sync_with_damaged_service_prints_what_was_written(
    program: Program,
) -> None:
    inprocess.run(program, "sync")
    database = sqlite3.connect(program.directory / "wharfinger.sqlite")
    with closing(database), database:
        assert database.execute("UPDATE services SET uuid = 'what'").rowcount
    program.has_host("host-grown.xml")

    synced = inprocess.run(program, "sync", "-f", "json")

    assert synced.code == 1
    [instance] = synced.json()
    assert instance["steps"]
    assert instance["problems"] == []
    assert "the value of services.uuid cannot be read" in synced.err
    assert "Traceback" not in synced.err


def test_unreadable_database_is_reported_once(program: Program) -> None:
    file = program.directory / "wharfinger.sqlite"
    file.mkdir()

    in_text, as_json = inprocess.run(program, "sync"), inprocess.run(program, "sync", "-f", "json")

    assert in_text.code == as_json.code == 1
    assert in_text.out == ""
    assert in_text.err.count(str(file)) == 1
    [instance] = as_json.json()
    [problem] = instance["problems"]
    assert problem["code"] == "StateError"
    assert str(file) in problem["message"]
    assert as_json.err == ""


def test_unreachable_placement_fails(tmp_path: Path) -> None:
    program = Program(tmp_path, "http://127.0.0.1:1")

    failed(inprocess.run(program, "sync"), "Placement: GET /: no answer")


# Foreign reservations.


def fill(placement_service: EmbeddedPlacement, name: str) -> str:
    """Reserve all inventories of a provider as another program; return the provider's uuid."""
    client = WritingClient(placement_service.adapter)
    [found] = client.list_providers(name=name)
    live = client.get_inventories(found.uuid)
    full = {name: replace(one, reserved=one.total) for name, one in live.inventories.items()}
    client.set_inventories(found.uuid, live.resource_provider_generation, full)
    return found.uuid


def test_foreign_reservation_is_printed_as_no_change(
    program: Program, requests: Requests, placement_service: EmbeddedPlacement
) -> None:
    device = GPU
    inprocess.run(program, "sync")
    uuid = fill(placement_service, device)
    requests.clear()

    dry, synced = (inprocess.run(program, "sync", *more) for more in (("--dry-run",), ()))
    as_json = inprocess.run(program, "sync", "-f", "json")

    told = (
        f"? {device}: VGPU is fully reserved by another program: kept. To end this: "
        f"`wharfinger provider release {uuid} --foreign`\ngpus: no change\n"
    )
    assert (dry.code, dry.out, dry.err) == (0, told, "")
    assert (synced.code, synced.out, synced.err) == (0, told, "")
    [instance] = as_json.json()
    assert instance["foreign"] == [{"uuid": uuid, "name": device, "classes": ["VGPU"]}]
    assert instance["steps"] == []
    assert as_json.code == 0
    assert not requests.writes


# Reports of the service.


def test_service_is_reported_up_before_the_first_request(
    tmp_path: Path, placement_service: EmbeddedPlacement
) -> None:
    seen: list[list[dict[str, Any]]] = []

    with Interceptor(placement_service.application) as placement:
        program = Program(tmp_path, placement.url)
        with KeptInFile(program.directory) as kept:

            def look(_request: Request) -> bool:
                seen.append(kept.rows("services"))
                return False

            placement.expect(look, FAULTS["503"])
            assert inprocess.run(program, "sync").code == 0

            [first] = seen[0]
            assert (first["host"], first["binary"]) == ("gpu-host-1", "wharfinger")
            assert first["last_seen_up"] is not None
            assert (first["owners"], first["version"]) == ("[]", 1)
            last = kept.row("services")
            assert (last["owners"], last["version"]) == ('["OWNER_NOVA"]', 2)


def test_dry_run_does_not_report_the_service_up(program: Program, kept: KeptInFile) -> None:
    assert inprocess.run(program, "sync", "--dry-run").code == 2
    assert kept.rows("services") == []


def on_another_host(program: Program, seconds: int | None = None) -> None:
    """Configure another host name; the driver reports the same node."""
    text = program.config.read_text().replace("host = gpu-host-1\nstate", "host = spare\nstate")
    if seconds is not None:
        text = text.replace("[DEFAULT]", f"[DEFAULT]\nservice_down_time = {seconds}")
    program.config.write_text(text)


@pytest.mark.parametrize(
    ("seconds", "hours", "taken_over"),
    [(None, 1, True), (None, 0, False), (7200, 1, False), (1800, 1, True)],
)
def test_nodes_of_a_down_host_are_taken_over_after_service_down_time(
    program: Program, kept: KeptInFile, seconds: int | None, hours: int, taken_over: bool
) -> None:
    inprocess.run(program, "sync")
    ago: Mapping[str, Any] = {"last_seen_up": datetime.now(UTC) - timedelta(hours=hours)}
    kept.write("services", ago, host="gpu-host-1")
    on_another_host(program, seconds)

    synced = inprocess.run(program, "sync")

    assert synced.code == (0 if taken_over else 1), synced.err
    host = "spare" if taken_over else "gpu-host-1"
    assert [row["host"] for row in kept.rows("compute_nodes")] == [host]
    assert ("is published by driver instance gpus on host gpu-host-1" in synced.err) != taken_over
