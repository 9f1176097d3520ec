"""Base classes of versioned objects, modelled on oslo.versionedobjects."""

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, ClassVar, Final, ParamSpec, Protocol, Self, TypeVar, overload

from oslo_utils import versionutils

from wharfinger.exceptions import FieldUnset, IncompatibleVersion, InvalidObject, shown
from wharfinger.objects.field_base import Field, ListOfObjectsField, ObjectField, UnspecifiedDefault

#: The classes of versioned objects, by name.
REGISTERED: Final[dict[str, "type[WharfingerObject]"]] = {}


@dataclass(frozen=True, slots=True)
class Step:
    """One version of an object: the change, and the added fields."""

    version: str
    brought: str
    fields: tuple[str, ...] = ()


class IndirectionAPI(Protocol):
    """Client that calls remotable methods in another process."""

    def object_action(
        self, context: Any, objinst: Any, objmethod: str, args: Any, kwargs: Any
    ) -> tuple[dict[str, Any], Any]:
        """Call a method of an object remotely; return the changed values and the result."""

    def object_class_action_versions(  # noqa: PLR0917 - as it is called
        self,
        context: Any,
        objname: str,
        objmethod: str,
        object_versions: dict[str, str],
        args: Any,
        kwargs: Any,
    ) -> Any:
        """Call a class method remotely; return the result with objects of these versions."""

    def object_backport_versions(
        self, context: Any, objinst: Any, object_versions: dict[str, str]
    ) -> Any:
        """Return a primitive's object, converted remotely to versions that the caller knows."""


class _Attribute:
    def __init__(self, name: str, field: Field[Any]) -> None:
        self._name: Final = name
        self._field: Final = field

    def __get__(self, one: "WharfingerObject | None", _owner: type) -> Any:
        if one is None:
            return self
        try:
            return one._values[self._name]
        except KeyError:
            problem = one._why_unset(self._name)
            raise FieldUnset(subject=one.subject, field=self._name, problem=problem) from None

    def __set__(self, one: "WharfingerObject", value: Any) -> None:
        one._values[self._name] = self._field.coerce(one, self._name, value)
        one._changed_fields.add(self._name)

    def __delete__(self, one: "WharfingerObject") -> None:
        self.__get__(one, type(one))  # raises FieldUnset
        del one._values[self._name]


