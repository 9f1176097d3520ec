"""What one provider keeps, since it is in use, no neighbour offers too."""

from collections.abc import Iterable, Mapping
from typing import Final

import pytest

from tests.unit.providers.world import Fuse, Memory, PlacementModel
from wharfinger.exceptions import InventoryInUse, PlacementError, ProviderInUse
from wharfinger.placement.microversions import Microversion
from wharfinger.providers import Inventory, Provider, names
from wharfinger.providers.plan import DeleteProvider, Plan, SetInventories, Step
from wharfinger.providers.record import Record
from wharfinger.reconcile.apply import PlanApplier
from wharfinger.reconcile.step_writer import TreeUnderWay

CN: Final = names.root_uuid("cn")
ELSEWHERE: Final = names.root_uuid("elsewhere")
Inventories = Mapping[str, Inventory]


def some(total: int, **figures: float) -> Inventory:
    return Inventory(total=total, **figures)  # type: ignore[arg-type]


def below(name: str, root: str = CN, **inventories: Inventory) -> Provider:
    """A child of a root, or with that root's name the root."""
    uuid = names.root_uuid(name)
    return Provider(
        uuid=uuid,
        name=name,
        root_uuid=root,
        parent_uuid=None if uuid == root else root,
        generation=1,
        inventories=inventories,
    )


def gets(provider: Provider, **after: Inventory) -> SetInventories:
    return SetInventories(
        uuid=provider.uuid,
        name=provider.name,
        root_uuid=provider.root_uuid,
        before=provider.inventories,
        after=after,
    )


class InUse(PlacementModel):
    """A Placement in which what some providers have is allocated, and cannot be taken away."""

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


def apply(client: PlacementModel, *steps: Step) -> list[PlacementError]:
    plan = Plan(steps=steps, records={step.uuid: Record() for step in steps})
    return list(PlanApplier(client, Memory(Fuse())).apply(plan, dict(client.providers)).errors)


def totals(client: PlacementModel) -> dict[str, dict[str, int]]:
    return {
        one.name: {kind: item.total for kind, item in one.inventories.items()}
        for one in client.providers.values()
    }


@pytest.fixture(params=["together", "one by one"])
def alone(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "one by one")


def client_of(*providers: Provider, used: Iterable[str], alone: bool) -> InUse:
    client = InUse(*providers, used=used)
    if alone:
        client._microversion = Microversion(1, 29)
    return client


# What a change takes away, and what it adds.


@pytest.mark.parametrize(
    ("before", "after", "shrunk", "grown"),
    [
        ({"VGPU": some(4)}, {}, {"VGPU"}, set()),
        ({}, {"VGPU": some(4)}, set(), {"VGPU"}),
        ({"VGPU": some(4)}, {"VGPU": some(3)}, {"VGPU"}, set()),
        ({"VGPU": some(4)}, {"VGPU": some(5)}, set(), {"VGPU"}),
        ({"VGPU": some(4)}, {"VGPU": some(4, reserved=4)}, {"VGPU"}, set()),
        ({"VGPU": some(4, reserved=4)}, {"VGPU": some(4)}, set(), {"VGPU"}),
        ({"VCPU": some(4, allocation_ratio=4.0)}, {"VCPU": some(8)}, {"VCPU"}, set()),
        ({"VGPU": some(4)}, {"VGPU": some(4, max_unit=2)}, set(), set()),
        ({"VGPU": some(4), "PGPU": some(1)}, {"PGPU": some(2)}, {"VGPU"}, {"PGPU"}),
    ],
)
def test_more_or_less_is_what_can_be_allocated(
    before: Inventories, after: Inventories, shrunk: set[str], grown: set[str]
) -> None:
    step = SetInventories(uuid=CN, name="cn", root_uuid=CN, before=before, after=after)
    assert set(step.shrunk) == shrunk
    assert set(step.grown) == grown


# What is kept.


def test_what_is_in_use_and_kept_is_not_offered_by_a_neighbour_too(alone: bool) -> None:
    cn, gpu = below("cn", VCPU=some(8), VGPU=some(4)), below("gpu")
    client = client_of(cn, gpu, used=["cn"], alone=alone)

    errors = apply(client, gets(cn, VCPU=some(8)), gets(gpu, VGPU=some(4)))

    assert [type(error) for error in errors] == [InventoryInUse]
    assert totals(client) == {"cn": {"VCPU": 8, "VGPU": 4}, "gpu": {}}


