"""``wharfinger candidate``: what could be allocated, and whose it is."""

import json
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from tests.functional.scheduling.hosts import AGGREGATE, publish
from tests.lab import inprocess, samples
from tests.lab import placement as lab
from tests.lab.objects import KeptInFile
from tests.lab.placement import Requests
from tests.lab.program import Done, Program
from tests.lab.samples import uuid
from wharfinger.cli import request_options
from wharfinger.objects import OWNER_TAG_VERSION
from wharfinger.placement.client import PlacementClient

ELSEWHERE = uuid("an aggregate that nobody is in")
NOTHING = "There are no candidates: `candidate explain` says why."
GPU = ("--resource", "VGPU=1")
#: What a candidate with a filter or two takes at the least.
OWNER_TRAITS = ["GET /traits?name=startswith:OWNER_", "GET /traits?name=startswith:CUSTOM_OWNER_"]


@pytest.fixture
def unanswered(tmp_path: Path) -> Program:
    """The program, where nobody answers who is asked for anything."""
    return Program(tmp_path, "http://127.0.0.1:9")


def run(program: Program, *arguments: str) -> Done:
    return inprocess.run(program, "candidate", "list", *arguments)


def listed(program: Program, *arguments: str) -> list[dict[str, Any]]:
    """The rows, where nothing else is said."""
    done = run(program, *arguments, "-f", "json")
    assert (done.code, done.err) == (0, "")
    rows: list[dict[str, Any]] = done.json()
    return rows


def givers(rows: Iterable[dict[str, Any]]) -> list[str]:
    """Of each candidate, the providers; sorted, since Placement's order is anyhow."""
    candidates = groupby(rows, key=lambda row: row["Candidate"])
    return sorted(" ".join(row["Provider"] for row in its) for _number, its in candidates)


def found(program: Program, *arguments: str) -> list[str]:
    """Of each candidate, the providers, whatever else is said."""
    done = run(program, *arguments, "-f", "json")
    assert done.code == 0
    return givers(done.json())


def configure(program: Program, *lines: str) -> None:
    """Add to the configuration."""
    program.config.write_text("\n".join((program.config.read_text(), *lines, "")))


def close_gates(kept: KeptInFile, *owners: str) -> None:
    """All that is published for owners is tagged, as the only service of each says."""
    for number, owner in enumerate(owners):
        samples.service(kept.context, number, version=OWNER_TAG_VERSION, owners=[owner]).create()


def has_flavor(kept: KeptInFile, **specs: str) -> None:
    """The flavor gpu, id 1, asks for 2 VCPU and what is given."""
    own = {"resources:MEMORY_MB": "0", **{key.replace("__", ":"): specs[key] for key in specs}}
    samples.flavor(kept.context, flavorid="1", name="gpu", extra_specs=own).create()


def has_profiles(program: Program, **profiles: list[dict[str, str]]) -> None:
    """Device profiles are kept in a file, and these are there."""
    file = program.directory / "profiles.json"
    kept = [{"name": name, "groups": groups} for name, groups in profiles.items()]
    file.write_text(json.dumps({"device_profiles": kept}))
    configure(program, "[accelerator]", f"device_profiles = {file}")


def wrong_usage(done: Done, told: str) -> None:
    """It was not understood, and says why."""
    assert (done.code, done.out) == (64, "")
    assert told in done.err
    assert "Traceback" not in done.err


def failed(done: Done, *told: str) -> None:
    """It failed, and says why in one line."""
    assert (done.code, done.out) == (1, "")
    [line] = done.err.splitlines()
    for part in told:
        assert part in line


# What is shown.


def test_candidates_are_listed_provider_by_provider(hosts: Program) -> None:
    done = hosts.run(
        *("candidate", "list", *GPU, "--resource", "VCPU=2", "--resource", "DISK_GB:5"),
        *("--required", "CUSTOM_FAST", "-f", "json"),
    )

    assert (done.code, done.err) == (0, "")
    assert done.json() == [
        {
            "Candidate": 1,
            "Provider": "cn",
            "UUID": uuid("cn"),
            "Owner": "OWNER_NOVA",
            "Allocation": {"VCPU": 2},
            "Groups": [""],
            "Used/Capacity": {"VCPU": {"used": 0, "capacity": 8}},
        },
        {
            "Candidate": 1,
            "Provider": "n",
            "UUID": uuid("n"),
            "Owner": "OWNER_NOVA",
            "Allocation": {"VGPU": 1},
            "Groups": [""],
            "Used/Capacity": {"VGPU": {"used": 0, "capacity": 4}},
        },
        {
            "Candidate": 1,
            "Provider": "s",
            "UUID": uuid("s"),
            "Owner": "",
            "Allocation": {"DISK_GB": 5},
            "Groups": [""],
            "Used/Capacity": {"DISK_GB": {"used": 0, "capacity": 100}},
        },
    ]


