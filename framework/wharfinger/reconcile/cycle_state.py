"""State of one reconcile cycle: all facts that its plan depends on.

Each stage completes it: observe, desire, look up. The planner only reads it.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Self

from wharfinger.exceptions import WharfingerError
from wharfinger.objects import ComputeNode, HostState, Instance, Migration, Reservation
from wharfinger.placement.model import ProviderSummary
from wharfinger.providers import DesiredProvider, Provider
from wharfinger.providers.absence_timer import Uptime
from wharfinger.providers.device_function_traits import HeldFunction
from wharfinger.providers.provider_record import Record
from wharfinger.providers.tree_planner import Reshapes
from wharfinger.reconcile.node_list import NodeList
from wharfinger.tracker.reported_node import Node


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleState:
    """Facts of one cycle of a driver instance. Providers and records are by provider uuid.

    ``attempt`` is 0 for the first attempt of a cycle.

    Observed: ``read_at`` is the time of the database read in seconds of CLOCK_BOOTTIME. ``now`` is
    in seconds since the epoch, ``uptime`` is the moment of the listing.
    ``nodes`` are the nodes that the driver is asked for; ``every_node`` are all that it listed.
    ``is_listing``: the listing is complete, and what it lacks may be removed. ``scope`` are the
    roots of the trees to plan, None for all. ``rows`` is the one read of the database.
    ``reservations`` are the stored reservations by provider; ``snapshot_reservations`` (uuid and
    revision) those that were stored before the driver's snapshot began. ``migrations`` are those in
    progress by node name. ``live`` are the providers in Placement; ``is_read``: they were read in
    this cycle, and are not as we last saw them. ``strays`` are providers with our instance trait in
    none of our trees. ``records`` are our records.

    Desired: ``roots`` are the root uuids by node name, ``desired`` the providers that the driver
    reports, parents first, ``reshapes`` the allocations that it has edited.

    ``replaced`` has, by uuid of a desired child, the other uuids under which this instance has
    published a child of that name below a root of that name.

    Looked up: ``new_nodes`` have no row yet. ``takeovers`` are rows of other hosts or instances to
    take over; ``overlaid_takeovers`` are roots of overlaid trees, without a row, for which records
    of other hosts are taken over. ``released_roots`` are those of nodes that another host has taken
    over; True: our records of them can be deleted. ``lost`` are new reservations for lost
    allocations; ``settled`` has the next phases, by uuid, of those whose reason has ended.
    ``noted_instances`` are rows to save with the allocations that Placement has. ``held`` are the
    providers that stored reservations keep fully reserved. ``detached`` has the reason why a
    provider stays a root of its own. ``phases`` are reservations and their new phases, None: the
    reservation ends. ``functions`` are the functions of programmable devices, ``superseded`` those
    that are no longer right. ``name_owners`` are the providers that have wanted names.
    ``allocated`` have allocations, ``parents`` children that are not in ``live``. ``kept`` has the
    reason why a provider that is due for removal stays; ``withheld``: none is removed.

    ``unchanged`` are the roots of trees that the last full cycle left as they are, and that have
    not changed since. ``blocked`` are the roots of trees that stay as they are, ``problems`` the
    errors because of which they do. ``is_partial``: an earlier attempt of this cycle had such
    errors. ``other_problems`` are errors that block no tree.
    """

    attempt: int = 0
    read_at: float = 0.0
    now: float
    nodes: NodeList
    every_node: NodeList
    rows: HostState
    records: Mapping[str, Record]
    uptime: Uptime | None = None
    is_listing: bool = False
    scope: frozenset[str] | None = None
    snapshot_reservations: Set[tuple[str, int]] = frozenset()
    reservations: Mapping[str, tuple[Reservation, ...]] = field(default_factory=dict)
    migrations: Mapping[str, Sequence[Migration]] = field(default_factory=dict)
    live: Mapping[str, Provider] = field(default_factory=dict)
    is_read: bool = True
    strays: tuple[ProviderSummary, ...] = ()
    roots: Mapping[str, str] = field(default_factory=dict)
    desired: Mapping[str, DesiredProvider] = field(default_factory=dict)
    reshapes: Reshapes = field(default_factory=dict)
    replaced: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    new_nodes: tuple[Node, ...] = ()
    takeovers: tuple[ComputeNode, ...] = ()
    overlaid_takeovers: frozenset[str] = frozenset()
    released_roots: Mapping[str, bool] = field(default_factory=dict)
    lost: tuple[Reservation, ...] = ()
    settled: Mapping[str, str | None] = field(default_factory=dict)
    noted_instances: tuple[Instance, ...] = ()
    held: frozenset[str] = frozenset()
    phases: tuple[tuple[Reservation, str | None], ...] = ()
    functions: Mapping[str, HeldFunction] = field(default_factory=dict)
    superseded: frozenset[str] = frozenset()
    detached: Mapping[str, str] = field(default_factory=dict)
    name_owners: Mapping[str, Provider] = field(default_factory=dict)
    allocated: frozenset[str] = frozenset()
    parents: frozenset[str] = frozenset()
    kept: Mapping[str, str] = field(default_factory=dict)
    withheld: bool = False
    unchanged: frozenset[str] = frozenset()
    blocked: frozenset[str] = frozenset()
    problems: tuple[WharfingerError, ...] = ()
    is_partial: bool = False
    other_problems: tuple[WharfingerError, ...] = ()

    def block(self, roots: Set[str], *problems: WharfingerError) -> Self:
        """Return the state in which these trees stay as they are, also below another root."""
        moved = {self.live[uuid].root_uuid for uuid in roots if uuid in self.live}
        return replace(
            self, blocked=self.blocked | roots | moved, problems=(*self.problems, *problems)
        )
