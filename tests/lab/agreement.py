"""Check that database objects, records and Placement agree with each other and with a yard.

A yard has the machines that the driver reports (see yard.py). A record is what the framework
remembers of a provider. This module computes the expected state from the yard, the instances and
the migrations, without code of the framework.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from typing import Any, Final

from tests.lab.at_work import INSTANCE, OWNER, Ledger, moves
from tests.lab.cycles import everything, record_store
from tests.lab.yard import HOSTS, Wanted, Yard
from wharfinger.objects import (
    ComputeNode,
    ComputeNodeList,
    Context,
    Flavor,
    InstanceList,
    ReservationList,
)
from wharfinger.placement.client import PlacementClient
from wharfinger.providers.provider import Record

MARKS: Final = frozenset({OWNER, f"CUSTOM_WHARFINGER_{INSTANCE.upper()}"})
#: Inventory that another owner has added to our providers: total and reserved.
OTHERS: Final = "CUSTOM_OTHERS"
OTHERS_FIGURES: Final = (5, 2)

_Place = tuple[str | None, str | None]


@dataclass(frozen=True)
class Seen:
    """Snapshot of Placement, the database and the yard, as a new process reads them."""

    yard: Yard
    ledger: Ledger
    #: The providers in Placement, and their generations, by uuid.
    there: Mapping[str, dict[str, Any]]
    generations: Mapping[str, int]
    #: The rows of compute nodes, by uuid.
    rows: Mapping[str, ComputeNode]
    #: The VCPUs that instances and moves use on each node.
    taken: Mapping[_Place, int]
    #: The host and the node of each instance.
    placed: Mapping[str, _Place]
    #: The records of providers, by host and by uuid.
    records: Mapping[str, Mapping[str, Record]]
    #: The uuids of providers with a damaged record, and of reserved ones.
    damaged: frozenset[str]
    held: frozenset[str]

    @classmethod
    def now(cls, yard: Yard, ledger: Ledger, client: PlacementClient, context: Context) -> "Seen":
        """Take a snapshot."""
        memories = {host: record_store(context, host, INSTANCE) for host in HOSTS}
        instances = InstanceList.get_by_filters(context)
        moving = moves(context)
        taken: Counter[_Place] = Counter()
        for instance in instances:
            if instance.uuid not in moving:
                taken[instance.host, instance.node] += _size(instance.flavor)
        for migration in (one for several in moving.values() for one in several):
            source = migration.source_compute, migration.source_node
            taken[source] += _size(migration.old_flavor)
            destination = migration.dest_compute, migration.dest_node
            taken[destination] += _size(migration.new_flavor)
        return cls(
            yard=yard,
            ledger=ledger,
            there={one["uuid"]: {"name": name, **one} for name, one in everything().items()},
            generations={one.uuid: one.generation for one in client.list_providers()},
            rows={row.uuid: row for row in ComputeNodeList.get_by_filters(context)},
            taken=taken,
            placed={one.uuid: (one.host, one.node) for one in instances if one.node},
            records={host: memory.records for host, memory in memories.items()},
            damaged=frozenset(uuid for one in memories.values() for uuid in one.damaged),
            held=frozenset(one.provider_uuid for one in ReservationList.get_by_filters(context)),
        )

    def faults(self, *, of: Set[str] | None = None) -> list[str]:
        """Return a text for each disagreement. With ``of``, compare only these providers."""
        about = self.there.keys() | self.yard.wanted().keys() if of is None else of
        return [
            *self._allocations(),
            *self._instances(),
            *self._rows(about),
            *(fault for uuid in sorted(about) for fault in self._provider(uuid)),
            *(f"the record of {uuid} is damaged" for uuid in self.damaged),
        ]

    def staying(self) -> frozenset[str]:
        """Return the uuids of the machines' providers that no host has to take over.

        Any rows and records of these machines are those of their host.
        """
        return frozenset(
            one.uuid
            for machine in self.yard.machines.values()
            if machine.uuid not in self.rows or self.rows[machine.uuid].host == machine.host
            if all(
                machine.uuid not in records or host == machine.host
                for host, records in self.records.items()
            )
            for one in machine.providers()
        )

    def _allocations(self) -> Iterator[str]:
        found: dict[str, Counter[str]] = {}
        for one in self.there.values():
            for (consumer, kind), amount in one["allocations"].items():
                found.setdefault(consumer, Counter())[kind] += amount
                if kind not in one["inventories"]:
                    yield f"consumer {consumer} has {kind} of {one['name']}, which has none"
        for consumer in self.ledger.held - found.keys():
            yield f"the allocation of consumer {consumer} is lost"
        for consumer, amounts in found.items():
            if consumer in self.ledger.free:
                yield f"consumer {consumer} has {amounts} after its release"
            elif amounts != self.ledger.amounts[consumer]:
                yield f"consumer {consumer} has {amounts}, not {self.ledger.amounts[consumer]}"

    def _instances(self) -> Iterator[str]:
        """Yield a text for each instance with an allocation of its node if that node has no row.

        Without the allocation it is no fault: the machine may have been removed and have returned.
        """
        uuids = {one.serial: one.uuid for one in self.yard.machines.values()}
        places = {(row.host, row.hypervisor_hostname) for row in self.rows.values()}
        roots = {one["name"]: uuid for uuid, one in self.there.items()}
        stays = {
            (consumer, roots[one["parent"] or one["name"]])
            for one in self.there.values()
            for consumer, _kind in one["allocations"]
        }
        for instance, place in self.placed.items():
            uuid = uuids.get(self.yard.places.get(place[1] or "", ""))
            if (instance, uuid) in stays and place not in places:
                yield f"instance {instance} is on {place}, which has no row"

    def _rows(self, of: Set[str]) -> Iterator[str]:
        roots = {uuid for uuid, one in self.there.items() if one["parent"] is None}
        for uuid in sorted(of & (roots ^ self.rows.keys())):
            yield f"{uuid} has only a {'root provider' if uuid in roots else 'row'}"
        machines = {one.uuid: one for one in self.yard.machines.values()}
        for uuid, row in self.rows.items():
            if uuid not in of:
                continue
            place = row.host, row.hypervisor_hostname
            says = row.vcpus_used, row.memory_mb_used, row.local_gb_used
            size = self.taken.get(place, 0)
            if says != (size, 10 * size, 100 * size):
                yield f"the row of {place} says that {says} are taken, of {size}"
            machine = machines.get(uuid)
            if machine and (place, row.vcpus) != ((machine.host, machine.name), machine.cpus):
                yield f"the row of {machine} says {place}, {row.vcpus}"
            if row.revision < 1:
                yield f"the row of {place} has revision {row.revision}"

    def _provider(self, uuid: str) -> Iterator[str]:
        wanted, there = self.yard.wanted().get(uuid), self.there.get(uuid)
        records = {host: records[uuid] for host, records in self.records.items() if uuid in records}
        if there is None:
            if wanted:
                yield f"{wanted.name} is missing"
            if records:
                yield f"{uuid} is not in Placement, but has records of {list(records)}"
            return
        name = there["name"]
        if len(records) != 1:
            yield f"{name} has records of {list(records)}, not of one host"
        for host, record in records.items():
            yield from (f"{host}: {name}: {fault}" for fault in self._record(uuid, there, record))
        if not there["traits"] >= MARKS:
            yield f"{name} has traits {there['traits']}"
        for kind, (total, reserved) in self._figures(uuid, there, wanted).items():
            if there["inventories"].get(kind) != (total, reserved):
                yield f"{name} has {kind} {there['inventories'].get(kind)}, not {total, reserved}"
        if wanted is None:
            if not there["allocations"] and not self._is_parent(name):
                yield f"{name} was not deleted in Placement"
            return
        parent = wanted.parent and self.there.get(wanted.parent, {}).get("name", "nothing")
        if (name, there["parent"]) != (wanted.name, parent):
            yield f"{wanted.name}, below {parent}, is {name}, below {there['parent']}"
        if more := there["inventories"].keys() - {*wanted.inventories, OTHERS}:
            yield f"{name} has {more} besides"

    def _record(self, uuid: str, there: dict[str, Any], record: Record) -> Iterator[str]:
        if record.intended is not None and uuid in self.yard.wanted():
            yield "the record still has an intended write"
        if record.live is None:
            yield "the record has no contents of Placement"
            return
        live = record.live
        figures = {name: (one.total, one.reserved) for name, one in live.inventories.items()}
        # A reshape leaves this for the next cycle.
        generation = self.generations[uuid] if live.generation is None else live.generation
        known = (generation, live.name, figures, live.traits, live.aggregates)
        parts = (there[part] for part in ("name", "inventories", "traits", "aggregates"))
        if known != (found := (self.generations[uuid], *parts)):
            yield f"the record has {known}, Placement has {found}"
        if bool(record.own_reserved) != self._is_reserved(uuid):
            yield f"the record has these unreserved figures: {record.own_reserved}"

    def _figures(
        self, uuid: str, there: dict[str, Any], wanted: Wanted | None
    ) -> dict[str, tuple[int, int]]:
        """Return the expected total and reserved amount of each class of a provider."""
        figures = dict(wanted.inventories if wanted else there["inventories"])
        if OTHERS in there["inventories"]:
            figures[OTHERS] = OTHERS_FIGURES
        if self._is_reserved(uuid):
            return {kind: (total, total) for kind, (total, _reserved) in figures.items()}
        return figures

    def _is_reserved(self, uuid: str) -> bool:
        wanted = self.yard.wanted().get(uuid)
        return wanted is None or bool(wanted.why) or uuid in self.held

    def _is_parent(self, name: str) -> bool:
        return any(one["parent"] == name for one in self.there.values())


def _size(flavor: Flavor) -> int:
    return int(flavor.vcpus)