def test_a_table_is_for_people(hosts: Program, client: PlacementClient) -> None:
    publish(client, "box", {"VCPU": 8, "SRIOV_NET_VF": 6}, "OWNER_NOVA")

    done = run(
        hosts,
        *("--resource", "VCPU=1", "--group", "_NET", "--resource", "SRIOV_NET_VF=2"),
        *("-c", "Candidate", "-c", "Provider", "-c", "Allocation", "-c", "Groups"),
        *("-c", "Used/Capacity"),
    )

    assert (done.code, done.err) == (0, "")
    [first, second] = done.out.splitlines()[3:-1]
    cells = zip(
        *([cell.strip() for cell in line.split("|")] for line in (first, second)), strict=True
    )
    assert list(cells)[1:-1] == [
        ("1", ""),
        ("box", ""),
        ("SRIOV_NET_VF=2", "VCPU=1"),
        ("(no suffix)", "_NET"),
        ("SRIOV_NET_VF=0/6", "VCPU=0/8"),
    ]


@pytest.mark.parametrize("form", ["json", "yaml", "csv", "table", "value"])
def test_every_format_has_all_of_it(hosts: Program, form: str) -> None:
    done = run(hosts, *GPU, "--required", "OWNER_CYBORG,!CUSTOM_FAST", "-f", form)

    assert (done.code, done.err) == (0, "")
    for part in ("y", uuid("y"), "OWNER_CYBORG", "VGPU"):
        assert part in done.out


def test_what_is_taken_already_is_shown(hosts: Program, client: PlacementClient) -> None:
    consumer = {
        "allocations": {uuid("n"): {"resources": {"VGPU": 3}}},
        "consumer_generation": None,
        "project_id": "project",
        "user_id": "user",
        "consumer_type": "INSTANCE",
    }
    client.set_allocations({uuid("consumer"): consumer})

    [row] = listed(hosts, *GPU, "--required", "CUSTOM_FAST")

    assert row["Used/Capacity"] == {"VGPU": {"used": 3, "capacity": 4}}


def test_a_provider_is_there_with_each_group_that_it_serves(hosts: Program) -> None:
    rows = listed(
        hosts,
        *("--group", "_A", *GPU, "--required", "CUSTOM_FAST"),
        *("--group", "_B", "--resource", "VGPU=2", "--required", "CUSTOM_FAST"),
        *("--group", "_TOP", "--required", "OWNER_NOVA", "--same-subtree", "_A,_B,_TOP"),
    )

    assert [
        (row["Provider"], row["Allocation"], row["Groups"]) for row in rows if row["Candidate"] == 1
    ] in (
        [("cn", {}, ["_TOP"]), ("n", {"VGPU": 3}, ["_A", "_B"])],
        [("n", {"VGPU": 3}, ["_A", "_B", "_TOP"])],
    )
    assert givers(rows) == ["cn n", "n"]


def test_what_a_name_has_in_it_does_not_reach_the_terminal(
    hosts: Program, client: PlacementClient
) -> None:
    client.update_provider(uuid("n"), "\x1b[31mevil\x1b[0m", uuid("cn"))

    for form in ("table", "csv", "value", "json"):
        done = run(hosts, *GPU, "--required", "CUSTOM_FAST", "-f", form)
        assert "\x1b" not in done.out
        assert "x1b[31mevil" in done.out


# What is asked of Placement.


def test_a_list_takes_four_requests(hosts: Program, requests: Requests) -> None:
    listed(hosts, *GPU, "--required", "CUSTOM_FAST")

    assert requests.seen == [
        *OWNER_TRAITS,
        "GET /allocation_candidates?resources=VGPU:1"
        "&required=CUSTOM_FAST,!CUSTOM_OWNER_ACME,!OWNER_CYBORG"
        "&root_required=!COMPUTE_STATUS_DISABLED&limit=1000",
        "GET /resource_providers",
    ]


def test_names_are_asked_for_where_there_are_any(hosts: Program, requests: Requests) -> None:
    run(hosts, "--resource", "VGPU=5")

    assert requests.seen[:2] == OWNER_TRAITS
    assert requests.seen[2].startswith("GET /allocation_candidates?resources=VGPU:5&")
    # There is nothing: perhaps Placement does not know what is asked for.
    assert requests.seen[3:] == ["GET /traits?name=startswith:", "GET /resource_classes"]


