"""Device profiles: their conversion to requests, and files that contain them."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wharfinger import conf
from wharfinger.exceptions import ConfigurationError, DeviceProfileError, InvalidRequest
from wharfinger.placement.trait_conditions import TraitConditions
from wharfinger.scheduling import RequestGroup, ResourceRequest
from wharfinger.scheduling.device_profiles import from_profile
from wharfinger.scheduling.profile_sources import CyborgProfiles, ProfileFile, open_source
from wharfinger.scheduling.profile_sources import read_profile as read_from
from wharfinger.scheduling.request_query import encode

CYBORG = "OWNER_CYBORG"
FPGA = {"resources:FPGA": "1"}


def asked(*groups: Mapping[str, str | int]) -> ResourceRequest:
    return from_profile("fast", groups)


def refusal(*groups: Mapping[str, str | int]) -> tuple[str, object, str]:
    """Return key, value and problem of the error for this profile."""
    with pytest.raises(InvalidRequest) as caught:
        asked(*groups)
    assert caught.value.subject in {
        "device profile fast",
        *(f"device profile fast, group {number}" for number in range(len(groups))),
    }
    return caught.value.key, caught.value.value, caught.value.problem


# Requests of a profile.


def test_profile_requests_from_cyborg_with_novas_group_names() -> None:
    request = asked(
        {"resources:FPGA": "1", "trait:CUSTOM_FAST": "required", "trait:CUSTOM_OLD": "forbidden"},
        {"resources:CUSTOM_ACCELERATOR_FPGA": 2, "resources:CUSTOM_LOCAL_MEMORY": "1"},
    )

    assert request == ResourceRequest(
        groups=(
            RequestGroup(
                suffix="device_profile_0",
                resources={"FPGA": 1},
                traits=TraitConditions.parse(["CUSTOM_FAST,!CUSTOM_OLD"]),
                owner=CYBORG,
            ),
            RequestGroup(
                suffix="device_profile_1",
                resources={"CUSTOM_ACCELERATOR_FPGA": 2, "CUSTOM_LOCAL_MEMORY": 1},
                owner=CYBORG,
            ),
        ),
        group_policy="none",
    )


def test_profile_of_one_group_has_no_policy() -> None:
    assert asked(FPGA).group_policy is None


def test_profile_ignores_accel_keys() -> None:
    assert asked({**FPGA, "accel:function_id": "3AFB", "accel:bitstream_id": "FB02"}) == asked(FPGA)


def test_profile_ignores_spaces_after_the_colon() -> None:
    assert asked({"resources: FPGA ": "1", "trait: CUSTOM_FAST": "required"}) == (
        asked({"resources:FPGA": "1", "trait:CUSTOM_FAST": "required"})
    )


def test_profile_group_without_amounts_is_skipped_and_keeps_its_number() -> None:
    groups = asked({}, {"resources:FPGA": 0}, {"accel:function_id": "3AFB"}, FPGA).groups

    assert [group.suffix for group in groups] == ["device_profile_3"]


def test_profile_group_may_name_cyborg_as_its_owner() -> None:
    [group] = asked({**FPGA, f"trait:{CYBORG}": "required"}).groups

    assert group.owner == CYBORG


# Invalid profiles.


@pytest.mark.parametrize(
    "groups", [[], [{}], [{"accel:function_id": "3AFB"}], [{"resources:A": 0}]]
)
def test_profile_without_resources_is_refused(
    groups: list[Mapping[str, str | int]],
) -> None:
    with pytest.raises(DeviceProfileError) as caught:
        asked(*groups)
    assert (
        str(caught.value)
        == "device profile fast: the profile requests no resources. Add resources:CLASS to a group."
    )


@pytest.mark.parametrize(
    "key",
    [
        "resources",
        "resources_A:FPGA",
        "trait1:CUSTOM_FAST",
        "group_policy",
        "hw:cpu",
        "",
        "Accel:x",
    ],
)
def test_profile_with_unknown_key_is_refused(key: str) -> None:
    told = "use resources:CLASS, trait:TRAIT or accel:NAME."

    assert refusal(FPGA, {**FPGA, key: "1"}) == (key, "1", told)


@pytest.mark.parametrize(
    "value", ["", "many", "-1", -1, "1.0", " 1", None, True, 1.5, ["1"], {}], ids=repr
)
def test_profile_with_invalid_amount_is_refused(value: Any) -> None:
    told = "it has to be a whole number from 0 to 2147483647."

    assert refusal({"resources:FPGA": value}) == ("resources:FPGA", value, told)


@pytest.mark.parametrize("value", ["", "in:CUSTOM_FAST", "Required", 1, None, True, []], ids=repr)
def test_profile_trait_must_be_required_or_forbidden(value: Any) -> None:
    told = "it has to be required or forbidden."

    assert refusal({**FPGA, "trait:CUSTOM_FAST": value}) == ("trait:CUSTOM_FAST", value, told)


@pytest.mark.parametrize(
    ("key", "told"),
    [
        ("resources:fpga", "the name of a resource class"),
        ("resources:", "the name of a resource class"),
        ("trait:fast", "'fast' cannot be a trait"),
        ("trait:", "a trait is missing"),
    ],
)
def test_profile_with_invalid_name_is_refused(key: str, told: str) -> None:
    found, _value, problem = refusal({**FPGA, key: "1" if key.startswith("res") else "required"})

    assert found == key
    assert told in problem


@pytest.mark.parametrize("key", ["resources:FPGA", "trait:CUSTOM_FAST"])
def test_name_that_differs_in_spaces_only_is_refused(key: str) -> None:
    value = "required" if key.startswith("trait") else "1"
    again = key.replace(":", ": ")

    assert refusal({**FPGA, key: value, again: value})[:2] == (again, value)
    assert asked({again: value, **FPGA} if key.startswith("trait") else {again: value}).groups


def test_profile_group_with_only_a_trait_is_refused_in_terms_of_profiles() -> None:
    key, value, problem = refusal(FPGA, {"trait:CUSTOM_FAST": "forbidden"})

    assert (key, value) == ("trait:CUSTOM_FAST", "forbidden")
    assert problem == (
        "it describes a provider, but the group requests no resources: there is no resources: "
        "above 0."
    )


@pytest.mark.parametrize("more", [{}, {f"trait:{CYBORG}": "required"}], ids=["alone", "beside"])
def test_profile_group_of_another_owner_is_refused(more: dict[str, str]) -> None:
    assert refusal({**FPGA, "trait:OWNER_NOVA": "required", **more}) == (
        "trait:OWNER_NOVA",
        "required",
        "the resources of a device profile belong to OWNER_CYBORG. Remove this trait.",
    )


KEYS = st.sampled_from(
    ["resources:FPGA", "resources:", "trait:CUSTOM_FAST", "trait:OWNER_NOVA", "accel:x"]
) | st.text(max_size=8)
VALUES = st.sampled_from(["1", "0", "required", "forbidden", 1, 0]) | st.text(max_size=3)


@given(st.lists(st.dictionaries(KEYS, VALUES, max_size=3), max_size=3))
def test_any_profile_is_a_request_or_an_error_that_names_it(
    groups: list[Mapping[str, str | int]],
) -> None:
    try:
        request = asked(*groups)
    except (InvalidRequest, DeviceProfileError) as error:
        assert str(error).startswith("device profile fast")
    else:
        assert encode(request)
        assert {group.owner for group in request.groups} == {CYBORG}


# Files.


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "profiles.json"


def unread(path: Path, name: str = "fast") -> str:
    with pytest.raises(DeviceProfileError) as caught:
        ProfileFile(path).groups(name)
    assert caught.value.name == name
    assert str(caught.value) == f"device profile {name}: {caught.value.problem}"
    return caught.value.problem


def profile(name: str, *groups: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "groups": groups}


def test_file_in_cyborgs_format_is_read(path: Path) -> None:
    described = {
        "uuid": "5a8c6b3f-1111-4a6b-9d1c-0a1b2c3d4e5f",
        "description": "an FPGA",
        "created_at": "2031-01-01 00:00:00+00:00",
        "links": [{"href": "http://cyborg.example/accelerator/v2", "rel": "self"}],
    }
    listed = [profile("slow", {"resources:SSD": 1}), profile("fast", FPGA) | described]
    path.write_text(json.dumps({"device_profiles": listed}))

    assert ProfileFile(path).groups("fast") == [FPGA]
    assert ProfileFile(path).groups("slow") == [{"resources:SSD": 1}]


def test_profile_file_is_read_at_each_request(path: Path) -> None:
    source = ProfileFile(path)
    for amount in ("1", "2"):
        groups = [{"resources:FPGA": amount}]
        path.write_text(json.dumps({"device_profiles": [profile("fast", *groups)]}))
        assert source.groups("fast") == groups


def test_missing_file_is_an_error_that_names_it(path: Path) -> None:
    assert unread(path) == f"{path}: No such file or directory."


def test_directory_is_an_error_that_names_it(tmp_path: Path) -> None:
    assert unread(tmp_path) == f"{tmp_path}: Is a directory."


#: JSON without a list of device profiles.
NO_LISTS: list[Any] = [
    None,
    [],
    "fast",
    {},
    {"profiles": []},
    {"device_profiles": None},
    {"device_profiles": {}},
    {"device_profiles": {"fast": [FPGA]}},
    {"device_profiles": ["fast"]},
    {"device_profiles": [{}]},
    {"device_profiles": [{"name": "fast"}]},
    {"device_profiles": [{"groups": [FPGA]}]},
    {"device_profiles": [{"name": None, "groups": [FPGA]}]},
    {"device_profiles": [{"name": 1, "groups": [FPGA]}]},
    {"device_profiles": [profile("fast", FPGA), {"name": "slow"}]},
]
#: JSON with invalid groups of a device profile.
NO_GROUPS: list[Any] = [
    None,
    FPGA,
    "FPGA",
    [None],
    ["FPGA"],
    [[FPGA]],
    [FPGA, None],
]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b'{"device_profiles": [{"name": "\xe9", "groups": []}]}',
        b'{"device_profiles": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        *(json.dumps(wrong).encode() for wrong in NO_LISTS),
    ],
    ids=lambda content: ascii(content[:70]),
)
def test_file_in_another_format_is_an_error_that_names_it(path: Path, content: bytes) -> None:
    path.write_bytes(content)

    assert unread(path).startswith(f"{path} has no list of device profiles: ")


@pytest.mark.parametrize("groups", NO_GROUPS, ids=json.dumps)
def test_invalid_groups_are_an_error_of_their_profile_alone(path: Path, groups: Any) -> None:
    wrong = {"name": "fast", "groups": groups}
    path.write_text(json.dumps({"device_profiles": [wrong, profile("slow", FPGA)]}))

    assert unread(path).startswith(f"{path} has invalid groups: ")
    assert ProfileFile(path).groups("slow") == [FPGA]


def test_missing_profile_is_an_error_with_the_existing_names(path: Path) -> None:
    listed = [profile(f"p{number:02}", FPGA) for number in reversed(range(12))]
    path.write_text(json.dumps({"device_profiles": listed}))

    shown = ", ".join(f"p{number:02}" for number in range(10))
    assert unread(path) == f"{path} has none of that name; its device profiles are: {shown}."


def test_file_without_profiles_reports_the_missing_profile(path: Path) -> None:
    path.write_text('{"device_profiles": []}')

    assert unread(path) == f"{path} has none of that name."


def test_profile_name_used_twice_is_refused(path: Path) -> None:
    path.write_text(json.dumps({"device_profiles": [profile("fast", FPGA)] * 2}))

    assert unread(path).startswith(f"{path} has 2 of that name; ")


# Configuration.


def configured(directory: Path, *lines: str) -> conf.Options:
    path = directory / "test.conf"
    path.write_text("\n".join(["[accelerator]", *lines, ""]))
    return conf.parse([str(path)])


def test_configured_file_is_the_source_of_profiles(tmp_path: Path, path: Path) -> None:
    path.write_text(json.dumps({"device_profiles": [profile("fast", FPGA)]}))
    opts = configured(tmp_path, f"device_profiles = {path}")

    assert read_from(opts, "fast") == asked(FPGA)
    with pytest.raises(DeviceProfileError, match=f"device profile slow: {path} has none"):
        read_from(opts, "slow")


def test_configured_authentication_uses_cyborg(tmp_path: Path) -> None:
    opts = configured(tmp_path, "auth_type = none", "endpoint_override = http://127.0.0.1:1")

    assert isinstance(open_source(opts), CyborgProfiles)


def test_cyborg_without_an_answer_is_an_error_of_the_profile(tmp_path: Path) -> None:
    opts = configured(tmp_path, "auth_type = none", "endpoint_override = http://127.0.0.1:1")

    with pytest.raises(DeviceProfileError, match="device profile fast: Cyborg does not answer: "):
        read_from(opts, "fast")


def test_device_profile_without_a_source_is_an_error_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read_from(configured(tmp_path), "fast")
    assert (caught.value.section, caught.value.key) == ("accelerator", "auth_type")
    assert "no source of device profiles is set" in caught.value.problem
    assert caught.value.remedy == (
        "To read profiles from Cyborg, set auth_type and its options. To read profiles from a "
        "file, set device_profiles."
    )
