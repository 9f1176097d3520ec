"""The plan of a cycle: what the driver says, what Placement has, what is remembered."""

from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Final

from oslo_log import log as logging

from wharfinger.driver import ComputeDriver
from wharfinger.exceptions import MassRemoval, WharfingerError
from wharfinger.objects import JOB_HOLDER, ComputeNode, Context, Reservation
from wharfinger.placement.client import PlacementClient
from wharfinger.placement.reader import PlacementReader, Reading
from wharfinger.providers import Provider, PublishingMode, ownership
from wharfinger.providers.absence import Uptime
from wharfinger.providers.function_traits import with_claims
from wharfinger.providers.ownership import Publisher, Standing
from wharfinger.providers.plan import ForeignReservation, PendingRemoval, Plan
from wharfinger.providers.record import Record
from wharfinger.providers.removal import RemovalPolicy, Removals, orphan
from wharfinger.reconcile import drifting, held_functions
from wharfinger.reconcile.availability import Availability
from wharfinger.reconcile.circumstances import Circumstances
from wharfinger.reconcile.desire import Answers, ask, shares
from wharfinger.reconcile.inquiry import Inquiry, allocations_of
from wharfinger.reconcile.node_list import NodeListing, guarded, guarded_bool
from wharfinger.reconcile.records import InstanceMemory
from wharfinger.reconcile.reservation_phases import Judgement
from wharfinger.reconcile.scopes import Scopes
from wharfinger.reconcile.settled import SettledTrees
from wharfinger.reconcile.takeover import Handover
from wharfinger.reconcile.unasked import UnaskedTrees
from wharfinger.tracker.node import Node

LOG: Final = logging.getLogger(__name__)

