"""A model of Placement and of the records, to which the real Writer applies plans.

It sends no requests and writes no files. A fuse can stop all writes before a given one, as a crash
does.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from keystoneauth1.adapter import Adapter
from keystoneauth1.session import Session

from wharfinger.exceptions import (
    ConcurrentUpdate,
    Conflict,
    DuplicateProvider,
    ProviderInUse,
    WharfingerError,
)
from wharfinger.objects import Context
from wharfinger.placement.client import PlacementClient
from wharfinger.placement.microversions import HIGHEST, Feature, Microversion
from wharfinger.placement.model import ProviderSummary, Traits, WithGeneration
from wharfinger.providers import Inventory, Provider, ProviderTree
from wharfinger.providers.ownership import Publisher
from wharfinger.providers.plan import Plan, Step, TreePlan
from wharfinger.providers.plan_draft import PlanFacts, own_view
from wharfinger.providers.provider import Record, Uptime
from wharfinger.providers.tree_planner import plan_trees
from wharfinger.reconcile.apply import Writer
from wharfinger.reconcile.record_store import RecordStore, RowChanges
from wharfinger.reconcile.tree_write import TreeWrite

Answer = TypeVar("Answer")
Driver = Callable[[ProviderTree], None]


class Crash(Exception):
    """Stands for the death of the process."""


@dataclass(slots=True)
class Fuse:
    """Allows ``left`` writes (None: any number), and then raises Crash."""

    left: int | None = None

    def burn(self) -> None:
        if self.left is None:
            return
        if self.left == 0:
            raise Crash
        self.left -= 1


class PlacementModel(PlacementClient):
    """A Placement in memory, which refuses the writes that Placement refuses."""

    def __init__(self, providers: Iterable[Provider], fuse: Fuse) -> None:
        super().__init__(Adapter(Session()))
        self._microversion = HIGHEST
        self.providers = {
            provider.uuid: replace(provider, generation=provider.generation or 0)
            for provider in providers
        }
        self._fuse = fuse

    def require(self, feature: Feature, purpose: str) -> None:
        pass

    def send(
        self,
        method: str,
        path: str,
        body: Any,
        kind: type[Answer],
        *,
        newest: Microversion = HIGHEST,
        subject: str = "",
    ) -> Answer:
        answer: ProviderSummary | WithGeneration
        match method, path.split("/")[1:]:
            case "POST", ["resource_providers"]:
                parent = body.get("parent_provider_uuid")
                answer = self.create_provider(body["uuid"], body["name"], parent)
            case "PUT", ["resource_providers", uuid]:
                answer = self.update_provider(uuid, body["name"], body["parent_provider_uuid"])
            case "PUT", ["resource_providers", uuid, part]:
                replace_part: Callable[[str, int, Any], int] = {
                    "aggregates": self.set_aggregates,
                    "inventories": self.set_inventories,
                    "traits": self.set_traits,
                }[part]
                generation = body["resource_provider_generation"]
                answer = WithGeneration(replace_part(uuid, generation, body[part]))
            case _:
                raise AssertionError(f"{method} {path} has no model")
        assert isinstance(answer, kind)
        return answer

    def command(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        newest: Microversion = HIGHEST,
        subject: str = "",
    ) -> None:
        match method, path.split("/")[1:]:
            case "DELETE", ["resource_providers", uuid]:
                self.delete_provider(uuid)
            case "POST", ["reshaper"]:
                inventories = {
                    uuid: (one["resource_provider_generation"], one["inventories"])
                    for uuid, one in body["inventories"].items()
                }
                self.reshape(inventories, body["allocations"], subject)
            case "PUT", ["traits", name]:
                self.create_trait(name)
            case "PUT", ["resource_classes", name]:
                self.create_resource_class(name)
            case _:
                raise AssertionError(f"{method} {path} has no model")

    def create_trait(self, name: str) -> None:
        pass

    def create_resource_class(self, name: str) -> None:
        pass

    def list_traits(self, names: Iterable[str]) -> frozenset[str]:
        return frozenset(names)

    def create_provider(self, uuid: str, name: str, parent_uuid: str | None) -> ProviderSummary:
        self._fuse.burn()
        self._refuse_name(uuid, name)
        if uuid in self.providers:
            raise _refused(DuplicateProvider, uuid)
        root_uuid = self.providers[parent_uuid].root_uuid if parent_uuid else uuid
        self.providers[uuid] = Provider(
            uuid=uuid, name=name, root_uuid=root_uuid, parent_uuid=parent_uuid, generation=0
        )
        return self._summary(uuid)

    def update_provider(self, uuid: str, name: str, parent_uuid: str | None) -> ProviderSummary:
        self._fuse.burn()
        self._refuse_name(uuid, name)
        above = parent_uuid
        while above is not None:
            assert above != uuid, "a provider cannot stand below itself"
            above = self.providers[above].parent_uuid
        self.providers[uuid] = replace(self.providers[uuid], name=name, parent_uuid=parent_uuid)
        for one in list(self.providers):
            self.providers[one] = replace(self.providers[one], root_uuid=self._top(one))
        return self._summary(uuid)

    def delete_provider(self, uuid: str) -> None:
        self._fuse.burn()
        if any(provider.parent_uuid == uuid for provider in self.providers.values()):
            raise _refused(ProviderInUse, uuid)
        del self.providers[uuid]

    def set_traits(self, uuid: str, generation: int, traits: Iterable[str]) -> int:
        return self._set(uuid, generation, traits=frozenset(traits))

    def set_aggregates(self, uuid: str, generation: int, aggregates: Iterable[str]) -> int:
        return self._set(uuid, generation, aggregates=frozenset(aggregates))

    def set_inventories(
        self, uuid: str, generation: int, inventories: Mapping[str, Inventory]
    ) -> int:
        return self._set(uuid, generation, inventories=dict(inventories))

    def get_traits(self, uuid: str) -> Traits:
        provider = self.providers[uuid]
        return Traits(provider.generation or 0, provider.traits)

    def reshape(
        self,
        inventories: Mapping[str, tuple[int, Mapping[str, Inventory]]],
        allocations: Mapping[str, Mapping[str, object]],
        subject: str = "",
    ) -> None:
        assert not allocations
        self._fuse.burn()
        for uuid, (generation, _content) in inventories.items():
            if self.providers[uuid].generation != generation:
                raise _refused(ConcurrentUpdate, uuid)
        for uuid, (generation, content) in inventories.items():
            self.providers[uuid] = replace(
                self.providers[uuid],
                inventories=dict(content),
                generation=generation + (2 if content else 1),
            )

    def _set(self, uuid: str, generation: int, **changes: object) -> int:
        self._fuse.burn()
        provider = self.providers[uuid]
        if provider.generation != generation:
            raise _refused(ConcurrentUpdate, uuid)
        edited: dict[str, object] = {**changes, "generation": generation + 1}
        self.providers[uuid] = replace(provider, **edited)  # type: ignore[arg-type]
        return generation + 1

    def _refuse_name(self, uuid: str, name: str) -> None:
        if any(one.name == name and one.uuid != uuid for one in self.providers.values()):
            raise _refused(DuplicateProvider, name)

    def _top(self, uuid: str) -> str:
        while (parent := self.providers[uuid].parent_uuid) is not None:
            uuid = parent
        return uuid

    def _summary(self, uuid: str) -> ProviderSummary:
        provider = self.providers[uuid]
        assert provider.generation is not None
        return ProviderSummary(
            provider.uuid,
            provider.name,
            provider.generation,
            provider.root_uuid,
            provider.parent_uuid,
        )


class Memory(RecordStore):
    """Records in memory; each write is atomic."""

    def __init__(self, fuse: Fuse) -> None:
        super().__init__(Context(), "host", "instance")
        self._fuse = fuse

    def write(self, changes: Sequence[RowChanges], *, reports_service: bool = False) -> None:
        assert all(one == RowChanges(records=one.records) for one in changes), (
            "only records are modelled"
        )
        self._fuse.burn()
        for uuid, record in (item for one in changes for item in one.records.items()):
            if record is None:
                self.records.pop(uuid, None)
            else:
                self.records[uuid] = record


@dataclass(slots=True)
class World:
    """A Placement, the records of one driver instance, and the time."""

    publisher: Publisher
    providers: Iterable[Provider] = ()
    allocated: frozenset[str] = frozenset()
    unseen_parents: frozenset[str] = frozenset()
    now: float = 1000.0
    delay: float = 60.0
    withheld: bool = False
    fuse: Fuse = field(default_factory=Fuse)
    placement: PlacementModel = field(init=False)
    memory: Memory = field(init=False)

    def __post_init__(self) -> None:
        self.placement = PlacementModel(self.providers, self.fuse)
        self.memory = Memory(self.fuse)

    @property
    def live(self) -> dict[str, Provider]:
        return self.placement.providers

    def by_name(self, name: str) -> Provider:
        (found,) = (provider for provider in self.live.values() if provider.name == name)
        return found

    def change(self, name: str, **changes: object) -> None:
        """Change a provider as another program."""
        provider = self.by_name(name)
        edited: dict[str, object] = {**changes, "generation": (provider.generation or 0) + 1}
        self.live[provider.uuid] = replace(provider, **edited)  # type: ignore[arg-type]

    def plan(self, driver: Driver) -> Plan:
        """Return the plan of a cycle, in which the driver edits Placement's tree."""
        records = self.memory.records
        tree = ProviderTree.from_providers(
            own_view(provider, records.get(uuid, Record())) for uuid, provider in self.live.items()
        )
        driver(tree)
        facts = PlanFacts(
            publisher=self.publisher,
            now=self.now,
            is_listing=True,
            allocated=self.allocated,
            removal_delay=self.delay,
            parents=self.unseen_parents,
            withheld=self.withheld,
            uptime=Uptime("boot", self.now),
        )
        trees = plan_trees(facts, tree.desired(), dict(self.live), records)
        return Plan(trees=trees)

    def cycle(self, driver: Driver) -> Plan:
        """Plan, and apply the plan tree by tree."""
        plan = self.plan(driver)
        self.apply(plan)
        return plan

    def apply(self, plan: Plan) -> None:
        for error in apply(self.placement, self.memory, plan):
            raise error

    def contents(self) -> dict[str, Provider]:
        """Return the providers of Placement without generations."""
        return {uuid: replace(one, generation=None) for uuid, one in self.live.items()}


