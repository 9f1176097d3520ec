"""Applying a plan: its trees at the same time, each in the order of its steps.

First every provider is created, moved and tagged, then inventories are set, many in one
request, then what is gone is deleted.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from functools import partial
from http import HTTPStatus
from threading import Event, Lock
from typing import Final

from oslo_log import log as logging

from wharfinger.exceptions import (
    InventoryInUse,
    PermissionRefused,
    PlacementError,
    PlacementUnavailable,
    ProviderInUse,
)
from wharfinger.placement.client import PlacementClient
from wharfinger.placement.microversions import Feature
from wharfinger.placement.traits_and_classes import KnownNames
from wharfinger.providers import full_reservation
from wharfinger.providers.plan import (
    DeleteProvider,
    Plan,
    Reshape,
    SetInventories,
    SetTraits,
    Step,
    UpdateProvider,
)
from wharfinger.providers.provider import Provider
from wharfinger.reconcile.step_writer import Memory, StepWriter, TreeUnderWay

LOG: Final = logging.getLogger(__name__)
#: Providers in one POST /reshaper: half the server's work for each, and still a short
#: transaction.
_BATCH: Final = 100

_Job = Callable[[], None]
_Inventories = tuple[TreeUnderWay, SetInventories]


@dataclass(frozen=True, slots=True)
class Applied:
    """The result of applying a plan.

    ``errors`` has one error for each tree that failed. ``unfinished`` are the uuids of the
    providers that still lack a planned step, at least one in each tree with an error.
    """

    errors: tuple[PlacementError, ...] = ()
    unfinished: frozenset[str] = frozenset()


class PlanApplier:
    """Applies plans through one client, with as many requests at once as that may have."""

    def __init__(self, client: PlacementClient, memory: Memory) -> None:
        self._client: Final = client
        self._memory: Final = memory
        self._writer: Final = StepWriter(client, memory)
        self._names: Final = KnownNames(client)
        self._may_reshape = True

    def apply(
        self,
        plan: Plan,
        live: Mapping[str, Provider],
        on_step: Callable[[Step], None] = lambda _step: None,
    ) -> Applied:
        """Take the steps; ``on_step`` is called after each, by one thread at a time.

        ``live`` is what the plan was made from. What goes wrong in a tree ends that tree and
        is returned; a provider that is in use stays as it is, and its tree goes on. Where the
        next tree would fare no better, PlacementUnavailable, PermissionRefused or StateError
        is raised. What was done is remembered in any case.
        """
        unwritten, *plans = plan.by_tree()
        self._memory.save(unwritten.records)
        trees = [TreeUnderWay.of(tree, live) for tree in plans]
        self._prepare(trees)
        run = _Run(self._writer, self._names, on_step)
        with ThreadPoolExecutor(self._client.connections) as pool:
            for jobs in (
                [partial(run.take, tree, _identities(tree)) for tree in trees],
                self._inventory_jobs(run, trees),
                (partial(run.reserve_failed, tree) for tree in trees if tree.failed is not None),
                [partial(run.take, tree, _deletions(tree)) for tree in trees],
            ):
                _finish(pool, jobs, run.stop)
        return Applied(
            tuple(error for tree in trees for error in tree.errors),
            frozenset(uuid for tree in trees for uuid, left in tree.left.items() if left),
        )

    def _prepare(self, trees: Sequence[TreeUnderWay]) -> None:
        """See that the server can take all steps of a tree before the first is sent."""
        needed = [_names(tree.plan.steps) for tree in trees]
        wrong = self._names.ensure(
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

    def _inventory_jobs(self, run: "_Run", trees: Iterable[TreeUnderWay]) -> Iterator[_Job]:
        """Whole trees together until there is a batch of inventories.

        A tree with a reshape alone, in its order: what follows the reshape relies on it.
        """
        together: list[_Inventories] = []
        size = _BATCH if self._may_batch() else 1
        for tree in trees:
            if any(isinstance(step, Reshape) for step in tree.plan.steps):
                yield partial(run.take, tree, _inventories(tree))
                continue
            steps = [step for step in tree.plan.steps if isinstance(step, SetInventories)]
            together += [(tree, step) for step in steps]
            if len(together) >= size:
                yield partial(self._set_in_batches, run, together)
                together = []
        yield partial(self._set_in_batches, run, together)

    def _set_in_batches(self, run: "_Run", inventories: Sequence[_Inventories]) -> None:
        """In their order: within a tree, what shrinks comes before what grows."""
        for start in range(0, len(inventories), _BATCH):
            self._set_together(run, inventories[start : start + _BATCH])

    def _set_together(self, run: "_Run", inventories: Sequence[_Inventories]) -> None:
        batch = [(tree, step) for tree, step in inventories if run.goes_on(tree, step)]
        if len(batch) > 1 and self._may_batch():
            try:
                self._writer.write_together(batch)
            except PlacementUnavailable:
                raise
            except PermissionRefused as error:
                if error.status != HTTPStatus.FORBIDDEN:
                    raise
                self._may_reshape = False
                LOG.info("inventories are set one by one: %s", error)
            except PlacementError as error:
                # One of them refuses the whole batch. Which one shows by halves.
                LOG.debug("a batch of %d inventories was refused: %s", len(batch), error)
                middle = len(batch) // 2
                self._set_together(run, batch[:middle])
                self._set_together(run, batch[middle:])
                return
            else:
                for _tree, step in batch:
                    run.done(step)
                return
        for tree, step in batch:
            run.take(tree, [step])

    def _may_batch(self) -> bool:
        return self._may_reshape and self._client.microversion >= Feature.RESHAPE.value


class _Run:
    """One application of a plan, as its threads share it; ``stop`` ends it early."""

    def __init__(
        self, writer: StepWriter, names: KnownNames, on_step: Callable[[Step], None]
    ) -> None:
        self.stop: Final = Event()
        self._writer: Final = writer
        self._names: Final = names
        self._on_step: Final = on_step
        self._lock: Final = Lock()

    def goes_on(self, tree: TreeUnderWay, step: Step) -> bool:
        """Whether a step is still to be taken."""
        return not self.stop.is_set() and tree.goes_on_with(step)

    def take(self, tree: TreeUnderWay, steps: Iterable[Step]) -> None:
        """Take steps of one tree in their order, as far as it goes."""
        for step in steps:
            if not self.goes_on(tree, step):
                continue
            try:
                self._write(tree, step)
            except PlacementUnavailable:
                raise
            except PermissionRefused as error:
                # Only what moves allocations takes a role that other writes do not.
                if not (isinstance(step, Reshape) and error.status == HTTPStatus.FORBIDDEN):
                    raise
                tree.failed = error
            except (InventoryInUse, ProviderInUse) as error:
                # This provider stays as it is; what its neighbours need does not wait for it.
                tree.refuse(step, error)
                if isinstance(step, SetInventories):
                    self._reserve_what_stays(tree, step)
            except PlacementError as error:
                tree.failed = error
            else:
                self.done(step)

    def _write(self, tree: TreeUnderWay, step: Step) -> None:
        """Take a step; somebody may have deleted a trait or class that we know to be there."""
        try:
            self._writer.write(tree, step)
        except PlacementError as error:
            if error.status != HTTPStatus.BAD_REQUEST:
                raise
            self._names.forget()
            if not isinstance(step, SetTraits) or self._names.ensure(*_names([step])):
                raise
            self._writer.write(tree, step)

    def reserve_failed(self, tree: TreeUnderWay) -> None:
        """Reserve what was to be reserved in a tree that failed before that.

        What failed may stay so for long, and nobody is to get it meanwhile.
        """
        for step in tree.plan.steps:
            if isinstance(step, SetInventories) and not self.stop.is_set():
                now = tree.now.get(step.uuid)
                is_due = now is not None and now.inventories == step.before
                if is_due and self._writer.has_published(step.uuid):
                    self._reserve_what_stays(tree, step)

    def _reserve_what_stays(self, tree: TreeUnderWay, step: SetInventories) -> None:
        """Reserve inventories that cannot be replaced yet, by others that were to be reserved."""
        stays = replace(step, after=full_reservation.reserve_fully(step.before))
        is_reserved = all(inventory.is_fully_reserved for inventory in step.after.values())
        if step.after and is_reserved and stays.after != stays.before:
            try:
                self._writer.write_instead(tree, stays)
            except (PlacementUnavailable, PermissionRefused):
                raise
            except PlacementError as error:
                tree.failed = tree.failed or error
            else:
                self.done(stays)

    def done(self, step: Step) -> None:
        """Tell of a step that was taken."""
        LOG.debug("%s: %s (%s)", step.verb, step.name, step.uuid)
        with self._lock:
            self._on_step(step)


def _finish(pool: ThreadPoolExecutor, jobs: Iterable[_Job], stop: Event) -> None:
    """Have all jobs done; at the first that raises, stop the others, and raise that."""

    def run(job: _Job) -> None:
        try:
            job()
        except BaseException:
            stop.set()  # before this thread takes its next job
            raise

    futures = [pool.submit(run, job) for job in jobs]
    try:
        done, _pending = wait(futures, return_when=FIRST_EXCEPTION)
        for future in done:
            future.result()
    except BaseException:  # ours too: somebody may have pressed a key
        stop.set()
        raise


def _identities(tree: TreeUnderWay) -> list[Step]:
    later = (SetInventories, Reshape, DeleteProvider)
    return [step for step in tree.plan.steps if not isinstance(step, later)]


def _inventories(tree: TreeUnderWay) -> list[Step]:
    return [step for step in tree.plan.steps if isinstance(step, SetInventories | Reshape)]


def _deletions(tree: TreeUnderWay) -> list[Step]:
    return [step for step in tree.plan.steps if isinstance(step, DeleteProvider)]


def _names(steps: Iterable[Step]) -> tuple[set[str], set[str]]:
    """The traits and the resource classes that come with some steps."""
    traits: set[str] = set()
    classes: set[str] = set()
    for step in steps:
        for part in step.inventories if isinstance(step, Reshape) else (step,):
            if isinstance(part, SetTraits):
                traits |= part.after - part.before
            elif isinstance(part, SetInventories):
                classes |= part.after.keys() - part.before.keys()
    return traits, classes
