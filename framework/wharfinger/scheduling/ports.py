"""Translate the resource requests of network ports. Pure.

Neutron sets no owner traits, so a port uses only providers without an owner trait.
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

#: neutron-lib's prefix for the trait of a physical network.
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
    """Return the request for a port. Raises InvalidRequest.

    ``resource_request`` has the format of Neutron's extension port-resource-request-groups. The
    port may use any of the ``physnets`` whose trait is in ``known_traits``, by default all.
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
        raise invalid("id", group.id, "a group of a port needs an id.")
    required = frozenset(group.required)
    traits = TraitConditions(required=required)
    named = {trait for trait in required if trait.startswith(_PHYSNET)}
    if choice and named:
        if not named <= choice:
            raise invalid(
                f"required of group {group.id}",
                ",".join(sorted(named)),
                f"the port's network has only {', '.join(sorted(choice))}.",
            )
        traits = TraitConditions(required=required - named, any_of=frozenset([choice]))
    # Neutron accepts a minimum bandwidth of 0.
    resources = {name: amount for name, amount in group.resources.items() if amount}
    return RequestGroup(suffix=group.id, resources=resources, traits=traits)