def test_nothing_but_the_request_is_asked_without_filters(
    hosts: Program, requests: Requests
) -> None:
    listed(hosts, *GPU, "--no-filters", "--limit", "7")

    assert requests.seen == [
        "GET /allocation_candidates?resources=VGPU:1&limit=7",
        "GET /resource_providers",
    ]
    assert not (hosts.directory / "wharfinger.sqlite").exists()


def test_wrong_usage_asks_nothing(hosts: Program, requests: Requests) -> None:
    wrong_usage(run(hosts, *GPU, "--group", "1"), "group 1 asks for nothing")

    assert not requests


# Whose it is.


def test_as_long_as_the_gate_is_off_what_nobody_has_tagged_is_offered(hosts: Program) -> None:
    assert givers(listed(hosts, *GPU)) == ["n", "u"]


def test_behind_the_gate_there_is_what_the_owner_has(hosts: Program, kept: KeptInFile) -> None:
    close_gates(kept, "OWNER_NOVA")

    assert givers(listed(hosts, *GPU)) == ["n"]
    assert givers(listed(hosts, *GPU, "--owner", "OWNER_CYBORG")) == ["u", "y"]


@pytest.mark.parametrize(
    ("owner", "offered"),
    [("OWNER_NOVA", "n"), ("OWNER_CYBORG", "y"), ("CUSTOM_OWNER_ACME", "a")],
)
def test_the_owner_is_the_one_who_is_named(
    hosts: Program, kept: KeptInFile, requests: Requests, owner: str, offered: str
) -> None:
    close_gates(kept, owner)

    for option in ("--owner", "--required"):
        requests.clear()
        rows = listed(hosts, *GPU, option, owner)
        assert [(row["Provider"], row["Owner"]) for row in rows] == [(offered, owner)]
        assert len(requests) == 4


def test_without_an_owner_there_is_what_nobody_has_tagged(hosts: Program, kept: KeptInFile) -> None:
    close_gates(kept, "OWNER_NOVA")

    assert givers(listed(hosts, *GPU, "--owner", "none")) == ["u"]


def test_each_group_has_its_own_owner(hosts: Program, kept: KeptInFile) -> None:
    close_gates(kept, "OWNER_NOVA", "OWNER_CYBORG")

    rows = listed(
        hosts, *GPU, "--group", "_Y", *GPU, "--owner", "OWNER_CYBORG", "--group", "_N", *GPU
    )

    assert [(row["Provider"], row["Groups"]) for row in rows] == [("n", ["", "_N"]), ("y", ["_Y"])]


def test_what_filters_drop_is_counted(hosts: Program, kept: KeptInFile) -> None:
    close_gates(kept, "OWNER_NOVA")

    done = run(hosts, *GPU, "--resource", "VCPU=1", "-f", "json")

    assert (done.code, givers(done.json())) == (0, ["cn n"])
    assert done.err == (
        "Request filters dropped candidates: 1 by owner. -v tells why, of the first.\n"
    )


def test_why_it_was_dropped_is_told_to_who_asks(hosts: Program, kept: KeptInFile) -> None:
    close_gates(kept, "OWNER_NOVA")

    done = hosts.run("-v", "candidate", "list", *GPU, "--resource", "VCPU=1", "-f", "json")

    assert givers(done.json()) == ["cn n"]
    assert f"for OWNER_NOVA from {uuid('u')}, which belongs to nobody" in done.err


def test_that_all_were_dropped_is_told(
    hosts: Program, kept: KeptInFile, client: PlacementClient
) -> None:
    close_gates(kept, "OWNER_NOVA")
    client.set_traits(uuid("n"), client.get_traits(uuid("n")).resource_provider_generation, [])

    done = run(hosts, *GPU, "--resource", "VCPU=1", "-f", "json")

    assert (done.code, done.json()) == (0, [])
    assert done.err == (
        "Request filters dropped candidates: 2 by owner. -v tells why, of the first.\n"
        f"{NOTHING} --no-filters lists what there is without compute_status, owner.\n"
    )


def test_that_there_is_nothing_is_told(hosts: Program) -> None:
    for form in ("table", "json"):
        done = run(hosts, "--resource", "VGPU=5", "-f", form)
        assert (done.code, done.out.strip()) == (0, "" if form == "table" else "[]")
        assert done.err == (
            f"{NOTHING} --no-filters lists what there is without compute_status, owner.\n"
        )


