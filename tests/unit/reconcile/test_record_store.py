"""Conversion of a record's absence to the fields of an object, and back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.lab import samples
from wharfinger.providers.provider import Absence, Record, Uptime
from wharfinger.reconcile import record_store

SECONDS = st.floats(0, 2**40)
ABSENCES = st.builds(Absence, SECONDS, st.none() | st.builds(Uptime, st.uuids().map(str), SECONDS))
COUNTED = Absence(1763700000.123, Uptime(samples.uuid("boot"), 12345.678))


@given(st.none() | ABSENCES)
def test_record_with_an_absence_is_the_same_after_it_was_stored(absence: Absence | None) -> None:
    record = Record(absence=absence)
    assert record_store.to_record(record_store.to_object(samples.uuid("gpu"), record)) == record


@pytest.mark.parametrize(
    ("since", "expected"), [(None, None), (7.0, Absence(7.0)), (COUNTED.since, COUNTED)]
)
def test_record_that_an_old_release_wrote_counts_no_earlier_absence(
    since: float | None, expected: Absence | None
) -> None:
    """An old release writes absent_since, and keeps the fields that it does not know."""
    kept = record_store.to_object(samples.uuid("gpu"), Record(absence=COUNTED))
    kept.absent_since = since
    assert record_store.to_record(kept).absence == expected


def test_record_of_a_release_without_the_field_has_an_absence_without_uptime() -> None:
    assert record_store.to_record(
        samples.record(applied=None, absent_since=7.0, reserved_since={})
    ) == (Record(absence=Absence(7.0)))


@pytest.mark.parametrize(
    "document", ["", "{}", "null", '{"since": "7"}', '{"since": 7, "uptime": 1}']
)
def test_record_with_a_damaged_absence_is_refused(document: str) -> None:
    with pytest.raises(ValueError):
        record_store.to_record(samples.record(applied=None, absent_since=7.0, absence=document))
