"""Which names Placement takes for traits, resource classes, providers and aggregates.

Checked here so that a driver's mistake is told where it is made, not by a 400 from
Placement when half a tree is written.
"""

import re
import uuid as uuid_module
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final

import os_resource_classes
import os_traits
from oslo_utils.uuidutils import is_uuid_like

from wharfinger.exceptions import InvalidName

#: Placement's schemas: CUSTOM_ names have upper case letters, digits and underscores,
#: at most 255 characters in all; provider names are 1 to 200 characters.
MAX_NAME: Final = 255
MAX_PROVIDER_NAME: Final = 200
_CUSTOM: Final = re.compile(r"CUSTOM_[A-Z0-9_]+\Z")
_STANDARD_TRAITS: Final = frozenset(os_traits.get_traits())
_STANDARD_CLASSES: Final = frozenset(os_resource_classes.STANDARDS)

#: A root without a uuid of its own gets one made from its name: names are unique in
#: Placement, and a uuid that can be made again makes a creation safe to repeat.
_ROOTS: Final = uuid_module.UUID("6f0f2b6e-2c4e-5a53-9a60-7b6a3c1f7d0e")


def check_trait(name: str, where: str = "") -> str:
    """Return the name of a standard or CUSTOM_ trait; raise InvalidName otherwise.

    ``where`` is the provider that it is for, to be named in the error.
    """
    return _check(_kind("trait", where), name, _STANDARD_TRAITS, "os-traits")


def check_resource_class(name: str, where: str = "") -> str:
    """Return the name of a standard or CUSTOM_ class; raise InvalidName otherwise.

    ``where`` is the provider that it is for, to be named in the error.
    """
    kind = _kind("resource class", where)
    return _check(kind, name, _STANDARD_CLASSES, "os-resource-classes")


def check_provider_name(name: str) -> str:
    """Return a provider's name; raise InvalidName where Placement would refuse it."""
    name = plain(name)
    if not isinstance(name, str) or not 0 < len(name) <= MAX_PROVIDER_NAME:
        raise InvalidName(
            kind="provider", name=name, problem=f"must be 1 to {MAX_PROVIDER_NAME} characters"
        )
    if not name.isprintable():
        raise InvalidName(kind="provider", name=name, problem="must not contain control characters")
    return name


def check_reason(reason: str, where: str = "") -> str:
    """Return the reason of a reservation; raise InvalidName for what no person can read."""
    reason = plain(reason)
    if not isinstance(reason, str) or not reason or not reason.isprintable():
        raise InvalidName(
            kind=_kind("reservation reason", where),
            name=reason,
            problem="must be some printable text",
        )
    return reason


def check_uuid(value: str, kind: str = "uuid") -> str:
    """Return a uuid in its canonical form; raise InvalidName for anything else."""
    try:
        return _canonical_uuid(plain(value))
    except (ValueError, AttributeError, TypeError):
        raise InvalidName(kind=kind, name=value, problem="is no uuid") from None


def check_aggregates(aggregates: Iterable[str], where: str = "") -> frozenset[str]:
    """Return aggregate uuids in their canonical form; raise InvalidName otherwise."""
    kind = _kind("aggregate", where)
    return frozenset(check_uuid(aggregate, kind) for aggregate in several(aggregates, kind))


def several(names: Iterable[str], kind: str) -> frozenset[str]:
    """Names as a set; raise InvalidName for what is no list or set of them."""
    try:
        if not isinstance(names, str | bytes | Mapping):
            return frozenset(map(plain, names))
    except TypeError:
        pass  # not iterable, or of what cannot be in a set
    raise InvalidName(kind=f"{kind}s", name=names, problem="must be a list or set of names")


def plain(name: str) -> str:
    """A text of a derived type as the text that it is; what is no text as it is."""
    # str() would ask the type, and only exact texts can be stored and sent.
    return str.__str__(name) if isinstance(name, str) and type(name) is not str else name


def is_custom(name: str) -> bool:
    """Whether a trait or resource class is one that can be created."""
    return name.startswith("CUSTOM_")


@lru_cache(maxsize=65536)
def root_uuid(name: str) -> str:
    """The uuid of a root provider whose driver gives none: the name itself if it is one."""
    return _canonical_uuid(name) if is_uuid_like(name) else str(uuid_module.uuid5(_ROOTS, name))


def child_uuid(parent_uuid: str, name: str) -> str:
    """The uuid of a child provider whose driver gives none."""
    return str(uuid_module.uuid5(uuid_module.UUID(parent_uuid), name))


@lru_cache(maxsize=65536)
def _canonical_uuid(value: str) -> str:
    return str(uuid_module.UUID(value))


def _kind(kind: str, where: str) -> str:
    return f"{where}: {kind}" if where else kind


def _check(kind: str, name: str, standard: frozenset[str], source: str) -> str:
    # Drivers are not all type-checked, and neither is what they read from a backend.
    name = plain(name)
    if isinstance(name, str) and (
        name in standard or (_CUSTOM.match(name) and len(name) <= MAX_NAME)
    ):
        return name
    raise InvalidName(
        kind=kind,
        name=name,
        problem=f"is neither in {source} nor of the form CUSTOM_[A-Z0-9_]+ "
        f"with at most {MAX_NAME} characters",
    )
