"""A resource class that a provider in use keeps is not added to another provider of its tree."""

from collections.abc import Iterable, Mapping
from typing import Final

import pytest

from tests.unit.providers import world
from tests.unit.providers.world import Fuse, Memory, PlacementModel
from wharfinger.exceptions import InventoryInUse, ProviderInUse, WharfingerError
from wharfinger.placement.microversions import Microversion
from wharfinger.providers import Inventory, Provider, names
from wharfinger.providers.plan import DeleteProvider, SetInventories, Step, TreePlan
from wharfinger.reconcile.tree_write import TreeWrite

CN: Final = names.root_uuid("cn")
ELSEWHERE: Final = names.root_uuid("elsewhere")
Inventories = Mapping[str, Inventory]


def amount(total: int, **figures: float) -> Inventory:
    return Inventory(total=total, **figures)  # type: ignore[arg-type]


def provider(name: str, root: str = CN, **inventories: Inventory) -> Provider:
    """Return a child of a root, or the root itself if it has this name."""
    uuid = names.root_uuid(name)
    return Provider(
        uuid=uuid,
        name=name,
        root_uuid=root,
        parent_uuid=None if uuid == root else root,
        generation=1,
        inventories=inventories,
    )


def change(live: Provider, **after: Inventory) -> SetInventories:
    """Return the step that replaces the inventories of a provider."""
    return SetInventories(
        uuid=live.uuid,
        name=live.name,
        root_uuid=live.root_uuid,
        before=live.inventories,
        after=after,
    )


class InUse(PlacementModel):
    """A Placement that refuses to remove the providers in ``used`` or their resource classes."""

    def __init__(self, *providers: Provider, used: Iterable[str]) -> None:
        super().__init__(providers, Fuse())
        self._used = {names.root_uuid(name) for name in used}

    def delete_provider(self, uuid: str) -> None:
        if uuid in self._used:
            raise ProviderInUse(request="DELETE", status=409, code="", detail="in use")
        super().delete_provider(uuid)

    def set_inventories(self, uuid: str, generation: int, inventories: Inventories) -> int:
        self._refuse(uuid, inventories)
        return super().set_inventories(uuid, generation, inventories)

    def reshape(
        self,
        inventories: Mapping[str, tuple[int, Inventories]],
        allocations: Mapping[str, Mapping[str, object]],
        subject: str = "",
    ) -> None:
        for uuid, (_generation, content) in inventories.items():
            self._refuse(uuid, content)
        super().reshape(inventories, allocations, subject)

    def _refuse(self, uuid: str, after: Inventories) -> None:
        if uuid in self._used and self.providers[uuid].inventories.keys() - after.keys():
            raise InventoryInUse(request="PUT", status=409, code="", detail="in use")


def apply(client: PlacementModel, *steps: Step) -> list[WharfingerError]:
    """Apply steps; return the errors of their trees."""
    return world.apply(client, Memory(Fuse()), world.plan_of(client, *steps))


def totals(client: PlacementModel) -> dict[str, dict[str, int]]:
    """Return the totals of all providers, by name and resource class."""
    return {
        one.name: {kind: item.total for kind, item in one.inventories.items()}
        for one in client.providers.values()
    }


@pytest.fixture(params=["in a batch", "one by one"])
def one_by_one(request: pytest.FixtureRequest) -> bool:
    """Return whether the server is too old for batches of inventories."""
    return bool(request.param == "one by one")


def client_of(*providers: Provider, used: Iterable[str], one_by_one: bool) -> InUse:
    client = InUse(*providers, used=used)
    if one_by_one:
        client._microversion = Microversion(1, 29)
    return client


# The classes that a step decreases, and those that it increases.


@pytest.mark.parametrize(
    ("before", "after", "shrunk", "grown"),
    [
        ({"VGPU": amount(4)}, {}, {"VGPU"}, set()),
        ({}, {"VGPU": amount(4)}, set(), {"VGPU"}),
        ({"VGPU": amount(4)}, {"VGPU": amount(3)}, {"VGPU"}, set()),
        ({"VGPU": amount(4)}, {"VGPU": amount(5)}, set(), {"VGPU"}),
        ({"VGPU": amount(4)}, {"VGPU": amount(4, reserved=4)}, {"VGPU"}, set()),
        ({"VGPU": amount(4, reserved=4)}, {"VGPU": amount(4)}, set(), {"VGPU"}),
        ({"VCPU": amount(4, allocation_ratio=4.0)}, {"VCPU": amount(8)}, {"VCPU"}, set()),
        ({"VGPU": amount(4)}, {"VGPU": amount(4, max_unit=2)}, set(), set()),
        ({"VGPU": amount(4), "PGPU": amount(1)}, {"PGPU": amount(2)}, {"VGPU"}, {"PGPU"}),
    ],
)
def test_set_inventories_shrinks_and_grows_by_the_amounts_that_can_be_allocated(
    before: Inventories, after: Inventories, shrunk: set[str], grown: set[str]
) -> None:
    step = SetInventories(uuid=CN, name="cn", root_uuid=CN, before=before, after=after)
    assert set(step.shrunk) == shrunk
    assert set(step.grown) == grown


# Classes that stay.


