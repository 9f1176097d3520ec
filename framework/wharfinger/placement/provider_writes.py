"""The requests that write resource providers, traits and resource classes."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import os_resource_classes
import os_traits

from wharfinger.exceptions import (
    PermissionRefused,
    PlacementError,
    PlacementUnavailable,
    UnknownTrait,
)
from wharfinger.placement import model
from wharfinger.placement.client import PlacementClient, provider_path
from wharfinger.placement.microversions import Feature, writable_allocations
from wharfinger.providers.inventory import Inventory

_UNKNOWN: Final = (
    "The os-traits library of Placement is older than ours, so this tree was not written. Upgrade "
    "os-traits there: OWNER_* traits need os-traits 2.8."
)


class ProviderWrites:
    """Writes providers, traits and resource classes; safe for several threads.

    Methods raise PlacementError, and ConcurrentUpdate for an outdated ``generation``.
    """

    def __init__(self, client: PlacementClient) -> None:
        self._client = client
        #: The names of traits and resource classes that exist.
        self._traits: Final[set[str]] = set()
        self._classes: Final[set[str]] = set()

    def create_provider(
        self, uuid: str, name: str, parent_uuid: str | None
    ) -> model.ProviderSummary:
        """Create and return a provider; without ``parent_uuid``, create a root."""
        body = {"uuid": uuid, "name": name, "parent_provider_uuid": parent_uuid}
        return self._client.send(
            "POST", "/resource_providers", body, model.ProviderSummary, subject=name
        )

    def update_provider(self, uuid: str, name: str, parent_uuid: str | None) -> None:
        """Set the name and the parent of a provider."""
        body = {"name": name, "parent_provider_uuid": parent_uuid}
        self._client.send("PUT", provider_path(uuid), body, model.ProviderSummary)

    def delete_provider(self, uuid: str) -> None:
        """Delete a provider; raises ProviderInUse."""
        self._client.command("DELETE", provider_path(uuid))

    # Parts of a provider.

    def set_inventories(
        self, uuid: str, generation: int, inventories: Mapping[str, Inventory]
    ) -> int:
        """Replace a provider's inventories; return the new generation."""
        return self._replace(uuid, generation, "inventories", inventories)

    def set_traits(self, uuid: str, generation: int, traits: Iterable[str]) -> int:
        """Replace a provider's traits; return the new generation."""
        return self._replace(uuid, generation, "traits", sorted(traits))

    def set_aggregates(self, uuid: str, generation: int, aggregates: Iterable[str]) -> int:
        """Replace a provider's aggregates; return the new generation."""
        return self._replace(uuid, generation, "aggregates", sorted(aggregates))

    def reshape(
        self,
        inventories: Mapping[str, tuple[int, Mapping[str, Inventory]]],
        allocations: Mapping[str, Mapping[str, Any]],
        subject: str = "",
    ) -> None:
        """Replace inventories and allocations in one request, all or nothing.

        ``inventories`` are by provider uuid, with the provider's generation. ``allocations`` are by
        consumer uuid in the form of the API.
        """
        written, newest = writable_allocations(allocations, self._client.microversion)
        body = {
            "inventories": {
                uuid: {"resource_provider_generation": generation, "inventories": content}
                for uuid, (generation, content) in inventories.items()
            },
            "allocations": written,
        }
        self._client.require(Feature.RESHAPE, "POST /reshaper")
        self._client.command("POST", "/reshaper", body, newest=newest, subject=subject)

    # Names.

    def ensure_names(
        self, traits: Iterable[str], classes: Iterable[str]
    ) -> dict[str, PlacementError]:
        """Create missing custom traits and classes; return the errors of names still missing.

        Raises PlacementError.
        """
        new_traits = set(traits) - self._traits
        new_classes = set(filter(os_resource_classes.is_custom, classes)) - self._classes
        custom = set(filter(os_traits.is_custom, new_traits))
        errors: dict[str, PlacementError] = {}
        if standard := new_traits - custom:
            for trait in standard - self._client.list_traits(standard):
                errors[trait] = UnknownTrait(request="GET /traits", trait=trait, detail=_UNKNOWN)
        for names, create in (
            (custom, self.create_trait),
            (new_classes, self.create_resource_class),
        ):
            for name in sorted(names):
                try:
                    create(name)
                except (PlacementUnavailable, PermissionRefused):
                    raise
                except PlacementError as error:
                    errors[name] = error
        self._traits.update(new_traits - errors.keys())
        self._classes.update(new_classes - errors.keys())
        return errors

    def forget_names(self) -> None:
        """Forget which traits and resource classes exist."""
        self._traits.clear()
        self._classes.clear()

    def create_trait(self, name: str) -> None:
        """Create a CUSTOM_ trait if it does not exist."""
        self._client.command("PUT", f"/traits/{name}")

    def create_resource_class(self, name: str) -> None:
        """Create a CUSTOM_ resource class if it does not exist."""
        self._client.command("PUT", f"/resource_classes/{name}")

    def _replace(self, uuid: str, generation: int, part: str, content: object) -> int:
        body = {"resource_provider_generation": generation, part: content}
        answer = self._client.send("PUT", provider_path(uuid, part), body, model.WithGeneration)
        return answer.resource_provider_generation
