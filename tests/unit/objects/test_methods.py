"""Methods of objects that need no database."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.lab import samples
from wharfinger.db.migration import Schema
from wharfinger.exceptions import InvalidObject, StateError
from wharfinger.objects import Context, DeviceJob, Flavor, field_types
from wharfinger.objects.database_context import Condition
from wharfinger.objects.device_job import FINISHED, UNFINISHED

NOW = datetime(2031, 5, 1, 12, tzinfo=UTC)
BEFORE = NOW - timedelta(days=1)


@pytest.fixture(autouse=True)
def now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(field_types, "now", lambda: NOW)


@pytest.mark.parametrize(
    ("values", "same"),
    [
        ({}, True),
        ({"revision": 9}, True),
        ({"vcpus": 3}, False),
        ({"extra_specs": {"a": "1"}}, False),
        ({"swap": 0}, False),
    ],
    ids=str,
)
def test_is_as_compares_the_values_of_flavors(values: dict[str, Any], same: bool) -> None:
    one, other = samples.flavor(None, revision=1), samples.flavor(None, **values)
    assert (one.is_same_as(other), other.is_same_as(one)) == (same, same)


def job(**values: Any) -> DeviceJob:
    made = samples.device_job(None, **values)
    made.obj_set_defaults()
    return made


@pytest.mark.parametrize("state", [*UNFINISHED, *FINISHED])
def test_device_job_is_unfinished_in_each_state_but_the_last_two(state: str) -> None:
    assert job(state=state).is_unfinished is (state not in {"programmed", "failed"})


def test_device_job_is_about_the_device_and_its_siblings() -> None:
    parts = [samples.uuid("a"), samples.uuid("b")]
    assert job(siblings=parts).scope == (samples.uuid("device 0"), *parts)


def test_is_whole_of_a_device_job_without_one_field_is_false() -> None:
    whole = job(started_at=NOW, seen_at=NOW, revision=1)
    assert whole.is_whole
    del whole.problem
    assert not whole.is_whole


@pytest.mark.parametrize(
    ("trait", "stale"), [("T_NEW", ["T_A", "T_B"]), ("T_A", ["T_B"]), (None, ["T_A", "T_B"])]
)
def test_note_held_replaces_the_functions_of_the_device(
    trait: str | None, stale: list[str]
) -> None:
    one = job(state="unknown", stale_traits=["T_B"], former_traits=["T_A"], held_since=BEFORE)
    one.note_held(trait)
    assert (one.state, one.trait, one.held_trait, one.held_since, one.stale_traits) == (
        "programmed",
        trait,
        trait,
        NOW,
        stale,
    )


@pytest.mark.parametrize(
    ("seconds", "values", "is_up"),
    [
        (0, {}, True),
        (60, {}, True),
        (61, {}, False),
        (0, {"forced_down": True}, False),
        (0, {"disabled": True}, True),
        (None, {}, False),
    ],
)
def test_is_up_of_a_service_requires_a_recent_report(
    seconds: int | None, values: dict[str, Any], is_up: bool
) -> None:
    seen = None if seconds is None else NOW - timedelta(seconds=seconds)
    one = samples.service(None, last_seen_up=seen, **values)
    one.obj_set_defaults()
    assert one.is_up(timedelta(seconds=60)) is is_up


def test_condition_names_the_missing_columns_of_each_table() -> None:
    missing = {"services": frozenset(["owners", "binary"]), "flavors": frozenset(["id", "name"])}
    lacks = Condition("a file", Schema(None, "1", is_known=True), missing).lacks
    assert list(lacks) == ["flavors", "services"]
    assert "owners" not in lacks["flavors"]
    assert lacks["services"].endswith("binary, owners")


def test_context_without_a_database_refuses_its_use_and_is_closed() -> None:
    with pytest.raises(StateError):
        _ = Context().db
    Context().close()


def test_object_refuses_an_unknown_attribute_and_a_later_version() -> None:
    with pytest.raises(AttributeError, match="colour"):
        Flavor().obj_attr_is_set("colour")
    with pytest.raises(InvalidObject, match=r"2\.0"):
        Flavor().obj_to_primitive(target_version="2.0")
