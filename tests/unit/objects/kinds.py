"""The registered objects by name, and values that their fields accept or refuse."""

import math
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, Final

from hypothesis import strategies as st

import wharfinger.objects  # noqa: F401 - registers them
from tests.lab import samples
from wharfinger.objects import PciDevice, WharfingerObject, field_types
from wharfinger.objects.base import REGISTERED
from wharfinger.objects.field_base import Dict, List, ObjectField, UnspecifiedDefault

OURS: Final = dict(sorted(REGISTERED.items()))


#: Values of many types, by description.
ANYTHING: dict[str, Any] = {
    "text": "text",
    "no text": "",
    "digits": "12",
    "bytes": b"text",
    "true": True,
    "a figure": 7,
    "a fraction": 1.5,
    "no number": math.nan,
    "no end": math.inf,
    "below": -1,
    "beyond": 2**31,
    "far beyond": 10**400,
    "complex": 1j,
    "a list": ["text"],
    "a list of figures": [7],
    "a list of nothing": [None],
    "a dict": {"text": "text"},
    "a dict of figures": {"text": 7},
    "a dict of lists": {"text": []},
    "a dict of nothing": {"text": None},
    "a dict by figures": {7: True},
    "an object": object(),
    "a flavor": samples.flavor(None),
    "a device": PciDevice(),
    "a type": int,
}


def of(name: str) -> type[WharfingerObject]:
    """Return the class with this name."""
    return OURS[name]


def is_needed(field: Any) -> bool:
    """Return whether the field refuses None and has no default."""
    return not field.nullable and field.default is UnspecifiedDefault


def type_of(name: str, field: str) -> Any:
    return of(name).fields[field]


_TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=40)
_TIMES = st.datetimes(
    min_value=datetime(1000, 1, 3),
    max_value=datetime(9999, 12, 29),
    timezones=st.sampled_from([UTC, timezone(timedelta(hours=14)), timezone(-timedelta(hours=12))]),
)


def values(name: str, field: str) -> st.SearchStrategy[Any]:
    """Return a strategy for valid values of the field."""
    taken = _values(type_of(name, field))
    return st.none() | taken if of(name).fields[field].nullable else taken


def _values(kind: Any) -> st.SearchStrategy[Any]:  # noqa: PLR0911 - one for each kind
    match kind:
        case field_types.Identifier():
            return st.uuids().map(str)
        case field_types.Count():
            return st.integers(0, field_types.MAX_COUNT)
        case field_types.Ratio():
            return st.floats(0, allow_nan=False, allow_infinity=False)
        case field_types.Flag():
            return st.booleans()
        case field_types.Moment():
            return _TIMES
        case field_types.Word():
            return st.sampled_from(kind.values)
        case List(element=element):
            return st.lists(_values(element), max_size=2)
        case Dict(element=element):
            return st.dictionaries(_TEXTS, _values(element), max_size=2)
        case ObjectField():
            return objects(kind.objname)
        case field_types.ColumnText():
            return _TEXTS.filter(lambda text: len(text) >= kind._shortest)
        case field_types.Text():
            return _TEXTS
    raise AssertionError(kind)


def objects(name: str) -> st.SearchStrategy[Any]:
    """Return a strategy for objects of the class with any of their fields set."""
    fields = {field: st.deferred(lambda f=field: values(name, f)) for field in of(name).fields}  # type: ignore[misc]
    return st.fixed_dictionaries({}, optional=fields).map(lambda some: of(name)(**some))


def sorted_changes(primitive: Any) -> Any:
    """Return the primitive with its lists of changed fields sorted."""
    match primitive:
        case list():
            return [sorted_changes(each) for each in primitive]
        case dict():
            return {
                key: sorted(each) if key.endswith("object.changes") else sorted_changes(each)
                for key, each in primitive.items()
            }
    return primitive
