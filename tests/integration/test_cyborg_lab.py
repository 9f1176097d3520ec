"""The Cyborg that the other tests use: that its devices do as they are told.

And what the real Cyborg does about them, where our driver relies on it, or has to cope with it.
"""

import json
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from itertools import count
from typing import Any
from uuid import uuid4

import fixtures
import pytest
import requests
from keystoneauth1.adapter import Adapter

from tests.lab.placement import adapter_to, over_http
from wharfinger.placement.embedded import EmbeddedPlacement
from wharfinger_harnesses.cyborg import Cyborg, deployable, device
from wharfinger_harnesses.daemons import TIMEOUT, LabError, PythonDaemon

HOSTS = ("fpga-host-1", "fpga-host-2")
TRAIT = "CUSTOM_FPGA_LAB"
HELD = "CUSTOM_FPGA_FUNCTION_ID_LAB_"
BUSES = map("{:02x}".format, count(1))

Start = Callable[..., Cyborg]


class Placement(fixtures.Fixture):
    """A real Placement that has the hosts."""

    url: str
    adapter: Adapter

    def __init__(self, service: EmbeddedPlacement) -> None:
        super().__init__()
        self._service = service

    def _setUp(self) -> None:
        serving = over_http(self._service)
        self.url, _ = serving.__enter__()
        self.addCleanup(serving.__exit__, None, None, None)
        self.adapter = adapter_to(self.url)
        self.roots = {name: self._create(name) for name in HOSTS}

    def _create(self, name: str) -> str:
        body = {"name": name, "uuid": str(uuid4())}
        created = self.adapter.post("/resource_providers", json=body, microversion="1.20")
        return str(created.json()["uuid"])

    def ask(self, path: str) -> Any:
        """What it has there, or None."""
        answer = self.adapter.get(path, microversion="1.39", raise_exc=False)
        return answer.json() if answer.ok else None

    def provider(self, uuid: str) -> Any:
        return self.ask(f"/resource_providers/{uuid}")

    def traits(self, uuid: str) -> set[str]:
        return set(self.ask(f"/resource_providers/{uuid}/traits")["traits"])

    def inventory(self, uuid: str) -> dict[str, tuple[int, int]]:
        """Total and reserved, by resource class."""
        inventories = self.ask(f"/resource_providers/{uuid}/inventories")["inventories"]
        return {name: (of["total"], of["reserved"]) for name, of in inventories.items()}

    def delete(self, uuid: str) -> None:
        self.adapter.delete(f"/resource_providers/{uuid}")


@pytest.fixture(scope="module")
def placement(placement_service: EmbeddedPlacement) -> Iterator[Placement]:
    with Placement(placement_service) as placement:
        yield placement


@pytest.fixture(scope="module")
def shared(placement: Placement) -> Iterator[Cyborg]:
    with Cyborg(placement.url, hosts=HOSTS) as cyborg:
        yield cyborg


@pytest.fixture
def cyborg(shared: Cyborg) -> Iterator[Cyborg]:
    before = len(shared.log())
    yield shared
    print(shared.log()[before:])  # is shown where a test has failed


@pytest.fixture
def start(placement: Placement) -> Iterator[Start]:
    """Starts a Cyborg for one test."""
    with fixtures.Fixture() as started:

        def begin(*devices: dict[str, Any], **how: Any) -> Cyborg:
            alone = started.useFixture(
                Cyborg(placement.url, host=HOSTS[0], hardware=devices, **how)
            )
            assert isinstance(alone, Cyborg)
            return alone

        yield begin


@pytest.fixture
def bus() -> str:
    """Where nobody has had a device."""
    return next(BUSES)


@pytest.fixture
def other_bus() -> str:
    return next(BUSES)


@pytest.fixture
def in_background() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor() as executor:
        yield executor


def found(cyborg: Cyborg, bus: str, **more: Any) -> dict[str, Any]:
    """A new device that has been discovered; its one deployable."""
    cyborg.add_device(bus, **more)
    cyborg.discover()
    return cyborg.deployable(bus)


def test_what_is_there_from_the_start_is_published(
    start: Start, placement: Placement, bus: str
) -> None:
    cyborg = start(device(bus, deployable(accelerators=3, traits=[TRAIT, "CUSTOM_LARGE"])))

    (described,) = cyborg.deployables()

    uuid = described["rp_uuid"]
    provider = placement.provider(uuid)
    assert provider["name"] == described["name"] == f"{cyborg.host}_{bus}_r0"
    assert provider["parent_provider_uuid"] == placement.roots[cyborg.host]
    assert placement.inventory(uuid) == {"FPGA": (3, 0)}
    assert placement.traits(uuid) == {TRAIT, "CUSTOM_LARGE"}


