"""The requests that write allocations."""

from collections.abc import Mapping
from typing import Any

from wharfinger.placement.client import PlacementClient, consumer_path
from wharfinger.placement.microversions import BEFORE_CONSUMER_TYPES, Feature, without_types


class AllocationWrites:
    """Writes the allocations of consumers. Safe for several threads; raises PlacementError."""

    def __init__(self, client: PlacementClient) -> None:
        self._client = client

    def set_allocations(self, allocations: Mapping[str, Mapping[str, Any]]) -> None:
        """Replace all allocations of consumers, all or nothing; raises ConcurrentUpdate.

        ``allocations`` are by consumer uuid in the form of the API, and have a ``consumer_type``.
        """
        self._client.require(Feature.CONSUMER_GENERATION, "writing allocations")
        if self._client.microversion < Feature.CONSUMER_TYPES.value:
            allocations = without_types(allocations)
        self._client.command("POST", "/allocations", allocations)

    def delete_allocations(self, consumer_uuid: str, held: Mapping[str, Any] | None = None) -> None:
        """Delete all allocations of a consumer.

        ``held`` is an earlier answer of Placement. Raises ConcurrentUpdate if Placement notices a
        later write.
        """
        client = self._client
        if held is None or client.microversion < Feature.CONSUMER_GENERATION.value:
            client.command("DELETE", consumer_path(consumer_uuid))
            return
        body = {consumer_uuid: {**held, "allocations": {}}}
        subject = f"none for {consumer_uuid}"
        client.command("POST", "/allocations", body, newest=BEFORE_CONSUMER_TYPES, subject=subject)
