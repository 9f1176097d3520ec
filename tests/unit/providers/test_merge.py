"""A provider and its record while it is reserved, after a merge with Placement's state."""

from collections.abc import Collection
from dataclasses import replace
from typing import Any

import pytest

from wharfinger.providers import DesiredProvider, Inventory, Provider, PublishingMode
from wharfinger.providers.full_reservation import foreign
from wharfinger.providers.ownership import Publisher
from wharfinger.providers.plan_draft import PlanFacts, merge, own_view
from wharfinger.providers.provider import Record

US = Publisher("gpus", "OWNER_NOVA")
UUID = "6f9de2f4-9d0c-4d0f-a4a6-0c2c5b1f7d31"
OWN, OVERLAY = PublishingMode.OWN, PublishingMode.OVERLAY


def provider(generation: int | None = None, **figures: tuple[int, int]) -> Provider:
    """Return our provider with (total, reserved) by class."""
    inventories = {
        name: Inventory(total=total, reserved=reserved)
        for name, (total, reserved) in figures.items()
    }
    return Provider(
        uuid=UUID,
        name="gpu",
        root_uuid=UUID,
        generation=generation,
        inventories=inventories,
        traits=US.traits,
    )


def figures(one: Provider) -> dict[str, tuple[int, int]]:
    return {name: (item.total, item.reserved) for name, item in one.inventories.items()}


def merged(
    said: Provider,
    live: Provider | None,
    record: Record | None = None,
    *reasons: str,
    mode: PublishingMode = OWN,
    now: float = 100.0,
    dropped: Collection[str] = (),
    **facts: Any,
) -> tuple[Provider, Record]:
    wanted = DesiredProvider(
        provider=said, mode=mode, reservations=reasons, reported=bool(said.inventories)
    )
    return merge(
        PlanFacts(publisher=US, now=now, is_listing=True, **facts),
        wanted,
        live,
        record or Record(),
        dropped,
    )


def live_of(after: Provider) -> Provider:
    """Return the provider as Placement has it after the write."""
    return replace(after, generation=1)


@pytest.mark.parametrize("reasons", [("cleaning",), ("cleaning", "maintenance")])
def test_new_provider_that_is_reserved_is_full_from_the_start(
    reasons: tuple[str, ...],
) -> None:
    after, record = merged(provider(VGPU=(4, 1), FPGA=(2, 0)), None, None, *reasons)

    assert figures(after) == {"VGPU": (4, 4), "FPGA": (2, 2)}
    assert record.own_reserved == {"VGPU": 1, "FPGA": 0}
    assert record.reservations == reasons


def test_provider_with_a_stored_reservation_is_full_without_a_drivers_reason() -> None:
    after, record = merged(provider(VGPU=(4, 1)), None, held={UUID})

    assert figures(after) == {"VGPU": (4, 4)}
    assert record.own_reserved == {"VGPU": 1}
    assert record.reservations == ()
    assert record.reserved_since == {}


@pytest.mark.parametrize(
    ("reasons", "is_held"), [(("cleaning",), False), ((), True), (("cleaning",), True)]
)
def test_provider_is_free_only_after_the_last_reason_and_stored_reservation(
    reasons: tuple[str, ...], is_held: bool
) -> None:
    said = provider(VGPU=(4, 1))
    after, record = merged(said, None, None, "cleaning", held={UUID})

    still, record = merged(
        said, live_of(after), record, *reasons, held={UUID} if is_held else set()
    )
    assert figures(still) == {"VGPU": (4, 4)}
    free, record = merged(said, live_of(still), record)

    assert figures(free) == {"VGPU": (4, 1)}
    assert record.own_reserved == {}
    assert record.reservations == ()


def test_foreign_full_amount_is_kept_in_every_cycle() -> None:
    said, live = provider(VGPU=(4, 1)), provider(1, VGPU=(4, 4))
    _after, record = merged(said, provider(0, VGPU=(4, 1)))
    for _ in range(3):
        after, record = merged(said, live, record)
        assert after == live
        assert foreign(after.inventories, record) == {"VGPU"}
        assert record.own_reserved == {}


def test_foreign_full_amount_follows_the_drivers_total() -> None:
    _after, record = merged(provider(VGPU=(4, 1)), None)
    after, record = merged(provider(VGPU=(6, 1)), provider(1, VGPU=(4, 4)), record)

    assert figures(after) == {"VGPU": (6, 6)}
    assert foreign(after.inventories, record) == {"VGPU"}


def test_foreign_reservation_ends_when_its_owner_lowers_it() -> None:
    said = provider(VGPU=(4, 1))
    _after, record = merged(said, None)
    after, record = merged(said, provider(1, VGPU=(4, 4)), record)
    after, record = merged(said, provider(2, VGPU=(4, 2)), record)

    assert figures(after) == {"VGPU": (4, 1)}, "what its driver says"
    assert foreign(after.inventories, record) == frozenset()


@pytest.mark.parametrize("mode", [OWN, OVERLAY])
def test_our_reservation_over_a_foreign_one_ends_and_leaves_it(mode: PublishingMode) -> None:
    said = provider(VGPU=(4, 1), FPGA=(2, 0))
    live = provider(1, VGPU=(4, 4), FPGA=(2, 0))
    _after, record = merged(said, provider(0, VGPU=(4, 1), FPGA=(2, 0)), mode=mode)

    after, record = merged(said, live, record, "cleaning", mode=mode)
    assert figures(after) == {"VGPU": (4, 4), "FPGA": (2, 2)}
    assert foreign(after.inventories, record) == {"VGPU"}
    after, record = merged(said, live_of(after), record, mode=mode)

    assert figures(after) == {"VGPU": (4, 4), "FPGA": (2, 0)}
    assert foreign(after.inventories, record) == {"VGPU"}


