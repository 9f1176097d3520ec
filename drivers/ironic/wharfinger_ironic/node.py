"""A node as Ironic's API describes it, as far as it counts here."""

from typing import Final

import msgspec
import os_resource_classes

from wharfinger.providers.names import MAX_NAME


class Node(msgspec.Struct, frozen=True):
    """A node, by the names and values of the Bare Metal API.

    ``name`` is a person's; ``instance_uuid`` whose the node is; ``fault`` what Ironic itself has
    found. ``power_state`` is None where it is not known. Other fields are passed over.
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
        """What Placement calls its resource class, as nova makes that; None where it cannot.

        CUSTOM_, upper case, and _ for what is neither a letter nor a digit of ASCII.
        """
        own = self.resource_class or ""
        name: str = os_resource_classes.normalize_name(own)
        has_any = any(char.isascii() and char.isalnum() for char in own)
        return name if has_any and len(name) <= MAX_NAME else None

    def known_as(self) -> str:
        """The node for people, who may have given it a name."""
        return f"{self.uuid} ({self.name})" if self.name else self.uuid


#: What is asked for in a listing.
FIELDS: Final = Node.__struct_fields__
