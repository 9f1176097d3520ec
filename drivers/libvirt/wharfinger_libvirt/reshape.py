"""Move of vGPU allocations from the root to the devices, for a layout before nova's Stein release.

In that layout, the host's root has the vGPUs of all its devices. Pure: from the host's devices,
domains and allocations to the new allocations.
"""

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
    """Move of a resource class from the root to the devices that offer it now.

    ``devices`` has the shares of that class by provider uuid, in the order in which they are
    filled. ``other_types`` are the mdev types of other classes. ``instances`` has the instance of
    each consumer that is a migration: it holds the source's allocation. ``driver`` is the driver
    instance's name, for errors.
    """

    driver: str
    resource_class: str
    root_uuid: str
    devices: Mapping[str, Share]
    host: HostSnapshot
    other_types: frozenset[str] = frozenset()
    instances: Mapping[str, str] = field(default_factory=dict)

    def apply(self, allocations: Allocations) -> dict[str, int]:
        """Edit the allocations, and return the new amount of each device by provider uuid.

        A consumer's amount moves to the devices with the mdevs of its domain. An amount without
        known mdevs moves to devices with free room. Without room, raises BackendError and does
        not change the allocations.
        """
        filling = _Filling(self, allocations)
        for consumer, uuid in _assigned(self, filling.left):
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
        """The mdevs on the devices, each with the provider of its device."""
        providers = {share.device.name: uuid for uuid, share in self.devices.items()}
        for device in self.host.devices:
            mdev, uuid = device.mdev, providers.get(device.parent or "")
            if mdev and uuid and mdev.type_id not in self.other_types:
                yield uuid, mdev

    def _edit(self, providers: dict[str, Any], moved: Mapping[str, int]) -> None:
        """Move one consumer's amount of the class from the root to the providers of ``moved``.

        ``providers`` has its allocations by provider uuid, and is changed in place.
        """
        resources = providers[self.root_uuid]["resources"]
        del resources[self.resource_class]
        if not resources:
            del providers[self.root_uuid]
        for uuid, amount in moved.items():
            resources = providers.setdefault(uuid, {"resources": {}})["resources"]
            resources[self.resource_class] = resources.get(self.resource_class, 0) + amount


class _Filling:
    """State of a move: amounts go from the root to the devices.

    ``left`` is the amount that each consumer still has on the root, ``moved`` its amounts that went
    to each device. ``totals`` is the amount on each device, including former allocations.
    """

    def __init__(self, move: Move, allocations: Allocations) -> None:
        self._move: Final = move
        self.left: Final[dict[str, int]] = {}
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
        """Move the amount of one mdev to its device, unless the consumer holds it there."""
        if self._held[consumer, uuid]:
            self._held[consumer, uuid] -= 1
        else:
            self.take(consumer, uuid, 1)

    def take(self, consumer: str, uuid: str, amount: int) -> None:
        """Move an amount to a device: at most the consumer's rest and the device's room."""
        amount = min(amount, self.left[consumer], self._room[uuid])
        if amount > 0:
            self.left[consumer] -= amount
            self._room[uuid] -= amount
            self.totals[uuid] += amount
            self.moved.setdefault(consumer, Counter())[uuid] += amount

    def check_all_moved(self) -> None:
        """Raise BackendError where something has found no room."""
        for consumer, amount in self.left.items():
            if amount:
                raise BackendError(
                    driver=self._move.driver,
                    operation=f"moving {self._move.resource_class} from the host's own provider to "
                    "its devices'",
                    reason=f"no device has room for {amount} of consumer {consumer}. Check which "
                    "mdevs the host has, and whether the consumer still exists. Until then, no "
                    "provider of this host changes",
                )


def _capacities(move: Move) -> dict[str, int]:
    """Return the capacity of each device; a blocked device can hold only its active mdevs."""
    active = Counter(uuid for uuid, mdev in move.mdevs() if mdev.active)
    return {
        uuid: active[uuid] if share.blocked else share.total for uuid, share in move.devices.items()
    }


def _assigned(move: Move, consumers: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Return the consumer and the device's provider of each mdev of a consumer's domain.

    The mdevs that count in the device's total come first; the others may find no room. An mdev of
    two domains belongs to the first one.
    """
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
    """Return the provider of each mdev's device, by the mdev's uuid, in two mappings.

    The first has the mdevs that the device can hold in any case. The second has the others: they
    have another type than the device offers, or are only defined. Several mdevs can have one uuid,
    but only one of these is active.
    """
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
    return sure, {mdev: uuid for mdev, uuid in others.items() if mdev not in sure}
