"""The embedded Placement: one in a process, safe for several writers, with clear errors."""

import sqlite3
import subprocess
import sys
import textwrap
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from placement.objects import reshaper
from sqlalchemy.exc import OperationalError

from tests.lab.cycles import allocate
from tests.lab.placement import PlacementFixture
from wharfinger.exceptions import ConfigurationError, StateError
from wharfinger.placement.embedded import EmbeddedPlacement
from wharfinger.providers import Inventory


def test_second_embedded_placement_in_a_process_is_refused(
    placement_service: EmbeddedPlacement, tmp_path: Path
) -> None:
    with pytest.raises(
        ConfigurationError, match="this process already has an embedded Placement on"
    ):
        EmbeddedPlacement(tmp_path / "second.sqlite")

    assert not (tmp_path / "second.sqlite").exists()


def test_eight_threads_write_at_once(placement: PlacementFixture) -> None:
    client = placement.client

    def write(number: int) -> int:
        made = client.create_provider(str(uuid.uuid4()), f"node-{number}", None)
        generation = client.set_traits(made.uuid, made.generation, ["OWNER_NOVA"])
        return client.set_inventories(made.uuid, generation, {"VCPU": Inventory(total=8)})

    with ThreadPoolExecutor(8) as pool:
        generations = list(pool.map(write, range(40)))

    assert generations == [2] * 40
    assert len(client.list_providers(required=("OWNER_NOVA",))) == 40


def test_processes_that_start_together_share_one_database(tmp_path: Path) -> None:
    program = """
        import sys, uuid
        from pathlib import Path
        from wharfinger.conformance.other_program_client import WritingClient
        from wharfinger.placement.embedded import EmbeddedPlacement
        client = WritingClient(EmbeddedPlacement(Path(sys.argv[1])).adapter)
        for number in range(10):
            client.create_provider(str(uuid.uuid4()), f"{sys.argv[2]}-{number}", None)
        print(len(client.list_providers()))
    """
    processes = [
        _start(program, str(tmp_path / "placement.sqlite"), f"process-{number}")
        for number in range(2)
    ]

    answers = [process.communicate() for process in processes]

    assert [process.returncode for process in processes] == [0, 0], answers
    assert max(int(out) for out, _ in answers) == 20


def test_embedded_placement_without_its_extra_or_with_an_unusable_file_names_the_remedy(
    tmp_path: Path,
) -> None:
    program = """
        import sys
        from pathlib import Path
        from wharfinger.exceptions import ConfigurationError
        from wharfinger.placement.embedded import EmbeddedPlacement
        sys.modules["routes"] = None  # a dependency of openstack-placement
        for _ in range(2):
            try:
                EmbeddedPlacement(Path(sys.argv[1]))
            except ConfigurationError as error:
                print(error)
            sys.modules.pop("routes", None)
    """
    broken = tmp_path / "placement.sqlite"
    broken.write_text("this is no database, and never was" * 100)

    out, err = _start(program, str(broken)).communicate()

    extra, file = out.splitlines()
    assert "pip install 'wharfinger[embedded]'" in extra, err
    assert f"[placement] embedded_database = {broken}" in file, err


def test_error_of_the_embedded_database_names_the_file_and_the_fault(
    placement: PlacementFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = placement.client.create_provider(str(uuid.uuid4()), "cn", None)

    def fail(*_: object) -> None:
        raise OperationalError("UPDATE", {}, sqlite3.OperationalError("disk I/O error"))

    monkeypatch.setattr(reshaper, "reshape", fail)
    with pytest.raises(StateError) as caught:
        placement.client.reshape({root.uuid: (0, {"VGPU": Inventory(total=8)})}, {})

    assert caught.value.problem.endswith("disk I/O error.")
    assert Path(caught.value.path).is_file()


def _start(program: str, *arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_placement_that_reads_beside_its_own_transaction_does_not_deadlock(
    placement: PlacementFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, consumer = placement.client, str(uuid.uuid4())
    root, gpu = (client.create_provider(str(uuid.uuid4()), name, None) for name in ("cn", "gpu"))
    generations = {
        one.uuid: client.set_inventories(one.uuid, one.generation, {"VGPU": Inventory(total=4)})
        for one in (root, gpu)
    }
    allocate(placement, consumer, cn={"VGPU": 1})
    generations[root.uuid] += 1
    reshape = reshaper.reshape

    def reshape_late(*arguments: object) -> None:
        # Another client changes a provider that is only in the allocations, so Placement
        # reads it again.
        client.set_traits(root.uuid, generations[root.uuid], ["HW_GPU_API_VULKAN"])
        reshape(*arguments)

    monkeypatch.setattr(reshaper, "reshape", reshape_late)

    client.reshape(
        {gpu.uuid: (generations[gpu.uuid], {"VGPU": Inventory(total=8)})},
        {consumer: client.get_allocations(consumer)},
    )

    assert client.get_inventories(gpu.uuid).inventories["VGPU"].total == 8
    assert client.get_usages(root.uuid) == {"VGPU": 1}
