"""The interface that drivers implement, and the loader of drivers.

A driver imports the interface from here::

    from wharfinger.driver import SUPPORTED, Capabilities, ComputeDriver, unsupported

ProviderTree and Inventory are in ``wharfinger.providers``, ComputeNode in ``wharfinger.objects``.
"""

from wharfinger.driver.base import Allocations, ComputeDriver
from wharfinger.driver.capabilities import SUPPORTED, Capabilities, Capability, unsupported

__all__ = ["SUPPORTED", "Allocations", "Capabilities", "Capability", "ComputeDriver", "unsupported"]
