"""osc-placement and the program's commands find the same providers for the same queries.

All queries are about the GPUs of ``publish_gpus``. docs/reference/required.rst lists the queries
that osc-placement cannot send or misreads.
"""

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from osc_placement import version

from tests.functional.scheduling.hosts import AGGREGATE, DXVA, FAST, GPUS, VULKAN, publish_gpus
from tests.lab import inprocess
from tests.lab.drawing import Draw
from tests.lab.osc_placement import OpenStack, documents
from tests.lab.placement import adapter_to, over_http
from tests.lab.program import Done, Program
from tests.lab.samples import uuid
from wharfinger.conformance.other_program_client import WritingClient
from wharfinger.placement.embedded import EmbeddedPlacement

CANDIDATE_LIST, PROVIDER_LIST = "allocation candidate list", "resource provider list"
NAMES = {uuid(name): name for name in ("cn", "s", *GPUS)}

# In the syntax of Wharfinger; for osc-placement the tests remove "in:".

CONDITIONS = [
    "",
    f"--required {VULKAN} --required {FAST}",
    f"--forbidden {VULKAN} --forbidden {DXVA}",
    f"--required {VULKAN} --forbidden {FAST}",
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
    f" --group 2 --resource VGPU=1 --required in:{VULKAN},{DXVA} --group-policy isolate",
    f"--resource VCPU=1 --required HW_CPU_X86_AVX --group A --resource VGPU=2 --forbidden {VULKAN}"
    f" --group B --resource VGPU=1 --required in:{VULKAN},{DXVA} --required {FAST}",
]
#: A query with two equal groups, each of which may use either GPU.
SYMMETRIC = " ".join(
    f"--group {suffix} --resource VGPU=1 --required {FAST} --forbidden {DXVA}" for suffix in "AB"
)
CANDIDATES.append(f"{SYMMETRIC} --group-policy isolate")
PROVIDERS = list(filter(None, CONDITIONS))

#: Queries that osc-placement cannot send, with its errors, as docs/reference/required.rst has them.
REFUSED = {
    f"{CANDIDATE_LIST} --resource VGPU=1 --root-required {FAST}": "unrecognized arguments: --root",
    f"{CANDIDATE_LIST} --group 1 --resource VGPU=1 --same-subtree 1": "arguments: --same-subtree",
    f"{CANDIDATE_LIST} --group 1 --required {FAST} --group 2 --resource VGPU=1": "--resources "
    "should be provided in group %s",
    f"{CANDIDATE_LIST} --resource VGPU=1 --in-tree {uuid('cn')}": "arguments: --in-tree",
    f"{CANDIDATE_LIST} --resource VCPU=1 --member-of !{AGGREGATE}": f"Got: !{AGGREGATE} (HTTP 400)",
    f"{PROVIDER_LIST} --member-of !in:{AGGREGATE}": f"Got: !in:{AGGREGATE} (HTTP 400)",
    f"{CANDIDATE_LIST} --group 10 --resource VGPU=1": "too many values to unpack (expected 1",
    f"{CANDIDATE_LIST} --resource VGPU=1 --required in:{VULKAN},{DXVA}": f"trait(s): in:{VULKAN}.",
    f"{CANDIDATE_LIST} --resource VGPU=1 --required in:{VULKAN} --forbidden {FAST}": "Got: "
    f"in:{VULKAN},!{FAST} (HTTP 400)",
}
#: Queries that osc-placement misreads: the GPUs that osc-placement offers, and the GPUs that
#: Wharfinger offers (empty if it refuses the query).
MISTAKEN = {
    f"--resource VGPU=1 --forbidden {VULKAN},{DXVA}": ("dxva dxva-fast", ""),
    f"--resource VGPU=1 --required in:{VULKAN} --required {DXVA} --required {FAST}": (
        " ".join(sorted({*GPUS} - {"gpu"})),
        "vulkan-dxva-fast",
    ),
    f"--group 1 --resource VGPU=1 --required {FAST} --group 1 --resource VGPU=1 --required {DXVA}"
    f" --forbidden {VULKAN}": ("dxva dxva-fast", ""),
    f"--resource VGPU=9 --resource VGPU=2 --required {VULKAN} --required {DXVA}": (
        "vulkan-dxva vulkan-dxva-fast",
        "",
    ),
}

Candidate = frozenset[tuple[str, str]]


@pytest.fixture
def url(placement_service: EmbeddedPlacement) -> Iterator[str]:
    """The URL of a Placement with the GPUs of ``publish_gpus``."""
    with over_http(placement_service) as (url, _requests):
        publish_gpus(WritingClient(adapter_to(url)))
        yield url


