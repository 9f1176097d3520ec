"""The objects that are registered, by name, and what their fields take and refuse."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any, Final

from hypothesis import strategies as st
from oslo_versionedobjects.base import VersionedObjectRegistry
from oslo_versionedobjects.fields import Dict, Enum, List, Object, UnspecifiedDefault

import wharfinger.objects  # noqa: F401 - registers them
from wharfinger.objects import WharfingerObject, kinds

#: As the library has them: the newest first.
OURS: Final = {
    name: classes
    for name, classes in sorted(VersionedObjectRegistry.obj_classes().items())
    if issubclass(classes[0], WharfingerObject)
}

#: Every object with each of its fields.
FIELDS: Final = [(name, field) for name in OURS for field in OURS[name][0].fields]


def of(name: str) -> type[WharfingerObject]:
    """The newest class of a name."""
    kind = OURS[name][0]
    assert issubclass(kind, WharfingerObject)
    return kind


def is_needed(field: Any) -> bool:
    """Whether a field is never nothing: to make it nothing is not to say its default."""
    return not field.nullable and field.default is UnspecifiedDefault


def type_of(name: str, field: str) -> Any:
    return of(name).fields[field]._type


_TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=40)
_TIMES = st.datetimes(
    min_value=datetime(1000, 1, 3),
    max_value=datetime(9999, 12, 29),
    timezones=st.sampled_from([UTC, timezone(timedelta(hours=14)), timezone(-timedelta(hours=12))]),
)


def values(name: str, field: str) -> st.SearchStrategy[Any]:
    """What a field takes."""
    taken = _values(type_of(name, field))
    return st.none() | taken if of(name).fields[field].nullable else taken


def _values(kind: Any) -> st.SearchStrategy[Any]:  # noqa: PLR0911 - one for each kind
    match kind:
        case kinds.Identifier():
            return st.uuids().map(str)
        case kinds.Count():
            return st.integers(0, kinds.MAX_COUNT)
        case kinds.Ratio():
            return st.floats(0, allow_nan=False, allow_infinity=False)
        case kinds.Flag():
            return st.booleans()
        case kinds.Moment():
            return _TIMES
        case Enum():
            return st.sampled_from(list(kind.valid_values))
        case List(_element_type=element):
            return st.lists(_values(element._type), max_size=2)
        case Dict(_element_type=element):
            return st.dictionaries(_TEXTS, _values(element._type), max_size=2)
        case Object():
            return objects(kind._obj_name)
        case kinds.ColumnText():
            return _TEXTS.filter(lambda text: len(text) >= kind._shortest)
        case kinds.Text():
            return _TEXTS
    raise AssertionError(kind)


def objects(name: str) -> st.SearchStrategy[Any]:
    """Objects of a class, with any of their fields."""
    fields = {field: st.deferred(lambda f=field: values(name, f)) for field in of(name).fields}  # type: ignore[misc]
    return st.fixed_dictionaries({}, optional=fields).map(lambda some: of(name)(**some))
