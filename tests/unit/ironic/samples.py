"""Nodes, as Ironic describes them."""

from typing import Any, Final

import msgspec

from wharfinger_ironic.node import Node

#: One that is to be had.
FREE: Final = Node(
    uuid="00000000-0000-4000-8000-000000000001",
    name=None,
    resource_class="baremetal.gold",
    traits=frozenset(),
    provision_state="available",
    power_state="power off",
    maintenance=False,
    maintenance_reason=None,
    fault=None,
    retired=False,
    retired_reason=None,
    instance_uuid=None,
    last_error=None,
)


def node(**fields: Any) -> Node:
    """A node that is to be had, but for these fields."""
    return msgspec.structs.replace(FREE, **fields)
