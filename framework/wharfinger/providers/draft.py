"""A plan in the making: what the parts of the diff add to."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace

from wharfinger.exceptions import WharfingerError
from wharfinger.providers import full_reservation
from wharfinger.providers.absence import Absence
from wharfinger.providers.ownership import Publisher, Standing, standing
from wharfinger.providers.plan import (
    CreateProvider,
    DeleteProvider,
    ForeignReservation,
    Identity,
    PendingRemoval,
    SetAggregates,
    SetInventories,
    SetTraits,
    Step,
    UpdateProvider,
)
from wharfinger.providers.provider import Provider, PublishingMode
from wharfinger.providers.record import Record

_NOTHING = Record()


@dataclass(slots=True)
class Draft:
    """Steps by kind, in the order in which they were added, and what to remember.

    ``live`` is what Placement has, ``known`` what was remembered of it; both by uuid. ``held`` are
    the uuids of what is fully reserved whatever its driver says; ``now`` is in seconds since the
    epoch.
    """

    publisher: Publisher
    live: Mapping[str, Provider]
    known: Mapping[str, Record]
    now: float = 0.0
    held: Collection[str] = frozenset()
    identities: list[Step] = field(default_factory=list)
    inventories: list[SetInventories] = field(default_factory=list)
    deletions: list[Step] = field(default_factory=list)
    records: dict[str, Record | None] = field(default_factory=dict)
    pending: list[PendingRemoval] = field(default_factory=list)
    foreign: list[ForeignReservation] = field(default_factory=list)
    gone: set[str] = field(default_factory=set)
    problems: list[WharfingerError] = field(default_factory=list)
    troubled: set[str] = field(default_factory=set)

    def record(self, uuid: str) -> Record:
        """What was remembered of a provider; an empty record where nothing was."""
        return self.known.get(uuid, _NOTHING)

    def proven(self, uuid: str) -> Record:
        """Return the record of a provider; in own mode, without claims that it does not prove."""
        record, live = self.record(uuid), self.live.get(uuid)
        if (
            live is None
            or record.mode is not PublishingMode.OWN
            or self.standing(live) is not Standing.UNPROVEN
        ):
            return record
        return replace(record, applied=None, intended=None)

    def standing(self, live: Provider) -> Standing:
        """Whose a provider is."""
        return standing(live, self.publisher, self.record(live.uuid))

    def is_ours(self, live: Provider) -> bool:
        """Return whether this instance may write a provider."""
        return self.standing(live) in (Standing.OURS, Standing.OURS_BEFORE)

    def change(self, before: Provider | None, after: Provider, record: Record) -> None:
        """Take a provider from one state to the next, and then remember the record."""
        self.records[after.uuid] = record
        self.identities += _identity_steps(before, after)
        have = before.inventories if before else {}
        if have != after.inventories:
            self.inventories.append(
                SetInventories(**which(after), before=have, after=after.inventories)
            )

    def refuse(self, root_uuid: str, problem: WharfingerError) -> None:
        """Note what keeps something in a tree from being published."""
        self.problems.append(problem)
        self.troubled.add(root_uuid)

    def note_foreign(self, after: Provider, record: Record) -> None:
        """Note what somebody else has reserved of a provider as it will be."""
        classes = full_reservation.foreign(after.inventories, record)
        if classes:
            self.foreign.append(
                ForeignReservation(uuid=after.uuid, name=after.name, classes=classes)
            )

    def delete(self, live: Provider) -> None:
        """Delete a provider, and forget it."""
        self.deletions.append(DeleteProvider(**which(live)))
        self.records[live.uuid] = None

    def wait(self, live: Provider, reason: str) -> None:
        """Say of an absent provider what its removal waits for."""
        self.pending.append(PendingRemoval(uuid=live.uuid, name=live.name, reason=reason))

    def leave(self, uuid: str) -> None:
        """Leave a provider that is there as it is; what we had done to it stays remembered."""
        if uuid in self.live:
            record = _seen(self.proven(uuid), self.live[uuid])
            self.records[uuid] = replace(record, absence=None)

    def keep_absent(self, live: Provider, absence: Absence | None) -> None:
        """Leave what is absent as it is; but what is held is reserved, and stays so."""
        record = replace(self.seen(live), absence=absence)
        after = live
        if live.uuid in self.held and self.is_ours(live):
            figures = full_reservation.own_reserved(live.inventories, record)
            after = replace(live, inventories=full_reservation.reserve_fully(live.inventories))
            record = replace(record, live=after, own_reserved=figures)
        self.change(live, after, record)

    def seen(self, live: Provider) -> Record:
        """What was remembered of a provider, and how it is now."""
        return _seen(self.record(live.uuid), live)


def _seen(record: Record, live: Provider) -> Record:
    has_figures = record.own_reserved and record.is_ours  # restore no figures of other owners
    figures = full_reservation.own_reserved(live.inventories, record) if has_figures else {}
    return replace(record, live=live, own_reserved=figures)


def which(provider: Provider) -> dict[str, str]:
    """What every step says of its provider."""
    return {"uuid": provider.uuid, "name": provider.name, "root_uuid": provider.root_uuid}


def _identity_steps(before: Provider | None, after: Provider) -> Iterator[Step]:
    """Everything but inventories: who it is, where it stands, whose it is."""
    if before is None:
        yield CreateProvider(**which(after), parent_uuid=after.parent_uuid)
    else:
        here = Identity(name=before.name, parent_uuid=before.parent_uuid)
        there = Identity(name=after.name, parent_uuid=after.parent_uuid)
        if here != there:
            yield UpdateProvider(**which(after), before=here, after=there)
    traits = before.traits if before else frozenset()
    if traits != after.traits:
        yield SetTraits(**which(after), before=traits, after=after.traits)
    aggregates = before.aggregates if before else frozenset()
    if aggregates != after.aggregates:
        yield SetAggregates(**which(after), before=aggregates, after=after.aggregates)
