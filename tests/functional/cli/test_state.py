"""A state directory that is lost, damaged, full or locked: messages, and what stays unchanged."""

import os
import shutil
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests.functional.cli.outcomes import says
from tests.lab import inprocess
from tests.lab.cycles import contents
from tests.lab.limits import LimitedProgram
from tests.lab.placement import PlacementFixture, Requests
from tests.lab.program import Done, Program
from wharfinger.reconcile.driver_instance_lock import exclusive

NEW_DEVICE = "gpu-host-1_pci_0000_c5_00_0"


def apart(program: Program) -> Path:
    """Give the program its own state directory; return the path."""
    state = program.directory / "state"
    text = program.config.read_text()
    text = text.replace(f"state_path = {program.directory}", f"state_path = {state}")
    text = text.replace("$state_path", str(program.directory))
    program.config.write_text(f"{text.rstrip()}\n")
    return state


def failed_with(done: Done, *told: str) -> None:
    """Assert that the command exits with 1 and prints these texts, besides its result."""
    assert done.code == 1, done
    says(done, *told)


@pytest.fixture
def state(program: Program) -> Path:
    return apart(program)


@pytest.fixture
def grown(program: Program, state: Path) -> Program:
    """The program whose host has one more device, without a removal delay."""
    program.has_host("host-grown.xml")
    text = program.config.read_text()
    program.config.write_text(text.replace("= libvirt", "= libvirt\nremoval_delay = 0"))
    return program


@pytest.fixture
def synced(program: Program, state: Path) -> Program:
    """The program after a sync, whose host has got one more device since then."""
    assert inprocess.run(program, "sync").code == 0
    program.has_host("host-grown.xml")
    return program


# Lost state directories.


def test_sync_after_loss_of_state_changes_nothing_in_placement(
    grown: Program, state: Path, placement: PlacementFixture, requests: Requests
) -> None:
    inprocess.run(grown, "sync")
    before = contents(placement)
    shutil.rmtree(state)
    grown.has_host("host.xml")
    requests.clear()

    for _ in range(2):  # the provider that the driver does not report is reported and kept
        after = inprocess.run(grown, "sync")
        assert after.code == 0
        says(
            after,
            f"? {NEW_DEVICE} is absent: the provider has the instance trait of this driver",
            "not changed",
        )
    assert not requests.writes

    shutil.rmtree(state)
    grown.has_host("host-grown.xml")
    done = inprocess.run(grown, "sync")
    assert (done.code, done.out, done.err) == (0, "gpus: no change\n", "")
    assert not requests.writes
    assert contents(placement) == before

    grown.has_host("host.xml")  # a provider recorded again after the loss can be removed
    assert "removed when" in inprocess.run(grown, "sync").out
    assert NEW_DEVICE in contents(placement)
    assert f"- {NEW_DEVICE}" in inprocess.run(grown, "sync").out
    assert NEW_DEVICE not in contents(placement)


# Damaged databases.


def execute(database: Path, *statements: str) -> None:
    with closing(sqlite3.connect(database)) as connection, connection:
        for statement in statements:
            connection.execute(statement)


def test_newer_state_with_all_needed_columns_is_used(synced: Program, state: Path) -> None:
    database = state / "wharfinger.sqlite"
    execute(
        database,
        "UPDATE alembic_version SET version_num = '9999'",
        "ALTER TABLE provider_records ADD COLUMN more TEXT DEFAULT 'kept'",
        "UPDATE provider_records SET more = 'mine'",
    )

    assert "changes written" in inprocess.run(synced, "sync").out
    assert inprocess.run(synced, "sync").out == "gpus: no change\n"
    with closing(sqlite3.connect(database)) as connection:
        rows = connection.execute("SELECT more, count(*) FROM provider_records GROUP BY more")
        assert dict(rows.fetchall()) == {"mine": 3, "kept": 1}
        [[version]] = connection.execute("SELECT version_num FROM alembic_version")
        assert version == "9999"


def test_newer_state_without_a_needed_column_fails_and_is_kept(
    synced: Program, state: Path, requests: Requests
) -> None:
    database = state / "wharfinger.sqlite"
    execute(
        database,
        "UPDATE alembic_version SET version_num = '9999'",
        "ALTER TABLE provider_records RENAME COLUMN live TO seen",
    )
    before = database.read_bytes()
    requests.clear()

    for arguments in (("sync",), ("sync", "--dry-run")):
        failed_with(
            inprocess.run(synced, *arguments),
            f"state in {database}: ",
            "newer release",
            "Run that release",
        )
    assert not requests.seen
    assert database.read_bytes() == before


def garbage(database: Path) -> None:
    database.write_bytes(b"what is this? " * 1000)


def garbage_behind_the_header(database: Path) -> None:
    content = database.read_bytes()
    database.write_bytes(content[:100] + b"\xa5" * (len(content) - 100))


@pytest.mark.parametrize("spoil", [garbage, garbage_behind_the_header])
def test_damaged_state_fails_and_is_kept(
    synced: Program, state: Path, requests: Requests, spoil: Callable[[Path], None]
) -> None:
    database = state / "wharfinger.sqlite"
    spoil(database)
    before = database.read_bytes()
    requests.clear()

    failed = inprocess.run(synced, "sync")

    failed_with(failed, "wharfinger.sqlite", "backup", "move this one file away")
    assert not requests.writes
    assert database.read_bytes() == before
    database.rename(state / "spoilt")
    assert inprocess.run(synced, "sync").code == 0


