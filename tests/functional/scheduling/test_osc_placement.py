"""The same questions to osc-placement and to ours, of the same Placement.

Where both can ask, both are offered the same. What osc-placement cannot ask, or takes for
something else, is listed in docs/required.rst; each of it is shown here, by what it answers or
what it sends. All is asked of the GPUs of ``hosts``.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.functional.scheduling.hosts import AGGREGATE, DXVA, FAST, GPUS, VULKAN, publish_gpus
from tests.lab import inprocess
from tests.lab.osc_placement import OpenStack
from tests.lab.placement import Requests, adapter_to, over_http
from tests.lab.program import Done, Program
from tests.lab.samples import uuid
from wharfinger.placement.client import PlacementClient
from wharfinger.placement.embedded import EmbeddedPlacement

CANDIDATE_LIST, PROVIDER_LIST = "allocation candidate list", "resource provider list"
NAMES = {uuid(name): name for name in ("cn", "s", *GPUS)}

# As we write it: osc-placement leaves out "in:".

CONDITIONS = [
    "",
    f"--required {VULKAN}",
    f"--required {VULKAN} --required {FAST}",
    f"--forbidden {VULKAN}",
    f"--forbidden {VULKAN} --forbidden {DXVA}",
    f"--required {VULKAN} --forbidden {FAST}",
    f"--required in:{VULKAN},{DXVA}",
    f"--required in:{VULKAN},{DXVA} --required {FAST}",
    f"--required in:{VULKAN},{DXVA} --forbidden {FAST}",
    f"--required in:{VULKAN},{DXVA} --required in:{DXVA},{FAST}",
    f"--required in:{VULKAN},{DXVA},{FAST} --required {FAST} --forbidden {DXVA}",
]
GROUPS = [
    "--resource VGPU=1",
    "--resource VCPU=1 --resource VGPU=1 --resource DISK_GB=1",
    "--resource VCPU=1 --group V --resource VGPU=1",
]
CANDIDATES = [
    *(f"{groups} {conditions}".strip() for groups, conditions in product(GROUPS, CONDITIONS)),
    "--resource VGPU=9",
    f"--resource VCPU=1 --member-of {AGGREGATE}",
    f"--resource VGPU=1 --member-of {AGGREGATE}",
    f"--group 1 --resource VGPU=1 --required {VULKAN} --forbidden {FAST}"
    f" --group 2 --resource VGPU=1 --required in:{VULKAN},{DXVA} --group-policy none",
    f"--group 1 --resource VGPU=1 --required {VULKAN} --forbidden {FAST}"
    f" --group 2 --resource VGPU=1 --required in:{VULKAN},{DXVA} --group-policy isolate",
    f"--resource VCPU=1 --required HW_CPU_X86_AVX --group A --resource VGPU=2 --forbidden {VULKAN}"
    f" --group B --resource VGPU=1 --required in:{VULKAN},{DXVA} --required {FAST}",
]
#: Either group may take either GPU.
SYMMETRIC = " ".join(
    f"--group {suffix} --resource VGPU=1 --required {FAST} --forbidden {DXVA}" for suffix in "AB"
)
CANDIDATES.append(f"{SYMMETRIC} --group-policy isolate")
PROVIDERS = list(filter(None, CONDITIONS))

#: What osc-placement cannot ask: how one would, and what it answers.
REFUSED = {
    "the traits of a root": (
        f"{CANDIDATE_LIST} --resource VGPU=1 --root-required {FAST}",
        f"unrecognized arguments: --root-required {FAST}",
    ),
    "groups below one provider": (
        f"{CANDIDATE_LIST} --group 1 --resource VGPU=1 --same-subtree 1",
        "unrecognized arguments: --same-subtree 1",
    ),
    "candidates of one tree": (
        f"{CANDIDATE_LIST} --resource VGPU=1 --in-tree {uuid('cn')}",
        f"unrecognized arguments: --in-tree {uuid('cn')}",
    ),
    "a group without resources": (
        f"{CANDIDATE_LIST} --group 1 --required {FAST} --group 2 --resource VGPU=1",
        "('--resources should be provided in group %s', '1')",
    ),
    "a group whose suffix is longer than one character": (
        f"{CANDIDATE_LIST} --group 10 --resource VGPU=1",
        "too many values to unpack (expected 1",
    ),
    "what is not in an aggregate": (
        f"{CANDIDATE_LIST} --resource VCPU=1 --member-of !{AGGREGATE}",
        f"'member_of' parameter to contain valid UUID(s). Got: !{AGGREGATE} (HTTP 400)",
    ),
    "providers that are not in an aggregate": (
        f"{PROVIDER_LIST} --member-of !in:{AGGREGATE}",
        f"'member_of' parameter to contain valid UUID(s). Got: !in:{AGGREGATE} (HTTP 400)",
    ),
    "any-of, as the API writes it": (
        f"{CANDIDATE_LIST} --resource VGPU=1 --required in:{VULKAN},{DXVA}",
        f"No such trait(s): in:{VULKAN}. (HTTP 400)",
    ),
    "any of one trait, beside a forbidden one": (
        f"{CANDIDATE_LIST} --resource VGPU=1 --required in:{VULKAN} --forbidden {FAST}",
        f"does not support forbidden traits. Got: in:{VULKAN},!{FAST} (HTTP 400)",
    ),
}


@dataclass(frozen=True)
class Mistake:
    """What is taken for something else, without a word.

    How it is said, what osc-placement sends and what it offers; and what we offer, None where we
    refuse it.
    """

    query: str
    sent: dict[str, list[str]]
    offered: list[str]
    ours: list[str] | None


MISTAKEN = {
    "two forbidden traits with a comma: one of them is required": Mistake(
        f"--resource VGPU=1 --forbidden {VULKAN},{DXVA}",
        {"resources": ["VGPU:1"], "required": [f"!{VULKAN},{DXVA}"]},
        ["VGPU=1 of dxva", "VGPU=1 of dxva-fast"],
        None,
    ),
    "any of one trait, and another trait: any of both": Mistake(
        f"--resource VGPU=1 --required in:{VULKAN} --required {DXVA} --required {FAST}",
        {"resources": ["VGPU:1"], "required": [f"in:{VULKAN},{DXVA},{FAST}"]},
        [f"VGPU=1 of {name}" for name in sorted(GPUS) if name != "gpu"],
        ["VGPU=1 of vulkan-dxva-fast"],
    ),
    "a group that is begun twice: what was said first is forgotten": Mistake(
        f"--group 1 --resource VCPU=1 --required {FAST}"
        f" --group 1 --resource VGPU=1 --required {DXVA} --forbidden {VULKAN}",
        {"resources1": ["VGPU:1"], "required1": [f"{DXVA},!{VULKAN}"], "group_policy": ["none"]},
        ["VGPU=1 of dxva", "VGPU=1 of dxva-fast"],
        None,
    ),
    "a resource class twice: the last amount counts": Mistake(
        f"--resource VGPU=1 --resource VGPU=2 --required {VULKAN} --required {DXVA}",
        {"resources": ["VGPU:1,VGPU:2"], "required": [f"{VULKAN},{DXVA}"]},
        ["VGPU=2 of vulkan-dxva", "VGPU=2 of vulkan-dxva-fast"],
        None,
    ),
}

Candidate = frozenset[tuple[str, str]]


@pytest.fixture(scope="module")
def served(placement_service: EmbeddedPlacement) -> Iterator[tuple[str, Requests]]:
    """The GPUs, in a Placement that is served over HTTP; all tests here only ask."""
    with over_http(placement_service) as (url, requests):
        publish_gpus(PlacementClient(adapter_to(url)))
        yield url, requests


@pytest.fixture(scope="module")
def openstack(served: tuple[str, Requests], tmp_path_factory: pytest.TempPathFactory) -> OpenStack:
    return OpenStack(served[0], tmp_path_factory.mktemp("home"))


@pytest.fixture
def wharfinger(served: tuple[str, Requests], tmp_path: Path) -> Program:
    return Program(tmp_path, served[0])


# The same.


@pytest.fixture(scope="module")
def theirs(openstack: OpenStack) -> dict[str, Any]:
    """What it answers, by command: one process for all, as it takes a second to start."""
    commands = [f"{CANDIDATE_LIST} {query}" for query in CANDIDATES]
    commands += [f"{PROVIDER_LIST} {query}" for query in PROVIDERS]
    answers = openstack.answers(command.replace("in:", "") for command in commands)
    return dict(zip(commands, answers, strict=True))


@pytest.mark.parametrize("query", CANDIDATES)
def test_both_are_offered_the_same_candidates(
    theirs: dict[str, Any], wharfinger: Program, query: str
) -> None:
    done = _list_candidates(wharfinger, query)

    offered = sorted(map(_in_words, _our_candidates(done.json())))
    assert offered == sorted(map(_in_words, _candidates(theirs[f"{CANDIDATE_LIST} {query}"])))


@pytest.mark.parametrize("query", PROVIDERS)
def test_both_list_the_same_providers(
    theirs: dict[str, Any], wharfinger: Program, query: str
) -> None:
    done = inprocess.run(wharfinger, "provider", "list", *query.split(), "-f", "json")

    listed = {row["UUID"] for row in done.json()}
    assert listed == {row["uuid"] for row in theirs[f"{PROVIDER_LIST} {query}"]}


def test_in_a_process_of_its_own_ours_is_offered_the_same(
    theirs: dict[str, Any], wharfinger: Program
) -> None:
    query = CANDIDATES[-2]

    done = wharfinger.run("candidate", "list", "--no-filters", *query.split(), "-f", "json")

    offered = sorted(map(_in_words, _our_candidates(done.json())))
    assert offered == sorted(map(_in_words, _candidates(theirs[f"{CANDIDATE_LIST} {query}"])))
    assert offered


# What it cannot ask, or mistakes.


@pytest.fixture(scope="module")
def refusals(openstack: OpenStack) -> str:
    """What it answers to all that it cannot ask."""
    done = openstack.run(*(command for command, _told in REFUSED.values()))
    assert not done.out.strip()
    return done.err


@pytest.mark.parametrize("told", [told for _command, told in REFUSED.values()], ids=REFUSED)
def test_osc_placement_cannot_ask_for(refusals: str, told: str) -> None:
    assert refusals.count(told) == 1


@pytest.fixture(scope="module")
def mistakes(
    served: tuple[str, Requests], openstack: OpenStack
) -> dict[str, tuple[dict[str, list[str]], list[str]]]:
    """What it sends for all that it mistakes, and what it offers."""
    _url, requests = served
    requests.clear()
    queries = [mistake.query for mistake in MISTAKEN.values()]
    answers = openstack.answers(f"{CANDIDATE_LIST} {query}" for query in queries)
    sent = [parse_qs(urlsplit(request).query) for request in requests.seen]
    offered = [sorted(map(_in_words, _candidates(answer))) for answer in answers]
    return dict(zip(queries, zip(sent, offered, strict=True), strict=True))


@pytest.mark.parametrize("mistake", MISTAKEN.values(), ids=MISTAKEN)
def test_osc_placement_mistakes(
    mistakes: dict[str, tuple[dict[str, list[str]], list[str]]], mistake: Mistake
) -> None:
    assert mistakes[mistake.query] == (mistake.sent, mistake.offered)


@pytest.mark.parametrize("mistake", MISTAKEN.values(), ids=MISTAKEN)
def test_ours_refuses_or_takes_as_it_is_said(wharfinger: Program, mistake: Mistake) -> None:
    done = _list_candidates(wharfinger, mistake.query)

    if mistake.ours is None:
        assert (done.code, done.out) == (64, "")
    else:
        assert sorted(map(_in_words, _our_candidates(done.json()))) == mistake.ours


def test_osc_placement_does_not_tell_which_group_takes_what(
    theirs: dict[str, Any], wharfinger: Program
) -> None:
    query = f"{SYMMETRIC} --group-policy isolate"

    ours = _list_candidates(wharfinger, query)

    found = _candidates(theirs[f"{CANDIDATE_LIST} {query}"])
    assert list(map(_in_words, found)) == ["VGPU=1 of fast, VGPU=1 of vulkan-fast"] * 2
    groups = {(row["Candidate"], row["Provider"]): row["Groups"] for row in ours.json()}
    assert groups[1, "fast"] == groups[2, "vulkan-fast"]
    assert groups[1, "vulkan-fast"] == groups[2, "fast"]
    assert sorted((groups[1, "fast"], groups[2, "fast"])) == [["A"], ["B"]]


def test_osc_placement_has_no_any_traits_unless_it_is_told_the_microversion(
    openstack: OpenStack,
) -> None:
    query = f"{CANDIDATE_LIST} --resource VGPU=1 --required {VULKAN},{DXVA}"

    done = replace(openstack, microversion=None).run(query)

    assert "not supported with version 1.29; requires at least version 1.39" in done.err


def test_osc_placement_has_nothing_of_what_came_after_1_29_and_before_1_37(
    openstack: OpenStack,
) -> None:
    done = replace(openstack, microversion="1.36").run(f"{CANDIDATE_LIST} --resource VGPU=1")

    assert "Invalid placement client version '1.36'. must be one of:" in done.err


def _list_candidates(program: Program, query: str) -> Done:
    return inprocess.run(program, "candidate", "list", "--no-filters", *query.split(), "-f", "json")


def _candidates(rows: list[dict[str, Any]]) -> list[Candidate]:
    """The candidates that osc-placement lists, a row for each provider of each."""
    found: dict[int, set[tuple[str, str]]] = {}
    for row in rows:
        amounts = ", ".join(sorted(row["allocation"].split(",")))
        found.setdefault(row["#"], set()).add((row["resource provider"], amounts))
    return [frozenset(taken) for taken in found.values()]


def _our_candidates(rows: list[dict[str, Any]]) -> list[Candidate]:
    """The candidates that we list, a row for each provider of each."""
    found: dict[int, set[tuple[str, str]]] = {}
    for row in rows:
        amounts = ", ".join(
            sorted(f"{kind}={amount}" for kind, amount in row["Allocation"].items())
        )
        found.setdefault(row["Candidate"], set()).add((row["UUID"], amounts))
    return [frozenset(taken) for taken in found.values()]


def _in_words(candidate: Candidate) -> str:
    return ", ".join(sorted(f"{amounts} of {NAMES[provider]}" for provider, amounts in candidate))
