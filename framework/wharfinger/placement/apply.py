"""Applying a plan: intent is recorded before each write, its result after it.

A crash between any two leaves a state from which the next diff goes on: it knows what was
intended, whether it was written or not.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Final, Protocol

from oslo_log import log as logging

from wharfinger.exceptions import (
    InventoryInUse,
    NotFound,
    PlacementError,
    ProviderInUse,
    UnknownTrait,
)
from wharfinger.placement.client import PlacementClient
from wharfinger.placement.microversions import Feature
from wharfinger.providers import names
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

LOG: Final = logging.getLogger(__name__)
_BAD_REQUEST: Final = 400


class Memory(Protocol):
    """Where records are kept; a write is durable when ``save`` returns."""

    def get(self, uuid: str) -> Record:
        """The record of a provider; an empty one where there is none."""

    def save(self, records: Mapping[str, Record | None]) -> None:
        """Write records by provider uuid; None forgets."""


class PlanApplier:
    """Applies plans through one client; remembers which names exist."""

    def __init__(self, client: PlacementClient, memory: Memory) -> None:
        self._client: Final = client
        self._memory: Final = memory
        self._known_traits: set[str] = set()
        self._known_classes: set[str] = set()

    def apply(
        self,
        plan: Plan,
        live: Mapping[str, Provider],
        on_step: Callable[[Step], None] = lambda _step: None,
    ) -> None:
        """Take the steps in their order; ``on_step`` is called after each.

        ``live`` is what the plan was made from. A provider that is in use is left as it is,
        and the error raised at the end. Any other PlacementError, or StateError, is raised at
        once. What was done is remembered.
        """
        self._require_features(plan.steps)
        self._ensure_names(plan.steps)
        left = Counter(uuid for step in plan.steps for uuid in step.touched)
        self._memory.save(
            {uuid: record for uuid, record in plan.records.items() if uuid not in left}
        )
        # Only these: ``live`` may be a fleet, of which this is one tree.
        now: dict[str, Provider | None] = {uuid: live.get(uuid) for uuid in left}
        refused: dict[str, PlacementError] = {}
        for step in plan.steps:
            if not refused.keys().isdisjoint(step.touched):
                continue
            try:
                self._take(step, plan, now, left)
            except (InventoryInUse, ProviderInUse) as error:
                # This provider stays as it is; what its neighbours need does not wait for it.
                refused.update(dict.fromkeys(step.touched, error))
                continue
            LOG.info("%s: %s (%s)", step.verb, step.name, step.uuid)
            on_step(step)
        if refused:
            raise next(iter(refused.values()))

    def _take(
        self,
        step: Step,
        plan: Plan,
        now: dict[str, Provider | None],
        left: Counter[str],
    ) -> None:
        """One step: its intent, the write, its result."""
        self._memory.save({uuid: self._intent(plan, uuid, now.get(uuid)) for uuid in step.touched})
        try:
            now |= self._write(step, now)
        except PlacementError as error:
            if error.status == _BAD_REQUEST:
                # Somebody may have deleted a trait or class that we know to be there.
                self._known_traits.clear()
                self._known_classes.clear()
            raise
        left.subtract(step.touched)
        self._memory.save(
            {uuid: self._result(plan, uuid, now[uuid], left[uuid]) for uuid in step.touched}
        )

    def _intent(self, plan: Plan, uuid: str, live: Provider | None) -> Record:
        record, planned = self._memory.get(uuid), plan.records[uuid]
        if planned is None:
            return replace(record, live=live)
        return replace(
            planned,
            live=live,
            applied=record.applied,
            intended=planned.applied,
            # Until the reservation is seen to have ended, the figures to restore are needed.
            own_reserved=planned.own_reserved or record.own_reserved,
        )

    def _result(
        self, plan: Plan, uuid: str, live: Provider | None, steps_left: int
    ) -> Record | None:
        if steps_left:
            return replace(self._memory.get(uuid), live=live)
        planned = plan.records[uuid]
        return planned and replace(planned, live=live)

    def _write(self, step: Step, now: Mapping[str, Provider | None]) -> dict[str, Provider | None]:
        """Send a step's request; return the providers that it leaves behind."""
        client = self._client
        match step:
            case Reshape():
                return self._reshape(step, now)
            case DeleteProvider():
                with suppress(NotFound):  # somebody was faster
                    client.delete_provider(step.uuid)
                return {step.uuid: None}
            case CreateProvider():
                made = client.create_provider(step.uuid, step.name, step.parent_uuid)
                generation = made.generation
            case UpdateProvider(after=after):
                client.update_provider(step.uuid, after.name, after.parent_uuid)
                # This write checks no generation and raises none: what it answers may be that
                # of somebody's write which we have not read.
                generation = _generation(step, now)
            case SetTraits():
                generation = client.set_traits(step.uuid, _generation(step, now), step.after)
            case SetAggregates():
                generation = client.set_aggregates(step.uuid, _generation(step, now), step.after)
            case SetInventories():
                generation = client.set_inventories(step.uuid, _generation(step, now), step.after)
            case _:
                raise TypeError(f"no such step: {step!r}")
        return _after(step, now, generation)

    def _reshape(
        self, step: Reshape, now: Mapping[str, Provider | None]
    ) -> dict[str, Provider | None]:
        self._client.reshape(
            {change.uuid: (_generation(change, now), change.after) for change in step.inventories},
            step.allocations,
        )
        # The answer has no generations: without one, the next cycle reads the provider.
        done: dict[str, Provider | None] = {}
        for change in step.inventories:
            done |= _after(change, now, None)
        return done

    def _require_features(self, steps: Iterable[Step]) -> None:
        """See that the server can take all steps before the first is sent."""
        for step in steps:
            if isinstance(step, Reshape):
                self._client.require(Feature.RESHAPE, f"reshaping the tree of {step.name}")
            elif (
                isinstance(step, UpdateProvider)
                and step.before.parent_uuid != step.after.parent_uuid
            ):
                self._client.require(Feature.REPARENT, f"moving provider {step.name}")

    def _ensure_names(self, steps: Iterable[Step]) -> None:
        """See that all traits and classes exist before the first of them is written."""
        traits: set[str] = set()
        classes: set[str] = set()
        for step in steps:
            for part in step.inventories if isinstance(step, Reshape) else (step,):
                if isinstance(part, SetTraits):
                    traits |= part.after - part.before
                elif isinstance(part, SetInventories):
                    classes |= part.after.keys() - part.before.keys()
        traits -= self._known_traits
        classes -= self._known_classes
        self._check_standard_traits({trait for trait in traits if not names.is_custom(trait)})
        for name in sorted(traits):
            if names.is_custom(name):
                self._client.create_trait(name)
        for name in sorted(classes):
            if names.is_custom(name):
                self._client.create_resource_class(name)
        self._known_traits |= traits
        self._known_classes |= classes

    def _check_standard_traits(self, traits: set[str]) -> None:
        if not traits:
            return
        for trait in sorted(traits - self._client.list_traits(traits)):
            raise UnknownTrait(
                request="GET /traits",
                status=0,
                code="",
                trait=trait,
                detail="Its os-traits is older than ours: OWNER_* traits need os-traits 2.8 there. "
                "Nothing of this tree was written.",
            )


def _generation(step: Step, now: Mapping[str, Provider | None]) -> int:
    provider = now.get(step.uuid)
    if provider is None or provider.generation is None:
        raise ValueError(f"{step.verb} {step.name}: the plan was made from something else")
    return provider.generation


def _after(
    step: Step, now: Mapping[str, Provider | None], generation: int | None
) -> dict[str, Provider | None]:
    provider = step.result(now.get(step.uuid))
    return {step.uuid: provider and replace(provider, generation=generation)}
