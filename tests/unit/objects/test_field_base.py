"""Each field accepts values of its type, and does not convert other values."""

import json
import pickle
from collections.abc import Callable
from copy import copy, deepcopy
from datetime import UTC, datetime, timedelta, timezone
from itertools import product
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.objects.kinds import (
    ANYTHING,
    OURS,
    is_needed,
    objects,
    of,
    sorted_changes,
    type_of,
)
from wharfinger.exceptions import FieldUnset
from wharfinger.objects import ComputeNode, Flavor, Migration, Service, field_types
from wharfinger.objects.field_base import Dict, List, ObjectField
from wharfinger.objects.migration import IN_PROGRESS, MIGRATION_STATUSES, MIGRATION_TYPES
from wharfinger.objects.remote_objects import Serializer


def takes(kind: Any, what: str) -> bool:  # noqa: PLR0911 - one for each kind
    """Return whether a field of this type accepts the value with this name in ANYTHING."""
    match kind:
        case field_types.Word() | field_types.Identifier() | field_types.Moment():
            return False
        case field_types.Count():
            return what == "a figure"
        case field_types.Ratio():
            return what in {"a figure", "a fraction", "beyond"}
        case field_types.Flag():
            return what == "true"
        case List(element=element):
            return isinstance(element, field_types.Text) and what == "a list"
        case Dict(element=element):
            return {
                field_types.Text: what == "a dict",
                field_types.Count: what == "a dict of figures",
                field_types.Ratio: what == "a dict of figures",
                field_types.Flag: False,
                Dict: False,
            }[type(element)]
        case ObjectField():
            return kind.objname == "Flavor" and what == "a flavor"
        case field_types.ColumnText():
            return what in {"text", "digits"} or (what == "no text" and not kind._shortest)
    raise AssertionError(kind)


@pytest.mark.parametrize("name", OURS)
def test_field_refuses_values_of_other_types_by_name(name: str) -> None:
    wrong = []
    for field, (what, value) in product(of(name).fields, ANYTHING.items()):
        one = of(name)()
        try:
            setattr(one, field, value)
        except ValueError as error:
            told = field in str(error)
            if takes(type_of(name, field), what) or not told:
                wrong.append(f"{field}, {what}: {error}")
        except Exception as error:
            wrong.append(f"{field}, {what}: {type(error).__name__}: {error}")
        else:
            if not takes(type_of(name, field), what):
                wrong.append(f"{field}, {what} is taken for {getattr(one, field)!r}")
    assert not wrong


@pytest.mark.parametrize("name", OURS)
def test_unset_field_without_a_default_raises_and_refuses_none(name: str) -> None:
    for field, kind in of(name).fields.items():
        one = of(name)()
        if field == "objects":
            assert one.objects == []  # type: ignore[attr-defined]
            continue
        with pytest.raises(FieldUnset) as caught:
            getattr(one, field)
        assert (caught.value.field, caught.value.subject) == (field, name)
        if is_needed(kind):
            with pytest.raises(ValueError, match=field):
                setattr(one, field, None)
        else:
            setattr(one, field, None)
            assert getattr(one, field) == kind.default


@pytest.mark.parametrize("name", OURS)
def test_text_is_limited_to_its_column_and_to_characters_that_databases_accept(name: str) -> None:
    for field in of(name).fields:
        kind, one = type_of(name, field), of(name)()
        if not isinstance(kind, field_types.ColumnText):
            continue
        for text in ("a\0b", "\ud800", "\udfff\ud83e"):
            with pytest.raises(ValueError, match=field):
                setattr(one, field, text)
        longest = kind._longest
        if longest is None:
            assert (name, field) in UNBOUNDED
            continue
        for character in ("a", "🦑"):
            setattr(one, field, character * longest)
            with pytest.raises(ValueError, match=field):
                setattr(one, field, character * (longest + 1))
        table = getattr(of(name), "TABLE", None)
        if table is not None:
            assert longest == COLUMNS[table].get(field, longest)


#: Fields without a maximum length: JSON documents and texts of backends.
UNBOUNDED = [
    *product(["ProviderRecord"], ["applied", "intended", "live", "undone"]),
    ("DeviceJob", "problem"),
]
COLUMNS = {
    "compute_nodes": dict.fromkeys(("host", "hypervisor_hostname", "owner"), 255)
    | {"driver_instance": 64},
    "services": dict.fromkeys(("host", "binary", "topic", "disabled_reason"), 255),
    "flavors": dict.fromkeys(("flavorid", "name"), 255),
    "instances": dict.fromkeys(("project_id", "user_id", "host", "node"), 255),
    "migrations": dict.fromkeys(
        ("source_compute", "source_node", "dest_compute", "dest_node"), 255
    ),
    "reservations": dict.fromkeys(("reason", "holder"), 255),
    "device_jobs": dict.fromkeys(("provider_name", "host", "function", "trait", "held_trait"), 255)
    | {"driver_instance": 64},
    "provider_records": {"host": 255, "driver_instance": 64},
}


