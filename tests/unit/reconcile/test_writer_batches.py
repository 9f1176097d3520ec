"""Batches of the writer: two transactions for each, intents that expire, trees that fail alone."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Final

import fixtures
import pytest

from tests.unit.providers.world import Fuse, Memory, PlacementModel, plan_of
from tests.unit.reconcile.states import published, root
from wharfinger.exceptions import (
    ConcurrentSave,
    ConcurrentUpdate,
    IntentExpired,
    InvalidObject,
    InventoryInUse,
    ObjectExists,
    PlacementUnavailable,
    WharfingerError,
)
from wharfinger.objects import ComputeNode
from wharfinger.placement.microversions import HIGHEST, Microversion
from wharfinger.providers import Inventory, Provider
from wharfinger.providers.plan import (
    SetAggregates,
    SetInventories,
    SetTraits,
    Step,
    TreePlan,
    after_step,
)
from wharfinger.providers.provider import Record
from wharfinger.reconcile.apply import BATCH, Writer
from wharfinger.reconcile.record_store import RowChanges
from wharfinger.reconcile.tree_write import TreeWrite

VALID: Final = timedelta(seconds=30)
BEFORE: Final = {"VGPU": Inventory(total=4)}
AFTER: Final = {"VGPU": Inventory(total=8)}
TRAITS: Final = frozenset(["CUSTOM_A"])
AGGREGATES: Final = frozenset(["00000000-0000-0000-0000-00000000000a"])


class Store(Memory):
    """Records in memory; it counts the writes.

    ``stale`` is the provider whose record another process has changed. The writes with the numbers
    in ``refused`` fail if they contain it.
    """

    def __init__(self, providers: Iterable[Provider] = ()) -> None:
        super().__init__(Fuse())
        self.records.update(published(*providers))
        self.writes: list[dict[str, Record | None]] = []
        self.stale: str | None = None
        self.refused: set[int] = set()

    def write(self, changes: Sequence[RowChanges], **also: Any) -> None:
        records = records_in(changes)
        self.writes.append(records)
        if self.stale in records and len(self.writes) in self.refused:
            raise ConcurrentSave(kind="record", keys=(self.stale,))
        super().write(changes, **also)


def records_in(changes: Sequence[RowChanges]) -> dict[str, Record | None]:
    """Return the records in these changes, by provider uuid."""
    return {uuid: record for one in changes for uuid, record in one.records.items()}


class Placement(PlacementModel):
    """A Placement that records requests; each takes ``seconds`` of the test's clock.

    It refuses requests about the providers in ``errors`` with their error.
    """

    def __init__(self, providers: Iterable[Provider], seconds: float = 0.0) -> None:
        super().__init__(providers, Fuse())
        self.now = 0.0
        self.errors: dict[str, WharfingerError] = {}
        #: Method and path of each request, and the time at which it was sent.
        self.requests: list[tuple[str, float]] = []
        self._seconds = seconds

    def clock(self) -> float:
        return self.now

    def send(self, method: str, path: str, body: Any, *args: Any, **kwargs: Any) -> Any:
        self._note(method, path, path.split("/")[2:3])
        return super().send(method, path, body, *args, **kwargs)

    def command(self, method: str, path: str, body: Any = None, **kwargs: Any) -> None:
        self._note(method, path, body["inventories"] if path == "/reshaper" else ())
        super().command(method, path, body, **kwargs)

    def _note(self, method: str, path: str, uuids: Iterable[str]) -> None:
        if path.startswith("/traits"):
            return
        self.requests.append((f"{method} {path}", self.now))
        self.now += self._seconds
        for uuid in uuids:
            if uuid in self.errors:
                raise self.errors[uuid]


@dataclass(frozen=True)
class Written:
    """The result of one call of the writer."""

    trees: list[TreeWrite]
    steps: list[Step]

    @property
    def errors(self) -> dict[str, list[WharfingerError]]:
        """Return the errors by root uuid."""
        return {tree.plan.root_uuid: tree.errors for tree in self.trees if tree.errors}

    @property
    def error_types(self) -> dict[str, list[type[WharfingerError]]]:
        return {uuid: [type(one) for one in its] for uuid, its in self.errors.items()}

    @property
    def done(self) -> list[str]:
        """Return the root uuids of the steps that were done, in order."""
        return [step.root_uuid for step in self.steps]


def nodes(count: int) -> list[Provider]:
    return [root(f"node-{number}", inventories=BEFORE) for number in range(count)]


def target(provider: Provider) -> dict[str, str]:
    return {"uuid": provider.uuid, "name": provider.name, "root_uuid": provider.root_uuid}


def sets_inventories(provider: Provider) -> SetInventories:
    return SetInventories(**target(provider), before=provider.inventories, after=AFTER)


def sets_traits(provider: Provider) -> SetTraits:
    return SetTraits(**target(provider), before=provider.traits, after=TRAITS)


def sets_aggregates(provider: Provider) -> SetAggregates:
    return SetAggregates(**target(provider), before=provider.aggregates, after=AGGREGATES)


def write(client: Placement, store: Store, steps: Sequence[Step]) -> Written:
    """Write a plan of these steps."""
    after: dict[str, Provider | None] = dict(client.providers)
    for step in steps:
        after[step.uuid] = after_step(step, after[step.uuid])
    records = published(*(one for one in after.values() if one is not None))
    plan = plan_of(client, *steps, **records)
    written = Written([TreeWrite(tree) for tree in plan.trees], [])
    with fixtures.MonkeyPatch("wharfinger.reconcile.apply.boottime", client.clock):
        Writer(client, valid_for=VALID).apply(written.trees, store, written.steps.append)
    return written


# Transactions.


@pytest.mark.parametrize(
    ("microversion", "requests"),
    [(HIGHEST, 3), (Microversion(1, 29), 250)],
    ids=["with reshaper", "without reshaper"],
)
def test_apply_of_250_changed_trees_takes_two_writes_of_the_store_per_batch(
    microversion: Microversion, requests: int
) -> None:
    all_nodes = nodes(250)
    client, store = Placement(all_nodes), Store(all_nodes)
    client._microversion = microversion

    written = write(client, store, [sets_inventories(one) for one in all_nodes])

    assert written.errors == {}
    assert [len(records) for records in store.writes] == [100, 100, 100, 100, 50, 50]
    for number, records in enumerate(store.writes):
        is_intent = number % 2 == 0
        for record in records.values():
            assert record is not None
            assert (record.intended is not None) == is_intent
    assert len(client.requests) == requests
    assert len(written.done) == 250
    assert all(one.inventories == AFTER for one in client.providers.values())
    assert store.records == published(*client.providers.values())


def test_apply_of_trees_without_steps_takes_one_write_of_the_store_per_batch() -> None:
    all_nodes = nodes(BATCH + 1)
    client, store = Placement(all_nodes), Store()
    plan = plan_of(client, *map(sets_inventories, all_nodes))
    trees = [TreeWrite(replace(tree, steps=(), live={})) for tree in plan.trees]

    Writer(client).apply(trees, store)

    assert [len(records) for records in store.writes] == [BATCH, 1]
    assert client.requests == []


# Intents that expire.


def test_apply_with_an_expired_intent_sends_no_request_and_stores_finished_results() -> None:
    """Each request takes 20 s. An intent is valid for 30 s; the third request is due at 40 s."""
    done, half, late = nodes(3)
    client, store = Placement([done, half, late], seconds=20.0), Store([done, half, late])

    written = write(
        client,
        store,
        [sets_traits(done), sets_traits(half), sets_aggregates(half), sets_traits(late)],
    )

    assert client.requests == [
        (f"PUT /resource_providers/{done.uuid}/traits", 0.0),
        (f"PUT /resource_providers/{half.uuid}/traits", 20.0),
    ]
    assert written.done == [done.uuid, half.uuid]
    assert written.error_types == {half.uuid: [IntentExpired], late.uuid: [IntentExpired]}
    [error] = written.errors[late.uuid]
    assert isinstance(error, IntentExpired)
    assert (error.uuid, error.provider, error.seconds) == (late.uuid, late.name, 30.0)
    live = client.providers
    assert store.records == {
        **published(live[done.uuid]),
        half.uuid: Record(
            applied=replace(half, generation=None),
            intended=replace(half, generation=None, traits=TRAITS, aggregates=AGGREGATES),
            live=replace(half, generation=2, traits=TRAITS),
        ),
        late.uuid: Record(
            applied=replace(late, generation=None),
            intended=replace(late, generation=None, traits=TRAITS),
            live=late,
        ),
    }


@pytest.mark.parametrize(("seconds", "sent"), [(14.0, 3), (15.0, 2), (16.0, 2)])
def test_apply_sends_inventories_only_before_the_intent_expires(seconds: float, sent: int) -> None:
    """Each request takes ``seconds`` seconds; the tree without new traits goes first."""
    first, second = all_nodes = nodes(2)
    client, store = Placement(all_nodes, seconds=seconds), Store(all_nodes)

    written = write(client, store, [sets_traits(first), *map(sets_inventories, all_nodes)])

    assert len(client.requests) == sent
    is_expired = 2 * seconds >= 30
    expired = {first.uuid} if is_expired else set()
    assert written.errors.keys() == expired
    left = BEFORE if is_expired else AFTER
    assert {one.uuid: one.inventories for one in client.providers.values()} == {
        first.uuid: left,
        second.uuid: AFTER,
    }


def test_apply_of_the_batch_after_an_expired_one_has_new_intents() -> None:
    all_nodes = nodes(BATCH + 1)
    client, store = Placement(all_nodes, seconds=20.0), Store(all_nodes)

    written = write(client, store, [sets_traits(one) for one in all_nodes])

    assert written.done == [all_nodes[0].uuid, all_nodes[1].uuid, all_nodes[BATCH].uuid]
    assert written.errors.keys() == {one.uuid for one in all_nodes[2:BATCH]}
    assert len(store.writes) == 4


# Trees that fail.

Fails = Callable[[Placement, Store, Provider], type[WharfingerError]]


def refuse_update(client: Placement, _store: Store, provider: Provider) -> type[WharfingerError]:
    """Let Placement refuse each write because another program keeps writing the provider."""
    client.errors[provider.uuid] = ConcurrentUpdate(
        request="a write", status=409, code="", detail="changed"
    )
    return ConcurrentUpdate


def refuse_inventory(client: Placement, _store: Store, provider: Provider) -> type[WharfingerError]:
    """Let Placement refuse each write because the provider is in use."""
    client.errors[provider.uuid] = InventoryInUse(
        request="a write", status=409, code="", detail="in use"
    )
    return InventoryInUse


def expire(client: Placement, _store: Store, provider: Provider) -> type[WharfingerError]:
    """Let the intent of this tree expire, as after a takeover of its node."""
    client.errors[provider.uuid] = IntentExpired(
        provider=provider.name, uuid=provider.uuid, seconds=30.0
    )
    return IntentExpired


def refuse_intent(_client: Placement, store: Store, provider: Provider) -> type[WharfingerError]:
    """Let another process change the record before the intent is stored."""
    store.stale, store.refused = provider.uuid, {1}
    return ConcurrentSave


def refuse_result(_client: Placement, store: Store, provider: Provider) -> type[WharfingerError]:
    """Let another process change the record before the result is stored."""
    store.stale, store.refused = provider.uuid, {2}
    return ConcurrentSave


@pytest.mark.parametrize("make_step", [sets_inventories, sets_traits])
@pytest.mark.parametrize(
    "fail", [refuse_update, refuse_inventory, expire, refuse_intent, refuse_result]
)
def test_apply_with_a_failing_tree_writes_the_others_of_its_batch_and_of_the_next(
    fail: Fails, make_step: Callable[[Provider], Step]
) -> None:
    all_nodes = nodes(150)
    failing = all_nodes[37]
    others = [one for one in all_nodes if one is not failing]
    client, store = Placement(all_nodes), Store(all_nodes)
    error = fail(client, store, failing)

    written = write(client, store, [make_step(one) for one in all_nodes])

    assert written.error_types == {failing.uuid: [error]}
    assert len(store.writes) == 4 + len(store.refused)
    done = [uuid for uuid in written.done if uuid != failing.uuid]
    assert len(done) == len(others)
    assert set(done[:99]) == {one.uuid for one in others[:99]}
    for one in others:
        live = client.providers[one.uuid]
        assert (live.inventories, live.traits) != (one.inventories, one.traits)
        assert store.records[one.uuid] == published(live)[one.uuid]


def test_apply_of_records_that_another_process_changed_notes_no_node_as_saved() -> None:
    [provider] = nodes(1)
    store = Store([provider])
    refuse_intent(Placement([provider]), store, provider)
    tree = TreeWrite(
        TreePlan(root_uuid=provider.uuid, records=published(provider)),
        result_rows=RowChanges(
            changed_nodes=[ComputeNode(store.context, uuid=provider.uuid, vcpus=8)]
        ),
    )
    Writer(Placement([provider])).apply([tree], store)
    assert [type(error) for error in tree.errors] == [ConcurrentSave]
    assert not tree.result_rows.changed_nodes


@pytest.mark.parametrize("fail", [refuse_update, refuse_intent])
def test_apply_with_a_failing_tree_leaves_its_provider(fail: Fails) -> None:
    all_nodes = nodes(3)
    failing = all_nodes[1]
    client, store = Placement(all_nodes), Store(all_nodes)
    fail(client, store, failing)

    written = write(client, store, [sets_inventories(one) for one in all_nodes])

    assert failing.uuid not in written.done
    assert client.providers[failing.uuid] == failing
    record = store.records[failing.uuid]
    assert record.applied == replace(failing, generation=None)
    assert (record.intended is None) == (fail is refuse_intent)


def test_apply_with_a_failing_tree_sends_its_batch_again_in_halves() -> None:
    all_nodes = nodes(BATCH)
    client, store = Placement(all_nodes), Store(all_nodes)
    refuse_update(client, store, all_nodes[37])

    write(client, store, [sets_inventories(one) for one in all_nodes])

    # After the first request, each of the 7 levels of halves sends at most two requests.
    assert 7 <= len(client.requests) <= 15


def test_apply_without_an_answer_of_placement_raises_and_stores_finished_results() -> None:
    all_nodes = nodes(BATCH + 1)
    done, unanswered = all_nodes[:2]
    client, store = Placement(all_nodes), Store(all_nodes)
    client.errors[unanswered.uuid] = PlacementUnavailable(
        request="a write", status=0, code="", detail="no answer"
    )

    with pytest.raises(PlacementUnavailable):
        write(client, store, [sets_traits(one) for one in all_nodes])

    assert len(client.requests) == len(store.writes) == 2
    assert store.records[done.uuid] == published(client.providers[done.uuid])[done.uuid]
    for one in all_nodes[1:BATCH]:
        assert store.records[one.uuid].intended is not None
    assert (
        store.records[all_nodes[BATCH].uuid] == published(all_nodes[BATCH])[all_nodes[BATCH].uuid]
    )


@pytest.mark.parametrize("is_result", [False, True], ids=["intent", "result"])
@pytest.mark.parametrize(
    "error",
    [
        ObjectExists(kind="row", key="x", unique="key"),
        InvalidObject(subject="row", problem="damaged", remedy="Restore it."),
    ],
    ids=["exists", "invalid"],
)
def test_batch_with_one_row_that_cannot_be_written_writes_all_other_trees(
    error: WharfingerError, is_result: bool
) -> None:
    every = nodes(4)
    bad = every[2].uuid

    class Bad(Store):
        def write(self, changes: Sequence[RowChanges], **also: Any) -> None:
            record = records_in(changes).get(bad)
            if record is not None and (record.intended is None) == is_result:
                raise error
            super().write(changes, **also)

    client, store = Placement(every), Bad(every)
    written = write(client, store, [sets_inventories(one) for one in every])

    assert {uuid: its for uuid, its in written.errors.items() if its} == {bad: [error]}
    done = {one.uuid for one in every if store.records[one.uuid].intended is None}
    assert done >= {one.uuid for one in every} - {bad}
