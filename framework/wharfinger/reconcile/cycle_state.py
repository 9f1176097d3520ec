"""Facts that the plan of a cycle depends on."""

from collections.abc import Mapping, Set
from dataclasses import dataclass, field, replace
from typing import Self

from wharfinger.exceptions import WharfingerError
from wharfinger.objects import ComputeNode, HostState, Instance, Reservation
from wharfinger.placement.model import ProviderSummary
from wharfinger.providers import DesiredProvider, Provider
from wharfinger.providers.device_function_traits import HeldFunction
from wharfinger.providers.plan_draft import PlanFacts
from wharfinger.providers.provider import NO_RECORD, Record
from wharfinger.reconcile.node_list import NodeList


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleState(PlanFacts):
    """Facts of one cycle of a driver instance.

    Mappings are by provider uuid, unless a comment says otherwise.
    """

    #: The number of this attempt in the cycle; the first is 0.
    attempt: int = 0

    # Observed:
    #: The time of the database read, in seconds of CLOCK_BOOTTIME.
    read_at: float = 0.0
    #: The nodes to ask the driver about, and all nodes that it listed.
    nodes: NodeList = field(default_factory=NodeList)
    every_node: NodeList = field(default_factory=NodeList)
    rows: HostState
    #: The records of this driver instance.
    records: Mapping[str, Record]
    #: The roots of the trees to plan; None: all.
    scope: frozenset[str] | None = None
    #: The reservations (uuid and revision) that were stored before the driver's snapshot began.
    snapshot_reservations: Set[tuple[str, int]] = frozenset()
    #: The stored reservations of the providers of this driver instance.
    reservations: Mapping[str, tuple[Reservation, ...]] = field(default_factory=dict)
    #: The providers in Placement.
    live: Mapping[str, Provider] = field(default_factory=dict)
    #: Whether this cycle has read ``live`` from Placement, and not from our records.
    is_read: bool = True
    #: Providers outside of our trees that have our instance trait.
    strays: tuple[ProviderSummary, ...] = ()

    # Desired:
    #: Root uuids, by node name.
    roots: Mapping[str, str] = field(default_factory=dict)
    #: The providers that the driver reports, parents first.
    desired: Mapping[str, DesiredProvider] = field(default_factory=dict)

    # Looked up:
    #: Roots of nodes to publish that have no database row.
    new_nodes: tuple[str, ...] = ()
    #: Rows of nodes that this instance takes over, by root uuid. None for a root of another
    #: program: this instance takes over only the records of the children.
    takeovers: Mapping[str, ComputeNode | None] = field(default_factory=dict)
    #: Roots of nodes that another host has taken over; our records of them are deleted.
    released_roots: frozenset[str] = frozenset()
    #: New reservations for lost allocations.
    lost: tuple[Reservation, ...] = ()
    #: New phases of reservations by uuid, whatever the driver says; None: the reservation ends.
    settled: Mapping[str, str | None] = field(default_factory=dict)
    #: Instances whose rows get the allocations that Placement has.
    noted_instances: tuple[Instance, ...] = ()
    #: Reservations that change, with their new phases; None: the reservation ends.
    phases: tuple[tuple[Reservation, str | None], ...] = ()
    #: The functions that jobs have loaded into programmable devices.
    functions: Mapping[str, HeldFunction] = field(default_factory=dict)
    #: Devices whose loaded function another program has replaced.
    superseded: frozenset[str] = frozenset()

    # Which trees to plan:
    #: Roots of trees that the last full cycle left unchanged, and that have not changed since.
    unchanged: frozenset[str] = frozenset()
    #: Roots of trees that are only reserved or disabled, because of ``problems``.
    blocked: frozenset[str] = frozenset()
    problems: tuple[WharfingerError, ...] = ()
    #: Whether an earlier attempt of this cycle had problems.
    is_partial: bool = False
    #: Problems that block no tree.
    other_problems: tuple[WharfingerError, ...] = ()

    def record(self, uuid: str) -> Record:
        """Return our record of a provider, or an empty record."""
        return self.records.get(uuid, NO_RECORD)

    def stated(self, uuid: str) -> DesiredProvider | None:
        """Return a provider as the driver reports it in this cycle, or None."""
        wanted = self.desired.get(uuid)
        return wanted if wanted and wanted.stated else None

    def block(self, roots: Set[str], *problems: WharfingerError) -> Self:
        """Add trees to ``blocked``, and problems; return the new state."""
        moved = {self.live[uuid].root_uuid for uuid in roots if uuid in self.live}
        return replace(
            self, blocked=self.blocked | roots | moved, problems=(*self.problems, *problems)
        )
