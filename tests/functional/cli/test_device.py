"""``wharfinger device program``, ``device jobs`` and ``device resolve``."""

from datetime import timedelta
from typing import Any

import pytest

from tests.lab import inprocess, samples
from tests.lab.objects import KeptInFile
from tests.lab.placement import Requests
from tests.lab.program import Done, Program
from wharfinger.jobs import HOLDER
from wharfinger.objects import DeviceJobList, ReservationList
from wharfinger.objects.kinds import now
from wharfinger.placement.client import PlacementClient
from wharfinger.placement.embedded import EmbeddedPlacement
from wharfinger.placement.holds import Holds
from wharfinger.placement.model import ProviderSummary

GPU = "gpu-host-1_pci_0000_84_00_0"
IMAGE = samples.uuid("image")
TRAIT = "CUSTOM_FPGA_FUNCTION_ID_NEW"
FIGURES = {"VGPU": (8, 0)}
FULL = {"VGPU": (8, 8)}


@pytest.fixture
def client(placement_service: EmbeddedPlacement) -> PlacementClient:
    """Beside the program's."""
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


def device(program: Program, *arguments: str) -> Done:
    return inprocess.run(program, "device", *arguments)


def refused(done: Done, *told: str) -> None:
    """It failed, and says why in words."""
    assert (done.code, done.out) == (1, "")
    for part in told:
        assert part in done.err
    assert "Traceback" not in done.err


def left(
    kept: KeptInFile, client: PlacementClient, provider: ProviderSummary, **values: Any
) -> None:
    """What a job has left of a device: a row, and the reservation."""
    chosen = {
        "provider_uuid": provider.uuid,
        "provider_name": provider.name,
        "image": IMAGE,
        "state": "unknown",
        "trait": TRAIT,
    }
    samples.device_job(kept.context, **(chosen | values)).create()
    Holds(client, kept.context).reserve(provider, holder=HOLDER, reason="programming")
    assert figures(client, provider) == FULL


def figures(client: PlacementClient, provider: ProviderSummary) -> dict[str, tuple[int, int]]:
    inventories = client.get_inventories(provider.uuid).inventories
    return {name: (one.total, one.reserved) for name, one in inventories.items()}


def listed(program: Program, *arguments: str) -> list[dict[str, Any]]:
    done = device(program, "jobs", *arguments, "-f", "json")
    assert (done.code, done.err) == (0, "")
    rows: list[dict[str, Any]] = done.json()
    return rows


# Wrong usage.

WRONG = [
    ("program",),
    ("program", GPU),
    ("program", "--image", IMAGE),
    ("program", GPU, "--image", "my.bit"),
    ("program", GPU, GPU, "--image", IMAGE),
    ("program", GPU, "--image", IMAGE, "--function", ""),
    ("program", GPU, "--image", IMAGE, "--function", "x" * 256),
    ("program", GPU, "--image", IMAGE, "--wait-for-idle", "soon"),
    ("program", GPU, "--image", IMAGE, "--wait-for-idle", "-1"),
    ("program", GPU, "--image", IMAGE, "--wait-for-idle", "nan"),
    ("resolve",),
    ("resolve", GPU),
    ("resolve", "--programmed"),
    ("resolve", GPU, GPU, "--programmed"),
    ("resolve", GPU, "--programmed", "--unchanged"),
    ("resolve", GPU, "--unchanged", "--function"),
    ("jobs", GPU),
    ("jobs", "-f", "nonsense"),
]


@pytest.mark.parametrize("arguments", WRONG, ids=" ".join)
def test_what_is_no_command_is_wrong_usage(tmp_path: Any, arguments: tuple[str, ...]) -> None:
    done = device(Program(tmp_path, "http://127.0.0.1:9"), *arguments)
    assert (done.code, done.out) == (64, "")
    assert done.err
    assert "Traceback" not in done.err


# Programming.


@pytest.mark.parametrize("which", ["name", "uuid"])
def test_what_its_driver_cannot_program_is_refused(
    published: Program, gpu: ProviderSummary, client: PlacementClient, which: str
) -> None:
    done = device(published, "program", getattr(gpu, which), "--image", IMAGE)
    refused(done, GPU, "driver instance gpus does not program devices")
    assert figures(client, gpu) == FIGURES
    assert listed(published) == []


