"""Apply: the one writer of providers. Intents, then the requests of each tree, then results.

A batch of trees has one transaction for its intents and one for its results. A crash between two
requests leaves a state that the next cycle repairs: it reads what was intended. The requests of a
batch come in this order: providers are created, moved and tagged; inventories are set, many in one
request; absent providers are deleted. Trees are independent of each other.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from http import HTTPStatus
from itertools import chain
from threading import Event, Lock
from typing import Final, TypeVar

from oslo_log import log as logging

from wharfinger import request_id
from wharfinger.exceptions import (
    ConcurrentSave,
    ConcurrentUpdate,
    DuplicateProvider,
    IntentExpired,
    InvalidObject,
    InventoryInUse,
    NotFound,
    ObjectExists,
    PermissionRefused,
    PlacementError,
    PlacementUnavailable,
    ProviderInUse,
    WharfingerError,
)
from wharfinger.objects import ComputeNode, Reservation
from wharfinger.placement.client import PlacementClient
from wharfinger.placement.microversions import Feature
from wharfinger.placement.provider_writes import ProviderWrites
from wharfinger.placement.traits_and_classes import TraitsAndClasses
from wharfinger.providers import full_reservation
from wharfinger.providers.plan import (
    CreateProvider,
    DeleteProvider,
    Reshape,
    SetAggregates,
    SetInventories,
    SetTraits,
    Step,
    TreePlan,
    UpdateProvider,
)
from wharfinger.providers.provider import Provider
from wharfinger.providers.provider_record import Record
from wharfinger.reconcile.record_store import RecordStore

LOG: Final = logging.getLogger(__name__)
#: Trees in one batch, and providers in one POST /reshaper: half the server's work for each
#: provider, and still a short transaction.
BATCH: Final = 100

_Job = Callable[[], None]
_Inventories = tuple["TreeWrite", SetInventories]
_Value = TypeVar("_Value")


@dataclass(slots=True)
class TreeWrite:
    """A tree's plan, the rows that are written with it, and its progress.

    With the intent: ``new_nodes`` and ``new_reservations`` are created, ``our_nodes`` have to be
    this instance's still, and the reservations of each provider have to be those in
    ``known_reservations``. With the result: ``changed_nodes`` and ``changed_reservations`` are
    saved, ``ended`` reservations are deleted if their provider has all its steps.

    ``now`` are the providers as the steps so far have left them, ``left`` the number of steps that
    each still has. ``raised`` are generations after a reshape, whose answer has none. ``refused``
    are the errors of providers that stay as they are since they are in use, ``kept`` the resource
    classes that these keep. ``failed`` is the error that has stopped the tree. After ``expires``
    (seconds of CLOCK_BOOTTIME) no request is sent. ``skips_result``: the intent was refused.
    ``is_partly_known``: not all of the providers was read; the next cycle has to read them.
    """

    plan: TreePlan
    new_nodes: Sequence[ComputeNode] = ()
    changed_nodes: Sequence[ComputeNode] = ()
    our_nodes: Sequence[str] = ()
    known_reservations: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    new_reservations: Sequence[Reservation] = ()
    changed_reservations: Sequence[Reservation] = ()
    ended: Sequence[Reservation] = ()
    now: dict[str, Provider | None] = field(default_factory=dict)
    left: Counter[str] = field(default_factory=Counter)
    raised: dict[str, int] = field(default_factory=dict)
    intents: dict[str, Record] = field(default_factory=dict)
    withdrawn: set[str] = field(default_factory=set)
    refused: dict[str, WharfingerError] = field(default_factory=dict)
    kept: set[str] = field(default_factory=set)
    failed: WharfingerError | None = None
    expires: float = 0.0
    skips_result: bool = False
    is_partly_known: bool = False

    def __post_init__(self) -> None:
        self.left.update(uuid for step in self.plan.steps for uuid in step.touched)
        self.now.update((uuid, self.plan.live.get(uuid)) for uuid in self.left)

    @property
    def errors(self) -> list[WharfingerError]:
        """The errors of this tree, each once."""
        refused = list(dict.fromkeys(self.refused.values()))
        return [*refused, self.failed] if self.failed else refused

    @property
    def unfinished(self) -> frozenset[str]:
        """The uuids of the providers that still lack a planned step."""
        return frozenset(uuid for uuid, left in self.left.items() if left)

    def goes_on_with(self, step: Step) -> bool:
        """Return whether nothing prevents a step."""
        if self.failed is not None or not self.refused.keys().isdisjoint(step.touched):
            return False
        # A class that one provider did not give up must not be offered by another one, too.
        return not isinstance(step, SetInventories) or self.kept.isdisjoint(step.grown)

    def refuse(self, step: Step, error: WharfingerError) -> None:
        """Keep the step's providers as they are, since they are in use."""
        self.refused.update(dict.fromkeys(step.touched, error))
        if isinstance(step, SetInventories):
            self.kept |= step.shrunk

    def generation(self, step: Step) -> int:
        """Return the generation that a write of the step's provider has to name."""
        provider = self.now.get(step.uuid)
        known = provider.generation if provider else None
        generation = self.raised.get(step.uuid) if provider and known is None else known
        if generation is None:
            raise ValueError(f"{step.verb} {step.name}: its generation is unknown to this plan")
        return generation

    def after(self, step: Step, generation: int | None) -> dict[str, Provider | None]:
        """Return the step's provider as the step leaves it, by uuid."""
        provider = step.result(self.now.get(step.uuid))
        return {step.uuid: provider and replace(provider, generation=generation)}

    def skip_result(self, error: WharfingerError) -> None:
        """Fail the tree; none of its rows are stored any more."""
        self.failed = self.failed or error
        self.skips_result = True

    def drop_rows(self, error: WharfingerError) -> None:
        """Store the records without the other rows, if requests were sent.

        Another attempt writes these rows.
        """
        rows = (*self.changed_reservations, *self.ended)
        if not (self.plan.steps and (rows or self.changed_nodes)):
            self.skip_result(error)
            return
        self.failed = self.failed or (error if rows else None)
        self.changed_nodes, self.changed_reservations, self.ended = (), (), ()


