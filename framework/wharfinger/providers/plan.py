"""A plan: the steps that take Placement from what it has to what is wanted.

Data only: printable, comparable, safe to look at and throw away. Each step says what it
changes from and to, and which provider and tree it belongs to.
"""

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from wharfinger.exceptions import WharfingerError
from wharfinger.providers.inventory import Inventory
from wharfinger.providers.provider import Provider
from wharfinger.providers.record import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What a provider is called and where it stands."""

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
        """The uuids of the providers that it changes."""
        return (self.uuid,)

    def result(self, provider: Provider | None) -> Provider | None:
        """The provider as it is when the step is done, given what it was before."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateProvider(Step):
    """Create a provider with nothing on it."""

    verb = "create"
    parent_uuid: str | None

    def result(self, provider: Provider | None) -> Provider:
        """A new provider, whatever was there before."""
        return Provider(
            uuid=self.uuid, name=self.name, root_uuid=self.root_uuid, parent_uuid=self.parent_uuid
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Change(Step):
    """A step that changes one thing about a provider that is there."""

    attribute: ClassVar[str]
    before: Any
    after: Any

    def result(self, provider: Provider | None) -> Provider | None:
        """The provider with that one thing changed."""
        return provider and replace(provider, **{self.attribute: self.after})


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateProvider(_Change):
    """Rename a provider, or give it another parent (microversion 1.37)."""

    verb = "update"
    before: Identity
    after: Identity

    def result(self, provider: Provider | None) -> Provider | None:
        """The provider under its new name and parent."""
        return provider and replace(
            provider,
            name=self.after.name,
            parent_uuid=self.after.parent_uuid,
            root_uuid=self.root_uuid,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SetTraits(_Change):
    """Replace a provider's traits; an owner trait comes with the first of these."""

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
        """The resource classes of which the provider offers less."""
        return frozenset(name for name in self.before if self._gain(name) < 0)

    @property
    def grown(self) -> frozenset[str]:
        """The resource classes of which the provider offers more."""
        return frozenset(name for name in self.after if self._gain(name) > 0)

    def _gain(self, name: str) -> float:
        old, new = self.before.get(name), self.after.get(name)
        return (new.capacity if new else 0.0) - (old.capacity if old else 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reshape(Step):
    """Move inventories and allocations of a tree together, all or nothing.

    ``inventories`` are the changes of each provider's, ``allocations`` those that the
    driver edited, by consumer, as POST /reshaper takes them.
    """

    verb = "reshape"
    inventories: tuple[SetInventories, ...]
    allocations: Mapping[str, Mapping[str, Any]]

    @property
    def touched(self) -> tuple[str, ...]:
        """The uuids of the providers whose inventories it changes."""
        return tuple(change.uuid for change in self.inventories)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteProvider(Step):
    """Delete a provider and its inventories; it has no allocations and no children."""

    verb = "delete"

    def result(self, provider: Provider | None) -> None:
        """Nothing."""
        return


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingRemoval:
    """A provider that is gone from its backend and not yet removed, and why not."""

    uuid: str
    name: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignReservation:
    """A provider that somebody else has fully reserved, which is kept.

    ``classes`` are the resource classes of which nothing can be had for that.
    """

    uuid: str
    name: str
    classes: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to do, in an order that is safe to apply and to interrupt.

    ``records`` are what to remember, by provider uuid, when the steps of that provider
    are done (None: forget it); every provider that a step touches is among them.
    ``gone`` are the uuids of those that it removes, or reserves to keep, since they are gone
    from their backend. ``foreign`` are reservations of others. ``problems`` are what keeps a
    provider from being published, ``troubled`` the uuids of the roots of those; the steps of the
    others stand.
    """

    steps: tuple[Step, ...] = ()
    records: Mapping[str, Record | None] = field(default_factory=dict)
    pending: tuple[PendingRemoval, ...] = ()
    gone: frozenset[str] = frozenset()
    troubled: frozenset[str] = frozenset()
    foreign: tuple[ForeignReservation, ...] = ()
    problems: tuple[WharfingerError, ...] = ()

    @classmethod
    def merge(cls, plans: Iterable["Plan"]) -> "Plan":
        """One plan of several, for different trees."""
        plans = list(plans)
        return cls(
            steps=tuple(step for plan in plans for step in plan.steps),
            records={uuid: record for plan in plans for uuid, record in plan.records.items()},
            pending=tuple(item for plan in plans for item in plan.pending),
            gone=frozenset().union(*(plan.gone for plan in plans)),
            troubled=frozenset().union(*(plan.troubled for plan in plans)),
            foreign=tuple(one for plan in plans for one in plan.foreign),
            problems=tuple(problem for plan in plans for problem in plan.problems),
        )

    def roots_of(self, uuids: Set[str]) -> frozenset[str]:
        """Return the uuids of the roots of all trees with a step that changes one of these."""
        return frozenset(
            step.root_uuid for step in self.steps if not uuids.isdisjoint(step.touched)
        )

    def by_tree(self) -> list["Plan"]:
        """The steps and records of each tree as a plan of its own.

        Trees are independent of each other. What is only to be remembered comes first, as
        a plan without steps.
        """
        steps: dict[str, list[Step]] = {}
        for step in self.steps:
            steps.setdefault(step.root_uuid, []).append(step)
        touched = {uuid: step.root_uuid for step in self.steps for uuid in step.touched}
        records: dict[str | None, dict[str, Record | None]] = {}
        for uuid, record in self.records.items():
            records.setdefault(touched.get(uuid), {})[uuid] = record
        return [
            Plan(records=records.get(None, {})),
            *(
                Plan(steps=tuple(tree), records=records.get(root, {}))
                for root, tree in steps.items()
            ),
        ]
