"""Plans: the steps that give Placement the desired state."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Generic, TypeVar

from wharfinger.exceptions import WharfingerError
from wharfinger.providers.inventory import Inventory
from wharfinger.providers.provider import Provider, Record

#: Allocations by consumer uuid, in the format of the Placement API.
Allocations = Mapping[str, Mapping[str, Any]]
#: Allocations before and after a driver edited them, by root uuid.
Reshapes = Mapping[str, tuple[Allocations, Allocations]]
_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One write to Placement."""

    verb: ClassVar[str]
    uuid: str
    name: str
    root_uuid: str

    @property
    def touched(self) -> tuple[str, ...]:
        """Return the uuids of the providers that the step changes."""
        return (self.uuid,)


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateProvider(Step):
    """Create an empty provider."""

    verb = "create"
    parent_uuid: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Change(Step, Generic[_Value]):
    before: _Value
    after: _Value


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateProvider(_Change[Provider]):
    """Rename a provider, or give it another parent."""

    verb = "update"


@dataclass(frozen=True, slots=True, kw_only=True)
class SetTraits(_Change[frozenset[str]]):
    """Replace a provider's traits."""

    verb = "set traits"


@dataclass(frozen=True, slots=True, kw_only=True)
class SetAggregates(_Change[frozenset[str]]):
    """Replace a provider's aggregates."""

    verb = "set aggregates"


@dataclass(frozen=True, slots=True, kw_only=True)
class SetInventories(_Change[Mapping[str, Inventory]]):
    """Replace a provider's inventories."""

    verb = "set inventories"

    @property
    def shrunk(self) -> frozenset[str]:
        """Return the resource classes whose capacity becomes smaller."""
        return frozenset(name for name in self.before if self._gain(name) < 0)

    @property
    def grown(self) -> frozenset[str]:
        """Return the resource classes whose capacity becomes larger."""
        return frozenset(name for name in self.after if self._gain(name) > 0)

    def _gain(self, name: str) -> float:
        old, new = self.before.get(name), self.after.get(name)
        return (new.capacity if new else 0.0) - (old.capacity if old else 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reshape(Step):
    """Change inventories and allocations in one request."""

    verb = "reshape"
    inventories: tuple[SetInventories, ...]
    #: The allocations that the driver has edited.
    allocations: Allocations

    @property
    def touched(self) -> tuple[str, ...]:
        """Return the uuids of the providers whose inventories the step changes."""
        return tuple(change.uuid for change in self.inventories)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteProvider(Step):
    """Delete a provider."""

    verb = "delete"


def step_target(provider: Provider) -> dict[str, Any]:
    """Return the provider's uuid, name and root, as arguments for a step."""
    return {"uuid": provider.uuid, "name": provider.name, "root_uuid": provider.root_uuid}


def steps_between(before: Provider | None, after: Provider) -> Iterator[Step]:
    """Yield the steps that change a provider; without ``before``, that create it."""
    if before == after:
        return
    target = step_target(after)
    here = before or replace(after, inventories={}, traits=frozenset(), aggregates=frozenset())
    if before is None:
        yield CreateProvider(**target, parent_uuid=after.parent_uuid)
    elif (here.name, here.parent_uuid) != (after.name, after.parent_uuid):
        moved = replace(here, **target, parent_uuid=after.parent_uuid)
        yield UpdateProvider(**target, before=here, after=moved)
    if here.traits != after.traits:
        yield SetTraits(**target, before=here.traits, after=after.traits)
    if here.aggregates != after.aggregates:
        yield SetAggregates(**target, before=here.aggregates, after=after.aggregates)
    if here.inventories != after.inventories:
        yield SetInventories(**target, before=here.inventories, after=after.inventories)


def after_step(step: Step, provider: Provider | None) -> Provider | None:
    """Return a provider after a step; None if it does not exist then."""
    match step:
        case CreateProvider(uuid=uuid, name=name, root_uuid=root, parent_uuid=parent):
            return Provider(uuid=uuid, name=name, root_uuid=root, parent_uuid=parent)
        case UpdateProvider():
            return step.after
        case SetTraits():
            return provider and replace(provider, traits=step.after)
        case SetAggregates():
            return provider and replace(provider, aggregates=step.after)
        case SetInventories():
            return provider and replace(provider, inventories=step.after)
        case DeleteProvider():
            return None
        case _:
            raise TypeError(f"{step.verb} {step.name}: this step changes several providers")


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingRemoval:
    """An absent provider, and the reason why it is not removed yet."""

    uuid: str
    name: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignReservation:
    """A full reservation by another program, which plans keep."""

    uuid: str
    name: str
    #: The fully reserved resource classes.
    classes: frozenset[str]
    #: Whether the operator can end the reservation.
    is_releasable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TreePlan:
    """Plan of one tree, or of trees between which providers move."""

    #: The root of the tree; of several trees, the root of one to which a provider moves.
    root_uuid: str
    #: The steps, in an order that is safe to apply and to interrupt.
    steps: tuple[Step, ...] = ()
    #: The providers that the steps change, by uuid, as Placement has them now.
    live: Mapping[str, Provider] = field(default_factory=dict)
    #: The records to store after the steps, by provider uuid; None: delete the record.
    records: Mapping[str, Record | None] = field(default_factory=dict)
    pending: tuple[PendingRemoval, ...] = ()
    #: The uuids of providers that the steps remove or reserve, since their backend lacks them.
    gone: frozenset[str] = frozenset()
    #: The errors that prevent the publishing of providers.
    problems: tuple[WharfingerError, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Plan of one reconcile cycle."""

    trees: tuple[TreePlan, ...] = ()
    #: Pending removals and errors that belong to no planned tree.
    orphans: tuple[PendingRemoval, ...] = ()
    errors: tuple[WharfingerError, ...] = ()
    foreign: tuple[ForeignReservation, ...] = ()

    @property
    def steps(self) -> tuple[Step, ...]:
        """Return the steps of all trees."""
        return tuple(step for tree in self.trees for step in tree.steps)

    @property
    def pending(self) -> tuple[PendingRemoval, ...]:
        """Return all removals that wait."""
        return (*self.orphans, *(one for tree in self.trees for one in tree.pending))

    @property
    def problems(self) -> tuple[WharfingerError, ...]:
        """Return the errors of the plan and of its trees."""
        return (*self.errors, *(one for tree in self.trees for one in tree.problems))