@pytest.mark.parametrize("name", ["no-such-device", samples.uuid("gone")])
def test_what_is_not_there_is_told(published: Program, name: str) -> None:
    for arguments in (("program", name, "--image", IMAGE), ("resolve", name, "--unchanged")):
        refused(device(published, *arguments), name)


def test_what_another_host_publishes_is_programmed_there(
    published: Program, gpu: ProviderSummary, kept: KeptInFile
) -> None:
    kept.write("provider_records", {"host": "elsewhere"}, provider_uuid=gpu.uuid)
    refused(
        device(published, "program", GPU, "--image", IMAGE),
        "no driver instance of this host",
        "instance gpus on host elsewhere does",
        "Run this there.",
    )


def test_what_nobody_publishes_is_to_be_published_first(
    published: Program, client: PlacementClient
) -> None:
    client.create_provider(samples.uuid("theirs"), "theirs", None)
    refused(device(published, "program", "theirs", "--image", IMAGE), "Publish it first.")


# Listing.


def test_where_nothing_was_programmed_there_are_no_jobs(program: Program) -> None:
    assert listed(program) == []
    done = device(program, "jobs")
    assert (done.code, done.err) == (0, "")


def test_jobs_are_listed_with_how_they_stand(program: Program, kept: KeptInFile) -> None:
    long_ago = now() - timedelta(hours=1)
    states: dict[int, dict[str, Any]] = {
        0: {"state": "programmed", "trait": TRAIT},
        1: {"state": "failed", "problem": "bad\nchecksum"},
        2: {"state": "programming"},
        3: {"state": "programming", "seen_at": long_ago},
        4: {"state": "unknown", "seen_at": long_ago},
    }
    for number, values in states.items():
        samples.device_job(kept.context, number, **values).create()
    samples.reservation(
        kept.context, provider_uuid=samples.uuid("device 4"), holder=HOLDER
    ).create()

    rows = {row["Provider"]: row for row in listed(program)}

    assert {name: row["State"] for name, row in rows.items()} == {
        "device-0": "programmed",
        "device-1": "failed",
        "device-2": "programming",
        "device-3": "interrupted while programming",
        "device-4": "unknown",
    }
    assert rows["device-0"]["Trait"] == TRAIT
    assert rows["device-0"]["UUID"] == samples.uuid("device 0")
    assert rows["device-0"]["Image"] == IMAGE
    assert "checksum" in rows["device-1"]["Problem"]
    assert [rows[f"device-{number}"]["Reserved"] for number in range(5)] == [False] * 4 + [True]
    unfinished = {row["Provider"] for row in listed(program, "--unfinished")}
    assert unfinished == {"device-2", "device-3", "device-4"}


def test_what_is_reserved_still_though_its_job_has_ended_is_unfinished(
    program: Program, kept: KeptInFile
) -> None:
    one = samples.device_job(kept.context, state="programmed")
    one.create()
    samples.reservation(kept.context, provider_uuid=one.provider_uuid, holder=HOLDER).create()
    [row] = listed(program, "--unfinished")
    assert (row["State"], row["Reserved"]) == ("programmed", True)


def test_a_list_that_nobody_reads_is_no_failure(program: Program, kept: KeptInFile) -> None:
    samples.device_job(kept.context).create()
    program.run_without_reader("device", "jobs")
    assert len(DeviceJobList.get_by_filters(kept.context)) == 1


# Resolving.


@pytest.mark.parametrize("outcome", ["--programmed", "--unchanged"])
def test_what_was_left_is_as_somebody_says(
    published: Program,
    gpu: ProviderSummary,
    client: PlacementClient,
    kept: KeptInFile,
    outcome: str,
) -> None:
    left(kept, client, gpu)
    before = client.get_traits(gpu.uuid).traits
    is_programmed = outcome == "--programmed"

    done = device(published, "resolve", gpu.uuid if is_programmed else GPU, outcome)

    assert (done.code, done.err) == (0, "")
    assert done.out == f"{GPU} ({gpu.uuid}): free\n"
    assert figures(client, gpu) == FIGURES
    assert client.get_traits(gpu.uuid).traits == (before | {TRAIT} if is_programmed else before)
    assert kept.row("device_jobs")["state"] == ("programmed" if is_programmed else "failed")
    assert not kept.rows("reservations")
    refused(device(published, "resolve", GPU, outcome), "There is nothing to do")


