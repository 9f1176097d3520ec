"""Writing the steps of a tree: intent first, then the request, then its result.

A crash between any two leaves a state from which the next diff goes on: it knows what was
intended, whether it was written or not.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import Final, Protocol, Self

from wharfinger.exceptions import (
    ConcurrentUpdate,
    DuplicateProvider,
    NotFound,
    PlacementError,
)
from wharfinger.placement.client import PlacementClient
from wharfinger.providers import full_reservation
from wharfinger.providers.plan import (
    CreateProvider,
    DeleteProvider,
    Plan,
    Reshape,
    SetAggregates,
    SetInventories,
    SetTraits,
    Step,
    UpdateProvider,
)
from wharfinger.providers.provider import Provider
from wharfinger.providers.record import Record


class Memory(Protocol):
    """Where records are kept; a write is durable when ``save`` returns.

    Several threads use it at once, each for providers of its own.
    """

    def get(self, uuid: str) -> Record:
        """The record of a provider; an empty one where there is none."""

    def save(self, records: Mapping[str, Record | None]) -> None:
        """Write records by provider uuid; None forgets."""

    def withdraw(self, uuid: str) -> None:
        """Forget the intent to create a provider: another program has its uuid or name."""


@dataclass(slots=True)
class TreeUnderWay:
    """One tree of a plan, and how far it has got.

    ``now`` are the providers as the steps so far have left them, ``left`` how many steps each
    still has; ``raised`` are the generations that a reshape has left, of which it says nothing
    itself. ``refused`` are the errors of providers that are in use and stay as they are,
    ``kept`` the resource classes that they keep for it; ``failed`` is what stopped the whole
    tree.
    """

    plan: Plan
    now: dict[str, Provider | None]
    left: Counter[str]
    raised: dict[str, int] = field(default_factory=dict)
    refused: dict[str, PlacementError] = field(default_factory=dict)
    kept: set[str] = field(default_factory=set)
    failed: PlacementError | None = None

    @classmethod
    def of(cls, plan: Plan, live: Mapping[str, Provider]) -> Self:
        """The start: ``live`` is what the plan was made from, of this tree and others."""
        left = Counter(uuid for step in plan.steps for uuid in step.touched)
        return cls(plan, {uuid: live.get(uuid) for uuid in left}, left)

    def goes_on_with(self, step: Step) -> bool:
        """Whether nothing has happened that keeps a step from being taken."""
        if self.failed is not None or not self.refused.keys().isdisjoint(step.touched):
            return False
        # What one provider did not give away, another must not offer too.
        return not isinstance(step, SetInventories) or self.kept.isdisjoint(step.grown)

    def refuse(self, step: Step, error: PlacementError) -> None:
        """Leave the step's providers as they are, since they are in use."""
        self.refused.update(dict.fromkeys(step.touched, error))
        if isinstance(step, SetInventories):
            self.kept |= step.shrunk

    @property
    def errors(self) -> list[PlacementError]:
        """What went wrong in this tree, once each."""
        refused = list(dict.fromkeys(self.refused.values()))
        return [*refused, self.failed] if self.failed else refused

    def generation(self, step: Step) -> int:
        """The generation that a write of the step's provider has to name."""
        provider = self.now.get(step.uuid)
        known = provider.generation if provider else None
        generation = self.raised.get(step.uuid) if provider and known is None else known
        if generation is None:
            raise ValueError(f"{step.verb} {step.name}: the plan was made from something else")
        return generation

    def after(self, step: Step, generation: int | None) -> dict[str, Provider | None]:
        """The step's provider when it is done, by uuid."""
        provider = step.result(self.now.get(step.uuid))
        return {step.uuid: provider and replace(provider, generation=generation)}


