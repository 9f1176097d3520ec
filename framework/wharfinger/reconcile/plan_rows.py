"""Database rows to store with the plan of each tree."""

from collections.abc import Callable, Iterable

from wharfinger.objects import Reservation
from wharfinger.providers import Provider
from wharfinger.providers.plan import Plan, TreePlan
from wharfinger.reconcile.cycle_state import CycleState
from wharfinger.reconcile.reservation_phases import Phases
from wharfinger.reconcile.tree_write import TreeWrite
from wharfinger.tracker.node_rows import NodeRows


def tree_writes(state: CycleState, plan: Plan, rows: NodeRows) -> list[TreeWrite]:
    """Return the trees to write, each with its database rows."""
    trees = {tree.root_uuid: tree for tree in plan.trees if tree.steps or tree.records}
    phases = phases_by_tree(state, plan.trees)
    root_of = _root_finder(state, plan.trees)
    lost: dict[str, list[Reservation]] = {}
    for one in state.lost:  # these are stored even if the tree cannot be written now
        lost.setdefault(root_of(one.provider_uuid), []).append(one)
    nodes = {state.roots.get(node.name): node for node in state.nodes.nodes}
    planned = {uuid: record for tree in plan.trees for uuid, record in tree.records.items()}

    def applied(root: str) -> Provider | None:
        record = planned.get(root, state.records.get(root))
        return record.applied if record else None

    new = dict.fromkeys(filter(applied, state.new_nodes))
    writes = []
    for root in dict.fromkeys((*trees, *phases, *new, *lost)):
        tree = trees.get(root) or TreePlan(root_uuid=root)
        write = TreeWrite(tree, new_reservations=lost.get(root, ()))
        if (node := nodes.get(root)) and (provider := applied(root)):
            placed = node.with_root(root)
            if root in new:
                write.new_nodes = [rows.new_row(placed, provider)]
            elif (
                root in tree.records
                and (row := rows.changed_row(placed, provider))
                and not row.is_renamed
            ):
                write.changed_nodes = [row]  # the cycle stores all renames together
        _add_known_rows(write, state, phases.get(root, ()))
        writes.append(write)
    return writes


def _add_known_rows(write: TreeWrite, state: CycleState, phases: Phases) -> None:
    tree, moved, ended = write.plan, [], []
    for one, phase in phases:
        if phase is None:
            ended.append(one)
        else:
            one.phase = phase
            moved.append(one)
    roots = {tree.root_uuid, *(step.root_uuid for step in tree.steps)}
    touched = {uuid for step in tree.steps for uuid in step.touched}
    touched |= {one.provider_uuid for one, _phase in phases}
    touched |= {one.provider_uuid for one in write.new_reservations}
    for uuid in touched:
        record = tree.records.get(uuid)
        figures = dict(record.own_reserved) if record else {}
        for one in state.reservations.get(uuid, ()) if figures else ():
            # The reservation has a copy of the figures, in case the record is lost.
            is_readable = "own_reserved" in one and "revision" in one
            if is_readable and one not in ended and one.own_reserved != figures:
                one.own_reserved = figures
                moved.append(one)
    write.our_nodes = sorted(roots & state.rows.node_revisions.keys())
    write.known_reservations = {
        uuid: {one.uuid: one.revision for one in its}
        for uuid in touched
        if (its := state.reservations.get(uuid, ())) == readable(its)
    }
    write.changed_reservations, write.ended = moved, ended


def readable(reservations: Iterable[Reservation]) -> tuple[Reservation, ...]:
    """Return the reservations that have a uuid and a revision."""
    return tuple(one for one in reservations if "uuid" in one and "revision" in one)


def phases_by_tree(state: CycleState, trees: Iterable[TreePlan]) -> dict[str, Phases]:
    """Return the reservations with new phases, by root uuid; phase None ends a reservation."""
    plans = {tree.root_uuid: tree for tree in trees}
    root_of = _root_finder(state, plans.values())
    found: dict[str, Phases] = {}
    for one, phase in state.phases:
        root = root_of(one.provider_uuid)
        live, wanted = state.live.get(one.provider_uuid), state.desired.get(one.provider_uuid)
        roots = {root, live and live.root_uuid, wanted and wanted.provider.root_uuid}
        if state.blocked.isdisjoint(roots) and not (root in plans and plans[root].problems):
            found[root] = (*found.get(root, ()), (one, phase))
    return found


def _root_finder(state: CycleState, trees: Iterable[TreePlan]) -> Callable[[str], str]:
    planned = {uuid: tree.root_uuid for tree in trees for uuid in tree.records}

    def root_of(uuid: str) -> str:
        live = state.live.get(uuid)
        return planned.get(uuid, live.root_uuid if live else uuid)

    return root_of
