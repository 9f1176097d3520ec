"""What docs/objects.rst shows of the versioned objects, read from their classes.

Sphinx has no part in this: the tests look at it too.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from inspect import cleandoc
from typing import Any, Final

import wharfinger.objects
from wharfinger.objects import SERVICE_VERSIONS, WharfingerObject, field_base, field_types
from wharfinger.objects.base import REGISTERED, ObjectList

#: An item of a list in a docstring, to the next item or paragraph.
_ITEM: Final = re.compile(r"^- (.+?)(?=^- |^$|\Z)", re.MULTILINE | re.DOTALL)
#: The fields that a clause is about: before a colon, or the subject of the clause.
_SUBJECTS: Final = re.compile(r"((?:``\w+``, )*``\w+``):? +(.+)", re.DOTALL)
_CLAUSE: Final = re.compile(r"; (?=``\w+``)")
_SENTENCE: Final = re.compile(r"(?<=\.) ")

#: What a field of a kind holds, one and several.
_KINDS: Final[dict[type, tuple[str, str]]] = {
    field_types.Identifier: ("uuid", "uuids"),
    field_types.Count: ("whole number", "whole numbers"),
    field_types.Ratio: ("number", "numbers"),
    field_types.Flag: ("true or false", "true or false"),
    field_types.Moment: ("time", "times"),
    field_types.Text: ("text", "texts"),
    field_types.ColumnText: ("text", "texts"),
}


class Unsaid(LookupError):
    """What a class has and its docstring does not say, or the reverse."""


@dataclass(frozen=True, slots=True)
class FieldRow:
    """A field of an object, in words; ``default`` is empty where there is none."""

    name: str
    type: str
    nullable: str
    default: str
    meaning: str


def objects() -> list[type[WharfingerObject]]:
    """The registered objects of the framework, by name; an object before its list."""
    return [kind for _name, kind in sorted(REGISTERED.items()) if _is_ours(kind)]


def version_rows() -> list[tuple[str, str, str, str]]:
    """Each step of each object: its name, the version, what that brought, and with which fields."""
    return [
        (kind.obj_name(), step.version, step.brought, ", ".join(step.fields))
        for kind in objects()
        for step in kind.HISTORY
    ]


def service_rows() -> list[tuple[str, str]]:
    """Each version of a service, and what it brought."""
    return [(str(version), brought) for version, brought in SERVICE_VERSIONS.items()]


def summary(kind: type[WharfingerObject]) -> str:
    """What the docstring of an object says before and after its fields."""
    paragraphs = _documentation(kind).split("\n\n")
    return "\n\n".join(one for one in paragraphs if not one.startswith("- "))


def field_rows(kind: type[WharfingerObject]) -> list[FieldRow]:
    """The fields of an object, in the order of its docstring; raises Unsaid."""
    meanings = _meanings(kind)
    unsaid = kind.fields.keys() - meanings.keys()
    if unsaid:
        raise Unsaid(f"{kind.obj_name()}: what {', '.join(sorted(unsaid))} means is not said")
    return [
        FieldRow(name, _type(field), "yes" if field.nullable else "no", _default(field), meaning)
        for name, meaning in meanings.items()
        for field in (kind.fields[name],)
    ]


def is_list(kind: type[WharfingerObject]) -> bool:
    """Whether an object is a list of others."""
    return issubclass(kind, ObjectList)


def _is_ours(kind: type) -> bool:
    return kind.__module__.startswith(f"{wharfinger.objects.__name__}.")


def _documentation(kind: type[WharfingerObject]) -> str:
    return cleandoc(vars(kind).get("__doc__") or "")


def _meanings(kind: type[WharfingerObject]) -> dict[str, str]:
    """What the docstring says of each field, by field."""
    meanings: dict[str, str] = {}
    for item in _ITEM.findall(_documentation(kind)):
        for names, meaning in _clauses(" ".join(item.split())):
            for name in names:
                if name not in kind.fields or name in meanings:
                    raise Unsaid(f"{kind.obj_name()}: {name} is no field, or explained twice")
                meanings[name] = meaning
    return meanings


def _clauses(item: str) -> Iterator[tuple[list[str], str]]:
    """The fields of an item, and what it says of them.

    Several clauses are about different fields; sentences after them are about all.
    """
    clauses = _CLAUSE.split(item)
    last, *common = _SENTENCE.split(clauses[-1], maxsplit=1) if len(clauses) > 1 else clauses[-1:]
    for clause in (*clauses[:-1], last):
        found = _SUBJECTS.match(clause)
        if not found:
            raise Unsaid(f"no field is named at the beginning of: {clause}")
        subjects, meaning = found.groups()
        ended = meaning if meaning.endswith(".") else f"{meaning}."
        yield re.findall(r"\w+", subjects), " ".join((ended, *common))


def _type(field: field_base.Field[Any]) -> str:  # noqa: PLR0911 - one for each kind
    match field:
        case field_types.Word():
            return f"one of {', '.join(field.values)}"
        case field_base.ObjectField():
            return field.objname
        case field_base.ListOfObjectsField():
            return f"list of {field.objname}"
        case field_base.List():
            return f"list of {_KINDS[type(field.element)][1]}"
        case field_base.Dict(element=field_base.Dict(element=element)):
            return f"{_KINDS[type(element)][1]}, by name and name"
        case field_base.Dict():
            return f"{_KINDS[type(field.element)][1]}, by name"
    longest = getattr(field, "_longest", None)
    return _KINDS[type(field)][0] + (f", up to {longest} characters" if longest else "")


def _default(field: field_base.Field[Any]) -> str:
    if field.default is field_base.UnspecifiedDefault:
        return ""
    return repr(field.default) if not isinstance(field.default, str) else field.default
