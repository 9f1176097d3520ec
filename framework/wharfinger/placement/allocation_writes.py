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
        """Replace all allocations of one or more consumers in one request, all or nothing.

        ``allocations`` are by consumer uuid, in the form of ``PlacementClient.get_allocations``,
        with a ``consumer_type``. The generation of a new consumer is None. Raises ConcurrentUpdate
        if a generation is no longer current. Needs microversion 1.28.
        """
        self._client.require(Feature.CONSUMER_GENERATION, "writing allocations")
        if self._client.microversion < Feature.CONSUMER_TYPES.value:
            allocations = without_types(allocations)
        self._client.command("POST", "/allocations", allocations)

    def delete_allocations(self, consumer_uuid: str, held: Mapping[str, Any] | None = None) -> None:
        """Delete all allocations of a consumer.

        ``held`` is an earlier answer of ``PlacementClient.get_allocations``. Raises
        ConcurrentUpdate if the allocations have been written since. Without ``held``, or before
        microversion 1.28, nothing is checked.
        """
        client = self._client
        if held is None or client.microversion < Feature.CONSUMER_GENERATION.value:
            client.command("DELETE", consumer_path(consumer_uuid))
            return
        body = {consumer_uuid: {**held, "allocations": {}}}
        subject = f"none for {consumer_uuid}"
        client.command("POST", "/allocations", body, newest=BEFORE_CONSUMER_TYPES, subject=subject)