def test_discovery_finds_what_was_added_resized_and_removed(
    cyborg: Cyborg, placement: Placement, bus: str
) -> None:
    cyborg.add_device(bus, deployable("r0"), deployable("r1", accelerators=4))
    assert bus not in str(cyborg.deployables())

    cyborg.discover()
    uuids = [cyborg.deployable(bus, name)["rp_uuid"] for name in ("r0", "r1")]
    assert [placement.inventory(uuid)["FPGA"] for uuid in uuids] == [(1, 0), (4, 0)]

    cyborg.resize(bus, 2, "r1")
    cyborg.discover()
    assert placement.inventory(uuids[1]) == {"FPGA": (2, 0)}
    assert cyborg.deployable(bus, "r1")["num_accelerators"] == 2

    cyborg.remove_device(bus)
    cyborg.discover()
    assert [placement.provider(uuid) for uuid in uuids] == [None, None]
    with pytest.raises(LabError, match="knows no deployable"):
        cyborg.deployable(bus)


@pytest.mark.parametrize(
    ("kind", "resource_class"), [("GPU", "PGPU"), ("GPU", "VGPU"), ("NIC", "CUSTOM_NIC")]
)
def test_devices_of_other_kinds_are_published_and_cannot_be_programmed(
    cyborg: Cyborg, placement: Placement, bus: str, kind: str, resource_class: str
) -> None:
    cyborg.add_device(bus, deployable(resource_class=resource_class), kind=kind)
    cyborg.discover()

    described = cyborg.deployable(bus)
    assert placement.inventory(described["rp_uuid"]) == {resource_class: (1, 0)}
    assert json.loads(described["attributes_list"])[0] == {"rc": resource_class}
    answer = cyborg.program(described["uuid"], cyborg.create_image())
    assert answer.status_code == 500
    assert cyborg.programmings(bus) == []


def test_no_agent_starts_on_a_host_that_placement_does_not_have(placement: Placement) -> None:
    with pytest.raises(LabError, match=r"root provider in Placement first: .* elsewhere"):
        Cyborg(placement.url, host="elsewhere").setUp()


def test_programming_is_on_record_with_its_image(cyborg: Cyborg, bus: str) -> None:
    uuid = found(cyborg, bus)["uuid"]
    image = cyborg.create_image()
    assert cyborg.programmed(bus) is None

    assert cyborg.program(uuid, image).status_code == 200

    assert cyborg.programmed(bus) == image
    start, end = cyborg.programmings(bus)
    assert (start["event"], start["image"], start["size"]) == ("start", image, len(image))
    assert (end["event"], end["image"], end["outcome"]) == ("end", image, "succeeds")
    assert start["at"] <= end["at"]
    # Cyborg itself does not know.
    assert cyborg.deployable(bus)["bitstream_id"] is None


def test_an_image_that_glance_does_not_have_is_not_tried(cyborg: Cyborg, bus: str) -> None:
    uuid = found(cyborg, bus)["uuid"]

    assert cyborg.program(uuid, str(uuid4())).status_code == 404

    assert cyborg.programmings(bus) == []


@pytest.mark.parametrize("outcome", ["fails", "raises"])
@pytest.mark.parametrize("late", [False, True])
def test_programming_fails_as_told(cyborg: Cyborg, bus: str, outcome: str, late: bool) -> None:
    uuid = found(cyborg, bus, programming=f"{outcome} late" if late else outcome)["uuid"]
    image = cyborg.create_image()

    assert cyborg.program(uuid, image).status_code == 500

    assert cyborg.programmed(bus) == (image if late else None)


def test_programming_waits_for_its_go(
    cyborg: Cyborg, bus: str, in_background: ThreadPoolExecutor
) -> None:
    uuid = found(cyborg, bus, hold=True)["uuid"]
    images = [cyborg.create_image() for _ in range(2)]

    answers = [in_background.submit(cyborg.program, uuid, image) for image in images]
    cyborg.wait_for_programming(bus, count=2)
    assert cyborg.programmed(bus) is None
    assert not any(answer.done() for answer in answers)

    cyborg.go(bus)
    first = next(as_completed(answers))
    assert first.result().status_code == 200
    assert cyborg.programmed(bus) == images[answers.index(first)]
    (other,) = cyborg.underway(bus)

    cyborg.go(bus)
    assert cyborg.wait_until_programmed(bus)["image"] == other["image"]
    assert cyborg.programmed(bus) == other["image"]