class WharfingerObject:
    """Base class of versioned objects; reading an unset field raises FieldUnset."""

    OBJ_SERIAL_NAMESPACE: ClassVar[str] = "wharfinger_object"
    OBJ_PROJECT_NAMESPACE: ClassVar[str] = "wharfinger"
    #: Oldest first.
    HISTORY: ClassVar[tuple[Step, ...]] = (Step("1.0", "first version"),)
    #: An object from another process keeps the version in which it arrived.
    VERSION: str = "1.0"
    fields: ClassVar[Mapping[str, Field[Any]]] = {}
    #: By field: pairs of a version of this class, and the version of the contained objects.
    obj_relationships: ClassVar[Mapping[str, Sequence[tuple[str, str]]]] = {}
    #: The client of the process that has the database open; None if this process has it open.
    indirection_api: ClassVar[IndirectionAPI | None] = None

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.VERSION = cls.HISTORY[-1].version
        fields = dict(cls.fields)
        for parent in cls.__mro__[1:]:
            for name, field in getattr(parent, "fields", {}).items():
                fields.setdefault(name, field)
        cls.fields = fields
        for name, field in fields.items():
            setattr(cls, name, _Attribute(name, field))

    def __init__(self, context: Any = None, **values: Any) -> None:
        self._context = context
        self._values: dict[str, Any] = {}
        self._changed_fields: set[str] = set()
        for name, value in values.items():
            setattr(self, name, value)

    def __repr__(self) -> str:
        values = (
            f"{name}={self._values[name]!r}" if name in self._values else f"{name}=<?>"
            for name in sorted(self.fields)
        )
        return f"{self.obj_name()}({','.join(values)})"

    def __contains__(self, name: object) -> bool:
        return name in self._values

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        clone = type(self)(self._context)
        memo[id(self)] = clone
        for name, value in self._values.items():
            setattr(clone, name, deepcopy(value, memo))
        clone._changed_fields = set(self._changed_fields)
        return clone

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        # The lists and dicts of a copy or a pickle do not check their values yet.
        vars(self).update(state)
        self._changed_fields = set(self._changed_fields)
        self._values = {
            name: self.fields[name].coerce(self, name, value)
            for name, value in self._values.items()
        }

    @classmethod
    def obj_name(cls) -> str:
        """Return the name that the class has in primitives."""
        return cls.__name__

    def obj_clone(self) -> Self:
        """Return a deep copy of the object."""
        return deepcopy(self)

    def obj_attr_is_set(self, attrname: str) -> bool:
        """Return whether a field has a value; raises AttributeError."""
        if attrname not in self.fields:
            raise AttributeError(f"{self.obj_name()} has no field {shown(attrname)}")
        return attrname in self._values

    def known(self, name: str) -> Any:
        """Return the value of a field, None if it is unset."""
        return self._values.get(name)

    def obj_set_defaults(self, *attrs: str) -> None:
        """Set unset fields to their defaults."""
        every = (name for name, one in self.fields.items() if one.default is not UnspecifiedDefault)
        for name in attrs or every:
            if name not in self._values:
                setattr(self, name, deepcopy(self.fields[name].default))

    def obj_what_changed(self) -> set[str]:
        """Return the names of changed fields, including fields whose object has changed."""
        return self._changed_fields | {
            name
            for name, value in self._values.items()
            if isinstance(value, WharfingerObject) and value.obj_what_changed()
        }

    def obj_reset_changes(self, fields: list[str] | None = None, recursive: bool = False) -> None:
        """Mark fields as unchanged, by default all."""
        names = self.fields.keys() if fields is None else fields
        if recursive:
            for name in self.obj_what_changed() & set(names) & self._values.keys():
                for part in self._contained(name):
                    part.obj_reset_changes(recursive=True)
        self._changed_fields -= set(names)

    def obj_make_compatible(
        self,
        primitive: dict[str, Any],
        target_version: str,
        version_manifest: Mapping[str, str] | None = None,
    ) -> None:
        """Convert data of a primitive to an earlier version, in place.

        ``version_manifest`` has the versions of contained objects.
        """
        for name, field in self.fields.items():
            if name not in self._values or not isinstance(field, ObjectField | ListOfObjectsField):
                continue
            if version_manifest is None:
                pairs = self.obj_relationships[name]
            elif field.objname in version_manifest:
                pairs = [(target_version, version_manifest[field.objname])]
            else:
                continue
            self._convert_contained(primitive, target_version, name, pairs, version_manifest)
        self._remove_later_fields(primitive, target_version)

    def _convert_contained(
        self,
        primitive: dict[str, Any],
        target_version: str,
        name: str,
        pairs: Iterable[tuple[str, str]],
        version_manifest: Mapping[str, str] | None,
    ) -> None:
        try:
            version = _contained_version(target_version, pairs)
        except LookupError:
            del primitive[name]
            return
        if version is None or primitive[name] is None:
            return
        parts = primitive[name] if isinstance(primitive[name], list) else [primitive[name]]
        for part, primitive_part in zip(self._contained(name), parts, strict=True):
            data = primitive_part[self._obj_primitive_key("data")]
            part.obj_make_compatible(data, version, version_manifest)
            primitive_part[self._obj_primitive_key("version")] = version

    def _remove_later_fields(self, primitive: dict[str, Any], target_version: str) -> None:
        target = versionutils.convert_version_to_tuple(target_version)
        for step in self.HISTORY:
            if versionutils.convert_version_to_tuple(step.version) > target:
                for name in step.fields:
                    primitive.pop(name, None)

    def obj_to_primitive(
        self, target_version: str | None = None, version_manifest: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        """Return the object as a primitive.

        Raises InvalidObject if ``target_version`` is later than VERSION.
        """
        target = self.VERSION if target_version is None else target_version
        convert = versionutils.convert_version_to_tuple
        if convert(target) > convert(self.VERSION):
            raise InvalidObject(
                subject=f"{self.obj_name()} {self.VERSION}",
                problem=f"the object cannot be sent as version {target}, which is later than its "
                "own version.",
                remedy="Request the object's own version, or an earlier one.",
            )
        data = {
            name: field.to_primitive(self._values[name])
            for name, field in self.fields.items()
            if name in self._values
        }
        if target != self.VERSION or version_manifest:
            self.obj_make_compatible(data, target, version_manifest)
        else:
            self._remove_later_fields(data, target)
        parts = {
            "name": self.obj_name(),
            "namespace": self.OBJ_PROJECT_NAMESPACE,
            "version": target,
            "data": data,
        }
        if changes := [name for name in self.obj_what_changed() if name in data]:
            parts["changes"] = changes
        return {self._obj_primitive_key(key): part for key, part in parts.items()}

    @classmethod
    def obj_from_primitive(cls, primitive: Any, context: Any = None) -> Self:
        """Return the object of a primitive; raises InvalidObject, IncompatibleVersion."""
        try:
            name = primitive[cls._obj_primitive_key("name")]
            version = primitive[cls._obj_primitive_key("version")]
            if primitive[cls._obj_primitive_key("namespace")] != cls.OBJ_PROJECT_NAMESPACE:
                raise _unknown(_subject(primitive))
            found: Any = cls.obj_class_from_name(name, version)
            return found._obj_from_primitive(context, version, primitive)  # type: ignore[no-any-return]
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InvalidObject(
                subject=_subject(primitive),
                problem=f"the object cannot be read ({type(error).__name__}: {error}).",
                remedy="Correct the program that sent or stored the object, or the stored data.",
            ) from error

    @classmethod
    def obj_class_from_name(cls, objname: str, objver: str) -> "type[WharfingerObject]":
        """Return the class with this name; raises InvalidObject, IncompatibleVersion."""
        if objname not in REGISTERED:
            raise _unknown(f"{objname} {objver}")
        kind = REGISTERED[objname]
        if objver != kind.VERSION and not versionutils.is_compatible(objver, kind.VERSION):
            raise IncompatibleVersion(
                subject=f"{objname} {objver}",
                problem=f"the newest version that this process knows is {kind.VERSION}.",
                remedy="Upgrade this process, or send an earlier version of the object.",
            )
        return kind

    @classmethod
    def _obj_from_primitive(cls, context: Any, objver: str, primitive: dict[str, Any]) -> Self:
        data = primitive[cls._obj_primitive_key("data")]
        unknown = data.keys() - cls.fields.keys()
        if unknown:
            raise InvalidObject(
                subject=f"{cls.obj_name()} {objver}",
                problem="this version of the object has no field "
                f"{', '.join(map(shown, sorted(unknown, key=str)))}.",
                remedy="Correct the program that sent or stored the object: a new field needs a "
                "new version.",
            )
        self = cls(context)
        self.VERSION = objver
        for name, field in cls.fields.items():
            if name in data:
                setattr(self, name, field.from_primitive(self, name, data[name]))
        changes = primitive.get(cls._obj_primitive_key("changes"), ())
        self._changed_fields = {name for name in changes if name in cls.fields}
        return self

    @classmethod
    def _obj_primitive_key(cls, field: str) -> str:
        return f"{cls.OBJ_SERIAL_NAMESPACE}.{field}"

    def _contained(self, name: str) -> "list[WharfingerObject]":
        value = self._values[name]
        if isinstance(value, WharfingerObject):
            return [value]
        return list(value) if isinstance(self.fields[name], ListOfObjectsField) else []

    @property
    def subject(self) -> str:
        """Return the name of the class, for messages."""
        return self.obj_name()

    def _why_unset(self, _field: str) -> str:
        return "it was not set."


_One = TypeVar("_One", bound=WharfingerObject)


class ObjectList(WharfingerObject, Sequence[_One]):
    """A versioned object that is a list of other objects."""

    objects: list[_One]
    fields = {"objects": ListOfObjectsField("WharfingerObject")}
    #: The version of the listed objects, by version of the list.
    child_versions: ClassVar[Mapping[str, str]] = {}

    def __init__(self, context: Any = None, **values: Any) -> None:
        super().__init__(context, **values)
        if "objects" not in values:
            self.objects = []
            self._changed_fields.discard("objects")

    def __len__(self) -> int:
        return len(self.objects)

    def __contains__(self, value: object) -> bool:
        return value in self.objects

    @overload
    def __getitem__(self, index: int) -> _One: ...

    @overload
    def __getitem__(self, index: slice) -> Self: ...

    def __getitem__(self, index: int | slice) -> _One | Self:
        if not isinstance(index, slice):
            return self.objects[index]
        part = type(self)(self._context, objects=self.objects[index])
        part.obj_reset_changes()
        return part

    def obj_what_changed(self) -> set[str]:
        """Return the names of changed fields, with ``objects`` if a listed object has changed."""
        changed = any(one.obj_what_changed() for one in self.objects)
        return self._changed_fields | ({"objects"} if changed else set())

    def obj_make_compatible(
        self,
        primitive: dict[str, Any],
        target_version: str,
        version_manifest: Mapping[str, str] | None = None,
    ) -> None:
        """Convert data of a primitive to an earlier version of the list, in place."""
        pairs = self.child_versions.items()
        self._convert_contained(primitive, target_version, "objects", pairs, version_manifest)


_Kind = TypeVar("_Kind", bound=type[WharfingerObject])
_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def register(kind: _Kind) -> _Kind:
    """Register and return a class of objects."""
    REGISTERED[kind.obj_name()] = kind
    return kind


def remotable(method: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """Decorate a method so that it runs in the process that has the database open."""

    @functools.wraps(method)
    def call(owner: Any, /, *args: Any, **kwargs: Any) -> Any:
        if isinstance(owner, type):
            return _call_class(method, owner, args, kwargs)
        return _call_object(method, owner, args, kwargs)

    vars(call)["remotable"] = True
    return call  # type: ignore[return-value]


def versions_within(objname: str, versions: dict[str, str] | None = None) -> dict[str, str]:
    """Return our versions of a class and of all contained classes, by name."""
    versions = {} if versions is None else versions
    if objname not in versions:
        versions[objname] = REGISTERED[objname].VERSION
        for field in REGISTERED[objname].fields.values():
            if isinstance(field, ObjectField | ListOfObjectsField):
                versions_within(field.objname, versions)
    return versions


def _call_class(method: Callable[..., Any], kind: Any, args: Any, kwargs: Any) -> Any:
    if kind.indirection_api is None:
        return method(kind, *args, **kwargs)
    if not args:
        args = (kwargs.pop("context"),)
    name = kind.obj_name()
    return kind.indirection_api.object_class_action_versions(
        args[0], name, method.__name__, versions_within(name), args[1:], kwargs
    )


def _call_object(method: Callable[..., Any], one: Any, args: Any, kwargs: Any) -> Any:
    if one._context is None:
        raise InvalidObject(
            subject=one.subject,
            problem=f"method {method.__name__} of the object needs a database.",
            remedy="Create the object with a context.",
        )
    if one.indirection_api is None:
        return method(one, *args, **kwargs)
    updates, result = one.indirection_api.object_action(
        one._context, one, method.__name__, args, kwargs
    )
    for name, value in updates.items():
        if name in one.fields:
            setattr(one, name, one.fields[name].from_primitive(one, name, value))
    one.obj_reset_changes()
    one._changed_fields = set(updates.get("obj_what_changed", ()))
    return result


def _contained_version(target_version: str, pairs: Iterable[tuple[str, str]]) -> str | None:
    # None: the objects keep their version. LookupError: their field is newer than this version.
    convert = versionutils.convert_version_to_tuple
    before = None
    for whole, part in pairs:
        if convert(whole) == convert(target_version):
            return part
        if convert(whole) > convert(target_version):
            if before is None:
                raise LookupError(target_version)
            return before
        before = part
    return None


def _subject(primitive: object) -> str:
    if not isinstance(primitive, dict):
        return shown(primitive)
    key = WharfingerObject._obj_primitive_key
    return f"{primitive.get(key('name'), '?')} {primitive.get(key('version'), '?')}"


def _unknown(subject: str) -> InvalidObject:
    return InvalidObject(
        subject=subject,
        problem="this process does not know this kind of object.",
        remedy="Upgrade this process, or send no such object to this process.",
    )
