"""Compute the mediated devices (mdevs) that each device of a host offers. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from wharfinger.exceptions import ConfigurationError
from wharfinger_libvirt.config import MdevTypeSection
from wharfinger_libvirt.nodedev import NodeDevice


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """The active mdevs of a type on a device, and the room for more."""

    active: int
    available: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """The mdevs of one type that a device offers."""

    device: NodeDevice
    mdev_type: MdevTypeSection
    #: The largest number of mdevs of the type.
    total: int
    #: Whether the device cannot have an mdev of the type at present.
    blocked: bool = False
    #: Other types with mdevs on the device.
    occupants: tuple[str, ...] = ()


def shares(
    devices: Sequence[NodeDevice], mdev_types: Sequence[MdevTypeSection], section: str
) -> list[Share]:
    """Return what each device offers of its mdev type, sorted by address and name.

    Raises ConfigurationError.
    """
    parents = sorted((device for device in devices if device.mdev_types), key=_order)
    chosen = _choose(parents, devices, mdev_types)
    _check_types_are_offered(parents, mdev_types, section)
    active = _active(devices)
    found = [
        share
        for mdev_type in mdev_types
        for share in _shares_of_type(
            mdev_type,
            [device for device in parents if chosen.get(device.name) is mdev_type],
            active,
        )
    ]
    return sorted(found, key=lambda share: _order(share.device))


def is_enabled(device: NodeDevice, mdev_types: Iterable[MdevTypeSection]) -> bool:
    """Return whether a device has an mdev type enabled for it."""
    address = None if device.pci is None else device.pci.address
    offered = _type_ids(device)
    return any(
        mdev_type.type_id in offered and (not mdev_type.addresses or address in mdev_type.addresses)
        for mdev_type in mdev_types
    )


def allot(limit: int | None, demands: Sequence[Demand]) -> list[int]:
    """Spread a host-wide limit over devices; return the total of each device.

    Two devices with room for 4 each and a limit of 6 get 4 and 2.
    """
    totals = []
    left = None if limit is None else limit - sum(demand.active for demand in demands)
    for demand in demands:
        more = demand.available if left is None else min(demand.available, max(left, 0))
        totals.append(demand.active + more)
        left = None if left is None else left - more
    return totals


def _choose(
    parents: Sequence[NodeDevice],
    devices: Iterable[NodeDevice],
    mdev_types: Sequence[MdevTypeSection],
) -> dict[str, MdevTypeSection]:
    addresses = {device.pci.address: device for device in devices if device.pci is not None}
    chosen = {}
    for mdev_type in mdev_types:
        for address in mdev_type.addresses:
            chosen[_named_device(addresses, address, mdev_type).name] = mdev_type
    defaults = [mdev_type for mdev_type in mdev_types if not mdev_type.addresses]
    for device in parents:
        offered = _type_ids(device)
        fitting = [mdev_type for mdev_type in defaults if mdev_type.type_id in offered]
        if fitting:
            chosen.setdefault(device.name, fitting[0])
    return chosen


def _named_device(
    addresses: Mapping[str, NodeDevice], address: str, mdev_type: MdevTypeSection
) -> NodeDevice:
    device = addresses.get(address)
    if device is not None and mdev_type.type_id in _type_ids(device):
        return device
    remedy = "Correct the address, or remove it."
    if device is None:
        problem = "the host has no such PCI device."
    elif device.mdev_types:
        problem = (
            f"this device does not offer {mdev_type.type_id}, but "
            f"{', '.join(sorted(_type_ids(device)))}."
        )
    else:
        problem = "this device offers no mdev types; its kernel driver may not be loaded."
        remedy = "Load the kernel driver, or correct the address."
    raise ConfigurationError(
        section=mdev_type.section,
        key="device_addresses",
        value=address,
        problem=problem,
        remedy=f"{remedy} Until this is corrected, the driver publishes nothing new.",
    )


def _check_types_are_offered(
    parents: Sequence[NodeDevice], mdev_types: Sequence[MdevTypeSection], section: str
) -> None:
    offered = frozenset().union(*(_type_ids(device) for device in parents))
    for mdev_type in mdev_types:
        if mdev_type.type_id not in offered:
            raise ConfigurationError(
                section=section,
                key="enabled_mdev_types",
                value=mdev_type.type_id,
                problem="no device of the host offers this type. The offered types are: "
                f"{', '.join(sorted(offered)) or 'none'}.",
                remedy="Correct or remove the type, or load the kernel driver that offers it. "
                "Until this is corrected, the driver publishes nothing new.",
            )


def _shares_of_type(
    mdev_type: MdevTypeSection,
    devices: Sequence[NodeDevice],
    active: Mapping[str, Mapping[str, int]],
) -> list[Share]:
    demands = [
        Demand(
            active=active.get(device.name, {}).get(mdev_type.type_id, 0),
            available=_available(device, mdev_type.type_id),
        )
        for device in devices
    ]
    return [
        Share(
            device=device,
            mdev_type=mdev_type,
            total=total,
            blocked=demand.active + demand.available == 0,
            occupants=tuple(sorted(active.get(device.name, {}).keys() - {mdev_type.type_id})),
        )
        for device, demand, total in zip(
            devices, demands, allot(mdev_type.max_instances, demands), strict=True
        )
    ]


def _active(devices: Iterable[NodeDevice]) -> dict[str, dict[str, int]]:
    counts: dict[str, dict[str, int]] = {}
    for device in devices:
        if device.mdev is not None and device.mdev.active and device.parent is not None:
            by_type = counts.setdefault(device.parent, {})
            by_type[device.mdev.type_id] = by_type.get(device.mdev.type_id, 0) + 1
    return counts


def _available(device: NodeDevice, type_id: str) -> int:
    return next(item.available for item in device.mdev_types if item.type_id == type_id)


def _type_ids(device: NodeDevice) -> frozenset[str]:
    return frozenset(mdev_type.type_id for mdev_type in device.mdev_types)


def _order(device: NodeDevice) -> tuple[str, str]:
    return ("" if device.pci is None else device.pci.address, device.name)
