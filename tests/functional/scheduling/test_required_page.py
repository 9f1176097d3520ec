"""The examples of docs/reference/required.rst are true."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.functional.scheduling.hosts import DXVA, VULKAN, publish
from tests.lab import inprocess
from tests.lab.placement import adapter_to, lower, over_http
from tests.lab.program import Done, Program
from wharfinger.conformance.other_program_client import WritingClient
from wharfinger.placement.embedded import EmbeddedPlacement

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "required.rst").read_text()
EXAMPLES = re.findall(r"^   \* - ``(--[^`]+)``\n     - (.+)\n     - (.+)\n     - (.+)$", PAGE, re.M)
REFUSALS = re.findall(r"^``(--[^`]+)``\n   ::\n\n((?:      .+\n)+)", PAGE, re.M)
#: Queries that are refused only after an answer from Placement.
LATER = re.findall(
    r"^``(--[^`]+)``\n   ::", PAGE.partition("Only Placement can find these errors")[2], re.M
)
UNSENT = re.findall(r"does not send[^:]*::\n\n((?:    .+\n)+)", PAGE)


@pytest.fixture
def url(placement_service: EmbeddedPlacement) -> Iterator[str]:
    """The URL of a Placement that has the page's example."""
    with over_http(placement_service) as (url, _requests):
        client = WritingClient(adapter_to(url))
        publish(client, "node", {"VCPU": 8}, "HW_CPU_X86_AVX")
        publish(client, "vulkan", {"VGPU": 4}, VULKAN, below="node")
        publish(client, "dxva", {"VGPU": 4}, DXVA, below="node")
        publish(client, "both", {"VGPU": 4}, VULKAN, DXVA, below="node")
        publish(client, "neither", {"VGPU": 4}, below="node")
        yield url


@pytest.fixture
def program(url: str, tmp_path: Path) -> Program:
    return Program(tmp_path, url)


def test_examples_of_the_page_have_the_stated_results(program: Program) -> None:
    assert len(EXAMPLES) == PAGE.count("   * - ``") > 5
    for options, listed, together, apart in EXAMPLES:
        providers = _run(program, f"provider list {options} -f json").json()
        groups = "--resource VCPU=1 --resource VGPU=1", "--resource VCPU=1 --group _GPU"
        in_one_group = _candidates(program, f"{groups[0]} {options}")
        in_its_own = _candidates(program, f"{groups[1]} --resource VGPU=1 {options}")

        assert {row["Name"] for row in providers} == _names(listed), options
        assert in_one_group == _names(together), options
        assert in_its_own == _names(apart), options


def test_refusals_of_the_page_have_the_stated_messages(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(REFUSALS) == len(re.findall(r"^``--", PAGE, re.M)) > len(LATER) > 1
    for options, message in REFUSALS:
        refused = _run(program, f"candidate list --resource VGPU=1 {options}")

        assert _unwrapped(message) in _unwrapped(refused.err)
        assert refused.code == (1 if options in LATER else 64), options

    # An older server does not receive unknown conditions either.
    lower(monkeypatch, "1.38")
    options = f"--no-filters --resource VGPU=1 --required in:{VULKAN},{DXVA}"
    refused = _run(program, f"candidate list {options}")
    [message] = UNSENT
    assert refused.code == 1
    assert _unwrapped(message) in _unwrapped(refused.err)


def test_provider_list_may_require_one_of_several_owners(program: Program) -> None:
    listed = _run(program, "provider list --required in:OWNER_NOVA,OWNER_CYBORG -f json")

    assert (listed.code, listed.json()) == (0, [])


def _run(program: Program, command: str) -> Done:
    return inprocess.run(program, *shlex.split(command))


def _candidates(program: Program, options: str) -> set[str]:
    """Return the GPUs in the candidates."""
    rows = _run(program, f"candidate list {options} -f json").json()
    return {row["Provider"] for row in rows} - {"node"}


def _names(cell: str) -> set[str]:
    return set() if cell == "none" else set(cell.split(", "))


def _unwrapped(text: str) -> str:
    return " ".join(text.split())
