"""The commands ``wharfinger device program``, ``device jobs`` and ``device resolve``."""

from datetime import timedelta
from typing import Any

import pytest

from tests.functional.cli.outcomes import failed, shown
from tests.lab import inprocess, samples
from tests.lab.objects import KeptInFile
from tests.lab.placement import Requests
from tests.lab.program import Done, Program
from wharfinger.conformance.other_program_client import WritingClient
from wharfinger.objects import JOB_HOLDER, DeviceJobList, ReservationList
from wharfinger.objects.field_types import now
from wharfinger.placement.embedded import EmbeddedPlacement
from wharfinger.placement.model import ProviderSummary
from wharfinger.reconcile.reserve_and_release import Reservations

GPU = "gpu-host-1_pci_0000_84_00_0"
IMAGE = samples.uuid("image")
TRAIT = "CUSTOM_FPGA_FUNCTION_ID_NEW"
FIGURES = {"VGPU": (8, 0)}
FULL = {"VGPU": (8, 8)}


@pytest.fixture
def client(placement_service: EmbeddedPlacement) -> WritingClient:
    """Another client of the Placement that the program uses."""
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


def device(program: Program, *arguments: str) -> Done:
    return inprocess.run(program, "device", *arguments)


def create_interrupted_job(
    kept: KeptInFile, client: WritingClient, provider: ProviderSummary, **values: Any
) -> None:
    """Create the job and the reservation that an interrupted programming leaves."""
    chosen = {
        "provider_uuid": provider.uuid,
        "provider_name": provider.name,
        "image": IMAGE,
        "state": "unknown",
        "trait": TRAIT,
    }
    samples.device_job(kept.context, **(chosen | values)).create()
    Reservations(client, kept.context).reserve(provider, holder=JOB_HOLDER, reason="programming")
    assert figures(client, provider) == FULL


def figures(client: WritingClient, provider: ProviderSummary) -> dict[str, tuple[int, int]]:
    inventories = client.get_inventories(provider.uuid).inventories
    return {name: (one.total, one.reserved) for name, one in inventories.items()}


