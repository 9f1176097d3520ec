"""The gates: for which owners all that is published has an owner trait.

While a gate is off, what nobody has tagged may be the owner's, from a service that is not
upgraded; from then on it is not.
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
#: Names in one line of the log.
_FEW: Final = 5


@dataclass(frozen=True, slots=True)
class Gate:
    """An owner's gate.

    ``behind`` are those of the owner's services, as HOST/BINARY, that have not come to the
    version in which everything is tagged.
    """

    owner: str
    services: int
    behind: tuple[str, ...]

    @property
    def is_on(self) -> bool:
        """Whether all that is published for the owner has its trait."""
        return self.services > 0 and not self.behind


def gates(services: Iterable[Service]) -> dict[str, Gate]:
    """The gates by owner; there is none of an owner for whom nobody publishes.

    Disabled and down services count. One of which it is not known for whom it publishes may
    do so for each of them.
    """
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
    """The gates of all owners, read anew when ``cache_time``, in seconds, has passed.

    Safe for several threads.
    """

    def __init__(self, context: Context, cache_time: float) -> None:
        self._context: Final = context
        self._lock: Final = threading.Lock()
        self._cache: Final[TTLCache[None, Mapping[str, Gate]]] = TTLCache(1, cache_time)
        self._last: Mapping[str, Gate] | None = None

    def is_on(self, owner: str) -> bool:
        """Whether an owner's gate is on; raises ObjectError, StateError."""
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
                _tell(now, logging.WARNING)
            elif self._last is None:
                _tell(now, logging.INFO)
        self._last = current
        return current


def _tell(gate: Gate, off: int) -> None:
    """Log what a gate is; that it is off, at that level."""
    if gate.is_on:
        LOG.info(
            "the gate of %s is on: all %d services that publish for it tag everything; only what "
            "has that trait is offered to those who ask for it.",
            gate.owner,
            gate.services,
        )
        return
    LOG.log(
        off,
        "the gate of %s is off: %s; what has no owner trait is offered to those who ask "
        "for it, too.",
        gate.owner,
        f"{_few(gate.behind)} publishes for it and does not tag everything"
        if gate.behind
        else "no service publishes for it",
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
