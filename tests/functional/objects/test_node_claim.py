"""NodeClaim saves instances and migrations only while their node is where they name it."""

from collections.abc import Iterator
from functools import partial

import pytest

from tests.functional.objects.test_cycle_batch import together
from tests.lab.objects import Kept, KeptElsewhere, transactions
from tests.lab.samples import instance, migration, node, record, uuid
from wharfinger.exceptions import ConcurrentSave, ObjectNotFound
from wharfinger.objects import (
    ComputeNode,
    Context,
    Instance,
    Migration,
    NodeClaim,
    ProviderRecordList,
    RecordBatch,
    Takeover,
)
from wharfinger.tracker.instance_claims import Claims, End

HOST, OTHER, INSTANCE = "host-1", "host-2", "metal"
ROUNDS = 10


def found(context: Context, number: int = 1) -> ComputeNode:
    return ComputeNode.get_by_uuid(context, uuid(f"node {number}"))


def overlaid() -> ComputeNode:
    made = node(None, 1)
    return ComputeNode(uuid=made.uuid, host=HOST, hypervisor_hostname=made.hypervisor_hostname)


def put(one: Instance, number: int = 1, host: str = HOST) -> Instance:
    one.host, one.node = host, f"node-{number}"
    return one


def take(context: Context, taken: ComputeNode) -> None:
    Takeover(context, host=OTHER, driver_instance=INSTANCE, nodes=[taken]).save()


def assert_unchanged(context: Context, *changed: Instance | Migration) -> None:
    """Assert that the database has none of the changes of these objects."""
    for one in changed:
        assert one.obj_what_changed()
        assert type(one).get_by_uuid(context, one.uuid).revision == one.revision == 1


def test_save_writes_all_objects_and_updates_them(kept: Kept, context: Context) -> None:
    node(context, 1).create()
    one, move = instance(context), migration(context)
    move.create()  # before the instance, which is on no node
    one.create()
    put(one)
    move.dest_compute, move.dest_node = HOST, "node-1"
    claim = NodeClaim(context, node=found(context), instances=[one], migrations=[move])

    with transactions() as begun:
        claim.save()

    assert len(begun) == (0 if isinstance(kept, KeptElsewhere) else 1)
    for saved in (one, move):
        assert not saved.obj_what_changed()
        assert type(saved).get_by_uuid(context, saved.uuid).revision == saved.revision == 2
    assert Instance.get_by_uuid(context, one.uuid).node == "node-1"


def test_save_on_a_node_that_was_taken_over_or_renamed_writes_nothing(context: Context) -> None:
    away, renamed = (node(context, number) for number in (1, 2))
    one, two = (instance(context, number) for number in (1, 2))
    for created in (away, renamed, one, two):
        created.create()
    before = [found(context, number) for number in (1, 2)]
    take(context, away)
    renamed.hypervisor_hostname = "new-name"
    renamed.save()

    for known, changed in zip(before, (put(one, 1), put(two, 2)), strict=True):
        with pytest.raises(ConcurrentSave, match=known.uuid):
            NodeClaim(context, node=known, instances=[changed]).save()
    assert_unchanged(context, one, two)


def test_save_on_a_deleted_node_writes_nothing(context: Context) -> None:
    gone, one = node(context, 1), instance(context)
    gone.create()
    one.create()
    known = found(context)
    gone.destroy()

    with pytest.raises(ObjectNotFound, match="node-1 on host host-1"):
        NodeClaim(context, node=known, instances=[put(one)]).save()
    assert_unchanged(context, one)


def test_save_on_an_overlaid_node_needs_its_record_on_the_host(context: Context) -> None:
    node(context, 1, host=OTHER).create()  # another host publishes the root
    one, two = instance(context, 1), instance(context, 2)
    one.create()
    two.create()
    root = record(1, provider_uuid=overlaid().uuid, mode="overlay")
    ProviderRecordList.replace(context, HOST, INSTANCE, ProviderRecordList(objects=[root]), [])

    NodeClaim(context, node=overlaid(), instances=[put(one)]).save()
    ProviderRecordList.replace(context, HOST, INSTANCE, ProviderRecordList(), [root.key])
    with pytest.raises(ObjectNotFound, match="node-1 on host host-1"):
        NodeClaim(context, node=overlaid(), instances=[put(two)]).save()

    assert Instance.get_by_uuid(context, one.uuid).node == "node-1"
    assert_unchanged(context, two)


def test_save_with_a_changed_migration_does_not_save_the_instance(context: Context) -> None:
    node(context, 1).create()
    one, move = instance(context), migration(context, status="finished")
    move.create()  # before the instance, which is on no node
    one.create()
    other = Migration.get_by_uuid(context, move.uuid)
    other.status = "reverting"
    other.save()

    move.status = "confirming"
    with pytest.raises(ConcurrentSave, match=move.uuid):
        NodeClaim(context, node=found(context), instances=[put(one)], migrations=[move]).save()
    assert_unchanged(context, one)


def claims(context: Context) -> Iterator[tuple[ComputeNode, NodeClaim]]:
    """Yield new nodes, each with the unsaved claim of a new instance."""
    for number in range(ROUNDS):
        made, one = node(context, number), instance(context, number)
        made.create()
        one.create()
        known = found(context, number)
        yield made, NodeClaim(context, node=known, instances=[put(one, number)])


def test_claim_and_takeover_at_once_leave_the_instance_with_its_node(context: Context) -> None:
    for claimed, claim in claims(context):
        taking = Takeover(context, host=OTHER, driver_instance=INSTANCE, nodes=[claimed])
        _, error = together(taking.save, claim.save)
        assert error is None or isinstance(error, ConcurrentSave)
        saved = Instance.get_by_uuid(context, claim.instances[0].uuid)
        place = (None, None) if error else (OTHER, claimed.hypervisor_hostname)
        assert (saved.host, saved.node) == place


def test_claim_and_rename_at_once_leave_the_instance_with_its_node(context: Context) -> None:
    for claimed, claim in claims(context):
        new = claimed.hypervisor_hostname = f"new-{claimed.hypervisor_hostname}"
        rename = RecordBatch(context, host=HOST, driver_instance=INSTANCE, changed_nodes=[claimed])
        renamed, error = together(rename.save, claim.save)
        assert renamed is None
        assert error is None or isinstance(error, ConcurrentSave)
        saved = Instance.get_by_uuid(context, claim.instances[0].uuid)
        assert saved.node == (None if error else new)


def test_move_away_and_rename_at_once_leave_the_instance_on_an_existing_node(
    context: Context,
) -> None:
    for number in range(ROUNDS):
        source, there = node(context, number), node(context, 100 + number, host=OTHER)
        one = put(instance(context, number), number)
        move = migration(context, number, status="finished", source_node=f"node-{number}")
        move.dest_compute, move.dest_node = OTHER, there.hypervisor_hostname
        for created in (source, there, one, move):
            created.create()
        source.hypervisor_hostname = f"new-{number}"
        rename = RecordBatch(context, host=HOST, driver_instance=INSTANCE, changed_nodes=[source])
        end = partial(Claims(context, OTHER).drop_move_claim, one, move, End.SOURCE)
        renamed, error = together(rename.save, end)
        assert renamed is None
        assert error is None or isinstance(error, ConcurrentSave)
        saved = Instance.get_by_uuid(context, one.uuid)
        place = (HOST, f"new-{number}") if error else (OTHER, there.hypervisor_hostname)
        assert (saved.host, saved.node) == place
