"""Extra specs with which nova confines a flavor to nova's own providers. Pure.

nova 34 requires OWNER_NOVA of the root of the tree alone. So nova takes the resources of a flavor
also from children that another owner publishes below that root. A group with a suffix takes from
one provider, and a group of one resource class does, too: there, a required owner trait holds.

A resource class is contested if children of several owners may offer it: each class except those
that only nova's root has, and shared storage. These are VCPU, PCPU, MEMORY_MB, DISK_GB and the
namespaces of hw:pmem. Each contested class of the group without a suffix gets a group of its own.
"""

from collections.abc import Mapping
from itertools import count
from typing import Final

import os_resource_classes as orc

from wharfinger.objects import Flavor
from wharfinger.providers import ownership
from wharfinger.scheduling.flavor_request import from_flavor, keys_of, split
from wharfinger.scheduling.known_extra_specs import (
    DEVICE_PROFILE,
    GROUP_POLICY,
    MEM_ENCRYPTION,
    PMEM,
)
from wharfinger.scheduling.request import (
    UNNUMBERED,
    RequestGroup,
    ResourceRequest,
    about,
    invalid,
)

_OF_ROOT: Final = frozenset((orc.VCPU, orc.PCPU, orc.MEMORY_MB, orc.DISK_GB))
#: Prefixes of traits that a host has, and its devices do not.
_TRAITS_OF_ROOT: Final = ("COMPUTE_", "HW_CPU_")
_Keys = Mapping[tuple[str, str | None, str], str]


def confined(flavor: Flavor) -> dict[str, str]:
    """Return the extra specs of a flavor, changed so that nova takes nothing of another owner.

    Extra specs that no longer hold have the amount 0, so one write of all of them is enough.
    Raises InvalidRequest for a flavor that extra specs cannot confine.
    """
    with about(f"flavor {flavor.name}"):
        if profile := flavor.extra_specs.get(DEVICE_PROFILE):
            raise invalid(
                DEVICE_PROFILE,
                profile,
                "nova asks for the groups of a device profile without an owner, and no extra spec "
                "adds one. Add a CUSTOM_ trait that only Cyborg's devices have to the profile, "
                "and remove this extra spec to see those of the rest.",
            )
        request, keys = from_flavor(flavor), keys_of(flavor)
        specs = dict(flavor.extra_specs)
        if _is_bare_metal(request):
            return specs
        for group in request.groups:
            contested = [name for name in group.resources if _is_contested(group, name, keys)]
            if not contested:
                continue
            if group.suffix == UNNUMBERED and len(group.resources) > 1:
                specs |= _moved(group, contested, request, specs, keys)
            elif not ownership.owners(group.traits.required):
                _check_key(group, contested[0], keys, specs)
                specs[f"trait{group.suffix}:{ownership.NOVA}"] = "required"
        return specs


def _is_bare_metal(request: ResourceRequest) -> bool:
    """Return whether a whole node of Ironic is requested: one custom class and nothing else.

    nova's root has that class. Ironic refuses to deploy a node with a required trait of the flavor
    that the node in Ironic does not have, such as an owner trait.
    """
    names = [name for group in request.groups for name in group.resources]
    return len(names) == 1 and names[0].startswith(orc.CUSTOM_NAMESPACE)


def _is_contested(group: RequestGroup, name: str, keys: _Keys) -> bool:
    return name not in _OF_ROOT and keys["resources", group.suffix, name] != PMEM


def _check_key(group: RequestGroup, name: str, keys: _Keys, specs: Mapping[str, str]) -> None:
    """Raise InvalidRequest if hw:mem_encryption asks for the class: it cannot require an owner."""
    if (key := keys["resources", group.suffix, name]) == MEM_ENCRYPTION:
        raise invalid(
            key,
            specs[key],
            f"nova asks for {name} in the group without a suffix, where no owner can be required "
            "of it. If another owner publishes this class below nova's roots, remove it there. "
            "Otherwise nova takes nothing of another owner: remove this extra spec to see those "
            "of the rest.",
        )


def _moved(
    group: RequestGroup,
    contested: list[str],
    request: ResourceRequest,
    specs: Mapping[str, str],
    keys: _Keys,
) -> dict[str, str]:
    """Return the extra specs that move contested classes into groups of their own.

    Forbidden traits hold for each provider of the group without a suffix, so each new group
    forbids them, too. Raises InvalidRequest where the move would change the request.
    """
    stays = len(group.resources) > len(contested)
    _check_traits(group, contested, keys, specs, stays=stays)
    suffixed = [one.suffix for one in request.groups if one.suffix != UNNUMBERED]
    if suffixed and request.group_policy == "isolate":
        raise invalid(
            GROUP_POLICY,
            "isolate",
            f"it would also keep {' and '.join(contested)} apart from the providers of the other "
            f"groups. Put {'it' if len(contested) == 1 else 'them'} into a group with a suffix "
            "yourself if that is meant, or set the policy to none.",
        )
    changed: dict[str, str] = {}
    used = {parts[1] for key in specs if (parts := split(key))}
    free = (str(number) for number in count(1) if str(number) not in used)
    for name, suffix in zip(contested, free, strict=False):
        _check_key(group, name, keys, specs)
        changed[f"resources:{name}"] = "0"
        changed[f"resources{suffix}:{name}"] = str(group.resources[name])
        changed[f"trait{suffix}:{ownership.NOVA}"] = "required"
        for trait in sorted(group.traits.forbidden):
            changed[f"trait{suffix}:{trait}"] = "forbidden"
    if len(suffixed) + len(contested) > 1:
        changed[GROUP_POLICY] = "none"
    return changed


def _check_traits(
    group: RequestGroup,
    contested: list[str],
    keys: _Keys,
    specs: Mapping[str, str],
    *,
    stays: bool,
) -> None:
    """Raise InvalidRequest for a trait that could be the host's or the device's."""
    traits = set(group.traits.required)
    if stays:
        traits = {one for one in traits if not one.startswith(_TRAITS_OF_ROOT)} - {ownership.NOVA}
    else:
        traits |= group.traits.forbidden
    for trait in sorted(traits):
        key = keys["trait", UNNUMBERED, trait]
        name = contested[0]
        host = f", or resources1:{name} alone if the host has it" if stays else ""
        raise invalid(
            key,
            specs[key],
            f"any provider of the group without a suffix may have {trait}, and {name} needs a "
            f"group of its own. Write resources1:{name} and trait1:{trait} if the provider of "
            f"{name} has it{host}, in place of resources:{name}.",
        )
