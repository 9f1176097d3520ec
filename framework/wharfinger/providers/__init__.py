"""Resource providers: trees, what changed, whose they are, what is reserved.

Pure: nothing here does input or output, or knows of drivers and configuration.
"""

from wharfinger.providers.inventory import Inventory
from wharfinger.providers.provider import DesiredProvider, Provider, PublishingMode
from wharfinger.providers.tree import AnyInventory, ProviderData, ProviderTree

__all__ = [
    "AnyInventory",
    "DesiredProvider",
    "Inventory",
    "Provider",
    "ProviderData",
    "ProviderTree",
    "PublishingMode",
]