def test_without_filters_there_is_all_that_placement_has(hosts: Program, kept: KeptInFile) -> None:
    close_gates(kept, "OWNER_NOVA")

    assert givers(listed(hosts, *GPU, "--no-filters")) == ["a", "n", "u", "y"]
    assert run(hosts, "--resource", "VGPU=5", "--no-filters").err == f"{NOTHING}\n"


def test_the_filters_are_those_that_are_configured(hosts: Program, kept: KeptInFile) -> None:
    close_gates(kept, "OWNER_NOVA")
    configure(hosts, "[scheduling]", "request_filters = compute_status")

    assert givers(listed(hosts, *GPU)) == ["a", "n", "u", "y"]
    assert run(hosts, "--resource", "VGPU=5").err.endswith(" without compute_status.\n")


def test_a_filter_that_there_is_not_is_told(hosts: Program) -> None:
    configure(hosts, "[scheduling]", "request_filters = owner, weather")

    failed(run(hosts, *GPU), "[scheduling] request_filters", "weather", "compute_status, owner")
    assert run(hosts, *GPU, "--no-filters").code == 0


def test_what_nobody_has_tagged_is_offered_where_that_is_configured(
    hosts: Program, kept: KeptInFile
) -> None:
    close_gates(kept, "OWNER_NOVA")
    configure(hosts, "[scheduling]", "untagged = allow")

    assert givers(listed(hosts, *GPU)) == ["n", "u"]


def test_what_a_disabled_service_publishes_is_not_offered(
    hosts: Program, client: PlacementClient
) -> None:
    now = client.get_traits(uuid("cn"))
    disabled = {*now.traits, "COMPUTE_STATUS_DISABLED"}
    client.set_traits(uuid("cn"), now.resource_provider_generation, disabled)

    assert run(hosts, *GPU, "-f", "json").json() == []
    assert givers(listed(hosts, *GPU, "--no-filters")) == ["a", "n", "u", "y"]


def test_an_owner_of_whom_nobody_has_heard_is_told(hosts: Program, requests: Requests) -> None:
    done = run(hosts, *GPU, "--owner", "CUSTOM_OWNER_ACNE", "-f", "json")

    assert (done.code, givers(done.json())) == (0, ["u"])
    assert done.err == (
        "request: owner = 'CUSTOM_OWNER_ACNE': Placement knows no such trait. "
        "Did you mean CUSTOM_OWNER_ACME?\n"
    )
    assert requests.seen[3:5] == OWNER_TRAITS


# What can be asked for.


CONDITIONS = {
    "--required CUSTOM_FAST": "n",
    "--required !CUSTOM_FAST": "a u y",
    "--forbidden CUSTOM_FAST": "a u y",
    "--forbidden CUSTOM_FAST --forbidden OWNER_CYBORG": "a u",
    "--required CUSTOM_FAST,OWNER_NOVA": "n",
    "--required CUSTOM_FAST --required OWNER_CYBORG": "",
    "--required in:CUSTOM_FAST,OWNER_CYBORG": "n y",
    "--required in:CUSTOM_FAST,OWNER_CYBORG --forbidden CUSTOM_FAST": "y",
    "--required in:CUSTOM_FAST,OWNER_CYBORG --required in:OWNER_CYBORG": "y",
    "--required in:CUSTOM_FAST,OWNER_CYBORG --required in:OWNER_CYBORG,HW_GPU_API_VULKAN": "y",
    "--in-tree cn": "a n u y",
    "--in-tree u": "a n u y",
    f"--in-tree {uuid('y')}": "a n u y",
    "--in-tree s": "",
    "--root-required OWNER_NOVA --root-required !CUSTOM_FAST": "a n u y",
    "--root-required !OWNER_NOVA": "",
    "--root-required OWNER_CYBORG": "",
}


@pytest.mark.parametrize("group", [(), ("--group", "_GPU")])
def test_a_group_has_conditions(hosts: Program, group: tuple[str, ...]) -> None:
    def offered(conditions: str) -> str:
        return " ".join(found(hosts, *group, *GPU, "--no-filters", *conditions.split()))

    assert {conditions: offered(conditions) for conditions in CONDITIONS} == CONDITIONS


AGGREGATES = {
    f"--member-of {AGGREGATE}": "cn",
    f"--member-of {ELSEWHERE},{AGGREGATE}": "cn",
    f"--member-of {AGGREGATE} --member-of {ELSEWHERE}": "",
    f"--not-member-of {AGGREGATE}": "box",
    f"--not-member-of {ELSEWHERE}": "box cn",
    f"--not-member-of {ELSEWHERE},{AGGREGATE}": "box",
    f"--not-member-of {ELSEWHERE} --not-member-of {AGGREGATE}": "box",
}


