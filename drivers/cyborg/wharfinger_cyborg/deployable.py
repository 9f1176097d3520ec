"""Cyborg's deployables: parts of devices that can be allocated. Pure."""

import uuid
from collections.abc import Collection
from typing import Final

import msgspec

from wharfinger.providers import Inventory
from wharfinger.providers.device_function_traits import function_trait
from wharfinger.providers.inventory import check_inventories
from wharfinger.providers.names import check_provider_name, check_trait

_CLASS: Final = "rc"
_TRAIT: Final = "trait"
_ATTRIBUTES: Final = msgspec.json.Decoder(list[dict[str, str]])


class Deployable(msgspec.Struct, frozen=True):
    """A deployable, with the field names and values of Cyborg's API."""

    uuid: str
    name: str
    num_accelerators: int
    device_id: int
    #: The uuid of the provider, None until Cyborg has published it.
    rp_uuid: str | None
    driver_name: str | None
    #: JSON.
    attributes_list: str

    @property
    def provider_uuid(self) -> str:
        """The uuid that Cyborg has given, or would give, to the provider."""
        return self.rp_uuid or str(uuid.uuid3(uuid.NAMESPACE_DNS, self.name))

    @property
    def inventory(self) -> dict[str, Inventory]:
        """The inventory of the provider; {} without accelerators. Raises ValueError."""
        classes = {value for key, value in self._attributes() if key == _CLASS}
        if len(classes) != 1:
            raise ValueError(f"its attributes name {len(classes)} resource classes instead of one")
        total = self.num_accelerators
        check_provider_name(self.name)
        if total == 0:
            return {}
        inventory = Inventory(total=total, max_unit=total)
        return dict(check_inventories(self.name, {classes.pop(): inventory}))

    @property
    def traits(self) -> frozenset[str]:
        """The traits in the attributes. Raises ValueError."""
        given = (value for key, value in self._attributes() if key.startswith(_TRAIT))
        return frozenset(map(check_trait, given))

    @property
    def function(self) -> str | None:
        """The function that Cyborg reports for the device, or None. Raises ValueError."""
        prefix = self.function_trait("X")[:-1]
        found = [trait for trait in self.traits if trait.startswith(prefix)]
        return found[0].removeprefix(prefix) if len(found) == 1 else None

    def function_trait(self, function: str) -> str:
        """Return the trait that Cyborg's drivers use for a function."""
        return function_trait(function, self.driver_name or "")

    def _attributes(self) -> list[tuple[str, str]]:
        try:
            listed = _ATTRIBUTES.decode(self.attributes_list)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
            raise ValueError(f"its attributes are not understood: {error}") from error
        return [pair for attribute in listed for pair in attribute.items()]


def host_of(name: str, hosts: Collection[str]) -> str | None:
    """Return the only host; of several, the one in the name; None if unclear."""
    if len(hosts) == 1:
        return next(iter(hosts))
    found = {
        host: prefix
        for host in hosts
        for prefix in (host.partition(".")[0], host)
        if name.startswith(f"{prefix}_")
    }
    longest = max(map(len, found.values()), default=0)
    best = [host for host, prefix in found.items() if len(prefix) == longest]
    return best[0] if len(best) == 1 else None
