"""Device profiles of a real Cyborg, and the requests that they make.

tests/unit/scheduling tests wrong answers and invalid profiles.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.lab.cyborg_harness import Harness
from wharfinger.conf import load
from wharfinger.exceptions import DeviceProfileError, InvalidRequest
from wharfinger.objects import Flavor
from wharfinger.placement.trait_conditions import TraitConditions
from wharfinger.scheduling import RequestGroup, ResourceRequest
from wharfinger.scheduling.flavor_request import from_flavor
from wharfinger.scheduling.profile_sources import read_profile
from wharfinger_harnesses.cyborg import Cyborg

OWNER = "OWNER_CYBORG"
FPGA = {"resources:FPGA": "1"}
#: A profile of two devices with all kinds of keys that Cyborg accepts.
MIXED = (
    {
        "resources:FPGA": "1",
        "trait:CUSTOM_FAST": "required",
        "trait:CUSTOM_LARGE": "required",
        "trait:CUSTOM_WORN": "forbidden",
        "accel:function_id": "3AFB",
    },
    {"resources:VGPU": "2", "resources:CUSTOM_NIC": "1"},
)
#: The group that a profile with only an FPGA requests.
ONE = RequestGroup(suffix="device_profile_0", resources={"FPGA": 1}, owner=OWNER)

ReadProfile = Callable[[str], ResourceRequest]


def reading(directory: Path, *options: str) -> ReadProfile:
    """Return a function that reads device profiles with these options in [accelerator]."""
    path = directory / "wharfinger.conf"
    path.write_text("\n".join(["[accelerator]", *options, ""]))
    return partial(read_profile, load([str(path)]))


@pytest.fixture
def cyborg(harness: Harness) -> Cyborg:
    """A Cyborg with one device profile."""
    harness.begin()
    harness.cyborg.create_profile("one", FPGA)
    return harness.cyborg


@pytest.fixture
def read(cyborg: Cyborg, tmp_path: Path) -> ReadProfile:
    return reading(tmp_path, "auth_type = none", f"endpoint_override = {cyborg.url}")


# Behaviour of Cyborg's API that the client needs.


def test_cyborg_refuses_invalid_profiles(cyborg: Cyborg) -> None:
    for key, value, told in (
        ("trait:OWNER_CYBORG", "required", "should start with CUSTOM_"),
        ("trait:OWNER_NOVA", "forbidden", "should start with CUSTOM_"),
        ("trait:CUSTOM_FAST", "in:CUSTOM_FAST,CUSTOM_LARGE", "['required', 'forbidden']"),
        ("trait1:CUSTOM_FAST", "required", "must be of the form"),
        ("group_policy", "isolate", "must be of the form"),
        ("resources:VCPU", "1", "Unsupported resource class"),
    ):
        profile = {"name": "refused", "groups": [{**FPGA, key: value}]}
        answer = cyborg.ask("POST", "/device_profiles", [profile])
        assert answer.status_code == 400, key
        assert told in answer.text


def test_cyborg_lists_profiles_by_name_at_any_microversion(cyborg: Cyborg) -> None:
    for name in ("listed", "another"):
        cyborg.create_profile(name, FPGA)
    answer = cyborg.ask("GET", "/device_profiles?name=one,listed,none").json()
    assert {profile["name"] for profile in answer["device_profiles"]} == {"one", "listed"}
    # A path with the profile's name needs a later microversion.
    by_name = {"OpenStack-API-Version": "accelerator 2.2"}
    statuses = [
        cyborg.ask("GET", f"/device_profiles/{name}", **headers).status_code
        for name, headers in (("one", {}), ("one", by_name), ("none", by_name))
    ]
    assert statuses == [406, 200, 404]


# Requests of a profile.


def test_profile_requests_each_device_in_a_group_of_cyborg(
    cyborg: Cyborg, read: ReadProfile, tmp_path: Path
) -> None:
    cyborg.create_profile("mixed", *MIXED)
    traits = TraitConditions(
        required=frozenset({"CUSTOM_FAST", "CUSTOM_LARGE"}),
        forbidden=frozenset({"CUSTOM_WORN"}),
    )
    groups = (
        RequestGroup(suffix="device_profile_0", resources={"FPGA": 1}, traits=traits, owner=OWNER),
        RequestGroup(
            suffix="device_profile_1", resources={"VGPU": 2, "CUSTOM_NIC": 1}, owner=OWNER
        ),
    )
    assert read("mixed") == ResourceRequest(groups=groups, group_policy="none")

    flavor = Flavor(
        name="gold",
        vcpus=2,
        memory_mb=512,
        root_gb=1,
        ephemeral_gb=0,
        swap=0,
        extra_specs={"accel:device_profile": "mixed", "trait:CUSTOM_GOLD": "required"},
    )
    own, *accelerators = from_flavor(flavor, read).groups
    assert own.owner == "OWNER_NOVA"
    assert tuple(accelerators) == groups

    # A file with Cyborg's list of profiles makes the same requests.
    file = tmp_path / "profiles.json"
    file.write_bytes(cyborg.ask("GET", "/device_profiles").content)
    from_file = reading(tmp_path, f"device_profiles = {file}")
    assert from_file("mixed").groups == groups
    assert from_file("one").groups == (ONE,)


def test_profile_that_placement_would_refuse_is_an_error_that_names_the_key(
    cyborg: Cyborg, read: ReadProfile
) -> None:
    for number, (key, value) in enumerate(
        (
            ("resources:FPGA", "-1"),
            ("resources:FPGA", "2147483648"),
            ("resources:CUSTOM_fast", "1"),
            ("trait:CUSTOM_fast", "required"),
            ("trait:CUSTOM_FAST CARD", "forbidden"),
        )
    ):
        name = f"wrong-{number}"
        cyborg.create_profile(name, {"resources:VGPU": "1", key: value})
        with pytest.raises(InvalidRequest) as caught:
            read(name)
        assert caught.value.subject == f"device profile {name}, group 0"
        assert (caught.value.key, caught.value.value) == (key, value)


def test_cyborgs_own_keys_and_empty_groups_are_ignored(cyborg: Cyborg, read: ReadProfile) -> None:
    profile = {"name": "valueless", "groups": [{**FPGA, "accel:function_name": None}]}
    assert cyborg.ask("POST", "/device_profiles", [profile]).ok
    assert read("valueless").groups == (ONE,)
    cyborg.create_profile("sparse", {"accel:bitstream_id": "a"}, {}, {"resources:FPGA": "0"}, FPGA)
    [group] = read("sparse").groups
    assert group.suffix == "device_profile_3"


# Look-up of a profile.


@pytest.mark.parametrize(
    "name", ["", "on", "ONE", "one,another", "one&name=another", "one#", "../devices", "nördlich"]
)
def test_missing_profile_is_an_error_that_names_it(
    cyborg: Cyborg, read: ReadProfile, name: str
) -> None:
    cyborg.create_profile("another", FPGA)
    with pytest.raises(DeviceProfileError, match="Cyborg has none of that name") as caught:
        read(name)
    assert caught.value.name == name


def test_keystoneauth_options_select_cyborg(cyborg: Cyborg, tmp_path: Path) -> None:
    root = cyborg.url.removesuffix("/v2")
    for options in (
        f"auth_type = none\nendpoint = {cyborg.url}",
        f"auth_type = admin_token\nendpoint = {cyborg.url}\ntoken = a",
        f"auth_type = none\nendpoint_override = {cyborg.url}/",
        f"auth_type = none\nendpoint = {root}",
        f"auth_type = none\nendpoint_override = {root}",
    ):
        assert reading(tmp_path, options)("one").groups == (ONE,), options


def test_endpoint_without_profiles_is_an_error(cyborg: Cyborg, tmp_path: Path) -> None:
    root = cyborg.url.removesuffix("/accelerator/v2")
    for path, status in (("", 404), ("/accelerator/v2/device_profiles", 400)):
        read = reading(tmp_path, "auth_type = none", f"endpoint_override = {root}{path}")
        with pytest.raises(DeviceProfileError, match=f"Cyborg answers {status}"):
            read("any")
