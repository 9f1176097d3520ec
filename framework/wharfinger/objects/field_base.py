"""The base class of fields of versioned objects, and fields for collections and objects."""

from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from typing import Any, Final, Generic, Self, SupportsIndex, TypeVar

from wharfinger.exceptions import shown

T = TypeVar("T")


class UnspecifiedDefault:
    """Marks a field without a default."""


class Field(Generic[T]):
    """A field with values of type T, and with None if ``nullable``."""

    def __init__(self, *, nullable: bool = False, default: Any = UnspecifiedDefault) -> None:
        self.nullable: Final = nullable
        self.default: Final = None if nullable and default is UnspecifiedDefault else default

    def coerce(self, obj: Any, attr: str, value: Any) -> Any:
        """Return the value as this field stores it; raises ValueError."""
        if value is not None:
            return self._coerce(obj, attr, value)
        if self.nullable:
            return None
        if self.default is UnspecifiedDefault:
            raise wrong(attr, value, "a value")
        return self._coerce(obj, attr, deepcopy(self.default))

    def to_primitive(self, value: T | None) -> Any:
        """Convert a value of the field to JSON data."""
        return None if value is None else self._to_primitive(value)

    def from_primitive(self, obj: Any, attr: str, value: Any) -> Any:
        """Convert JSON data to a value of the field, not checked yet.

        Raises ValueError and InvalidObject.
        """
        if value is not None:
            return self._from_primitive(obj, attr, value)
        if self.nullable:
            return None
        raise wrong(attr, value, "a value")

    def _coerce(self, obj: Any, attr: str, value: Any) -> T:
        raise NotImplementedError

    def _to_primitive(self, value: T) -> Any:
        return value

    def _from_primitive(self, _obj: Any, _attr: str, value: Any) -> Any:
        return value


class CheckedList(list[T]):
    """A list that checks each new element; raises ValueError."""

    def __init__(self, check: Callable[[str, Any], T], values: Iterable[Any] = ()) -> None:
        super().__init__()
        self._check: Final = check
        self.extend(values)

    def append(self, value: Any) -> None:
        """Check and append an element."""
        super().append(self._check(str(len(self)), value))

    def extend(self, values: Iterable[Any]) -> None:
        """Append all elements, or none if one is invalid."""
        super().extend(self._checked(values, len(self)))

    def insert(self, index: SupportsIndex, value: Any) -> None:
        """Check and insert an element."""
        super().insert(index, self._check(str(int(index)), value))

    def __setitem__(self, index: Any, value: Any) -> None:
        if isinstance(index, slice):
            super().__setitem__(index, self._checked(value, index.start or 0))
        else:
            super().__setitem__(index, self._check(str(index), value))

    def __iadd__(self, values: Iterable[Any]) -> Self:  # type: ignore[override, misc]
        self.extend(values)
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy is a plain list. The field that it is assigned to checks it again.
        return list, (list(self),)

    def _checked(self, values: Iterable[Any], start: int) -> list[T]:
        return [self._check(str(index), value) for index, value in enumerate(values, start)]


class CheckedDict(dict[str, T]):
    """A dict that checks each new item; raises ValueError."""

    def __init__(self, check: Callable[[str, Any], T], values: Mapping[str, Any]) -> None:
        super().__init__()
        self._check: Final = check
        self.update(values)

    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(key, self._check(key, value))

    def update(self, *others: Any, **values: Any) -> None:
        """Set all items, or none if one is invalid."""
        new = dict(*others, **values)
        super().update({key: self._check(key, value) for key, value in new.items()})

    def setdefault(self, key: str, default: Any = None) -> Any:
        """Return the value of a key; add a missing key first."""
        if key not in self:
            self[key] = default
        return self[key]

    def __ior__(self, other: Any) -> Self:  # type: ignore[override, misc]
        self.update(other)
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)


class List(Field[list[T]]):
    """A field for a list whose elements another field checks."""

    def __init__(self, element: Field[T], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.element: Final = element

    def _coerce(self, _obj: Any, attr: str, value: Any) -> list[T]:
        if isinstance(value, str | Mapping) or not isinstance(value, Iterable):
            raise wrong(attr, value, "a list")
        return CheckedList(_checker(self.element, attr), value)

    def _to_primitive(self, value: list[T]) -> Any:
        return [self.element.to_primitive(each) for each in value]

    def _from_primitive(self, obj: Any, attr: str, value: Any) -> Any:
        if not isinstance(value, list):
            return value
        return [self.element.from_primitive(obj, attr, each) for each in value]


class Dict(Field[dict[str, T]]):
    """A field for a dict whose values another field checks."""

    def __init__(self, element: Field[T], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.element: Final = element

    def _coerce(self, _obj: Any, attr: str, value: Any) -> dict[str, T]:
        if not isinstance(value, dict):
            raise wrong(attr, value, "a dict")
        return CheckedDict(_checker(self.element, attr), value)

    def _to_primitive(self, value: dict[str, T]) -> Any:
        return {key: self.element.to_primitive(each) for key, each in value.items()}

    def _from_primitive(self, obj: Any, attr: str, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return {
            key: self.element.from_primitive(obj, f"{attr}[{key}]", each)
            for key, each in value.items()
        }


class ObjectField(Field[Any]):
    """A field for an object of the named class."""

    def __init__(self, objname: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.objname: Final = objname

    def _coerce(self, _obj: Any, attr: str, value: Any) -> Any:
        if getattr(type(value), "obj_name", str)() != self.objname:
            raise wrong(attr, value, f"a {self.objname}")
        return value

    def _to_primitive(self, value: Any) -> Any:
        return value.obj_to_primitive()

    def _from_primitive(self, obj: Any, _attr: str, value: Any) -> Any:
        # The serializer may have converted the primitive to an object already.
        return obj.obj_from_primitive(value, obj._context) if isinstance(value, dict) else value


class ListOfObjectsField(List[Any]):
    """A field for a list of objects of the named class."""

    def __init__(self, objname: str, **kwargs: Any) -> None:
        super().__init__(ObjectField(objname), **kwargs)
        self.objname: Final = objname


def wrong(attr: str, value: object, wanted: str) -> ValueError:
    """Return the error for a value that a field refuses."""
    return ValueError(f"{attr}: {shown(value)} is not {wanted}")


def _checker(element: Field[T], attr: str) -> Callable[[str, Any], T]:
    def check(key: str, value: Any) -> Any:
        if not isinstance(key, str):
            raise wrong(attr, key, "a text, as keys have to be")
        return element.coerce(None, f"{attr}[{key}]", value)

    return check