class StepWriter:
    """Takes steps through one client and remembers what became of them."""

    def __init__(self, client: PlacementClient, memory: Memory) -> None:
        self._client: Final = client
        self._memory: Final = memory

    def write(self, tree: TreeUnderWay, step: Step) -> None:
        """Take one step."""
        if isinstance(step, Reshape):
            self._reshape(tree, step)
        else:
            self._memory.save({uuid: self._intent(tree, uuid) for uuid in step.touched})
            tree.now |= self._send(tree, step)
        self._memory.save({uuid: self._result(tree, uuid) for uuid in step.touched})

    def has_published(self, uuid: str) -> bool:
        """Whether a provider is known to be as this instance has put it there before."""
        return self._memory.get(uuid).applied is not None

    def write_instead(self, tree: TreeUnderWay, step: SetInventories) -> None:
        """Take a step that is none of the plan's, in place of one that was refused.

        Its provider is still to become what was planned, and the figures that it has now are to be
        restored if it does not.
        """
        record = self._intent(tree, step.uuid)
        figures = full_reservation.own_reserved(step.before, self._memory.get(step.uuid))
        own_reserved = {**figures, **record.own_reserved}
        self._memory.save({step.uuid: replace(record, own_reserved=own_reserved)})
        tree.now |= self._send(tree, step)
        live = tree.now[step.uuid]
        self._memory.save({step.uuid: replace(record, own_reserved=own_reserved, live=live)})

    def write_together(self, batch: Sequence[tuple[TreeUnderWay, SetInventories]]) -> None:
        """Replace the inventories of several providers in one request, all or none."""
        self._memory.save({step.uuid: self._intent(tree, step.uuid) for tree, step in batch})
        self._client.reshape(
            {step.uuid: (tree.generation(step), step.after) for tree, step in batch}, {}
        )
        for tree, step in batch:
            # The answer has no generations. Measured: two more, one for nothing at all.
            raised = tree.generation(step) + (2 if step.after else 1)
            tree.now |= tree.after(step, raised)
        self._memory.save({step.uuid: self._result(tree, step.uuid) for tree, step in batch})

    def _intent(self, tree: TreeUnderWay, uuid: str) -> Record:
        record, planned, live = self._memory.get(uuid), tree.plan.records[uuid], tree.now.get(uuid)
        if planned is None:
            return replace(record, live=live)
        own_reserved = planned.own_reserved
        if record.own_reserved and live:
            # Until the reservation is seen to have ended, or a class to have gone, the figures to
            # restore are needed.
            figures = full_reservation.own_reserved(live.inventories, record)
            own_reserved = {**figures, **own_reserved}
        return replace(
            planned,
            live=live,
            # Our provider was deleted: our record proves nothing about a later one with its uuid.
            applied=record.applied if live else None,
            intended=planned.applied,
            own_reserved=own_reserved,
        )

    def _reshape_intent(self, tree: TreeUnderWay, uuid: str, left: Provider) -> Record:
        """What to remember before a reshape that leaves a provider so.

        A figure that it leaves for a moment must not be taken for the owner's own: it is as we
        left it, and the one that is to come is what is restored.
        """
        record, planned = self._intent(tree, uuid), tree.plan.records[uuid]
        wanted = planned.live.inventories if planned and planned.live else {}
        moment = {
            name: wanted[name].reserved
            for name, inventory in left.inventories.items()
            if name in wanted and inventory.reserved != wanted[name].reserved
        }
        return replace(record, live=left, own_reserved={**moment, **record.own_reserved})

    def _result(self, tree: TreeUnderWay, uuid: str) -> Record | None:
        """What to remember when one more step of a provider is done."""
        tree.left[uuid] -= 1
        live = tree.now[uuid]
        if tree.left[uuid]:
            return replace(self._memory.get(uuid), live=live)
        planned = tree.plan.records[uuid]
        return planned and replace(planned, live=live)

    def _send(self, tree: TreeUnderWay, step: Step) -> dict[str, Provider | None]:
        """Send a step's request; return the providers that it leaves behind."""
        client = self._client
        match step:
            case DeleteProvider():
                self._see_unchanged(tree, step)
                with suppress(NotFound):  # somebody was faster
                    client.delete_provider(step.uuid)
                return {step.uuid: None}
            case CreateProvider():
                try:
                    made = client.create_provider(step.uuid, step.name, step.parent_uuid)
                except DuplicateProvider:
                    self._memory.withdraw(step.uuid)
                    raise
                generation = made.generation
            case UpdateProvider(after=after):
                self._see_unchanged(tree, step)
                client.update_provider(step.uuid, after.name, after.parent_uuid)
                # This write checks no generation and raises none: what it answers may be that
                # of somebody's write which we have not read.
                generation = tree.generation(step)
            case SetTraits():
                generation = client.set_traits(step.uuid, tree.generation(step), step.after)
            case SetAggregates():
                generation = client.set_aggregates(step.uuid, tree.generation(step), step.after)
            case SetInventories():
                generation = client.set_inventories(step.uuid, tree.generation(step), step.after)
            case _:
                raise TypeError(f"no such step: {step!r}")
        return tree.after(step, generation)

    def _reshape(self, tree: TreeUnderWay, step: Reshape) -> None:
        """Send a reshape, and have the tree as it leaves it.

        Without generations, as the answer is: the next cycle reads the providers. Where a step
        follows, it names those that were raised as was measured: two for inventories, one for none
        at all, and one for allocations. If somebody else has written since, it is refused.
        """
        sent = {change.uuid: (tree.generation(change), change.after) for change in step.inventories}
        left = {}
        for change in step.inventories:
            for uuid, provider in tree.after(change, None).items():
                if provider is not None:
                    left[uuid] = provider
        self._memory.save(
            {uuid: self._reshape_intent(tree, uuid, provider) for uuid, provider in left.items()}
        )
        self._client.reshape(sent, step.allocations, step.name)
        used = {uuid for its in step.allocations.values() for uuid in its["allocations"]}
        for uuid, (generation, inventories) in sent.items():
            tree.raised[uuid] = generation + (2 if inventories else 1) + (uuid in used)
        tree.now |= left

    def _see_unchanged(self, tree: TreeUnderWay, step: Step) -> None:
        """See that a provider still has the traits that it was seen with.

        For writes that name no generation: somebody else's owner trait may have come. Raises
        ConcurrentUpdate. What comes between this look and the write cannot be seen.
        """
        known = tree.now.get(step.uuid)
        try:
            traits = self._client.get_traits(step.uuid).traits
        except NotFound:
            return  # the write's own answer decides
        if known and traits != known.traits:
            raise ConcurrentUpdate(
                request=f"{step.verb} {step.name}",
                status=HTTPStatus.CONFLICT,
                code="",
                detail="somebody else has changed its traits since it was read",
            )
