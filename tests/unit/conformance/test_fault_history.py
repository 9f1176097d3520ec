"""The order in which faults are tried, and comparisons of two runs whose names differ."""

import random
from dataclasses import replace

from wharfinger.conformance.fault_history import Reference, Step, _alike, queues_of
from wharfinger.conformance.harness import Fault
from wharfinger.providers import Inventory, Provider

CALLS = ("list", "show a", "show b")


def step(name: str, *calls: str) -> Step:
    return Step(name, calls, [f"sync: {call}" for call in calls], [{}])


REFERENCE = Reference(
    steps=[step("start", *CALLS), step("add b", *CALLS, "show new"), step("nothing", *CALLS)],
    final={},
    things=["a", "b"],
    has_stable_names=True,
)


def test_queues_have_each_fault_at_each_call_once() -> None:
    for number, queue in enumerate(queues_of(REFERENCE, [*Fault], random.Random(1))):
        calls = REFERENCE.steps[number].calls
        assert {(case.at, case.fault) for case in queue} == {
            (at, fault) for at in range(len(calls)) for fault in Fault
        }
        assert len(queue) == len(calls) * len(Fault)
        assert all(case.call == calls[case.at] for case in queue)


def test_queues_begin_with_the_calls_of_few_steps_and_each_call_once() -> None:
    for seed in range(20):
        queue = queues_of(REFERENCE, [*Fault], random.Random(seed))[1]
        assert queue[0].call == "show new"
        assert {case.call for case in queue[:4]} == {*CALLS, "show new"}


def test_queues_of_one_seed_are_the_same_and_of_another_differ() -> None:
    one, again, other = (queues_of(REFERENCE, [*Fault], random.Random(seed)) for seed in (1, 1, 2))
    assert one == again
    assert one != other


def provider(name: str, uuid: str, parent: str | None, trait: str) -> Provider:
    return Provider(
        uuid=uuid,
        name=name,
        root_uuid="root",
        parent_uuid=parent,
        inventories={"VGPU": Inventory(total=4)},
        traits=frozenset({trait}),
        aggregates=frozenset(),
    )


def test_contents_with_other_names_and_uuids_are_alike() -> None:
    one = {
        "host": replace(provider("host", "root", None, "HW_A"), uuid="root"),
        "host_gpu-7": provider("host_gpu-7", "u7", "root", "CUSTOM_IS_GPU_7"),
    }
    other = {
        "host": provider("host", "root", None, "HW_A"),
        "host_gpu-9": provider("host_gpu-9", "u9", "root", "CUSTOM_IS_GPU_9"),
    }
    names = {"gpu-9": "gpu-7"}
    assert _alike(one, {}) == _alike(other, names)
    moved = {**other, "host_gpu-9": replace(other["host_gpu-9"], parent_uuid=None)}
    assert _alike(one, {}) != _alike(moved, names)
