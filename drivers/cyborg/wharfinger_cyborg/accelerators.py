"""All accelerators, as Cyborg had them last, and what has changed."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import Final, Protocol
from uuid import uuid4

from wharfinger.exceptions import BackendError
from wharfinger_cyborg.client import AcceleratorRequest
from wharfinger_cyborg.deployable import Deployable

#: A look at what has changed comes after so many times as long as the last took: Cyborg makes
#: several statements of each deployable and request that it lists.
_PAUSE: Final = 10
#: Seconds; after that it is asked again however long the last look took.
_LONGEST_PAUSE: Final = 60


class Source(Protocol):
    """Where accelerators are read from; a Cyborg."""

    def hosts(self) -> frozenset[str]:
        """The hosts that have devices."""

    def deployables(self) -> list[Deployable]:
        """All deployables."""

    def binding(self) -> list[AcceleratorRequest]:
        """The accelerator requests that are being bound."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What Cyborg had at a time.

    ``deployables`` are by the uuids of their providers; ``binding`` are, by provider uuid, the
    uuids of the accelerator requests that are being bound to it.
    """

    hosts: frozenset[str] = frozenset()
    deployables: Mapping[str, Deployable] = field(default_factory=dict)
    binding: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def being_bound(self, provider_uuid: str) -> list[str]:
        """The accelerator requests that are being bound to any part of a provider's device."""
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
        """The uuids of the providers of which the other says something else."""
        return _different(self.deployables, other.deployables) | _different(
            self.binding, other.binding
        )


class Accelerators:
    """The accelerators; where a reading fails they stay as they were.

    A mark is a turn of this process: each change that is read has one. ``seen`` has the uuids of
    all deployables that this process has read, by provider uuid.
    """

    def __init__(self, source: Source, instance: str) -> None:
        self._source: Final = source
        self._instance: Final = instance
        self._life: Final = uuid4().hex
        self._turn = 0
        self._changed: dict[str, int] = {}
        self._pause_ends = 0.0
        self.seen: dict[str, str] = {}
        self.snapshot = Snapshot()

    def refresh(self) -> None:
        """Read all. Raises BackendError where that is not certain to be all."""
        started = monotonic()
        try:
            snapshot = self._read()
        finally:
            ended = monotonic()
            self._pause_ends = ended + min(_PAUSE * (ended - started), _LONGEST_PAUSE)
        # What is read first has not changed: nobody has seen anything before.
        changed = self.snapshot.differences(snapshot) if self._turn else set()
        self._turn += 1
        self._changed.update(dict.fromkeys(changed, self._turn))
        self.seen |= {uuid: one.uuid for uuid, one in snapshot.deployables.items()}
        self.snapshot = snapshot

    def mark(self) -> str:
        """The mark from which changes are followed."""
        return f"{self._life}:{self._turn}"

    def changed_since(self, mark: str) -> tuple[set[str], str]:
        """The uuids of the providers that have changed since a mark, and the next one.

        Raises BackendError.
        """
        if monotonic() >= self._pause_ends:
            self.refresh()
        life, _, turn = mark.partition(":")
        if life != self._life:
            return set(self.snapshot.deployables), self.mark()  # of a process before this
        return {uuid for uuid, its in self._changed.items() if its > int(turn)}, self.mark()

    def _read(self) -> Snapshot:
        """All that there is: a device that comes meanwhile has a host, too."""
        deployables: dict[str, Deployable] = {}
        for one in self._source.deployables():
            if one.provider_uuid in deployables:
                other = deployables[one.provider_uuid]
                raise self._failed(
                    f"deployables {one.uuid} and {other.uuid} are one provider's, "
                    f"{one.provider_uuid}"
                )
            deployables[one.provider_uuid] = one
        binding: dict[str, frozenset[str]] = {}
        for request in self._source.binding():
            uuid = request.device_rp_uuid
            if uuid is not None:
                binding[uuid] = binding.get(uuid, frozenset()) | {request.uuid}
        hosts = self._source.hosts()
        if not deployables or not hosts:
            raise self._failed(
                "it lists none, which is not taken for there being none: what is published stays. "
                "If it has none indeed, remove this instance from enabled_drivers"
            )
        return Snapshot(hosts, deployables, binding)

    def _failed(self, reason: str) -> BackendError:
        return BackendError(
            driver=self._instance, operation="listing the accelerators", reason=reason
        )


def _different(one: Mapping[str, object], other: Mapping[str, object]) -> set[str]:
    return {uuid for uuid in one.keys() | other.keys() if one.get(uuid) != other.get(uuid)}