def apply(
    client: PlacementClient,
    memory: Memory,
    plan: Plan,
    on_step: Callable[[Step], None] = lambda _step: None,
) -> list[WharfingerError]:
    """Apply a plan; return the errors of its trees."""
    trees = [TreeWrite(tree) for tree in plan.trees]
    Writer(client).apply(trees, memory, on_step)
    return [error for tree in trees for error in tree.errors]


def plan_of(client: PlacementModel, *steps: Step, **records: Record) -> Plan:
    """Return a plan of these steps, tree by tree; ``records`` are by provider uuid."""
    trees: dict[str, list[Step]] = {}
    for step in steps:
        trees.setdefault(step.root_uuid, []).append(step)
    return Plan(
        trees=tuple(
            TreePlan(
                root_uuid=root,
                steps=tuple(its),
                live={
                    uuid: client.providers[uuid]
                    for step in its
                    for uuid in step.touched
                    if uuid in client.providers
                },
                records={
                    uuid: records.get(uuid, Record()) for step in its for uuid in step.touched
                },
            )
            for root, its in trees.items()
        )
    )


def planned_records(plan: Plan) -> dict[str, Record | None]:
    """Return the records that a plan leaves, by provider uuid."""
    return {uuid: record for tree in plan.trees for uuid, record in tree.records.items()}


def gone(plan: Plan) -> set[str]:
    """Return the uuids of the absent providers that a plan removes or reserves."""
    return {uuid for tree in plan.trees for uuid in tree.gone}


def _refused(kind: type[Conflict], what: str) -> Conflict:
    return kind(request="a write", status=409, code="", detail=what)