def listed(program: Program, *arguments: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = shown(program, "device", "jobs", *arguments)
    return rows


# Programming.


def test_program_of_unprogrammable_device_fails(
    published: Program, gpu: ProviderSummary, client: WritingClient, kept: KeptInFile
) -> None:
    client.create_provider(samples.uuid("theirs"), "theirs", None)

    def program(name: str) -> Done:
        return device(published, "program", name, "--image", IMAGE)

    for name in (gpu.name, gpu.uuid):
        failed(program(name), GPU, "driver instance gpus does not program devices")
    for name in ("no-such-device", samples.uuid("gone")):
        failed(program(name), name)
        failed(device(published, "resolve", name, "--unchanged"), name)
    failed(program("theirs"), "Let a driver instance publish the provider first")
    kept.write("provider_records", {"host": "elsewhere"}, provider_uuid=gpu.uuid)
    failed(
        program(GPU),
        "Run the command on the host of its publisher: instance gpus on host elsewhere.",
    )

    assert figures(client, gpu) == FIGURES
    assert listed(published) == []


# Listing.


def test_jobs_are_listed_with_their_state(program: Program, kept: KeptInFile) -> None:
    long_ago = now() - timedelta(hours=1)
    states: dict[int, dict[str, Any]] = {
        0: {"state": "programmed", "trait": TRAIT},
        1: {"state": "failed", "problem": "bad\nchecksum"},
        2: {"state": "programming"},
        3: {"state": "programming", "seen_at": long_ago},
        4: {"state": "unknown", "seen_at": long_ago},
        5: {"state": "programmed"},
    }
    for number, values in states.items():
        samples.device_job(kept.context, number, **values).create()
    for number in (4, 5):  # the device may stay reserved after its job has ended
        samples.reservation(
            kept.context, number, provider_uuid=samples.uuid(f"device {number}"), holder=JOB_HOLDER
        ).create()

    rows = {row["Provider"]: row for row in listed(program)}

    assert {name: row["State"] for name, row in rows.items()} == {
        "device-0": "programmed",
        "device-1": "failed",
        "device-2": "programming",
        "device-3": "interrupted while programming",
        "device-4": "unknown",
        "device-5": "programmed",
    }
    assert rows["device-0"]["Trait"] == TRAIT
    assert rows["device-0"]["UUID"] == samples.uuid("device 0")
    assert rows["device-0"]["Image"] == IMAGE
    assert "checksum" in rows["device-1"]["Problem"]
    assert [rows[f"device-{number}"]["Reserved"] for number in range(6)] == [False] * 4 + [True] * 2
    unfinished = {row["Provider"] for row in listed(program, "--unfinished")}
    assert unfinished == {"device-2", "device-3", "device-4", "device-5"}


# Resolving.


@pytest.mark.parametrize("outcome", ["--programmed", "--unchanged"])
def test_resolve_sets_the_outcome_that_the_operator_names(
    published: Program,
    gpu: ProviderSummary,
    client: WritingClient,
    kept: KeptInFile,
    outcome: str,
) -> None:
    create_interrupted_job(kept, client, gpu)
    before = client.get_traits(gpu.uuid).traits
    is_programmed = outcome == "--programmed"

    done = device(published, "resolve", gpu.uuid if is_programmed else GPU, outcome)

    assert (done.code, done.err) == (0, "")
    assert done.out == f"{GPU} ({gpu.uuid}): free\n"
    assert figures(client, gpu) == FIGURES
    assert client.get_traits(gpu.uuid).traits == (before | {TRAIT} if is_programmed else before)
    assert kept.row("device_jobs")["state"] == ("programmed" if is_programmed else "failed")
    assert not kept.rows("reservations")
    failed(device(published, "resolve", GPU, outcome), "There is nothing to do")


def test_resolve_with_function_sets_its_trait(
    published: Program, gpu: ProviderSummary, client: WritingClient, kept: KeptInFile
) -> None:
    create_interrupted_job(kept, client, gpu)
    for function in ("..", "ä"):
        done = device(published, "resolve", GPU, "--programmed", f"--function={function}")
        failed(done, "needs a letter from A to Z or a digit")
    done = device(published, "resolve", GPU, "--unchanged", "--function", "x")
    failed(done, "--function can only be used with --programmed")
    assert figures(client, gpu) == FULL
    assert kept.row("device_jobs")["state"] == "unknown"

    done = device(published, "resolve", GPU, "--programmed", "--function", "other")

    assert (done.code, done.err) == (0, "")
    assert "CUSTOM_FPGA_FUNCTION_ID_OTHER" in client.get_traits(gpu.uuid).traits


def test_resolve_with_another_reservation_prints_it(
    published: Program, gpu: ProviderSummary, client: WritingClient, kept: KeptInFile
) -> None:
    create_interrupted_job(kept, client, gpu)
    Reservations(client, kept.context).reserve(gpu, holder="operator", reason="a fan is loud")
    done = device(published, "resolve", GPU, "--unchanged")
    assert done.out == f"{GPU} ({gpu.uuid}): still reserved: a fan is loud (held by operator)\n"
    assert figures(client, gpu) == FULL


def test_resolve_of_job_in_progress_is_refused(
    published: Program, gpu: ProviderSummary, client: WritingClient, kept: KeptInFile
) -> None:
    create_interrupted_job(kept, client, gpu, state="programming")
    failed(
        device(published, "resolve", GPU, "--unchanged"), "in progress: process 4711 on host host-1"
    )
    assert figures(client, gpu) == FULL


@pytest.mark.parametrize("which", ["name", "uuid", "another part"])
def test_resolve_of_deleted_device_deletes_its_job(
    published: Program,
    gpu: ProviderSummary,
    client: WritingClient,
    kept: KeptInFile,
    which: str,
) -> None:
    part = samples.uuid("another part")
    create_interrupted_job(kept, client, gpu, siblings=[part])
    samples.reservation(kept.context, provider_uuid=part, holder=JOB_HOLDER).create()
    client.delete_provider(gpu.uuid)
    name = {"name": gpu.name, "uuid": gpu.uuid, "another part": part}[which]

    done = device(published, "resolve", name, "--programmed")

    assert (done.code, done.err) == (0, "")
    assert "the job is deleted" in done.out
    assert not DeviceJobList.get_by_filters(kept.context)
    assert not ReservationList.get_by_filters(kept.context)
    failed(device(published, "resolve", name, "--unchanged"))