_Live = Mapping[str, Provider]
_Records = Mapping[str, Record]


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan, the providers in Placement from which it was made, and its companions.

    ``new`` are nodes whose rows have to be there before the plan is applied. ``coming`` are the
    rows of nodes to be taken over first: they are left out, and planned after that. After the plan
    is applied, ``judgement`` is saved and ``remember`` is called, both with the uuids of the
    providers that still lack a step. ``rows`` are the uuids of the instance's nodes at the time of
    the plan. ``misses_something``: the driver could not describe all that it has.
    """

    plan: Plan = field(default_factory=Plan)
    live: _Live = field(default_factory=dict)
    new: tuple[Node, ...] = ()
    coming: tuple[ComputeNode, ...] = ()
    judgement: Judgement = field(default_factory=Judgement)
    rows: Set[str] = frozenset()
    remember: Callable[[Set[str]], None] = lambda _unfinished: None
    misses_something: bool = False


class Planner:
    """Makes the plans of one driver instance; writes nothing.

    Plans raise PlacementError, ObjectError, StateError; ``now`` is in seconds since the epoch.
    """

    def __init__(
        self,
        driver: ComputeDriver,
        publisher: Publisher,
        client: PlacementClient,
        policy: RemovalPolicy,
        *,
        context: Context,
        memory: InstanceMemory,
        handover: Handover,
    ) -> None:
        self._driver: Final = driver
        self._publisher: Final = publisher
        self._client: Final = client
        self._reader: Final = PlacementReader(client, publisher.instance)
        self._policy: Final = policy
        self._context: Final = context
        self._memory: Final = memory
        self._handover: Final = handover
        self._unasked: Final = UnaskedTrees(publisher, policy, memory)
        self._settled: Final = SettledTrees()
        #: Whether the roots have the trait of a disabled service; ``_failed`` trees may differ.
        self._was_disabled: bool | None = None
        #: The roots of trees with a failed step: drift cycles try them again.
        self._failed: frozenset[str] = frozenset()

    def plan_listing(
        self, listing: NodeListing, now: float, circumstances: Circumstances
    ) -> Planned:
        """The plan of a complete listing."""
        listing.use_known_uuids(self._memory.records)
        named = self._memory.contested | self._publisher.adopts
        reading = self._reader.read(listing.roots, self._memory.records, named=named)
        circumstances = self._now(circumstances)
        planned = self._plan(listing, reading, now, circumstances, is_listing=True)
        if self._memory.contested <= named:
            return planned
        # A provider that may be adopted stands below a root of ours without our mark: read it, too.
        return self.plan_listing(listing, now, circumstances)

    def plan_drift(
        self,
        listing: NodeListing,
        now: float,
        circumstances: Circumstances,
        changed: NodeListing | None = None,
    ) -> Planned:
        """The plan of what others have changed since the listing was planned.

        The driver is asked of those trees alone, and of the nodes that have ``changed``; nothing is
        gone for it.
        """
        listing.use_known_uuids(self._memory.records)
        if changed is not None:
            changed.use_known_uuids(self._memory.records)
        # A list by our mark lacks the roots of others. That they are there, listings see.
        believed = listing.listed - set(changed.roots.values() if changed else ())
        records, contested = self._memory.records, self._memory.contested
        reading = self._reader.read(listing.roots, records, believed, contested)
        circumstances = self._now(circumstances)
        unasked: tuple[ForeignReservation, ...] = ()
        absent: Set[str] = frozenset()
        every = listing
        if circumstances.disabled == self._was_disabled:
            asked = drifting.unsettled(reading, self._memory.records, circumstances.reservations)
            asked |= set(changed.roots.values()) if changed else set()
            asked |= self._failed & listing.listed
            absent = asked - listing.listed
            listing = drifting.only(listing, asked, reading.live)
            records = circumstances.reservations.with_figures(self._memory.records, reading.live)
            unasked = tuple(drifting.foreign(reading.live, records, set(listing.roots.values())))
        if not listing.nodes and not absent:
            return Planned(Plan(foreign=unasked), reading.live)
        planned = self._plan(
            listing, reading, now, circumstances, absent=absent, asks_all=listing is every
        )
        return replace(planned, plan=Plan.merge([planned.plan, Plan(foreign=unasked)]))

    def plan_changed(
        self, changed: NodeListing, listing: NodeListing, now: float, circumstances: Circumstances
    ) -> Planned:
        """The plan of the nodes that have changed since the listing; nothing is gone for it.

        Made of what is remembered of Placement: who has changed it meanwhile is told when it is
        applied. Where that is not enough, it is the plan of a drift cycle.
        """
        changed.use_known_uuids(self._memory.records)
        planned = self._plan_remembered(changed, listing, now, circumstances)
        return planned or self.plan_drift(listing, now, circumstances, changed)

    def _plan_remembered(
        self, changed: NodeListing, listing: NodeListing, now: float, circumstances: Circumstances
    ) -> Planned | None:
        """A plan that Placement need not be read for; None where it has to be.

        A new node's root may be there already, or what a driver misses in a tree. What became of a
        write is not known where its answer was lost, and those who hold a provider, or publish what
        is overlaid here, write it themselves.
        """
        records = self._memory.records
        live = {uuid: record.live for uuid, record in records.items() if record.live}
        roots = set(changed.roots.values())
        held = circumstances.reservations.by_provider.keys()
        if not live.keys() >= roots or any(
            _has_to_be_read(record)
            or (
                record.root_uuid in roots
                and (record.intended is not None or uuid in held or _is_others_to_write(record))
            )
            for uuid, record in records.items()
        ):
            return None
        if any(shares(provider) for provider in live.values()):
            changed, circumstances = listing, circumstances.seen_by_snapshot(frozenset())
        circumstances = self._with_functions(circumstances)
        planned = self._plan(changed, Reading(live, (), {}), now, circumstances, has_looked=False)
        return None if planned.misses_something else planned

    def _now(self, circumstances: Circumstances) -> Circumstances:
        return self._with_functions(
            circumstances.with_placement_read(
                self._context, self._driver.host, self._publisher.instance
            )
        )

    def _with_functions(self, circumstances: Circumstances) -> Circumstances:
        """The same, with what devices hold as jobs have it now: one may have ended meanwhile."""
        if not self._driver.capabilities.supports("programming"):
            return circumstances
        return replace(circumstances, functions=held_functions.read(self._context))

    def plan_disabled(self) -> Planned:
        """The plan by which all roots say that the service is disabled, and nothing else.

        For a driver that could not be asked; no request is sent where all say so already.
        """
        due = self._unasked.not_disabled()
        if not due:
            return Planned()
        self._settled.forget(due)
        roots = {record.applied.name: uuid for uuid, record in due.items() if record.applied}
        live = self._reader.read(roots, due).live
        return Planned(self._unasked.plan(due.keys(), live, due, disabled=True), live)

    def _plan(
        self,
        listing: NodeListing,
        reading: Reading,
        now: float,
        circumstances: Circumstances,
        *,
        is_listing: bool = False,
        has_looked: bool = True,
        absent: Set[str] = frozenset(),
        asks_all: bool = False,
    ) -> Planned:
        """The plan of these nodes, all or some; ``has_looked`` for their roots by name.

        ``absent`` are the roots of trees that no node is listed of, and that are to be planned too;
        ``asks_all``: these are all nodes that were listed.
        """
        live, memory = reading.live, self._memory
        functions = circumstances.functions
        records = with_claims(
            circumstances.reservations.with_figures(memory.records, live), functions
        )
        answers = ask(
            self._driver,
            listing,
            live,
            records,
            partial(allocations_of, self._client),
            circumstances=circumstances,
            unreadable={**reading.unreadable, **_damaged_trees(memory, live)},
        )
        mark = ownership.instance_trait(self._publisher.instance)
        superseded = answers.set_functions(functions, live, records, mark)
        # What moves is planned where it goes: not without its record.
        answers.failed |= {
            answers.desired[uuid].provider.root_uuid
            for uuid in memory.damaged.keys() & answers.desired.keys()
        }
        new, coming = self._new_nodes(listing, answers, live, circumstances.rows)
        given_away = (
            self._given_away(answers, live, records, circumstances.rows) if is_listing else {}
        )
        forgotten = {
            uuid: None
            for uuid, record in records.items()
            if given_away.get(record.root_uuid or "", False)
        }
        judgement = circumstances.reservations.judge(
            answers.desired,
            is_clean=partial(self._is_clean, answers),
            is_given_back=self._is_given_back,
        )
        held = judgement.held | self._held_with(answers, circumstances)
        inquiry = Inquiry(self._client, self._reader, answers, live)
        looked_up = [name for name, uuid in listing.roots.items() if uuid not in live]
        elsewhere = inquiry.elsewhere(looked_up if has_looked else ())
        if self._publisher.adopts_matching:
            self._memory.contested.update(
                one.uuid
                for one in elsewhere.values()
                if one.uuid not in live and one.root_uuid in live
            )
        due = self._due(answers, live, records, listing.uptime) if is_listing else []
        allocated = inquiry.allocated([*due, *self._changing(answers, live, records)])
        removals = Removals(
            now=now,
            policy=self._policy,
            parents=inquiry.unseen_parents(due),
            is_listing=is_listing,
            children_may_be_elsewhere=bool(answers.problems),
            roots_may_be_elsewhere=listing.has_unknown_nodes(records),
            uptime=listing.uptime,
        )
        tried = {*answers.roots.values(), *absent}
        if is_listing:
            changing = drifting.unsettled(reading, memory.records, circumstances.reservations)
            changing |= {
                live[one.provider_uuid].root_uuid
                for one in judgement.over
                if one.provider_uuid in live
            }
            settled = self._settled.among(answers, live, changing)
            scopes = Scopes(answers, live, records, lambda root: root not in settled)
        else:
            self._settled.forget(tried)
            scopes = Scopes(answers, live, records, tried.__contains__)
        planning = partial(
            scopes.plan,
            self._publisher,
            allocated=allocated,
            held=held,
            elsewhere=elsewhere,
        )
        plan, refused = self._plan_removals(planning, removals, listing, live, records)
        problems = (*answers.problems, *answers.reported, *refused)
        apart = Plan(
            problems=problems,
            pending=tuple(self._orphans(reading)) if is_listing else (),
            records={**_seen_again(listing, answers, records), **forgotten},
        )
        unasked = self._unasked.plan(
            answers.failed - coming.keys() - given_away.keys(),
            live,
            records,
            held=held,
            disabled=bool(circumstances.disabled),
        )

        planned = Plan.merge([apart, plan, unasked])

        def remember(unfinished: Set[str]) -> None:
            failed = planned.roots_of(unfinished)
            if is_listing:
                self._settled.note(answers, live, plan, settled)
                known = live.keys() | records.keys() | answers.desired.keys()
                held_functions.forget(
                    self._context,
                    self._driver.host,
                    self._publisher.instance,
                    functions.keys() - known,
                )
            held_functions.supersede(
                self._context,
                (u for u in superseded if unfinished.isdisjoint((u, *functions[u].parts))),
            )
            if is_listing or asks_all:
                self._was_disabled = circumstances.disabled
            self._failed = failed if is_listing else failed | self._failed - tried

        return Planned(
            planned,
            live,
            new,
            tuple(coming.values()),
            judgement,
            circumstances.rows,
            remember,
            bool(answers.reported),
        )

    def _plan_removals(
        self,
        planning: Callable[[Removals], Plan],
        removals: Removals,
        listing: NodeListing,
        live: _Live,
        records: _Records,
    ) -> tuple[Plan, tuple[WharfingerError, ...]]:
        """Return the plan, and the problems that hold back removals.

        Either too many providers are gone at once, or the listing is partial: the driver is asked
        for each provider that the plan removes, or reserves as absent.
        """
        plan = planning(removals)
        ours = sum(record.is_ours for record in records.values())
        if not self._policy.believes(len(plan.gone), ours):
            instance = self._publisher.instance
            refused = MassRemoval(instance=instance, count=len(plan.gone), total=ours)
            return planning(replace(removals, withheld=True)), (refused,)
        if not plan.gone:
            return plan, ()
        asked = Availability(self._driver, self._client, listing, live, records)
        kept = asked.keep(plan.gone)
        return planning(replace(removals, kept=kept)), asked.problems

    def _new_nodes(
        self, listing: NodeListing, answers: Answers, live: _Live, rows: Set[str]
    ) -> tuple[tuple[Node, ...], dict[str, ComputeNode]]:
        """Nodes to be published that have no rows yet, and rows of those that come from others.

        Those, and what others have, are not planned now.
        """
        new = {
            uuid: node.under(uuid)
            for node in listing.nodes
            if (uuid := answers.roots.get(node.name)) is not None
            and uuid not in rows
            and uuid not in answers.failed
            and (wanted := answers.desired.get(uuid)) is not None
            and wanted.stated
            and wanted.mode is PublishingMode.OWN
        }
        mark = ownership.instance_trait(self._publisher.instance)
        there = new.keys() & live.keys()
        others = self._handover.judge(
            new,
            marked={uuid for uuid in there if mark in live[uuid].traits},
            adoptable={
                uuid
                for uuid in there
                if ownership.adopts(self._publisher, live[uuid], answers.desired[uuid])
            },
            named=self._publisher.adopts,
        )
        for uuid, problem in others.taken.items():
            answers.problems.append(problem)
            answers.fail(uuid, live)
        coming = {row.uuid: row for row in others.free}
        for uuid in coming:
            answers.fail(uuid, live)
        return tuple(new[uuid] for uuid in new.keys() - answers.failed), coming

    def _given_away(
        self, answers: Answers, live: _Live, records: _Records, rows: Set[str]
    ) -> Mapping[str, bool]:
        """The roots of trees that another host has taken over, and whether to forget those.

        They are that host's to publish and to remove, and left out here. What is remembered of them
        stays until that host remembers it, too.
        """
        absent = {
            uuid
            for uuid, record in records.items()
            if record.is_ours
            and record.mode is PublishingMode.OWN
            and record.root_uuid == uuid
            and uuid not in answers.desired
            and uuid not in answers.failed
            and uuid not in rows
        }
        roots = self._handover.given_away(absent)
        for uuid, is_over in sorted(roots.items()):
            if is_over:
                LOG.info("node %s is another host's now, and forgotten here", uuid)
            answers.fail(uuid, live)
        return roots

    def _orphans(self, reading: Reading) -> Iterator[PendingRemoval]:
        """What has our mark, but is not of a node that a namesake on another host has."""
        elsewhere = self._handover.elsewhere() if reading.strangers else ()
        for one in reading.strangers:
            if one.root_provider_uuid not in elsewhere:
                yield orphan(one.uuid, one.name)

    def _held_with(self, answers: Answers, circumstances: Circumstances) -> Set[str]:
        """The providers that are programmed with others which a job holds.

        Parts of a device that have come since the job began, and are none of its own.
        """
        found: set[str] = set()
        for uuid, rows in circumstances.reservations.by_provider.items():
            if uuid not in answers.desired or not any(map(_is_of_job, rows)):
                continue
            scope = partial(self._driver.programming_scope, uuid)
            try:
                found.update(guarded(self._driver.name, "programming_scope", scope))
            except WharfingerError as error:
                LOG.debug("what is programmed with %s is not known: %s", uuid, error)
        return found & answers.desired.keys()

    def _is_clean(self, answers: Answers, uuid: str, since: datetime) -> bool:
        """Return the driver's answer; a failure is a problem of this provider alone."""
        driver, operation = self._driver, f"is_clean({uuid})"
        try:
            return guarded_bool(driver.name, operation, lambda: driver.is_clean(uuid, since))
        except WharfingerError as error:
            answers.problems.append(error)
            return False

    def _is_given_back(self, uuid: str, consumer: str) -> bool:
        return uuid not in self._client.get_allocations(consumer)["allocations"]

    def _due(
        self, answers: Answers, live: _Live, records: _Records, now: Uptime | None
    ) -> list[str]:
        """The uuids of what is due to be removed."""
        return [
            uuid
            for uuid, record in records.items()
            if self._policy.is_due(record, now)
            and uuid in live
            and uuid not in answers.desired
            and live[uuid].root_uuid not in answers.failed
        ]

    def _changing(self, answers: Answers, live: _Live, records: _Records) -> list[str]:
        """The uuids of what this instance published under another owner."""
        return [
            uuid
            for uuid, record in records.items()
            if uuid in answers.desired
            and uuid in live
            and self._publisher.owner not in live[uuid].traits
            and ownership.standing(live[uuid], self._publisher, record) is Standing.OURS_BEFORE
        ]


def _is_others_to_write(record: Record) -> bool:
    return record.is_ours and record.mode is PublishingMode.OVERLAY


def _is_of_job(held: Reservation) -> bool:
    return "holder" in held and held.holder == JOB_HOLDER


def _has_to_be_read(record: Record) -> bool:
    """Whether a provider may be there, or is as a reshape has left it, and was not read since."""
    return record.is_ours and (record.live is None or record.live.generation is None)


def _damaged_trees(memory: InstanceMemory, live: _Live) -> dict[str, WharfingerError]:
    """By root uuid, the trees with a provider whose record cannot be read, and why."""
    return {
        live[uuid].root_uuid if uuid in live else uuid: error
        for uuid, error in memory.damaged.items()
    }


def _seen_again(
    listing: NodeListing, answers: Answers, records: _Records
) -> dict[str, Record | None]:
    """Records of nodes that were absent and are listed, though no more is known of them."""
    return {
        node.uuid: replace(records[node.uuid], absence=None)
        for node in (*listing.nodes, *listing.failed)
        if node.uuid in answers.failed
        and node.uuid in records
        and records[node.uuid].absent_since is not None
    }