def test_both_programs_find_the_same_providers(url: str, tmp_path: Path, draw: Draw) -> None:
    openstack, wharfinger = OpenStack(url, tmp_path), Program(tmp_path, url)
    symmetric = f"{SYMMETRIC} --group-policy isolate"
    candidates = draw(CANDIDATES, 5, keep=[symmetric])
    providers = draw(PROVIDERS, 3)
    commands = [f"{CANDIDATE_LIST} {query}" for query in candidates]
    commands += [f"{PROVIDER_LIST} {query}" for query in providers]
    # One process answers all queries, because osc-placement takes a second to start.
    answers = openstack.answers(command.replace("in:", "") for command in commands)
    theirs = dict(zip(commands, answers, strict=True))

    for query in candidates:
        done = _list_candidates(wharfinger, query)
        offered = sorted(map(_in_words, _our_candidates(done.json())))
        found = _candidates(theirs[f"{CANDIDATE_LIST} {query}"])
        assert offered == sorted(map(_in_words, found)), query
    for query in providers:
        done = inprocess.run(wharfinger, "provider", "list", *query.split(), "-f", "json")
        listed = {row["UUID"] for row in done.json()}
        assert listed == {row["uuid"] for row in theirs[f"{PROVIDER_LIST} {query}"]}, query

    # osc-placement does not print the groups of a provider.
    ours = _list_candidates(wharfinger, symmetric)
    found = _candidates(theirs[f"{CANDIDATE_LIST} {symmetric}"])
    assert list(map(_in_words, found)) == ["VGPU=1 of fast, VGPU=1 of vulkan-fast"] * 2
    groups = {(row["Candidate"], row["Provider"]): row["Groups"] for row in ours.json()}
    assert groups[1, "fast"] == groups[2, "vulkan-fast"]
    assert groups[1, "vulkan-fast"] == groups[2, "fast"]
    assert sorted((groups[1, "fast"], groups[2, "fast"])) == [["A"], ["B"]]


def test_osc_placement_fails_as_documented(url: str, tmp_path: Path) -> None:
    openstack, wharfinger = OpenStack(url, tmp_path), Program(tmp_path, url)

    done = openstack.run(*REFUSED, *(f"{CANDIDATE_LIST} {query} -f json" for query in MISTAKEN))

    for told in REFUSED.values():
        assert done.err.count(told) == 1, (told, done.err)
    for rows, (query, (theirs, ours)) in zip(documents(done.out), MISTAKEN.items(), strict=True):
        assert _gpus(_candidates(rows)) == theirs, query
        listed = _list_candidates(wharfinger, query)
        assert listed.code == (0 if ours else 64), query
        assert _gpus(_our_candidates(listed.json() if ours else [])) == ours, query
    later = [one for one in version.SUPPORTED_MICROVERSIONS if int(one.split(".")[1]) > 28]
    assert later == ["1.29", "1.37", "1.38", "1.39"]
    assert version.MAX_VERSION_NO_GAP == "1.29", "without OS_PLACEMENT_API_VERSION"


def _gpus(candidates: list[Candidate]) -> str:
    return " ".join(sorted(NAMES[provider] for taken in candidates for provider, _ in taken))


def _list_candidates(program: Program, query: str) -> Done:
    return inprocess.run(program, "candidate", "list", "--no-filters", *query.split(), "-f", "json")


def _candidates(rows: list[dict[str, Any]]) -> list[Candidate]:
    """Return the candidates in the output of osc-placement, which has a row for each provider."""
    found: dict[int, set[tuple[str, str]]] = {}
    for row in rows:
        amounts = ", ".join(sorted(row["allocation"].split(",")))
        found.setdefault(row["#"], set()).add((row["resource provider"], amounts))
    return [frozenset(taken) for taken in found.values()]


def _our_candidates(rows: list[dict[str, Any]]) -> list[Candidate]:
    """Return the candidates in the program's output, which has a row for each provider."""
    found: dict[int, set[tuple[str, str]]] = {}
    for row in rows:
        amounts = ", ".join(
            sorted(f"{kind}={amount}" for kind, amount in row["Allocation"].items())
        )
        found.setdefault(row["Candidate"], set()).add((row["UUID"], amounts))
    return [frozenset(taken) for taken in found.values()]


def _in_words(candidate: Candidate) -> str:
    return ", ".join(sorted(f"{amounts} of {NAMES[provider]}" for provider, amounts in candidate))
