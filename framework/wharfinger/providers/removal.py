"""Removal of providers that are gone from their backend: conditions, and reasons to wait.

A provider is removed when two complete listings lack it, ``removal_delay`` apart; when the driver,
asked for that provider alone, does not have it; and when it has no allocations. A provider that is
not in our records is never removed.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from wharfinger.providers import ownership
from wharfinger.providers.absence_timer import Absence, Uptime
from wharfinger.providers.ownership import Standing
from wharfinger.providers.plan import PendingRemoval
from wharfinger.providers.plan_draft import REPLACED, TreeDraft
from wharfinger.providers.provider import Provider, PublishingMode
from wharfinger.providers.provider_record import Record

#: The most providers, and the largest part (1 / _FRACTION), that one cycle may remove.
_FEW: Final = 4
_FRACTION: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovalPolicy:
    """Conditions for the removal of absent providers.

    ``delay`` is the time in seconds for which complete listings must lack a provider.
    With ``allow_mass``, one cycle may remove any number of providers.
    """

    delay: float
    allow_mass: bool = False

    def is_due(self, record: Record, now: Uptime | None) -> bool:
        """Return whether a provider has been absent for the whole delay, since an earlier listing.

        Return False for an absence that was counted in another boot.
        """
        lasted = record.absence.seconds_until(now) if record.absence else None
        return lasted is not None and lasted > 0 and lasted >= self.delay

    def believes(self, gone: int, providers: int) -> bool:
        """Return whether the policy allows this many removals in one cycle."""
        return self.allow_mass or gone <= _FEW or gone * _FRACTION <= providers


@dataclass(frozen=True, slots=True, kw_only=True)
class Removals:
    """Facts that decide whether an absent provider is gone.

    ``now`` is in seconds since the epoch. ``uptime`` is the moment of the listing, None if unknown.
    ``policy`` has the delay. ``is_listing`` is True for a complete listing; without one, no
    provider counts as gone. ``children_may_be_elsewhere``: some nodes could not be read, and absent
    children of other nodes may have moved there; ``roots_may_be_elsewhere``: their root providers
    are unknown, too. ``parents`` are the uuids of providers that are due and have children outside
    the draft. ``withheld``: too many providers are absent at once, so none is removed or reserved.
    ``kept`` has the reasons why providers that are due stay, by uuid: the driver still has the
    provider when asked for it alone, or does not answer.
    """

    now: float
    policy: RemovalPolicy
    is_listing: bool = True
    children_may_be_elsewhere: bool = False
    roots_may_be_elsewhere: bool = False
    parents: frozenset[str] = frozenset()
    withheld: bool = False
    uptime: Uptime | None = None
    kept: Mapping[str, str] = field(default_factory=dict)


def orphan(uuid: str, name: str) -> PendingRemoval:
    """Report a provider with our instance trait that is neither desired nor in our records."""
    return PendingRemoval(
        uuid=uuid,
        name=name,
        reason="it has the trait of this instance, but neither the driver reports it nor a record "
        "shows that this instance created it: not changed",
    )


def remove(draft: TreeDraft, removals: Removals) -> None:
    """Plan the removal of absent providers, children first, or note why a removal waits.

    Without a complete listing, all of them stay. Call it after the desired providers are planned: a
    child that moves away no longer keeps its parent.
    """
    children = _children(draft) if draft.absent else {}
    replaced = dict.fromkeys(_replaced(draft, removals), REPLACED)
    for uuid in sorted(
        draft.absent, key=lambda uuid: (-_depth(draft.live, uuid), draft.live[uuid].name)
    ):
        live, record = draft.live[uuid], draft.record(uuid)
        absence, has = record.absence, ""
        if not removals.is_listing:
            draft.keep_absent(live, absence, replaced.get(uuid, ""))
            continue
        if draft.standing(live) is Standing.FOREIGN:
            others = ", ".join(sorted(ownership.owners(live.traits) - {draft.publisher.owner}))
            draft.leave(uuid)
            draft.wait(live, f"it belongs to {others} now, which has to delete it")
            continue
        if record.mode is PublishingMode.OVERLAY:
            reason = "another program publishes it, and has to delete it"
        elif others := _others(draft, live, record):
            reason = f"{others}, so it may not be ours"
        elif live.parent_uuid and removals.children_may_be_elsewhere:
            reason = "it may have moved to a node that could not be read"
        elif not live.parent_uuid and removals.roots_may_be_elsewhere:
            reason = "it may be a node that is listed and could not be read"
        elif not removals.policy.is_due(record, removals.uptime):
            absence, reason = _counted(record.absence, removals)
        elif removals.withheld:
            reason = "too many are absent at once, so none is removed without --allow-mass-removal"
        elif uuid in removals.kept:
            reason = removals.kept[uuid]
        elif uuid in draft.allocated or children.get(uuid) or uuid in removals.parents:
            has = "allocations" if uuid in draft.allocated else "children that are not removed"
            reason = f"it has {has}: fully reserved and kept"
        else:
            children[live.parent_uuid].discard(uuid)
            _delete(draft, live, is_replaced=uuid in replaced)
            continue
        draft.wait(live, reason)
        reserved = f"gone, and it has {has}" if has else replaced.get(uuid, "")
        draft.keep_absent(live, absence, reserved)


def _delete(draft: TreeDraft, live: Provider, *, is_replaced: bool) -> None:
    """Plan to delete a provider; first reserve a replaced one, since a plan deletes last."""
    if is_replaced:
        draft.keep_absent(live, None, REPLACED)
    draft.delete(live)


def _replaced(draft: TreeDraft, removals: Removals) -> Iterator[str]:
    """Yield the absent children whose classes grow on other providers of the tree.

    Such a child has another name now, or another device took its place. It is reserved before the
    other providers grow, so that no resource is offered twice until it is removed.
    """
    grown = frozenset[str]().union(*(step.grown for step in draft.inventories))
    for uuid, live in draft.absent.items():
        record = draft.record(uuid)
        if (
            live.parent_uuid is not None
            and not grown.isdisjoint(live.inventories)
            and uuid not in removals.kept
            and record.mode is PublishingMode.OWN
            and draft.is_ours(live)
            and not _others(draft, live, record)
        ):
            yield uuid


def _others(draft: TreeDraft, live: Provider, record: Record) -> str:
    """Return why an absent provider may belong to another program; "" if it does not."""
    marks = set(filter(ownership.is_instance_trait, live.traits)) - draft.publisher.traits
    if marks:
        return f"it has the trait of another instance ({', '.join(sorted(marks))})"
    if record.applied is None and not draft.publisher.traits <= live.traits:
        return "it lacks our traits, and no record shows that its creation was completed"
    if ownership.instance_trait(draft.publisher.instance) not in live.traits:
        return "it has lost the trait of this instance: another program may have replaced it"
    return ""


def _counted(absence: Absence | None, removals: Removals) -> tuple[Absence, str]:
    """Return the absence of a provider that is not due yet, and why it waits.

    The count starts again if the earlier one cannot be compared, as after a reboot.
    """
    if removals.uptime is None:
        return absence or Absence(removals.now), (
            "absent, and kept, since the time of its absence cannot be counted: the boot id "
            "(/proc/sys/kernel/random/boot_id) or CLOCK_BOOTTIME cannot be read. Make both readable"
        )
    counted = absence.seconds_until(removals.uptime) if absence else None
    if absence is None or counted is None:
        absence, counted = Absence(removals.now, removals.uptime), 0.0
    return absence, (
        f"absent for {counted:.0f} s; removed when a listing at least "
        f"{removals.policy.delay:.0f} s after the first lacks it too"
    )


def _children(draft: TreeDraft) -> dict[str | None, set[str]]:
    """Return the children of each provider after the draft is applied."""
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