def test_class_that_a_provider_in_use_keeps_is_not_added_to_another_provider(
    one_by_one: bool,
) -> None:
    cn, gpu = provider("cn", VCPU=amount(8), VGPU=amount(4)), provider("gpu")
    client = client_of(cn, gpu, used=["cn"], one_by_one=one_by_one)

    errors = apply(client, change(cn, VCPU=amount(8)), change(gpu, VGPU=amount(4)))

    assert [type(error) for error in errors] == [InventoryInUse]
    assert totals(client) == {"cn": {"VCPU": 8, "VGPU": 4}, "gpu": {}}


def test_class_that_a_provider_gives_up_is_added_to_another_provider(one_by_one: bool) -> None:
    cn, gpu = provider("cn", VCPU=amount(8), VGPU=amount(4)), provider("gpu")
    client = client_of(cn, gpu, used=[], one_by_one=one_by_one)

    assert apply(client, change(cn, VCPU=amount(8)), change(gpu, VGPU=amount(4))) == []
    assert totals(client) == {"cn": {"VCPU": 8}, "gpu": {"VGPU": 4}}


def test_provider_with_one_class_held_back_gets_none_of_its_classes(one_by_one: bool) -> None:
    cn, gpu = provider("cn", VGPU=amount(4)), provider("gpu")
    client = client_of(cn, gpu, used=["cn"], one_by_one=one_by_one)

    apply(client, change(cn), change(gpu, VGPU=amount(4), PGPU=amount(1)))

    assert totals(client) == {"cn": {"VGPU": 4}, "gpu": {}}


def test_classes_that_do_not_grow_and_other_classes_are_written(one_by_one: bool) -> None:
    cn = provider("cn", VGPU=amount(4))
    less, other, equal = (
        provider("less", VGPU=amount(9)),
        provider("other"),
        provider("equal", VGPU=amount(2)),
    )
    client = client_of(cn, less, other, equal, used=["cn"], one_by_one=one_by_one)

    errors = apply(
        client,
        change(cn),
        change(less, VGPU=amount(8)),
        change(other, PGPU=amount(1)),
        change(equal, VGPU=amount(2), PGPU=amount(3)),
    )

    assert len(errors) == 1
    assert totals(client) == {
        "cn": {"VGPU": 4},
        "less": {"VGPU": 8},
        "other": {"PGPU": 1},
        "equal": {"VGPU": 2, "PGPU": 3},
    }


def test_class_that_the_provider_in_use_was_to_keep_is_added_to_another_provider(
    one_by_one: bool,
) -> None:
    cn, numa = provider("cn", VCPU=amount(8), VGPU=amount(4)), provider("numa")
    client = client_of(cn, numa, used=["cn"], one_by_one=one_by_one)

    apply(client, change(cn, VCPU=amount(8)), change(numa, VCPU=amount(2)))

    assert totals(client) == {"cn": {"VCPU": 8, "VGPU": 4}, "numa": {"VCPU": 2}}


def test_class_that_a_provider_in_use_keeps_is_added_in_another_tree(one_by_one: bool) -> None:
    cn, elsewhere = provider("cn", VGPU=amount(4)), provider("elsewhere", ELSEWHERE)
    client = client_of(cn, elsewhere, used=["cn"], one_by_one=one_by_one)

    apply(client, change(cn), change(elsewhere, VGPU=amount(4)))

    assert totals(client) == {"cn": {"VGPU": 4}, "elsewhere": {"VGPU": 4}}


def test_classes_that_several_providers_in_use_keep_are_not_added_to_others(
    one_by_one: bool,
) -> None:
    one, two, gpu = provider("cn", VGPU=amount(4)), provider("two", PGPU=amount(1)), provider("gpu")
    fpga, nic = provider("fpga"), provider("nic")
    client = client_of(one, two, gpu, fpga, nic, used=["cn", "two"], one_by_one=one_by_one)

    errors = apply(
        client,
        change(one),
        change(two),
        change(gpu, VGPU=amount(4)),
        change(fpga, PGPU=amount(1)),
        change(nic, SRIOV_NET_VF=amount(8)),
    )

    assert [type(error) for error in errors] == [InventoryInUse] * 2
    assert totals(client) == {
        "cn": {"VGPU": 4},
        "two": {"PGPU": 1},
        "gpu": {},
        "fpga": {},
        "nic": {"SRIOV_NET_VF": 8},
    }


def test_provider_that_cannot_be_deleted_does_not_prevent_the_deletion_of_others() -> None:
    kept, gone = provider("kept"), provider("gone")
    client = InUse(kept, gone, used=["kept"])
    steps = [
        DeleteProvider(uuid=one.uuid, name=one.name, root_uuid=one.root_uuid)
        for one in (kept, gone)
    ]

    errors = apply(client, *steps)

    assert [type(error) for error in errors] == [ProviderInUse]
    assert set(totals(client)) == {"kept"}


def test_refused_step_prevents_only_later_steps_of_its_provider() -> None:
    cn, gpu = provider("cn", VGPU=amount(4)), provider("gpu")
    first, again, beside = change(cn), change(cn, VCPU=amount(1)), change(gpu, PGPU=amount(1))
    tree = TreeWrite(TreePlan(root_uuid=CN, steps=(first, again, beside)))

    tree.refuse(first, InventoryInUse(request="PUT", status=409, code="", detail="in use"))

    assert not tree.goes_on_with(again)
    assert tree.goes_on_with(beside)
