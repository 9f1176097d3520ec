"""Behaviour of the real Cyborg on which the driver relies, or with which it must cope.

The last test checks that the tests' Cyborg program needs only its own files.
"""

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import requests

from tests.lab.accelerators import figures, traits
from tests.lab.cyborg_harness import Harness
from tests.lab.cycles import everything
from wharfinger.conformance.other_program_client import WritingClient
from wharfinger_harnesses.cyborg import Cyborg, deployable, device
from wharfinger_harnesses.daemons import TIMEOUT, LabError, PythonDaemon, ReservedPort

TRAIT = "CUSTOM_FPGA_LAB"
HELD = "CUSTOM_FPGA_FUNCTION_ID_LAB_"


def delete_provider(harness: Harness, uuid: str) -> None:
    WritingClient(harness.placement.adapter).delete_provider(uuid)  # type: ignore[arg-type]


def test_discovery_publishes_what_was_added_resized_and_removed(harness: Harness) -> None:
    harness.begin()
    cyborg = harness.cyborg
    cyborg.add_device("0c", deployable("r0"), deployable("r1", accelerators=4))
    assert cyborg.deployables() == []
    cyborg.discover()
    names = [harness.name("0c", name) for name in ("r0", "r1")]
    assert [figures(name) for name in names] == [{"FPGA": (1, 0)}, {"FPGA": (4, 0)}]

    cyborg.resize("0c", 2, "r1")
    cyborg.add_device("1c", deployable(resource_class="CUSTOM_NIC"), kind="NIC")
    cyborg.discover()
    assert figures(names[1]) == {"FPGA": (2, 0)}
    assert figures(harness.name("1c")) == {"CUSTOM_NIC": (1, 0)}
    assert json.loads(cyborg.deployable("1c")["attributes_list"])[0] == {"rc": "CUSTOM_NIC"}

    cyborg.remove_device("0c")
    cyborg.discover()
    assert everything().keys() == {harness.hosts[0], harness.name("1c")}
    with pytest.raises(LabError, match="knows no deployable"):
        cyborg.deployable("0c")


def test_device_that_cyborg_programs_stays_free_in_placement(harness: Harness) -> None:
    harness.begin(device("0c", hold=True))
    cyborg = harness.cyborg
    uuid, image = cyborg.deployable("0c")["uuid"], cyborg.create_image("4AFB")

    with ThreadPoolExecutor() as pool:
        programming = pool.submit(cyborg.program, uuid, image)
        cyborg.wait_for_programming("0c")
        meanwhile = figures(harness.name("0c"))
        cyborg.go("0c")

    assert programming.result().ok
    assert meanwhile == {"FPGA": (1, 0)}


def test_device_is_bound_to_a_function_and_then_to_an_image(harness: Harness) -> None:
    harness.begin(device("0c"))
    cyborg = harness.cyborg
    provider = harness.uuid("0c")
    cyborg.create_image("4A00")
    images = [cyborg.create_image("4AFB"), cyborg.create_image("3AFB")]
    for image, wanted in zip(
        images, ({"function_id": "4AFB"}, {"bitstream_id": images[1]}), strict=True
    ):
        request = cyborg.bind(provider, **wanted)
        cyborg.wait_for_request(request, "Bound")
        assert cyborg.programmed("0c") == image
        cyborg.delete_request(request)
        assert cyborg.ask("GET", f"/accelerator_requests/{request}").status_code == 404


def test_function_that_a_device_reports_appears_at_the_next_discovery(harness: Harness) -> None:
    harness.begin(
        device("0c", function="0a-11", reports_function=True), device("1c", function="0a-22")
    )
    name, cyborg = harness.name("0c"), harness.cyborg
    assert traits(name) == {TRAIT, f"{HELD}0A11"}
    assert traits(harness.name("1c")) == {TRAIT}

    assert cyborg.program(cyborg.deployable("0c")["uuid"], cyborg.create_image("0a-33")).ok
    assert (
        cyborg.deployable("0c")["bitstream_id"] is None
    )  # Cyborg's database does not have the image
    assert traits(name) == {TRAIT, f"{HELD}0A11"}
    cyborg.discover()
    assert traits(name) == {TRAIT, f"{HELD}0A33"}


def test_deleted_provider_is_an_error_once_its_device_changes(harness: Harness) -> None:
    harness.begin(device("0c"))
    cyborg, uuid = harness.cyborg, harness.uuid("0c")
    delete_provider(harness, uuid)
    cyborg.discover()
    cyborg.resize("0c", 2)
    with pytest.raises(LabError, match="generation"):
        cyborg.discover()
    # Cyborg regards all that it recorded before the failure as done.
    cyborg.discover()
    assert cyborg.deployable("0c")["num_accelerators"] == 2
    assert cyborg.deployable("0c")["rp_uuid"] == uuid
    assert everything().keys() == {harness.hosts[0]}


def test_lost_trait_of_a_device_without_provider_is_an_error_at_each_discovery(
    harness: Harness,
) -> None:
    harness.begin(device("0c", deployable(traits=[TRAIT, "CUSTOM_LARGE"])))
    uuid = harness.uuid("0c")
    delete_provider(harness, uuid)
    harness.cyborg.set_hardware(device("0c"), device("1c"))
    for _ in range(2):
        with pytest.raises(LabError, match=f"Failed to get traits for rp {uuid}"):
            harness.cyborg.discover()
    # Cyborg publishes the new device before the error.
    assert everything().keys() == {harness.hosts[0], harness.name("1c")}


class InADirectory(PythonDaemon):
    """The Cyborg program in a directory that has only its files, without options for Python."""

    def __init__(self, placement: str) -> None:
        super().__init__()
        self._placement = placement

    def _setUp(self) -> None:
        super()._setUp()
        text = f"[placement]\nendpoint_override = {self._placement}\n"
        (self.directory / "cyborg.conf").write_text(text)
        devices: dict[str, Any] = {"fpga-host-1": [device("ff")]}
        (self.directory / "hardware.json").write_text(json.dumps(devices))
        self.port = self.useFixture(ReservedPort()).number
        program = str(Cyborg.service_program)
        self.start(sys.executable, program, str(self.directory), str(self.port))


def test_lab_program_needs_only_files(harness: Harness) -> None:
    harness.begin()
    with InADirectory(harness.placement_url) as program:
        url = f"http://127.0.0.1:{program.port}/accelerator/v2/deployables"
        (described,) = requests.get(url, timeout=TIMEOUT).json()["deployables"]
    assert everything()[described["name"]]["uuid"] == described["rp_uuid"]