def boottime() -> float:
    """Return the seconds since the boot, suspended time included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Writer:
    """Writes trees through one client, with as many requests at once as that may have.

    An intent is valid for ``valid_for``. With ``reports_service``, it reports the host's service as
    up: other hosts take over its nodes only after twice that time without a report.
    """

    def __init__(
        self,
        client: PlacementClient,
        *,
        valid_for: timedelta = timedelta(seconds=30),
        reports_service: bool = False,
        clock: Callable[[], float] = boottime,
    ) -> None:
        self._client: Final = client
        self._writes: Final = ProviderWrites(client)
        self._names: Final = TraitsAndClasses(client)
        self._valid_for: Final = valid_for.total_seconds()
        self._reports_service: Final = reports_service
        self._clock: Final = clock
        self._may_reshape = True

    def apply(
        self,
        trees: Sequence[TreeWrite],
        store: RecordStore,
        on_step: Callable[[Step], None] = lambda _step: None,
        changed_nodes: Callable[[TreeWrite], Sequence[ComputeNode]] = lambda _tree: (),
    ) -> None:
        """Write trees; their errors are in them. One thread at a time calls ``on_step``.

        ``changed_nodes`` returns rows of nodes to save with the result of a tree.
        A provider that is in use stays as it is, and its tree goes on. Raises
        PlacementUnavailable, PermissionRefused and StateError, where the next tree would fail, too.
        The results of finished requests are stored in any case.
        """
        for start in range(0, len(trees), BATCH):
            batch = trees[start : start + BATCH]
            self._store_intents(batch, store)
            try:
                self._send_batch([tree for tree in batch if tree.plan.steps], store, on_step)
            finally:
                for tree in batch:
                    tree.changed_nodes = (*tree.changed_nodes, *changed_nodes(tree))
                _store_results(batch, store)

    # Intents and results.

    def _store_intents(self, batch: Sequence[TreeWrite], store: RecordStore) -> None:
        """Store the intended writes of each tree. A tree whose records have changed fails."""
        begun = [tree for tree in batch if _has_intent(tree)]
        for tree in begun:
            tree.intents = dict(_intents(tree, store))
            tree.expires = self._clock() + self._valid_for

        def write(trees: Sequence[TreeWrite]) -> None:
            store.write(
                _joined(tree.intents for tree in trees),
                our_nodes=[uuid for tree in trees for uuid in tree.our_nodes],
                new_nodes=[row for tree in trees for row in tree.new_nodes],
                known_reservations=_joined(tree.known_reservations for tree in trees),
                new_reservations=[one for tree in trees for one in tree.new_reservations],
                reports_service=self._reports_service,
            )

        _save(begun, write, TreeWrite.skip_result)

    # Requests.

    def _send_batch(
        self, trees: Sequence[TreeWrite], store: RecordStore, on_step: Callable[[Step], None]
    ) -> None:
        if not trees:
            return
        self._prepare(trees)
        run = _Run(self, store, on_step)
        # Trees with identity steps may be slow; the inventories of the others do not wait for them.
        first = [tree for tree in trees if _identities(tree)]
        others = [tree for tree in trees if not _identities(tree)]
        identity_jobs = [partial(run.take, tree, _identities(tree)) for tree in first]
        with request_id.thread_pool(self._client.connections) as pool:
            stages: tuple[Iterable[_Job], ...] = (
                chain(self._inventory_jobs(run, others), identity_jobs),
                self._inventory_jobs(run, first),
                (partial(run.reserve_failed, tree) for tree in trees if tree.failed is not None),
                [partial(run.take, tree, _deletions(tree)) for tree in trees],
            )
            for jobs in stages:
                _finish(pool, jobs, run.stop)

    def _prepare(self, trees: Sequence[TreeWrite]) -> None:
        """Fail the trees with steps that the server cannot take, before the first is sent."""
        needed = [_names(tree.plan.steps) for tree in trees]
        wrong = self._names.ensure(
            {name for traits, _classes in needed for name in traits},
            {name for _traits, classes in needed for name in classes},
        )
        for tree, (traits, classes) in zip(trees, needed, strict=True):
            if tree.failed is not None:
                continue
            try:
                self._require_features(tree.plan.steps)
            except PlacementError as error:
                tree.failed = error
            if missing := (traits | classes) & wrong.keys():
                tree.failed = wrong[min(missing)]

    def _require_features(self, steps: Iterable[Step]) -> None:
        for step in steps:
            if isinstance(step, Reshape):
                self._client.require(Feature.RESHAPE, f"reshaping the tree of {step.name}")
            elif (
                isinstance(step, UpdateProvider)
                and step.before.parent_uuid != step.after.parent_uuid
            ):
                self._client.require(Feature.REPARENT, f"moving provider {step.name}")

    def _inventory_jobs(self, run: "_Run", trees: Iterable[TreeWrite]) -> Iterator[_Job]:
        """Yield jobs of whole trees together, up to the size of a batch.

        A tree with a reshape is alone: the steps after the reshape rely on it.
        """
        together: list[_Inventories] = []
        size = BATCH if self._may_batch() else 1
        for tree in trees:
            if any(isinstance(step, Reshape) for step in tree.plan.steps):
                yield partial(run.take, tree, _inventories(tree))
                continue
            steps = [step for step in tree.plan.steps if isinstance(step, SetInventories)]
            together += [(tree, step) for step in steps]
            if len(together) >= size:
                yield partial(self._set_in_batches, run, together)
                together = []
        if together:
            yield partial(self._set_in_batches, run, together)

    def _set_in_batches(self, run: "_Run", inventories: Sequence[_Inventories]) -> None:
        """Set inventories in their order: within a tree, some shrink before others grow."""
        for start in range(0, len(inventories), BATCH):
            self._set_together(run, inventories[start : start + BATCH])

    def _set_together(self, run: "_Run", inventories: Sequence[_Inventories]) -> None:
        batch = [(tree, step) for tree, step in inventories if run.goes_on(tree, step)]
        if len(batch) > 1 and self._may_batch():
            try:
                self._send_together(batch)
            except PlacementUnavailable:
                raise
            except PermissionRefused as error:
                if error.status != HTTPStatus.FORBIDDEN:
                    raise
                self._may_reshape = False
                LOG.info("inventories are written one by one, which is slower: %s", error)
            except (IntentExpired, PlacementError) as error:
                # One provider refuses the whole batch. Halves show which one.
                LOG.debug("a batch of %d inventories was refused: %s", len(batch), error)
                middle = len(batch) // 2
                self._set_together(run, batch[:middle])
                self._set_together(run, batch[middle:])
                return
            else:
                for tree, step in batch:
                    run.done(tree, step)
                return
        for tree, step in batch:
            run.take(tree, [step])

    def _may_batch(self) -> bool:
        return self._may_reshape and self._client.microversion >= Feature.RESHAPE.value

    def _send_together(self, batch: Sequence[_Inventories]) -> None:
        """Replace the inventories of several providers in one request, all or none."""
        for tree, step in batch:
            self._see_valid(tree, step)
        self._writes.reshape(
            {step.uuid: (tree.generation(step), step.after) for tree, step in batch}, {}
        )
        for tree, step in batch:
            # The answer has no generations. Measured: two more, one for no inventories.
            raised = tree.generation(step) + (2 if step.after else 1)
            tree.now |= tree.after(step, raised)

    def send(self, tree: TreeWrite, step: Step) -> None:
        """Send a step's request, and note the provider that it leaves."""
        self._see_valid(tree, step)
        writes = self._writes
        match step:
            case Reshape():
                self._reshape(tree, step)
                return
            case DeleteProvider():
                self._see_unchanged(tree, step)
                with suppress(NotFound):  # another process was faster
                    writes.delete_provider(step.uuid)
                tree.now[step.uuid] = None
                return
            case CreateProvider():
                try:
                    made = writes.create_provider(step.uuid, step.name, step.parent_uuid)
                except DuplicateProvider:
                    tree.withdrawn.add(step.uuid)
                    raise
                generation = made.generation
            case UpdateProvider(after=after):
                self._see_unchanged(tree, step)
                writes.update_provider(step.uuid, after.name, after.parent_uuid)
                # This write checks no generation and raises none: its answer may have that of
                # another program's write, which we have not read.
                generation = tree.generation(step)
            case SetTraits():
                generation = writes.set_traits(step.uuid, tree.generation(step), step.after)
            case SetAggregates():
                generation = writes.set_aggregates(step.uuid, tree.generation(step), step.after)
            case SetInventories():
                generation = writes.set_inventories(step.uuid, tree.generation(step), step.after)
            case _:
                raise TypeError(f"no such step: {step!r}")
        tree.now |= tree.after(step, generation)

    def send_again(self, tree: TreeWrite, step: Step) -> None:
        """Send a step; once more if another program has deleted a trait or class meanwhile."""
        try:
            self.send(tree, step)
        except PlacementError as error:
            if error.status != HTTPStatus.BAD_REQUEST:
                raise
            self._names.forget()
            if not isinstance(step, SetTraits) or self._names.ensure(*_names([step])):
                raise
            self.send(tree, step)

    def _reshape(self, tree: TreeWrite, step: Reshape) -> None:
        """Send a reshape. Its answer has no generations: the next cycle reads the providers.

        A later step names the computed generation, as measured with Placement: plus two for new
        inventories or plus one for none, and plus one for allocations. Placement refuses the step
        if another program has written since.
        """
        sent = {change.uuid: (tree.generation(change), change.after) for change in step.inventories}
        left = {
            uuid: provider
            for change in step.inventories
            for uuid, provider in tree.after(change, None).items()
            if provider is not None
        }
        self._writes.reshape(sent, step.allocations, step.name)
        used = {uuid for its in step.allocations.values() for uuid in its["allocations"]}
        for uuid, (generation, inventories) in sent.items():
            tree.raised[uuid] = generation + (2 if inventories else 1) + (uuid in used)
        tree.now |= left

    def _see_valid(self, tree: TreeWrite, step: Step) -> None:
        """Raise IntentExpired if another host may have taken over the tree meanwhile."""
        if self._clock() >= tree.expires:
            raise IntentExpired(provider=step.name, uuid=step.uuid, seconds=self._valid_for)

    def _see_unchanged(self, tree: TreeWrite, step: Step) -> None:
        """Raise ConcurrentUpdate if a provider has other traits than when it was read.

        For writes that name no generation: the trait of another owner may have come. A change
        between this look and the write cannot be seen.
        """
        known = tree.now.get(step.uuid)
        try:
            traits = self._client.get_traits(step.uuid).traits
        except NotFound:
            return  # the write's own answer decides
        self._see_valid(tree, step)  # this look may have taken long
        if known and traits != known.traits:
            raise ConcurrentUpdate(
                request=f"{step.verb} {step.name}",
                status=HTTPStatus.CONFLICT,
                code="",
                detail="another program has changed its traits since it was read",
            )


