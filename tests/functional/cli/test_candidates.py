"""``wharfinger candidate list``: options, output, exit codes and number of requests.

tests/functional/scheduling and tests/unit/scheduling test the candidates themselves.
"""

import json
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from tests.functional.cli.outcomes import configure, failed, shown
from tests.functional.scheduling.hosts import AGGREGATE, publish
from tests.lab import inprocess, samples
from tests.lab import placement as lab
from tests.lab.objects import KeptInFile
from tests.lab.placement import Requests
from tests.lab.program import Done, Program
from tests.lab.samples import uuid
from wharfinger.cli import request_options
from wharfinger.conformance.other_program_client import WritingClient
from wharfinger.objects import OWNER_TAG_VERSION

ELSEWHERE = uuid("an empty aggregate")
NOTHING = "No candidates. To see why, run `wharfinger candidate explain` with the same options."
GPU = ("--resource", "VGPU=1")
OWNER_TRAITS = ["GET /traits?name=startswith:OWNER_", "GET /traits?name=startswith:CUSTOM_OWNER_"]


def run(program: Program, *arguments: str) -> Done:
    return inprocess.run(program, "candidate", "list", *arguments)


def listed(program: Program, *arguments: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = shown(program, "candidate", "list", *arguments)
    return rows


def providers_of(rows: Iterable[dict[str, Any]]) -> list[str]:
    """Return the names of each candidate's providers, sorted: Placement's order is random."""
    candidates = groupby(rows, key=lambda row: row["Candidate"])
    return sorted(" ".join(row["Provider"] for row in its) for _number, its in candidates)


def offered(program: Program, *arguments: str) -> list[str]:
    """Return the names of each candidate's providers, even if the command warns."""
    done = run(program, *arguments, "-f", "json")
    assert done.code == 0, done
    return providers_of(done.json())


def close_gates(kept: KeptInFile, *owners: str) -> None:
    """Create services whose versions make requests use only providers with these owner traits."""
    for number, owner in enumerate(owners):
        samples.service(kept.context, number, version=OWNER_TAG_VERSION, owners=[owner]).create()


def has_flavor(kept: KeptInFile, **specs: str) -> None:
    """Create the flavor gpu, id 1, with 2 VCPU and these extra specs."""
    own = {"resources:MEMORY_MB": "0", **{key.replace("__", ":"): specs[key] for key in specs}}
    samples.flavor(kept.context, flavorid="1", name="gpu", extra_specs=own).create()


def has_profiles(program: Program, **profiles: list[dict[str, str]]) -> None:
    """Configure these device profiles in a file."""
    file = program.directory / "profiles.json"
    kept = [{"name": name, "groups": groups} for name, groups in profiles.items()]
    file.write_text(json.dumps({"device_profiles": kept}))
    configure(program, f"[accelerator]\ndevice_profiles = {file}")


def wrong_usage(done: Done, told: str) -> None:
    assert (done.code, done.out) == (64, "")
    assert told in done.err


# Output.


def test_candidate_list_has_a_row_per_provider(hosts: Program, client: WritingClient) -> None:
    consumer = {
        "allocations": {uuid("n"): {"resources": {"VGPU": 3}}},
        "consumer_generation": None,
        "project_id": "project",
        "user_id": "user",
        "consumer_type": "INSTANCE",
    }
    client.set_allocations({uuid("consumer"): consumer})

    rows = listed(
        hosts,
        *(*GPU, "--resource", "VCPU=2", "--resource", "DISK_GB:5"),
        *("--required", "CUSTOM_FAST"),
    )

    of_all = [
        ("cn", "OWNER_NOVA", "VCPU", 2, 0, 8),
        ("n", "OWNER_NOVA", "VGPU", 1, 3, 4),
        ("s", "", "DISK_GB", 5, 0, 100),
    ]
    assert rows == [
        {
            "Candidate": 1,
            "Provider": name,
            "UUID": uuid(name),
            "Owner": owner,
            "Allocation": {kind: amount},
            "Groups": [""],
            "Used/Capacity": {kind: {"used": used, "capacity": capacity}},
        }
        for name, owner, kind, amount, used, capacity in of_all
    ]


def test_candidate_list_as_table_is_readable(hosts: Program, client: WritingClient) -> None:
    publish(client, "box", {"VCPU": 8, "SRIOV_NET_VF": 6}, "OWNER_NOVA")

    done = run(
        hosts,
        *("--resource", "VCPU=1", "--group", "_NET", "--resource", "SRIOV_NET_VF=2"),
        *("-c", "Provider", "-c", "Allocation", "-c", "Groups", "-c", "Used/Capacity"),
    )

    assert (done.code, done.err) == (0, "")
    first, second = (
        [cell.strip() for cell in line.split("|")][1:-1] for line in done.out.splitlines()[3:-1]
    )
    assert first == ["box", "SRIOV_NET_VF=2", "(no suffix)", "SRIOV_NET_VF=0/6"]
    assert second == ["", "VCPU=1", "_NET", "VCPU=0/8"]


def test_candidate_list_of_every_format_escapes_control_characters(
    hosts: Program, client: WritingClient
) -> None:
    client.update_provider(uuid("y"), "\x1b[31mevil\x1b[0m", uuid("cn"))

    for form in ("table", "csv", "value", "json", "yaml"):
        done = run(hosts, *GPU, "--required", "OWNER_CYBORG", "-f", form)
        assert (done.code, done.err) == (0, "")
        assert "\x1b" not in done.out
        for part in ("x1b[31mevil", uuid("y"), "OWNER_CYBORG", "VGPU"):
            assert part in done.out


def test_candidate_list_of_groups_shows_each_group_of_a_provider(hosts: Program) -> None:
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
    assert providers_of(rows) == ["cn n", "n"]


# Requests to Placement.


def test_candidate_list_makes_four_requests(hosts: Program, requests: Requests) -> None:
    listed(hosts, *GPU, "--required", "CUSTOM_FAST")

    assert requests.seen == [
        *OWNER_TRAITS,
        "GET /allocation_candidates?resources=VGPU:1"
        "&required=CUSTOM_FAST,!CUSTOM_OWNER_ACME,!OWNER_CYBORG"
        "&root_required=!COMPUTE_STATUS_DISABLED&limit=1000",
        "GET /resource_providers",
    ]
    requests.clear()
    run(hosts, "--resource", "VGPU=5")
    # Without a candidate, the command checks whether Placement knows all requested names.
    assert requests.seen[3:] == ["GET /traits?name=startswith:", "GET /resource_classes"]


def test_candidate_list_without_filters_requests_only_candidates_and_names(
    hosts: Program, requests: Requests
) -> None:
    listed(hosts, *GPU, "--no-filters", "--limit", "7")

    assert requests.seen == [
        "GET /allocation_candidates?resources=VGPU:1&limit=7",
        "GET /resource_providers",
    ]
    assert not (hosts.directory / "wharfinger.sqlite").exists()


def test_option_applies_to_the_last_group_before_it(hosts: Program, requests: Requests) -> None:
    listed(
        hosts,
        *("--resource", "VCPU=1", "--forbidden", "CUSTOM_FAST", "--in-tree", "cn"),
        *("--group", "1", *GPU, "--required", "CUSTOM_FAST", "--in-tree", "cn"),
        *("--group", "_B-2", "--limit", "3", *GPU, "--group-policy", "none", "--no-filters"),
    )

    assert requests.seen == [
        "GET /resource_providers?name=cn",  # only once for both groups
        "GET /allocation_candidates?resources=VCPU:1&required=!CUSTOM_FAST"
        f"&in_tree={uuid('cn')}&resources1=VGPU:1&required1=CUSTOM_FAST&in_tree1={uuid('cn')}"
        "&resources_B-2=VGPU:1&group_policy=none&limit=3",
        "GET /resource_providers",
    ]


# Owners.


def test_candidate_list_of_each_owner_has_its_providers(hosts: Program, kept: KeptInFile) -> None:
    assert providers_of(listed(hosts, *GPU)) == [
        "n",
        "u",
    ]  # without services, providers without an owner are candidates, too

    close_gates(kept, "OWNER_NOVA", "OWNER_CYBORG", "CUSTOM_OWNER_ACME")

    assert providers_of(listed(hosts, *GPU)) == ["n"]
    for option in ("--owner", "--required"):
        for owner, name in (("OWNER_CYBORG", "y"), ("CUSTOM_OWNER_ACME", "a")):
            rows = listed(hosts, *GPU, option, owner)
            assert [(row["Provider"], row["Owner"]) for row in rows] == [(name, owner)]
    assert providers_of(listed(hosts, *GPU, "--owner", "none")) == ["u"]
    rows = listed(
        hosts, *GPU, "--group", "_Y", *GPU, "--owner", "OWNER_CYBORG", "--group", "_N", *GPU
    )
    assert [(row["Provider"], row["Groups"]) for row in rows] == [("n", ["", "_N"]), ("y", ["_Y"])]


def test_dropped_candidates_are_counted_and_explained(
    hosts: Program, kept: KeptInFile, client: WritingClient
) -> None:
    close_gates(kept, "OWNER_NOVA")
    arguments = (*GPU, "--resource", "VCPU=1", "-f", "json")

    done = run(hosts, *arguments)

    assert (done.code, providers_of(done.json())) == (0, ["cn n"])
    assert done.err == (
        "Wharfinger dropped candidates: 1 by owner. -v shows the first reason of each filter.\n"
    )
    # The limit applies after the filters.
    assert providers_of(run(hosts, *arguments, "--limit", "1").json()) == ["cn n"]

    client.set_traits(uuid("n"), client.get_traits(uuid("n")).resource_provider_generation, [])
    done = run(hosts, *arguments)
    assert (done.code, done.json()) == (0, [])
    assert done.err == (
        "Wharfinger dropped candidates: 2 by owner. -v shows the first reason of each filter.\n"
        f"{NOTHING} --no-filters lists candidates without filtering by compute_status, owner.\n"
    )
    assert providers_of(listed(hosts, *GPU, "--no-filters")) == ["a", "n", "u", "y"]


def test_verbose_option_says_why_the_first_candidate_was_dropped(
    hosts: Program, kept: KeptInFile
) -> None:
    """Runs in a process, because a process has a log of its own."""
    close_gates(kept, "OWNER_NOVA")

    done = hosts.run("-v", "candidate", "list", *GPU, "--resource", "VCPU=1", "-f", "json")

    assert providers_of(done.json()) == ["cn n"]
    assert f"for OWNER_NOVA from {uuid('u')}, which belongs to no owner" in done.err


def test_candidate_list_without_candidates_prints_that(hosts: Program) -> None:
    for form, out in (("table", ""), ("json", "[]")):
        done = run(hosts, "--resource", "VGPU=5", "-f", form)
        assert (done.code, done.out.strip()) == (0, out)
        assert f"{NOTHING} --no-filters lists" in done.err
    assert run(hosts, "--resource", "VGPU=5", "--no-filters").err == f"{NOTHING}\n"


def test_candidate_list_uses_the_configured_filters(hosts: Program, kept: KeptInFile) -> None:
    close_gates(kept, "OWNER_NOVA")
    configure(hosts, "[scheduling]\nuntagged = allow")
    assert providers_of(listed(hosts, *GPU)) == ["n", "u"]

    configure(hosts, "[scheduling]\nrequest_filters = compute_status")
    assert providers_of(listed(hosts, *GPU)) == ["a", "n", "u", "y"]
    assert run(hosts, "--resource", "VGPU=5").err.endswith(
        " without filtering by compute_status.\n"
    )

    configure(hosts, "[scheduling]\nrequest_filters = owner, weather")
    failed(run(hosts, *GPU), "[scheduling] request_filters", "weather", "compute_status, owner")
    assert run(hosts, *GPU, "--no-filters").code == 0


def test_candidate_list_of_disabled_service_is_empty(hosts: Program, client: WritingClient) -> None:
    now = client.get_traits(uuid("cn"))
    disabled = {*now.traits, "COMPUTE_STATUS_DISABLED"}
    client.set_traits(uuid("cn"), now.resource_provider_generation, disabled)

    assert offered(hosts, *GPU) == []
    assert offered(hosts, *GPU, "--no-filters") == ["a", "n", "u", "y"]


# Conditions.

#: The GPUs that match each condition. scheduling/test_required.py tests what conditions mean.
CONDITIONS = {
    "--required !CUSTOM_FAST": "a u y",
    "--forbidden CUSTOM_FAST --forbidden OWNER_CYBORG": "a u",
    "--required CUSTOM_FAST --required OWNER_CYBORG": "",
    "--required in:CUSTOM_FAST,OWNER_CYBORG": "n y",
    "--required in:CUSTOM_FAST,OWNER_CYBORG --required in:OWNER_CYBORG,HW_GPU_API_VULKAN": "y",
    f"--in-tree {uuid('y')}": "a n u y",
    "--in-tree s": "",
    "--root-required OWNER_NOVA --root-required !CUSTOM_FAST": "a n u y",
    "--root-required !OWNER_NOVA": "",
}
#: The providers of VCPU that match each condition.
AGGREGATES = {
    f"--member-of {ELSEWHERE},{AGGREGATE}": "cn",
    f"--member-of {AGGREGATE} --member-of {ELSEWHERE}": "",
    f"--not-member-of {AGGREGATE}": "box",
    f"--not-member-of {ELSEWHERE}": "box cn",
    f"--not-member-of {ELSEWHERE} --not-member-of {AGGREGATE}": "box",
}


def test_group_conditions_select_providers(hosts: Program, client: WritingClient) -> None:
    publish(client, "box", {"VCPU": 4}, "OWNER_NOVA")

    def found(asked: str, conditions: str) -> str:
        command = ["--no-filters", *asked.split(), *conditions.split()]
        return " ".join(offered(hosts, *command))

    # One group with a suffix, and one without.
    gpu, processor = "--group _GPU --resource VGPU=1", "--resource VCPU=1"
    assert {words: found(gpu, words) for words in CONDITIONS} == CONDITIONS
    assert {words: found(processor, words) for words in AGGREGATES} == AGGREGATES


def test_groups_share_a_provider_unless_isolated(hosts: Program) -> None:
    fast = (*GPU, "--required", "CUSTOM_FAST")
    both = ("--group", "1", *fast, "--group", "2", *fast)

    for policy in ((), ("--group-policy", "none")):
        assert providers_of(listed(hosts, *both, *policy)) == ["n"]
    assert offered(hosts, *both, "--group-policy", "isolate") == []


def test_candidate_list_that_ends_at_the_default_limit_warns(
    hosts: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_options, "LIMIT", 4)

    done = run(hosts, *GPU, "--no-filters")

    assert done.err == "The list ends after 4 candidates; for more, raise --limit.\n"
    assert run(hosts, *GPU).err == ""
    assert run(hosts, *GPU, "--no-filters", "--limit", "4").err == ""
    assert len(listed(hosts, *GPU, "--no-filters", "--limit", "3")) == 3


# A flavor, and a device profile.


@pytest.mark.parametrize("flavor", ["1", "gpu"])
def test_flavor_is_found_by_id_and_name(hosts: Program, kept: KeptInFile, flavor: str) -> None:
    has_flavor(kept, resources__VGPU="1", trait__CUSTOM_FAST="required")

    rows = listed(hosts, "--flavor", flavor)

    assert [(row["Provider"], row["Allocation"]) for row in rows] == [
        ("cn", {"VCPU": 2}),
        ("n", {"VGPU": 1}),
    ]
    told = "argument --group: the flavor has the group without a suffix already"
    wrong_usage(run(hosts, "--flavor", flavor, *GPU), told)


def test_flavor_and_groups_are_combined(hosts: Program, kept: KeptInFile) -> None:
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


def test_group_policy_option_overrides_that_of_the_flavor(
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


def test_flavor_with_invalid_extra_spec_fails_with_its_key(
    hosts: Program, kept: KeptInFile, requests: Requests
) -> None:
    failed(run(hosts, "--flavor", "gpu"), "there is no Flavor gpu")
    has_flavor(kept, resources__VGPU="many")

    failed(run(hosts, "--flavor", "gpu"), "flavor gpu: resources:VGPU = 'many'")

    assert not requests


def test_device_profile_makes_the_request_of_cyborg(hosts: Program, kept: KeptInFile) -> None:
    close_gates(kept, "OWNER_CYBORG")
    has_profiles(hosts, gold=[{"resources:VGPU": "1", "accel:function_id": "3AFB"}])

    [row] = listed(hosts, "--device-profile", "gold")

    assert (row["Provider"], row["Owner"]) == ("y", "OWNER_CYBORG")
    assert row["Groups"] == ["device_profile_0"]


def test_flavor_with_device_profile_includes_its_groups(hosts: Program, kept: KeptInFile) -> None:
    close_gates(kept, "OWNER_NOVA", "OWNER_CYBORG")
    has_profiles(hosts, gold=[{"resources:VGPU": "1"}, {"resources:VGPU": "2"}])
    has_flavor(kept, resources__VGPU="1", accel__device_profile="gold")

    rows = run(hosts, "--flavor", "gpu", "-f", "json").json()

    assert [(row["Provider"], row["Allocation"], row["Groups"]) for row in rows] == [
        ("cn", {"VCPU": 2}, [""]),
        ("n", {"VGPU": 1}, [""]),
        ("y", {"VGPU": 3}, ["device_profile_0", "device_profile_1"]),
    ]
    wrong_usage(
        run(hosts, "--flavor", "gpu", "--device-profile", "gold"),
        "argument --device-profile: flavor gpu already requests the device profile 'gold'",
    )


def test_device_profile_option_is_added_to_that_of_the_flavor(
    hosts: Program, kept: KeptInFile
) -> None:
    has_profiles(hosts, gold=[{"resources:VGPU": "1"}])
    has_flavor(kept)

    assert providers_of(listed(hosts, "--flavor", "gpu", "--device-profile", "gold")) == [
        "cn u",
        "cn y",
    ]


def test_unusable_device_profile_fails_with_its_name(hosts: Program, kept: KeptInFile) -> None:
    gold = ("--device-profile", "gold")
    failed(run(hosts, *gold), "[accelerator]", "device_profiles")
    has_profiles(hosts, gold=[{"resources:VGPU": "1", "trait:CUSTOM_FAST": "yes"}], silver=[])
    has_flavor(kept, accel__device_profile="tin")

    failed(run(hosts, *gold), "device profile gold, group 0: trait:CUSTOM_FAST = 'yes'")
    for arguments in (("--device-profile", "tin"), ("--flavor", "gpu")):
        failed(run(hosts, *arguments), "device profile tin: ", "gold, silver")


# Names that Placement does not know.

UNKNOWN = {
    "VGPU=1 --required CUSTOM_FASTER": ("required = 'CUSTOM_FASTER'", "CUSTOM_FAST?"),
    "VGPU=1 --required in:OWNER_NOVA,CUSTOM_FATS": ("required = 'CUSTOM_FATS'", "CUSTOM_FAST?"),
    "VGPU=1 --group _G --resource VGPU=1 --forbidden CUSTOM_FATS": (
        "forbidden of group _G = 'CUSTOM_FATS'",
        "CUSTOM_FAST?",
    ),
    "VGPU=1 --root-required QQQQQQQQ,OWNER_NOVA": (
        "root_required = 'QQQQQQQQ'",
        "know this trait.",
    ),
    "CUSTOM_QQQQQQQQ=1": ("resources = 'CUSTOM_QQQQQQQQ'", "does not know this resource class"),
    "VGPU=1 --group 1 --resource VGPUS=1": ("resources of group 1 = 'VGPUS'", "VGPU?"),
    "VGPU=1 --in-tree gone": ("no provider with the name or uuid 'gone'",),
}


def test_unknown_name_fails_with_suggestion(hosts: Program, kept: KeptInFile) -> None:
    for arguments, told in UNKNOWN.items():
        failed(run(hosts, "--resource", *arguments.split()), *told)

    has_flavor(kept, trait__CUSTOM_FASTER="required")
    failed(run(hosts, "--flavor", "gpu"), "'CUSTOM_FASTER'", "Did you mean CUSTOM_FAST?")


@pytest.mark.parametrize(
    ("specs", "told"),
    [
        ({"resources__VGPUS": "1"}, "flavor gpu: resources:VGPUS = 'VGPUS': "),
        ({"hw__pmem": "6GB"}, "flavor gpu: resources of hw:pmem = 'CUSTOM_PMEM_NAMESPACE_6GB': "),
    ],
)
def test_flavor_with_unknown_resource_class_names_extra_spec(
    hosts: Program, kept: KeptInFile, specs: dict[str, str], told: str
) -> None:
    has_flavor(kept, **specs)

    failed(run(hosts, "--flavor", "gpu"), told, "does not know this resource class")


def test_unknown_owner_warns_with_suggestion(hosts: Program) -> None:
    done = run(hosts, *GPU, "--owner", "CUSTOM_OWNER_ACNE", "-f", "json")

    assert (done.code, providers_of(done.json())) == (0, ["u"])
    assert "owner = 'CUSTOM_OWNER_ACNE'" in done.err
    assert "Did you mean CUSTOM_OWNER_ACME?" in done.err


# Another Placement, or none.


def test_older_placement_limits_the_possible_requests(
    hosts: Program, kept: KeptInFile, requests: Requests, monkeypatch: pytest.MonkeyPatch
) -> None:
    close_gates(kept, "OWNER_NOVA")
    lab.lower(monkeypatch, "1.38")

    done = run(hosts, *GPU, "--required", "in:CUSTOM_FAST,OWNER_NOVA", "--no-filters")

    failed(done, "in:CUSTOM_FAST,OWNER_NOVA", "needs microversion 1.39, the server has 1.38")
    assert not requests
    done = run(hosts, *GPU, "-f", "json")
    assert (done.code, providers_of(done.json())) == (0, ["n"])
    assert done.err.startswith("Wharfinger dropped candidates: 1 by owner.")

    lab.lower(monkeypatch, "1.33")  # this version does not return which group uses a provider
    [row] = listed(hosts, *GPU, "--required", "CUSTOM_FAST")
    assert (row["Provider"], row["Allocation"], row["Groups"]) == ("n", {"VGPU": 1}, "?")


@pytest.mark.parametrize("command", ["list", "explain"])
def test_unreachable_placement_fails_with_one_line(tmp_path: Path, command: str) -> None:
    done = inprocess.run(Program(tmp_path, "http://127.0.0.1:9"), "candidate", command, *GPU)

    failed(done, "Placement: GET ", "no answer")
    assert len(done.err.splitlines()) == 1
