"""What Placement has, whoever put it there: for people to look at.

Not for cycles: it asks for each provider's contents anew.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from oslo_utils import uuidutils

from wharfinger.exceptions import NotFound
from wharfinger.placement import owner_traits
from wharfinger.placement.client import PlacementClient
from wharfinger.placement.model import ProviderSummary
from wharfinger.providers.inventory import Inventory


@dataclass(frozen=True, slots=True, kw_only=True)
class Details:
    """A provider, and of its contents what was asked for (None: it was not).

    ``owners`` are its owner traits: one for all that is published by the rules. ``usages``
    are amounts by resource class.
    """

    summary: ProviderSummary
    owners: tuple[str, ...]
    inventories: Mapping[str, Inventory] | None = None
    traits: frozenset[str] | None = None
    usages: Mapping[str, int] | None = None


def find(client: PlacementClient, name_or_uuid: str) -> ProviderSummary:
    """The provider of that name or uuid; raises NotFound."""
    found = client.list_providers(name=name_or_uuid) if name_or_uuid else []
    if not found and uuidutils.is_uuid_like(name_or_uuid):
        found = client.list_providers(uuid=name_or_uuid)
    if not found:
        raise NotFound(
            request="GET /resource_providers",
            status=404,
            code="",
            detail=f"there is no provider with the name or uuid {name_or_uuid!r}",
        )
    return found[0]


def owners_by_provider(client: PlacementClient) -> dict[str, tuple[str, ...]]:
    """The owner traits of each provider that has any, by uuid.

    One list for each owner trait that there is, however many providers.
    """
    owners: dict[str, tuple[str, ...]] = {}
    for trait in sorted(owner_traits.find(client)):
        for provider in client.list_providers(required=(trait,)):
            owners[provider.uuid] = (*owners.get(provider.uuid, ()), trait)
    return owners


def details(
    client: PlacementClient,
    providers: Iterable[ProviderSummary],
    *,
    inventory: bool = False,
    traits: bool = False,
    usage: bool = False,
) -> list[Details]:
    """The providers with what is asked for; a request for each, provider by provider."""
    owners = owners_by_provider(client)
    return [
        Details(
            summary=provider,
            owners=owners.get(provider.uuid, ()),
            inventories=client.get_inventories(provider.uuid).inventories if inventory else None,
            traits=client.get_traits(provider.uuid).traits if traits else None,
            usages=client.get_usages(provider.uuid) if usage else None,
        )
        for provider in providers
    ]