class _Run:
    """The requests of one batch, as their threads share them; ``stop`` ends them early."""

    def __init__(self, writer: Writer, store: RecordStore, on_step: Callable[[Step], None]) -> None:
        self.stop: Final = Event()
        self._writer: Final = writer
        self._store: Final = store
        self._on_step: Final = on_step
        self._lock: Final = Lock()

    def goes_on(self, tree: TreeWrite, step: Step) -> bool:
        """Return whether a step is still to be sent."""
        return not self.stop.is_set() and tree.goes_on_with(step)

    def take(self, tree: TreeWrite, steps: Iterable[Step]) -> None:
        """Send steps of one tree in their order, until one fails."""
        for step in steps:
            if not self.goes_on(tree, step):
                continue
            try:
                self._writer.send_again(tree, step)
            except PlacementUnavailable:
                raise
            except PermissionRefused as error:
                # Only writes of allocations need a role that other writes do not.
                if not (isinstance(step, Reshape) and error.status == HTTPStatus.FORBIDDEN):
                    raise
                tree.failed = error
            except (InventoryInUse, ProviderInUse) as error:
                # This provider stays as it is; its neighbours do not wait for it.
                tree.refuse(step, error)
                if isinstance(step, SetInventories):
                    self._reserve_what_stays(tree, step)
            except (IntentExpired, PlacementError) as error:
                tree.failed = error
            else:
                self.done(tree, step)

    def reserve_failed(self, tree: TreeWrite) -> None:
        """Reserve the providers of a failed tree that were to be reserved.

        The failure may last, and nothing may be allocated from them meanwhile.
        """
        if tree.skips_result:
            return
        for step in tree.plan.steps:
            if isinstance(step, SetInventories) and not self.stop.is_set():
                now = tree.now.get(step.uuid)
                is_due = now is not None and now.inventories == step.before
                if is_due and self._store.get(step.uuid).applied is not None:
                    self._reserve_what_stays(tree, step)

    def _reserve_what_stays(self, tree: TreeWrite, step: SetInventories) -> None:
        """Reserve inventories that cannot be replaced yet by those that were to be reserved."""
        if not _reserves(step):
            return
        stays = replace(step, after=full_reservation.reserve_fully(step.before))
        try:
            self._writer.send(tree, stays)
        except (PlacementUnavailable, PermissionRefused):
            raise
        except (IntentExpired, PlacementError) as error:
            tree.failed = tree.failed or error
        else:
            self._report(stays)

    def done(self, tree: TreeWrite, step: Step) -> None:
        """Count and report a step that was sent."""
        tree.left.subtract(step.touched)
        self._report(step)

    def _report(self, step: Step) -> None:
        LOG.debug("%s: %s (%s)", step.verb, step.name, step.uuid)
        with self._lock:
            self._on_step(step)


