"""Resource providers: trees, plans, ownership and reservations.

Pure: no input or output, and no dependency on drivers or configuration.
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
