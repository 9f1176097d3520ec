"""Move vGPU allocations from the root to the devices' providers. Pure."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from wharfinger.driver import Allocations
from wharfinger.exceptions import BackendError
from wharfinger_libvirt.host_snapshot import HostSnapshot
from wharfinger_libvirt.mdev import Share
from wharfinger_libvirt.nodedev import Mdev


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """Move of a class's allocations from the root provider to the devices' providers."""

    driver: str
    resource_class: str
    root_uuid: str
    #: By provider uuid, in the order in which the devices are filled.
    devices: Mapping[str, Share]
    host: HostSnapshot
    #: The enabled mdev types with another resource class.
    other_types: frozenset[str] = frozenset()
    #: The instance of each consumer that is a migration.
    instances: Mapping[str, str] = field(default_factory=dict)

    def apply(self, allocations: Allocations) -> dict[str, int]:
        """Edit the allocations in place; return the devices' allocated amounts by provider.

        Raises BackendError if there is not enough room.
        """
        filling = _Filling(self, allocations)
        for consumer, uuid in _consumers_with_devices(self, filling.left):
            filling.take_mdev(consumer, uuid)
        for consumer, amount in filling.left.items():
            for uuid, share in self.devices.items():
                if not share.blocked:
                    filling.take(consumer, uuid, amount)
        filling.check_all_moved()
        for consumer, devices in filling.moved.items():
            self._edit(allocations[consumer]["allocations"], devices)
        return dict(filling.totals)

    def mdevs(self) -> Iterator[tuple[str, Mdev]]:
        """Yield (provider uuid, mdev) for mdevs that can be of ``resource_class``."""
        providers = {share.device.name: uuid for uuid, share in self.devices.items()}
        for device in self.host.devices:
            mdev, uuid = device.mdev, providers.get(device.parent or "")
            if mdev and uuid and mdev.type_id not in self.other_types:
                yield uuid, mdev

    def _edit(self, providers: dict[str, Any], moved: Mapping[str, int]) -> None:
        resources = providers[self.root_uuid]["resources"]
        del resources[self.resource_class]
        if not resources:
            del providers[self.root_uuid]
        for uuid, amount in moved.items():
            resources = providers.setdefault(uuid, {"resources": {}})["resources"]
            resources[self.resource_class] = resources.get(self.resource_class, 0) + amount


class _Filling:
    def __init__(self, move: Move, allocations: Allocations) -> None:
        self._move: Final = move
        #: The amount of each consumer that is still on the root provider.
        self.left: Final[dict[str, int]] = {}
        #: The amounts that each consumer gets on the devices.
        self.moved: Final[dict[str, Counter[str]]] = {}
        self.totals: Final[Counter[str]] = Counter()
        self._held: Final[Counter[tuple[str, str]]] = Counter()
        for consumer, its in allocations.items():
            for uuid, part in its["allocations"].items():
                amount = part["resources"].get(move.resource_class, 0)
                if amount and uuid == move.root_uuid:
                    self.left[consumer] = amount
                elif amount and uuid in move.devices:
                    self._held[consumer, uuid] = amount
                    self.totals[uuid] += amount
        self._room: Final = {
            uuid: capacity - self.totals[uuid] for uuid, capacity in _capacities(move).items()
        }

    def take_mdev(self, consumer: str, uuid: str) -> None:
        # The consumer may already have an allocation for the mdev on the device.
        if self._held[consumer, uuid]:
            self._held[consumer, uuid] -= 1
        else:
            self.take(consumer, uuid, 1)

    def take(self, consumer: str, uuid: str, amount: int) -> None:
        amount = min(amount, self.left[consumer], self._room[uuid])
        if amount > 0:
            self.left[consumer] -= amount
            self._room[uuid] -= amount
            self.totals[uuid] += amount
            self.moved.setdefault(consumer, Counter())[uuid] += amount

    def check_all_moved(self) -> None:
        for consumer, amount in self.left.items():
            if amount:
                raise BackendError(
                    driver=self._move.driver,
                    operation=f"moving {self._move.resource_class} from the root provider to "
                    "those of the devices",
                    reason=f"no device has room for {amount} more {self._move.resource_class} of "
                    f"consumer {consumer}. Check which mdevs the host has. If the consumer no "
                    "longer exists, delete its allocations. Until there is room, the driver "
                    "publishes nothing new",
                )


def _capacities(move: Move) -> dict[str, int]:
    active = Counter(uuid for uuid, mdev in move.mdevs() if mdev.active)
    return {
        uuid: active[uuid] if share.blocked else share.total for uuid, share in move.devices.items()
    }


def _consumers_with_devices(move: Move, consumers: Iterable[str]) -> Iterator[tuple[str, str]]:
    domains = {domain.uuid: domain.mdevs for domain in move.host.domains}
    mdevs = [
        (consumer, mdev)
        for consumer in consumers
        for mdev in domains.get(move.instances.get(consumer, consumer), ())
    ]
    for places in _places(move):
        for consumer, mdev in mdevs:
            if mdev in places:
                yield consumer, places.pop(mdev)


def _places(move: Move) -> tuple[dict[str, str], dict[str, str]]:
    sure: dict[str, str] = {}
    others: dict[str, str] = {}
    for uuid, mdev in move.mdevs():
        share = move.devices[uuid]
        if mdev.uuid is None:
            continue
        if mdev.active and (share.blocked or mdev.type_id == share.mdev_type.type_id):
            sure[mdev.uuid] = uuid
        elif mdev.active:
            others[mdev.uuid] = uuid
        elif not share.blocked:
            others.setdefault(mdev.uuid, uuid)
    # ``_capacities`` counts only the first ones.
    return sure, {mdev: uuid for mdev, uuid in others.items() if mdev not in sure}