def _has_intent(tree: TreeWrite) -> bool:
    return bool(tree.plan.steps or tree.new_nodes or tree.new_reservations)


def _intents(tree: TreeWrite, store: RecordStore) -> Iterator[tuple[str, Record]]:
    """Yield the records to store before the first request, by provider uuid."""
    left = _left_by_reshape(tree)
    changes = {step.uuid: step for step in tree.plan.steps if isinstance(step, SetInventories)}
    full = {uuid: step for uuid, step in changes.items() if _reserves(step)}
    for uuid in tree.left.keys() & tree.plan.records.keys():
        record, planned, live = store.get(uuid), tree.plan.records[uuid], tree.now.get(uuid)
        if planned is None:
            yield uuid, replace(record, live=live)
            continue
        if record.left and live:
            # A reshape was cut short. After another crash, its figures must not count as the
            # owner's.
            live = replace(live, generation=None)
        own_reserved = dict(planned.own_reserved)
        if record.own_reserved and live:
            # The figures to restore are needed until the reservation has ended.
            figures = full_reservation.own_reserved(live.inventories, record)
            own_reserved = {**figures, **own_reserved}
        if uuid in changes:
            # Until the write, a full reservation that ends would count as another program's.
            own_reserved = {**_ending(changes[uuid]), **own_reserved}
        intent = replace(
            planned,
            live=live,
            # Our provider was deleted: the record proves nothing about a later one of its uuid.
            applied=record.applied if live else None,
            intended=planned.intended or planned.applied,
            own_reserved=own_reserved,
        )
        if uuid in full:
            # Inventories that cannot be replaced are reserved in their place.
            figures = full_reservation.own_reserved(full[uuid].before, intent)
            intent = replace(intent, own_reserved={**figures, **own_reserved})
        if uuid in left:
            intent = _before_reshape(intent, planned, left[uuid])
        yield uuid, intent