def test_damaged_record_is_reported_and_its_tree_kept(
    synced: Program, state: Path, requests: Requests
) -> None:
    database = state / "wharfinger.sqlite"
    execute(database, "UPDATE provider_records SET live = x'a5'")
    requests.clear()

    failed_with(
        inprocess.run(synced, "sync"),
        "provider_records",
        "backup",
        "The provider's tree stays as it is, if the tree is known",
    )
    assert not requests.writes
    execute(database, "DELETE FROM provider_records")
    assert inprocess.run(synced, "sync").code == 0


# Full disks, and paths that are no directory.


@pytest.fixture
def limited(tmp_path: Path, placement_url: tuple[str, Requests]) -> LimitedProgram:
    return LimitedProgram(tmp_path, placement_url[0])


def test_full_disk_is_reported_and_nothing_is_published(
    limited: LimitedProgram, placement: PlacementFixture, requests: Requests
) -> None:
    state = apart(limited)
    full = (f"state in {state / 'wharfinger.sqlite'}: ", "and the free space")
    limited.file_size = 4096

    failed_with(limited.run("sync"), *full)
    assert not requests.writes
    limited.file_size = None
    assert "9 changes written" in inprocess.run(limited, "sync").out

    before = contents(placement)
    limited.has_host("host-grown.xml")
    limited.file_size = 16384
    requests.clear()

    failed_with(limited.run("sync"), *full)
    assert not requests.writes
    assert contents(placement) == before
    assert inprocess.run(limited, "sync").code == 0
    after = contents(placement)
    assert after.pop(NEW_DEVICE)["inventories"] == {"VGPU": (8, 0)}
    assert after == before


def test_embedded_placement_on_a_full_disk_keeps_published_providers(
    tmp_path: Path,
) -> None:
    """Each command runs in a process, because a process can have one embedded Placement."""
    program = LimitedProgram(tmp_path)
    file = str(tmp_path / "placement.sqlite")

    program.file_size = 65536  # too small for the tables of Placement
    failed_with(
        program.run("sync"),
        f"[placement] embedded_database = {file}",
        "Check that the file can be written, or name another file.",
    )
    program.file_size = None
    assert "9 changes written" in program.run("sync").out

    program.has_host("host-grown.xml")
    program.file_size = 33_000  # large enough to start, too small for all writes
    failed_with(program.run("sync"), file)
    program.file_size = None
    assert program.run("sync").code == 0
    [root] = program.run("provider", "tree", "--inventory", "--traits", "-f", "json").json()
    assert root["owners"] == ["OWNER_NOVA"]
    children = {child["name"]: child for child in root["children"]}
    assert len(children) == 3
    assert children[NEW_DEVICE]["inventories"]["VGPU"]["total"] == 8
    assert "OWNER_NOVA" in children[NEW_DEVICE]["traits"]


@pytest.mark.parametrize("below", ["", "below"])
def test_file_in_place_of_state_directory_fails_and_is_kept(
    program: Program, state: Path, requests: Requests, below: str
) -> None:
    program.config.write_text(
        program.config.read_text().replace(f"state_path = {state}", f"state_path = {state / below}")
    )
    state.write_text("mine")

    failed_with(inprocess.run(program, "sync"), f"state in {state / below / 'wharfinger.sqlite'}: ")
    assert not requests.seen
    assert state.read_text() == "mine"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_read_only_state_directory_fails(program: Program, state: Path, requests: Requests) -> None:
    state.mkdir(mode=0o500)

    failed_with(
        inprocess.run(program, "sync"),
        f"state in {state / 'wharfinger.sqlite'}: ",
        "this user may write to the file",
    )
    assert not requests.seen


# Locked instances.


@contextmanager
def started(program: Program, *arguments: str) -> Iterator["subprocess.Popen[str]"]:
    """Start the program in a process, and kill it at the end of the block."""
    wharfinger = str(Path(sys.executable).with_name("wharfinger"))
    with subprocess.Popen(
        [wharfinger, "--config-file", str(program.config), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=program.directory,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def test_sync_of_locked_instance_is_refused(
    synced: Program, state: Path, requests: Requests
) -> None:
    requests.clear()
    with exclusive(state, "gpus"):
        refused = inprocess.run(synced, "sync")
        beside = inprocess.run(synced, "sync", "--dry-run")

    failed_with(
        refused,
        f"state in {state / 'gpus.lock'}: process {os.getpid()} is at work on driver instance gpus",
        "Wait until that process has finished. If the process is the agent, stop the agent.",
    )
    assert not requests.writes
    assert beside.code == 2
    assert inprocess.run(synced, "sync").code == 0


def test_killed_process_leaves_no_lock(synced: Program, state: Path, requests: Requests) -> None:
    requests.clear()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        stuck = Program(synced.directory / "state", url)
        silent.settimeout(60)
        with started(stuck, "sync") as holder:
            # The program has sent a request to Placement, and gets no answer.
            connection, _ = silent.accept()
            with connection:
                refused = inprocess.run(synced, "sync")
                holder.kill()
                assert holder.wait() == -9

    failed_with(refused, f"process {holder.pid} is at work on driver instance gpus")
    assert not requests.writes
    assert inprocess.run(synced, "sync").code == 0


def test_two_instances_share_one_embedded_placement_at_the_same_time(tmp_path: Path) -> None:
    program = Program(tmp_path)
    text = program.config.read_text()
    more = text[text.index("[gpus]") :].replace("gpus", "more").replace("gpu-host-1", "gpu-host-2")
    program.config.write_text(text.replace("= gpus\n", "= gpus, more\n") + more)

    with (
        started(program, "sync", "--driver", "gpus") as one,
        started(program, "sync", "--driver", "more") as other,
    ):
        told = {process: process.communicate() for process in (one, other)}

    for process, (out, err) in told.items():
        assert (process.returncode, err) == (0, "")
        assert "9 changes written" in out
    assert program.run("sync").out == "gpus: no change\nmore: no change\n"
