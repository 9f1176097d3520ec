"""The writer: records between the requests for a provider, and errors of Placement."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

import pytest

from tests.unit.providers.world import (
    Crash,
    Driver,
    Fuse,
    Memory,
    PlacementModel,
    World,
    apply,
    plan_of,
)
from wharfinger.exceptions import (
    ConcurrentUpdate,
    InventoryInUse,
    NotFound,
    PermissionRefused,
    PlacementError,
    WharfingerError,
)
from wharfinger.placement.model import Traits
from wharfinger.providers import (
    Inventory,
    Provider,
    ProviderTree,
    PublishingMode,
    full_reservation,
    names,
)
from wharfinger.providers.ownership import Publisher
from wharfinger.providers.plan import (
    DeleteProvider,
    Plan,
    Reshape,
    SetAggregates,
    SetInventories,
    Step,
    TreePlan,
)
from wharfinger.providers.provider import Record
from wharfinger.reconcile.record_store import RowChanges

US: Final = Publisher("gpus", "OWNER_NOVA")
HOST: Final = names.root_uuid("host")
OTHER: Final = Provider(
    uuid=names.root_uuid("other"), name="other", root_uuid=names.root_uuid("other"), generation=1
)


def overlaying(*, reserve: bool) -> Driver:
    """Return a driver that overlays the host, and reserves it if ``reserve``."""

    def driver(tree: ProviderTree) -> None:
        tree.set_publishing_mode("host", PublishingMode.OVERLAY)
        if reserve:
            tree.reserve("host", "maintenance")

    return driver


def host(**contents: Any) -> Provider:
    return replace(Provider(uuid=HOST, name="host", root_uuid=HOST, generation=1), **contents)


@pytest.mark.parametrize("writes", range(4))
def test_release_after_a_crash_restores_the_own_amounts(writes: int) -> None:
    theirs = {"VCPU": Inventory(total=8, reserved=2)}
    world = World(US, [host(inventories=theirs)])
    world.cycle(overlaying(reserve=True))
    world.fuse.left = writes
    with suppress(Crash):
        world.cycle(overlaying(reserve=False))
    world.fuse.left = None
    world.cycle(overlaying(reserve=False))
    assert world.by_name("host").inventories == theirs


@pytest.mark.parametrize("writes", range(4))
def test_release_after_a_crash_keeps_amounts_written_by_the_owner(writes: int) -> None:
    world = World(US, [host(inventories={"VCPU": Inventory(total=8, reserved=2)})])
    world.cycle(overlaying(reserve=True))
    theirs = {"VCPU": Inventory(total=8, reserved=3)}
    world.change("host", inventories=theirs, traits=frozenset())
    world.fuse.left = writes
    with suppress(Crash):
        world.cycle(overlaying(reserve=False))
    world.fuse.left = None
    world.cycle(overlaying(reserve=False))
    assert world.by_name("host").inventories == theirs


def test_crash_before_the_last_request_of_a_provider_leaves_an_intent_without_result() -> None:
    """The next cycle may remove each part that was intended, even if it was not written."""

    def driver(tree: ProviderTree) -> None:
        tree.new_root("host")
        tree.update_inventory("host", {"VGPU": {"total": 4}})
        tree.update_traits("host", ["CUSTOM_A"])

    world = World(US)
    world.fuse.left = 3  # the intents, and two requests
    with pytest.raises(Crash):
        world.cycle(driver)
    assert world.by_name("host").traits == US.traits | {"CUSTOM_A"}
    record = world.memory.get(HOST)
    assert record.applied is None
    assert record.intended is not None


class DeletedByAnother(PlacementModel):
    """A Placement in which another program deletes each provider first.

    It does so before the read of the traits, or between that read and our deletion.
    """

    def __init__(self, *providers: Provider, before_read: bool) -> None:
        super().__init__(providers, Fuse())
        self._before_read = before_read

    def get_traits(self, uuid: str) -> Traits:
        if self._before_read:
            raise _not_found()
        return super().get_traits(uuid)

    def delete_provider(self, uuid: str) -> None:
        raise _not_found()


@pytest.mark.parametrize("before_read", [True, False])
def test_deletion_of_a_provider_that_another_program_deleted_succeeds(
    before_read: bool,
) -> None:
    live = host(traits=US.traits)
    memory = Memory(Fuse())
    memory.write([RowChanges(records={HOST: Record(applied=live, live=live)})])
    step = DeleteProvider(uuid=HOST, name="host", root_uuid=HOST)
    tree = TreePlan(root_uuid=HOST, steps=(step,), live={HOST: live}, records={HOST: None})
    client = DeletedByAnother(live, before_read=before_read)
    assert apply(client, memory, Plan(trees=(tree,))) == []
    assert memory.records == {}


class Refusing(PlacementModel):
    """A Placement that refuses our credentials for aggregates and for reshapes.

    ``requests`` has the parts of providers that we tried to write.
    """

    def __init__(self, *providers: Provider, status: int) -> None:
        super().__init__(providers, Fuse())
        self.requests: list[str] = []
        self._error = PermissionRefused(
            request="a write", status=status, code="", detail="Refused.", remedy="Ask."
        )

    def set_aggregates(self, uuid: str, generation: int, aggregates: Iterable[str]) -> int:
        self.requests.append("aggregates")
        raise self._error

    def reshape(
        self,
        inventories: Mapping[str, tuple[int, Mapping[str, Inventory]]],
        allocations: Mapping[str, Mapping[str, object]],
        subject: str = "",
    ) -> None:
        self.requests.append("reshape")
        raise self._error

    def set_inventories(
        self, uuid: str, generation: int, inventories: Mapping[str, Inventory]
    ) -> int:
        self.requests.append("inventories")
        return super().set_inventories(uuid, generation, inventories)


def errors_of(client: PlacementModel, *steps: Step) -> list[WharfingerError]:
    """Apply steps; return the errors of their trees."""
    return apply(client, Memory(Fuse()), plan_of(client, *steps))


def reshape(uuid: str, name: str) -> Reshape:
    """Return a reshape that changes nothing."""
    change = SetInventories(uuid=uuid, name=name, root_uuid=uuid, before={}, after={})
    return Reshape(uuid=uuid, name=name, root_uuid=uuid, inventories=(change,), allocations={})


def add_vcpu(uuid: str, name: str) -> SetInventories:
    """Return the step that adds an inventory of one VCPU."""
    after = {"VCPU": Inventory(total=1)}
    return SetInventories(uuid=uuid, name=name, root_uuid=uuid, before={}, after=after)


def test_reshape_without_the_service_role_fails_only_its_tree() -> None:
    client = Refusing(host(), status=403)
    assert [type(error) for error in errors_of(client, reshape(HOST, "host"))] == [
        PermissionRefused
    ]


def test_reshape_with_refused_credentials_raises() -> None:
    with pytest.raises(PermissionRefused):
        errors_of(Refusing(host(), status=401), reshape(HOST, "host"))


@pytest.mark.parametrize("status", [401, 403])
def test_write_of_aggregates_with_refused_credentials_raises(status: int) -> None:
    aggregates = frozenset(["00000000-0000-0000-0000-00000000000a"])
    step = SetAggregates(
        uuid=HOST, name="host", root_uuid=HOST, before=frozenset(), after=aggregates
    )
    with pytest.raises(PermissionRefused):
        errors_of(Refusing(host(), status=status), step)


def test_inventories_without_the_service_role_are_set_one_by_one() -> None:
    client = Refusing(host(), OTHER, status=403)
    assert errors_of(client, add_vcpu(HOST, "host"), add_vcpu(OTHER.uuid, "other")) == []
    assert client.requests == ["reshape", "inventories", "inventories"]


def test_inventories_with_refused_credentials_are_sent_once() -> None:
    client = Refusing(host(), OTHER, status=401)
    with pytest.raises(PermissionRefused):
        errors_of(client, add_vcpu(HOST, "host"), add_vcpu(OTHER.uuid, "other"))
    assert client.requests == ["reshape"]


# A reshape, and the steps after it.

FULL: Final = {"VCPU": Inventory(total=8, reserved=8), "VGPU": Inventory(total=4)}
LOWERED: Final = {"VCPU": Inventory(total=8, reserved=6), "VGPU": Inventory(total=4)}


def reshaping(client: PlacementModel, **figures: int) -> Plan:
    """Return a plan with a reshape that lowers a reserved amount, and a step that restores it.

    ``figures`` are the own reserved amounts of the host if this instance reserves it.
    """
    where = {"uuid": HOST, "name": "host", "root_uuid": HOST}
    change = SetInventories(**where, before=FULL, after=LOWERED)
    steps = (
        Reshape(**where, inventories=(change,), allocations={}),
        SetInventories(**where, before=LOWERED, after=FULL),
    )
    after = host(inventories=FULL, traits=US.traits)
    record = Record(applied=after, live=after, own_reserved=figures, mode=PublishingMode.OVERLAY)
    return plan_of(client, *steps, **{HOST: record})


def test_step_after_a_reshape_names_the_generation_after_the_reshape() -> None:
    client, memory = PlacementModel([host(inventories=FULL)], Fuse()), Memory(Fuse())
    done: list[str] = []

    errors = apply(client, memory, reshaping(client), lambda step: done.append(step.verb))

    assert errors == []
    assert done == ["reshape", "set inventories"]
    assert client.providers[HOST].inventories == FULL
    assert memory.get(HOST).live == client.providers[HOST]


class Crashing(PlacementModel):
    """A Placement whose client crashes before a reshape, or before the step after it."""

    def __init__(self, *providers: Provider, before_reshape: bool) -> None:
        super().__init__(providers, Fuse())
        self._before_reshape = before_reshape

    def reshape(
        self,
        inventories: Mapping[str, tuple[int, Mapping[str, Inventory]]],
        allocations: Mapping[str, Mapping[str, object]],
        subject: str = "",
    ) -> None:
        if self._before_reshape:
            raise Crash
        super().reshape(inventories, allocations, subject)

    def set_inventories(
        self, uuid: str, generation: int, inventories: Mapping[str, Inventory]
    ) -> int:
        raise Crash


@pytest.mark.parametrize(("figures", "own"), [({"VCPU": 2, "VGPU": 0}, 2), ({}, 8)])
@pytest.mark.parametrize("before_reshape", [True, False])
def test_crash_around_a_reshape_keeps_the_own_amounts_apart_from_the_lowered_ones(
    before_reshape: bool, figures: dict[str, int], own: int
) -> None:
    client = Crashing(host(inventories=FULL), before_reshape=before_reshape)
    memory = Memory(Fuse())

    with pytest.raises(Crash):
        apply(client, memory, reshaping(client, **figures))

    left = memory.get(HOST)
    assert left.live == host(inventories=LOWERED, generation=None)
    live = client.providers[HOST].inventories
    assert live == (FULL if before_reshape else LOWERED)
    assert full_reservation.own_reserved(live, left) == {"VCPU": own, "VGPU": 0}
    owners = {**live, "VCPU": Inventory(total=8, reserved=5)}
    assert full_reservation.own_reserved(owners, left)["VCPU"] == 5


def test_reshape_as_last_step_keeps_the_own_amounts_apart_from_the_lowered_ones() -> None:
    client, memory = PlacementModel([host(inventories=FULL)], Fuse()), Memory(Fuse())
    change = SetInventories(uuid=HOST, name="host", root_uuid=HOST, before=FULL, after=LOWERED)
    step = Reshape(uuid=HOST, name="host", root_uuid=HOST, inventories=(change,), allocations={})
    full = host(inventories=FULL)
    record = Record(applied=full, live=full, own_reserved={"VCPU": 2, "VGPU": 0})

    assert apply(client, memory, plan_of(client, step, **{HOST: record})) == []

    left = memory.get(HOST)
    assert left.live == host(inventories=LOWERED, generation=None)
    assert full_reservation.own_reserved(LOWERED, left) == {"VCPU": 2, "VGPU": 0}


def test_refused_step_after_a_reshape_keeps_the_own_amounts_apart_from_the_lowered_ones() -> None:
    class Refusing(PlacementModel):
        def set_inventories(self, *_args: object, **_kwargs: object) -> int:
            raise error

    error = ConcurrentUpdate(request="a write", status=409, code="", detail="Refused.")
    client, memory = Refusing([host(inventories=FULL)], Fuse()), Memory(Fuse())

    assert apply(client, memory, reshaping(client, VCPU=2, VGPU=0)) == [error]

    left = memory.get(HOST)
    assert left.live == host(inventories=LOWERED, generation=None)
    live = client.providers[HOST].inventories
    assert live == LOWERED
    assert full_reservation.own_reserved(live, left) == {"VCPU": 2, "VGPU": 0}


def test_crash_before_a_reshape_that_releases_keeps_the_amounts_of_the_owner() -> None:
    theirs = {"VCPU": Inventory(total=8, reserved=3)}
    live = host(inventories=theirs, traits=US.traits)
    client, memory = Crashing(live, before_reshape=True), Memory(Fuse())
    record = Record(applied=live, live=live, own_reserved={"VCPU": 2})
    memory.write([RowChanges(records={HOST: record})])
    change = SetInventories(uuid=HOST, name="host", root_uuid=HOST, before=theirs, after=theirs)
    step = Reshape(uuid=HOST, name="host", root_uuid=HOST, inventories=(change,), allocations={})
    plan = plan_of(client, step, **{HOST: Record(applied=live, live=live)})

    with pytest.raises(Crash):
        apply(client, memory, plan)

    assert full_reservation.own_reserved(theirs, memory.get(HOST)) == {"VCPU": 3}


@pytest.mark.parametrize("kind", [PermissionRefused, InventoryInUse, ConcurrentUpdate])
def test_refused_reshape_prevents_the_steps_after_it(kind: type[PlacementError]) -> None:
    class Refusing(PlacementModel):
        def reshape(self, *_args: object, **_kwargs: object) -> None:
            raise error

        def set_inventories(self, *_args: object, **_kwargs: object) -> int:
            raise AssertionError("a step was sent after a refused reshape")

    remedy = {"remedy": "Ask."} if kind is PermissionRefused else {}
    error = kind(request="POST /reshaper", status=403, code="", detail="Refused.", **remedy)
    client = Refusing([host(inventories=FULL)], Fuse())

    assert apply(client, Memory(Fuse()), reshaping(client)) == [error]
    assert client.providers == {HOST: host(inventories=FULL)}


def test_tree_with_a_reshape_is_sent_apart_from_batches() -> None:
    client = PlacementModel([host(inventories=FULL), OTHER], Fuse())
    others = plan_of(client, add_vcpu(OTHER.uuid, "other"))
    plan = Plan(trees=(*reshaping(client).trees, *others.trees))
    done: list[tuple[str, str]] = []

    errors = apply(client, Memory(Fuse()), plan, lambda step: done.append((step.verb, step.name)))

    assert errors == []
    assert [verb for verb, name in done if name == "host"] == ["reshape", "set inventories"]
    assert ("set inventories", "other") in done
    assert client.providers[HOST].inventories == FULL


def _not_found() -> NotFound:
    return NotFound(request="a write", status=404, code="", detail="another program has deleted it")