def _ending(step: SetInventories) -> dict[str, int]:
    """Return the new figures of the classes that a step no longer reserves fully."""
    return {
        name: inventory.reserved
        for name, inventory in step.after.items()
        if not inventory.is_fully_reserved
        and name in step.before
        and step.before[name].is_fully_reserved
    }


def _left_by_reshape(tree: TreeWrite) -> dict[str, Provider]:
    """Return the providers as a reshape is to leave them, by uuid, without generations."""
    left: dict[str, Provider] = {}
    now = dict(tree.now)
    for step in tree.plan.steps:
        if isinstance(step, Reshape):
            for change in step.inventories:
                provider = change.result(now.get(change.uuid))
                if provider is not None:
                    left[change.uuid] = replace(provider, generation=None)
        elif not left:
            now[step.uuid] = step.result(now.get(step.uuid))
    return left


def _before_reshape(intent: Record, planned: Record, left: Provider) -> Record:
    """Return the record to store before a reshape that leaves a provider so.

    A figure that it leaves for a moment must not be taken for the owner's own figure.
    """
    wanted = planned.live.inventories if planned.live else {}
    moment = {
        name: wanted[name].reserved
        for name, inventory in left.inventories.items()
        if name in wanted and inventory.reserved != wanted[name].reserved
    }
    return replace(intent, live=left, own_reserved={**moment, **intent.own_reserved})


