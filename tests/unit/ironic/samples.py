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


INSTANCE: Final = "00000000-0000-4000-8000-00000000000f"
#: States that Ironic does not have, though some look like it.
UNKNOWN: Final = ("", "Available", "AVAILABLE", " available", "available ", "available\n", "odd")


def nova_reserves(given: Node) -> bool:
    """Nova 34's rule: what is used, and what is in no state to be used."""
    used = given.instance_uuid is not None
    no_power = given.power_state is None or given.power_state == "error"
    good_state = given.provision_state is None or given.provision_state == "available"
    return used or given.maintenance or no_power or not good_state


def is_stricter(given: Node) -> bool:
    """Return whether the driver holds a node that nova would give out."""
    return bool(given.fault or given.retired or given.provision_state is None)
