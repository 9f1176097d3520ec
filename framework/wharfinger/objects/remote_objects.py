"""Client and server for calls of object methods in another process."""

import json
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Final, cast

from oslo_log import log as logging

from wharfinger import exceptions
from wharfinger.exceptions import (
    IncompatibleVersion,
    InvalidObject,
    ObjectError,
    RemoteError,
    StateError,
    WharfingerError,
    shown,
)
from wharfinger.objects import base
from wharfinger.objects.base import WharfingerObject
from wharfinger.objects.database_context import Context
from wharfinger.objects.field_base import ListOfObjectsField

LOG: Final = logging.getLogger(__name__)
_RESTART: Final = "Restart the agent, so that all its processes run the same release"

#: Errors that the client raises in the same class as the server.
_ERRORS: Final[Mapping[str, type[WharfingerError]]] = {
    kind.__name__: kind
    for kind in vars(exceptions).values()
    if isinstance(kind, type) and issubclass(kind, ObjectError | StateError)
}


class Serializer:
    """Converts objects to primitives and back; raises InvalidObject, IncompatibleVersion."""

    def serialize_entity(self, context: Any, entity: Any) -> Any:
        """Return a value with primitives in place of the objects in it."""
        match entity:
            case WharfingerObject():
                return entity.obj_to_primitive()
            case dict():
                return {key: self.serialize_entity(context, one) for key, one in entity.items()}
            case list() | tuple() | set():
                return [self.serialize_entity(context, one) for one in entity]
        return entity

    def deserialize_entity(self, context: Any, entity: Any) -> Any:
        """Return a value with objects in place of the primitives in it."""
        match entity:
            case dict() if _key("name") in entity:
                return self._object(context, entity)
            case dict():
                return {key: self.deserialize_entity(context, one) for key, one in entity.items()}
            case list():
                return [self.deserialize_entity(context, one) for one in entity]
        return entity

    def _object(self, context: Any, primitive: dict[str, Any]) -> Any:
        try:
            return WharfingerObject.obj_from_primitive(primitive, context)
        except IncompatibleVersion:
            version = primitive[_key("version")]
            if version.count(".") > 1:
                # Versions that differ only in the third number have the same fields.
                known = {**primitive, _key("version"): ".".join(version.split(".")[:2])}
                return self._object(context, known)
            api = WharfingerObject.indirection_api
            if api is None:
                raise
            versions = base.versions_within(primitive[_key("name")])
            return api.object_backport_versions(context, primitive, versions)


class RemoteObjects:
    """Client that calls remotable methods in another process.

    The methods raise the ObjectErrors and StateErrors of that process, and RemoteError.
    """

    def __init__(self, send: Callable[[bytes], bytes]) -> None:
        self._send: Final = send
        self._serializer: Final = Serializer()

    def object_action(
        self, context: Any, objinst: Any, objmethod: str, args: Any, kwargs: Any
    ) -> tuple[dict[str, Any], Any]:
        """Call a method of an object remotely; return the changed values and the result."""
        if objmethod == "create":
            # If the answer is lost, the repeated call must not create a second object.
            for one in getattr(objinst, "objects", [objinst]):
                one.identify()
        answer = self._ask(
            context, "object", object=objinst, method=objmethod, args=list(args), kwargs=kwargs
        )
        try:
            updates = dict(answer["updates"])
            for name in updates.keys() & objinst.fields.keys():
                is_list = isinstance(objinst.fields[name], ListOfObjectsField)
                if is_list and objinst.obj_attr_is_set(name):
                    # Update the list's own objects, since callers may have references to them.
                    mine = list(getattr(objinst, name))
                    for one, changed in zip(mine, updates[name], strict=True):
                        _become(one, changed)
                    updates[name] = mine
            _check(objinst, updates)
            return updates, answer["result"]
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise RemoteError(reason=f"{objmethod}: the answer is invalid: {error!r}.") from error

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
        answer = self._ask(
            context,
            "class",
            name=objname,
            method=objmethod,
            versions=object_versions,
            args=list(args),
            kwargs=kwargs,
        )
        return answer.get("result")

    def object_backport_versions(
        self, context: Any, objinst: Any, object_versions: dict[str, str]
    ) -> Any:
        """Return a primitive's object, converted remotely to versions that the caller knows."""
        return self._ask(context, "backport", primitive=objinst, versions=object_versions)["result"]

    def _ask(self, context: Any, action: str, **what: Any) -> dict[str, Any]:
        # This process cannot read a primitive that is too new, so it sends it unchanged.
        question = {"action": action} | (
            what if action == "backport" else self._serializer.serialize_entity(context, what)
        )
        try:
            answer = json.loads(self._send(json.dumps(question, default=_plain).encode()))
            if not answer.keys() & {"error", "result"}:
                raise ValueError(f"{shown(answer)} is not an answer")
        except (OSError, ValueError, AttributeError, RecursionError) as failure:
            raise RemoteError(reason=f"{action}: {failure}.") from failure
        if "error" in answer:
            raise _error(answer["error"])
        result: dict[str, Any] = self._serializer.deserialize_entity(context, answer)
        return result