def test_hardware_goes_on_after_cyborg_has_given_it_up(start: Start, bus: str) -> None:
    cyborg = start(device(bus, hold=True), options={"DEFAULT": {"rpc_response_timeout": 3}})
    image = cyborg.create_image()

    answer = cyborg.program(cyborg.deployable(bus)["uuid"], image)

    assert answer.status_code == 500
    assert "No reply" in answer.text
    assert cyborg.programmed(bus) is None
    cyborg.go(bus)
    assert cyborg.wait_until_programmed(bus)["image"] == image
    assert cyborg.programmed(bus) == image


def test_killed_midway_it_comes_back_with_what_it_knew(
    start: Start, bus: str, in_background: ThreadPoolExecutor
) -> None:
    cyborg = start(device(bus, hold=True))
    before = cyborg.deployable(bus)
    image = cyborg.create_image()
    answer = in_background.submit(cyborg.program, before["uuid"], image)
    cyborg.wait_for_programming(bus)

    cyborg.stop()

    assert isinstance(answer.exception(), OSError)
    cyborg.start_again()
    assert cyborg.deployable(bus) == before
    assert cyborg.underway(bus) == []
    assert cyborg.programmed(bus) is None
    cyborg.go(bus)
    assert cyborg.program(before["uuid"], image).status_code == 200


def test_a_bound_request_is_seen_while_its_device_is_programmed(
    cyborg: Cyborg, placement: Placement, bus: str
) -> None:
    provider = found(cyborg, bus, hold=True)["rp_uuid"]
    image = cyborg.create_image("3AFB")

    request = cyborg.bind(provider, bitstream_id=image)

    assert cyborg.wait_for_programming(bus)["image"] == image
    described = cyborg.request(request)
    assert described["state"] == "BindStarted"
    assert described["device_rp_uuid"] == provider
    assert placement.inventory(provider) == {"FPGA": (1, 0)}
    cyborg.go(bus)
    assert cyborg.wait_for_nova(request)["status"] == "completed"
    assert cyborg.request(request)["state"] == "Bound"
    assert placement.traits(provider) == {TRAIT, f"{HELD}3AFB"}
    assert cyborg.deployable(bus)["bitstream_id"] == image


def test_a_function_is_looked_up_for_a_bound_request(cyborg: Cyborg, bus: str) -> None:
    provider = found(cyborg, bus)["rp_uuid"]
    cyborg.create_image("4A00")
    image = cyborg.create_image("4AFB")

    cyborg.wait_for_request(cyborg.bind(provider, function_id="4AFB"), "Bound")

    assert cyborg.programmed(bus) == image


def test_a_request_is_bound_whatever_the_driver_has_said(cyborg: Cyborg, bus: str) -> None:
    provider = found(cyborg, bus, programming="fails")["rp_uuid"]

    request = cyborg.bind(provider, bitstream_id=cyborg.create_image("3AFB"))

    assert cyborg.wait_for_nova(request)["status"] == "completed"
    assert cyborg.programmed(bus) is None


def test_a_request_with_a_driver_that_breaks_is_never_more_than_begun(
    cyborg: Cyborg, bus: str
) -> None:
    provider = found(cyborg, bus, programming="raises")["rp_uuid"]

    request = cyborg.bind(provider, bitstream_id=cyborg.create_image("3AFB"))

    assert cyborg.wait_for_nova(request)["status"] == "failed"
    assert cyborg.request(request)["state"] == "BindFailed"


def test_a_function_shows_where_the_device_says_it(
    cyborg: Cyborg, placement: Placement, bus: str, other_bus: str
) -> None:
    says = found(cyborg, bus, function="0a-11", reports_function=True)
    silent = found(cyborg, other_bus, function="0a-22")
    assert placement.traits(says["rp_uuid"]) == {TRAIT, f"{HELD}0A11"}
    assert placement.traits(silent["rp_uuid"]) == {TRAIT}

    cyborg.program(says["uuid"], cyborg.create_image("0a-33"))
    assert placement.traits(says["rp_uuid"]) == {TRAIT, f"{HELD}0A11"}
    cyborg.discover()
    assert placement.traits(says["rp_uuid"]) == {TRAIT, f"{HELD}0A33"}


