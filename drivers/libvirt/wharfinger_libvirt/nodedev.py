"""Parse libvirt's XML of node devices: https://libvirt.org/formatnode.html."""

import re
from dataclasses import dataclass
from itertools import pairwise
from typing import Final
from xml.etree.ElementTree import Element

from wharfinger_libvirt.safexml import (
    InvalidXML,
    parse_root,
    printable,
    shortened,
    shown,
    text_of,
    uuid_of,
)

#: Numbers in libvirt's notation. int() also accepts "1_0", "+1" and digits of other scripts.
_SIGNED: Final = re.compile(r"-?[0-9]+\Z")
_HEXADECIMAL: Final = re.compile(r"(0x)?[0-9a-fA-F]+\Z")
#: More digits than any of these numbers has; Python refuses to parse thousands of them.
_MAX_DIGITS: Final = 32
#: libvirt's name of an mdev: its uuid, and since libvirt 7.3 the name of its parent device.
_MDEV_NAME: Final = re.compile(r"mdev_([0-9a-f]{8}(?:_[0-9a-f]{4}){3}_[0-9a-f]{12})(?:_|\Z)")

#: The largest number in each part of a PCI address: domain, bus, slot, function.
_ADDRESS_PARTS: Final = {"domain": 0xFFFFFFFF, "bus": 0xFF, "slot": 0x1F, "function": 7}


@dataclass(frozen=True, slots=True, kw_only=True)
class PciFunction:
    """The PCI properties of a device."""

    #: Such as "0000:84:00.0".
    address: str
    vendor_id: str
    product_id: str
    #: None without affinity.
    numa_node: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MdevType:
    """An mdev type, and how many more mdevs of the type a device can take."""

    type_id: str
    available: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Mdev:
    """A mediated device, which uses capacity only while it is active."""

    type_id: str
    active: bool
    #: None if libvirt does not report it.
    uuid: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeDevice:
    """A device of the host, with the names that libvirt uses."""

    name: str
    parent: str | None = None
    pci: PciFunction | None = None
    #: The types that the device offers.
    mdev_types: tuple[MdevType, ...] = ()
    #: Only of mediated devices.
    mdev: Mdev | None = None


def parse(xml: str, *, active: bool = True) -> NodeDevice:
    """Parse libvirt's XML of a ``<device>``. Raises InvalidXML."""
    device = parse_root(xml, "device")
    pci = device.find("./capability[@type='pci']")
    mdev = device.find("./capability[@type='mdev']")
    parent = device.findtext("parent")
    if mdev is not None and not parent:
        raise InvalidXML("it is a mediated device without a <parent>")
    name = printable("name", text_of(device, "name"))
    return NodeDevice(
        name=name,
        parent=parent,
        pci=None if pci is None else _pci(pci),
        mdev_types=_mdev_types(device),
        mdev=None if mdev is None else _mdev(mdev, name, active=active),
    )


def _pci(capability: Element) -> PciFunction:
    address = [_number(capability, part, largest) for part, largest in _ADDRESS_PARTS.items()]
    return PciFunction(
        address="{:04x}:{:02x}:{:02x}.{:x}".format(*address),
        vendor_id=_hexadecimal_id(capability, "vendor"),
        product_id=_hexadecimal_id(capability, "product"),
        numa_node=_numa_node(capability),
    )


def _mdev_types(device: Element) -> tuple[MdevType, ...]:
    # The element is inside the pci capability of a PCI device, and inside another capability of
    # other devices (libvirt 9.0 writes two mdev_types, one in the other, for mtty).
    found = [
        MdevType(
            type_id=_type_id(element),
            available=_number(element, "availableInstances", 0x7FFFFFFF),
        )
        for capability in device.iterfind(".//capability[@type='mdev_types']")
        for element in capability.iterfind("type")
    ]
    found.sort(key=lambda mdev_type: mdev_type.type_id)
    for one, next_one in pairwise(found):
        if one.type_id == next_one.type_id:
            raise InvalidXML(f"it lists mdev type {shortened(one.type_id)} more than once")
    return tuple(found)


def _mdev(capability: Element, name: str, *, active: bool) -> Mdev:
    uuid = capability.findtext("uuid")
    if uuid is None and (named := _MDEV_NAME.match(name)):  # libvirt before 7.3
        uuid = named[1].replace("_", "-")
    return Mdev(
        type_id=_type_id(capability.find("type")),
        active=active,
        uuid=None if uuid is None else uuid_of(uuid.strip(), "<uuid>"),
    )


def _type_id(element: Element | None) -> str:
    type_id = None if element is None else element.get("id")
    if not type_id:
        raise InvalidXML("an mdev <type> has no id")
    return printable("type id", type_id)


def _numa_node(capability: Element) -> int | None:
    numa = capability.find("numa")
    if numa is None:
        return None
    text = numa.get("node", "")
    if not _SIGNED.match(text) or len(text) > _MAX_DIGITS:
        raise InvalidXML(f"its <numa node> is {shown(text)}, not a number")
    node = int(text)
    return node if node >= 0 else None


def _hexadecimal_id(capability: Element, tag: str) -> str:
    element = capability.find(tag)
    text = "" if element is None else element.get("id", "")
    if not _HEXADECIMAL.match(text):
        raise InvalidXML(f"its <{tag} id> is {shown(text)}, not hexadecimal")
    number = int(text, 16)
    if number > 0xFFFF:
        raise InvalidXML(f"its <{tag} id> is {shown(text)}, more than four digits")
    return f"{number:04x}"


def _number(element: Element, tag: str, largest: int) -> int:
    text = text_of(element, tag)
    if not _SIGNED.match(text):
        raise InvalidXML(f"its <{tag}> is {shown(text)}, not a number")
    if len(text) > _MAX_DIGITS or not 0 <= int(text) <= largest:
        raise InvalidXML(f"its <{tag}> is {shortened(text)}, not from 0 to {largest}")
    return int(text)