def test_aggregates_are_conditions_too(hosts: Program, client: PlacementClient) -> None:
    publish(client, "box", {"VCPU": 4}, "OWNER_NOVA")

    def offered(conditions: str) -> str:
        return " ".join(found(hosts, "--resource", "VCPU=1", *conditions.split()))

    assert {conditions: offered(conditions) for conditions in AGGREGATES} == AGGREGATES


def test_options_are_of_the_group_before_them(hosts: Program, requests: Requests) -> None:
    listed(
        hosts,
        *("--resource", "VCPU=1", "--forbidden", "CUSTOM_FAST"),
        *("--group", "1", *GPU, "--required", "CUSTOM_FAST", "--in-tree", uuid("n")),
        *("--group", "_B-2", "--limit", "3", *GPU, "--group-policy", "none", "--no-filters"),
    )

    [_by_name, _by_uuid, asked, _names] = requests.seen
    assert asked == (
        "GET /allocation_candidates?resources=VCPU:1&required=!CUSTOM_FAST"
        f"&resources1=VGPU:1&required1=CUSTOM_FAST&in_tree1={uuid('n')}"
        "&resources_B-2=VGPU:1&group_policy=none&limit=3"
    )


def test_groups_may_share_a_provider_unless_they_are_isolated(hosts: Program) -> None:
    fast = (*GPU, "--required", "CUSTOM_FAST")
    both = ("--group", "1", *fast, "--group", "2", *fast)

    for policy in ((), ("--group-policy", "none")):
        assert givers(listed(hosts, *both, *policy)) == ["n"]
    assert run(hosts, *both, "--group-policy", "isolate", "-f", "json").json() == []


def test_a_provider_is_looked_for_once(hosts: Program, requests: Requests) -> None:
    listed(hosts, *GPU, "--in-tree", "cn", "--group", "1", *GPU, "--in-tree", "cn")

    assert requests.seen.count("GET /resource_providers?name=cn") == 1


def test_there_are_no_more_than_are_wanted(hosts: Program) -> None:
    assert len(listed(hosts, *GPU, "--no-filters", "--limit", "3")) == 3


def test_a_limit_is_of_what_filters_let_through(hosts: Program, kept: KeptInFile) -> None:
    close_gates(kept, "OWNER_NOVA")

    done = run(hosts, *GPU, "--resource", "VCPU=1", "--limit", "1", "-f", "json")

    assert givers(done.json()) == ["cn n"]


def test_that_there_may_be_more_is_told_to_who_wanted_all(
    hosts: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_options, "LIMIT", 4)
    told = "These are 4 candidates, and there may be more: see --limit.\n"

    assert run(hosts, *GPU, "--no-filters").err == told
    assert run(hosts, *GPU).err == ""
    assert run(hosts, *GPU, "--no-filters", "--limit", "4").err == ""


# A flavor.


@pytest.mark.parametrize("flavor", ["1", "gpu"])
def test_a_flavor_is_asked_for_by_id_and_by_name(
    hosts: Program, kept: KeptInFile, flavor: str
) -> None:
    has_flavor(kept, resources__VGPU="1", trait__CUSTOM_FAST="required")

    rows = listed(hosts, "--flavor", flavor)

    assert [(row["Provider"], row["Allocation"]) for row in rows] == [
        ("cn", {"VCPU": 2}),
        ("n", {"VGPU": 1}),
    ]


def test_a_flavor_is_joined_by_groups(hosts: Program, kept: KeptInFile) -> None:
    close_gates(kept, "OWNER_NOVA")
    has_flavor(kept, resources_G__VGPU="1")

    rows = listed(
        hosts,
        *("--flavor", "gpu", "--group", "_Y", *GPU, "--required", "OWNER_CYBORG"),
        *("--forbidden", "CUSTOM_FAST", "--same-subtree", "_G,_Y,_TOP", "--group", "_TOP"),
        *("--required", "OWNER_NOVA", "--forbidden", "CUSTOM_FAST"),
    )

    assert [(row["Provider"], row["Groups"]) for row in rows if row["Owner"] == "OWNER_CYBORG"] == [
        ("y", ["_Y"])
    ]
    assert {row["Provider"] for row in rows if "_G" in row["Groups"]} == {"n"}


def test_a_flavors_group_policy_holds_unless_another_is_said(
    hosts: Program, kept: KeptInFile, requests: Requests
) -> None:
    has_flavor(kept, resources_G__VGPU="1", resources_H__VGPU="1", group_policy="isolate")

    for arguments, policy in (
        ((), "isolate"),
        (("--group", "1", *GPU), "isolate"),
        (("--group-policy", "none"), "none"),
    ):
        requests.clear()
        run(hosts, "--flavor", "gpu", *arguments, "--no-filters")
        assert f"&group_policy={policy}&" in requests.seen[0]