def _store_results(batch: Sequence[TreeWrite], store: RecordStore) -> None:
    """Store the results of trees; a tree that another process has changed meanwhile fails."""

    def write(trees: Sequence[TreeWrite]) -> None:
        # The intents have checked the others, whose records may not change until now.
        unchecked = [tree for tree in trees if not tree.plan.steps]
        store.write(
            _joined(map(_results, trees)),
            our_nodes=[uuid for tree in unchecked for uuid in tree.our_nodes],
            changed_nodes=[row for tree in trees for row in tree.changed_nodes],
            known_reservations=_joined(tree.known_reservations for tree in unchecked),
            changed_reservations=[one for tree in trees for one in tree.changed_reservations],
            ended=[
                one
                for tree in trees
                for one in tree.ended
                if one.provider_uuid not in tree.unfinished
            ],
        )

    done = [tree for tree in batch if not tree.skips_result]
    _save(done, write, TreeWrite.drop_rows)
    for tree in done:
        if not tree.skips_result:
            store.contested.update(tree.withdrawn)


def _save(
    trees: Sequence[TreeWrite],
    write: Callable[[Sequence[TreeWrite]], None],
    refuse: Callable[[TreeWrite, WharfingerError], None],
) -> None:
    """Write rows of trees in one transaction, without what another process has changed.

    If one tree makes the whole batch fail, each half is written alone.
    """
    while trees:
        try:
            write(trees)
            return
        except ConcurrentSave as error:
            for tree in _stale(trees, error):
                refuse(tree, error)
        except (InvalidObject, ObjectExists) as error:
            if len(trees) == 1:
                trees[0].skip_result(error)
            else:  # one tree refuses the whole batch: halves show which one
                middle = len(trees) // 2
                _save(trees[:middle], write, refuse)
                trees = trees[middle:]
        trees = [tree for tree in trees if not tree.skips_result]


