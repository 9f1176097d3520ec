"""Observation: the trees that a reservation changes, and own reserved amounts of providers."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, cast

import pytest

from tests.unit.providers.world import Fuse, Memory
from tests.unit.reconcile.states import child, published, root, state_of
from wharfinger.objects import Reservation
from wharfinger.placement.tree_reader import PlacementReader, Reading
from wharfinger.providers import Inventory, Provider
from wharfinger.providers.provider import Record
from wharfinger.reconcile.cycle_state import CycleState
from wharfinger.reconcile.node_list import NodeList
from wharfinger.reconcile.observe import Observer, changed_trees
from wharfinger.reconcile.record_store import RecordStore
from wharfinger.tracker.node_rows import Node

CN: Final = root("cn")


def stored(provider: Provider, **fields: Any) -> Reservation:
    return Reservation(provider_uuid=provider.uuid, phase=None, **fields)


def gpu(reserved: int) -> Provider:
    """Return a GPU below CN with 4 VGPUs."""
    return child("gpu", CN, inventories={"VGPU": Inventory(total=4, reserved=reserved)})


@pytest.mark.parametrize(
    ("is_reserved", "reserved", "record", "changes"),
    [
        (True, 1, {}, True),
        (True, 4, {"own_reserved": {"VGPU": 1}}, False),
        (False, 4, {"own_reserved": {"VGPU": 1}}, True),
        (False, 4, {"own_reserved": {"VGPU": 1}, "reservations": ("cleaning",)}, False),
        (False, 4, {}, False),
    ],
    ids=[
        "is to be reserved",
        "is reserved",
        "is to be released",
        "is reserved by the driver",
        "is reserved by another program",
    ],
)
def test_changed_trees_with_a_provider_to_reserve_or_release_has_its_root(
    is_reserved: bool, reserved: int, record: dict[str, Any], changes: bool
) -> None:
    there = gpu(reserved)
    state = state_of(
        CN,
        there,
        records=published(CN) | published(there, **record),
        reservations=[stored(there)] if is_reserved else [],
    )
    assert changed_trees(state) == ({CN.uuid} if changes else set())


def test_changed_trees_has_roots_that_differ_from_their_records_and_blocked_roots() -> None:
    changed, new, same, gone = root("changed"), root("new"), root("same"), root("gone")
    interrupted, blocked = root("interrupted"), root("blocked")
    state = state_of(
        replace(changed, generation=2),
        new,
        same,
        interrupted,
        records=published(changed, same, gone) | published(interrupted, intended=interrupted),
        blocked=frozenset([blocked.uuid]),
    )
    different = {one.uuid for one in (changed, new, gone, interrupted, blocked)}
    assert changed_trees(state) == different


class Reader:
    """A reader that returns these providers."""

    def __init__(self, live: Mapping[str, Provider]) -> None:
        self._live = live

    def read(self, *_args: object, **_kwargs: object) -> Reading:
        return Reading(self._live, (), {})


def observed(state: CycleState) -> CycleState:
    """Return the observed state of a complete listing, with this state's providers in Placement."""
    reader = cast(PlacementReader, Reader(state.live))
    return Observer(reader, Memory(Fuse())).listing(replace(state, live={}))


def test_listing_completes_a_record_with_the_amounts_of_reservations() -> None:
    there = gpu(reserved=4)
    records = published(there, own_reserved={"VGPU": 1, "FPGA": 1})
    first = stored(there, own_reserved={"VGPU": 2, "PGPU": 3})
    second = stored(there, own_reserved={"PGPU": 4})

    state = observed(state_of(CN, there, records=records, reservations=[first, second]))

    # The record's amounts take precedence, then those of the first reservation.
    completed = {"VGPU": 1, "FPGA": 1, "PGPU": 3}
    assert state.records == {there.uuid: replace(records[there.uuid], own_reserved=completed)}


def test_listing_of_a_reserved_provider_without_record_takes_the_stored_amounts() -> None:
    there = gpu(reserved=4)
    state = observed(state_of(CN, there, reservations=[stored(there, own_reserved={"VGPU": 2})]))
    assert state.records == {there.uuid: Record(own_reserved={"VGPU": 2})}


@pytest.mark.parametrize(
    "fields", [{}, {"own_reserved": {"VGPU": 2}}], ids=["unset field", "known amounts"]
)
def test_listing_keeps_records_that_reservations_do_not_complete(fields: dict[str, Any]) -> None:
    there = gpu(reserved=4)
    records = published(there, own_reserved={"VGPU": 1})
    state = state_of(CN, there, records=records, reservations=[stored(there, **fields)])
    assert observed(state).records == records


def test_listing_keeps_the_record_of_a_provider_that_placement_lacks() -> None:
    there = gpu(reserved=4)
    records = published(there)
    state = state_of(CN, records=records, reservations=[stored(there, own_reserved={"VGPU": 2})])
    assert observed(state).records == records


@pytest.mark.parametrize(("generation", "is_read"), [(7, False), (None, True)])
def test_remembered_with_a_root_of_another_program_that_is_missing_reads_placement(
    generation: int | None, is_read: bool
) -> None:
    missing = replace(CN, generation=generation)
    nodes = NodeList((Node("cn", CN.uuid),))
    state = state_of(nodes=nodes, records={CN.uuid: Record(live=missing)})
    observer = Observer(cast("PlacementReader", None), cast("RecordStore", None))

    found = observer.remembered(state, {"cn"})

    assert (found is None) is is_read
