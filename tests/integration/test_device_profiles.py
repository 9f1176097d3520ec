"""Device profiles in a real Cyborg, and requests for accelerators made of them."""

import threading
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import pytest
from webob.client import send_request_app

from tests.lab.faults import FAULTS, Ending, Fault, Interceptor
from tests.lab.program import Done, Program
from wharfinger.conf import load
from wharfinger.exceptions import ConfigurationError, DeviceProfileError, InvalidRequest
from wharfinger.objects import Flavor
from wharfinger.placement.client import PlacementClient
from wharfinger.placement.embedded import EmbeddedPlacement
from wharfinger.placement.trait_conditions import TraitConditions
from wharfinger.providers import Inventory
from wharfinger.scheduling import RequestGroup, ResourceRequest
from wharfinger.scheduling.extra_specs import from_flavor
from wharfinger.scheduling.profile_sources import read_profile
from wharfinger_harnesses.cyborg import Cyborg

OWNER = "OWNER_CYBORG"
FPGA = {"resources:FPGA": "1"}
#: What asks for the microversion in which a profile can be asked for by its name.
BY_NAME = {"OpenStack-API-Version": "accelerator 2.2"}
#: Two devices, and all that Cyborg takes in a profile.
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

#: What is asked for by a profile of FPGA alone.
ONE = RequestGroup(suffix="device_profile_0", resources={"FPGA": 1}, owner=OWNER)

ReadProfile = Callable[[str], ResourceRequest]


@pytest.fixture(scope="module")
def shared() -> Iterator[Cyborg]:
    with Cyborg() as cyborg:
        for name in ("one", "another"):
            cyborg.create_profile(name, FPGA)
        yield cyborg


@pytest.fixture
def cyborg(shared: Cyborg) -> Iterator[Cyborg]:
    before = len(shared.log())
    yield shared
    print(shared.log()[before:])  # is shown where a test has failed


def reading(directory: Path, *options: str) -> ReadProfile:
    """Reads device profiles with these options in [accelerator]."""
    path = directory / "wharfinger.conf"
    path.write_text("\n".join(["[accelerator]", *options, ""]))
    return partial(read_profile, load([str(path)]))


def at(url: str) -> tuple[str, ...]:
    """The options that lead to a service without keystone."""
    return "auth_type = none", f"endpoint_override = {url}"


@pytest.fixture
def read(cyborg: Cyborg, tmp_path: Path) -> ReadProfile:
    return reading(tmp_path, *at(cyborg.url))


# What is relied on in Cyborg's API.


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("trait:OWNER_CYBORG", "required", "should start with CUSTOM_"),
        ("trait:OWNER_NOVA", "forbidden", "should start with CUSTOM_"),
        ("trait:CUSTOM_FAST", "in:CUSTOM_FAST,CUSTOM_LARGE", "['required', 'forbidden']"),
        ("trait1:CUSTOM_FAST", "required", "must be of the form"),
        ("group_policy", "isolate", "must be of the form"),
        ("resources:VCPU", "1", "Unsupported resource class"),
    ],
)
def test_cyborg_refuses(cyborg: Cyborg, key: str, value: str, told: str) -> None:
    profile = {"name": "refused", "groups": [{**FPGA, key: value}]}
    answer = cyborg.ask("POST", "/device_profiles", [profile])
    assert answer.status_code == 400
    assert told in answer.text


def test_cyborg_finds_a_profile_by_its_name_from_2_2(cyborg: Cyborg) -> None:
    before = cyborg.ask("GET", "/device_profiles/one")
    found = cyborg.ask("GET", "/device_profiles/one", **BY_NAME)
    missing = cyborg.ask("GET", "/device_profiles/none", **BY_NAME)
    assert before.status_code == 406
    assert found.json()["device_profile"]["groups"] == [FPGA]
    assert missing.status_code == 404


def test_cyborg_lists_the_profiles_of_some_names_at_any_microversion(cyborg: Cyborg) -> None:
    cyborg.create_profile("listed", FPGA)
    answer = cyborg.ask("GET", "/device_profiles?name=one,listed,none").json()
    assert {profile["name"] for profile in answer["device_profiles"]} == {"one", "listed"}


# What a profile asks for.


def test_a_profile_asks_for_each_device_in_a_group_of_cyborgs(
    cyborg: Cyborg, read: ReadProfile
) -> None:
    cyborg.create_profile("mixed", *MIXED)
    assert read("mixed") == ResourceRequest(
        groups=(
            RequestGroup(
                suffix="device_profile_0",
                resources={"FPGA": 1},
                traits=TraitConditions(
                    required=frozenset({"CUSTOM_FAST", "CUSTOM_LARGE"}),
                    forbidden=frozenset({"CUSTOM_WORN"}),
                ),
                owner=OWNER,
            ),
            RequestGroup(
                suffix="device_profile_1", resources={"VGPU": 2, "CUSTOM_NIC": 1}, owner=OWNER
            ),
        ),
        group_policy="none",
    )


