"""What a device's provider says of the function that the device holds."""

from typing import Final

from tenacity import retry, retry_if_exception_type, stop_after_attempt
from tenacity.wait import wait_random_exponential

from wharfinger.exceptions import ConcurrentUpdate, ReservationRefused
from wharfinger.placement.client import PlacementClient
from wharfinger.placement.model import ProviderSummary
from wharfinger.providers import ownership
from wharfinger.providers.function_traits import function_traits

_ATTEMPTS: Final = 5
#: Seconds between two attempts, at most.
_LONGEST_WAIT: Final = 2.0


@retry(
    retry=retry_if_exception_type(ConcurrentUpdate),
    stop=stop_after_attempt(_ATTEMPTS),
    wait=wait_random_exponential(max=_LONGEST_WAIT),
    reraise=True,
)
def mark(
    client: PlacementClient, provider: ProviderSummary, trait: str | None, owners: frozenset[str]
) -> None:
    """Have a provider say by this trait which function its device holds, and by no other.

    Raises ReservationRefused where the owners' traits that it has are no longer these, and
    PlacementError.
    """
    there = client.get_traits(provider.uuid)
    found = ownership.owners(there.traits)
    if found != owners:
        raise ReservationRefused(
            provider=provider.name,
            uuid=provider.uuid,
            problem=f"it belongs to {', '.join(sorted(found)) or 'nobody known'} now.",
            remedy="Ask its owner.",
        )
    wanted = there.traits - function_traits(there.traits) | ({trait} if trait else set())
    if wanted == there.traits:
        return
    if trait:
        client.create_trait(trait)
    client.set_traits(provider.uuid, there.resource_provider_generation, wanted)
