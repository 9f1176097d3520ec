"""The XML of a GPU host for libvirt's test driver: https://libvirt.org/drvtest.html."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final
from uuid import NAMESPACE_URL, uuid5

#: The mdev type that the driver publishes, and another type.
OFFERED, OTHER = "nvidia-231", "nvidia-232"
#: The most mdevs of each type on a GPU, which can have mdevs of only one type at a time.
CAPACITIES: Final = {OFFERED: 8, OTHER: 4}
CPUS: Final = 64
MEMORY_MB: Final = 262144
#: Resources of each domain.
DOMAIN_CPUS: Final = 1
DOMAIN_MEMORY_MB: Final = 64

_BUSES: Final = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A GPU whose existing mdevs have one type."""

    #: The number from which the PCI address is computed.
    number: int
    #: The most mdevs of the type OFFERED.
    capacity: int = CAPACITIES[OFFERED]
    #: The type and the number of the mdevs that exist.
    mdev_type: str = OFFERED
    count: int = 0

    @property
    def name(self) -> str:
        """The name of the device in libvirt."""
        return f"pci_{self._suffix}"

    @property
    def mdevs(self) -> tuple[str, ...]:
        """The uuids of the GPU's mdevs."""
        return tuple(
            str(uuid5(NAMESPACE_URL, f"{self.name}/{self.mdev_type}/{index}"))
            for index in range(self.count)
        )

    @property
    def _suffix(self) -> str:
        domain, bus = divmod(self.number, _BUSES)
        return f"{domain:04x}_{bus:02x}_00_0"

    def xml(self) -> str:
        """Return the ``<device>`` elements of the GPU and of its mdevs."""
        domain, bus = divmod(self.number, _BUSES)
        types = "".join(map(self._type_xml, CAPACITIES))
        return (
            f"<device><name>{self.name}</name><parent>computer</parent>"
            "<driver><name>nvidia</name></driver>"
            f"<capability type='pci'><class>0x030200</class><domain>{domain}</domain>"
            f"<bus>{bus}</bus><slot>0</slot><function>0</function>"
            "<product id='0x1eb8'>TU104GL [Tesla T4]</product>"
            "<vendor id='0x10de'>NVIDIA Corporation</vendor>"
            f"<capability type='mdev_types'>{types}</capability></capability></device>"
            + "".join(map(self._mdev_xml, self.mdevs))
        )

    def _type_xml(self, type_id: str) -> str:
        capacity = self.capacity if type_id == OFFERED else CAPACITIES[type_id]
        available = capacity - self.count
        if self.count and type_id != self.mdev_type:
            available = 0
        return (
            f"<type id='{type_id}'><name>{type_id}</name><deviceAPI>vfio-pci</deviceAPI>"
            f"<availableInstances>{available}</availableInstances></type>"
        )

    def _mdev_xml(self, uuid: str) -> str:
        return (
            f"<device><name>mdev_{uuid.replace('-', '_')}_{self._suffix}</name>"
            f"<parent>{self.name}</parent><capability type='mdev'>"
            f"<type id='{self.mdev_type}'/><uuid>{uuid}</uuid>"
            f"<iommuGroup number='{self.number}'/></capability></device>"
        )


def host_xml(gpus: Iterable[Gpu], mdevs_by_domain: Mapping[str, Iterable[str]]) -> str:
    """Return the XML of a host with these GPUs and domains."""
    return (
        f"<node><cpu><mhz>2900</mhz><model>x86</model><active>{CPUS}</active>"
        f"<nodes>1</nodes><sockets>1</sockets><cores>{CPUS}</cores><threads>1</threads></cpu>"
        f"<memory>{MEMORY_MB * 1024}</memory>"
        + "".join(gpu.xml() for gpu in gpus)
        + "".join(_domain_xml(uuid, mdevs) for uuid, mdevs in mdevs_by_domain.items())
        + "</node>"
    )


def _domain_xml(uuid: str, mdevs: Iterable[str]) -> str:
    devices = "".join(
        "<hostdev mode='subsystem' type='mdev' model='vfio-pci'>"
        f"<source><address uuid='{mdev}'/></source></hostdev>"
        for mdev in mdevs
    )
    return (
        f"<domain type='test'><name>instance-{uuid}</name><uuid>{uuid}</uuid>"
        f"<memory unit='MiB'>{DOMAIN_MEMORY_MB}</memory><vcpu>{DOMAIN_CPUS}</vcpu>"
        f"<os><type>hvm</type></os><devices>{devices}</devices></domain>"
    )
