"""The requests that write allocations."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from wharfinger.exceptions import NotFound
from wharfinger.placement.client import PlacementClient, consumer_path
from wharfinger.placement.microversions import Feature, writable_allocations


class AllocationWrites:
    """Writes the allocations of consumers. Safe for several threads; raises PlacementError."""

    def __init__(self, client: PlacementClient) -> None:
        self._client = client

    def set_allocations(
        self, allocations: Mapping[str, Mapping[str, Any]], subject: str = ""
    ) -> None:
        """Replace all allocations of consumers, all or nothing; raises ConcurrentUpdate.

        ``allocations`` are by consumer uuid in the form of the API.
        """
        client = self._client
        client.require(Feature.CONSUMER_GENERATION, "writing allocations")
        body, newest = writable_allocations(allocations, client.microversion)
        client.command("POST", "/allocations", body, newest=newest, subject=subject)

    def delete_allocations(self, consumer_uuid: str, held: Mapping[str, Any] | None = None) -> None:
        """Delete all allocations of a consumer, if it has any.

        ``held`` is an earlier answer of Placement. Raises ConcurrentUpdate if Placement notices a
        later write.
        """
        if held is None or self._client.microversion < Feature.CONSUMER_GENERATION.value:
            with suppress(NotFound):
                self._client.command("DELETE", consumer_path(consumer_uuid))
        else:
            body = {consumer_uuid: {**held, "allocations": {}}}
            self.set_allocations(body, f"none for {consumer_uuid}")
