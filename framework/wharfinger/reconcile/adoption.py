"""Adoption of single providers that the operator names."""

from collections.abc import Set

from wharfinger.exceptions import AdoptionRefused, WharfingerError
from wharfinger.providers.plan import Plan, Step
from wharfinger.providers.record import Record
from wharfinger.reconcile.planning import Planned
from wharfinger.reconcile.records import InstanceMemory
from wharfinger.reconcile.reservation_phases import Judgement


def only(planned: Planned, uuids: Set[str], memory: InstanceMemory, instance: str) -> Planned:
    """Return the part of a plan that changes the providers of these uuids.

    ``memory`` belongs to the driver instance that adopts them; ``instance`` is its name. Raises
    AdoptionRefused, with all reasons, if it cannot adopt every one of them.
    """
    plan = planned.plan
    coming = tuple(row for row in planned.coming if row.uuid in uuids)
    later = {row.uuid for row in coming}
    refused = [
        reason
        for uuid in sorted(uuids - later)
        if (reason := _refusal(uuid, planned, memory.get(uuid)))
    ]
    if refused:
        raise AdoptionRefused(instance=instance, problem=" ".join(refused))
    return Planned(
        Plan(
            steps=tuple(step for step in plan.steps if uuids >= set(step.touched)),
            records={uuid: record for uuid, record in plan.records.items() if uuid in uuids},
            foreign=tuple(one for one in plan.foreign if one.uuid in uuids),
        ),
        planned.live,
        new=tuple(node for node in planned.new if node.uuid in uuids),
        coming=coming,
        judgement=Judgement(),
        rows=planned.rows,
    )


def _refusal(uuid: str, planned: Planned, before: Record) -> str:
    """Return why a provider cannot be adopted; empty if it can, or if it is ours already."""
    plan = planned.plan
    live = planned.live.get(uuid)
    if live is None:
        return f"{uuid} is not in Placement, or not in the tree of a node that the driver lists."
    problems = [one for one in plan.problems if _names(one, {uuid, live.name})]
    if problems:
        return " ".join(map(str, problems))
    if any(_splits(step, uuid) for step in plan.steps):
        return (
            f"{live.name} ({uuid}): the driver moves resources between it and other providers. "
            "Only `wharfinger sync` can do that."
        )
    planned_record = plan.records.get(uuid, before)
    if planned_record is None or not planned_record.is_ours:
        roots = {uuid, live.root_uuid}
        related = [str(one) for one in plan.problems if _names(one, roots)]
        return " ".join(
            [f"{live.name} ({uuid}): the driver does not report it as its own.", *related]
        )
    return ""


def _splits(step: Step, uuid: str) -> bool:
    return uuid in step.touched and len(step.touched) > 1


def _names(problem: WharfingerError, keys: Set[str]) -> bool:
    """Return whether an error is about a provider or node with one of these uuids or names."""
    return any(getattr(problem, name, None) in keys for name in ("uuid", "provider", "node"))
