"""``wharfinger candidate explain``: why there are the candidates that there are, or none."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.functional.scheduling.hosts import publish
from tests.lab import inprocess, samples
from tests.lab.objects import KeptInFile
from tests.lab.placement import Requests
from tests.lab.program import Done, Program
from tests.lab.samples import uuid
from wharfinger.objects import OWNER_TAG_VERSION
from wharfinger.placement.client import PlacementClient
from wharfinger.providers import Inventory

GPU = ("--resource", "VGPU=1")


def run(program: Program, *arguments: str) -> Done:
    return inprocess.run(program, "candidate", "explain", *arguments)


def explained(program: Program, *arguments: str) -> Any:
    """The document, where nothing else is said."""
    done = run(program, *arguments, "-f", "json")
    assert (done.code, done.err) == (0, "")
    return done.json()


def steps(part: Any) -> dict[str, int]:
    return {one["step"]: one["providers"] for one in part["stages"]}


def reserves(client: PlacementClient, name: str) -> None:
    """All of a provider is reserved in Placement."""
    now = client.get_inventories(uuid(name))
    full = {"VGPU": Inventory(total=4, reserved=4)}
    client.set_inventories(uuid(name), now.resource_provider_generation, full)


def closes_the_gate(kept: KeptInFile) -> None:
    """All that is published for nova is tagged, as its only service says."""
    samples.service(kept.context, version=OWNER_TAG_VERSION, owners=["OWNER_NOVA"]).create()


def test_text_is_for_people(hosts: Program, kept: KeptInFile) -> None:
    closes_the_gate(kept)

    done = hosts.run("candidate", "explain", "--resource", "VGPU=5")

    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines() == [
        "VGPU=5",
        "  providers           6",
        "  with VGPU           4  2 out",
        "  open to OWNER_NOVA  1  3 out",
        "  not fully reserved  1",
        "  not used up         1",
        "  with enough free    0  1 out, 1 by this alone",
        f"  n ({uuid('n')}) 0 of 4 VGPU used, 5 asked for",
        f"  a ({uuid('a')}) belongs to CUSTOM_OWNER_ACME, 0 of 4 VGPU used, 5 asked for",
        f"  u ({uuid('u')}) belongs to nobody, 0 of 4 VGPU used, 5 asked for",
        f"  y ({uuid('y')}) belongs to OWNER_CYBORG, 0 of 4 VGPU used, 5 asked for",
        "",
        "the whole request",
        "  trees                          2",
        "  with a root that will do       2",
        "  with something for each group  0",
        "",
        "1 has VGPU free, 4 at most: 5 are asked for.",
    ]


def test_a_document_is_for_machines(
    hosts: Program, kept: KeptInFile, client: PlacementClient
) -> None:
    closes_the_gate(kept)
    samples.reservation(
        kept.context,
        provider_uuid=uuid("n"),
        reason="disk is loud",
        holder="operator",
        since=datetime.now(UTC) - timedelta(minutes=14),
    ).create()
    reserves(client, "n")

    told = explained(hosts, *GPU)

    assert told["candidates"] == 0
    assert told["advice"] == "1 provider is reserved for disk is loud, since 14m."
    [part] = told["parts"]
    assert steps(part) == {
        "all": 6,
        "class": 4,
        "owner": 1,
        "not_reserved": 0,
        "not_used_up": 0,
        "enough": 0,
        "fitting": 0,
    }
    [reserved] = part["reserved"]
    assert (reserved["reason"], reserved["providers"]) == ("disk is loud", 1)
    assert reserved["first"]["holder"] == "operator"
    assert 14 * 60 <= reserved["first"]["age"] < 15 * 60
    assert part["nearest"][0]["reasons"] == ["reserved: disk is loud, 14m (operator)"]
    assert [(one["step"], one["trees"]) for one in told["trees"]] == [
        ("all", 2),
        ("root", 2),
        ("parts", 0),
    ]


def test_candidates_are_as_many_as_the_list_has(hosts: Program) -> None:
    arguments = (*GPU, "--resource", "VCPU=1", "--limit", "1")

    listed = inprocess.run(hosts, "candidate", "list", *arguments, "-f", "json").json()
    told = explained(hosts, *arguments)

    assert told["candidates"] == len({row["Candidate"] for row in listed}) == 1
    assert told["trees"][-1]["candidates"] == 2


def test_what_published_drivers_have_reserved_is_told(program: Program) -> None:
    gpu = "gpu-host-1_pci_0000_84_00_0"
    assert inprocess.run(program, "sync").code == 0
    [one, *_others] = explained(program, *GPU)["parts"]
    free = steps(one)["fitting"]
    reserve = ("provider", "reserve", gpu, "--reason", "disk is loud")
    assert inprocess.run(program, *reserve).code == 0

    told = explained(program, *GPU)

    [part] = told["parts"]
    assert steps(part)["fitting"] == free - 1
    [held] = next(one["reserved"] for one in part["nearest"] if one["name"] == gpu)
    assert (held["reason"], held["holder"]) == ("disk is loud", "operator")


def test_two_groups_are_explained_up_to_the_policy(hosts: Program, kept: KeptInFile) -> None:
    closes_the_gate(kept)
    groups = ("--group", "_A", *GPU, "--group", "_B", *GPU)

    told = explained(hosts, *groups, "--group-policy", "isolate")

    assert told["advice"] == "With --group-policy none there would be 1."
    assert [(one["step"], one["trees"], one["candidates"]) for one in told["trees"]] == [
        ("all", 2, None),
        ("root", 2, None),
        ("parts", 1, None),
        ("together", 1, 1),
        ("group_policy", 0, 0),
    ]
    assert explained(hosts, *groups)["candidates"] == 1


def test_groups_are_explained_up_to_the_subtree(hosts: Program, kept: KeptInFile) -> None:
    closes_the_gate(kept)

    told = explained(
        hosts,
        *("--group", "_A", *GPU, "--group", "_B", *GPU, "--owner", "OWNER_CYBORG"),
        *("--same-subtree", "_A,_B"),
    )

    assert told["advice"] == "Without --same-subtree there would be 2."


def test_without_filters_nobody_minds_owners_and_nothing_is_opened(hosts: Program) -> None:
    [part] = explained(hosts, *GPU, "--no-filters")["parts"]

    assert (steps(part)["fitting"], "owner" in steps(part)) == (4, False)
    assert not (hosts.directory / "wharfinger.sqlite").exists()


def test_without_filters_reservations_are_known_all_the_same(
    hosts: Program, kept: KeptInFile, client: PlacementClient
) -> None:
    samples.reservation(kept.context, provider_uuid=uuid("n"), holder="operator").create()
    reserves(client, "n")

    [part] = explained(hosts, *GPU, "--no-filters")["parts"]

    assert [one["reason"] for one in part["reserved"]] == ["maintenance"]


def test_a_database_that_cannot_be_used_is_told(hosts: Program) -> None:
    (hosts.directory / "wharfinger.sqlite").write_text("nothing of the kind, " * 100)

    done = run(hosts, *GPU, "--no-filters", "-f", "json")

    assert done.code == 0
    assert done.err.startswith("Who has reserved what is not known: ")
    assert steps(done.json()["parts"][0])["fitting"] == 4


def test_embedded_placement_is_explained_too(tmp_path: Path) -> None:
    program = Program(tmp_path)
    assert program.run("sync").code == 0

    done = program.run("candidate", "explain", "--resource", "VGPU=1000", "-f", "json")

    assert (done.code, done.err) == (0, "")
    assert json.loads(done.out)["candidates"] == 0


def test_what_a_name_has_in_it_does_not_reach_the_terminal(
    hosts: Program, client: PlacementClient
) -> None:
    client.update_provider(uuid("y"), "\x1b[31mevil\x1b[0m", uuid("cn"))

    for form in ("text", "json"):
        done = run(hosts, *GPU, "-f", form)
        assert "\x1b" not in done.out
        assert "x1b[31mevil" in done.out or "u001b[31mevil" in done.out


def test_a_place_and_traits_are_steps_of_their_own(hosts: Program, client: PlacementClient) -> None:
    publish(client, "box", {"VGPU": 8}, "OWNER_NOVA")

    [part] = explained(hosts, *GPU, "--in-tree", "cn", "--required", "CUSTOM_FAST")["parts"]

    assert steps(part) == {
        "all": 7,
        "class": 5,
        "in_tree": 4,
        "owner": 2,
        "traits": 1,
        "not_reserved": 1,
        "not_used_up": 1,
        "enough": 1,
        "fitting": 1,
    }


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--resource", "CUSTOM_NIX=1"), "Placement knows no such resource class"),
        ((*GPU, "--required", "CUSTOM_FASTER"), "Did you mean CUSTOM_FAST?"),
        ((*GPU, "--forbidden", "CUSTOM_FASTER"), "Placement knows no such trait"),
        ((*GPU, "--root-required", "CUSTOM_FASTER"), "Placement knows no such trait"),
    ],
)
def test_a_name_that_placement_does_not_know_is_told_as_in_a_list(
    hosts: Program, arguments: tuple[str, ...], told: str
) -> None:
    done = run(hosts, *arguments)

    assert told in done.err
    listed = inprocess.run(hosts, "candidate", "list", *arguments)
    assert (done.code, done.out, done.err) == (
        listed.code,
        "",
        listed.err.replace("candidate list", "candidate explain"),
    )


def test_an_owner_of_whom_nobody_has_heard_is_told(hosts: Program) -> None:
    done = run(hosts, *GPU, "--owner", "CUSTOM_OWNER_ACNE", "-f", "json")

    assert done.code == 0
    assert "Did you mean CUSTOM_OWNER_ACME?" in done.err


def test_wrong_usage_asks_nothing(hosts: Program, requests: Requests) -> None:
    for arguments in ((), (*GPU, "--group", "1"), (*GPU, "-f", "csv")):
        done = run(hosts, *arguments)
        assert (done.code, done.out) == (64, "")
        assert "Traceback" not in done.err

    assert not requests


def test_that_placement_does_not_answer_is_an_error(tmp_path: Path) -> None:
    done = run(Program(tmp_path, "http://127.0.0.1:9"), *GPU)

    assert (done.code, done.out) == (1, "")
    assert len(done.err.splitlines()) == 1