class ObjectServer:
    """Answers questions of RemoteObjects."""

    def __init__(self, context: Context) -> None:
        self._context: Final = context
        self._serializer: Final = Serializer()

    def answer(self, question: bytes) -> bytes:
        """Run the requested method; return the encoded result or error."""
        try:
            answer = self._answer(json.loads(question))
        except tuple(_ERRORS.values()) as error:
            answer = {"error": {"kind": type(error).__name__, "facts": error.facts}}
        except Exception as error:
            # An invalid question must not stop this process.
            LOG.exception(
                "Another process of the agent has called an object method, which failed. That "
                "process gets the error"
            )
            reason = (
                f"{type(error).__name__}: {shown(str(error))}. The log of the agent has the "
                "traceback."
            )
            answer = {"error": {"kind": RemoteError.__name__, "facts": {"reason": reason}}}
        return json.dumps(answer, default=str).encode()

    def _answer(self, question: dict[str, Any]) -> dict[str, Any]:
        match question.pop("action"):
            case "object":
                return self._of_object(**self._deserialized(question))
            case "class":
                return self._of_class(**self._deserialized(question))
            case "backport":
                return self._backport(**question)
            case action:
                raise RemoteError(
                    reason=f"the main process does not know the action {shown(action)}. {_RESTART}"
                )

    def _deserialized(self, question: dict[str, Any]) -> dict[str, Any]:
        entity: dict[str, Any] = self._serializer.deserialize_entity(self._context, question)
        return entity

    def _of_object(
        self, object: Any, method: str, args: list[Any], kwargs: dict[str, Any]
    ) -> dict[str, Any]:
        before = object.obj_to_primitive()[_key("data")]
        result = _remotable(object, method)(*args, **kwargs)
        after = object.obj_to_primitive()[_key("data")]
        updates = {
            name: value
            for name, value in after.items()
            if name not in before or before[name] != value
        }
        updates["obj_what_changed"] = sorted(object.obj_what_changed())
        return {"updates": updates, "result": self._serialized(result)}

    def _of_class(
        self,
        name: str,
        method: str,
        versions: dict[str, str],
        args: list[Any],
        kwargs: dict[str, Any],
    ) -> dict[str, Any]:
        try:
            kind = WharfingerObject.obj_class_from_name(name, versions[name])
        except InvalidObject as error:
            reason = (
                f"{error} Upgrade the process that has the database open before other processes"
            )
            raise RemoteError(reason=reason) from error
        result = _remotable(kind, method)(self._context, *args, **kwargs)
        return {"result": self._serialized(result, versions)}

    def _backport(self, primitive: dict[str, Any], versions: dict[str, str]) -> dict[str, Any]:
        newest = self._serializer.deserialize_entity(self._context, primitive)
        return {"result": self._serialized(newest, versions)}

    def _serialized(self, result: Any, versions: dict[str, str] | None = None) -> Any:
        if versions and isinstance(result, WharfingerObject):
            target = versions.get(result.obj_name())
            return result.obj_to_primitive(target_version=target, version_manifest=versions)
        return self._serializer.serialize_entity(self._context, result)


def _remotable(owner: Any, method: str) -> Callable[..., Any]:
    found: Any = getattr(owner, str(method), None)
    if not getattr(found, "remotable", False):
        raise RemoteError(
            reason=f"{shown(method)} of {owner.obj_name()} is not a remotable method in the main "
            f"process. {_RESTART}"
        )
    return cast("Callable[..., Any]", found)


def _check(one: Any, updates: Mapping[str, Any]) -> None:
    set(updates.get("obj_what_changed", []))
    for name in updates.keys() & one.fields.keys():
        field, value = one.fields[name], updates[name]
        if name != "objects" and not isinstance(value, WharfingerObject):
            value = field.from_primitive(one, name, value)
        field.coerce(one, name, value)


def _become(one: Any, other: Any) -> None:
    if type(other) is not type(one):
        raise TypeError(f"{other!r} is not a {one.obj_name()}")
    for name in other.fields:
        if other.obj_attr_is_set(name):
            setattr(one, name, getattr(other, name))
    one._context = other._context
    one.obj_reset_changes()
    one._changed_fields = set(other._changed_fields)


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Iterable):
        return list(value)
    raise TypeError(f"{shown(value)} cannot be sent")


def _error(error: Any) -> WharfingerError:
    try:
        return _ERRORS[error["kind"]](**error["facts"])
    except (KeyError, TypeError) as unknown:
        return RemoteError(
            reason="the main process answered with an error that this process does not know: "
            f"{shown(error)}: {unknown!r}. {_RESTART}"
        )


def _key(name: str) -> str:
    return WharfingerObject._obj_primitive_key(name)
