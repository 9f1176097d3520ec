"""What the objects say of a driver instance and its host: apart from drivers and Placement."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Self

from wharfinger.objects import ComputeNodeList, Context, Migration, MigrationList
from wharfinger.providers.function_traits import HeldFunction
from wharfinger.reconcile.reservation_phases import StoredReservations
from wharfinger.tracker import service_report


@dataclass(frozen=True, slots=True)
class Circumstances:
    """Whether the service is disabled (None: that is not known), who moves, and what is reserved.

    ``rows`` are the uuids of the instance's nodes that have rows; ``migrations`` those in progress,
    by each node of the host that they come from or go to; ``functions`` are those that devices were
    programmed with, by provider uuid.
    """

    disabled: bool | None = False
    rows: Set[str] = frozenset()
    migrations: Mapping[str, Sequence[Migration]] = field(default_factory=dict)
    reservations: StoredReservations = field(default_factory=StoredReservations)
    functions: Mapping[str, HeldFunction] = field(default_factory=dict)

    def seen_by_snapshot(self, earlier: frozenset[tuple[str, int]]) -> Self:
        """The same; ``earlier`` are the reservations that were there before the snapshot began."""
        return replace(self, reservations=replace(self.reservations, earlier=earlier))

    def with_placement_read(self, context: Context, host: str, instance: str) -> Self:
        """The same, with the rows and reservations that there are now that Placement was read.

        Another host may have taken nodes over while the backend was listed.
        """
        return replace(
            self,
            rows=ComputeNodeList.get_revisions(context, host, instance).keys(),
            reservations=self.reservations.read_again(context),
        )

    @classmethod
    def read(cls, context: Context, host: str, instance: str) -> Self:
        """As they are now, less the functions; raises ObjectError, StateError."""
        migrations: dict[str, list[Migration]] = {}
        for one in MigrationList.get_in_progress_by_host(context, host):
            for node in _nodes_here(one, host):
                migrations.setdefault(node, []).append(one)
        return cls(
            disabled=service_report.is_disabled(context, host),
            rows=ComputeNodeList.get_revisions(context, host, instance).keys(),
            migrations=migrations,
            reservations=StoredReservations.read(context),
        )


def _nodes_here(migration: Migration, host: str) -> list[str]:
    ends = (("source_compute", "source_node"), ("dest_compute", "dest_node"))
    nodes = [
        getattr(migration, node)
        for compute, node in ends
        if compute in migration and node in migration and getattr(migration, compute) == host
    ]
    return [node for node in dict.fromkeys(nodes) if node is not None]
