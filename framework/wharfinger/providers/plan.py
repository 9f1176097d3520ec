"""A plan: the steps that change Placement from its present state to the desired one.

A plan is data only. Each step has the values before and after, its provider and its tree.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from wharfinger.exceptions import WharfingerError
from wharfinger.providers.inventory import Inventory
from wharfinger.providers.provider import Provider
from wharfinger.providers.provider_record import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Name and parent of a provider."""

    name: str
    parent_uuid: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One write to one provider."""

    verb: ClassVar[str]
    uuid: str
    name: str
    root_uuid: str

    @property
    def touched(self) -> tuple[str, ...]:
        """Return the uuids of the providers that it changes."""
        return (self.uuid,)

    def result(self, provider: Provider | None) -> Provider | None:
        """Return the provider after the step; ``provider`` is its state before."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateProvider(Step):
    """Create a provider without inventories, traits and aggregates."""

    verb = "create"
    parent_uuid: str | None

    def result(self, provider: Provider | None) -> Provider:
        """Return a new provider, whatever its state was before."""
        return Provider(
            uuid=self.uuid, name=self.name, root_uuid=self.root_uuid, parent_uuid=self.parent_uuid
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Change(Step):
    """A step that changes one attribute of an existing provider."""

    attribute: ClassVar[str]
    before: Any
    after: Any

    def result(self, provider: Provider | None) -> Provider | None:
        """Return the provider with the attribute changed."""
        return provider and replace(provider, **{self.attribute: self.after})


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateProvider(_Change):
    """Rename a provider, or give it another parent (microversion 1.37)."""

    verb = "update"
    before: Identity
    after: Identity

    def result(self, provider: Provider | None) -> Provider | None:
        """Return the provider with its new name and parent."""
        return provider and replace(
            provider,
            name=self.after.name,
            parent_uuid=self.after.parent_uuid,
            root_uuid=self.root_uuid,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SetTraits(_Change):
    """Replace a provider's traits; the first of these steps sets the owner trait."""

    verb = "set traits"
    attribute = "traits"
    before: frozenset[str]
    after: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class SetAggregates(_Change):
    """Replace the aggregates that a provider is in."""

    verb = "set aggregates"
    attribute = "aggregates"
    before: frozenset[str]
    after: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class SetInventories(_Change):
    """Replace a provider's inventories."""

    verb = "set inventories"
    attribute = "inventories"
    before: Mapping[str, Inventory]
    after: Mapping[str, Inventory]

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
    """Move inventories and allocations of a tree together, all or nothing.

    ``inventories`` are the changes of the inventories of each provider. ``allocations`` are those
    that the driver has edited, by consumer, in the format of POST /reshaper.
    """

    verb = "reshape"
    inventories: tuple[SetInventories, ...]
    allocations: Mapping[str, Mapping[str, Any]]

    @property
    def touched(self) -> tuple[str, ...]:
        """Return the uuids of the providers whose inventories it changes."""
        return tuple(change.uuid for change in self.inventories)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteProvider(Step):
    """Delete a provider and its inventories; it has no allocations and no children."""

    verb = "delete"

    def result(self, provider: Provider | None) -> None:
        """Return None, since the provider no longer exists."""
        return


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingRemoval:
    """An absent provider that is not removed yet, and the reason."""

    uuid: str
    name: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignReservation:
    """Full reservation of a provider by another program, which is kept.

    ``classes`` are its resource classes. The operator can end it with one command if
    ``is_releasable``: our instance publishes at least one of the classes.
    """

    uuid: str
    name: str
    classes: frozenset[str]
    is_releasable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TreePlan:
    """Plan of one tree: its steps, and the records to keep when they are done.

    The steps come in an order that is safe to apply and to interrupt. ``live`` has the providers
    that they change as Placement has them now, by uuid. ``records`` are by provider uuid (None
    deletes a record); every provider that a step changes is among them. ``gone`` are the
    uuids of the providers that it removes, or reserves, since their backend lacks them.
    ``problems`` are the errors that keep providers of the tree from being published.

    A provider that moves joins two trees: they are planned as one, under the root of the first.
    """

    root_uuid: str
    steps: tuple[Step, ...] = ()
    live: Mapping[str, Provider] = field(default_factory=dict)
    records: Mapping[str, Record | None] = field(default_factory=dict)
    pending: tuple[PendingRemoval, ...] = ()
    foreign: tuple[ForeignReservation, ...] = ()
    gone: frozenset[str] = frozenset()
    problems: tuple[WharfingerError, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Plan of one reconcile cycle: the plans of its trees, which are independent of each other.

    ``orphans`` and ``errors`` belong to no planned tree.
    """

    trees: tuple[TreePlan, ...] = ()
    orphans: tuple[PendingRemoval, ...] = ()
    errors: tuple[WharfingerError, ...] = ()

    @property
    def steps(self) -> tuple[Step, ...]:
        """Return the steps of all trees."""
        return tuple(step for tree in self.trees for step in tree.steps)

    @property
    def pending(self) -> tuple[PendingRemoval, ...]:
        """Return the removals that wait."""
        return (*self.orphans, *(one for tree in self.trees for one in tree.pending))

    @property
    def foreign(self) -> tuple[ForeignReservation, ...]:
        """Return the full reservations by other programs."""
        return tuple(one for tree in self.trees for one in tree.foreign)

    @property
    def problems(self) -> tuple[WharfingerError, ...]:
        """Return the errors of the cycle, and those of its trees."""
        return (*self.errors, *(one for tree in self.trees for one in tree.problems))
