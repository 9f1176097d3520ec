"""The fields of a node in Ironic's API that the driver uses."""

from typing import Final

import msgspec
import os_resource_classes

from wharfinger.providers.names import MAX_NAME


class Node(msgspec.Struct, frozen=True):
    """A node, with the names and values of the Bare Metal API.

    An operator chooses ``name``. ``instance_uuid`` is the node's instance. Ironic itself sets
    ``fault``. ``power_state`` is None if unknown. Other fields are ignored.
    """

    uuid: str
    name: str | None
    resource_class: str | None
    traits: frozenset[str]
    provision_state: str | None
    power_state: str | None
    maintenance: bool
    maintenance_reason: str | None
    fault: str | None
    retired: bool
    retired_reason: str | None
    instance_uuid: str | None
    last_error: str | None

    @property
    def custom_class(self) -> str | None:
        """Return Placement's name of the resource class, as nova derives it, or None.

        It is CUSTOM_ and the name in upper case, with _ for all but ASCII letters and digits.
        """
        own = self.resource_class or ""
        name: str = os_resource_classes.normalize_name(own)
        has_any = any(char.isascii() and char.isalnum() for char in own)
        return name if has_any and len(name) <= MAX_NAME else None

    def known_as(self) -> str:
        """Return the uuid, and the name if there is one, for messages."""
        return f"{self.uuid} ({self.name})" if self.name else self.uuid


#: The fields of a listing.
FIELDS: Final = Node.__struct_fields__
