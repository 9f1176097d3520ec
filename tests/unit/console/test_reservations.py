"""The exact text of reservations."""

from datetime import UTC, datetime, timedelta

import pytest

from wharfinger.console import reservations
from wharfinger.placement.model import ProviderSummary
from wharfinger.scheduling.provider_details import UNKNOWN, Details, Reserved

NOW = datetime(2031, 5, 1, 12, tzinfo=UTC)
CLEANING = Reserved(
    provider_uuid="gpu",
    reason="cleaning",
    holder="driver metal on host-1",
    since=NOW - timedelta(minutes=12),
)
LOUD = Reserved(
    provider_uuid="gpu",
    reason="disk is loud",
    holder="operator",
    since=NOW - timedelta(hours=2, minutes=59),
    expected_end=NOW + timedelta(hours=1),
)
DAMAGED = Reserved(
    provider_uuid=UNKNOWN, reason=UNKNOWN, holder=UNKNOWN, since=UNKNOWN, expected_end=UNKNOWN
)


def lines(*held: Reserved, others: frozenset[str] | None = None) -> list[str]:
    summary = ProviderSummary("gpu", "gpu", 1, "gpu", None)
    details = Details(summary=summary, owners=(), reservations=held, reserved_by_others=others)
    return list(reservations.lines(details, NOW))


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-5, "0s"),
        (0, "0s"),
        (59, "59s"),
        (60, "1m"),
        (3599, "59m"),
        (3600, "1h"),
        (86399, "23h"),
        (86400, "1d"),
        (86400 * 400, "400d"),
    ],
)
def test_age_is_in_its_largest_unit(seconds: int, words: str) -> None:
    assert reservations.age(NOW - timedelta(seconds=seconds), NOW) == words


def test_each_holder_has_a_line() -> None:
    assert lines(CLEANING, LOUD) == [
        "reserved: cleaning, 12m (driver metal on host-1)",
        "reserved: disk is loud, 2h, until 2031-05-01T13:00:00+00:00 (operator)",
    ]


def test_reservation_after_its_expected_end_is_overdue() -> None:
    late = Reserved(
        provider_uuid="gpu", reason="fan", holder="operator", since=NOW, expected_end=NOW
    )
    assert lines(late) == ["reserved: fan, 0s, until 2031-05-01T12:00:00+00:00, overdue (operator)"]
    assert not reservations.is_overdue(LOUD.expected_end, NOW)


def test_unknown_field_is_a_question_mark() -> None:
    assert lines(DAMAGED) == ["reserved: ?, ?, until ? (?)"]
    assert set(reservations.as_data(DAMAGED).values()) == {UNKNOWN}


def test_foreign_reservation_is_shown_by_classes() -> None:
    assert lines(others=frozenset({"VGPU", "VCPU"})) == ["reserved by other programs: VCPU, VGPU"]
    assert lines(others=frozenset()) == lines() == []


def test_control_characters_are_escaped() -> None:
    evil = Reserved(provider_uuid="gpu", reason="\x1b[31mred", holder="a\nb", since=NOW)
    assert lines(evil) == ["reserved: \\x1b[31mred, 0s (a\\nb)"]


def test_times_as_data_are_in_iso_8601() -> None:
    assert reservations.as_data(LOUD) == {
        "reason": "disk is loud",
        "holder": "operator",
        "since": "2031-05-01T09:01:00+00:00",
        "expected_end": "2031-05-01T13:00:00+00:00",
    }
    assert reservations.as_data(CLEANING)["expected_end"] is None
