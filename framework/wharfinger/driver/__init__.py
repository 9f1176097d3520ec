"""The driver contract and the loader: all that a driver author needs.

Such as::

    from wharfinger.driver import SUPPORTED, Capabilities, ComputeDriver, unsupported

The values that a driver hands over (ProviderTree, Inventory) are in
``wharfinger.providers``, the objects in ``wharfinger.objects``.
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
