"""``wharfinger provider``: what is in Placement, for people and for programs."""

import uuid

import pytest

from tests.lab.program import Program
from wharfinger.placement.client import PlacementClient
from wharfinger.placement.embedded import EmbeddedPlacement

TREE = """\
gpu-host-1  OWNER_NOVA
├── MEMORY_MB 0/262144  4096 reserved
├── VCPU 0/64  2 reserved
├── gpu-host-1_pci_0000_84_00_0  OWNER_NOVA
│   └── VGPU 0/8
└── gpu-host-1_pci_0000_c4_00_0  OWNER_NOVA
    └── CUSTOM_VGPU_LARGE 0/4
"""


@pytest.fixture
def published(program: Program) -> Program:
    assert program.run("sync").code == 0
    return program


def test_the_tree_is_drawn(published: Program) -> None:
    drawn = published.run("provider", "tree", "--inventory", "--usage")

    assert (drawn.code, drawn.out) == (0, TREE)


def test_the_tree_of_one_provider_is_drawn(published: Program) -> None:
    drawn = published.run("provider", "tree", "gpu-host-1_pci_0000_84_00_0", "--traits")

    assert drawn.out.startswith("gpu-host-1  OWNER_NOVA\n")
    assert "traits: CUSTOM_VGPU_T4_2Q, CUSTOM_WHARFINGER_GPUS, OWNER_NOVA" in drawn.out


def test_the_tree_as_json_has_what_was_asked_for(published: Program) -> None:
    [root] = published.run(
        "provider", "tree", "--inventory", "--traits", "--usage", "-f", "json"
    ).json()

    child = root["children"][0]
    assert child["inventories"]["VGPU"]["total"] == 8
    assert child["usages"] == {"VGPU": 0}
    assert child["traits"] == ["CUSTOM_VGPU_T4_2Q", "CUSTOM_WHARFINGER_GPUS", "OWNER_NOVA"]
    assert "traits" not in published.run("provider", "tree", "-f", "json").json()[0]


@pytest.mark.parametrize("form", ["json", "yaml", "csv", "table"])
def test_the_list_has_every_format(published: Program, form: str) -> None:
    listed = published.run("provider", "list", "-f", form)

    assert listed.code == 0
    assert "gpu-host-1_pci_0000_84_00_0" in listed.out


def test_one_provider_is_shown_by_name_and_by_uuid(published: Program) -> None:
    by_name = published.run("provider", "show", "gpu-host-1", "-f", "json").json()

    by_uuid = published.run("provider", "show", by_name["uuid"], "-f", "json").json()

    assert by_uuid == by_name
    assert by_name["inventories"]["VCPU"]["reserved"] == 2
    assert by_name["aggregates"] == []


@pytest.mark.parametrize("command", ["show", "tree"])
def test_an_empty_name_is_no_provider(published: Program, command: str) -> None:
    failed = published.run("provider", command, "")

    assert failed.code == 1
    assert "name or uuid ''" in failed.err


def test_a_name_with_escape_sequences_does_not_reach_the_terminal(
    published: Program, placement_service: EmbeddedPlacement
) -> None:
    client = PlacementClient(placement_service.adapter)
    client.create_provider(str(uuid.uuid4()), "\x1b[31mevil\x1b[0m [red]x[/red] :bus:", None)

    for command in (("list",), ("list", "-f", "csv"), ("tree",)):
        printed = published.run("provider", *command).out
        assert "\x1b" not in printed
        assert "\\x1b[31mevil" in printed
        assert "[red]x[/red] :bus:" in printed
    assert "\x1b" not in published.run("provider", "show", "\x1b[31m").err


def test_a_provider_that_is_not_there_is_named(published: Program) -> None:
    failed = published.run("provider", "show", "nobody")

    assert failed.code == 1
    assert "no provider with the name or uuid 'nobody'" in failed.err
    assert "Traceback" not in failed.err
