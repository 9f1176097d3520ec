"""Checks of allocations that a driver has edited for a reshape."""

from typing import Any, Final

import pytest

from wharfinger.exceptions import InvalidTree
from wharfinger.reconcile.reshape_allocation_checks import edited

HOST: Final = "3f0c6f5e-9f0b-4a53-8a60-7b6a3c1f7d0e"
GPU: Final = "8a9e9c7e-53a5-4ac8-b2a4-0f3d9c3c2f4e"
DISKS: Final = "0d6c1f0b-1df2-4a0e-8c5e-2f1f6f8f9b11"
TREE: Final = (HOST, GPU)
BEFORE: Final[dict[str, Any]] = {
    "server": {
        "allocations": {HOST: {"resources": {"VGPU": 1}}},
        "project_id": "p",
        "user_id": "u",
        "consumer_generation": 1,
    }
}


def given(allocations: Any) -> dict[str, Any]:
    return {"server": {**BEFORE["server"], "allocations": allocations}}


def test_moved_amounts_keep_the_attributes_of_the_consumer() -> None:
    after = given({GPU: {"resources": {"VGPU": 1}}})
    after["server"] |= {"project_id": "another", "consumer_generation": 9}
    moved = given({GPU: {"resources": {"VGPU": 1}}})
    assert edited("gpus", "host", BEFORE, after, within=TREE) == moved


def test_provider_without_resources_is_left_out() -> None:
    after = given({HOST: {"resources": {}}, GPU: {"resources": {"VGPU": 1}}})
    moved = given({GPU: {"resources": {"VGPU": 1}}})
    assert edited("gpus", "host", BEFORE, after, within=TREE) == moved


def test_uuids_are_sent_in_their_canonical_form() -> None:
    after = given({GPU.upper(): {"resources": {"VGPU": 1}}})
    moved = given({GPU: {"resources": {"VGPU": 1}}})
    assert edited("gpus", "host", BEFORE, after, within=TREE) == moved


@pytest.mark.parametrize(
    "after",
    [None, [], "server", {}, {**BEFORE, "another": BEFORE["server"]}],
    ids=["none", "list", "text", "one less", "one more"],
)
def test_added_or_removed_consumer_is_refused(after: Any) -> None:
    with pytest.raises(InvalidTree, match="must have the same consumers"):
        edited("gpus", "host", BEFORE, after, within=TREE)


@pytest.mark.parametrize(
    "part", [None, {}, {"resources": None}, {"resources": ["VGPU"]}, "VGPU"], ids=repr
)
def test_provider_without_resources_key_is_refused(part: Any) -> None:
    with pytest.raises(InvalidTree, match="must name resources for each provider"):
        edited("gpus", "host", BEFORE, given({GPU: part}), within=TREE)


@pytest.mark.parametrize("amount", [0, -1, 1.0, "1", None, True], ids=repr)
def test_amount_that_is_no_positive_integer_is_refused(amount: Any) -> None:
    with pytest.raises(InvalidTree, match="must have whole amounts above 0"):
        edited("gpus", "host", BEFORE, given({GPU: {"resources": {"VGPU": amount}}}), within=TREE)


@pytest.mark.parametrize(
    ("uuid", "kind"), [(GPU, "GPUS"), (GPU, "HW_CPU_X86_VMX"), ("gpu", "VGPU")]
)
def test_invalid_class_or_uuid_is_refused(uuid: str, kind: str) -> None:
    with pytest.raises(InvalidTree, match="server"):
        edited("gpus", "host", BEFORE, given({uuid: {"resources": {kind: 1}}}), within=TREE)


@pytest.mark.parametrize("allocations", [{}, None, {GPU: {"resources": {}}}], ids=repr)
def test_consumer_that_loses_an_amount_is_refused(allocations: Any) -> None:
    with pytest.raises(InvalidTree, match="must not lose all resources"):
        edited("gpus", "host", BEFORE, given(allocations), within=TREE)


@pytest.mark.parametrize(
    ("allocations", "told"),
    [
        ({GPU: {"resources": {"VGPU": 2}}}, "VGPU was 1, and is 2"),
        (
            {HOST: {"resources": {"VGPU": 1}}, GPU: {"resources": {"VGPU": 1}}},
            "VGPU was 1, and is 2",
        ),
        ({GPU: {"resources": {"PGPU": 1}}}, "PGPU was 0, and is 1"),
        (
            {GPU: {"resources": {"VGPU": 1}}, HOST: {"resources": {"VCPU": 1}}},
            "VCPU was 0, and is 1",
        ),
    ],
)
def test_lost_or_doubled_amount_is_refused(allocations: Any, told: str) -> None:
    with pytest.raises(InvalidTree, match=told):
        edited("gpus", "host", BEFORE, given(allocations), within=TREE)


def test_provider_named_twice_is_refused() -> None:
    part = {"resources": {"VGPU": 1}}
    with pytest.raises(InvalidTree, match=f"must name provider {GPU} only once"):
        edited("gpus", "host", BEFORE, given({GPU: part, GPU.upper(): part}), within=TREE)


def test_amount_that_moves_to_another_tree_is_refused() -> None:
    moved = given({GPU: {"resources": {"VGPU": 1}}})
    assert edited("gpus", "host", BEFORE, moved, within=[HOST, GPU]) == moved
    for within in ([HOST], [GPU], []):
        with pytest.raises(InvalidTree, match="which is not in this tree"):
            edited("gpus", "host", BEFORE, moved, within=within)


def test_allocations_in_other_trees_stay() -> None:
    before = {"server": {**BEFORE["server"]}}
    before["server"]["allocations"] = {
        HOST: {"resources": {"VGPU": 1}},
        DISKS: {"resources": {"DISK_GB": 5}},
    }
    after = given({GPU: {"resources": {"VGPU": 1}}, DISKS: {"resources": {"DISK_GB": 5}}})
    assert edited("gpus", "host", before, after, within=[HOST, GPU]) == after
