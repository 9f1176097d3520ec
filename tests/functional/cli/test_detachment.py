"""``wharfinger provider detach``."""

import pytest

from tests.functional.cli.outcomes import failed, shown
from tests.lab import inprocess
from tests.lab.program import Program
from wharfinger.conformance.other_program_client import WritingClient
from wharfinger.placement.embedded import EmbeddedPlacement

GPU = "gpu-host-1_pci_0000_84_00_0"
ROOT = "gpu-host-1"
CONSUMER = "7a6f4f6e-6b4c-4d0e-9b1a-3f1d2c5b8e70"


@pytest.fixture
def published(program: Program) -> Program:
    """The program after a sync, with its sample host in Placement."""
    assert inprocess.run(program, "sync").code == 0
    return program


def test_detach_of_a_child_prints_its_root_and_its_state(published: Program) -> None:
    uuids = {one["Name"]: one["UUID"] for one in shown(published, "provider", "list")}

    done = inprocess.run(published, "provider", "detach", GPU)

    assert (done.code, done.err) == (0, "")
    assert done.out == (
        f"{GPU} ({uuids[GPU]}): detached from {ROOT} ({uuids[ROOT]}), and fully reserved until a "
        f"sync sees a new root {ROOT}\n"
    )
    parents = {one["Name"]: one["Parent"] for one in shown(published, "provider", "list")}
    assert parents[GPU] == ""
    [held] = shown(published, "reservation", "list")
    assert held["Holder"] == f"detached from {ROOT} ({uuids[ROOT]})"
    assert held["Reason"] == "it waits for a new root"


def test_detach_of_a_root_is_refused(published: Program) -> None:
    before = shown(published, "provider", "list")

    failed(inprocess.run(published, "provider", "detach", ROOT), "it is a root provider already")

    assert shown(published, "provider", "list") == before


def test_show_of_a_child_with_allocations_names_the_root_that_cannot_be_deleted(
    published: Program, placement_service: EmbeddedPlacement
) -> None:
    def blocks(name: str) -> str | None:
        found: str | None = shown(published, "provider", "show", name)["blocks_deletion_of"]
        return found

    uuids = {one["Name"]: one["UUID"] for one in shown(published, "provider", "list")}
    assert blocks(GPU) is None
    allocation = {
        "allocations": {
            uuids[GPU]: {"resources": {"VGPU": 1}},
            uuids[ROOT]: {"resources": {"VCPU": 1}},
        },
        "project_id": "project",
        "user_id": "user",
        "consumer_generation": None,
        "consumer_type": "INSTANCE",
    }

    WritingClient(placement_service.adapter).set_allocations({CONSUMER: allocation})

    assert (blocks(GPU), blocks(ROOT)) == (uuids[ROOT], None)
