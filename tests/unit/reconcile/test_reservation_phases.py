"""Phases of stored reservations after an answer of the driver."""

from collections.abc import Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Final

import pytest

from tests.unit.reconcile.states import root, state_of
from wharfinger.objects import Reservation
from wharfinger.providers import DesiredProvider
from wharfinger.reconcile.reservation_phases import (
    Phases,
    next_phases,
    released_since,
    stored_figures,
)

METAL: Final = root("metal")
CONSUMER: Final = "00000000-0000-4000-8000-0000000000c1"
ROW: Final = "00000000-0000-4000-8000-0000000000d1"
SINCE: Final = datetime(2026, 11, 23, tzinfo=UTC)
KNOWN: Final = frozenset([(ROW, 3)])


def stored(phase: str | None, **fields: Any) -> Reservation:
    return Reservation(
        **{
            "uuid": ROW,
            "revision": 3,
            "provider_uuid": METAL.uuid,
            "phase": phase,
            "since": SINCE,
            "consumer_uuid": CONSUMER,
            **fields,
        }
    )


def after_snapshot(
    *rows: Reservation,
    reasons: tuple[str, ...] = (),
    before_snapshot: frozenset[tuple[str, int]] = KNOWN,
    is_stated: bool = True,
    is_desired: bool = True,
    is_clean: bool = False,
    is_released: bool = False,
    settled: Mapping[str, str | None] = MappingProxyType({}),
) -> tuple[set[str], Phases]:
    """Return the reserved providers and the new phases after a snapshot of the driver."""

    def answer_is_clean(uuid: str, since: datetime) -> bool:
        assert (uuid, since) == (METAL.uuid, SINCE)
        return is_clean

    def answer_is_released(uuid: str, consumer: str) -> bool:
        assert (uuid, consumer) == (METAL.uuid, CONSUMER)
        return is_released

    wanted = DesiredProvider(provider=METAL, stated=is_stated, reservations=reasons)
    state = state_of(
        METAL,
        reservations=rows,
        desired={METAL.uuid: wanted} if is_desired else {},
        snapshot_reservations=before_snapshot,
        settled=settled,
    )
    return next_phases(state, is_clean=answer_is_clean, is_released=answer_is_released)


@pytest.mark.parametrize(
    ("phase", "reasons", "answers", "after"),
    [
        ("releasing", (), {"is_released": True}, "released"),
        ("released", ("cleaning",), {"is_clean": True}, "cleaning"),
        ("released", (), {"is_clean": True}, None),
        ("cleaning", (), {}, None),
    ],
)
def test_next_phases_by_phase_and_answers_moves_or_ends_the_reservation(
    phase: str, reasons: tuple[str, ...], answers: dict[str, Any], after: str | None
) -> None:
    [row] = rows = (stored(phase),)

    held, phases = after_snapshot(*rows, reasons=reasons, **answers)

    assert phases == ((row, after),)
    assert held == ({METAL.uuid} if after else set())


@pytest.mark.parametrize(
    ("phase", "reasons", "answers"),
    [
        ("releasing", (), {"is_clean": True}),
        ("releasing", ("cleaning",), {}),
        ("released", (), {}),
        ("released", (), {"is_released": True}),
        ("cleaning", ("maintenance",), {"is_clean": True}),
        (None, (), {"is_clean": True, "is_released": True}),
    ],
)
def test_next_phases_without_the_needed_answer_keeps_the_reservation(
    phase: str | None, reasons: tuple[str, ...], answers: dict[str, Any]
) -> None:
    assert after_snapshot(stored(phase), reasons=reasons, **answers) == ({METAL.uuid}, ())


@pytest.mark.parametrize(
    "unknown",
    [
        {"before_snapshot": frozenset()},
        {"before_snapshot": frozenset([(ROW, 2)])},
        {"is_stated": False},
        {"is_desired": False},
    ],
    ids=["stored after the snapshot", "changed after the snapshot", "not stated", "not desired"],
)
@pytest.mark.parametrize("phase", ["releasing", "released", "cleaning"])
def test_next_phases_of_a_provider_that_the_snapshot_does_not_show_keeps_the_reservation(
    phase: str, unknown: dict[str, Any]
) -> None:
    found = after_snapshot(stored(phase), is_clean=True, is_released=True, **unknown)
    assert found == ({METAL.uuid}, ())


@pytest.mark.parametrize(
    ("phase", "field"),
    [("released", "since"), ("releasing", "consumer_uuid"), ("cleaning", "phase")],
)
def test_next_phases_of_a_row_that_lacks_a_needed_field_keeps_the_reservation(
    phase: str, field: str
) -> None:
    damaged = stored(phase)
    delattr(damaged, field)
    assert after_snapshot(damaged, is_clean=True, is_released=True) == ({METAL.uuid}, ())


def test_next_phases_of_a_release_without_consumer_keeps_the_reservation() -> None:
    row = stored("releasing", consumer_uuid=None)
    assert after_snapshot(row, is_released=True) == ({METAL.uuid}, ())


def test_next_phases_of_one_of_two_reservations_that_ends_keeps_the_provider_reserved() -> None:
    ends, stays = stored("cleaning"), stored(None, uuid=CONSUMER)
    assert after_snapshot(ends, stays) == ({METAL.uuid}, ((ends, None),))


@pytest.mark.parametrize("phase", [None, "released"])
def test_next_phases_of_a_settled_reservation_uses_the_known_phase(
    phase: str | None,
) -> None:
    row = stored(None)
    found = after_snapshot(row, before_snapshot=frozenset(), settled={ROW: phase})
    assert found == ({METAL.uuid} if phase else set(), ((row, phase),))


@pytest.mark.parametrize(
    ("phase", "before_snapshot", "released"),
    [
        ("released", frozenset(), {METAL.uuid}),
        ("released", frozenset([(ROW, 2)]), {METAL.uuid}),
        ("released", KNOWN, set()),
        (None, frozenset(), set()),
    ],
)
def test_released_since_returns_providers_released_after_the_snapshot(
    phase: str | None, before_snapshot: frozenset[tuple[str, int]], released: set[str]
) -> None:
    rows = [stored(phase)]
    state = state_of(METAL, reservations=rows, snapshot_reservations=before_snapshot)
    assert released_since(state) == released


def test_stored_figures_of_several_reservations_are_those_of_the_first_in_each_class() -> None:
    rows = [
        stored(None, own_reserved=amounts)
        for amounts in ({"VCPU": 1}, {"VCPU": 8, "VGPU": 2}, {"VGPU": 4})
    ]
    assert stored_figures([]) == {}
    assert stored_figures([stored(None), *rows]) == {"VCPU": 1, "VGPU": 2}