def test_foreign_amount_lowered_during_our_reservation_is_the_new_own_amount() -> None:
    said = provider()
    after, record = merged(said, provider(1, VGPU=(4, 4)), None, "cleaning", mode=OVERLAY)
    assert figures(after) == {"VGPU": (4, 4)}

    after, record = merged(said, provider(2, VGPU=(4, 3)), record, "cleaning", mode=OVERLAY)
    assert figures(after) == {"VGPU": (4, 4)}
    after, record = merged(said, live_of(after), record, mode=OVERLAY)

    assert figures(after) == {"VGPU": (4, 3)}


def test_full_amount_that_the_driver_reports_is_not_foreign() -> None:
    full, less = provider(VGPU=(4, 4)), provider(VGPU=(4, 1))
    after, record = merged(full, None)
    assert foreign(after.inventories, record) == frozenset()

    after, record = merged(full, live_of(after), record, "cleaning")
    assert record.own_reserved == {"VGPU": 4}
    after, record = merged(full, live_of(after), record)
    assert figures(after) == {"VGPU": (4, 4)}
    assert foreign(after.inventories, record) == frozenset()
    after, record = merged(less, live_of(after), record)

    assert figures(after) == {"VGPU": (4, 1)}


def test_class_of_another_owner_is_reserved_with_ours_and_restored() -> None:
    said, live = provider(VGPU=(4, 1)), provider(1, VGPU=(4, 1), CUSTOM_THEIRS=(9, 3))
    _after, record = merged(said, provider(0, VGPU=(4, 1)))

    after, record = merged(said, live, record, "cleaning")
    assert figures(after) == {"VGPU": (4, 4), "CUSTOM_THEIRS": (9, 9)}
    after, record = merged(said, live_of(after), record)

    assert figures(after) == {"VGPU": (4, 1), "CUSTOM_THEIRS": (9, 3)}
    assert record.applied is not None
    assert record.applied.inventories.keys() == {"VGPU"}


def test_full_class_of_another_owner_on_our_provider_is_foreign() -> None:
    said, live = provider(VGPU=(4, 1)), provider(1, VGPU=(4, 1), CUSTOM_THEIRS=(9, 9))
    _after, record = merged(said, provider(0, VGPU=(4, 1)))

    for reasons in ((), ("cleaning",), ()):
        after, record = merged(said, live, record, *reasons)
        live = live_of(after)
        assert foreign(after.inventories, record) == {"CUSTOM_THEIRS"}

    assert figures(after) == {"VGPU": (4, 1), "CUSTOM_THEIRS": (9, 9)}


def test_amount_that_the_driver_changes_during_a_reservation_is_restored() -> None:
    after, record = merged(provider(VGPU=(4, 1)), None, None, "cleaning")
    after, record = merged(provider(VGPU=(2, 2)), live_of(after), record, "cleaning")
    assert figures(after) == {"VGPU": (2, 2)}
    assert record.own_reserved == {"VGPU": 2}
    after, record = merged(provider(VGPU=(6, 0)), live_of(after), record, "cleaning")
    assert figures(after) == {"VGPU": (6, 6)}
    after, record = merged(provider(VGPU=(6, 0)), live_of(after), record)

    assert figures(after) == {"VGPU": (6, 0)}


def test_class_that_the_driver_adds_or_drops_during_a_reservation_changes() -> None:
    after, record = merged(provider(VGPU=(4, 1)), None, None, "cleaning")
    after, record = merged(provider(FPGA=(2, 1)), live_of(after), record, "cleaning")

    assert figures(after) == {"FPGA": (2, 2)}
    assert record.own_reserved == {"FPGA": 1}


def test_own_view_of_a_reserved_provider_has_the_drivers_amounts() -> None:
    said = provider(VGPU=(4, 1))
    after, record = merged(said, None, None, "cleaning")
    assert figures(own_view(live_of(after), record)) == {"VGPU": (4, 1)}


def test_own_view_of_a_foreign_reservation_is_unchanged() -> None:
    _after, record = merged(provider(VGPU=(4, 1)), None)
    live = provider(1, VGPU=(4, 4))
    assert own_view(live, record) == live


def test_start_of_a_reason_is_kept_while_the_driver_reports_it() -> None:
    said = provider(VGPU=(4, 1))
    after, record = merged(said, None, None, "cleaning", now=10.0)
    assert record.reserved_since == {"cleaning": 10.0}
    after, record = merged(said, live_of(after), record, "maintenance", "cleaning", now=20.0)
    assert record.reserved_since == {"maintenance": 20.0, "cleaning": 10.0}
    after, record = merged(said, live_of(after), record, "maintenance", now=30.0)
    assert record.reserved_since == {"maintenance": 20.0}
    after, record = merged(said, live_of(after), record, now=40.0)
    assert record.reserved_since == {}
    _after, record = merged(said, live_of(after), record, "cleaning", now=50.0)
    assert record.reserved_since == {"cleaning": 50.0}
