"""Plan a cycle from its state, by pure functions."""

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

import os_traits

from wharfinger.exceptions import NodeTaken
from wharfinger.providers import DesiredProvider, Provider, full_reservation, ownership
from wharfinger.providers.ownership import Standing
from wharfinger.providers.plan import (
    ForeignReservation,
    Plan,
    Reshape,
    SetInventories,
    TreePlan,
    step_target,
)
from wharfinger.providers.plan_draft import PlanFacts, own_view
from wharfinger.providers.provider import Record
from wharfinger.providers.removal import orphan
from wharfinger.providers.tree_planner import plan_trees
from wharfinger.reconcile.cycle_state import CycleState
from wharfinger.reconcile.reservation_phases import Phases


def plan_cycle(state: CycleState) -> Plan:
    """Return the plan of a cycle."""
    # If a root has another uuid than its node, both trees are blocked together.
    new_roots = {
        node.uuid: root
        for node in (*state.nodes.nodes, *state.nodes.failed)
        if (root := state.roots.get(node.name, node.uuid)) != node.uuid
    }

    def is_planned(root: str | None) -> bool:
        return (
            state.blocked.isdisjoint((root, new_roots.get(root or "")))
            and root not in state.unchanged
            and (state.scope is None or root in state.scope)
        )

    planned = plan_trees(
        _with_reasons_to_keep(state), state.desired.values(), state.live, state.records, is_planned
    )
    trees = {tree.root_uuid: tree for tree in (*planned, *_blocked_trees(state))}

    def tree_of(root: str) -> TreePlan:
        return trees.get(root, TreePlan(root_uuid=root))

    for root, records in _records_of_blocked(state).items():
        trees[root] = replace(tree_of(root), records={**records, **tree_of(root).records})
    for root, phases in phases_by_tree(state, trees.values()).items():
        for one, phase in phases:
            if phase is None and one.provider_uuid not in state.held:
                trees[root] = _with_write(state, tree_of(root), one.provider_uuid)
    return Plan(
        trees=tuple(trees.values()),
        orphans=tuple(orphan(one.uuid, one.name) for one in state.strays),
        errors=(*state.problems, *state.other_problems),
        foreign=tuple(_foreign_reservations(state, trees.values())),
    )


def _with_reasons_to_keep(state: CycleState) -> CycleState:
    detached = {
        uuid: f"kept: {holder}. If its node does not come back, end the reservation of that "
        f"holder: `wharfinger provider release {uuid} --holder {shlex.quote(holder)}`"
        for uuid, holder in state.detached.items()
    }
    # If another host publishes a node, the driver has nevertheless reported its children.
    has_unread = any(not isinstance(one, NodeTaken) for one in state.problems)
    return replace(
        state,
        children_may_be_elsewhere=has_unread or state.is_partial,
        roots_may_be_elsewhere=state.every_node.has_unknown_nodes(state.records),
        kept={**state.kept, **detached},
    )


def _blocked_trees(state: CycleState) -> tuple[TreePlan, ...]:
    disabled = bool(state.rows.service_disabled)
    roots = state.blocked - state.released_roots
    roots -= {uuid for uuid, row in state.takeovers.items() if row}
    due = {
        uuid: state.records[uuid]
        for uuid in {*roots, *state.held} & state.live.keys() & state.records.keys()
        if (uuid in state.held and state.live[uuid].root_uuid in roots)
        or (disabled and uuid in roots)
        if state.records[uuid].applied is not None
        and state.records[uuid].absence is None
        and not _moves_away(state, uuid)
    }
    live = {uuid: state.live[uuid] for uuid in due}
    desired = []
    for uuid, record in due.items():
        mine = own_view(live[uuid], record)
        if disabled and uuid in roots:
            mine = replace(mine, traits=mine.traits | {os_traits.COMPUTE_STATUS_DISABLED})
        desired.append(
            DesiredProvider(provider=mine, mode=record.mode, reservations=record.reservations)
        )
    facts = PlanFacts(publisher=state.publisher, now=state.now, held=state.held)
    return plan_trees(facts, desired, live, due)


def _moves_away(state: CycleState, uuid: str) -> bool:
    wanted = state.desired.get(uuid)
    return wanted is not None and wanted.provider.root_uuid not in state.blocked


def _records_of_blocked(state: CycleState) -> Mapping[str, Mapping[str, Record | None]]:
    found: dict[str, dict[str, Record | None]] = {}
    for uuid, record in state.records.items() if state.released_roots else ():
        root = record.root_uuid or ""
        if root in state.released_roots:
            found.setdefault(root, {})[uuid] = None
    for node in (*state.nodes.nodes, *state.nodes.failed):
        known = state.records.get(node.uuid)
        stays = node.uuid in state.blocked and node.uuid in state.live
        if stays and known and known.absence:
            found.setdefault(node.uuid, {}).setdefault(node.uuid, replace(known, absence=None))
    return found


def _with_write(state: CycleState, tree: TreePlan, uuid: str) -> TreePlan:
    if any(
        isinstance(step, SetInventories | Reshape) and uuid in step.touched for step in tree.steps
    ):
        return tree
    live, record = state.live.get(uuid), state.record(uuid)
    if live is None or not record.is_ours or not live.inventories:
        return tree
    # The write raises the generation, so that Placement refuses a concurrent reservation.
    same = SetInventories(**step_target(live), before=live.inventories, after=live.inventories)
    return replace(
        tree,
        steps=(*tree.steps, same),
        live={**tree.live, uuid: live},
        records={uuid: record, **tree.records},
    )


def _foreign_reservations(
    state: CycleState, trees: Iterable[TreePlan]
) -> Iterator[ForeignReservation]:
    planned = {uuid: record for tree in trees for uuid, record in tree.records.items()}
    for uuid, live in state.live.items():
        record = planned.get(uuid, state.record(uuid))
        if record is None or not record.is_ours or not _is_known_now(state, live):
            continue
        after = record.live if uuid in planned and record.live else live
        found = full_reservation.foreign_reservation(after, record)
        if found and ownership.standing(live, state.publisher, record) is not Standing.FOREIGN:
            yield found


def _is_known_now(state: CycleState, live: Provider) -> bool:
    if state.scope is None:
        return live.uuid in state.desired  # others are absent, or the driver could not report them
    return state.is_read or live.root_uuid in state.scope


def phases_by_tree(state: CycleState, trees: Iterable[TreePlan]) -> dict[str, Phases]:
    """Return the reservations with new phases, by root uuid; phase None ends a reservation."""
    plans = {tree.root_uuid: tree for tree in trees}
    root_of = root_finder(state, plans.values())
    found: dict[str, Phases] = {}
    for one, phase in state.phases:
        root = root_of(one.provider_uuid)
        live, wanted = state.live.get(one.provider_uuid), state.desired.get(one.provider_uuid)
        roots = {root, live and live.root_uuid, wanted and wanted.provider.root_uuid}
        if state.blocked.isdisjoint(roots) and not (root in plans and plans[root].problems):
            found[root] = (*found.get(root, ()), (one, phase))
    return found


def root_finder(state: CycleState, trees: Iterable[TreePlan]) -> Callable[[str], str]:
    """Return a function that returns the root of the tree with which a provider is written."""
    planned = {uuid: tree.root_uuid for tree in trees for uuid in tree.records}

    def root_of(uuid: str) -> str:
        live = state.live.get(uuid)
        return planned.get(uuid, live.root_uuid if live else uuid)

    return root_of
