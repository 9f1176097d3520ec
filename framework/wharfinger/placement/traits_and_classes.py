"""The traits and resource classes that Placement knows: each is made sure of once."""

from collections.abc import Callable, Iterable
from typing import Final

from wharfinger.exceptions import (
    PermissionRefused,
    PlacementError,
    PlacementUnavailable,
    UnknownTrait,
)
from wharfinger.placement.client import PlacementClient
from wharfinger.placement.provider_writes import ProviderWrites
from wharfinger.providers import names


class TraitsAndClasses:
    """Creates custom names, looks standard traits up, and remembers both."""

    def __init__(self, client: PlacementClient) -> None:
        self._client: Final = client
        self._writes: Final = ProviderWrites(client)
        self._traits: Final[set[str]] = set()
        self._classes: Final[set[str]] = set()

    def ensure(self, traits: Iterable[str], classes: Iterable[str]) -> dict[str, PlacementError]:
        """See that all of them exist; the errors of those that do not, by name.

        Standard resource classes are for Placement to refuse. Raises PlacementUnavailable and
        PermissionRefused, which are about no name.
        """
        new_traits = set(traits) - self._traits
        new_classes = {name for name in classes if names.is_custom(name)} - self._classes
        custom = {name for name in new_traits if names.is_custom(name)}
        wrong = self._unknown(new_traits - custom)
        wrong |= self._create(custom, self._writes.create_trait)
        wrong |= self._create(new_classes, self._writes.create_resource_class)
        self._traits.update(new_traits - wrong.keys())
        self._classes.update(new_classes - wrong.keys())
        return wrong

    def forget(self) -> None:
        """Make sure of all names again: somebody may have deleted one."""
        self._traits.clear()
        self._classes.clear()

    def _unknown(self, traits: set[str]) -> dict[str, PlacementError]:
        if not traits:
            return {}
        return {trait: _unknown_trait(trait) for trait in traits - self._client.list_traits(traits)}

    def _create(
        self, wanted: Iterable[str], create: Callable[[str], None]
    ) -> dict[str, PlacementError]:
        wrong: dict[str, PlacementError] = {}
        for name in sorted(wanted):
            try:
                create(name)
            except (PlacementUnavailable, PermissionRefused):
                raise
            except PlacementError as error:
                wrong[name] = error
        return wrong


def _unknown_trait(trait: str) -> UnknownTrait:
    return UnknownTrait(
        request="GET /traits",
        status=0,
        code="",
        trait=trait,
        detail="Its os-traits is older than ours: OWNER_* traits need os-traits 2.8 there. "
        "Nothing of this tree was written.",
    )