def test_groups_that_ask_for_nothing_are_left_out_and_the_others_keep_their_numbers(
    cyborg: Cyborg, read: ReadProfile
) -> None:
    cyborg.create_profile("sparse", {"accel:bitstream_id": "a"}, {}, {"resources:FPGA": "0"}, FPGA)
    group = RequestGroup(suffix="device_profile_3", resources={"FPGA": 1}, owner=OWNER)
    assert read("sparse") == ResourceRequest(groups=(group,))


def test_an_accel_key_without_a_value_is_passed_over(cyborg: Cyborg, read: ReadProfile) -> None:
    answer = cyborg.ask(
        "POST",
        "/device_profiles",
        [{"name": "valueless", "groups": [{**FPGA, "accel:function_name": None}]}],
    )
    assert answer.json()["groups"] == [{**FPGA, "accel:function_name": None}]
    assert read("valueless").groups == (ONE,)


def test_a_profile_of_accel_keys_alone_is_an_error(cyborg: Cyborg, read: ReadProfile) -> None:
    cyborg.create_profile("idle", {"accel:bitstream_id": "a"})
    with pytest.raises(DeviceProfileError, match=r"^device profile idle: it asks for no resources"):
        read("idle")


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("negative", "resources:FPGA", "-1"),
        ("huge", "resources:FPGA", "2147483648"),
        ("lower-case-class", "resources:CUSTOM_fast", "1"),
        ("lower-case-trait", "trait:CUSTOM_fast", "required"),
        ("two-words", "trait:CUSTOM_FAST CARD", "forbidden"),
    ],
)
def test_what_cyborg_takes_and_placement_would_not_is_an_error_that_names_it(
    cyborg: Cyborg, read: ReadProfile, name: str, key: str, value: str
) -> None:
    cyborg.create_profile(name, {"resources:VGPU": "1", key: value})
    with pytest.raises(InvalidRequest) as caught:
        read(name)
    assert caught.value.subject == f"device profile {name}, group 0"
    assert (caught.value.key, caught.value.value) == (key, value)


def test_a_trait_of_a_group_without_resources_is_an_error_that_names_it(
    cyborg: Cyborg, read: ReadProfile
) -> None:
    cyborg.create_profile("unasked", FPGA, {"trait:CUSTOM_FAST": "required"})
    with pytest.raises(InvalidRequest) as caught:
        read("unasked")
    assert caught.value.subject == "device profile unasked, group 1"
    assert (caught.value.key, caught.value.value) == ("trait:CUSTOM_FAST", "required")


def test_a_flavor_asks_for_its_own_and_for_what_its_profile_says(
    cyborg: Cyborg, read: ReadProfile
) -> None:
    cyborg.create_profile("of-a-flavor", *MIXED)
    specs = {"accel:device_profile": "of-a-flavor", "trait:CUSTOM_GOLD": "required"}
    request = from_flavor(_flavor(specs), read)
    own, *accelerators = request.groups
    assert own == RequestGroup(
        resources={"VCPU": 2, "MEMORY_MB": 512, "DISK_GB": 1},
        traits=TraitConditions(required=frozenset({"CUSTOM_GOLD"})),
        owner="OWNER_NOVA",
    )
    assert tuple(accelerators) == read("of-a-flavor").groups
    assert request.group_policy == "none"


def test_a_flavor_with_a_profile_that_is_not_there_is_an_error(read: ReadProfile) -> None:
    with pytest.raises(DeviceProfileError, match=r"^device profile lost: Cyborg has none"):
        from_flavor(_flavor({"accel:device_profile": "lost"}), read)


def test_what_cyborg_lists_is_a_file_of_profiles(
    cyborg: Cyborg, read: ReadProfile, tmp_path: Path
) -> None:
    cyborg.create_profile("kept", *MIXED)
    cyborg.create_profile("kept-too", FPGA)
    file = tmp_path / "profiles.json"
    file.write_bytes(cyborg.ask("GET", "/device_profiles").content)
    from_file = reading(tmp_path, f"device_profiles = {file}")
    assert from_file("kept") == read("kept")
    assert from_file("kept-too") == read("kept-too")


# How one is found.


@pytest.mark.parametrize(
    "name", ["", "on", "ONE", "one,another", "one&name=another", "one#", "../devices", "nördlich"]
)
def test_a_name_that_no_profile_has_is_an_error_that_names_it(read: ReadProfile, name: str) -> None:
    with pytest.raises(DeviceProfileError, match="Cyborg has none of that name") as caught:
        read(name)
    assert caught.value.name == name