@pytest.mark.parametrize(
    "written",
    [
        "6F9DE2F4-9D0C-4D0F-A4A6-0C2C5B1F7D31",
        "6f9de2f49d0c4d0fa4a60c2c5b1f7d31",
        "{6f9de2f4-9d0c-4d0f-a4a6-0c2c5b1f7d31}",
        "urn:uuid:6f9de2f4-9d0c-4d0f-a4a6-0c2c5b1f7d31",
    ],
)
def test_uuid_in_any_form_is_normalized(written: str) -> None:
    assert ComputeNode(uuid=written).uuid == "6f9de2f4-9d0c-4d0f-a4a6-0c2c5b1f7d31"


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("2031-05-01T10:00:00Z", datetime(2031, 5, 1, 10, tzinfo=UTC)),
        ("2031-05-01T10:00:00+02:00", datetime(2031, 5, 1, 8, tzinfo=UTC)),
        ("2031-05-01T10:00:00", datetime(2031, 5, 1, 10, tzinfo=UTC)),
        (datetime(2031, 5, 1, 10, 0, 0, 999_999), datetime(2031, 5, 1, 10, tzinfo=UTC)),
        (
            datetime(2031, 5, 1, 10, tzinfo=timezone(-timedelta(hours=3))),
            datetime(2031, 5, 1, 13, tzinfo=UTC),
        ),
    ],
)
def test_time_is_converted_to_utc_in_whole_seconds(said: Any, meant: datetime) -> None:
    assert ComputeNode(last_seen=said).last_seen == meant


@pytest.mark.parametrize(
    "moment",
    [
        datetime.max.replace(tzinfo=timezone(-timedelta(hours=1))),
        datetime.min.replace(tzinfo=timezone(timedelta(hours=1))),
        "0001-01-01T00:00:00+01:00",
        "0999-12-31T23:59:59Z",
        "2031-13-01T00:00:00Z",
        "soon",
    ],
    ids=str,
)
def test_invalid_time_is_refused(moment: Any) -> None:
    with pytest.raises(ValueError, match="last_seen"):
        ComputeNode(last_seen=moment)


def test_status_changes_only_along_the_table() -> None:
    for before, after in product(MIGRATION_STATUSES, repeat=2):
        one = Migration(status=before)
        one.obj_reset_changes()
        if after == before or after in MIGRATION_STATUSES[before]:
            one.status = after
            assert one.status == after
        else:
            with pytest.raises(ValueError, match="status"):
                one.status = after
            assert one.status == before
        assert one.is_in_progress is (one.status in IN_PROGRESS)


def test_every_status_is_reachable_and_leads_to_a_final_one() -> None:
    led_to = frozenset().union(*MIGRATION_STATUSES.values())
    assert led_to | {"accepted"} == MIGRATION_STATUSES.keys()
    assert set(IN_PROGRESS) == {"accepted"} | led_to - {
        "confirmed",
        "reverted",
        "completed",
        "done",
        "cancelled",
        "failed",
        "error",
    }
    for status in IN_PROGRESS:
        assert "error" in MIGRATION_STATUSES[status]


def test_migration_type_is_one_of_novas() -> None:
    assert MIGRATION_TYPES == ("resize", "migration", "live-migration", "evacuation")
    for kind in MIGRATION_TYPES:
        assert Migration(migration_type=kind).migration_type == kind
    with pytest.raises(ValueError, match="migration_type"):
        Migration(migration_type="teleport")


def test_value_added_to_a_list_or_dict_is_checked() -> None:
    one = Service(owners=[])
    with pytest.raises(ValueError, match="owners"):
        one.owners.append(7)  # type: ignore[arg-type]
    kind = Flavor(extra_specs={})
    with pytest.raises(ValueError, match="extra_specs"):
        kind.extra_specs["a"] = 7  # type: ignore[assignment]
    specs = kind.extra_specs
    with pytest.raises(ValueError, match="extra_specs"):
        specs |= {"a": 7}  # type: ignore[dict-item]
    specs |= {"a": "1"}
    assert kind.extra_specs == {"a": "1"}


def test_edit_of_a_list_or_dict_is_a_change() -> None:
    one = Service(owners=["OWNER_NOVA"])
    one.obj_reset_changes()
    one.owners.append("OWNER_CYBORG")
    assert one.obj_what_changed() == {"owners"}


def _pickled(one: Any) -> Any:
    return pickle.loads(pickle.dumps(one))


@pytest.mark.parametrize("make", [copy, deepcopy, _pickled])
def test_copy_of_an_object_shares_no_values_and_checks_its_own(make: Callable[[Any], Any]) -> None:
    one = Flavor(name="one", extra_specs={"a": "1"})
    one.obj_reset_changes()

    other = make(one)
    assert other.obj_to_primitive() == one.obj_to_primitive()
    other.name = "other"

    with pytest.raises(ValueError, match="extra_specs"):
        other.extra_specs["a"] = 7
    assert (one.name, one.obj_what_changed()) == ("one", set())


def test_unset_field_is_deleted_with_an_error_that_names_it() -> None:
    one = Flavor(name="one")
    del one.name
    with pytest.raises(FieldUnset, match="name"):
        del one.name


@given(st.data())
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_valid_value_is_the_same_after_transmission(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(list(OURS)))
    one = data.draw(objects(name))
    serializer = Serializer()
    sent = json.dumps(serializer.serialize_entity(None, {"one": [one]}), allow_nan=False)
    there = serializer.deserialize_entity(None, json.loads(sent.encode()))["one"][0]
    assert type(there) is type(one)
    assert there.obj_what_changed() == one.obj_what_changed()
    for field in one.fields:
        assert there.obj_attr_is_set(field) == one.obj_attr_is_set(field)
    assert sorted_changes(there.obj_to_primitive()) == sorted_changes(one.obj_to_primitive())
