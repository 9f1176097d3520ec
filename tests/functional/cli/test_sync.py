"""``wharfinger sync`` and what it publishes, as an operator sees it."""

import sqlite3
from contextlib import closing
from pathlib import Path

from tests.lab.placement import Requests
from tests.lab.program import Program


def test_the_sample_host_is_published_with_an_owner_on_every_provider(program: Program) -> None:
    synced = program.run("sync")

    assert (synced.code, synced.err) == (0, "")
    listed = program.run("provider", "list", "-f", "json").json()
    assert {row["Name"] for row in listed} == {
        "gpu-host-1",
        "gpu-host-1_pci_0000_84_00_0",
        "gpu-host-1_pci_0000_c4_00_0",
    }
    assert {row["Owner"] for row in listed} == {"OWNER_NOVA"}


def test_a_fresh_process_on_an_unchanged_host_makes_one_request(
    program: Program, requests: Requests
) -> None:
    program.run("sync")
    requests.clear()

    again = program.run("sync")

    assert again.out == "gpus: no change\n"
    assert len(requests) == 1, requests.seen


def test_a_dry_run_prints_the_difference_and_writes_nothing(
    program: Program, requests: Requests
) -> None:
    first = program.run("sync", "--dry-run")

    assert first.code == 2
    assert "+ gpu-host-1_pci_0000_84_00_0 (" in first.out
    assert "    + OWNER_NOVA\n" in first.out
    assert "    + VGPU 8\n" in first.out
    assert not requests.writes
    program.run("sync")
    assert program.run("sync", "--dry-run").code == 0


def test_only_what_the_host_gained_is_written(program: Program) -> None:
    program.run("sync")
    program.has_host("host-grown.xml")

    steps = program.run("sync", "-f", "json").json()[0]["steps"]

    assert {step["name"] for step in steps} == {"gpu-host-1_pci_0000_c5_00_0"}
    assert [step["step"] for step in steps] == ["create", "set traits", "set inventories"]
    assert program.run("sync").out == "gpus: no change\n"


def test_a_connection_that_is_lost_fails_and_changes_nothing(
    program: Program, requests: Requests
) -> None:
    program.run("sync")
    requests.clear()
    (program.directory / "host.xml").unlink()

    failed = program.run("sync")

    assert failed.code == 1
    assert "gpus: " in failed.err
    assert "Traceback" not in failed.err
    assert not requests.writes


def test_one_instance_that_cannot_be_loaded_does_not_stop_the_others(program: Program) -> None:
    text = program.config.read_text()
    program.config.write_text(text.replace("= gpus\n", "= nonsense, gpus\n"))

    synced = program.run("sync")

    assert synced.code == 1
    assert "driver nonsense: entry point: found none in wharfinger.drivers" in synced.err
    assert "(libvirt)" in synced.err
    assert "gpus: 9 changes written" in synced.out
    assert program.run("sync", "--driver", "gpus").code == 0


def test_instances_are_synced_although_nobody_reads_what_is_printed(program: Program) -> None:
    text = program.config.read_text()
    more = text[text.index("[gpus]") :].replace("gpus", "more").replace("gpu-host-1", "gpu-host-2")
    program.config.write_text(text.replace("= gpus\n", "= gpus, more\n") + more)

    program.run_without_reader("sync")

    names = {row["Name"] for row in program.run("provider", "list", "-f", "json").json()}
    assert {"gpu-host-1", "gpu-host-2"} <= names


def test_a_lock_file_that_cannot_be_opened_is_told(program: Program) -> None:
    (program.directory / "gpus.lock").mkdir()

    failed = program.run("sync")

    assert failed.code == 1
    assert f"state in {program.directory / 'gpus.lock'}" in failed.err


def test_what_was_written_is_printed_although_its_service_cannot_be_read(
    program: Program,
) -> None:
    program.run("sync")
    database = sqlite3.connect(program.directory / "wharfinger.sqlite")
    with closing(database), database:
        assert database.execute("UPDATE services SET report_count = 'what'").rowcount
    program.has_host("host-grown.xml")

    synced = program.run("sync", "-f", "json")

    assert synced.code == 1
    [instance] = synced.json()
    assert instance["steps"]
    assert instance["problems"] == []
    assert "what is stored in services.report_count cannot be read" in synced.err
    assert "Traceback" not in synced.err


def test_a_database_that_cannot_be_opened_is_told_once(program: Program) -> None:
    file = program.directory / "wharfinger.sqlite"
    file.mkdir()

    in_text, as_json = program.run("sync"), program.run("sync", "-f", "json")

    assert in_text.code == as_json.code == 1
    assert in_text.out == ""
    assert in_text.err.count(str(file)) == 1
    [instance] = as_json.json()
    [problem] = instance["problems"]
    assert problem["kind"] == "StateError"
    assert str(file) in problem["message"]
    assert as_json.err == ""


def test_placement_that_does_not_answer_is_told_and_exits_with_1(tmp_path: Path) -> None:
    program = Program(tmp_path, "http://127.0.0.1:1")

    failed = program.run("sync")

    assert failed.code == 1
    assert "Placement: GET /: no answer" in failed.err
    assert "Traceback" not in failed.err


def test_the_embedded_placement_keeps_what_was_published(tmp_path: Path) -> None:
    program = Program(tmp_path)

    assert program.run("sync").code == 0
    assert program.run("sync").out == "gpus: no change\n"
    [root] = program.run("provider", "tree", "--inventory", "-f", "json").json()
    assert root["owners"] == ["OWNER_NOVA"]
    assert [child["inventories"]["VGPU"]["total"] for child in root["children"][:1]] == [8]
