"""What is remembered between the writes of a provider, and which refusals end what."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

import pytest

from tests.unit.providers.world import Crash, Driver, Fuse, Memory, PlacementModel, World
from wharfinger.exceptions import (
    ConcurrentUpdate,
    InventoryInUse,
    NotFound,
    PermissionRefused,
    PlacementError,
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
)
from wharfinger.providers.record import Record
from wharfinger.reconcile.apply import PlanApplier

US: Final = Publisher("gpus", "OWNER_NOVA")
HOST: Final = names.root_uuid("host")
OTHER: Final = Provider(
    uuid=names.root_uuid("other"), name="other", root_uuid=names.root_uuid("other"), generation=1
)


def overlays(*, reserve: bool) -> Driver:
    def driver(tree: ProviderTree) -> None:
        tree.set_publishing_mode("host", PublishingMode.OVERLAY)
        if reserve:
            tree.reserve("host", "maintenance")

    return driver


def host(**contents: Any) -> Provider:
    return replace(Provider(uuid=HOST, name="host", root_uuid=HOST, generation=1), **contents)


@pytest.mark.parametrize("writes", range(4))
def test_a_release_that_is_cut_off_still_knows_the_figures_to_restore(writes: int) -> None:
    theirs = {"VCPU": Inventory(total=8, reserved=2)}
    world = World(US, [host(inventories=theirs)])
    world.cycle(overlays(reserve=True))
    world.fuse.left = writes
    with suppress(Crash):
        world.cycle(overlays(reserve=False))
    world.fuse.left = None
    world.cycle(overlays(reserve=False))
    assert world.by_name("host").inventories == theirs


@pytest.mark.parametrize("writes", range(4))
def test_a_release_that_is_cut_off_knows_what_the_owner_wrote_meanwhile(writes: int) -> None:
    world = World(US, [host(inventories={"VCPU": Inventory(total=8, reserved=2)})])
    world.cycle(overlays(reserve=True))
    theirs = {"VCPU": Inventory(total=8, reserved=3)}
    world.change("host", inventories=theirs, traits=frozenset())
    world.fuse.left = writes
    with suppress(Crash):
        world.cycle(overlays(reserve=False))
    world.fuse.left = None
    world.cycle(overlays(reserve=False))
    assert world.by_name("host").inventories == theirs


def test_nothing_is_taken_for_applied_before_the_last_write_of_its_provider() -> None:
    """What was intended might be written or not: it is ours to take away in either case."""

    def driver(tree: ProviderTree) -> None:
        tree.new_root("host")
        tree.update_inventory("host", {"VGPU": {"total": 4}})
        tree.update_traits("host", ["CUSTOM_A"])

    world = World(US)
    world.fuse.left = 1 + 3 * 2  # what is only remembered, then intent, request, result, twice
    with pytest.raises(Crash):
        world.cycle(driver)
    assert world.by_name("host").traits == US.traits | {"CUSTOM_A"}
    record = world.memory.get(HOST)
    assert record.applied is None
    assert record.intended is not None
    assert record.live == world.by_name("host")


class Gone(PlacementModel):
    """A Placement from which somebody else deletes what we are about to delete."""

    def __init__(self, *providers: Provider, before_the_look: bool) -> None:
        super().__init__(providers, Fuse())
        self._before_the_look = before_the_look

    def get_traits(self, uuid: str) -> Traits:
        if self._before_the_look:
            raise _not_found()
        return super().get_traits(uuid)

    def delete_provider(self, uuid: str) -> None:
        raise _not_found()


@pytest.mark.parametrize("before_the_look", [True, False])
def test_what_somebody_else_deleted_first_is_deleted(before_the_look: bool) -> None:
    live = host(traits=US.traits)
    memory = Memory(Fuse())
    memory.save({HOST: Record(applied=live, live=live)})
    step = DeleteProvider(uuid=HOST, name="host", root_uuid=HOST)
    applier = PlanApplier(Gone(live, before_the_look=before_the_look), memory)
    assert not applier.apply(Plan(steps=(step,), records={HOST: None}), {HOST: live}).errors
    assert memory.records == {}


class Refusing(PlacementModel):
    """A Placement that does not take our credentials for one kind of write."""

    def __init__(self, *providers: Provider, status: int) -> None:
        super().__init__(providers, Fuse())
        self.asked: list[str] = []
        self._error = PermissionRefused(
            request="a write", status=status, code="", detail="Refused.", remedy="Ask."
        )

    def set_aggregates(self, uuid: str, generation: int, aggregates: Iterable[str]) -> int:
        self.asked.append("aggregates")
        raise self._error

    def reshape(
        self,
        inventories: Mapping[str, tuple[int, Mapping[str, Inventory]]],
        allocations: Mapping[str, Mapping[str, object]],
        subject: str = "",
    ) -> None:
        self.asked.append("reshape")
        raise self._error

    def set_inventories(
        self, uuid: str, generation: int, inventories: Mapping[str, Inventory]
    ) -> int:
        self.asked.append("inventories")
        return super().set_inventories(uuid, generation, inventories)


def applied(client: PlacementModel, *steps: Step) -> list[PlacementError]:
    records = {step.uuid: Record() for step in steps}
    plan = Plan(steps=steps, records=records)
    return list(PlanApplier(client, Memory(Fuse())).apply(plan, dict(client.providers)).errors)


def moves(uuid: str, name: str) -> Reshape:
    change = SetInventories(uuid=uuid, name=name, root_uuid=uuid, before={}, after={})
    return Reshape(uuid=uuid, name=name, root_uuid=uuid, inventories=(change,), allocations={})


def fills(uuid: str, name: str) -> SetInventories:
    after = {"VCPU": Inventory(total=1)}
    return SetInventories(uuid=uuid, name=name, root_uuid=uuid, before={}, after=after)


def test_a_role_that_only_a_reshape_takes_fails_its_tree_alone() -> None:
    client = Refusing(host(), status=403)
    assert [type(error) for error in applied(client, moves(HOST, "host"))] == [PermissionRefused]


def test_credentials_that_are_not_taken_end_a_reshape_and_all_else() -> None:
    with pytest.raises(PermissionRefused):
        applied(Refusing(host(), status=401), moves(HOST, "host"))


@pytest.mark.parametrize("status", [401, 403])
def test_a_write_that_takes_no_special_role_and_is_refused_ends_everything(status: int) -> None:
    aggregates = frozenset(["00000000-0000-0000-0000-00000000000a"])
    step = SetAggregates(
        uuid=HOST, name="host", root_uuid=HOST, before=frozenset(), after=aggregates
    )
    with pytest.raises(PermissionRefused):
        applied(Refusing(host(), status=status), step)


def test_without_the_role_for_a_batch_inventories_are_set_one_by_one() -> None:
    client = Refusing(host(), OTHER, status=403)
    assert applied(client, fills(HOST, "host"), fills(OTHER.uuid, "other")) == []
    assert client.asked == ["reshape", "inventories", "inventories"]


def test_without_credentials_no_inventory_is_tried_after_the_batch() -> None:
    client = Refusing(host(), OTHER, status=401)
    with pytest.raises(PermissionRefused):
        applied(client, fills(HOST, "host"), fills(OTHER.uuid, "other"))
    assert client.asked == ["reshape"]


# A reshape, and what follows it.

FULL: Final = {"VCPU": Inventory(total=8, reserved=8), "VGPU": Inventory(total=4)}
MOMENT: Final = {"VCPU": Inventory(total=8, reserved=6), "VGPU": Inventory(total=4)}


def reshaping(**figures: int) -> Plan:
    """A reshape of a host for which a figure is lowered, and the full one afterwards.

    ``figures`` are the own ones, if it is reserved by us.
    """
    where = {"uuid": HOST, "name": "host", "root_uuid": HOST}
    change = SetInventories(**where, before=FULL, after=MOMENT)
    steps = (
        Reshape(**where, inventories=(change,), allocations={}),
        SetInventories(**where, before=MOMENT, after=FULL),
    )
    after = host(inventories=FULL, traits=US.traits)
    record = Record(applied=after, live=after, own_reserved=figures, mode=PublishingMode.OVERLAY)
    return Plan(steps=steps, records={HOST: record})


def test_what_follows_a_reshape_names_the_generation_that_it_left() -> None:
    client, memory = PlacementModel([host(inventories=FULL)], Fuse()), Memory(Fuse())
    done: list[str] = []

    outcome = PlanApplier(client, memory).apply(
        reshaping(), dict(client.providers), lambda step: done.append(step.verb)
    )

    assert not outcome.errors
    assert done == ["reshape", "set inventories"]
    assert client.providers[HOST].inventories == FULL
    assert memory.get(HOST).live == client.providers[HOST]


class Dying(PlacementModel):
    """A Placement whose client dies before it sets inventories alone, or as it reshapes."""

    def __init__(self, *providers: Provider, before_the_reshape: bool) -> None:
        super().__init__(providers, Fuse())
        self._before_the_reshape = before_the_reshape

    def reshape(
        self,
        inventories: Mapping[str, tuple[int, Mapping[str, Inventory]]],
        allocations: Mapping[str, Mapping[str, object]],
        subject: str = "",
    ) -> None:
        if self._before_the_reshape:
            raise Crash
        super().reshape(inventories, allocations, subject)

    def set_inventories(
        self, uuid: str, generation: int, inventories: Mapping[str, Inventory]
    ) -> int:
        raise Crash


@pytest.mark.parametrize(("figures", "own"), [({"VCPU": 2, "VGPU": 0}, 2), ({}, 8)])
@pytest.mark.parametrize("before_the_reshape", [True, False])
def test_a_figure_of_a_moment_is_never_taken_for_the_owners(
    before_the_reshape: bool, figures: dict[str, int], own: int
) -> None:
    client = Dying(host(inventories=FULL), before_the_reshape=before_the_reshape)
    memory = Memory(Fuse())

    with pytest.raises(Crash):
        PlanApplier(client, memory).apply(reshaping(**figures), dict(client.providers))

    left = memory.get(HOST)
    assert left.live == host(inventories=MOMENT, generation=None)
    live = client.providers[HOST].inventories
    assert live == (FULL if before_the_reshape else MOMENT)
    assert full_reservation.own_reserved(live, left) == {"VCPU": own, "VGPU": 0}
    owners = {**live, "VCPU": Inventory(total=8, reserved=5)}
    assert full_reservation.own_reserved(owners, left)["VCPU"] == 5


def test_what_the_owner_wrote_before_a_reshape_that_releases_it_is_the_owners() -> None:
    theirs = {"VCPU": Inventory(total=8, reserved=3)}
    live = host(inventories=theirs, traits=US.traits)
    client, memory = Dying(live, before_the_reshape=True), Memory(Fuse())
    memory.save({HOST: Record(applied=live, live=live, own_reserved={"VCPU": 2})})
    change = SetInventories(uuid=HOST, name="host", root_uuid=HOST, before=theirs, after=theirs)
    step = Reshape(uuid=HOST, name="host", root_uuid=HOST, inventories=(change,), allocations={})
    plan = Plan(steps=(step,), records={HOST: Record(applied=live, live=live)})

    with pytest.raises(Crash):
        PlanApplier(client, memory).apply(plan, dict(client.providers))

    assert full_reservation.own_reserved(theirs, memory.get(HOST)) == {"VCPU": 3}


@pytest.mark.parametrize("kind", [PermissionRefused, InventoryInUse, ConcurrentUpdate])
def test_nothing_follows_a_reshape_that_was_refused(kind: type[PlacementError]) -> None:
    class Refusing(PlacementModel):
        def reshape(self, *_args: object, **_kwargs: object) -> None:
            raise error

        def set_inventories(self, *_args: object, **_kwargs: object) -> int:
            raise AssertionError("it was not to be sent")

    remedy = {"remedy": "Ask."} if kind is PermissionRefused else {}
    error = kind(request="POST /reshaper", status=403, code="", detail="Refused.", **remedy)
    client = Refusing([host(inventories=FULL)], Fuse())

    outcome = PlanApplier(client, Memory(Fuse())).apply(reshaping(), dict(client.providers))

    assert outcome.errors == (error,)
    assert client.providers == {HOST: host(inventories=FULL)}


def test_the_steps_of_a_reshaped_tree_are_not_batched_with_others() -> None:
    client = PlacementModel([host(inventories=FULL), OTHER], Fuse())
    plan = Plan.merge([reshaping(), Plan(steps=(fills(OTHER.uuid, "other"),))])
    plan = replace(plan, records={**plan.records, OTHER.uuid: Record()})
    done: list[tuple[str, str]] = []

    outcome = PlanApplier(client, Memory(Fuse())).apply(
        plan, dict(client.providers), lambda step: done.append((step.verb, step.name))
    )

    assert not outcome.errors
    assert [verb for verb, name in done if name == "host"] == ["reshape", "set inventories"]
    assert ("set inventories", "other") in done
    assert client.providers[HOST].inventories == FULL


def _not_found() -> NotFound:
    return NotFound(request="a write", status=404, code="", detail="somebody was faster")