def test_each_host_has_its_own_devices(cyborg: Cyborg, placement: Placement, bus: str) -> None:
    for host in HOSTS:
        cyborg.add_device(bus, host=host)
        cyborg.discover(host)
    one, other = (cyborg.deployable(bus, host=host) for host in HOSTS)
    image = cyborg.create_image()

    assert cyborg.program(other["uuid"], image).status_code == 200

    assert [cyborg.programmed(bus, host) for host in HOSTS] == [None, image]
    parents = [placement.provider(of["rp_uuid"])["parent_provider_uuid"] for of in (one, other)]
    assert parents == [placement.roots[host] for host in HOSTS]


def test_it_reports_all_the_while_where_it_is_to(
    start: Start, placement: Placement, bus: str, other_bus: str
) -> None:
    cyborg = start(device(bus), reports_every=0.02)
    cyborg.add_device(other_bus)

    cyborg.wait_for_reports()

    assert placement.provider(cyborg.deployable(other_bus)["rp_uuid"])


def test_a_provider_that_is_gone_is_missed_when_its_device_changes(
    start: Start, placement: Placement, bus: str
) -> None:
    cyborg = start(device(bus))
    uuid = cyborg.deployable(bus)["rp_uuid"]
    placement.delete(uuid)

    cyborg.discover()
    assert placement.provider(uuid) is None

    cyborg.resize(bus, 2)
    with pytest.raises(LabError, match="generation"):
        cyborg.discover()
    # It takes for done what it has noted before it failed.
    cyborg.discover()
    assert cyborg.deployable(bus)["num_accelerators"] == 2
    assert cyborg.deployable(bus)["rp_uuid"] == uuid
    assert placement.provider(uuid) is None

    cyborg.remove_device(bus)
    cyborg.discover()
    assert cyborg.deployables() == []


def test_a_trait_that_its_device_loses_is_missed_forever_with_the_provider(
    start: Start, placement: Placement, bus: str, other_bus: str
) -> None:
    cyborg = start(device(bus, deployable(traits=[TRAIT, "CUSTOM_LARGE"])))
    uuid = cyborg.deployable(bus)["rp_uuid"]
    placement.delete(uuid)
    cyborg.set_hardware(device(bus), device(other_bus))

    for _ in range(2):
        with pytest.raises(LabError, match=f"Failed to get traits for rp {uuid}"):
            cyborg.discover()

    # What is new comes first, and is published.
    assert placement.provider(cyborg.deployable(other_bus)["rp_uuid"])
    assert placement.provider(uuid) is None


def test_a_request_can_be_deleted_and_its_device_bound_again(cyborg: Cyborg, bus: str) -> None:
    provider = found(cyborg, bus)["rp_uuid"]
    images = [cyborg.create_image("3AFB"), cyborg.create_image("4AFB")]

    for image in images:
        request = cyborg.bind(provider, bitstream_id=image)
        cyborg.wait_for_request(request, "Bound")
        cyborg.delete_request(request)
        assert cyborg.ask("GET", f"/accelerator_requests/{request}").status_code == 404

    assert [event["image"] for event in cyborg.programmings(bus)[::2]] == images


class InADirectory(PythonDaemon):
    """The program with files alone, and no options for Python."""

    def __init__(self, placement: str) -> None:
        super().__init__()
        self._placement = placement

    def _setUp(self) -> None:
        super()._setUp()
        text = f"[placement]\nendpoint_override = {self._placement}\n"
        (self.directory / "cyborg.conf").write_text(text)
        devices = {HOSTS[0]: [device("ff")]}
        (self.directory / "hardware.json").write_text(json.dumps(devices))
        self.start(sys.executable, str(Cyborg.service_program), str(self.directory))


def test_files_are_enough(placement: Placement) -> None:
    with InADirectory(placement.url) as program:
        port = int((program.directory / "port").read_text())
        url = f"http://127.0.0.1:{port}/accelerator/v2/deployables"
        (described,) = requests.get(url, timeout=TIMEOUT).json()["deployables"]

    assert described["name"] == f"{HOSTS[0]}_ff_r0"
    assert placement.provider(described["rp_uuid"])