def test_what_is_not_in_use_goes_to_the_neighbour(alone: bool) -> None:
    cn, gpu = below("cn", VCPU=some(8), VGPU=some(4)), below("gpu")
    client = client_of(cn, gpu, used=[], alone=alone)

    assert apply(client, gets(cn, VCPU=some(8)), gets(gpu, VGPU=some(4))) == []
    assert totals(client) == {"cn": {"VCPU": 8}, "gpu": {"VGPU": 4}}


def test_a_neighbour_gets_all_of_its_classes_or_none(alone: bool) -> None:
    cn, gpu = below("cn", VGPU=some(4)), below("gpu")
    client = client_of(cn, gpu, used=["cn"], alone=alone)

    apply(client, gets(cn), gets(gpu, VGPU=some(4), PGPU=some(1)))

    assert totals(client) == {"cn": {"VGPU": 4}, "gpu": {}}


def test_other_classes_and_what_only_shrinks_are_written_all_the_same(alone: bool) -> None:
    cn = below("cn", VGPU=some(4))
    less, other, equal = below("less", VGPU=some(9)), below("other"), below("equal", VGPU=some(2))
    client = client_of(cn, less, other, equal, used=["cn"], alone=alone)

    errors = apply(
        client,
        gets(cn),
        gets(less, VGPU=some(8)),
        gets(other, PGPU=some(1)),
        gets(equal, VGPU=some(2), PGPU=some(3)),
    )

    assert len(errors) == 1
    assert totals(client) == {
        "cn": {"VGPU": 4},
        "less": {"VGPU": 8},
        "other": {"PGPU": 1},
        "equal": {"VGPU": 2, "PGPU": 3},
    }


def test_a_class_of_which_it_was_to_keep_all_is_not_held_back(alone: bool) -> None:
    cn, numa = below("cn", VCPU=some(8), VGPU=some(4)), below("numa")
    client = client_of(cn, numa, used=["cn"], alone=alone)

    apply(client, gets(cn, VCPU=some(8)), gets(numa, VCPU=some(2)))

    assert totals(client) == {"cn": {"VCPU": 8, "VGPU": 4}, "numa": {"VCPU": 2}}


def test_what_one_tree_keeps_another_tree_may_offer(alone: bool) -> None:
    cn, elsewhere = below("cn", VGPU=some(4)), below("elsewhere", ELSEWHERE)
    client = client_of(cn, elsewhere, used=["cn"], alone=alone)

    apply(client, gets(cn), gets(elsewhere, VGPU=some(4)))

    assert totals(client) == {"cn": {"VGPU": 4}, "elsewhere": {"VGPU": 4}}


def test_several_that_are_in_use_keep_what_is_theirs(alone: bool) -> None:
    one, two, gpu = below("cn", VGPU=some(4)), below("two", PGPU=some(1)), below("gpu")
    fpga, nic = below("fpga"), below("nic")
    client = client_of(one, two, gpu, fpga, nic, used=["cn", "two"], alone=alone)

    errors = apply(
        client,
        gets(one),
        gets(two),
        gets(gpu, VGPU=some(4)),
        gets(fpga, PGPU=some(1)),
        gets(nic, SRIOV_NET_VF=some(8)),
    )

    assert [type(error) for error in errors] == [InventoryInUse] * 2
    assert totals(client) == {
        "cn": {"VGPU": 4},
        "two": {"PGPU": 1},
        "gpu": {},
        "fpga": {},
        "nic": {"SRIOV_NET_VF": 8},
    }


def test_a_provider_that_cannot_be_deleted_keeps_no_other_from_it() -> None:
    kept, gone = below("kept"), below("gone")
    client = InUse(kept, gone, used=["kept"])
    steps = [
        DeleteProvider(uuid=one.uuid, name=one.name, root_uuid=one.root_uuid)
        for one in (kept, gone)
    ]

    errors = apply(client, *steps)

    assert [type(error) for error in errors] == [ProviderInUse]
    assert set(totals(client)) == {"kept"}


def test_what_was_refused_to_a_provider_ends_that_providers_steps_alone() -> None:
    cn, gpu = below("cn", VGPU=some(4)), below("gpu")
    first, again, beside = gets(cn), gets(cn, VCPU=some(1)), gets(gpu, PGPU=some(1))
    tree = TreeUnderWay.of(Plan(steps=(first, again, beside)), {})

    tree.refuse(first, InventoryInUse(request="PUT", status=409, code="", detail="in use"))

    assert not tree.goes_on_with(again)
    assert tree.goes_on_with(beside)