def test_a_flavor_has_the_group_without_a_suffix_already(hosts: Program, kept: KeptInFile) -> None:
    has_flavor(kept)

    wrong_usage(
        run(hosts, "--flavor", "gpu", *GPU),
        "argument --group: the group without a suffix is the flavor's: begin one for what else",
    )


def test_a_flavor_that_is_not_there_is_named(hosts: Program) -> None:
    failed(run(hosts, "--flavor", "gpu"), "there is no Flavor gpu")


@pytest.mark.parametrize(
    ("specs", "told"),
    [
        ({"resources__VGPU": "many"}, "resources:VGPU = 'many': an amount is a whole number"),
        ({"resources__vgpu": "1"}, "resources:vgpu = '1': that cannot be a resource class"),
        ({"resource__VGPU": "1"}, "resource:VGPU = '1': nothing is asked for by that"),
        ({"trait__CUSTOM_FAST": "yes"}, "trait:CUSTOM_FAST = 'yes': a trait is required or for"),
        ({"group_policy": "any"}, "group_policy = 'any': it is none or isolate"),
        (
            {"resources1__VGPU": "1", "resources2__VGPU": "1"},
            "group_policy = '': there are groups 1, 2: say whether",
        ),
    ],
)
def test_what_is_wrong_in_a_flavor_is_told(
    hosts: Program, kept: KeptInFile, requests: Requests, specs: dict[str, str], told: str
) -> None:
    has_flavor(kept, **specs)

    failed(run(hosts, "--flavor", "gpu"), "flavor gpu: ", told)
    assert not requests


# A device profile.


def test_a_device_profile_is_asked_for_as_cyborgs(hosts: Program, kept: KeptInFile) -> None:
    close_gates(kept, "OWNER_CYBORG")
    has_profiles(hosts, gold=[{"resources:VGPU": "1", "accel:function_id": "3AFB"}])

    [row] = listed(hosts, "--device-profile", "gold")

    assert (row["Provider"], row["Owner"]) == ("y", "OWNER_CYBORG")
    assert row["Groups"] == ["device_profile_0"]


def test_a_flavor_is_joined_by_its_device_profile(hosts: Program, kept: KeptInFile) -> None:
    close_gates(kept, "OWNER_NOVA", "OWNER_CYBORG")
    has_profiles(hosts, gold=[{"resources:VGPU": "1"}, {"resources:VGPU": "2"}])
    has_flavor(kept, resources__VGPU="1", accel__device_profile="gold")

    rows = run(hosts, "--flavor", "gpu", "-f", "json").json()

    assert [(row["Provider"], row["Allocation"], row["Groups"]) for row in rows] == [
        ("cn", {"VCPU": 2}, [""]),
        ("n", {"VGPU": 1}, [""]),
        ("y", {"VGPU": 3}, ["device_profile_0", "device_profile_1"]),
    ]


def test_a_flavor_is_joined_by_another_device_profile(hosts: Program, kept: KeptInFile) -> None:
    has_profiles(hosts, gold=[{"resources:VGPU": "1"}])
    has_flavor(kept)

    rows = listed(hosts, "--flavor", "gpu", "--device-profile", "gold")

    assert givers(rows) == ["cn u", "cn y"]


def test_one_of_two_device_profiles_is_too_many(hosts: Program, kept: KeptInFile) -> None:
    has_profiles(hosts, gold=[{"resources:VGPU": "1"}])
    has_flavor(kept, accel__device_profile="gold")

    wrong_usage(
        run(hosts, "--flavor", "gpu", "--device-profile", "gold"),
        "argument --device-profile: flavor gpu has one of its own: 'gold'",
    )


def test_a_device_profile_that_is_not_there_is_named(hosts: Program, kept: KeptInFile) -> None:
    has_profiles(hosts, gold=[], silver=[])
    has_flavor(kept, accel__device_profile="tin")

    for arguments in (("--device-profile", "tin"), ("--flavor", "gpu")):
        failed(run(hosts, *arguments), "device profile tin: ", "gold, silver")


def test_what_is_wrong_in_a_device_profile_is_told(hosts: Program) -> None:
    has_profiles(hosts, gold=[{"resources:VGPU": "1", "trait:CUSTOM_FAST": "yes"}])

    failed(
        run(hosts, "--device-profile", "gold"),
        "device profile gold, group 0: trait:CUSTOM_FAST = 'yes': a trait is required or forbidden",
    )


