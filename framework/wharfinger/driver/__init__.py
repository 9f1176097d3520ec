"""The driver contract and the loader.

A driver imports the contract from here::

    from wharfinger.driver import SUPPORTED, Capabilities, ComputeDriver, unsupported

The values of the contract (ProviderTree, Inventory) are in ``wharfinger.providers``, the objects
in ``wharfinger.objects``.
"""

from wharfinger.driver.base import Allocations, ComputeDriver
from wharfinger.driver.capabilities import SUPPORTED, Capabilities, Capability, unsupported

__all__ = [
    "SUPPORTED",
    "Allocations",
    "Capabilities",
    "Capability",
    "ComputeDriver",
    "unsupported",
]
