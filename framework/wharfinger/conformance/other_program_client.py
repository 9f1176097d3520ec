"""A Placement client for the other programs that the kit simulates."""

from keystoneauth1.adapter import Adapter

from wharfinger.placement.allocation_writes import AllocationWrites
from wharfinger.placement.client import PlacementClient
from wharfinger.placement.provider_writes import ProviderWrites


class WritingClient(PlacementClient, ProviderWrites, AllocationWrites):
    """A Placement client that also writes providers and allocations."""

    def __init__(self, adapter: Adapter, connections: int = 1) -> None:
        PlacementClient.__init__(self, adapter, connections)
        ProviderWrites.__init__(self, self)
        AllocationWrites.__init__(self, self)