def test_where_device_profiles_are_has_to_be_configured(hosts: Program) -> None:
    failed(run(hosts, "--device-profile", "gold"), "[accelerator]", "device_profiles")


# What Placement does not know.


NO_TRAIT = "Placement knows no such trait."
NO_CLASS = "Placement knows no such resource class."
UNKNOWN = {
    "VGPU=1 --required CUSTOM_FASTER": (
        f"required = 'CUSTOM_FASTER': {NO_TRAIT} Did you mean CUSTOM_FAST?"
    ),
    "VGPU=1 --required in:OWNER_NOVA,CUSTOM_FATS": (
        f"required = 'CUSTOM_FATS': {NO_TRAIT} Did you mean CUSTOM_FAST?"
    ),
    "VGPU=1 --group _G --resource VGPU=1 --forbidden CUSTOM_FATS": (
        f"forbidden of group _G = 'CUSTOM_FATS': {NO_TRAIT} Did you mean CUSTOM_FAST?"
    ),
    "VGPU=1 --root-required QQQQQQQQ,OWNER_NOVA": f"root_required = 'QQQQQQQQ': {NO_TRAIT}",
    "CUSTOM_QQQQQQQQ=1": f"resources = 'CUSTOM_QQQQQQQQ': {NO_CLASS}",
    "VGPU=1 --group 1 --resource VGPUS=1": (
        f"resources of group 1 = 'VGPUS': {NO_CLASS} Did you mean VGPU?"
    ),
}


def test_a_name_that_placement_does_not_know_is_told(hosts: Program) -> None:
    def told(arguments: str) -> str:
        done = run(hosts, "--resource", *arguments.split())
        failed(done)
        return done.err.removeprefix("request: ").rstrip()

    assert {arguments: told(arguments) for arguments in UNKNOWN} == UNKNOWN


def test_a_name_in_a_flavor_that_placement_does_not_know_is_told(
    hosts: Program, kept: KeptInFile
) -> None:
    has_flavor(kept, trait__CUSTOM_FASTER="required")

    failed(run(hosts, "--flavor", "gpu"), "'CUSTOM_FASTER'", "Did you mean CUSTOM_FAST?")


def test_a_provider_that_is_not_there_is_named(hosts: Program) -> None:
    failed(run(hosts, *GPU, "--in-tree", "gone"), "no provider with the name or uuid 'gone'")


# An older Placement.


