"""Tables of docs/reference/objects.rst, read from the classes of the versioned objects.

This module does not use Sphinx, because tests use it too.
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

#: The type of a field, in singular and plural.
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
    """A field that only the class or only its docstring has."""


@dataclass(frozen=True, slots=True)
class FieldRow:
    """A field of an object as text; ``default`` is empty without a default."""

    name: str
    type: str
    nullable: str
    default: str
    meaning: str


def objects() -> list[type[WharfingerObject]]:
    """Return the registered objects of the framework by name, each before its list."""
    return [kind for _name, kind in sorted(REGISTERED.items()) if _is_ours(kind)]


def version_rows() -> list[tuple[str, str, str, str]]:
    """Return the name, version, change and new fields of each step of each object."""
    return [
        (kind.obj_name(), step.version, step.brought, ", ".join(step.fields))
        for kind in objects()
        for step in kind.HISTORY
    ]


def service_rows() -> list[tuple[str, str]]:
    """Return each version of a service, and its change."""
    return [(str(version), brought) for version, brought in SERVICE_VERSIONS.items()]


def summary(kind: type[WharfingerObject]) -> str:
    """Return the text of an object's docstring before and after its fields."""
    paragraphs = _documentation(kind).split("\n\n")
    return "\n\n".join(one for one in paragraphs if not one.startswith("- "))


def field_rows(kind: type[WharfingerObject]) -> list[FieldRow]:
    """Return the fields of an object in the order of its docstring; raises Unsaid."""
    meanings = _meanings(kind)
    unsaid = kind.fields.keys() - meanings.keys()
    if unsaid:
        raise Unsaid(f"{kind.obj_name()}: its docstring lacks {', '.join(sorted(unsaid))}")
    return [
        FieldRow(name, _type(field), "yes" if field.nullable else "no", _default(field), meaning)
        for name, meaning in meanings.items()
        for field in (kind.fields[name],)
    ]


def is_list(kind: type[WharfingerObject]) -> bool:
    """Return whether an object is a list of others."""
    return issubclass(kind, ObjectList)


def _is_ours(kind: type) -> bool:
    return kind.__module__.startswith(f"{wharfinger.objects.__name__}.")


def _documentation(kind: type[WharfingerObject]) -> str:
    return cleandoc(vars(kind).get("__doc__") or "")


def _meanings(kind: type[WharfingerObject]) -> dict[str, str]:
    """Return the meaning of each field in the docstring."""
    meanings: dict[str, str] = {}
    for item in _ITEM.findall(_documentation(kind)):
        for names, meaning in _clauses(" ".join(item.split())):
            for name in names:
                if name not in kind.fields or name in meanings:
                    raise Unsaid(f"{kind.obj_name()}: {name} is no field, or explained twice")
                meanings[name] = meaning
    return meanings


def _clauses(item: str) -> Iterator[tuple[list[str], str]]:
    """Yield the fields of an item with their meaning.

    Each clause describes different fields; the sentences after the clauses apply to all fields.
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
