"""Take over nodes from other hosts and driver instances."""

from collections.abc import Callable, Collection, Container, Iterable, Mapping, Set
from datetime import timedelta
from functools import partial
from types import MappingProxyType
from typing import Final, TypeVar

from oslo_log import log as logging

from wharfinger.exceptions import (
    ConcurrentSave,
    NodeTaken,
    ObjectExists,
    ObjectNotFound,
    WharfingerError,
)
from wharfinger.objects import (
    AGENT_BINARY,
    ComputeNode,
    ComputeNodeList,
    ProviderRecord,
    ProviderRecordList,
    ServiceList,
    Takeover,
)
from wharfinger.providers import Provider, ownership
from wharfinger.reconcile.cycle_state import CycleState
from wharfinger.reconcile.record_store import RecordStore, read_record

LOG: Final = logging.getLogger(__name__)
_Item = TypeVar("_Item")


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

    def find(
        self, state: CycleState, uuids: Iterable[str]
    ) -> tuple[list[ComputeNode], dict[str, NodeTaken]]:
        """Return nodes that can be taken over, and errors for nodes that cannot, by uuid."""
        others = list(self._others(uuids))
        if not others:
            return [], {}
        absent = self._absent(others)
        claimed = self._used_by_others(others, state.publisher.adopts)
        up = self._hosts_up(others)

        def is_free(row: ComputeNode) -> bool:
            if row.driver_instance == self._instance:
                return row.uuid in absent or row.host not in up
            live = state.live.get(row.uuid)
            return live is not None and (
                ownership.instance_trait(self._instance) in live.traits
                or (
                    row.uuid not in claimed
                    and ownership.adopts(state.publisher, live, state.desired[row.uuid])
                )
            )

        free = [row for row in others if is_free(row)]
        held = {row.uuid: row for row in others if not is_free(row)}
        # Another host may have taken a node since. Then the error has to name that host.
        held |= {row.uuid: row for row in self._others(held)}
        return free, {
            uuid: self._taken(row.hypervisor_hostname, uuid, row.driver_instance, row.host)
            for uuid, row in held.items()
        }

    def find_below(
        self, orphans: Mapping[str, Set[str]], root_names: Mapping[str, str]
    ) -> tuple[Set[str], dict[str, NodeTaken]]:
        """Return uuids of roots below which this host can take over records, and errors by root."""
        root_of = {uuid: root for root, uuids in orphans.items() for uuid in (root, *uuids)}
        records = [one for one in self._records(root_of) if one.host != self._host]
        if not records:
            return frozenset(), {}
        absent = {(one.host, one.provider_uuid) for one in records if _is_absent(one)}
        up = self._hosts_up(records)
        hosts: dict[str, set[str]] = {}
        for one in records:
            if one.provider_uuid not in orphans:
                hosts.setdefault(root_of[one.provider_uuid], set()).add(one.host)
        taken = {
            root: self._taken(root_names[root], root, self._instance, min(holders))
            for root, theirs in hosts.items()
            if (holders := {one for one in theirs & up if (one, root) not in absent})
        }
        return hosts.keys() - taken.keys(), taken

    def take_each(self, state: CycleState) -> dict[str, WharfingerError]:
        """Take over nodes, and records below overlaid roots; return errors by root uuid."""
        rows = {row.uuid: row for row in state.takeovers}
        roots = {root: root for root in sorted(state.overlaid_takeovers)}
        return {
            **_errors_of(partial(self.take, live=state.live), rows),
            **_errors_of(self.take_below, roots),
        }

    def take_below(self, roots: Collection[str]) -> None:
        """Move the instance's records in these trees to this host, in one transaction.

        Raises ConcurrentSave.
        """
        formerly = {one.host for one in self._records(roots)} - {self._host}
        records = [one for host in sorted(formerly) for one in self._trees_of(host, roots)]
        if not records:
            return
        absent = {one.host for one in records if one.provider_uuid in roots and _is_absent(one)}
        hosts = {one.host for one in records}
        self._move((), records, hosts - absent)
        LOG.warning(
            "this host has taken over the records of the providers below root %s from driver "
            "instance %s on host %s: the host is down, or no longer lists these providers.",
            ", ".join(sorted(roots)),
            self._instance,
            ", ".join(sorted(hosts)),
        )

    def released(self, uuids: Iterable[str]) -> frozenset[str]:
        """Return those of our nodes that another host or driver instance has taken over."""
        return frozenset(
            row.uuid
            for row in self._others(uuids)
            if row.driver_instance == self._instance or self._store.get(row.uuid).is_own
        )

    def take(self, rows: Collection[ComputeNode], live: Mapping[str, Provider]) -> None:
        """Move nodes to this driver instance, in one transaction. Raises ConcurrentSave."""
        former = {row.uuid: (row.host, row.driver_instance) for row in rows}
        namesakes = [row for row in rows if row.driver_instance == self._instance]
        absent = self._absent(namesakes)
        down = {row.host for row in namesakes if row.uuid not in absent}
        records = [
            one
            for host in sorted({row.host for row in namesakes})
            for one in self._trees_of(
                host, {row.uuid for row in namesakes if row.host == host}, live
            )
        ]
        self._move(rows, records, down)
        for row in rows:
            host, instance = former[row.uuid]
            LOG.warning(
                "this host has taken over node %s (%s) from driver instance %s on host %s: the "
                "host is down, the instance no longer lists the node, or the node no longer has "
                "the trait of the instance.",
                row.hypervisor_hostname,
                row.uuid,
                instance,
                host,
            )

    def _move(
        self,
        rows: Collection[ComputeNode],
        records: Collection[ProviderRecord],
        down_hosts: Collection[str],
    ) -> None:
        ours = self._store.revisions
        coming = {one.provider_uuid for one in records}
        roots = {row.uuid for row in rows}
        gone_with_rows = {
            uuid for uuid, record in self._store.records.items() if record.root_uuid in roots
        }
        Takeover(
            self._context,
            host=self._host,
            driver_instance=self._instance,
            nodes=list(rows),
            records=list(records),
            superseded={uuid: ours[uuid] for uuid in (coming | gone_with_rows) & ours.keys()},
            down_hosts=sorted(down_hosts),
            down_time=self._down_time.total_seconds(),
        ).save()

    def _trees_of(
        self, host: str, roots: Container[str], live: Mapping[str, Provider] = MappingProxyType({})
    ) -> list[ProviderRecord]:
        found = ProviderRecordList.get_by_filters(
            self._context, host=host, driver_instance=self._instance
        )
        return [one for one in found if _root_of(one, live) in roots]

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

    def _used_by_others(self, rows: Iterable[ComputeNode], named: Container[str]) -> frozenset[str]:
        records = ProviderRecordList.get_by_filters(
            self._context, provider_uuid=sorted({row.uuid for row in rows})
        )
        return frozenset(
            one.provider_uuid
            for one in records
            if all(name in one for name in ("provider_uuid", "driver_instance"))
            and one.driver_instance != self._instance
            and (_has(one, "intended") or (_has(one, "applied") and one.provider_uuid not in named))
        )

    def _absent(self, rows: Iterable[ComputeNode]) -> set[str]:
        hosts = {row.uuid: row.host for row in rows}
        return {
            one.provider_uuid
            for one in self._records(hosts)
            if one.host == hosts[one.provider_uuid] and _is_absent(one)
        }

    def _records(self, uuids: Collection[str]) -> list[ProviderRecord]:
        if not uuids:
            return []
        found = ProviderRecordList.get_by_filters(
            self._context, driver_instance=self._instance, provider_uuid=sorted(uuids)
        )
        return [one for one in found if "provider_uuid" in one and "host" in one]

    def _hosts_up(self, rows: Iterable[ComputeNode | ProviderRecord]) -> frozenset[str]:
        found = ServiceList.get_by_filters(
            self._context, host=sorted({row.host for row in rows}), binary=AGENT_BINARY
        )
        return frozenset(one.host for one in found if one.may_be_up(self._down_time))


def _errors_of(
    move: Callable[[Collection[_Item]], object], items: Mapping[str, _Item]
) -> dict[str, WharfingerError]:
    try:
        if items:
            move(items.values())
    except (ConcurrentSave, ObjectExists, ObjectNotFound) as error:
        if len(items) == 1:
            return dict.fromkeys(items, error)
        alone = (_errors_of(move, {uuid: item}) for uuid, item in items.items())
        return {uuid: failure for errors in alone for uuid, failure in errors.items()}
    return {}


def _root_of(one: ProviderRecord, live: Mapping[str, Provider]) -> str | None:
    if record := read_record(one):
        return record.root_uuid
    provider = live.get(one.known("provider_uuid"))
    # Without its revision, the record cannot move; that of an overlaid provider names a node.
    is_movable = "revision" in one and one.known("mode") != "overlay"
    return provider.root_uuid if provider and is_movable else None


def _is_absent(record: ProviderRecord) -> bool:
    return record.known("absent_since") is not None


def _has(record: ProviderRecord, field: str) -> bool:
    # A value that cannot be read counts.
    return field not in record or getattr(record, field) is not None
