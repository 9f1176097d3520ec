"""What a driver may leave behind of the allocations that it was given to edit."""

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
        "allocations": {HOST: {"resources": {"VGPU": 1}, "generation": 3}},
        "project_id": "p",
        "user_id": "u",
        "consumer_generation": 1,
    }
}


def given(allocations: Any) -> dict[str, Any]:
    return {"server": {**BEFORE["server"], "allocations": allocations}}


def test_amounts_move_and_whose_they_are_stays() -> None:
    after = given({GPU: {"resources": {"VGPU": 1}}})
    after["server"] |= {"project_id": "another", "consumer_generation": 9}
    moved = given({GPU: {"resources": {"VGPU": 1}}})
    assert edited("gpus", "host", BEFORE, after, within=TREE) == moved


def test_a_provider_from_which_nothing_is_taken_is_left_out() -> None:
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
def test_which_consumers_there_are_is_not_the_drivers_to_say(after: Any) -> None:
    with pytest.raises(InvalidTree, match="has to have the same consumers"):
        edited("gpus", "host", BEFORE, after, within=TREE)


@pytest.mark.parametrize(
    "part", [None, {}, {"resources": None}, {"resources": ["VGPU"]}, "VGPU"], ids=repr
)
def test_each_provider_has_resources(part: Any) -> None:
    with pytest.raises(InvalidTree, match="has to name resources for each provider"):
        edited("gpus", "host", BEFORE, given({GPU: part}), within=TREE)


@pytest.mark.parametrize("amount", [0, -1, 1.0, "1", None, True], ids=repr)
def test_amounts_are_whole_and_above_zero(amount: Any) -> None:
    with pytest.raises(InvalidTree, match="has to have whole amounts above 0"):
        edited("gpus", "host", BEFORE, given({GPU: {"resources": {"VGPU": amount}}}), within=TREE)


@pytest.mark.parametrize(
    ("uuid", "kind"), [(GPU, "GPUS"), (GPU, "HW_CPU_X86_VMX"), ("gpu", "VGPU")]
)
def test_classes_and_uuids_are_such(uuid: str, kind: str) -> None:
    with pytest.raises(InvalidTree, match="server"):
        edited("gpus", "host", BEFORE, given({uuid: {"resources": {kind: 1}}}), within=TREE)


@pytest.mark.parametrize("allocations", [{}, None, {GPU: {"resources": {}}}], ids=repr)
def test_what_a_consumer_holds_must_not_be_lost(allocations: Any) -> None:
    with pytest.raises(InvalidTree, match="must not be lost"):
        edited("gpus", "host", BEFORE, given(allocations), within=TREE)


@pytest.mark.parametrize(
    ("allocations", "told"),
    [
        ({GPU: {"resources": {"VGPU": 2}}}, "of VGPU that was 1, and is 2"),
        (
            {HOST: {"resources": {"VGPU": 1}}, GPU: {"resources": {"VGPU": 1}}},
            "of VGPU that was 1, and is 2",
        ),
        ({GPU: {"resources": {"PGPU": 1}}}, "of PGPU that was 0, and is 1"),
        (
            {GPU: {"resources": {"VGPU": 1}}, HOST: {"resources": {"VCPU": 1}}},
            "of VCPU that was 0, and is 1",
        ),
    ],
)
def test_nothing_is_lost_or_counted_twice(allocations: Any, told: str) -> None:
    with pytest.raises(InvalidTree, match=told):
        edited("gpus", "host", BEFORE, given(allocations), within=TREE)


def test_a_provider_is_named_once() -> None:
    part = {"resources": {"VGPU": 1}}
    with pytest.raises(InvalidTree, match=f"has to name provider {GPU} once"):
        edited("gpus", "host", BEFORE, given({GPU: part, GPU.upper(): part}), within=TREE)


def test_amounts_move_within_the_tree_alone() -> None:
    moved = given({GPU: {"resources": {"VGPU": 1}}})
    assert edited("gpus", "host", BEFORE, moved, within=[HOST, GPU]) == moved
    for within in ([HOST], [GPU], []):
        with pytest.raises(InvalidTree, match="which is not of this tree"):
            edited("gpus", "host", BEFORE, moved, within=within)


def test_what_a_consumer_has_elsewhere_stays_as_it_is() -> None:
    before = {"server": {**BEFORE["server"]}}
    before["server"]["allocations"] = {
        HOST: {"resources": {"VGPU": 1}},
        DISKS: {"resources": {"DISK_GB": 5}},
    }
    after = given({GPU: {"resources": {"VGPU": 1}}, DISKS: {"resources": {"DISK_GB": 5}}})
    assert edited("gpus", "host", before, after, within=[HOST, GPU]) == after
