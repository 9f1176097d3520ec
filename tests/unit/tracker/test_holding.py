"""The phases of a stored reservation after an answer of its driver."""

from datetime import UTC, datetime
from typing import Any, Final

import pytest

from wharfinger.objects import Reservation
from wharfinger.providers import DesiredProvider, Inventory, Provider
from wharfinger.providers.record import Record
from wharfinger.reconcile.reservation_phases import Judgement, StoredReservations

METAL: Final = "6f9de2f4-9d0c-4d0f-a4a6-0c2c5b1f7d31"
CONSUMER: Final = "00000000-0000-4000-8000-0000000000c1"
ROW: Final = "00000000-0000-4000-8000-0000000000d1"
SINCE: Final = datetime(2026, 11, 23, tzinfo=UTC)


def stored(phase: str | None, **fields: Any) -> Reservation:
    return Reservation(
        **{
            "uuid": ROW,
            "revision": 3,
            "provider_uuid": METAL,
            "phase": phase,
            "since": SINCE,
            "consumer_uuid": CONSUMER,
            **fields,
        }
    )


def provider(**figures: tuple[int, int]) -> Provider:
    inventories = {
        name: Inventory(total=total, reserved=reserved)
        for name, (total, reserved) in figures.items()
    }
    return Provider(uuid=METAL, name="metal", root_uuid=METAL, inventories=inventories)


def judged(
    one: Reservation,
    *reasons: str,
    earlier: bool = True,
    stated: bool = True,
    clean: bool = False,
    given_back: bool = False,
) -> Judgement:
    wanted = DesiredProvider(provider=provider(), stated=stated, reservations=reasons)
    reservations = StoredReservations({METAL: (one,)}, frozenset({(ROW, 3)} if earlier else ()))
    return reservations.judge(
        {METAL: wanted},
        is_clean=lambda uuid, since: clean and (uuid, since) == (METAL, SINCE),
        is_given_back=lambda uuid, who: given_back and (uuid, who) == (METAL, CONSUMER),
    )


@pytest.mark.parametrize(
    ("phase", "reasons", "answers", "after"),
    [
        ("releasing", (), {"given_back": True}, "released"),
        ("releasing", (), {"clean": True}, None),
        ("releasing", ("cleaning",), {}, None),
        ("released", ("cleaning",), {"clean": True}, "cleaning"),
        ("released", (), {}, None),
        ("released", (), {"clean": True}, "over"),
        ("cleaning", ("maintenance",), {"clean": True}, None),
        ("cleaning", (), {}, "over"),
        (None, (), {"clean": True, "given_back": True}, None),
    ],
)
def test_judge_by_phase_and_answers_moves_or_ends_the_reservation(
    phase: str | None, reasons: tuple[str, ...], answers: dict[str, bool], after: str | None
) -> None:
    one = stored(phase)

    found = judged(one, *reasons, **answers)

    assert found.over == ((one,) if after == "over" else ())
    assert found.moved == (((one, after),) if after not in (None, "over") else ())
    assert found.held == (frozenset() if after == "over" else {METAL})
    assert found.kept == (() if after == "over" else (one,))


@pytest.mark.parametrize("unknown", [{"earlier": False}, {"stated": False}])
@pytest.mark.parametrize("phase", ["released", "cleaning"])
def test_judge_of_what_the_snapshot_cannot_know_keeps_the_reservation(
    phase: str, unknown: dict[str, bool]
) -> None:
    found = judged(stored(phase), clean=True, **unknown)
    assert found.held == {METAL}
    assert (found.over, found.moved) == ((), ())


def test_judge_of_a_row_without_the_field_it_needs_keeps_the_reservation() -> None:
    for phase, field in (("released", "since"), ("releasing", "consumer_uuid")):
        damaged = stored(phase)
        delattr(damaged, field)
        found = judged(damaged, clean=True, given_back=True)
        assert found.held == {METAL}
        assert (found.over, found.moved) == ((), ())


def test_later_has_the_providers_released_after_the_snapshot() -> None:
    rows = {METAL: (stored("released"),)}
    assert StoredReservations(rows).later == {METAL}
    assert StoredReservations(rows, frozenset({(ROW, 3)})).later == frozenset()
    assert StoredReservations({METAL: (stored(None),)}).later == frozenset()


@pytest.mark.parametrize(
    ("is_held", "live", "record", "changes"),
    [
        (True, provider(VGPU=(4, 1)), Record(), True),
        (True, provider(VGPU=(4, 4)), Record(own_reserved={"VGPU": 1}), False),
        (False, provider(VGPU=(4, 4)), Record(own_reserved={"VGPU": 1}), True),
        (
            False,
            provider(VGPU=(4, 4)),
            Record(own_reserved={"VGPU": 1}, reservations=("cleaning",)),
            False,
        ),
        (False, provider(VGPU=(4, 4)), Record(), False),
    ],
)
def test_changes_where_a_provider_has_to_be_reserved_or_released(
    is_held: bool, live: Provider, record: Record, changes: bool
) -> None:
    rows = {METAL: (stored(None),)} if is_held else {}
    assert StoredReservations(rows).changes(METAL, live, record) is changes


def test_with_figures_takes_those_that_a_reservation_knows() -> None:
    rows = {METAL: (stored(None, own_reserved={"VGPU": 2}),)}
    records = {METAL: Record(own_reserved={"VGPU": 1, "FPGA": 1})}
    for reservations in (StoredReservations(rows), StoredReservations({}, before=rows)):
        found = reservations.with_figures(records, {METAL})
        assert found[METAL].own_reserved == {"VGPU": 2, "FPGA": 1}
        assert reservations.with_figures(records, ()) is records
