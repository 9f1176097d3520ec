"""Limit the plan of a full cycle to the providers to adopt."""

from collections.abc import Set
from dataclasses import replace

from wharfinger.exceptions import AdoptionRefused, WharfingerError
from wharfinger.providers.plan import Plan, TreePlan
from wharfinger.reconcile.cycle_state import CycleState


def only(state: CycleState, plan: Plan) -> tuple[CycleState, Plan]:
    """Limit a state and its plan to the providers to adopt. Raises AdoptionRefused."""
    uuids = state.publisher.adopts
    takeovers = {uuid: row for uuid, row in state.takeovers.items() if row is None or uuid in uuids}
    # The next attempt adopts the roots that are taken over now.
    later = {uuid for uuid, row in takeovers.items() if row}
    refused = [reason for uuid in sorted(uuids - later) if (reason := _refusal(state, plan, uuid))]
    if refused:
        raise AdoptionRefused(
            instance=state.publisher.instance,
            # An earlier attempt may have adopted the others.
            outcome="has not adopted all providers"
            if state.attempt
            else "has adopted no provider and written nothing",
            problem=" ".join(refused),
        )
    state = replace(
        state,
        new_nodes=tuple(uuid for uuid in state.new_nodes if uuid in uuids),
        takeovers=takeovers,
        phases=(),
        superseded=frozenset(),
        scope=frozenset(),
    )
    trees = (_restricted(tree, uuids) for tree in plan.trees)
    return state, Plan(
        trees=tuple(tree for tree in trees if tree.steps or tree.records),
        foreign=tuple(one for one in plan.foreign if one.uuid in uuids),
    )


def _restricted(tree: TreePlan, uuids: Set[str]) -> TreePlan:
    return TreePlan(
        root_uuid=tree.root_uuid,
        steps=tuple(step for step in tree.steps if uuids >= set(step.touched)),
        live=tree.live,
        records={uuid: record for uuid, record in tree.records.items() if uuid in uuids},
    )


def _refusal(state: CycleState, plan: Plan, uuid: str) -> str:
    live = state.live.get(uuid)
    if live is None:
        return (
            f"provider {uuid} is not in Placement, or not in the tree of a node that the driver "
            "lists."
        )
    problems = [one for one in plan.problems if _names(one, {uuid, live.name})]
    if problems:
        return " ".join(map(str, problems))
    if any(uuid in step.touched and len(step.touched) > 1 for step in plan.steps):
        return (
            f"{live.name} ({uuid}): the driver moves inventories between it and other providers. "
            "Only a full cycle can apply such a move: set `adopt = matching` for the driver "
            "instance, and run `wharfinger sync`."
        )
    records = {key: record for tree in plan.trees for key, record in tree.records.items()}
    record = records.get(uuid, state.records.get(uuid))
    if record is None or not record.is_ours:
        related = [one for one in plan.problems if _names(one, {uuid, live.root_uuid})]
        reason = f"{live.name} ({uuid}): the driver does not report this provider as its own."
        return " ".join([reason, *map(str, related)])
    return ""


def _names(problem: WharfingerError, keys: Set[str]) -> bool:
    return any(getattr(problem, name, None) in keys for name in ("uuid", "provider", "node"))
