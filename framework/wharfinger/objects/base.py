"""The base of all versioned objects.

oslo.versionedobjects reaches oslo.service by way of oslo.messaging, and oslo.service
takes eventlet unless it is told otherwise first: hence the lines before the imports.
"""

import warnings

with warnings.catch_warnings():
    # futurist, below oslo.service, imports eventlet if it is there, to warn of it.
    warnings.filterwarnings("ignore", message="\nEventlet is deprecated")
    import oslo_service.backend

    oslo_service.backend.init_backend(oslo_service.backend.BackendType.THREADING)

from dataclasses import dataclass
from typing import Any, ClassVar, Final, NoReturn, Self

from oslo_utils import versionutils
from oslo_versionedobjects import base, fields
from oslo_versionedobjects import exception as ovo_exception

from wharfinger.exceptions import FieldUnset, InvalidObject, shown

#: Registers a class under its name and version; a decorator.
register: Final = base.VersionedObjectRegistry.register


@dataclass(frozen=True, slots=True)
class Step:
    """What a version of an object brought, and the fields that came with it."""

    version: str
    brought: str
    fields: tuple[str, ...] = ()


class WharfingerObject(base.VersionedObject):
    """A versioned object of this project.

    ``HISTORY`` lists what each version brought, oldest first; the last is ``VERSION``.
    Annotations beside ``fields`` give the attributes their types, and the docstring says what
    they mean; what is read while it is unset raises FieldUnset.
    """

    OBJ_SERIAL_NAMESPACE = "wharfinger_object"
    OBJ_PROJECT_NAMESPACE = "wharfinger"
    HISTORY: ClassVar[tuple[Step, ...]] = (Step("1.0", "first version"),)
    VERSION: str = "1.0"

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.VERSION = cls.HISTORY[-1].version

    def obj_make_compatible(self, primitive: dict[str, Any], target_version: str) -> None:
        """Make a primitive of this object one of an earlier version."""
        super().obj_make_compatible(primitive, target_version)
        self._leave_out_later(primitive, target_version)

    def _leave_out_later(self, primitive: dict[str, Any], target_version: str) -> None:
        target = versionutils.convert_version_to_tuple(target_version)
        for step in self.HISTORY:
            if versionutils.convert_version_to_tuple(step.version) > target:
                for name in step.fields:
                    primitive.pop(name, None)

    def obj_to_primitive(
        self, target_version: str | None = None, version_manifest: dict[str, str] | None = None
    ) -> dict[str, Any]:
        """The object as a primitive.

        One that came in an earlier version leaves in that: without what was added to it here.
        """
        primitive = super().obj_to_primitive(target_version, version_manifest)
        if self.VERSION != type(self).VERSION and target_version in (None, self.VERSION):
            data = self._obj_primitive_field(primitive, "data")
            self._leave_out_later(data, self.VERSION)
            changes = [one for one in self.obj_what_changed() if one in data]
            primitive[self._obj_primitive_key("changes")] = changes
        return primitive

    @classmethod
    def obj_from_primitive(cls, primitive: Any, context: Any = None) -> Self:
        """The object of a primitive.

        Raises InvalidObject for what is none of this project, and IncompatibleObjectVersion for
        one of a version that is not known here.
        """
        try:
            return super().obj_from_primitive(primitive, context)
        except ovo_exception.IncompatibleObjectVersion:
            raise
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InvalidObject(
                subject=_subject(cls, primitive),
                problem=f"it cannot be read: {type(error).__name__}: {error}.",
                remedy="Whoever wrote it has to write it again.",
            ) from error
        except ovo_exception.UnsupportedObjectError as error:
            raise InvalidObject(
                subject=_subject(cls, primitive),
                problem="there are no such objects here.",
                remedy="Only objects of the same release, or an earlier one, are known.",
            ) from error

    @classmethod
    def _obj_from_primitive(cls, context: Any, objver: str, primitive: dict[str, Any]) -> Self:
        unknown = cls._obj_primitive_field(primitive, "data").keys() - cls.fields.keys()
        if unknown:
            raise InvalidObject(
                subject=f"{cls.obj_name()} {objver}",
                problem=f"{cls.VERSION} as it is known here has no field "
                f"{', '.join(map(shown, sorted(unknown, key=str)))}.",
                remedy="Give what adds a field a version of its own.",
            )
        return super()._obj_from_primitive(context, objver, primitive)

    def obj_load_attr(self, attrname: str) -> NoReturn:
        """Nothing is loaded when it is looked at: raises FieldUnset."""
        raise FieldUnset(subject=self.subject, field=attrname, problem=self._why_unset(attrname))

    @property
    def subject(self) -> str:
        """Which object, for people."""
        return self.obj_name()

    def _why_unset(self, _field: str) -> str:
        return "it was not said."


def _subject(cls: type[base.VersionedObject], primitive: object) -> str:
    """Which object a primitive says it is."""
    if not isinstance(primitive, dict):
        return shown(primitive)
    name, version = (primitive.get(cls._obj_primitive_key(key), "?") for key in ("name", "version"))
    return f"{name} {version}"


__all__ = ["Step", "WharfingerObject", "base", "fields", "register"]
