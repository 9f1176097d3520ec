"""Full reservations of providers at their adoption by a driver instance."""

from typing import Any, Final

import pytest

from wharfinger.providers import DesiredProvider, Inventory, Provider, PublishingMode
from wharfinger.providers.full_reservation import foreign_reservation
from wharfinger.providers.ownership import Publisher
from wharfinger.providers.plan import TreePlan
from wharfinger.providers.plan_draft import PlanFacts
from wharfinger.providers.provider import Record
from wharfinger.providers.tree_planner import plan_trees

NODE: Final = "6f9de2f4-9d0c-4d0f-a4a6-0c2c5b1f7d31"
ROOT: Final = "5c1f9a37-77a5-4a52-b7b6-2f6f0a3d5e11"
GOLD: Final = "CUSTOM_BAREMETAL_GOLD"
US: Final = Publisher("metal", "OWNER_NOVA", adopts_matching=True)
NOVA: Final = frozenset(["OWNER_NOVA"])
NONE: Final[frozenset[str]] = frozenset()


def provider(
    reserved: int,
    traits: frozenset[str] = NONE,
    *,
    kind: str = GOLD,
    total: int = 1,
    parent: str | None = None,
) -> Provider:
    return Provider(
        uuid=NODE,
        name="node",
        root_uuid=parent or NODE,
        parent_uuid=parent,
        generation=3,
        inventories={kind: Inventory(total=total, reserved=reserved)},
        traits=traits,
    )


def planned(
    live: Provider,
    *reasons: str,
    reports: int = 0,
    is_allocated: bool = False,
    record: Record | None = None,
    **more: Any,
) -> TreePlan:
    """Return the plan for the provider; the driver reports ``reports`` as its reserved amount."""
    [(kind, inventory)] = live.inventories.items()
    said = provider(reports, kind=kind, total=inventory.total, parent=live.parent_uuid)
    [plan] = plan_trees(
        PlanFacts(
            publisher=US,
            is_listing=True,
            allocated={NODE} if is_allocated else frozenset(),
            **more,
        ),
        [DesiredProvider(provider=said, reservations=reasons, reported=True)],
        {NODE: live},
        {NODE: record} if record else {},
    )
    assert not plan.problems
    return plan


def outcome(plan: TreePlan) -> tuple[int, dict[str, int], bool]:
    """Return the reserved amount after the plan, the own amounts, and whether it is foreign."""
    record = plan.records[NODE]
    assert record
    assert record.live
    [inventory] = record.live.inventories.values()
    foreign = foreign_reservation(record.live, record)
    return inventory.reserved, dict(record.own_reserved), foreign is not None


BARE_METAL: Final[dict[str, Any]] = {"kind": GOLD, "total": 1}
GPU: Final[dict[str, Any]] = {"kind": "VGPU", "total": 4, "parent": ROOT}
PCI: Final[dict[str, Any]] = {"kind": "CUSTOM_PCI_8086_1521", "total": 1, "parent": ROOT}
POOL: Final[dict[str, Any]] = {"kind": "CUSTOM_POOL", "total": 8}


@pytest.mark.parametrize("shape", [BARE_METAL, GPU, PCI, POOL])
@pytest.mark.parametrize("traits", [NOVA, NONE])
@pytest.mark.parametrize("is_allocated", [False, True])
@pytest.mark.parametrize("reasons", [(), ("cleaning",)])
def test_adoption_of_a_fully_reserved_provider_decides_who_reserved_it(
    shape: dict[str, Any], traits: frozenset[str], is_allocated: bool, reasons: tuple[str, ...]
) -> None:
    """The driver if it has a reason, nova on its bare metal, otherwise another program."""
    total = shape["total"]
    [kind] = {shape["kind"]}

    found = outcome(planned(provider(total, traits, **shape), *reasons, is_allocated=is_allocated))

    if reasons:
        assert found == (total, {kind: 0}, False)
    elif shape is BARE_METAL and (traits or is_allocated):
        assert found == (0, {}, False)
    else:
        assert found == (total, {}, True)


@pytest.mark.parametrize("traits", [NOVA, NONE])
def test_adoption_of_a_provider_that_the_driver_reports_as_full_records_the_drivers_amount(
    traits: frozenset[str],
) -> None:
    """A driver may report ``reserved == total`` without a reason."""
    assert outcome(planned(provider(1, traits), reports=1)) == (1, {}, False)


def test_reservation_of_an_adopted_provider_ends_with_its_reason_and_the_drivers_amount() -> None:
    """The own amount is the driver's, and not the value of the other program."""
    live = provider(4, NOVA, **GPU)
    first = planned(live, "cleaning", reports=1).records[NODE]
    assert first
    assert first.live

    free = planned(first.live, reports=1, record=first)

    assert outcome(free) == (1, {}, False)


def test_adoption_of_an_overlaid_provider_decides_by_the_same_rule() -> None:
    """Another program wrote the inventory until now, despite our instance trait."""
    live = provider(1, US.traits)
    applied = Provider(uuid=NODE, name="node", root_uuid=NODE, traits=US.traits)
    record = Record(applied=applied, live=live, mode=PublishingMode.OVERLAY)

    assert outcome(planned(live, record=record)) == (0, {}, False)


@pytest.mark.parametrize("reasons", [(), ("cleaning",)])
def test_provider_with_our_trait_and_a_lost_record_keeps_a_foreign_reservation(
    reasons: tuple[str, ...],
) -> None:
    """The provider is not adopted: a stored reservation of ours may be read later."""
    found = outcome(planned(provider(1, US.traits), *reasons))
    assert found == (1, {}, True)


def test_adoption_of_a_provider_with_a_stored_reservation_records_the_drivers_amount() -> None:
    """The stored reservation goes on, and ends with the driver's amount."""
    assert outcome(planned(provider(1, NOVA), held={NODE})) == (1, {GOLD: 0}, False)
