"""Counts of PCI devices on a host, by vendor, product and NUMA node."""

from typing import ClassVar

from wharfinger.objects import base, field_base, field_types
from wharfinger.objects.base import WharfingerObject, register


@register
class PciDevice(WharfingerObject):
    """The PCI devices of one vendor, product and NUMA node on a host.

    - ``vendor_id``, ``product_id``: four lower-case hexadecimal digits.
    - ``numa_node``: the host's NUMA node, None without affinity.
    - ``count``: the number of devices.
    """

    vendor_id: str
    product_id: str
    numa_node: int | None
    count: int
    fields = {
        "vendor_id": field_types.name(),
        "product_id": field_types.name(),
        "numa_node": field_types.count(nullable=True),
        "count": field_types.count(),
    }


@register
class PciDeviceList(base.ObjectList[PciDevice]):
    """The PCI devices of a host.

    - ``objects``: one for each vendor, product and NUMA node.
    """

    objects: list[PciDevice]
    fields = {"objects": field_base.ListOfObjectsField("PciDevice")}
    child_versions: ClassVar[dict[str, str]] = {"1.0": "1.0"}
