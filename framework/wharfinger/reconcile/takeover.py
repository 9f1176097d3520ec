"""Nodes that another host, or another driver instance, has a row of: whose they are.

A node is published by whoever its row names. A namesake on another host takes it over when that one
has let it go: its last complete listing lacked the node, or its service is down. An instance of
another name does when the mark of the one before has been taken from the root.
"""

from collections.abc import Collection, Container, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from oslo_log import log as logging

from wharfinger.exceptions import FieldUnset, NodeTaken
from wharfinger.objects import (
    ComputeNode,
    ComputeNodeList,
    Context,
    ProviderRecord,
    ProviderRecordList,
    Service,
    ServiceList,
)
from wharfinger.providers.record import Record
from wharfinger.reconcile.records import InstanceMemory
from wharfinger.tracker import instance_moves, service_report

LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Rows:
    """Of nodes that others have rows of: which can be taken over, and why the others not."""

    free: tuple[ComputeNode, ...] = ()
    taken: Mapping[str, NodeTaken] = field(default_factory=dict)


class Handover:
    """What one driver instance, on one host, gets from others, and gives to them.

    A service that has not reported for ``down_time`` is down.
    """

    def __init__(self, context: Context, host: str, instance: str, down_time: timedelta) -> None:
        self._context: Final = context
        self._host: Final = host
        self._instance: Final = instance
        self._down_time: Final = down_time

    def judge(
        self,
        uuids: Iterable[str],
        *,
        marked: Container[str],
        adoptable: Container[str],
        named: Container[str],
    ) -> Rows:
        """Judge the nodes of which this instance has no rows but another instance has; by uuid.

        ``marked`` are nodes whose roots have the trait of this instance, ``adoptable`` nodes whose
        roots it may adopt, and ``named`` nodes that the operator has named for adoption.
        """
        others = list(self._others(uuids))
        if not others:
            return Rows()
        absent = self._absent(others)
        claimed = self._claimed(others, named)
        up = self._hosts_up(others)
        free: list[ComputeNode] = []
        held: list[ComputeNode] = []
        for row in others:
            if row.driver_instance != self._instance:
                is_free = row.uuid in marked or (row.uuid in adoptable and row.uuid not in claimed)
            else:
                is_free = row.uuid in absent or row.host not in up
            (free if is_free else held).append(row)
        # Whoever was faster than this one since the rows were read is named, not the one before.
        held_now = {row.uuid: row for row in self._others(row.uuid for row in held)}
        taken = (held_now.get(row.uuid, row) for row in held)
        return Rows(tuple(free), {row.uuid: self._taken(row) for row in taken})

    def given_away(self, uuids: Iterable[str]) -> Mapping[str, bool]:
        """Of nodes that this instance has no rows of, those that another one has.

        Each with whether they can be forgotten here: a namesake has yet to inherit them, or not.
        """
        rows = list(self._others(uuids))
        records = self._records_elsewhere(row.uuid for row in rows) if rows else {}
        return {
            row.uuid: row.driver_instance != self._instance or row.uuid in records.get(row.host, ())
            for row in rows
        }

    def elsewhere(self) -> Collection[str]:
        """The uuids of all nodes of instances of this one's name, whatever the host."""
        return ComputeNodeList.get_revisions(self._context, None, self._instance).keys()

    def known_there(self, rows: Iterable[ComputeNode]) -> frozenset[str]:
        """The uuids of those nodes of which whoever has them remembers something."""
        hosts = {row.uuid: row.host for row in rows}
        records = self._records_elsewhere(hosts) if hosts else {}
        return frozenset(uuid for uuid, host in hosts.items() if uuid in records.get(host, ()))

    def take(self, rows: Iterable[ComputeNode]) -> None:
        """Move nodes to this instance, with their instances and moves: all or nothing.

        Call ``inherit`` afterwards. Raises ConcurrentSave, ObjectNotFound where another process
        was faster.
        """
        nodes = list(rows)
        for row in nodes:
            LOG.warning(
                "node %s (%s) comes from driver instance %s on host %s, which has let it go, or is "
                "down.",
                row.hypervisor_hostname,
                row.uuid,
                row.driver_instance,
                row.host,
            )
        if nodes:
            ComputeNodeList(self._context, objects=nodes).move_to(self._host, self._instance)

    def inherit(self, roots: Mapping[str, str], memory: InstanceMemory) -> bool:
        """Have what is on nodes, and what is remembered of them, come with them; whether any was.

        ``roots`` are the names, by uuid, of this instance's nodes of which it remembers nothing, or
        nothing new.
        What is remembered comes last: until then, this is done again.
        """
        records = self._records_elsewhere(roots) if roots else {}
        # Their rows have the names that they had there: they may have others by now.
        names = self._names(roots) if records else {}
        for host, uuids in records.items():
            instance_moves.follow_host(
                self._context,
                host,
                self._host,
                [names.get(uuid, roots[uuid]) for uuid in sorted(uuids)],
            )
            memory.inherit(host, uuids)
        return bool(records)

    def inherited(self, roots: Collection[str], memory: InstanceMemory) -> dict[str, Record]:
        """Return the records that ``inherit`` would bring, by provider uuid; nothing is written."""
        found: dict[str, Record] = {}
        for host, uuids in self._records_elsewhere(roots).items() if roots else ():
            found |= memory.known_on(host, uuids)
        return found

    def _taken(self, row: ComputeNode) -> NodeTaken:
        return NodeTaken(
            node=row.hypervisor_hostname,
            uuid=row.uuid,
            instance=self._instance,
            other=row.driver_instance,
            host=row.host,
        )

    def _names(self, uuids: Iterable[str]) -> dict[str, str]:
        rows = ComputeNodeList.get_by_filters(self._context, uuid=sorted(uuids))
        return {row.uuid: row.hypervisor_hostname for row in rows if "hypervisor_hostname" in row}

    def _records_elsewhere(self, uuids: Iterable[str]) -> dict[str, set[str]]:
        """Of which of these providers this instance's namesakes remember something, by host."""
        found: dict[str, set[str]] = {}
        for one in ProviderRecordList.get_by_filters(
            self._context, driver_instance=self._instance, provider_uuid=sorted(uuids)
        ):
            if "host" in one and one.host != self._host:
                found.setdefault(one.host, set()).add(one.provider_uuid)
        return found

    def _others(self, uuids: Iterable[str]) -> Iterable[ComputeNode]:
        """The readable rows of nodes that are another's."""
        wanted = sorted(uuids)
        known = ("uuid", "host", "driver_instance", "hypervisor_hostname")
        for row in ComputeNodeList.get_by_filters(self._context, uuid=wanted) if wanted else ():
            if all(name in row for name in known) and (row.host, row.driver_instance) != (
                self._host,
                self._instance,
            ):
                yield row

    def _claimed(self, rows: Iterable[ComputeNode], named: Container[str]) -> frozenset[str]:
        """Return nodes whose roots instances of other names publish, or are about to create.

        A new root may lack their trait for a moment. If a published root lacks it, and the operator
        has ``named`` the node, the operator has taken the trait away on purpose.
        """
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

    def _absent(self, rows: Iterable[ComputeNode]) -> frozenset[str]:
        """Those whose instance has found, by a complete listing, that they are not its own."""
        hosts = {row.uuid: row.host for row in rows}
        records = ProviderRecordList.get_by_filters(
            self._context, driver_instance=self._instance, provider_uuid=sorted(hosts)
        )
        return frozenset(
            one.provider_uuid
            for one in records
            if all(name in one for name in ("provider_uuid", "host", "absent_since"))
            and one.host == hosts[one.provider_uuid]
            and one.absent_since is not None
        )

    def _hosts_up(self, rows: Iterable[ComputeNode]) -> frozenset[str]:
        found = ServiceList.get_by_filters(
            self._context, host=sorted({row.host for row in rows}), binary=service_report.BINARY
        )
        return frozenset(one.host for one in found if self._is_up(one))

    def _is_up(self, service: Service) -> bool:
        try:
            return service.is_up(self._down_time)
        except FieldUnset:
            return True  # what is not known is no reason to take anything over


def _has(record: ProviderRecord, side: str) -> bool:
    """Return whether a record has that side; True also where it cannot be read."""
    return side not in record or getattr(record, side) is not None
