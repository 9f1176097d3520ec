"""Gates: whether all services of an owner tag all their providers.

While an owner's gate is off, a provider without an owner trait may belong to the owner.
"""

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from cachetools import TTLCache
from oslo_log import log as logging

from wharfinger.exceptions import FieldUnset
from wharfinger.objects import OWNER_TAG_VERSION, Context, Service, ServiceList

LOG: Final = logging.getLogger(__name__)
#: The largest number of service names in a log line.
_FEW: Final = 5


@dataclass(frozen=True, slots=True)
class Gate:
    """Whether all services of an owner tag all their providers with the owner trait.

    ``behind`` names the services that may have untagged providers.
    """

    owner: str
    services: int
    behind: tuple[str, ...]

    @property
    def is_on(self) -> bool:
        """Return whether the owner has services, and ``behind`` is empty."""
        return self.services > 0 and not self.behind


def gates(services: Iterable[Service]) -> dict[str, Gate]:
    """Return, by owner, whether the services tag all its providers."""
    publishing: dict[str, list[Service]] = {}
    unknown: list[Service] = []
    for service in services:
        if "owners" not in service:
            unknown.append(service)
            continue
        for owner in service.owners:
            publishing.setdefault(owner, []).append(service)
    return {
        owner: Gate(
            owner,
            len(its),
            tuple(sorted(_name(one) for one in [*unknown, *its] if not _tags_all(one))),
        )
        for owner, its in publishing.items()
    }


class Gates:
    """Reads and caches every Gate; threads can share one object."""

    def __init__(self, context: Context, cache_time: float) -> None:
        self._context: Final = context
        self._lock: Final = threading.Lock()
        self._cache: Final[TTLCache[None, Mapping[str, Gate]]] = TTLCache(1, cache_time)
        self._last: Mapping[str, Gate] | None = None

    def is_on(self, owner: str) -> bool:
        """Return ``is_on`` of the owner's Gate. Raises ObjectError and StateError."""
        with self._lock:
            current = self._cache.get(None)
            if current is None:
                current = self._cache[None] = self._read()
            gate = current.get(owner)
            return gate is not None and gate.is_on

    def _read(self) -> Mapping[str, Gate]:
        current = gates(ServiceList.get_by_filters(self._context))
        last = current if self._last is None else self._last
        for owner in sorted(last.keys() | current.keys()):
            before, now = (one.get(owner, Gate(owner, 0, ())) for one in (last, current))
            if before.is_on != now.is_on:
                _log(now, logging.WARNING)
            elif self._last is None:
                _log(now, logging.INFO)
        self._last = current
        return current


def _log(gate: Gate, off: int) -> None:
    if gate.is_on:
        LOG.info(
            "The gate of %s is on: all %d services of this owner tag their providers with an owner "
            "trait. Requests for this owner exclude providers without an owner trait, except "
            "sharing providers. To include all providers without an owner trait, set "
            "[scheduling] untagged = allow.",
            gate.owner,
            gate.services,
        )
        return
    LOG.log(
        off,
        "The gate of %s is off: %s. Requests for this owner also get providers without an owner "
        "trait.",
        gate.owner,
        f"services that do not tag all providers: {_few(gate.behind)}"
        if gate.behind
        else "no service publishes for this owner",
    )


def _few(names: tuple[str, ...]) -> str:
    more = len(names) - _FEW
    return ", ".join(names[:_FEW]) + (f" and {more} more" if more > 0 else "")


def _tags_all(service: Service) -> bool:
    known = "owners" in service and "version" in service
    return known and service.version >= OWNER_TAG_VERSION


def _name(service: Service) -> str:
    try:
        return f"{service.host}/{service.binary}"
    except FieldUnset:
        return service.uuid
