"""The nova driver with compute drivers of nova 34: real commands, on the real Placement."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.lab.nova_program import HOST, INSTANCE, NovaProgram

pytest.importorskip("nova", reason="only the tox environment nova has nova")

REPOSITORY = Path(__file__).resolve().parents[2]
NO_CHANGE = f"{INSTANCE}: no change\n"
OURS = {"OWNER_NOVA", "CUSTOM_WHARFINGER_COMPUTE"}
LAB = "tests.lab.nova_drivers"
COMPUTE_ID = "0c1c5a4e-0a3b-4f6c-9a0e-6f7c3c1c2d10"


class Started:
    """Starts programs that end with the test."""

    def __init__(self, fixtures: ExitStack) -> None:
        self._fixtures = fixtures

    def __call__(self, compute_driver: str = "", nova_options: str = "") -> NovaProgram:
        return self._fixtures.enter_context(NovaProgram(compute_driver, nova_options))


@pytest.fixture
def start() -> Iterator[Started]:
    with ExitStack() as fixtures:
        yield Started(fixtures)


# nova's own fake drivers.


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The trees that nova and the nova driver publish for each fake driver of nova."""
    command = [sys.executable, "-W", "ignore", "-m", "tests.lab.nova_trees"]
    done = subprocess.run(
        [*command, str(tmp_path_factory.mktemp("trees"))],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
    )
    return json.loads(done.stdout)


def test_tree_of_each_fake_driver_equals_that_of_nova(compared: Any) -> None:
    trees = compared["trees"]
    assert len(trees) > 20
    assert len({str(each["nova"]) for each in trees.values()}) > 3
    assert {name: each["ours"] for name, each in trees.items()} == {
        name: each["nova"] for name, each in trees.items()
    }


def test_loading_of_nova_patches_nothing_in_the_process(compared: Any) -> None:
    assert compared["patched"] is False


@pytest.mark.parametrize(
    ("compute_driver", "vcpus", "memory_mb"),
    [("FakeDriver", 1000, 800000), ("PowerUpdateFakeDriver", 2, 8192)],
)
def test_sync_with_a_fake_driver_publishes_its_node(
    start: Started, compute_driver: str, vcpus: int, memory_mb: int
) -> None:
    program = start(f"fake.{compute_driver}")

    program.sync()

    published = program.published()
    assert published.keys() == {HOST}
    assert published[HOST]["inventories"]["VCPU"] == (vcpus, 0)
    assert published[HOST]["inventories"]["MEMORY_MB"] == (memory_mb, 512)
    assert published[HOST]["traits"] > OURS | {"COMPUTE_TRUSTED_CERTS"}
    assert "COMPUTE_REMOTE_MANAGED_PORTS" not in published[HOST]["traits"]
    shown = program.show("node", "show", HOST)
    assert (shown["vcpus"], shown["memory_mb"]) == (vcpus, memory_mb)


def test_sync_with_a_nested_driver_publishes_the_child_and_changes_nothing_afterwards(
    start: Started,
) -> None:
    program = start("fake.FakeLiveMigrateDriverWithNestedCustomResources")

    program.sync()

    child = program.published()[f"{HOST}-child"]
    assert child["parent"] == HOST
    assert child["inventories"] == {"CUSTOM_MAGIC": (10, 0)}
    assert child["traits"] == OURS
    assert program.sync() == NO_CHANGE


def test_options_of_nova_config_apply_to_the_driver(start: Started) -> None:
    program = start(
        "", "compute_driver = fake.MediumFakeDriver\nreserved_host_cpus = 3\nhost = another"
    )

    program.sync()

    assert program.published()[HOST]["inventories"]["VCPU"] == (10, 3)


def test_node_uuid_is_that_of_the_file_compute_id(start: Started) -> None:
    program = start("fake.FakeDriverWithoutFakeNodes")
    (program.directory / "compute_id").write_text(COMPUTE_ID)

    program.sync()

    assert program.published()[HOST]["uuid"] == COMPUTE_ID


# Reshapes.


def test_reshape_moves_the_allocations_of_an_instance(start: Started) -> None:
    program = start(f"{LAB}.NumaDriver")
    program.sync()
    wanted = [f"resources:{what}" for what in ("VCPU=2", "MEMORY_MB=2048", "DISK_GB=5")]
    properties = [part for one in wanted for part in ("--property", one)]
    program.do("flavor", "create", *properties, "small")
    instance = program.show("instance", "claim", "--flavor", "small")["uuid"]
    assert program.published()[HOST]["allocations"] == {
        (instance, "VCPU"): 2,
        (instance, "MEMORY_MB"): 2048,
        (instance, "DISK_GB"): 5,
    }

    program.configure("[lab]\nhas_numa = true")
    program.sync()

    published = program.published()
    assert published[HOST]["inventories"] == {}
    assert {name: one["allocations"] for name, one in published.items() if one["allocations"]} == {
        "numa1": {(instance, "VCPU"): 2},
        "numa2": {(instance, "MEMORY_MB"): 2048},
        "ssp": {(instance, "DISK_GB"): 5},
    }
    assert published["pf2"]["parent"] == "numa2"
    assert published["pf2"]["inventories"] == {"SRIOV_NET_VF": (2, 0)}
    assert published["ssp"]["aggregates"] == published[HOST]["aggregates"] != set()
    assert program.sync() == NO_CHANGE


