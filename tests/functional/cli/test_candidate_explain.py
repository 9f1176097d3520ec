"""``wharfinger candidate explain``: its text, its JSON and its exit codes.

The explanations themselves are tested in tests/functional/scheduling/test_explainer.py and
tests/unit/scheduling/test_explanation.py.
"""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tests.functional.cli.outcomes import shown
from tests.functional.scheduling.hosts import publish
from tests.lab import inprocess, samples
from tests.lab.objects import KeptInFile
from tests.lab.program import Done, Program
from tests.lab.samples import uuid
from wharfinger.conformance.other_program_client import WritingClient
from wharfinger.objects import OWNER_TAG_VERSION
from wharfinger.providers import Inventory

GPU = ("--resource", "VGPU=1")


def run(program: Program, *arguments: str) -> Done:
    return inprocess.run(program, "candidate", "explain", *arguments)


def explained(program: Program, *arguments: str) -> Any:
    return shown(program, "candidate", "explain", *arguments)


def steps(part: Any) -> dict[str, int]:
    return {one["step"]: one["providers"] for one in part["stages"]}


def reserves(client: WritingClient, name: str) -> None:
    """Reserve all of a provider in Placement."""
    now = client.get_inventories(uuid(name))
    full = {"VGPU": Inventory(total=4, reserved=4)}
    client.set_inventories(uuid(name), now.resource_provider_generation, full)


def closes_the_gate(kept: KeptInFile) -> None:
    """Create a service whose version makes requests use only providers with an owner trait."""
    samples.service(kept.context, version=OWNER_TAG_VERSION, owners=["OWNER_NOVA"]).create()


def test_explain_as_text_shows_counts_and_advice(hosts: Program, kept: KeptInFile) -> None:
    closes_the_gate(kept)

    done = run(hosts, "--resource", "VGPU=5")

    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines() == [
        "No candidates.",
        "VGPU=5: 0 of 6 providers suitable: "
        "2 without VGPU, 2 of another owner, 1 without an owner, 1 with too little free.",
        f"Request less VGPU in a group: n ({uuid('n')}) has only 4 VGPU.",
    ]


def test_explain_as_json_has_every_stage(
    hosts: Program, kept: KeptInFile, client: WritingClient
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
    assert told["advice"] == (
        f"Wait until the reservation ends, or end it: n ({uuid('n')}) is reserved "
        "(disk is loud, 14m, operator)."
    )
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
    assert part["nearest"][0]["reasons"] == ["is reserved (disk is loud, 14m, operator)"]
    assert [(one["step"], one["trees"]) for one in told["trees"]] == [
        ("all", 2),
        ("root", 2),
        ("parts", 0),
    ]
    # Without filters, a provider of any owner fits, but a reserved provider does not.
    [part] = explained(hosts, *GPU, "--no-filters")["parts"]
    assert (steps(part)["fitting"], "owner" in steps(part)) == (3, False)
    assert [one["reason"] for one in part["reserved"]] == ["disk is loud"]


def test_explain_counts_the_same_candidates_as_list(hosts: Program) -> None:
    arguments = (*GPU, "--resource", "VCPU=1", "--limit", "1")

    listed = shown(hosts, "candidate", "list", *arguments)
    told = explained(hosts, *arguments)

    assert told["candidates"] == len({row["Candidate"] for row in listed}) == 1
    assert told["trees"][-1]["candidates"] == 2


def test_explain_of_groups_includes_policy_and_subtree(hosts: Program, kept: KeptInFile) -> None:
    closes_the_gate(kept)
    groups = ("--group", "_A", *GPU, "--group", "_B", *GPU)

    told = explained(hosts, *groups, "--group-policy", "isolate")

    assert told["advice"] == "Use --group-policy none: this gives 1 candidate."
    assert [(one["step"], one["trees"], one["candidates"]) for one in told["trees"]] == [
        ("all", 2, None),
        ("root", 2, None),
        ("parts", 1, None),
        ("together", 1, 1),
        ("group_policy", 0, 0),
    ]
    assert explained(hosts, *groups)["candidates"] == 1
    told = explained(hosts, *groups, "--owner", "OWNER_CYBORG", "--same-subtree", "_A,_B")
    assert told["advice"] == "Omit --same-subtree: this gives 2 candidates."


def test_explain_without_filters_needs_no_database(hosts: Program) -> None:
    file = hosts.directory / "wharfinger.sqlite"
    explained(hosts, *GPU, "--no-filters")
    assert not file.exists()
    file.write_text("nothing of the kind, " * 100)

    done = run(hosts, *GPU, "--no-filters", "-f", "json")

    assert done.code == 0
    assert done.err.startswith("The database cannot be read, so the explanation shows reservations")
    assert steps(done.json()["parts"][0])["fitting"] == 4


def test_explain_with_embedded_placement_explains(tmp_path: Path) -> None:
    """Each command runs in a process, because a process can have one embedded Placement."""
    done = Program(tmp_path).run("candidate", "explain", *GPU, "-f", "json")

    assert (done.code, done.err) == (0, "")
    assert done.json()["candidates"] == 0
    assert (tmp_path / "placement.sqlite").exists()


def test_explain_of_name_with_escape_sequences_escapes_them(
    hosts: Program, client: WritingClient
) -> None:
    client.update_provider(uuid("y"), "\x1b[31mevil\x1b[0m", uuid("cn"))

    for form in ("text", "json"):
        done = run(hosts, "--resource", "VGPU=5", "--owner", "OWNER_CYBORG", "-f", form)
        assert "\x1b" not in done.out
        assert "x1b[31mevil" in done.out or "u001b[31mevil" in done.out


def test_explain_of_place_and_traits_shows_separate_steps(
    hosts: Program, client: WritingClient
) -> None:
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


def test_explain_of_unknown_name_fails_like_list(hosts: Program) -> None:
    for arguments, told in (
        (("--resource", "CUSTOM_NIX=1"), "Placement does not know this resource class"),
        ((*GPU, "--required", "CUSTOM_FASTER"), "Did you mean CUSTOM_FAST?"),
        ((*GPU, "--owner", "CUSTOM_OWNER_ACNE"), "Did you mean CUSTOM_OWNER_ACME?"),
    ):
        done = run(hosts, *arguments)
        assert told in done.err
        listed = inprocess.run(hosts, "candidate", "list", *arguments)
        assert (done.code, done.err) == (
            listed.code,
            listed.err.replace("candidate list", "candidate explain"),
        )
