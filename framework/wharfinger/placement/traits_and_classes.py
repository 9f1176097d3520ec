"""Makes sure, once each, that traits and resource classes exist in Placement."""

from collections.abc import Iterable
from typing import Final

from wharfinger.exceptions import (
    PermissionRefused,
    PlacementError,
    PlacementUnavailable,
    UnknownTrait,
)
from wharfinger.placement.client import PlacementClient
from wharfinger.placement.provider_writes import ProviderWrites
from wharfinger.providers.names import is_custom

_UNKNOWN: Final = (
    "The os-traits library of Placement is older than ours, so this tree was not written. Upgrade "
    "os-traits there: OWNER_* traits need os-traits 2.8."
)


class TraitsAndClasses:
    """Creates custom traits and classes, finds standard traits, and remembers which exist."""

    def __init__(self, client: PlacementClient) -> None:
        self._client: Final = client
        self._writes: Final = ProviderWrites(client)
        self._traits: Final[set[str]] = set()
        self._classes: Final[set[str]] = set()

    def ensure(self, traits: Iterable[str], classes: Iterable[str]) -> dict[str, PlacementError]:
        """Create missing custom traits and classes; return an error for each name that is missing.

        Those are names that Placement refuses to create, and standard traits that it lacks. Unknown
        standard classes are not checked: Placement refuses them in writes. Raises
        PlacementUnavailable and PermissionRefused.
        """
        new_traits = set(traits) - self._traits
        new_classes = set(filter(is_custom, classes)) - self._classes
        custom = set(filter(is_custom, new_traits))
        errors: dict[str, PlacementError] = {}
        if standard := new_traits - custom:
            for trait in standard - self._client.list_traits(standard):
                errors[trait] = UnknownTrait(request="GET /traits", trait=trait, detail=_UNKNOWN)
        for names, create in (
            (custom, self._writes.create_trait),
            (new_classes, self._writes.create_resource_class),
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

    def forget(self) -> None:
        """Forget which names exist, since another program may have deleted one."""
        self._traits.clear()
        self._classes.clear()
