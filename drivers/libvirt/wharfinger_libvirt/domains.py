"""Parse libvirt's XML of domains: https://libvirt.org/formatdomain.html."""

from dataclasses import dataclass
from xml.etree.ElementTree import Element

from wharfinger_libvirt.safexml import InvalidXML, parse_root, text_of, uuid_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Domain:
    """A domain, whose uuid is that of the instance."""

    uuid: str
    #: The uuids of the mediated devices.
    mdevs: tuple[str, ...] = ()


def parse_domain(xml: str) -> Domain:
    """Parse libvirt's XML of a ``<domain>``. Raises InvalidXML."""
    domain = parse_root(xml, "domain")
    return Domain(
        uuid=uuid_of(text_of(domain, "uuid"), "<uuid>"),
        mdevs=tuple(
            _mdev_uuid(device) for device in domain.iterfind("./devices/hostdev[@type='mdev']")
        ),
    )


def _mdev_uuid(hostdev: Element) -> str:
    address = hostdev.find("./source/address")
    uuid = None if address is None else address.get("uuid")
    if uuid is None:
        raise InvalidXML("its <hostdev type='mdev'> has no <source> with the uuid of an mdev")
    return uuid_of(uuid, "<address uuid> of an mdev")