@pytest.mark.parametrize(
    "options",
    [
        "auth_type = none\nendpoint_override = {url}",
        "auth_type = none\nendpoint = {url}",
        "auth_type = admin_token\nendpoint = {url}\ntoken = a",
        "auth_type = none\nendpoint_override = {url}/",
        "auth_type = none\nendpoint = {root}",
        "auth_type = none\nendpoint_override = {root}",
    ],
)
def test_keystoneauths_options_lead_to_cyborg(cyborg: Cyborg, tmp_path: Path, options: str) -> None:
    root = cyborg.url.removesuffix("/v2")
    read = reading(tmp_path, options.format(url=cyborg.url, root=root))
    assert read("one").groups == (ONE,)


# When it is not.


def test_a_cyborg_that_has_stopped_is_an_error_that_says_where_it_was(tmp_path: Path) -> None:
    with Cyborg() as cyborg:
        cyborg.create_profile("once", FPGA)
        read = reading(tmp_path, *at(cyborg.url))
        assert read("once").groups == (ONE,)
    with pytest.raises(DeviceProfileError, match="Cyborg does not answer") as caught:
        read("once")
    assert cyborg.url in str(caught.value)


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
def test_options_that_lead_nowhere_are_an_error_of_ours(tmp_path: Path, options: str) -> None:
    with pytest.raises((DeviceProfileError, ConfigurationError)):
        reading(tmp_path, options)("one")


@pytest.fixture
def intercepted(cyborg: Cyborg) -> Iterator[Interceptor]:
    """In front of Cyborg."""
    address = urlsplit(cyborg.url)

    def forward(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        environ |= {
            "HTTP_HOST": address.netloc,
            "SERVER_NAME": address.hostname,
            "SERVER_PORT": str(address.port),
        }
        answer: Iterable[bytes] = send_request_app(environ, start_response)
        return answer

    with Interceptor(forward) as interceptor:
        yield interceptor


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_a_fault_is_told_and_soon_forgotten(
    intercepted: Interceptor, tmp_path: Path, fault: Fault
) -> None:
    options = at(f"{intercepted.url}/accelerator/v2")
    patience = "timeout = 1" if fault.ending is Ending.LATE else ""

    intercepted.expect(0, fault)
    with pytest.raises(DeviceProfileError) as caught:
        reading(tmp_path, *options, patience)("one")
    assert intercepted.struck
    assert caught.value.name == "one"
    told = "has no list of device profiles" if fault.told == "not understood" else fault.told
    assert told in str(caught.value).lower()

    intercepted.expect()
    assert reading(tmp_path, *options)("one").groups == (ONE,)


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """A directory that another server, which knows nothing of Cyborg, has at this URL."""
    directory = tmp_path_factory.mktemp("elsewhere")
    handler = partial(QuietHandler, directory=str(directory))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield directory, f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


OTHERS = (
    "device profile found(, group 0)?: (Cyborg has no list of device profiles|"
    "Cyborg has groups that are none|resources:FPGA = .* an amount is a whole number)"
)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "<html><body>It works!</body></html>",
        "null",
        "[]",
        "{}",
        '{"versions": [{"id": "v3.14", "status": "stable"}]}',
        '{"device_profiles": null}',
        '{"device_profiles": {"found": {"groups": []}}}',
        '{"device_profiles": ["found"]}',
        '{"device_profiles": [{"name": "found"}]}',
        '{"device_profiles": [{"name": "found", "groups": {"resources:FPGA": "1"}}]}',
        '{"device_profiles": [{"name": "found", "groups": [["resources:FPGA", "1"]]}]}',
        '{"device_profiles": [{"name": "found", "groups": [{"resources:FPGA": ["1"]}]}]}',
        '{"device_profiles": [{"name": "found", "groups": [{"resources:FPGA": 1.5}]}]}',
    ],
)
def test_an_answer_that_is_not_cyborgs_is_an_error(
    elsewhere: tuple[Path, str], tmp_path: Path, content: str
) -> None:
    directory, url = elsewhere
    (directory / "device_profiles").write_text(content)
    with pytest.raises((DeviceProfileError, InvalidRequest), match=OTHERS):
        reading(tmp_path, *at(url))("found")


@pytest.mark.parametrize(("path", "status"), [("", 404), ("/accelerator/v2/device_profiles", 400)])
def test_where_no_profiles_are_none_is_said_to_be_missing(
    cyborg: Cyborg, tmp_path: Path, path: str, status: int
) -> None:
    root = cyborg.url.removesuffix("/accelerator/v2")
    with pytest.raises(DeviceProfileError, match=f"Cyborg answers {status}"):
        reading(tmp_path, *at(f"{root}{path}"))("any")


