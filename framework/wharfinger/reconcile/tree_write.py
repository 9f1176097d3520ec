"""The write of a tree: its plan, its database rows, and its progress.

An intent is a record that is stored before the first request.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from wharfinger.exceptions import WharfingerError
from wharfinger.objects import Reservation
from wharfinger.providers import full_reservation
from wharfinger.providers.plan import Plan, Reshape, SetInventories, Step, TreePlan, after_step
from wharfinger.providers.provider import Provider, Record
from wharfinger.reconcile.cycle_state import CycleState
from wharfinger.reconcile.plan import phases_by_tree, root_finder
from wharfinger.reconcile.record_store import RecordStore, RowChanges
from wharfinger.reconcile.reservation_phases import Phases
from wharfinger.tracker.node_rows import Node, NodeRows


@dataclass(slots=True)
class TreeWrite:
    """A tree to write, with its database rows and its progress."""

    plan: TreePlan
    #: Rows to check, and to create with the intents.
    intent_rows: RowChanges = field(default_factory=RowChanges)
    #: Rows to write with the results: a node if all steps are done, and the end of a reservation
    #: if all steps of its provider are done.
    result_rows: RowChanges = field(default_factory=RowChanges)

    # Progress, by provider uuid:
    #: Each provider as the requests so far have left it; None: it does not exist.
    now: dict[str, Provider | None] = field(default_factory=dict)
    #: The number of steps that each provider still needs.
    left: Counter[str] = field(default_factory=Counter)
    #: Providers with an earlier intent. A request of an ended process may still create them.
    intended_before: set[str] = field(default_factory=set)
    #: Providers that could not be created, since another program's has their uuid or name.
    withdrawn: set[str] = field(default_factory=set)
    #: Errors of providers that keep their inventories, or are not deleted, since they are in use.
    refused: dict[str, WharfingerError] = field(default_factory=dict)

    #: The resource classes that refused providers keep.
    kept: set[str] = field(default_factory=set)
    #: The error that has stopped the tree.
    failed: WharfingerError | None = None
    #: No request is sent after this moment, in seconds of CLOCK_BOOTTIME.
    expires: float = 0.0
    #: Whether no results are stored, since the database refused the intents or the results.
    skips_result: bool = False
    #: Whether only some facts about the providers were read: the next cycle has to read them.
    is_partly_known: bool = False

    def __post_init__(self) -> None:
        self.left.update(uuid for step in self.plan.steps for uuid in step.touched)
        self.now.update((uuid, self.plan.live.get(uuid)) for uuid in self.left)

    @property
    def has_intents(self) -> bool:
        """Whether anything is stored before the results."""
        return bool(
            self.plan.steps or self.intent_rows.new_nodes or self.intent_rows.new_reservations
        )

    @property
    def errors(self) -> list[WharfingerError]:
        """The errors of this tree, each once."""
        refused = list(dict.fromkeys(self.refused.values()))
        return [*refused, self.failed] if self.failed else refused

    @property
    def unfinished(self) -> frozenset[str]:
        """The uuids of the providers that still need a planned step."""
        return frozenset(uuid for uuid, left in self.left.items() if left)

    def goes_on_with(self, step: Step) -> bool:
        """Return whether a step can be sent despite the errors so far."""
        if self.failed is not None or not self.refused.keys().isdisjoint(step.touched):
            return False
        # No provider may gain the resource classes that a refused provider still has.
        return not isinstance(step, SetInventories) or self.kept.isdisjoint(step.grown)

    def refuse(self, step: Step, error: WharfingerError) -> None:
        """Note that a step cannot be done, since its providers are in use."""
        self.refused.update(dict.fromkeys(step.touched, error))
        if isinstance(step, SetInventories):
            self.kept |= step.shrunk

    def generation(self, step: Step) -> int:
        """Return the generation to send with a step. Raises ValueError if it is unknown."""
        provider = self.now.get(step.uuid)
        if provider is None or provider.generation is None:
            raise ValueError(f"{step.verb} {step.name}: the plan has no generation of the provider")
        return provider.generation

    def after(self, step: Step, generation: int) -> Provider | None:
        """Return the provider after the step, with this generation; None if it is gone."""
        provider = after_step(step, self.now.get(step.uuid))
        return provider and replace(provider, generation=generation)

    def skip_result(self, error: WharfingerError) -> None:
        """Fail the tree, and store none of its results."""
        self.failed = self.failed or error
        self.skips_result = True
        self.result_rows.changed_nodes = ()

    def drop_rows(self, error: WharfingerError) -> None:
        """After a conflict, do not store node and reservation rows now."""
        rows = (*self.result_rows.changed_reservations, *self.result_rows.ended)
        if not (self.plan.steps and (rows or self.result_rows.changed_nodes)):
            self.skip_result(error)
            return
        self.failed = self.failed or (error if rows else None)
        self.result_rows = RowChanges()


def tree_writes(state: CycleState, plan: Plan, rows: NodeRows) -> list[TreeWrite]:
    """Return the trees to write, each with its database rows."""
    trees = {tree.root_uuid: tree for tree in plan.trees if tree.steps or tree.records}
    phases = phases_by_tree(state, plan.trees)
    root_of = root_finder(state, plan.trees)
    lost: dict[str, list[Reservation]] = {}
    for one in state.lost:  # these are stored even if the tree cannot be written now
        lost.setdefault(root_of(one.provider_uuid), []).append(one)
    planned = {uuid: record for tree in plan.trees for uuid, record in tree.records.items()}
    nodes: dict[str, tuple[Node, Provider]] = {}
    for node in state.nodes.nodes:
        root = state.roots.get(node.name, "")
        record = planned.get(root, state.records.get(root))
        if record and record.applied:
            nodes[root] = node.with_root(root), record.applied
    new = dict.fromkeys(root for root in state.new_nodes if root in nodes)
    writes = []
    for root in dict.fromkeys((*trees, *phases, *new, *lost)):
        tree = trees.get(root) or TreePlan(root_uuid=root)
        write = TreeWrite(tree, RowChanges(new_reservations=lost.get(root, ())))
        if root in new:
            write.intent_rows.new_nodes = [rows.new_row(*nodes[root])]
        elif root in nodes and root in tree.records:
            row = rows.changed_row(*nodes[root])
            if row and not row.is_renamed:  # the cycle stores all renames together
                write.result_rows.changed_nodes = [row]
        _add_known_rows(write, state, phases.get(root, ()))
        writes.append(write)
    return writes


def _add_known_rows(write: TreeWrite, state: CycleState, phases: Phases) -> None:
    tree, first, last = write.plan, write.intent_rows, write.result_rows
    last.ended = [one for one, phase in phases if phase is None]
    changed = []
    for one, phase in phases:
        if phase is not None:
            one.phase = phase
            changed.append(one)
    roots = {tree.root_uuid, *(step.root_uuid for step in tree.steps)}
    touched = {uuid for step in tree.steps for uuid in step.touched}
    touched |= {one.provider_uuid for one, _phase in phases}
    touched |= {one.provider_uuid for one in first.new_reservations}
    for uuid in touched:
        record = tree.records.get(uuid)
        figures = dict(record.own_reserved) if record else {}
        for one in state.reservations.get(uuid, ()) if figures else ():
            # The reservation has a copy of the figures, in case the record is lost.
            is_readable = "own_reserved" in one and "revision" in one
            if is_readable and one not in last.ended and one.own_reserved != figures:
                one.own_reserved = figures
                changed.append(one)
    last.changed_reservations = changed
    first.our_nodes = sorted(roots & state.rows.node_revisions.keys())
    first.known_reservations = {
        uuid: its for uuid in touched if (its := state.reservations.get(uuid, ())) == readable(its)
    }


def readable(reservations: Iterable[Reservation]) -> tuple[Reservation, ...]:
    """Return the reservations that have a uuid and a revision."""
    return tuple(one for one in reservations if "uuid" in one and "revision" in one)


def intents(tree: TreeWrite, store: RecordStore) -> RowChanges:
    """Return the changes to store before the first request."""
    return replace(tree.intent_rows, records=dict(_intended(tree, store)))


def _intended(tree: TreeWrite, store: RecordStore) -> Iterator[tuple[str, Record]]:
    left = _left_by_reshape(tree)
    changes = {step.uuid: step for step in tree.plan.steps if isinstance(step, SetInventories)}
    full = {uuid: step for uuid, step in changes.items() if fully_reserves(step)}
    for uuid in tree.left.keys() & tree.plan.records.keys():
        record, planned, live = store.get(uuid), tree.plan.records[uuid], _live(tree, uuid)
        if planned is None:
            yield uuid, replace(record, live=live)
            continue
        if record.left and live:
            # An earlier reshape was interrupted. After another crash, the ``reserved`` figures that
            # it sent must not count as figures to restore.
            live = replace(live, generation=None)
        own_reserved = dict(planned.own_reserved)
        if record.own_reserved and live:
            # The figures to restore are needed until the reservation has ended.
            figures = full_reservation.own_reserved(live.inventories, record)
            own_reserved = {**figures, **own_reserved}
        if uuid in changes:
            # Until the write, our full reservation must not look like that of another program.
            own_reserved = {**_released_figures(changes[uuid]), **own_reserved}
        intent = replace(
            planned,
            live=live,
            # If our provider was deleted, a later provider with this uuid may not be ours.
            applied=record.applied if live else None,
            intended=planned.intended or planned.applied,
            own_reserved=own_reserved,
        )
        if uuid in full:
            # If the old inventories cannot be replaced, they are fully reserved (see _Run).
            figures = full_reservation.own_reserved(full[uuid].before, intent)
            intent = replace(intent, own_reserved={**figures, **own_reserved})
        if uuid in left:
            intent = _before_reshape(intent, planned, left[uuid])
        yield uuid, intent


def _released_figures(step: SetInventories) -> dict[str, int]:
    return {
        name: inventory.reserved
        for name, inventory in step.after.items()
        if not inventory.is_fully_reserved
        and name in step.before
        and step.before[name].is_fully_reserved
    }


def _left_by_reshape(tree: TreeWrite) -> dict[str, Provider]:
    left: dict[str, Provider] = {}
    now = dict(tree.now)
    for step in tree.plan.steps:
        if isinstance(step, Reshape):
            for change in step.inventories:
                provider = after_step(change, now.get(change.uuid))
                if provider is not None:
                    left[change.uuid] = replace(provider, generation=None)
        elif not left:
            now[step.uuid] = after_step(step, now.get(step.uuid))
    return left


def _before_reshape(intent: Record, planned: Record, left: Provider) -> Record:
    # A figure that a later step replaces must not count as a figure to restore.
    wanted = planned.live.inventories if planned.live else {}
    temporary = {
        name: wanted[name].reserved
        for name, inventory in left.inventories.items()
        if name in wanted and inventory.reserved != wanted[name].reserved
    }
    return replace(intent, live=left, own_reserved={**temporary, **intent.own_reserved})


def results(tree: TreeWrite, store: RecordStore) -> RowChanges:
    """Return the changes to store after the last request. The store has the intents."""
    # After the intents, no other process may change the rows that they have checked.
    checks = RowChanges() if tree.has_intents else tree.intent_rows
    ended, unfinished = tree.result_rows.ended, tree.unfinished
    return replace(
        tree.result_rows,
        records=dict(_final(tree, store)),
        our_nodes=checks.our_nodes,
        known_reservations=checks.known_reservations,
        ended=tuple(one for one in ended if one.provider_uuid not in unfinished),
    )


def _final(tree: TreeWrite, store: RecordStore) -> Iterator[tuple[str, Record | None]]:
    left = _left_by_reshape(tree)
    for uuid, planned in tree.plan.records.items():
        if uuid in tree.withdrawn:
            yield uuid, None
        elif uuid not in tree.left:
            yield uuid, planned
        elif not tree.left[uuid]:
            live = _live(tree, uuid)
            if live and uuid in left and live.inventories == left[uuid].inventories:
                # Temporary figures must not count as figures to restore.
                live = replace(live, generation=None)
            yield uuid, planned and replace(planned, live=live)
        elif planned and uuid in left:
            # The reshape or a later step was refused, or it was done and the answer was lost. The
            # intent fits each of these cases.
            yield uuid, store.get(uuid)
        else:
            yield uuid, replace(store.get(uuid), live=_live(tree, uuid))


def _live(tree: TreeWrite, uuid: str) -> Provider | None:
    live = tree.now[uuid]
    return replace(live, generation=None) if live and tree.is_partly_known else live


def row_uuids(tree: TreeWrite) -> set[str]:
    """Return the keys that a ConcurrentSave about this tree can have."""
    first, last = tree.intent_rows, tree.result_rows
    rows = (*first.new_nodes, *last.changed_nodes)
    held = (*first.new_reservations, *last.changed_reservations, *last.ended)
    return {
        *tree.plan.records,
        *first.our_nodes,
        *first.known_reservations,
        *(row.uuid for row in rows),
        *(one.provider_uuid for one in held),
        *(one.uuid for one in held if "uuid" in one),
    }


def fully_reserves(step: SetInventories) -> bool:
    """Return whether a step fully reserves inventories that were not fully reserved."""
    return (
        bool(step.after)
        and all(one.is_fully_reserved for one in step.after.values())
        and not all(one.is_fully_reserved for one in step.before.values())
    )
