"""From network ports to requests for resources. Pure.

Neutron tags nothing with an owner: what a port asks for is taken from providers without one.
"""

from collections.abc import Iterable
from typing import Final

import msgspec
import os_traits

from wharfinger.placement.trait_conditions import TraitConditions
from wharfinger.scheduling.request import RequestGroup, ResourceRequest, about, invalid

#: neutron-lib makes the trait of a physical network so.
_PHYSNET: Final = "CUSTOM_PHYSNET_"


class _Group(msgspec.Struct, frozen=True):
    id: str
    resources: dict[str, int]
    required: list[str] = []


class _PortRequest(msgspec.Struct, frozen=True):
    request_groups: list[_Group]
    same_subtree: list[str] = []


def from_port(resource_request: object, physnets: Iterable[str] = ()) -> ResourceRequest:
    """What a port asks for.

    ``resource_request`` is the port's attribute of that name, with ``request_groups`` (Neutron's
    extension port-resource-request-groups). ``physnets`` are the physical networks of all segments
    of its network: Neutron names one of them, and any of them will do. Raises InvalidRequest.
    """
    choice = frozenset(os_traits.normalize_name(f"physnet_{name}") for name in physnets)
    with about("port"):
        try:
            port = msgspec.convert(resource_request, _PortRequest)
        except msgspec.ValidationError as error:
            raise invalid("resource_request", resource_request, f"{error}.") from error
        return ResourceRequest(
            groups=tuple(_group(group, choice) for group in port.request_groups),
            group_policy="none" if len(port.request_groups) > 1 else None,
            same_subtree=(frozenset(port.same_subtree),) if port.same_subtree else (),
        )


def _group(group: _Group, choice: frozenset[str]) -> RequestGroup:
    required = frozenset(group.required)
    traits = TraitConditions(required=required)
    named = {trait for trait in required if trait.startswith(_PHYSNET)}
    if choice and named:
        if not named <= choice:
            raise invalid(
                f"required of group {group.id}",
                ",".join(sorted(named)),
                f"its network is over {', '.join(sorted(choice))}, and not over that.",
            )
        traits = TraitConditions(required=required - named, any_of=frozenset([choice]))
    # Neutron takes a rule for a minimum of 0, and nova asks for nothing by it.
    resources = {name: amount for name, amount in group.resources.items() if amount}
    return RequestGroup(suffix=group.id, resources=resources, traits=traits)