# What is there for one.


@pytest.fixture(scope="module")
def program(shared: Cyborg, tmp_path_factory: pytest.TempPathFactory) -> Program:
    """The program, with an accelerated host in its Placement and a profile in Cyborg for it."""
    shared.create_profile(
        "pair",
        {
            "resources:FPGA": "1",
            "trait:CUSTOM_FAST": "required",
            "trait:CUSTOM_WORN": "forbidden",
            "accel:function_id": "3AFB",
        },
        {"resources:VGPU": "2"},
    )
    program = Program(tmp_path_factory.mktemp("program"))
    with program.config.open("a") as config:
        config.write("\n".join(["[accelerator]", *at(shared.url), ""]))
    # There is one embedded Placement in a process, and in this one it may be another test's.
    publishing = get_context("spawn").Process(target=_publish_host, args=(program.directory,))
    publishing.start()
    publishing.join()
    assert publishing.exitcode == 0, "its traceback is on standard error"
    return program


def test_a_profile_is_given_cyborgs_devices_and_no_others(program: Program) -> None:
    found = program.run("candidate", "list", "--device-profile", "pair", "-f", "json")
    assert found.code == 0, found.err
    assert allocations(found) == [{"fast": {"FPGA": 1}, "cyborg-gpu": {"VGPU": 2}}]


def test_a_flavor_is_given_novas_host_and_the_devices_of_its_profile(program: Program) -> None:
    flavor = ("--vcpus", "2", "--ram", "512", "--disk", "1")
    profile = ("--property", "accel:device_profile=pair")
    created = program.run("flavor", "create", "gold", *flavor, *profile)
    found = program.run("candidate", "list", "--flavor", "gold", "-f", "json")
    assert created.code == found.code == 0, created.err + found.err
    assert allocations(found) == [
        {
            "host-1": {"VCPU": 2, "MEMORY_MB": 512, "DISK_GB": 1},
            "fast": {"FPGA": 1},
            "cyborg-gpu": {"VGPU": 2},
        }
    ]


def test_one_request_is_given_gpus_of_nova_and_of_cyborg(program: Program) -> None:
    both = ("--resource", "VGPU=1", "--device-profile", "pair")
    found = program.run("candidate", "list", *both, "-f", "json")
    assert found.code == 0, found.err
    assert allocations(found) == [
        {"nova-gpu": {"VGPU": 1}, "fast": {"FPGA": 1}, "cyborg-gpu": {"VGPU": 2}}
    ]


def test_a_profile_that_is_not_there_ends_the_command(program: Program) -> None:
    found = program.run("candidate", "list", "--device-profile", "none")
    assert (found.code, found.out) == (1, "")
    assert found.err == "device profile none: Cyborg has none of that name.\n"


def allocations(found: Done) -> list[dict[str, dict[str, int]]]:
    """Of each candidate, what of which provider."""
    rows = found.json()
    return [
        {row["Provider"]: row["Allocation"] for row in rows if row["Candidate"] == number}
        for number in sorted({row["Candidate"] for row in rows})
    ]


def _publish_host(directory: Path) -> None:
    """A host of nova's with devices of its own and of Cyborg's."""
    client = PlacementClient(EmbeddedPlacement(directory / "placement.sqlite").adapter)
    for trait in ("CUSTOM_FAST", "CUSTOM_WORN"):
        client.create_trait(trait)
    root = None
    for name, totals, traits in (
        ("host-1", {"VCPU": 8, "MEMORY_MB": 4096, "DISK_GB": 100}, ["OWNER_NOVA"]),
        ("nova-gpu", {"VGPU": 4}, ["OWNER_NOVA"]),
        ("cyborg-gpu", {"VGPU": 4}, [OWNER]),
        ("fast", {"FPGA": 1}, [OWNER, "CUSTOM_FAST"]),
        ("worn", {"FPGA": 1}, [OWNER, "CUSTOM_FAST", "CUSTOM_WORN"]),
        ("slow", {"FPGA": 1}, [OWNER]),
        ("nova-fpga", {"FPGA": 1}, ["OWNER_NOVA", "CUSTOM_FAST"]),
    ):
        created = client.create_provider(str(uuid4()), name, root)
        generation = client.set_traits(created.uuid, created.generation, traits)
        inventories = {kind: Inventory(total=total) for kind, total in totals.items()}
        client.set_inventories(created.uuid, generation, inventories)
        root = root or created.uuid


def _flavor(extra_specs: dict[str, str]) -> Flavor:
    return Flavor(
        name="gold",
        vcpus=2,
        memory_mb=512,
        root_gb=1,
        ephemeral_gb=0,
        swap=0,
        extra_specs=extra_specs,
    )
