"""A node: what a driver offers under one root provider."""

from typing import ClassVar

from wharfinger.objects.base import WharfingerObject, fields, register
from wharfinger.objects.pci_device import PciDeviceList


@register
class ComputeNode(WharfingerObject):
    """A host or a bare metal machine.

    - ``uuid``: also its root provider's, where that is not in Placement yet. Unset: the
      framework makes one from the name, the same each time.
    - ``host``: the service host that publishes it.
    - ``hypervisor_hostname``: its name among the nodes, and its root provider's.
    - ``vcpus``: host CPUs; ``memory_mb``: MiB of memory. Unset where the driver does not
      offer them.
    - ``pci_stats``: the PCI devices by kind, None where they are not looked at.
    """

    # 1.0: first version
    VERSION = "1.0"
    uuid: str
    host: str
    hypervisor_hostname: str
    vcpus: int
    memory_mb: int
    pci_stats: PciDeviceList | None
    fields = {
        "uuid": fields.UUIDField(),
        "host": fields.StringField(),
        "hypervisor_hostname": fields.StringField(),
        "vcpus": fields.NonNegativeIntegerField(),
        "memory_mb": fields.NonNegativeIntegerField(),
        "pci_stats": fields.ObjectField("PciDeviceList", nullable=True, default=None),
    }
    obj_relationships: ClassVar[dict[str, list[tuple[str, str]]]] = {  # type: ignore[misc]
        "pci_stats": [("1.0", "1.0")]
    }
