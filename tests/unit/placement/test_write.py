"""What is remembered between the writes of a provider, and which refusals end what."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, Final

import pytest

from tests.unit.providers.world import Crash, Driver, Fuse, Memory, PlacementModel, World
from wharfinger.exceptions import NotFound, PermissionRefused, PlacementError
from wharfinger.placement.apply import PlanApplier
from wharfinger.placement.model import Traits
from wharfinger.providers import Inventory, Provider, ProviderTree, PublishingMode, names
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
    return Provider(uuid=HOST, name="host", root_uuid=HOST, generation=1, **contents)


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
    assert applier.apply(Plan(steps=(step,), records={HOST: None}), {HOST: live}) == []
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
    return PlanApplier(client, Memory(Fuse())).apply(plan, dict(client.providers))


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


def _not_found() -> NotFound:
    return NotFound(request="a write", status=404, code="", detail="somebody was faster")
