"""Take over nodes from other hosts and driver instances."""

from collections.abc import Collection, Iterable, Mapping, Set
from dataclasses import replace
from datetime import timedelta
from typing import Final

from oslo_log import log as logging

from wharfinger.exceptions import ChangedMeanwhile, NodeTaken, WharfingerError
from wharfinger.objects import (
    AGENT_BINARY,
    ComputeNode,
    ComputeNodeList,
    ProviderRecord,
    ProviderRecordList,
    ServiceList,
    Takeover,
)
from wharfinger.placement.model import ProviderSummary
from wharfinger.providers import Provider, PublishingMode, ownership
from wharfinger.providers.provider import Record
from wharfinger.reconcile.cycle_state import CycleState
from wharfinger.reconcile.record_store import RecordStore, read_record

LOG: Final = logging.getLogger(__name__)
#: A host and the uuid of a root.
_Place = tuple[str, str]


class Takeovers:
    """Takes nodes over for one driver instance on one host.

    A host that has not reported for ``down_time`` is down.
    """

    def __init__(self, store: RecordStore, down_time: timedelta) -> None:
        self._store: Final = store
        self._context: Final = store.context
        self._host: Final = store.host
        self._instance: Final = store.instance
        self._down_time: Final = down_time

    def find(self, state: CycleState) -> CycleState:
        """Block the trees that other hosts or driver instances publish; return the new state.

        It also has the nodes and roots that can be taken over, and new nodes without a row.
        """
        # Block the tree to which a provider with a damaged record belongs or moves.
        damaged = self._store.damaged.keys() & state.desired.keys()
        state = state.block({state.desired[uuid].provider.root_uuid for uuid in damaged})
        new = [
            uuid
            for uuid in state.roots.values()
            if uuid not in state.rows.node_revisions
            and uuid not in state.blocked
            and (wanted := state.stated(uuid))
            and wanted.mode is PublishingMode.OWN
        ]
        state = self._find_below(self._find_nodes(state, new))
        if state.is_listing:
            released = self._released(state)
            strays = self._without_record(state.strays)
            state = replace(state.block(released), released_roots=released, strays=strays)
        return replace(state, new_nodes=tuple(uuid for uuid in new if uuid not in state.blocked))

    def take_each(
        self, rows: Mapping[str, ComputeNode | None], live: Mapping[str, Provider]
    ) -> dict[str, WharfingerError]:
        """Take over nodes, and records below roots without a row; return errors by root uuid."""
        errors: dict[str, WharfingerError] = {}
        try:
            self._take(rows, live)
        except ChangedMeanwhile as error:
            if len(rows) == 1:
                return dict.fromkeys(rows, error)
            uuids, middle = list(rows), len(rows) // 2
            for half in (uuids[:middle], uuids[middle:]):
                errors |= self.take_each({uuid: rows[uuid] for uuid in half}, live)
        return errors

    def _find_nodes(self, state: CycleState, new: Iterable[str]) -> CycleState:
        others = list(self._others(new))
        if not others:
            return state
        records = self._records({row.uuid for row in others})
        listed = self._of_hosts_up({(row.host, row.uuid) for row in others} - self._absent(records))
        used = {
            one.provider_uuid
            for one in records
            if one.driver_instance != self._instance
            and (
                _has(one, "intended")
                or (_has(one, "applied") and one.provider_uuid not in state.publisher.adopts)
            )
        }

        def is_free(row: ComputeNode) -> bool:
            if row.driver_instance == self._instance:
                return (row.host, row.uuid) not in listed
            live = state.live.get(row.uuid)
            return live is not None and (
                ownership.instance_trait(self._instance) in live.traits
                or (
                    row.uuid not in used
                    and ownership.adopts(state.publisher, live, state.desired[row.uuid])
                )
            )

        free = {row.uuid: row for row in others if is_free(row)}
        held = {row.uuid: row for row in others if row.uuid not in free}
        # Another host may have taken a node since. Then the error has to name that host.
        held |= {row.uuid: row for row in self._others(held)}
        errors = [
            self._taken(row.hypervisor_hostname, uuid, row.driver_instance, row.host)
            for uuid, row in held.items()
        ]
        return replace(state.block(free.keys() | held.keys(), *errors), takeovers=free)

    def _find_below(self, state: CycleState) -> CycleState:
        # Roots of other programs, with their names, whose children another host may have published:
        # they have our trait or our intent, and no record shows that this host has written them.
        trait = ownership.instance_trait(self._instance)
        roots = {
            live.root_uuid
            for uuid, live in state.live.items()
            if (record := state.record(uuid)).applied is None
            and (record.intended or trait in live.traits)
        }
        roots -= state.blocked
        names = {
            uuid: name
            for name, uuid in state.roots.items()
            if uuid in roots
            and (root := state.desired.get(uuid))
            and (root.mode is PublishingMode.OVERLAY or not root.stated)
            and not state.record(uuid).is_own
        }
        places, listed = self._below(names, state.live)
        taken = {
            root: self._taken(names[root], root, self._instance, host)
            for host, root in sorted(self._of_hosts_up(listed), reverse=True)
        }
        free = {root for _host, root in places} - taken.keys()
        state = state.block(free | taken.keys(), *taken.values())
        return replace(state, takeovers={**state.takeovers, **dict.fromkeys(free)})

    def _released(self, state: CycleState) -> frozenset[str]:
        # Our records of providers that our driver does not report, by root. A repair may leave the
        # record of a child without that of its root.
        known = state.desired.keys() | state.blocked | state.rows.node_revisions.keys()
        trees: dict[str, dict[str, Record]] = {}
        for uuid, record in state.records.items():
            if record.is_ours and record.root_uuid and record.root_uuid not in known:
                trees.setdefault(record.root_uuid, {})[uuid] = record
        nodes = {
            row.uuid
            for row in self._others(trees)
            if row.driver_instance == self._instance or self._store.get(row.uuid).is_own
        }
        absent = {
            root: records.keys()
            for root, records in trees.items()
            if not _is_node(self._store.get(root)) and all(map(_can_be_deleted, records.values()))
        }
        listed = {
            (one.host, one.provider_uuid)
            for one in self._elsewhere(frozenset().union(*absent.values()))
            if _shows_publishing(one) and one.known("absent_since") is None
        }
        published = {uuid for _host, uuid in self._of_hosts_up(listed)}
        # Below a root of another program, hosts that are up must list all of our providers.
        found = nodes | {root for root, uuids in absent.items() if uuids <= published}
        for uuid in sorted(found):
            LOG.info(
                "another host or driver instance publishes node %s now, so this driver instance "
                "deletes its own records of the node",
                uuid,
            )
        return frozenset(found)

    def _without_record(self, strays: tuple[ProviderSummary, ...]) -> tuple[ProviderSummary, ...]:
        if not strays:
            return ()
        # An instance of this name on another host may publish them, in overlay mode without a row.
        nodes = ComputeNodeList.get_revisions(self._context, None, self._instance)
        left = [one for one in strays if one.root_provider_uuid not in nodes]
        records = self._elsewhere([one.uuid for one in left])
        recorded = {one.provider_uuid for one in records if _shows_publishing(one)}
        return tuple(one for one in left if one.uuid not in recorded)

    def _take(self, rows: Mapping[str, ComputeNode | None], live: Mapping[str, Provider]) -> None:
        # Roots without a row are overlaid: only the records in their trees move.
        nodes = [row for row in rows.values() if row is not None]
        overlaid = {uuid for uuid, row in rows.items() if row is None}
        of_nodes = {(row.host, row.uuid) for row in nodes if row.driver_instance == self._instance}
        below, listed = self._below(overlaid, live)
        places = of_nodes | below
        found = [
            one
            for host in sorted({host for host, _root in places})
            for one in ProviderRecordList.get_by_filters(
                self._context, host=host, driver_instance=self._instance
            )
        ]
        records = [one for one in found if (one.host, _root_of(one, live)) in places]
        if not (nodes or records):
            return
        # The rows have their former host until they are saved.
        taken = [
            ("node", row.hypervisor_hostname, row.uuid, row.driver_instance, row.host)
            for row in nodes
        ]
        for host, uuid in sorted(below):
            name = live[uuid].name if uuid in live else uuid
            taken.append(("the providers below root", name, uuid, self._instance, host))
        listed |= of_nodes - self._absent(found)
        roots, moved = rows.keys() - overlaid, {one.provider_uuid for one in records}
        Takeover(
            self._context,
            host=self._host,
            driver_instance=self._instance,
            nodes=nodes,
            records=records,
            superseded={
                uuid: revision
                for uuid, revision in self._store.revisions.items()
                if uuid in moved or self._store.get(uuid).root_uuid in roots
            },
            down_hosts=sorted({host for host, _root in listed}),
            down_time=self._down_time.total_seconds(),
        ).save()
        for one in taken:
            LOG.warning(
                "this host has taken over %s %s (%s) from driver instance %s on host %s: the host "
                "is down, the instance no longer lists the node, or the node no longer has the "
                "trait of the instance.",
                *one,
            )

    def _taken(self, node: str, uuid: str, other: str, host: str) -> NodeTaken:
        if other == self._instance:
            remedy = (
                "Configure only one of the two hosts to list the node. This host takes the node "
                f"over when {host} no longer lists the node, or when the service of {host} is down."
            )
        else:
            remedy = (
                "Configure only one of the two driver instances to list the node. If "
                f"{self._instance} is the new name of {other}, replace the trait of driver "
                f"instance {other} ({ownership.instance_trait(other)}) on its providers by "
                f"{ownership.instance_trait(self._instance)}."
            )
        return NodeTaken(
            node=node, uuid=uuid, instance=self._instance, other=other, host=host, remedy=remedy
        )

    def _others(self, uuids: Iterable[str]) -> Iterable[ComputeNode]:
        wanted = sorted(uuids)
        known = ("uuid", "host", "driver_instance", "hypervisor_hostname", "revision")
        for row in ComputeNodeList.get_by_filters(self._context, uuid=wanted) if wanted else ():
            if all(name in row for name in known) and (row.host, row.driver_instance) != (
                self._host,
                self._instance,
            ):
                yield row

    def _records(self, uuids: Collection[str]) -> list[ProviderRecord]:
        found = (
            ProviderRecordList.get_by_filters(self._context, provider_uuid=sorted(uuids))
            if uuids
            else ()
        )
        return [one for one in found if "provider_uuid" in one and "driver_instance" in one]

    def _elsewhere(self, uuids: Collection[str]) -> list[ProviderRecord]:
        return self._of_namesakes(self._records(uuids))

    def _of_namesakes(self, records: Iterable[ProviderRecord]) -> list[ProviderRecord]:
        return [
            one
            for one in records
            if one.driver_instance == self._instance and one.known("host") not in (None, self._host)
        ]

    def _below(
        self, roots: Collection[str], live: Mapping[str, Provider]
    ) -> tuple[set[_Place], set[_Place]]:
        # Return the other hosts that have published children of these roots, and those that still
        # list a child. A host may have no record of the roots themselves.
        if not roots:
            return set(), set()
        trait = ownership.instance_trait(self._instance)
        children = [
            uuid
            for uuid, one in live.items()
            if one.root_uuid in roots
            and uuid not in roots
            and (trait in one.traits or self._store.get(uuid).intended)
        ]
        places: set[_Place] = set()
        listed: set[_Place] = set()
        for one in self._elsewhere(children):
            root = _root_of(one, live)
            if root is not None and root in roots and _shows_publishing(one):
                places.add((one.host, root))
                if one.known("absent_since") is None:
                    listed.add((one.host, root))
        return places, listed

    def _of_hosts_up(self, places: Set[_Place]) -> set[_Place]:
        if not places:
            return set()
        found = ServiceList.get_by_filters(
            self._context, host=sorted({host for host, _root in places}), binary=AGENT_BINARY
        )
        up = {one.host for one in found if one.may_be_up(self._down_time)}
        return {place for place in places if place[0] in up}

    def _absent(self, records: Iterable[ProviderRecord]) -> set[_Place]:
        return {
            (one.host, one.known("provider_uuid"))
            for one in self._of_namesakes(records)
            if one.known("absent_since") is not None
        }


def _root_of(one: ProviderRecord, live: Mapping[str, Provider]) -> str | None:
    if record := read_record(one):
        return record.root_uuid
    provider = live.get(one.known("provider_uuid"))
    # Without its revision, the record cannot move; that of an overlaid provider names a node.
    is_movable = "revision" in one and one.known("mode") != "overlay"
    return provider.root_uuid if provider and is_movable else None


def _is_node(root: Record) -> bool:
    # A detached child is a root, too, and another host may publish the node to which it belongs.
    ours = root.applied or root.intended
    return root.is_own and ours is not None and ours.parent_uuid is None


def _can_be_deleted(record: Record) -> bool:
    # Two hosts must not delete their records at the same time, so ours first shows the absence.
    # Only our record shows the reservations of our driver.
    return not record.is_own or (record.absence is not None and not record.reservations)


def _shows_publishing(record: ProviderRecord) -> bool:
    return _has(record, "applied") or _has(record, "intended")


def _has(record: ProviderRecord, field: str) -> bool:
    # A value that cannot be read counts.
    return field not in record or getattr(record, field) is not None
