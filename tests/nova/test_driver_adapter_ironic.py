"""nova's IronicDriver in the nova driver, compared with the ironic driver, on one real Ironic.

Both publish the same, except for the differences listed in docs/reference/nova-drivers.rst.
"""

import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.lab.bare_metal import GOLD, with_template
from tests.lab.nova_program import HOST, INSTANCE, NovaProgram
from wharfinger_harnesses.ironic import Ironic
from wharfinger_ironic.states import PROVISION_STATES

pytest.importorskip("nova", reason="only the tox environment nova has nova")

Nodes = Callable[..., str]
FREE, RESERVED = {GOLD: (1, 0)}, {GOLD: (1, 1)}
NOWHERE = "http://127.0.0.1:9"
#: Traits that nova-compute and the nova driver add to each root.
CAPABILITIES = {
    "COMPUTE_IMAGE_TYPE_AMI",
    "COMPUTE_IMAGE_TYPE_QCOW2",
    "COMPUTE_IMAGE_TYPE_RAW",
    "COMPUTE_NET_ATTACH_INTERFACE",
}


@pytest.fixture(scope="module")
def ironic() -> Iterator[Ironic]:
    with Ironic() as ironic:
        yield with_template(ironic)


@dataclass
class Both:
    """Two programs on one Ironic: with nova's IronicDriver, and with the ironic driver."""

    novas: NovaProgram
    own: NovaProgram
    ironic: Ironic

    def sync(self) -> None:
        self.novas.sync()
        self.own.sync()

    def published(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return what each program has published, by node."""
        return self.novas.published(), self.own.published()

    def has_endpoint(self, url: str) -> None:
        """Configure this URL of Ironic for nova."""
        self.novas.configure(
            "compute_driver = ironic.IronicDriver\n"
            f"[database]\nconnection = sqlite:///{self.novas.directory / 'nova.sqlite'}\n"
            f"[ironic]\nauth_type = none\nendpoint_override = {url}"
        )

    def create_instance(self) -> str:
        """Create an instance on the host in nova's database; return its uuid."""
        uuid = str(uuid4())
        with sqlite3.connect(self.novas.directory / "nova.sqlite") as database:
            database.execute(
                "INSERT INTO instances (uuid, host, deleted) VALUES (?, ?, 0)", (uuid, HOST)
            )
        database.close()
        return uuid


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create an empty nova database with nova's own command; return its path."""
    directory = tmp_path_factory.mktemp("nova")
    path = directory / "nova.sqlite"
    config = directory / "nova.conf"
    config.write_text(f"[database]\nconnection = sqlite:///{path}\n")
    command = "import sys; from nova.cmd.manage import main; sys.exit(main())"
    subprocess.run(
        [
            *(sys.executable, "-W", "ignore", "-c", command),
            *("--config-file", str(config), "db", "sync", "--local_cell"),
        ],
        check=True,
        capture_output=True,
        env={**os.environ, "OS_NOVA_DISABLE_EVENTLET_PATCHING": "false"},
    )
    return path


@pytest.fixture
def both(ironic: Ironic, database: Path) -> Iterator[Both]:
    """Two programs that have published nothing; the test's nodes are deleted afterwards."""
    template = ironic.rows.read()
    assert template is not None
    own = NovaProgram(driver="ironic", options=f"auth_type = none\nendpoint = {ironic.url}\n")
    with NovaProgram() as novas, own:
        shutil.copy(database, novas.directory)
        both = Both(novas, own, ironic)
        both.has_endpoint(ironic.url)
        yield both
    ironic.rows.clear()
    ironic.rows.write(template, [{}])


@pytest.fixture
def nodes(both: Both) -> Nodes:
    """A function that creates a node, which is available except for these columns."""

    def make(**columns: Any) -> str:
        [node] = both.ironic.insert_nodes(1, **columns)
        return node

    return make


def alike(published: dict[str, Any]) -> dict[str, Any]:
    """Return the published contents without the traits in which the two programs differ."""
    marks = CAPABILITIES | {f"CUSTOM_WHARFINGER_{INSTANCE.upper()}"}
    return {name: one | {"traits": one["traits"] - marks} for name, one in published.items()}


def test_nodes_in_every_state_are_published_alike(both: Both, nodes: Nodes) -> None:
    states = {nodes(provision_state=state): state for state in PROVISION_STATES}
    maintenance, unpowered = nodes(maintenance=True), nodes(power_state=None)

    both.sync()

    novas, own = both.published()
    assert alike(novas) == alike(own)
    assert novas.keys() > {*states, maintenance, unpowered}
    free = {name for name, one in novas.items() if one["inventories"] == FREE}
    assert free & states.keys() == {name for name in states if states[name] == "available"}
    assert not free & {maintenance, unpowered}
    assert novas[maintenance]["traits"] == own[maintenance]["traits"] | CAPABILITIES
    assert both.novas.sync() == f"{INSTANCE}: no change\n"


def test_node_in_use_by_an_instance_of_nova_is_reserved_by_both(both: Both, nodes: Nodes) -> None:
    node = nodes(instance_uuid=both.create_instance(), provision_state="active")

    both.sync()

    novas, own = both.published()
    assert alike(novas) == alike(own)
    assert novas[node]["inventories"] == RESERVED


def test_node_in_use_by_an_instance_unknown_to_nova_is_published_by_the_ironic_driver_alone(
    both: Both, nodes: Nodes
) -> None:
    node = nodes(instance_uuid=str(uuid4()), provision_state="active")

    both.sync()

    novas, own = both.published()
    assert node not in novas
    assert own[node]["inventories"] == RESERVED


@pytest.mark.parametrize("columns", [{"retired": True}, {"fault": "power failure"}], ids=str)
def test_retired_node_and_fault_are_reserved_by_the_ironic_driver_alone(
    both: Both, nodes: Nodes, columns: dict[str, Any]
) -> None:
    node = nodes(**columns)

    both.sync()

    novas, own = both.published()
    assert (novas[node]["inventories"], own[node]["inventories"]) == (FREE, RESERVED)


def test_node_without_a_resource_class_is_reported_by_both(both: Both, nodes: Nodes) -> None:
    node, other = nodes(resource_class=None), nodes()

    novas, own = both.novas.run("sync"), both.own.run("sync")

    assert (novas.code, own.code) == (1, 1)
    assert f"NoResourceClass: Resource class not found for Ironic node {node}" in novas.err
    assert node in own.err
    assert all(node not in one and other in one for one in both.published())


def test_node_that_is_deleted_in_ironic_is_removed_by_both(both: Both, nodes: Nodes) -> None:
    node, other = nodes(), nodes()
    both.sync()
    assert all(node in one for one in both.published())

    both.ironic.delete_node(node)
    for _ in range(2):  # a node is removed when two listings lack it
        for program in (both.novas, both.own):
            program.run("sync")

    assert all(node not in one and other in one for one in both.published())


def test_node_that_becomes_in_use_elsewhere_stays_with_the_nova_driver(
    both: Both, nodes: Nodes
) -> None:
    node = nodes()
    both.novas.sync()

    both.ironic.update_node(node, instance_uuid=str(uuid4()))
    reports = [both.novas.run("sync") for _ in range(2)]

    assert f"? {node} is absent: kept: the driver's list lacks this provider" in reports[-1].out
    assert "Find out why the listing is partial" in reports[-1].err
    assert both.novas.published()[node]["inventories"] == FREE


def test_ironic_that_is_away_leaves_what_is_published(both: Both, nodes: Nodes) -> None:
    nodes()
    both.novas.sync()
    before = both.novas.published()

    both.has_endpoint(NOWHERE)
    error = both.novas.fails()

    assert "VirtDriverNotReady" in error
    assert both.novas.published() == before