def test_the_function_is_the_one_that_is_said(
    published: Program, gpu: ProviderSummary, client: PlacementClient, kept: KeptInFile
) -> None:
    left(kept, client, gpu)
    done = device(published, "resolve", GPU, "--programmed", "--function", "other")
    assert (done.code, done.err) == (0, "")
    assert "CUSTOM_FPGA_FUNCTION_ID_OTHER" in client.get_traits(gpu.uuid).traits


@pytest.mark.parametrize("function", ["..", "ä"])
def test_a_function_that_no_trait_can_say_is_refused(
    published: Program,
    gpu: ProviderSummary,
    client: PlacementClient,
    kept: KeptInFile,
    function: str,
) -> None:
    left(kept, client, gpu)
    done = device(published, "resolve", GPU, "--programmed", f"--function={function}")
    refused(done, "needs a letter or digit")
    assert figures(client, gpu) == FULL
    assert kept.row("device_jobs")["state"] == "unknown"


def test_a_function_goes_with_what_is_programmed_alone(
    published: Program, gpu: ProviderSummary, client: PlacementClient, kept: KeptInFile
) -> None:
    left(kept, client, gpu)
    done = device(published, "resolve", GPU, "--unchanged", "--function", "x")
    refused(done, "--function goes with --programmed alone")
    assert figures(client, gpu) == FULL


def test_what_else_reserves_it_is_told(
    published: Program, gpu: ProviderSummary, client: PlacementClient, kept: KeptInFile
) -> None:
    left(kept, client, gpu)
    Holds(client, kept.context).reserve(gpu, holder="operator", reason="a fan is loud")
    done = device(published, "resolve", GPU, "--unchanged")
    assert done.out == f"{GPU} ({gpu.uuid}): still reserved: a fan is loud (held by operator)\n"
    assert figures(client, gpu) == FULL


def test_what_a_process_is_at_work_on_is_left_to_it(
    published: Program, gpu: ProviderSummary, client: PlacementClient, kept: KeptInFile
) -> None:
    left(kept, client, gpu, state="programming")
    refused(device(published, "resolve", GPU, "--unchanged"), "process 4711 on host-1 is at work")
    assert figures(client, gpu) == FULL


@pytest.mark.parametrize("which", ["name", "uuid"])
def test_what_is_left_of_a_device_that_is_gone_is_forgotten(
    published: Program,
    gpu: ProviderSummary,
    client: PlacementClient,
    kept: KeptInFile,
    which: str,
) -> None:
    left(kept, client, gpu)
    client.delete_provider(gpu.uuid)

    done = device(published, "resolve", getattr(gpu, which), "--unchanged")

    assert (done.code, done.err) == (0, "")
    assert "its job is forgotten" in done.out
    assert not DeviceJobList.get_by_filters(kept.context)
    assert not ReservationList.get_by_filters(kept.context)
    refused(device(published, "resolve", getattr(gpu, which), "--unchanged"))


def test_what_is_left_of_another_part_of_a_device_that_is_gone_is_forgotten_with_it(
    published: Program, gpu: ProviderSummary, client: PlacementClient, kept: KeptInFile
) -> None:
    other = samples.uuid("another part")
    left(kept, client, gpu, siblings=[other])
    samples.reservation(kept.context, provider_uuid=other, holder=HOLDER).create()
    client.delete_provider(gpu.uuid)

    done = device(published, "resolve", other, "--programmed")

    assert (done.code, done.err) == (0, "")
    assert "its job is forgotten" in done.out
    assert not DeviceJobList.get_by_filters(kept.context)
    assert not ReservationList.get_by_filters(kept.context)
