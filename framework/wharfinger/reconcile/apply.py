"""Write planned trees to Placement, and their rows to the database."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import replace
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
from wharfinger.placement.client import PlacementClient
from wharfinger.placement.microversions import Feature
from wharfinger.placement.provider_writes import ProviderWrites
from wharfinger.providers import full_reservation
from wharfinger.providers.plan import (
    Allocations,
    CreateProvider,
    DeleteProvider,
    Reshape,
    SetAggregates,
    SetInventories,
    SetTraits,
    Step,
    UpdateProvider,
)
from wharfinger.reconcile import tree_write
from wharfinger.reconcile.kernel_uptime import boottime
from wharfinger.reconcile.record_store import RecordStore, RowChanges
from wharfinger.reconcile.tree_write import TreeWrite

LOG: Final = logging.getLogger(__name__)
#: Trees in one batch, and providers in one POST /reshaper.
BATCH: Final = 100
_IDENTITY_STEPS: Final = (CreateProvider, UpdateProvider, SetTraits, SetAggregates)

_Job = Callable[[], None]
_Inventories = tuple[TreeWrite, SetInventories]
_Step = TypeVar("_Step", bound=Step)


class Writer:
    """Writes planned trees to Placement, and their rows to the database.

    No write to a provider starts later than ``valid_for`` after its plan was stored.
    """

    def __init__(
        self,
        client: PlacementClient,
        *,
        valid_for: timedelta = timedelta(seconds=30),
        reports_service: bool = False,
    ) -> None:
        self._client: Final = client
        self._writes: Final = ProviderWrites(client)
        self._valid_for: Final = valid_for.total_seconds()
        self._reports_service: Final = reports_service
        self._may_reshape = True

    def apply(
        self,
        trees: Sequence[TreeWrite],
        store: RecordStore,
        on_step: Callable[[Step], None] = lambda _step: None,
    ) -> None:
        """Write trees; keep their errors in ``TreeWrite.errors``.

        Raises PlacementUnavailable, PermissionRefused and StateError.
        """
        for start in range(0, len(trees), BATCH):
            batch = trees[start : start + BATCH]
            self._store_intents(batch, store)
            try:
                intended = [tree for tree in batch if tree.plan.steps and not tree.skips_result]
                self._send_batch(intended, store, on_step)
            finally:
                for tree in batch:
                    if tree.errors or tree.unfinished:
                        tree.result_rows.changed_nodes = ()
                _store_results(batch, store)

    # Intents and results.

    def _store_intents(self, batch: Sequence[TreeWrite], store: RecordStore) -> None:
        intending = [tree for tree in batch if tree.has_intents]
        for tree in intending:
            tree.expires = boottime() + self._valid_for
            tree.intended_before = {uuid for uuid in tree.left if store.get(uuid).intended}

        write = partial(store.write, reports_service=self._reports_service)
        _save(intending, partial(tree_write.intents, store=store), write, TreeWrite.skip_result)

    # Requests.

    def _send_batch(
        self, trees: Sequence[TreeWrite], store: RecordStore, on_step: Callable[[Step], None]
    ) -> None:
        self._ensure_names_and_features(trees)
        run = _Run(self, store, on_step)
        # Identity steps may be slow. Trees without them do not wait: their inventories come first.
        identities = [(tree, _steps(tree, *_IDENTITY_STEPS)) for tree in trees]
        slow = [tree for tree, steps in identities if steps]
        fast = [tree for tree, steps in identities if not steps]
        identity_jobs = [
            partial(run.send_steps, tree, steps) for tree, steps in identities if steps
        ]
        with request_id.thread_pool(self._client.connections) as pool:
            stages: tuple[Iterable[_Job], ...] = (
                chain(self._inventory_jobs(run, fast), identity_jobs),
                self._inventory_jobs(run, slow),
                (partial(run.reserve_failed, tree) for tree in trees if tree.failed is not None),
                [partial(run.send_steps, tree, _steps(tree, DeleteProvider)) for tree in trees],
            )
            for jobs in stages:
                _run_all(pool, jobs, run.stop)

    def _ensure_names_and_features(self, trees: Sequence[TreeWrite]) -> None:
        needed = [_names(tree.plan.steps) for tree in trees]
        wrong = self._writes.ensure_names(
            {name for traits, _classes in needed for name in traits},
            {name for _traits, classes in needed for name in classes},
        )
        for tree, (traits, classes) in zip(trees, needed, strict=True):
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
        together: list[_Inventories] = []
        size = BATCH if self._may_batch() else 1
        for tree in trees:
            if _steps(tree, Reshape):
                yield partial(run.send_steps, tree, _steps(tree, Reshape, SetInventories))
                continue
            together += [(tree, step) for step in _steps(tree, SetInventories)]
            if len(together) >= size:
                yield partial(self._set_in_batches, run, together)
                together = []
        if together:
            yield partial(self._set_in_batches, run, together)

    def _set_in_batches(self, run: "_Run", inventories: Sequence[_Inventories]) -> None:
        # Batch after batch: in a tree, some inventories have to shrink before others grow.
        for start in range(0, len(inventories), BATCH):
            self._set_together(run, inventories[start : start + BATCH])

    def _set_together(self, run: "_Run", inventories: Sequence[_Inventories]) -> None:
        batch = [(tree, step) for tree, step in inventories if run.goes_on(tree, step)]
        if len(batch) <= 1 or not self._may_batch():
            for tree, step in batch:
                run.send_steps(tree, [step])
            return
        try:
            self._send_together(batch, {})
        except PlacementUnavailable:
            raise
        except PermissionRefused as error:
            if error.status != HTTPStatus.FORBIDDEN:
                raise
            self._may_reshape = False
            LOG.info(
                "inventories are written with one request for each provider, which is slower, "
                "since Placement refuses one request for several providers: %s",
                error,
            )
            self._set_together(run, batch)
        except (IntentExpired, PlacementError) as error:
            # One provider makes Placement refuse the batch. Halving the batch finds it.
            LOG.debug(
                "the inventories of %d providers could not be written in one request, which is "
                "split now: %s",
                len(batch),
                error,
            )
            middle = len(batch) // 2
            self._set_together(run, batch[:middle])
            self._set_together(run, batch[middle:])
        else:
            for tree, step in batch:
                run.done(tree, step)

    def _may_batch(self) -> bool:
        return self._may_reshape and self._client.microversion >= Feature.RESHAPE.value

    def _send_together(
        self, batch: Sequence[_Inventories], allocations: Allocations, subject: str = ""
    ) -> None:
        for tree, step in batch:
            self._check_valid(tree, step)
        sent = {step.uuid: (tree.generation(step), step.after) for tree, step in batch}
        self._writes.reshape(sent, allocations, subject)
        used = {uuid for new in allocations.values() for uuid in new["allocations"]}
        for tree, step in batch:
            # The answer has no generations. Measured: they rise by two, or by one for no inventory,
            # and by one more for allocations.
            raised = tree.generation(step) + (2 if step.after else 1) + (step.uuid in used)
            tree.now[step.uuid] = tree.after(step, raised)

    def send(self, tree: TreeWrite, step: Step) -> None:
        """Send a step, and update ``tree.now``. Raises PlacementError and IntentExpired."""
        self._check_valid(tree, step)
        writes = self._writes
        match step:
            case Reshape():
                changes = [(tree, change) for change in step.inventories]
                self._send_together(changes, step.allocations, step.name)
                return
            case DeleteProvider():
                self._check_traits_unchanged(tree, step)
                with suppress(NotFound):  # another process was faster
                    writes.delete_provider(step.uuid)
                tree.now[step.uuid] = None
                return
            case CreateProvider():
                try:
                    made = writes.create_provider(step.uuid, step.name, step.parent_uuid)
                except DuplicateProvider:
                    if step.uuid not in tree.intended_before:
                        tree.withdrawn.add(step.uuid)
                    raise
                generation = made.generation
            case UpdateProvider(after=after):
                self._check_traits_unchanged(tree, step)
                writes.update_provider(step.uuid, after.name, after.parent_uuid)
                # This write neither checks nor raises the generation. The generation in the answer
                # may come from another program's write, which we have not read.
                generation = tree.generation(step)
            case SetTraits():
                generation = writes.set_traits(step.uuid, tree.generation(step), step.after)
            case SetAggregates():
                generation = writes.set_aggregates(step.uuid, tree.generation(step), step.after)
            case SetInventories():
                generation = writes.set_inventories(step.uuid, tree.generation(step), step.after)
            case _:
                raise TypeError(f"no such step: {step!r}")
        tree.now[step.uuid] = tree.after(step, generation)

    def send_with_traits(self, tree: TreeWrite, step: Step) -> None:
        """Send a step; create its custom traits if Placement lacks them."""
        try:
            self.send(tree, step)
        except PlacementError as error:
            if error.status != HTTPStatus.BAD_REQUEST:
                raise
            self._writes.forget_names()
            if not isinstance(step, SetTraits) or self._writes.ensure_names(*_names([step])):
                raise
            self.send(tree, step)

    def _check_valid(self, tree: TreeWrite, step: Step) -> None:
        if boottime() >= tree.expires:
            raise IntentExpired(provider=step.name, uuid=step.uuid, seconds=self._valid_for)

    def _check_traits_unchanged(self, tree: TreeWrite, step: Step) -> None:
        # Writes without a generation need this check: the provider may have another owner now.
        known = tree.now.get(step.uuid)
        try:
            traits = self._client.get_traits(step.uuid).traits
        except NotFound:
            return  # the answer to the write decides
        self._check_valid(tree, step)  # the request may have taken long
        if known and traits != known.traits:
            raise ConcurrentUpdate(
                request=f"{step.verb} {step.name}",
                status=HTTPStatus.CONFLICT,
                code="",
                detail="another program has changed the provider's traits since they were read",
            )


class _Run:
    def __init__(self, writer: Writer, store: RecordStore, on_step: Callable[[Step], None]) -> None:
        self.stop: Final = Event()
        self._writer: Final = writer
        self._store: Final = store
        self._on_step: Final = on_step
        self._lock: Final = Lock()

    def goes_on(self, tree: TreeWrite, step: Step) -> bool:
        return not self.stop.is_set() and tree.goes_on_with(step)

    def send_steps(self, tree: TreeWrite, steps: Iterable[Step]) -> None:
        for step in steps:
            if not self.goes_on(tree, step):
                continue
            try:
                self._writer.send_with_traits(tree, step)
            except PlacementUnavailable:
                raise
            except PermissionRefused as error:
                # Reshapes need a role of their own, since they write allocations.
                if not (isinstance(step, Reshape) and error.status == HTTPStatus.FORBIDDEN):
                    raise
                tree.failed = error
            except (InventoryInUse, ProviderInUse) as error:
                # Only this provider stays as it is. The tree continues.
                tree.refuse(step, error)
                if isinstance(step, SetInventories):
                    self._reserve_what_stays(tree, step)
            except (IntentExpired, PlacementError) as error:
                tree.failed = error
            else:
                self.done(tree, step)

    def reserve_failed(self, tree: TreeWrite) -> None:
        for step in _steps(tree, SetInventories):
            now = tree.now.get(step.uuid)
            is_unwritten = now is not None and now.inventories == step.before
            is_published = self._store.get(step.uuid).applied is not None
            if is_unwritten and is_published and not self.stop.is_set():
                self._reserve_what_stays(tree, step)

    def _reserve_what_stays(self, tree: TreeWrite, step: SetInventories) -> None:
        if not tree_write.fully_reserves(step):
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
        tree.left.subtract(step.touched)
        self._report(step)

    def _report(self, step: Step) -> None:
        LOG.debug("written to Placement: %s of provider %s (%s)", step.verb, step.name, step.uuid)
        with self._lock:
            self._on_step(step)


def _store_results(batch: Sequence[TreeWrite], store: RecordStore) -> None:
    done = [tree for tree in batch if not tree.skips_result]
    _save(done, partial(tree_write.results, store=store), store.write, TreeWrite.drop_rows)
    for tree in done:
        if not tree.skips_result:
            store.contested.update(tree.withdrawn)


def _save(
    trees: Sequence[TreeWrite],
    changes: Callable[[TreeWrite], RowChanges],
    write: Callable[[Sequence[RowChanges]], None],
    refuse: Callable[[TreeWrite, WharfingerError], None],
) -> None:
    while trees:
        try:
            write([changes(tree) for tree in trees])
            return
        except ConcurrentSave as error:
            for tree in _stale(trees, error):
                refuse(tree, error)
        except (InvalidObject, ObjectExists) as error:
            if len(trees) == 1:
                trees[0].skip_result(error)
            else:  # one tree makes all fail: halving finds it
                middle = len(trees) // 2
                _save(trees[:middle], changes, write, refuse)
                trees = trees[middle:]
        trees = [tree for tree in trees if not tree.skips_result]


def _stale(trees: Sequence[TreeWrite], error: ConcurrentSave) -> list[TreeWrite]:
    keys = set(error.keys)
    stale = [tree for tree in trees if not keys.isdisjoint(tree_write.row_uuids(tree))]
    return stale or list(trees)


def _run_all(pool: ThreadPoolExecutor, jobs: Iterable[_Job], stop: Event) -> None:
    jobs = list(jobs)
    if len(jobs) == 1:  # a thread would only cost time
        jobs[0]()
        return

    def run(job: _Job) -> None:
        try:
            job()
        except BaseException:
            stop.set()  # before this thread takes another job
            raise

    futures = [pool.submit(run, job) for job in jobs]
    try:
        for future in as_completed(futures):
            future.result()
    except BaseException:  # this thread may have received a KeyboardInterrupt
        stop.set()
        raise


def _steps(tree: TreeWrite, *kinds: type[_Step]) -> list[_Step]:
    return [step for step in tree.plan.steps if isinstance(step, kinds)]


def _names(steps: Iterable[Step]) -> tuple[set[str], set[str]]:
    traits: set[str] = set()
    classes: set[str] = set()
    for step in steps:
        for part in step.inventories if isinstance(step, Reshape) else (step,):
            if isinstance(part, SetTraits):
                traits |= part.after - part.before
            elif isinstance(part, SetInventories):
                classes |= part.after.keys() - part.before.keys()
    return traits, classes
