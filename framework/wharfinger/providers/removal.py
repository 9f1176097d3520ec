"""Plan the removal of providers that the driver no longer reports."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from wharfinger.providers import ownership
from wharfinger.providers.ownership import Standing
from wharfinger.providers.plan import DeleteProvider, PendingRemoval, step_target
from wharfinger.providers.plan_draft import REPLACED, PlanFacts, TreeDraft
from wharfinger.providers.provider import Absence, Provider, PublishingMode

#: One cycle may remove up to _FEW providers, or up to 1 / _FRACTION of all.
_FEW: Final = 4
_FRACTION: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovalPolicy:
    """Conditions for the removal of absent providers."""

    #: Seconds for which complete listings must have lacked a provider.
    delay: float
    #: Whether one cycle may remove any number of providers.
    allow_mass: bool = False

    def allows(self, gone: int, providers: int) -> bool:
        """Return whether one cycle may remove or reserve ``gone`` of our ``providers``."""
        return self.allow_mass or gone <= _FEW or gone * _FRACTION <= providers


def orphan(uuid: str, name: str) -> PendingRemoval:
    """Return a PendingRemoval of a provider not recorded as ours."""
    return PendingRemoval(
        uuid=uuid,
        name=name,
        reason="the provider has the instance trait of this driver instance, but the driver does "
        "not report it, and no record shows that the driver instance created it: not changed",
    )


def remove(draft: TreeDraft) -> None:
    """Plan the removal of absent providers.

    Call this after the desired providers are planned.
    """
    facts = draft.facts
    children = _planned_children(draft) if draft.absent else {}
    replaced = dict.fromkeys(_probably_replaced(draft), REPLACED)
    for uuid in sorted(
        draft.absent, key=lambda uuid: (-_depth(draft.live, uuid), draft.live[uuid].name)
    ):
        live, absence, has = draft.live[uuid], draft.record(uuid).absence, ""
        if not facts.is_listing:
            draft.keep_absent(live, absence, replaced.get(uuid, ""))
            continue
        if reason := _reason_not_ours(draft, live):
            absence = _absence_of_unproven(draft, live)
        elif live.parent_uuid and facts.children_may_be_elsewhere:
            reason = "it may have moved to a node that could not be read"
        elif not live.parent_uuid and facts.roots_may_be_elsewhere:
            reason = "it may be a node that is listed and could not be read"
        elif not (absence and absence.has_lasted(facts.removal_delay, facts.uptime)):
            absence, reason = _count_absence(absence, facts)
        elif facts.withheld:
            reason = (
                "too many providers are absent at once, so none is removed without "
                "--allow-mass-removal"
            )
        elif uuid in facts.kept:
            reason = facts.kept[uuid]
        elif uuid in facts.allocated or children.get(uuid) or uuid in facts.parents:
            has = "allocations" if uuid in facts.allocated else "children that are not removed"
            reason = f"it has {has}: fully reserved and kept"
        else:
            children[live.parent_uuid].discard(uuid)
            if uuid in replaced:  # deletions are the last steps, so reserve it first
                draft.keep_absent(live, None, REPLACED)
            draft.gone.add(uuid)
            draft.deletions.append(DeleteProvider(**step_target(live)))
            draft.records[uuid] = None
            continue
        draft.pending.append(PendingRemoval(uuid=uuid, name=live.name, reason=reason))
        reserved = f"gone, and it has {has}" if has else replaced.get(uuid, "")
        draft.keep_absent(live, absence, reserved)


def _probably_replaced(draft: TreeDraft) -> Iterator[str]:
    grown = frozenset[str]().union(*(step.grown for step in draft.inventories))
    for uuid, live in draft.absent.items():
        if (
            live.parent_uuid is not None
            and not grown.isdisjoint(live.inventories)
            and uuid not in draft.facts.kept
            and not _reason_not_ours(draft, live)
        ):
            yield uuid


def _reason_not_ours(draft: TreeDraft, live: Provider) -> str:
    publisher, record = draft.facts.publisher, draft.record(live.uuid)
    marks = set(filter(ownership.is_instance_trait, live.traits)) - publisher.traits
    if draft.standing(live) is Standing.FOREIGN:
        others = ", ".join(sorted(ownership.owners(live.traits) - {publisher.owner}))
        return f"it belongs to {others} now, which has to delete it"
    if record.mode is PublishingMode.OVERLAY:
        return "another program publishes it, and has to delete it"
    if marks:
        doubt = f"it has the trait of another instance ({', '.join(sorted(marks))})"
    elif record.applied is None and not publisher.traits <= live.traits:
        doubt = "it lacks our traits, and no record shows that its creation was completed"
    elif ownership.instance_trait(publisher.instance) not in live.traits:
        doubt = "it has lost the trait of this instance: another program may have replaced it"
    else:
        return ""
    return f"{doubt}, so it may not be ours"


def _absence_of_unproven(draft: TreeDraft, live: Provider) -> Absence | None:
    record = draft.record(live.uuid)
    if draft.standing(live) is Standing.FOREIGN:
        return None
    facts, is_child = draft.facts, live.parent_uuid is not None
    is_elsewhere = facts.children_may_be_elsewhere if is_child else facts.roots_may_be_elsewhere
    if record.absence or record.mode is not PublishingMode.OWN or is_elsewhere:
        return record.absence
    # Another host takes the provider over only if its absence is recorded here. The length stays
    # unknown: it must not count towards a removal if the provider proves to be ours.
    return Absence(draft.facts.now)


def _count_absence(absence: Absence | None, facts: PlanFacts) -> tuple[Absence, str]:
    if facts.uptime is None:
        return absence or Absence(facts.now), (
            "kept, since the duration of its absence cannot be measured: the boot id "
            "(/proc/sys/kernel/random/boot_id) cannot be read. Make it readable"
        )
    counted = absence.seconds_until(facts.uptime) if absence else None
    if absence is None or counted is None:
        absence, counted = Absence(facts.now, facts.uptime), 0.0
    return absence, (
        f"absent for {counted:.0f} s; removed when a listing at least "
        f"{facts.removal_delay:.0f} s after the first lacks it too"
    )


def _planned_children(draft: TreeDraft) -> dict[str | None, set[str]]:
    children: dict[str | None, set[str]] = {}
    for provider in draft.live.values():
        planned = draft.records.get(provider.uuid)
        parent_uuid = ((planned and planned.live) or provider).parent_uuid
        children.setdefault(parent_uuid, set()).add(provider.uuid)
    return children


def _depth(live: Mapping[str, Provider], uuid: str) -> int:
    depth = 0
    provider = live.get(uuid)
    while provider is not None and provider.parent_uuid is not None:
        depth += 1
        provider = live.get(provider.parent_uuid)
    return depth
