"""The accelerators that Cyborg last reported, and their changes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import Final, Protocol
from uuid import uuid4

from wharfinger.exceptions import BackendError
from wharfinger_cyborg.client import AcceleratorRequest
from wharfinger_cyborg.deployable import Deployable

#: The pause of the change feed after a list, as a multiple of the list's duration: Cyborg runs
#: several SQL statements for each deployable that it lists.
_PAUSE: Final = 10
#: The longest pause, in seconds.
_LONGEST_PAUSE: Final = 60


class _Source(Protocol):  # ``Cyborg`` of the module ``client``
    def hosts(self) -> frozenset[str]: ...

    def deployables(self) -> list[Deployable]: ...

    def binding(self) -> list[AcceleratorRequest]: ...


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The accelerators of Cyborg at one time, by the uuids of their providers."""

    hosts: frozenset[str] = frozenset()
    deployables: Mapping[str, Deployable] = field(default_factory=dict)
    #: The uuids of the accelerator requests that Cyborg is binding.
    binding: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def being_bound(self, provider_uuid: str) -> list[str]:
        """Return the uuids of the accelerator requests being bound to a provider's device."""
        deployable = self.deployables.get(provider_uuid)
        return sorted(
            request
            for uuid, requests in self.binding.items()
            if (other := self.deployables.get(uuid)) is not None
            and deployable is not None
            and other.device_id == deployable.device_id
            for request in requests
        )

    def differences(self, other: "Snapshot") -> set[str]:
        """Return the uuids of the providers that differ in another snapshot."""
        return _different(self.deployables, other.deployables) | _different(
            self.binding, other.binding
        )


class Accelerators:
    """All accelerators. If a request fails, the last snapshot stays."""

    def __init__(self, source: _Source, instance: str) -> None:
        self._source: Final = source
        self._instance: Final = instance
        self._id: Final = uuid4().hex
        self._list_number = 0
        self._changed: dict[str, int] = {}
        self._pause_ends = 0.0
        #: The uuids of all deployables ever read, by provider uuid.
        self.seen: dict[str, str] = {}
        self.snapshot = Snapshot()

    def refresh(self) -> None:
        """Read all accelerators. Raises BackendError, also for an empty list."""
        started = monotonic()
        try:
            snapshot = self._read()
        finally:
            ended = monotonic()
            self._pause_ends = ended + min(_PAUSE * (ended - started), _LONGEST_PAUSE)
        # The first list has no changes, because there is no earlier one.
        changed = self.snapshot.differences(snapshot) if self._list_number else set()
        self._list_number += 1
        self._changed.update(dict.fromkeys(changed, self._list_number))
        self.seen |= {uuid: one.uuid for uuid, one in snapshot.deployables.items()}
        self.snapshot = snapshot

    def mark(self) -> str:
        """Return the mark from which ``changed_since`` finds later changes."""
        return f"{self._id}:{self._list_number}"

    def changed_since(self, mark: str) -> tuple[set[str], str]:
        """Return the uuids of providers that may have changed, and the next ``mark``.

        Raises BackendError.
        """
        if monotonic() >= self._pause_ends:
            self.refresh()
        life, _, turn = mark.partition(":")
        if life != self._id:
            return set(self.snapshot.deployables), self.mark()  # another process's mark
        return {uuid for uuid, its in self._changed.items() if its > int(turn)}, self.mark()

    def _read(self) -> Snapshot:
        deployables: dict[str, Deployable] = {}
        for one in self._source.deployables():
            if one.provider_uuid in deployables:
                other = deployables[one.provider_uuid]
                raise self._failed(
                    f"deployables {one.uuid} and {other.uuid} have the same provider "
                    f"({one.provider_uuid})"
                )
            deployables[one.provider_uuid] = one
        binding: dict[str, frozenset[str]] = {}
        for request in self._source.binding():
            uuid = request.device_rp_uuid
            if uuid is not None:
                binding[uuid] = binding.get(uuid, frozenset()) | {request.uuid}
        hosts = self._source.hosts()  # read last, so that they include those of new devices
        if not deployables or not hosts:
            raise self._failed(
                f"Cyborg lists no {'hosts with devices' if deployables else 'deployables'}, which "
                "can be an error of Cyborg: the published providers stay. If it has no "
                "accelerators, remove this driver instance from enabled_drivers"
            )
        return Snapshot(hosts, deployables, binding)

    def _failed(self, reason: str) -> BackendError:
        return BackendError(
            driver=self._instance, operation="listing the accelerators", reason=reason
        )


def _different(one: Mapping[str, object], other: Mapping[str, object]) -> set[str]:
    return {uuid for uuid in one.keys() | other.keys() if one.get(uuid) != other.get(uuid)}
