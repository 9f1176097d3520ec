"""Nodes in Ironic's format."""

from typing import Any, Final

import msgspec

from wharfinger_ironic.node import Node

#: An available node.
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
    """Return an available node with these fields changed."""
    return msgspec.structs.replace(FREE, **fields)


INSTANCE: Final = "00000000-0000-4000-8000-00000000000f"
#: States that Ironic does not have; some resemble its states.
UNKNOWN: Final = ("", "Available", "AVAILABLE", " available", "available ", "available\n", "odd")


def nova_reserves(given: Node) -> bool:
    """Return whether nova 34 reserves the node because of its use, power or state."""
    used = given.instance_uuid is not None
    no_power = given.power_state is None or given.power_state == "error"
    good_state = given.provision_state is None or given.provision_state == "available"
    return used or given.maintenance or no_power or not good_state


def is_stricter(given: Node) -> bool:
    """Return whether the driver reserves a node that nova would offer."""
    return bool(given.fault or given.retired or given.provision_state is None)