def test_a_choice_between_traits_is_refused_where_there_is_none(
    hosts: Program, requests: Requests, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.lower(monkeypatch, "1.38")

    done = run(hosts, *GPU, "--required", "in:CUSTOM_FAST,OWNER_NOVA", "--no-filters")

    failed(done, "in:CUSTOM_FAST,OWNER_NOVA", "needs microversion 1.39, the server has 1.38")
    assert not requests


def test_owners_are_kept_apart_where_there_is_no_choice_between_traits(
    hosts: Program, kept: KeptInFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.lower(monkeypatch, "1.38")
    close_gates(kept, "OWNER_NOVA")

    done = run(hosts, *GPU, "-f", "json")

    assert (done.code, givers(done.json())) == (0, ["n"])
    assert done.err.startswith("Request filters dropped candidates: 1 by owner.")


def test_which_group_takes_what_is_not_known_everywhere(
    hosts: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.lower(monkeypatch, "1.33")

    [row] = listed(hosts, *GPU, "--required", "CUSTOM_FAST")

    assert (row["Provider"], row["Allocation"], row["Groups"]) == ("n", {"VGPU": 1}, "?")


# Wrong usage.


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((), "say what is asked for: --flavor, --device-profile or --resource"),
        (("--limit", "3"), "say what is asked for"),
        (("--flavor", ""), "argument --flavor: '' is not text of 1 to 255"),
        (("--device-profile", ""), "argument --device-profile: '' is not text"),
        (("--resource", "VGPU"), "argument --resource: 'VGPU' is not CLASS=AMOUNT, such as VGPU=1"),
        (("--resource", ""), "argument --resource: '' is not CLASS=AMOUNT"),
        (("--resource", "=1"), "argument --resource: '=1': that cannot be a resource class"),
        (("--resource", "vgpu=1"), "argument --resource: 'vgpu=1': that cannot be a resource"),
        (("--resource", "VGPU="), "the amount of VGPU: '' is not a whole number from 1 to 21474"),
        (("--resource", "VGPU=0"), "the amount of VGPU: '0' is not a whole number"),
        (("--resource", "VGPU=1=1"), "the amount of VGPU: '1=1' is not a whole number"),
        (("--resource", "VGPU=2147483648"), "'2147483648' is not a whole number"),
        ((*GPU, "--resource", "VGPU:2"), "argument --resource: VGPU is given twice for one group"),
        ((*GPU, "--required", ""), "argument --required: '': a trait is missing"),
        ((*GPU, "--required", "in:"), "argument --required: 'in:': a trait is missing"),
        ((*GPU, "--required", "A,,B"), "argument --required: 'A,,B': a trait is missing"),
        ((*GPU, "--required", "a"), "argument --required: 'a': 'a' cannot be a trait"),
        ((*GPU, "--required", "in:A,!B"), "'in:A,!B': nothing after in: can be forbidden"),
        ((*GPU, "--required", "A,!A"), "argument --required: 'A,!A': A cannot be required and for"),
        ((*GPU, "--required", "A", "--forbidden", "A"), "argument --required: 'A !A': A cannot be"),
        (
            ("--group", "_G", *GPU, "--required", "in:A,B", "--required", "!A,!B"),
            "argument --required of group _G: 'in:A,B !A,!B': one of A and B is to be there",
        ),
        ((*GPU, "--forbidden", "A,B"), "argument --forbidden: 'A,B': 'A,B' cannot be a trait"),
        ((*GPU, "--forbidden", "!A"), "argument --forbidden: '!A': '!A' cannot be a trait"),
        ((*GPU, "--member-of", "x"), "argument --member-of: 'x' is not a uuid"),
        ((*GPU, "--member-of", f"{AGGREGATE},"), "argument --member-of: '' is not a uuid"),
        ((*GPU, "--not-member-of", "x"), "argument --not-member-of: 'x' is not a uuid"),
        ((*GPU, "--in-tree", ""), "argument --in-tree: '' is not text"),
        ((*GPU, *("--in-tree", "cn") * 2), "argument --in-tree: is given twice for one group"),
        ((*GPU, "--owner", "me"), "argument --owner: owner trait name 'me': must be OWNER_NOVA"),
        ((*GPU, *("--owner", "none") * 2), "argument --owner: is given twice for one group"),
        (
            (*GPU, "--owner", "none", "--required", "in:OWNER_NOVA,CUSTOM_FAST"),
            "argument --owner: 'none': --required names OWNER_NOVA: leave one out",
        ),
        (
            (*GPU, "--owner", "OWNER_CYBORG", "--required", "OWNER_NOVA"),
            "argument --required of the group without a suffix: 'OWNER_CYBORG,OWNER_NOVA': "
            "a provider has one owner",
        ),
        (
            ("--group", "1", *GPU, "--required", "OWNER_CYBORG,OWNER_NOVA"),
            "argument --required of group 1: 'OWNER_CYBORG,OWNER_NOVA': a provider has one owner",
        ),
        (("--group", "", *GPU), "argument --group: name the group"),
        (("--group", "a.b", *GPU), "argument --group: 'a.b': a group's suffix is of letters"),
        (("--group", "1", *GPU, "--group", "1"), "argument --group: 1 is given twice"),
        ((*GPU, "--group", "1"), "argument --resource: group 1 asks for nothing, and stands in no"),
        (
            ("--required", "A", "--group", "1", *GPU),
            "argument --resource: the group without a suffix asks for nothing",
        ),
        (("--required", "A"), "argument --resource: nothing is asked for"),
        ((*GPU, "--group-policy", "any"), "argument --group-policy: invalid choice: 'any'"),
        ((*GPU, "--same-subtree", "1"), "argument --same-subtree: '1': there is no group of that"),
        ((*GPU, "--same-subtree", "1,"), "argument --same-subtree: name the group"),
        ((*GPU, "--same-subtree", "?"), "argument --same-subtree: '?': a group's suffix is of"),
        (
            (*GPU, "--root-required", "in:A,B"),
            "argument --root-required: 'in:A,B': a root's traits",
        ),
        (
            (*GPU, "--root-required", "A", "--root-required", "!A"),
            "argument --root-required: 'A !A': A cannot be required and forbidden",
        ),
        ((*GPU, "--limit", "0"), "argument --limit: '0' is not a whole number from 1 to"),
        ((*GPU, "--limit", "all"), "argument --limit: 'all' is not a whole number"),
    ],
)
def test_wrong_usage_is_told(unanswered: Program, arguments: tuple[str, ...], told: str) -> None:
    wrong_usage(run(unanswered, *arguments), told)


def test_that_nobody_answers_is_told(unanswered: Program) -> None:
    failed(run(unanswered, *GPU), "Placement: GET ", "no answer")
