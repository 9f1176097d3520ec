"""Versioned objects, and the records that are kept of what was published.

The only users of the database. Objects cross process borders and outlive upgrades, so
each carries a version, and a field changes only with it.
"""

from wharfinger.objects.base import WharfingerObject
from wharfinger.objects.compute_node import ComputeNode
from wharfinger.objects.migration import Migration
from wharfinger.objects.pci_device import PciDevice, PciDeviceList
from wharfinger.objects.service import SERVICE_VERSION, Service

__all__ = [
    "SERVICE_VERSION",
    "ComputeNode",
    "Migration",
    "PciDevice",
    "PciDeviceList",
    "Service",
    "WharfingerObject",
]
