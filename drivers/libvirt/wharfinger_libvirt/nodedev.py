"""Libvirt's node devices as values: PCI functions, mdev parents and mdevs.

The format is that of https://libvirt.org/formatnode.html. What libvirt answers comes
from another machine as often as not: it is parsed without entities, and nothing in it
that is not understood is passed over.
"""

from dataclasses import dataclass
from typing import Final
from xml.etree.ElementTree import Element, ParseError

from defusedxml import DefusedXmlException
from defusedxml.ElementTree import fromstring

#: The largest number in each part of a PCI address: domain, bus, slot, function.
_ADDRESS_PARTS: Final = {"domain": 0xFFFFFFFF, "bus": 0xFF, "slot": 0x1F, "function": 7}


class InvalidDeviceXML(ValueError):
    """A description that is not what libvirt documents; the message says what is wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PciFunction:
    """A PCI device: its address ("0000:84:00.0") and kind.

    The ids are four lower-case hexadecimal digits. ``numa_node`` is None where the
    device has no affinity.
    """

    address: str
    vendor_id: str
    product_id: str
    numa_node: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MdevType:
    """An mdev type that a device offers, and how many more of it the device could take."""

    type_id: str
    available: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Mdev:
    """A mediated device of a type; one that is only defined (not active) takes nothing."""

    type_id: str
    active: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeDevice:
    """A device by libvirt's name ("pci_0000_84_00_0") and its parent's.

    A physical GPU has ``mdev_types``, and ``pci`` where it is a PCI device; ``mdev`` is
    set for mediated devices alone.
    """

    name: str
    parent: str | None = None
    pci: PciFunction | None = None
    mdev_types: tuple[MdevType, ...] = ()
    mdev: Mdev | None = None


def parse(xml: str, *, active: bool = True) -> NodeDevice:
    """Parse a ``<device>``; ``active`` is what libvirt says beside it.

    Raises InvalidDeviceXML.
    """
    try:
        device: Element = fromstring(xml, forbid_dtd=True)
    except ParseError as error:
        raise InvalidDeviceXML(f"its description is no XML ({error})") from None
    except DefusedXmlException as error:
        raise InvalidDeviceXML(f"its description declares entities or a DTD ({error})") from None
    if device.tag != "device":
        raise InvalidDeviceXML(f"it is described by <{device.tag}>, not <device>")
    pci = device.find("./capability[@type='pci']")
    mdev = device.find("./capability[@type='mdev']")
    parent = device.findtext("parent")
    if mdev is not None and not parent:
        raise InvalidDeviceXML("it is a mediated device without a <parent>")
    return NodeDevice(
        name=_text(device, "name"),
        parent=parent,
        pci=None if pci is None else _pci(pci),
        mdev_types=_mdev_types(device),
        mdev=None if mdev is None else Mdev(type_id=_type_id(mdev.find("type")), active=active),
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
    # Inside the pci capability for a PCI device; inside one of its own kind for others
    # (libvirt 9.0 writes two mdev_types, one in the other, for mtty).
    found = [
        MdevType(
            type_id=_type_id(element),
            available=_number(element, "availableInstances", 0x7FFFFFFF),
        )
        for capability in device.iterfind(".//capability[@type='mdev_types']")
        for element in capability.iterfind("type")
    ]
    type_ids = [mdev_type.type_id for mdev_type in found]
    for type_id in type_ids:
        if type_ids.count(type_id) > 1:
            raise InvalidDeviceXML(f"it lists mdev type {type_id} more than once")
    return tuple(sorted(found, key=lambda mdev_type: mdev_type.type_id))


def _type_id(element: Element | None) -> str:
    type_id = None if element is None else element.get("id")
    if not type_id:
        raise InvalidDeviceXML("an mdev <type> has no id")
    return type_id


def _numa_node(capability: Element) -> int | None:
    numa = capability.find("numa")
    if numa is None:
        return None
    text = numa.get("node", "")
    try:
        node = int(text)
    except ValueError:
        raise InvalidDeviceXML(f"its <numa node> is {text!r}, not a number") from None
    return node if node >= 0 else None


def _hexadecimal_id(capability: Element, tag: str) -> str:
    element = capability.find(tag)
    text = "" if element is None else element.get("id", "")
    try:
        number = int(text, 16)
    except ValueError:
        raise InvalidDeviceXML(f"its <{tag} id> is {text!r}, not hexadecimal") from None
    if not 0 <= number <= 0xFFFF:
        raise InvalidDeviceXML(f"its <{tag} id> is {text!r}, more than four digits")
    return f"{number:04x}"


def _number(element: Element, tag: str, largest: int) -> int:
    text = _text(element, tag)
    try:
        number = int(text)
    except ValueError:
        raise InvalidDeviceXML(f"its <{tag}> is {text!r}, not a number") from None
    if not 0 <= number <= largest:
        raise InvalidDeviceXML(f"its <{tag}> is {number}, not from 0 to {largest}")
    return number


def _text(element: Element, tag: str) -> str:
    text = (element.findtext(tag) or "").strip()
    if not text:
        raise InvalidDeviceXML(f"it has no <{tag}>")
    return text
