"""The fields of a node in Ironic's API that the driver uses."""

from typing import Final

import msgspec
import os_resource_classes

from wharfinger.providers.names import MAX_NAME


class Node(msgspec.Struct, frozen=True):
    """A node, with the field names and values of Ironic's API."""

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
        """Placement's name of the node's resource class, or None without a valid one."""
        own = self.resource_class or ""
        name: str = os_resource_classes.normalize_name(own)
        has_any = any(char.isascii() and char.isalnum() for char in own)
        return name if has_any and len(name) <= MAX_NAME else None

    def known_as(self) -> str:
        """Return the uuid and the name of the node for messages."""
        return f"{self.uuid} ({self.name})" if self.name else self.uuid


FIELDS: Final = Node.__struct_fields__