def _joined(parts: Iterable[Mapping[str, _Value]]) -> dict[str, _Value]:
    return {key: value for part in parts for key, value in part.items()}


def _results(tree: TreeWrite) -> dict[str, Record | None]:
    """Return the records to store after the last request, by provider uuid."""
    found: dict[str, Record | None] = {}
    unsure = _left_by_reshape(tree).keys() - tree.raised.keys()
    for uuid, planned in tree.plan.records.items():
        if uuid in tree.withdrawn:
            found[uuid] = None
        elif uuid not in tree.left:
            found[uuid] = planned
        elif uuid in unsure:
            # Its reshape was refused, or was done and its answer lost: the intent holds for both.
            found[uuid] = tree.intents[uuid]
        elif tree.left[uuid]:
            found[uuid] = replace(tree.intents[uuid], live=_known(tree, uuid))
        else:
            found[uuid] = planned and replace(planned, live=_known(tree, uuid))
    return found


def _known(tree: TreeWrite, uuid: str) -> Provider | None:
    """Return a provider as it is now; without a generation it is read again."""
    live = tree.now[uuid]
    return replace(live, generation=None) if live and tree.is_partly_known else live


def _stale(trees: Sequence[TreeWrite], error: ConcurrentSave) -> list[TreeWrite]:
    """Return the trees that a refused transaction names; all, where it names none of them."""
    keys = set(error.keys)
    stale = [tree for tree in trees if not keys.isdisjoint(_keys(tree))]
    return stale or list(trees)


def _keys(tree: TreeWrite) -> set[str]:
    """Return the keys of all rows that a tree writes or relies on."""
    rows = (*tree.new_nodes, *tree.changed_nodes)
    held = (*tree.new_reservations, *tree.changed_reservations, *tree.ended)
    return {
        *tree.plan.records,
        *tree.our_nodes,
        *tree.known_reservations,
        *(row.uuid for row in rows),
        *(one.provider_uuid for one in held),
        *(one.uuid for one in held if "uuid" in one),
    }


def _reserves(step: SetInventories) -> bool:
    """Return whether a step reserves a provider fully that is not fully reserved before."""
    return (
        bool(step.after)
        and all(one.is_fully_reserved for one in step.after.values())
        and not all(one.is_fully_reserved for one in step.before.values())
    )


def _finish(pool: ThreadPoolExecutor, jobs: Iterable[_Job], stop: Event) -> None:
    """Run all jobs; at the first exception, stop the others, and raise it."""
    jobs = list(jobs)
    if len(jobs) == 1:  # needs no other thread
        jobs[0]()
        return

    def run(job: _Job) -> None:
        try:
            job()
        except BaseException:
            stop.set()  # before this thread takes its next job
            raise

    futures = [pool.submit(run, job) for job in jobs]
    try:
        for future in as_completed(futures):
            future.result()
    except BaseException:  # also of this thread: the user may have pressed Ctrl-C
        stop.set()
        raise


def _identities(tree: TreeWrite) -> list[Step]:
    later = (SetInventories, Reshape, DeleteProvider)
    return [step for step in tree.plan.steps if not isinstance(step, later)]


def _inventories(tree: TreeWrite) -> list[Step]:
    return [step for step in tree.plan.steps if isinstance(step, SetInventories | Reshape)]


def _deletions(tree: TreeWrite) -> list[Step]:
    return [step for step in tree.plan.steps if isinstance(step, DeleteProvider)]


def _names(steps: Iterable[Step]) -> tuple[set[str], set[str]]:
    """Return the traits and the resource classes that steps add."""
    traits: set[str] = set()
    classes: set[str] = set()
    for step in steps:
        for part in step.inventories if isinstance(step, Reshape) else (step,):
            if isinstance(part, SetTraits):
                traits |= part.after - part.before
            elif isinstance(part, SetInventories):
                classes |= part.after.keys() - part.before.keys()
    return traits, classes
