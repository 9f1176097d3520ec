"""From network ports to requests for resources. Pure.

Neutron tags nothing with an owner: what a port asks for is taken from providers without one.
"""

from collections.abc import Container, Iterable
from typing import Final

import msgspec
import os_traits

from wharfinger.placement.trait_conditions import TraitConditions
from wharfinger.scheduling.request import (
    UNNUMBERED,
    RequestGroup,
    ResourceRequest,
    about,
    invalid,
    policy_needed,
)

#: neutron-lib makes the trait of a physical network so.
_PHYSNET: Final = "CUSTOM_PHYSNET_"


class _Group(msgspec.Struct, frozen=True):
    id: str
    resources: dict[str, int]
    required: list[str] = []


class _PortRequest(msgspec.Struct, frozen=True):
    request_groups: list[_Group]
    same_subtree: list[str] = []


def from_port(
    resource_request: object,
    physnets: Iterable[str | None] = (),
    known_traits: Container[str] | None = None,
) -> ResourceRequest:
    """What a port asks for.

    ``resource_request`` is the port's attribute of that name, with ``request_groups`` (Neutron's
    extension port-resource-request-groups). ``physnets`` are the physical networks of all segments
    of its network (None: a segment over none): Neutron names one of them, and any of them will do.
    Placement refuses traits that it does not know; those of networks that no agent has reported yet
    are left out where ``known_traits`` says which it does. Raises InvalidRequest, also where
    nothing is asked for.
    """
    named = (os_traits.normalize_name(f"physnet_{name}") for name in physnets if name)
    choice = frozenset(trait for trait in named if known_traits is None or trait in known_traits)
    with about("port"):
        try:
            port = msgspec.convert(resource_request, _PortRequest)
        except msgspec.ValidationError as error:
            raise invalid("resource_request", resource_request, f"{error}.") from error
        groups = tuple(_group(group, choice) for group in port.request_groups)
        return ResourceRequest(
            groups=groups,
            group_policy=policy_needed(groups),
            same_subtree=(frozenset(port.same_subtree),) if port.same_subtree else (),
        )


def _group(group: _Group, choice: frozenset[str]) -> RequestGroup:
    if group.id == UNNUMBERED:
        raise invalid("id", group.id, "a group of a port has one.")
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
    # Neutron takes a rule for a minimum of 0.
    resources = {name: amount for name, amount in group.resources.items() if amount}
    return RequestGroup(suffix=group.id, resources=resources, traits=traits)
