"""The plan of a cycle: what the driver says, what Placement has, what is remembered."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from wharfinger.driver import Allocations, ComputeDriver
from wharfinger.exceptions import (
    MassRemoval,
    NotFound,
    PermissionRefused,
    PlacementError,
    PlacementUnavailable,
    WharfingerError,
)
from wharfinger.placement.client import PlacementClient
from wharfinger.placement.reader import FEW, PlacementReader
from wharfinger.providers import DesiredProvider, Provider, ownership
from wharfinger.providers.diff import plan_trees
from wharfinger.providers.ownership import Publisher, Standing
from wharfinger.providers.plan import Plan
from wharfinger.providers.record import Record
from wharfinger.providers.removal import RemovalPolicy, Removals, orphan
from wharfinger.tracker.compute_status import as_it_is, says_disabled
from wharfinger.tracker.desired import Answers, NodeListing, ask
from wharfinger.tracker.memory import InstanceMemory

_Live = Mapping[str, Provider]
_Records = Mapping[str, Record]


class Planner:
    """Makes the plans of one driver instance; writes nothing."""

    def __init__(
        self,
        driver: ComputeDriver,
        publisher: Publisher,
        client: PlacementClient,
        policy: RemovalPolicy,
    ) -> None:
        self._driver: Final = driver
        self._publisher: Final = publisher
        self._client: Final = client
        self._reader: Final = PlacementReader(client, publisher.instance)
        self._policy: Final = policy

    def plan(
        self,
        listing: NodeListing,
        memory: InstanceMemory,
        now: float,
        *,
        disabled: bool | None = False,
    ) -> tuple[Plan, _Live]:
        """The plan, and what Placement has, of which it was made.

        ``now`` in seconds since the epoch; ``disabled`` as ``ask`` takes it. Raises
        PlacementError.
        """
        records = memory.records
        listing.use_known_uuids(records)
        roots = {node.name: node.uuid for node in (*listing.nodes, *listing.failed)}
        reading = self._reader.read(roots, records)
        live = reading.live
        answers = ask(
            self._driver,
            listing,
            live,
            records,
            self._allocations_of,
            disabled=disabled,
            unreadable={**reading.unreadable, **_damaged_trees(memory, live)},
        )
        # What moves is planned where it goes: not without its record.
        answers.failed |= {
            answers.desired[uuid].provider.root_uuid
            for uuid in memory.damaged.keys() & answers.desired.keys()
        }
        elsewhere = self._elsewhere(answers, live, roots)
        due = self._due(answers, live, records, now)
        allocated = self._allocated([*due, *self._changing(answers, live, records)], answers, live)
        removals = Removals(
            now=now,
            policy=self._policy,
            parents=self._unseen_parents(due, answers, live),
            children_may_be_elsewhere=bool(answers.problems),
            roots_may_be_elsewhere=listing.has_unknown_nodes(records),
        )
        planning = partial(
            _plan_scopes,
            self._publisher,
            list(_scopes(answers, live, records)),
            allocated=allocated,
            elsewhere=elsewhere,
        )
        plan = planning(removals)
        ours = sum(record.is_ours for record in records.values())
        problems = tuple(answers.problems)
        if not self._policy.believes(len(plan.gone), ours):
            instance = self._publisher.instance
            problems += (MassRemoval(instance=instance, count=len(plan.gone), total=ours),)
            plan = planning(replace(removals, withheld=True))
        apart = Plan(
            problems=problems,
            pending=tuple(orphan(one.uuid, one.name) for one in reading.strangers),
            records=_seen_again(listing, answers, records),
        )
        unasked = answers.failed if disabled else ()
        return Plan.merge([apart, plan, self._disabled(unasked, live, memory)]), live

    def plan_disabled(self, memory: InstanceMemory) -> tuple[Plan, _Live]:
        """The plan by which all roots say that the service is disabled, and nothing else.

        For a driver that could not be asked; no request is sent where all say so already. Raises
        PlacementError.
        """
        due = {
            uuid: record
            for uuid, record in memory.records.items()
            if record.applied
            and record.applied.parent_uuid is None
            and not says_disabled(record)
            and _is_settled(uuid, record, memory)
        }
        if not due:
            return Plan(), {}
        roots = {record.applied.name: uuid for uuid, record in due.items() if record.applied}
        live = self._reader.read(roots, due).live
        return self._disabled(due, live, memory), live

    def _disabled(self, roots: Iterable[str], live: _Live, memory: InstanceMemory) -> Plan:
        """The plan by which these roots, of which no more is known, say that; others are as is."""
        records = {
            uuid: record
            for uuid in roots
            if uuid in live
            and (record := memory.records.get(uuid)) is not None
            and _is_settled(uuid, record, memory)
        }
        return plan_trees(
            self._publisher,
            [as_it_is(live[uuid], record) for uuid, record in records.items()],
            {uuid: live[uuid] for uuid in records},
            records,
            removals=Removals(now=0.0, policy=self._policy, withheld=True),
        )

    def _due(self, answers: Answers, live: _Live, records: _Records, now: float) -> list[str]:
        """The uuids of what is due to be removed."""
        return [
            uuid
            for uuid, record in records.items()
            if self._policy.is_due(record, now)
            and uuid in live
            and uuid not in answers.desired
            and live[uuid].root_uuid not in answers.failed
        ]

    def _unseen_parents(self, due: Iterable[str], answers: Answers, live: _Live) -> frozenset[str]:
        """Of the trees in which something is due, what has children that were not listed."""
        found: frozenset[str] = frozenset()
        for root in sorted({live[uuid].root_uuid for uuid in due}):
            with _confined(answers, root):
                found |= self._reader.unseen_parents(root, live.keys())
        return found

    def _allocated(self, uuids: Iterable[str], answers: Answers, live: _Live) -> frozenset[str]:
        """Those of the providers that have allocations."""
        found: set[str] = set()
        for uuid in uuids:
            with _confined(answers, live[uuid].root_uuid):
                if self._client.get_provider_allocations(uuid):
                    found.add(uuid)
        return frozenset(found)

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

    def _elsewhere(
        self, answers: Answers, live: _Live, roots: Mapping[str, str]
    ) -> dict[str, Provider]:
        """Other providers that have the names of what is to be created or renamed."""
        new = {
            wanted.provider.name: wanted.provider.root_uuid
            for uuid, wanted in answers.desired.items()
            if wanted.stated and (uuid not in live or live[uuid].name != wanted.provider.name)
        }
        if not new:
            return {}
        here = {provider.name: provider for provider in live.values()}
        # Roots that are not there have been looked up by name, and what had it was read.
        looked_up = {name for name, uuid in roots.items() if uuid not in live}
        unknown = new.keys() - looked_up - here.keys()
        found = {name: here[name] for name in new.keys() & here.keys()}
        if len(unknown) > FEW:
            return found | self._reader.elsewhere(unknown)
        for name in sorted(unknown):
            with _confined(answers, new[name]):
                found |= self._reader.elsewhere([name])
        return found

    def _allocations_of(self, uuids: Iterable[str]) -> Allocations:
        consumers = {
            consumer for uuid in uuids for consumer in self._client.get_provider_allocations(uuid)
        }
        allocations = {
            consumer: _without_generations(self._client.get_allocations(consumer))
            for consumer in sorted(consumers)
        }
        # One that has gone since has none, and no generation.
        return {consumer: its for consumer, its in allocations.items() if its["allocations"]}


def _is_settled(uuid: str, record: Record, memory: InstanceMemory) -> bool:
    """Whether a root can be written though no more is known of it: it is ours, and not absent."""
    return record.applied is not None and record.absent_since is None and uuid not in memory.damaged


@contextmanager
def _confined(answers: Answers, root_uuid: str) -> Iterator[None]:
    """Have a look-up that fails leave its tree as it is, and the others go on."""
    try:
        yield
    except (PlacementUnavailable, PermissionRefused, NotFound):
        raise  # the next would fare no better; or somebody deleted it: all is read again
    except PlacementError as error:
        answers.failed.add(root_uuid)
        answers.problems.append(error)


def _without_generations(allocations: Mapping[str, Any]) -> dict[str, Any]:
    """A consumer's allocations as they are sent: the providers' generations are not."""
    amounts = {
        uuid: {"resources": part["resources"]} for uuid, part in allocations["allocations"].items()
    }
    return {**allocations, "allocations": amounts}


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
        node.uuid: replace(records[node.uuid], absent_since=None)
        for node in (*listing.nodes, *listing.failed)
        if node.uuid in answers.failed
        and node.uuid in records
        and records[node.uuid].absent_since is not None
    }


@dataclass(frozen=True, slots=True)
class _Scope:
    """Trees that are planned together; ``reshape`` as ``plan_trees`` takes it."""

    reshape: tuple[Allocations, Allocations] | None
    desired: list[DesiredProvider]
    live: dict[str, Provider]
    records: dict[str, Record]


def _scopes(answers: Answers, live: _Live, records: _Records) -> Iterable[_Scope]:
    """The trees to plan: each that is reshaped alone, and all the others together.

    Those of which nothing is known are left out: they stay as they are.
    """
    together = _Scope(None, [], {}, {})
    alone = {root: _Scope(reshape, [], {}, {}) for root, reshape in answers.reshapes.items()}

    def known(root: str | None) -> Iterator[_Scope]:
        if root not in answers.failed:
            yield alone.get(root or "", together)

    for wanted in answers.desired.values():
        for scope in known(wanted.provider.root_uuid):
            scope.desired.append(wanted)

    def root_of(uuid: str) -> str | None:
        # What moves from one tree to another is planned where it goes.
        if uuid in answers.desired:
            return answers.desired[uuid].provider.root_uuid
        return live[uuid].root_uuid if uuid in live else records[uuid].root_uuid

    for uuid, provider in live.items():
        for scope in known(root_of(uuid)):
            scope.live[uuid] = provider
    for uuid, record in records.items():
        for scope in known(root_of(uuid)):
            scope.records[uuid] = record
    return [together, *alone.values()]


def _plan_scopes(
    publisher: Publisher,
    scopes: Iterable[_Scope],
    removals: Removals,
    *,
    allocated: frozenset[str],
    elsewhere: Mapping[str, Provider],
) -> Plan:
    return Plan.merge(
        plan_trees(
            publisher,
            scope.desired,
            scope.live,
            scope.records,
            removals=removals,
            allocated=allocated,
            elsewhere=elsewhere,
            reshape=scope.reshape,
        )
        for scope in scopes
    )
