"""Device profiles from a Cyborg that answers wrongly, or not at all."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.lab.faults import FAULTS, Ending, Fault
from tests.lab.stub_service import StubService
from wharfinger.conf import load
from wharfinger.exceptions import ConfigurationError, DeviceProfileError
from wharfinger.scheduling import RequestGroup, ResourceRequest
from wharfinger.scheduling.profile_sources import read_profile

FPGA = {"resources:FPGA": "1"}
ONE = (RequestGroup(suffix="device_profile_0", resources={"FPGA": 1}, owner="OWNER_CYBORG"),)


def read(directory: Path, options: str) -> ResourceRequest:
    path = directory / "wharfinger.conf"
    path.write_text(f"[accelerator]\n{options}\n")
    return read_profile(load([str(path)]), "one")


def serve(_path: str, query: dict[str, str]) -> tuple[int, Any]:
    return 200, {"device_profiles": [{"name": query["name"], "groups": [FPGA]}]}


@pytest.fixture
def service() -> Iterator[StubService]:
    with StubService(serve) as service:
        yield service


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_fault_is_an_error_that_names_the_profile_and_is_cached_for_a_short_time(
    service: StubService, tmp_path: Path, fault: Fault
) -> None:
    options = f"auth_type = none\nendpoint_override = {service.url}/accelerator/v2"
    patience = "\ntimeout = 1" if fault.ending is Ending.LATE else ""
    service.expect(0, fault)
    with pytest.raises(DeviceProfileError) as caught:
        read(tmp_path, options + patience)
    assert service.struck
    assert caught.value.name == "one"
    told = "has no list of device profiles" if fault.told == "not understood" else fault.told
    assert told in str(caught.value).lower()

    service.expect()
    assert read(tmp_path, options).groups == ONE
    assert service.seen == ["GET /accelerator/v2/device_profiles?name=one"]


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ({"error_message": json.dumps({"faultstring": "no such\x1bprofile"})}, "such\\x1bprofile"),
        ({"error_message": json.dumps({"faultstring": 5})}, "Conflict"),
        ({"error_message": "a text"}, "Conflict"),
        ({"error": 5}, "Conflict"),
    ],
    ids=str,
)
def test_refusal_is_an_error_with_cyborgs_message(
    tmp_path: Path, answer: object, told: str
) -> None:
    with StubService(lambda _path, _query: (409, answer)) as service:
        options = f"auth_type = none\nendpoint_override = {service.url}"
        with pytest.raises(DeviceProfileError) as caught:
            read(tmp_path, options)
    assert caught.value.problem.startswith("Cyborg answers 409: ")
    assert told in caught.value.problem


@pytest.mark.parametrize(
    "options",
    [
        "auth_type = none",
        "auth_type = admin_token",
        "auth_type = none\nendpoint_override = localhost",
        "auth_type = none\nendpoint_override = http://localhost:port",
        "auth_type = none\nendpoint_override = http://127.0.0.1:9/%(project_id)s",
        "auth_type = none\nendpoint_override = http://127.0.0.1:9\ntimeout = 0",
        "auth_type = none\nendpoint_override = https://127.0.0.1:9\ncafile = /nowhere",
        "auth_type = password\nauth_url = http://127.0.0.1:9\nusername = a\npassword = b",
    ],
)
def test_options_without_an_endpoint_are_a_configuration_error(
    tmp_path: Path, options: str
) -> None:
    with pytest.raises((DeviceProfileError, ConfigurationError)):
        read(tmp_path, options)