# Compute drivers that are not part of nova.


def test_driver_with_get_inventory_alone_is_published_under_the_uuid_of_the_host(
    start: Started,
) -> None:
    program = start(f"{LAB}.OldDriver")
    (program.directory / "compute_id").write_text(COMPUTE_ID)

    program.sync()

    published = program.published()[HOST]
    assert published["inventories"] == {"CUSTOM_MAGIC": (4, 0)}
    assert published["uuid"] == COMPUTE_ID


def test_driver_that_describes_no_inventory_is_reported(start: Started) -> None:
    program = start(f"{LAB}.EmptyDriver")

    error = program.fails()

    assert "EmptyDriver has neither update_provider_tree nor get_inventory" in error
    assert program.published() == {}


def test_driver_whose_backend_is_away_leaves_what_is_published(start: Started) -> None:
    program = start("fake.MediumFakeDriver")
    program.sync()
    before = program.published()

    config = program.directory / "wharfinger.conf"
    config.write_text(config.read_text().replace("fake.MediumFakeDriver", f"{LAB}.AwayDriver"))
    error = program.fails()

    assert f"driver {INSTANCE}: get_available_nodes failed: VirtDriverNotReady" in error
    assert program.published() == before


def test_driver_that_calls_nova_compute_is_refused(start: Started) -> None:
    error = start(f"{LAB}.CallingDriver").fails()

    assert "init_host failed" in error
    assert "NotImplementedError" in error


# Configuration.


@pytest.mark.parametrize(
    ("compute_driver", "problem"),
    [
        ("fake.NoDriver", "it cannot be imported"),
        ("no_such_module.Driver", "it cannot be imported"),
        ("fake.Resources", "it is not a nova.virt.driver.ComputeDriver"),
        ("", "no compute driver is set"),
    ],
)
def test_wrong_compute_driver_is_an_error_of_the_configuration(
    start: Started, compute_driver: str, problem: str
) -> None:
    error = start(compute_driver).fails()

    assert f"[{INSTANCE}] compute_driver = {compute_driver}: {problem}" in error


def test_missing_file_of_nova_is_an_error_of_the_configuration(start: Started) -> None:
    program = start("fake.FakeDriver")
    program.nova_config.unlink()

    error = program.fails()

    assert (
        f"[{INSTANCE}] nova_config = {program.nova_config}: nova cannot read these files" in error
    )


def test_second_configuration_of_nova_in_a_process_is_refused(start: Started) -> None:
    program = start()
    other = program.directory / "other.conf"
    other.write_text("[DEFAULT]\n")
    program.write(
        f"[one]\ndriver = nova\ncompute_driver = fake.MediumFakeDriver\n"
        f"nova_config = {program.nova_config}\n"
        f"[two]\ndriver = nova\ncompute_driver = fake.FakeDriver\nnova_config = {other}\n",
        "one, two",
    )

    done = program.run("sync")

    assert done.code == 1
    assert f"[two] nova_config = {other}: nova's configuration is global to a process" in done.err
    assert program.published()[HOST]["inventories"]["VCPU"] == (10, 0)


def test_process_that_has_chosen_eventlet_is_refused(start: Started) -> None:
    program = start("fake.FakeDriver")
    script = (
        "import sys; from oslo_service import backend; "
        "backend.init_backend(backend.BackendType.EVENTLET); "
        "from wharfinger.cli.entry_point import main; sys.exit(main())"
    )

    done = subprocess.run(
        [
            *(sys.executable, "-W", "ignore", "-c", script),
            *("--config-file", str(program.directory / "wharfinger.conf"), "sync"),
        ],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 1
    assert (
        f"driver {INSTANCE}: loading nova failed: nova has to run in native threads" in done.stderr
    )


# nova's database.


def test_driver_that_needs_a_database_is_refused_without_one(start: Started) -> None:
    error = start("ironic.IronicDriver").fails()

    assert "ServiceList.get_all_computes_by_hv_type" in error
    assert "set [DEFAULT] transport_url for nova's conductor, or [database] connection" in error


def test_objects_of_nova_are_read_through_its_conductor_if_a_message_bus_is_configured(
    start: Started,
) -> None:
    program = start("ironic.IronicDriver", "transport_url = fake:/\nrpc_response_timeout = 1")

    error = program.fails()

    assert "MessagingTimeout: No reply on topic conductor" in error
