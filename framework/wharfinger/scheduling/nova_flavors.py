"""Change a flavor's extra specs so that nova keeps the owners apart. Pure.

nova 34 itself does not require OWNER_NOVA in the groups of a flavor.
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
from wharfinger.scheduling.request import UNNUMBERED, RequestGroup, ResourceRequest, about, invalid

_OF_ROOT: Final = frozenset((orc.VCPU, orc.PCPU, orc.MEMORY_MB, orc.DISK_GB))
#: Prefixes of traits that a host has, but not its devices.
_TRAITS_OF_ROOT: Final = ("COMPUTE_", "HW_CPU_")
_Keys = Mapping[tuple[str, str | None, str], str]


def confined(flavor: Flavor) -> dict[str, str]:
    """Return a flavor's extra specs, changed so that nova keeps the owners apart.

    Raises InvalidRequest for a flavor that extra specs cannot protect.
    """
    with about(f"flavor {flavor.name}"):
        if profile := flavor.extra_specs.get(DEVICE_PROFILE):
            raise invalid(
                DEVICE_PROFILE,
                profile,
                "nova requests the groups of a device profile without an owner trait, and no extra "
                "spec adds one. Add a CUSTOM_ trait that only Cyborg's devices have to the "
                "profile. To see the extra specs for the rest of the flavor, remove this one.",
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
                specs |= _in_own_groups(group, contested, request, specs, keys)
            elif not ownership.owners(group.traits.required):
                _check_key(group, contested[0], keys, specs)
                specs[f"trait{group.suffix}:{ownership.NOVA}"] = "required"
        return specs


def _is_bare_metal(request: ResourceRequest) -> bool:
    # A whole node of Ironic has one custom class.
    names = [name for group in request.groups for name in group.resources]
    return len(names) == 1 and names[0].startswith(orc.CUSTOM_NAMESPACE)


def _is_contested(group: RequestGroup, name: str, keys: _Keys) -> bool:
    return name not in _OF_ROOT and keys["resources", group.suffix, name] != PMEM


def _check_key(group: RequestGroup, name: str, keys: _Keys, specs: Mapping[str, str]) -> None:
    if (key := keys["resources", group.suffix, name]) == MEM_ENCRYPTION:
        raise invalid(
            key,
            specs[key],
            f"nova requests {name} in the group without a suffix, where no owner trait can be "
            "required for it. If another owner publishes this class below nova's root providers, "
            "remove it there; otherwise nova takes no provider of another owner. To see the "
            "extra specs for the rest of the flavor, remove this one.",
        )


def _in_own_groups(
    group: RequestGroup,
    contested: list[str],
    request: ResourceRequest,
    specs: Mapping[str, str],
    keys: _Keys,
) -> dict[str, str]:
    stays = len(group.resources) > len(contested)
    _check_traits(group, contested, keys, specs, stays=stays)
    suffixed = [one.suffix for one in request.groups if one.suffix != UNNUMBERED]
    if suffixed and request.group_policy == "isolate":
        raise invalid(
            GROUP_POLICY,
            "isolate",
            f"{' and '.join(contested)} would get a group with a suffix, and the policy would "
            "keep its provider apart from those of the other groups. If that is meant, add the "
            "group to the flavor; otherwise set the policy to none.",
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
    group: RequestGroup, contested: list[str], keys: _Keys, specs: Mapping[str, str], *, stays: bool
) -> None:
    # A trait may be meant for a class that moves.
    traits = set(group.traits.required)
    if stays:
        traits = {one for one in traits if not one.startswith(_TRAITS_OF_ROOT)} - {ownership.NOVA}
    else:
        traits |= group.traits.forbidden
    for trait in sorted(traits):
        key = keys["trait", UNNUMBERED, trait]
        name = contested[0]
        parts = f"resources1:{name} and trait1:{trait} in place of resources:{name} and {key}."
        if trait in group.traits.forbidden:
            problem = (
                f"{trait} is forbidden for {name}, which needs a separate group. Write {parts}"
            )
        else:
            problem = (
                f"any provider of the group without a suffix may have {trait}, but {name} needs a "
                f"separate group. If the provider of {name} has the trait, write {parts}"
            )
        if stays:
            problem += (
                f" If the host has it, write only resources1:{name} in place of resources:{name}."
            )
        raise invalid(key, specs[key], problem)
