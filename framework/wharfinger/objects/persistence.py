"""Base classes of objects stored in the database, and of lists of them."""

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, ClassVar, Final, Self, TypeVar
from uuid import uuid4

from oslo_log import log as logging

from wharfinger.db.database import Database, TakenError
from wharfinger.db.row_statements import Change, Following, StaleError, is_several
from wharfinger.exceptions import (
    ConcurrentSave,
    InvalidObject,
    ObjectExists,
    ObjectNotFound,
    printable,
    shown,
)
from wharfinger.objects import base, field_base
from wharfinger.objects.base import WharfingerObject
from wharfinger.objects.database_context import Context
from wharfinger.objects.field_types import count

LOG: Final = logging.getLogger(__name__)


class RowObject(WharfingerObject):
    """An object whose fields are the columns of a row in ``TABLE``.

    ``KEY`` is the field that identifies the object. A field that cannot be read is unset.
    """

    TABLE: ClassVar[str]
    KEY: ClassVar[str] = "uuid"

    _unread: Mapping[str, str] = {}
    _documents: Mapping[str, Any] = {}

    @property
    def key(self) -> str:
        """Return the value of the field that identifies the object."""
        key: str = getattr(self, self.KEY)
        return key

    @property
    def subject(self) -> str:
        """Return the name of the class and the key, for messages."""
        known = self.obj_attr_is_set(self.KEY)
        return f"{self.obj_name()} {self.key}" if known else self.obj_name()

    def obj_what_changed(self) -> set[str]:
        """Return the names of the changed fields, including lists and dicts edited in place."""
        edited = {
            name
            for name, before in self._documents.items()
            if self.obj_attr_is_set(name) and _text(getattr(self, name)) != before
        }
        return super().obj_what_changed() | edited

    def obj_reset_changes(self, fields: list[str] | None = None, recursive: bool = False) -> None:
        """Mark fields as unchanged, by default all."""
        super().obj_reset_changes(fields, recursive)
        names = self.fields if fields is None else fields
        self._documents = {**self._documents, **self._texts(names)}

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        clone = super().__deepcopy__(memo)
        clone.VERSION = self.VERSION
        clone._unread, clone._documents = self._unread, self._documents
        return clone

    def _texts(self, names: Iterable[str]) -> dict[str, str]:
        return {
            name: _text(getattr(self, name))
            for name in names
            if isinstance(self.fields[name], field_base.List | field_base.Dict) and name in self
        }

    def obj_to_primitive(
        self, target_version: str | None = None, version_manifest: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        """Return the object as a primitive, including why fields could not be read."""
        primitive = super().obj_to_primitive(target_version, version_manifest)
        if self._unread:
            primitive[self._obj_primitive_key("unread")] = dict(self._unread)
        return primitive

    @classmethod
    def _obj_from_primitive(cls, context: Any, objver: str, primitive: dict[str, Any]) -> Self:
        self = super()._obj_from_primitive(context, objver, primitive)
        self._unread = dict(primitive.get(cls._obj_primitive_key("unread"), {}))
        self._documents = self._texts(cls.fields.keys() - self._changed_fields)
        return self

    @classmethod
    def _get(cls, context: Context, **where: Any) -> Self:
        try:
            wanted = {name: cls._wanted(name, value) for name, value in where.items()}
        except ValueError:
            rows = []  # the field refuses the value, so no object has it
        else:
            rows = context.db.select(cls.TABLE, **wanted)
        if not rows:
            raise ObjectNotFound(kind=cls.obj_name(), key=" ".join(map(str, where.values())))
        return cls._from_row(context, rows[0])

    @classmethod
    def _wanted(cls, name: str, value: Any) -> Any:
        if value is None:
            return None
        if is_several(value):
            return [cls._wanted(name, one) for one in value]
        return _stored(cls.fields[name].coerce(None, name, value))

    @classmethod
    def _from_row(cls, context: Context, row: Mapping[str, Any]) -> Self:
        self = cls(context)
        damage, lacking = {}, {}
        for name, field in cls.fields.items():
            if name not in row:
                lacking[name] = f"the database has no column {cls.TABLE}.{name} yet."
                continue
            if row[name] is None and not field.nullable:
                continue  # the column was added after the row
            try:
                setattr(self, name, self._read(field, name, row[name]))
            except (
                InvalidObject,
                AttributeError,
                KeyError,
                RecursionError,
                TypeError,
                ValueError,
            ) as error:
                damage[name] = f"the value of {cls.TABLE}.{name} cannot be read: {error}"
        if damage or lacking:
            self._unread = damage | lacking
        for problem in damage.values():
            LOG.error("%s", printable(f"{self.subject}: {problem}"))
        self.obj_reset_changes(recursive=True)
        return self

    def _read(self, field: field_base.Field[Any], name: str, value: Any) -> Any:
        if value is None or not _is_document(field):
            return value
        return field.from_primitive(self, name, json.loads(value))

    def _row(self, names: Iterable[str]) -> dict[str, Any]:
        return {name: self._column(name) for name in names}

    def _column(self, name: str) -> Any:
        field, value = self.fields[name], getattr(self, name)
        if isinstance(value, WharfingerObject):
            # Store the object without its changes, which it has until it is saved.
            value = value.obj_clone()
            value.obj_reset_changes(recursive=True)
        if value is not None and _is_document(field):
            return json.dumps(field.to_primitive(value))
        return _stored(value)

    def _why_unset(self, field: str) -> str:
        return self._unread.get(field, super()._why_unset(field))


class KeptObject(RowObject):
    """A stored object that can be created, saved and destroyed.

    ``revision`` is 1 after ``create``, and each ``save`` of changes adds 1. The methods also raise
    StateError and RemoteError.
    """

    UNIQUE: ClassVar[str] = "uuid"

    revision: int
    fields = {"revision": count()}

    @base.remotable
    def create(self) -> None:
        """Add the object to the database; raises ObjectExists, FieldUnset.

        Unset fields get their defaults, and an unset ``uuid`` a new one.
        """
        with object_errors(type(self), [self]):
            self._context.db.insert(self.TABLE, [self._new_row()])
        self._created()

    @base.remotable
    def save(self) -> None:
        """Write the changed fields of the object.

        Raises ConcurrentSave, ObjectNotFound, ObjectExists and InvalidObject.
        """
        if self.obj_what_changed():
            with object_errors(type(self), [self]):
                self._context.db.update(self.TABLE, self.KEY, [self._change()])
            self._saved()

    @base.remotable
    def destroy(self) -> None:
        """Delete the object from the database.

        Raises ConcurrentSave, ObjectNotFound and InvalidObject.
        """
        with object_errors(type(self), [self]):
            self._context.db.delete(self.TABLE, self.KEY, {self._kept_key(): self.revision})

    def identify(self) -> None:
        """Set ``uuid`` to a new uuid if it is unset."""
        if "uuid" in self.fields and not self.obj_attr_is_set("uuid"):
            self.uuid = str(uuid4())

    def _new_row(self) -> dict[str, Any]:
        self.obj_set_defaults()
        self.identify()
        return {**self._row(name for name in self.fields if name != "revision"), "revision": 1}

    def _created(self) -> None:
        self.revision = 1
        self._settle()

    def _change(self) -> Change:
        return Change(self._kept_key(), self.revision, self._row(self.obj_what_changed()))

    def _kept_key(self) -> str:
        if self.KEY in self.obj_what_changed():
            raise InvalidObject(
                subject=self.subject,
                problem=f"its {self.KEY} has changed, but identifies its row in the database.",
                remedy="Do not change it. Read the object again and destroy it; then create one "
                f"with the new {self.KEY}.",
            )
        return self.key

    def _saved(self) -> None:
        self.revision += 1
        self._settle()

    def _settle(self) -> None:
        for name, field in self.fields.items():
            if isinstance(field, field_base.ObjectField) and name in self:
                part = getattr(self, name)
                if part is not None:
                    part = part.obj_clone()
                    part.obj_reset_changes(recursive=True)
                    setattr(self, name, part)
        self.obj_reset_changes()


_Row = TypeVar("_Row", bound=RowObject)
_Kept = TypeVar("_Kept", bound=KeptObject)
_Result = TypeVar("_Result")


class RowList(base.ObjectList[_Row]):
    """A list of stored objects of one class."""

    KIND: ClassVar[type[RowObject]]

    @classmethod
    @base.remotable
    def get_by_filters(cls, context: Context, **filters: Any) -> Self:
        """Return the objects whose fields have these values, oldest first; by default all.

        A filter may also be a collection of possible values. Raises InvalidObject.
        """
        for name in filters:
            if name not in cls.KIND.fields or _is_document(cls.KIND.fields[name]):
                raise InvalidObject(
                    subject=f"a list of {cls.KIND.obj_name()}",
                    problem=f"the list cannot be filtered by {shown(name)}.",
                    remedy=f"Filter by a field that has a single value, such as {cls.KIND.KEY}.",
                )
        try:
            where = {name: cls.KIND._wanted(name, value) for name, value in filters.items()}
        except ValueError as error:
            raise InvalidObject(
                subject=f"a list of {cls.KIND.obj_name()}",
                problem=f"a filter has an invalid value: {error}.",
                remedy="Use a value that the field accepts.",
            ) from error
        return cls._select(context, **where)

    @classmethod
    def _select(cls, context: Context, **where: Any) -> Self:
        rows = context.db.select(cls.KIND.TABLE, **where)
        return cls._of(context, [cls.KIND._from_row(context, row) for row in rows])

    @classmethod
    def _of(cls, context: Context, objects: Iterable[Any]) -> Self:
        self = cls(context, objects=list(objects))
        self.obj_reset_changes()
        return self


class KeptList(RowList[_Kept]):
    """A list of stored objects; a write succeeds for all of them, or for none."""

    KIND: ClassVar[type[KeptObject]]

    @classmethod
    def _revisions(cls, context: Context, **where: Any) -> dict[str, int]:
        return context.db.revisions(cls.KIND.TABLE, cls.KIND.KEY, **where)

    @base.remotable
    def create(self) -> None:
        """Add all objects to the database, or none; raises ObjectExists and FieldUnset."""
        for one in self.objects:
            one._context = self._context
        with object_errors(self.KIND, self.objects):
            self._context.db.insert(self.KIND.TABLE, [one._new_row() for one in self.objects])
        for one in self.objects:
            one._created()
        self.obj_reset_changes()

    @base.remotable
    def save(self) -> None:
        """Write the changed fields of all objects, or of none.

        Raises ConcurrentSave, ObjectNotFound, ObjectExists and InvalidObject.
        """
        self._save()

    def _save(self, following: Sequence[Following] = ()) -> None:
        # The list may contain an object twice.
        changed = list({id(one): one for one in self.objects if one.obj_what_changed()}.values())
        if changed:
            with object_errors(self.KIND, changed):
                self._context.db.update(
                    self.KIND.TABLE, self.KIND.KEY, [one._change() for one in changed], following
                )
            for one in changed:
                one._saved()
        self.obj_reset_changes()

    @base.remotable
    def destroy(self) -> None:
        """Delete all objects, or none; raises ConcurrentSave, ObjectNotFound and InvalidObject."""
        with object_errors(self.KIND, self.objects):
            self._context.db.delete(
                self.KIND.TABLE,
                self.KIND.KEY,
                {one._kept_key(): one.revision for one in self.objects},
            )


def write_checked(
    database: Database, tables: Sequence[str], work: Callable[..., _Result]
) -> _Result:
    """Check and write rows of these tables in one transaction; raises ObjectExists.

    ``work`` may be repeated.
    """
    try:
        return database.write(tables, work)
    except TakenError:
        pass
    try:
        return database.write(tables, work)
    except TakenError as error:
        raise ObjectExists(
            kind="object", key=f"({error})", unique="key, or another unique value"
        ) from error


def stale_keys(
    held: Mapping[str, Mapping[str, Any]], revisions: Mapping[str, int | None]
) -> Iterator[str]:
    """Yield the keys whose row in ``held`` is missing or has another revision."""
    for key, revision in revisions.items():
        if key not in held or held[key]["revision"] != revision:
            yield key


def _text(document: Any) -> str:
    return json.dumps(document, sort_keys=True)


def _stored(value: Any) -> Any:
    return value.astimezone(UTC).replace(tzinfo=None) if isinstance(value, datetime) else value


def _is_document(field: field_base.Field[Any]) -> bool:
    return isinstance(field, field_base.List | field_base.Dict | field_base.ObjectField)


@contextmanager
def object_errors(kind: type[KeptObject], objects: Collection[KeptObject] = ()) -> Iterator[None]:
    """Replace TakenError and StaleError by ObjectErrors about this class."""
    try:
        yield
    except TakenError as error:
        keys = ", ".join(one.key for one in objects)
        raise ObjectExists(kind=kind.obj_name(), key=shown(keys), unique=kind.UNIQUE) from error
    except StaleError as error:
        if error.changed:
            raise ConcurrentSave(kind=kind.obj_name(), keys=sorted(error.changed)) from error
        raise ObjectNotFound(kind=kind.obj_name(), key=", ".join(sorted(error.gone))) from error
