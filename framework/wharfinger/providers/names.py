"""Check names, uuids and reservation reasons, and derive uuids from names."""

import re
import uuid as uuid_module
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final

import os_resource_classes
import os_traits
from oslo_utils.uuidutils import is_uuid_like

from wharfinger.exceptions import InvalidName

#: The limits of Placement's schemas.
MAX_NAME: Final = 255
MAX_PROVIDER_NAME: Final = 200
_CUSTOM: Final = re.compile(r"CUSTOM_[A-Z0-9_]+\Z")
_STANDARD_TRAITS: Final = frozenset(os_traits.get_traits())
_STANDARD_CLASSES: Final = frozenset(os_resource_classes.STANDARDS)

#: Namespace for uuids of roots. They are derived, so a creation can be repeated.
_ROOTS: Final = uuid_module.UUID("6f0f2b6e-2c4e-5a53-9a60-7b6a3c1f7d0e")


def check_trait(name: str, where: str = "") -> str:
    """Check and return a standard or custom trait. Raises InvalidName."""
    return _check("trait", name, _STANDARD_TRAITS, "os-traits", where)


def check_resource_class(name: str, where: str = "") -> str:
    """Check and return a standard or custom resource class. Raises InvalidName."""
    return _check("resource class", name, _STANDARD_CLASSES, "os-resource-classes", where)


def check_provider_name(name: str) -> str:
    """Check and return a provider name. Raises InvalidName."""
    name = plain(name)
    if not isinstance(name, str) or not 0 < len(name) <= MAX_PROVIDER_NAME:
        raise _invalid("provider", name, f"must have 1 to {MAX_PROVIDER_NAME} characters")
    if not name.isprintable():
        raise _invalid("provider", name, "must have only printable characters")
    return name


def check_reason(reason: str, where: str = "") -> str:
    """Check and return the reason of a reservation. Raises InvalidName."""
    reason = plain(reason)
    if not isinstance(reason, str) or not reason or not reason.isprintable():
        problem = "must be printable text, and not empty"
        raise _invalid("reservation reason", reason, problem, where)
    return reason


def check_uuid(value: str, kind: str = "uuid") -> str:
    """Return a uuid in its canonical form. Raises InvalidName."""
    try:
        return _canonical_uuid(plain(value))
    except (ValueError, AttributeError, TypeError):
        raise _invalid(kind, value, "is not a uuid") from None


def check_aggregates(aggregates: Iterable[str], where: str = "") -> frozenset[str]:
    """Return aggregate uuids in their canonical form. Raises InvalidName."""
    kind = f"{where}: aggregate" if where else "aggregate"
    return frozenset(check_uuid(aggregate, kind) for aggregate in several(aggregates, kind))


def several(names: Iterable[str], kind: str) -> frozenset[str]:
    """Return ``names`` as a set; raise InvalidName if its type is wrong."""
    try:
        if not isinstance(names, str | bytes | Mapping):
            return frozenset(map(plain, names))
    except TypeError:
        pass  # not iterable, or with elements that cannot be in a set
    raise _invalid(f"{kind}s", names, "must be a list or set of names")


def plain(name: str) -> str:
    """Convert a string of a derived type to a plain string."""
    # Only plain strings can be stored and sent. str() would call a method of the derived type.
    return str.__str__(name) if isinstance(name, str) and type(name) is not str else name


@lru_cache(maxsize=65536)
def root_uuid(name: str) -> str:
    """Derive the uuid of a root from its name."""
    return _canonical_uuid(name) if is_uuid_like(name) else str(uuid_module.uuid5(_ROOTS, name))


def child_uuid(parent_uuid: str, name: str) -> str:
    """Derive a child's uuid from the child's name and the parent's uuid."""
    return str(uuid_module.uuid5(uuid_module.UUID(parent_uuid), name))


def overlaid_child_uuid(parent: str, name: str) -> str:
    """Derive the uuid of a child below another program's provider from the names of both."""
    # The other program may create its provider again with another uuid.
    return child_uuid(root_uuid(parent), name)


@lru_cache(maxsize=65536)
def _canonical_uuid(value: str) -> str:
    return str(uuid_module.UUID(value))


def _check(kind: str, name: str, standard: frozenset[str], source: str, where: str) -> str:
    # A driver that is not type-checked may pass a value of another type.
    name = plain(name)
    if isinstance(name, str) and (
        name in standard or (_CUSTOM.match(name) and len(name) <= MAX_NAME)
    ):
        return name
    problem = (
        f"is neither in {source} nor of the form CUSTOM_[A-Z0-9_]+ "
        f"with at most {MAX_NAME} characters"
    )
    raise _invalid(kind, name, problem, where)


def _invalid(kind: str, name: object, problem: str, where: str = "") -> InvalidName:
    return InvalidName(kind=f"{where}: {kind}" if where else kind, name=name, problem=problem)
