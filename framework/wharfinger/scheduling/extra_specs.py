"""From flavors to requests for resources, in nova's syntax of extra specs. Pure.

``resources:VGPU=1`` and ``trait:CUSTOM_FAST=required`` (or ``forbidden``) are of the group
without a suffix, ``resources_GPU:VGPU=1`` and ``trait_GPU:CUSTOM_FAST=required`` of group
``_GPU``. ``group_policy`` is ``none`` or ``isolate``; ``accel:device_profile`` names a device
profile. nova passes over what it cannot read of these, with a line in its log: here, it is
an error. Other keys are for others.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, cast

import os_resource_classes as orc

from wharfinger.exceptions import InvalidRequest
from wharfinger.objects import Flavor
from wharfinger.placement.trait_conditions import TraitConditions, check_name
from wharfinger.providers import ownership
from wharfinger.scheduling.request import (
    GROUP_POLICIES,
    MAX_AMOUNT,
    UNNUMBERED,
    GroupPolicy,
    RequestGroup,
    ResourceRequest,
    about,
    check_resource,
    invalid,
)

GROUP_POLICY: Final = "group_policy"
DEVICE_PROFILE: Final = "accel:device_profile"
_KEY: Final = re.compile(r"(resources|trait)([a-zA-Z0-9_-]{0,64}):(.*)\Z", re.DOTALL)
#: What is surely meant for us, and is none of ours.
_NEARLY: Final = re.compile(
    r"(?i:resources?|traits?)[^:]*:[A-Z][A-Z0-9_]*\Z"
    r"|(?i:(resources?|traits?):|group[-_ ]?polic|accel:device[-_ ]?profile)"
)
_AMOUNT: Final = re.compile(r"[0-9]{1,10}\Z")
_MIB_IN_GIB: Final = 1024


@dataclass(slots=True)
class GroupDraft:
    """A group of a request as its keys are read; amounts of 0 are of what is not wanted.

    ``keys`` are by kind and name: "resources" and a class, or "trait" and a trait.
    """

    keys: dict[tuple[str, str], str] = field(default_factory=dict)
    resources: dict[str, int] = field(default_factory=dict)
    required: set[str] = field(default_factory=set)
    forbidden: set[str] = field(default_factory=set)

    def read(self, key: str, kind: str, name: str, value: object) -> None:
        """Take ``resources`` or ``trait``, of that name; raises InvalidRequest."""
        try:
            if (kind, name) in self.keys:
                raise invalid("", value, f"{name} is there twice.")
            self.keys[kind, name] = key
            if kind == "resources":
                self.resources[name] = _amount(name, value)
            else:
                check_name(name)
                self._traits(value).add(name)
        except InvalidRequest as error:
            raise invalid(key, value, error.problem) from error

    @property
    def owners(self) -> frozenset[str]:
        """The owners that it names."""
        return ownership.owners(self.required)

    def _traits(self, value: object) -> set[str]:
        match value:
            case "required":
                return self.required
            case "forbidden":
                return self.forbidden
        raise invalid("", value, "a trait is required or forbidden.")

    def group(self, suffix: str, owner: str | None) -> RequestGroup | None:
        """The group, None where nothing is wanted; an owner of None is the one that it names.

        Raises InvalidRequest.
        """
        wanted = {name: amount for name, amount in self.resources.items() if amount}
        traits = TraitConditions(
            required=frozenset(self.required), forbidden=frozenset(self.forbidden)
        )
        if traits and not wanted:
            key = next(key for key in self.keys.values() if key.startswith("trait"))
            raise invalid(
                key,
                "required" if self.required else "forbidden",
                f"it says something of a provider from which nothing is asked for: there is no "
                f"{key.partition(':')[0].replace('trait', 'resources', 1)}: above 0."
                + (f" Did you mean trait:{key.partition(':')[2]}?" if suffix == "s" else ""),
            )
        if len(self.owners) > 1:
            one, other = sorted(self.owners)[:2]
            raise invalid(
                self.keys["trait", other],
                "required",
                f"{self.keys['trait', one]} is required of the same providers, and a provider has "
                "one owner. Ask for each owner's resources in a group of its own.",
            )
        if not wanted:
            return None
        try:
            return RequestGroup(suffix=suffix, resources=wanted, traits=traits, owner=owner)
        except InvalidRequest as error:
            said = self.keys.get(("trait", str(error.value)))
            if said is None:
                raise
            raise invalid(said, "forbidden", error.problem) from error


def split(key: str) -> tuple[str, str, str] | None:
    """What a key of a group says: "resources" or "trait", the suffix, and the name."""
    match = _KEY.match(key)
    return (match[1], match[2], match[3]) if match else None


def from_flavor(
    flavor: Flavor, device_profile: Callable[[str], ResourceRequest] | None = None
) -> ResourceRequest:
    """What an instance of a flavor asks for.

    VCPU, MEMORY_MB and DISK_GB are the flavor's own, unless an extra spec says otherwise. Groups
    that name no owner ask for nova's. ``device_profile`` gives what a device profile of that name
    asks for. Raises InvalidRequest, naming key and value, and what ``device_profile`` raises.
    """
    with about(f"flavor {flavor.name}"):
        drafts, policy = _read(flavor.extra_specs)
        _add_own(flavor, drafts)
        groups = (
            draft.group(suffix, None if draft.owners else ownership.NOVA)
            for suffix, draft in drafts.items()
        )
        wanted = tuple(group for group in groups if group is not None)
        profile = flavor.extra_specs.get(DEVICE_PROFILE)
        if profile is None:
            return ResourceRequest(groups=wanted, group_policy=policy)
        if device_profile is None:
            raise invalid(DEVICE_PROFILE, profile, "device profiles are not read here.")
        if not profile:
            raise invalid(DEVICE_PROFILE, profile, "name a device profile.")
        accelerators = device_profile(profile)
        if not wanted:
            return accelerators if policy is None else replace(accelerators, group_policy=policy)
        return ResourceRequest(groups=wanted, group_policy=policy).also(accelerators)


def _read(specs: Mapping[str, str]) -> tuple[dict[str, GroupDraft], GroupPolicy | None]:
    drafts = {UNNUMBERED: GroupDraft()}
    policy = specs.get(GROUP_POLICY)
    if policy is not None and policy not in GROUP_POLICIES:
        raise invalid(GROUP_POLICY, policy, f"it is {' or '.join(GROUP_POLICIES)}.")
    for key, value in sorted(specs.items()):
        if parts := split(key):
            kind, suffix, name = parts
            drafts.setdefault(suffix, GroupDraft()).read(key, kind, name, value)
        elif key not in (GROUP_POLICY, DEVICE_PROFILE) and _NEARLY.match(key):
            raise invalid(
                key,
                value,
                "nothing is asked for by that. The keys are resources:CLASS, trait:TRAIT, both "
                f"with a group's suffix before the colon, {GROUP_POLICY} and {DEVICE_PROFILE}.",
            )
    return drafts, cast("GroupPolicy | None", policy)


def _add_own(flavor: Flavor, drafts: dict[str, GroupDraft]) -> None:
    """Ask for the flavor's own figures, of what its extra specs say nothing."""
    said = {name for draft in drafts.values() for name in draft.resources}
    disk = flavor.root_gb + flavor.ephemeral_gb + -(-flavor.swap // _MIB_IN_GIB)
    own = {orc.VCPU: flavor.vcpus, orc.MEMORY_MB: flavor.memory_mb, orc.DISK_GB: disk}
    if orc.PCPU in said:
        del own[orc.VCPU]
    drafts[UNNUMBERED].resources |= {
        name: amount for name, amount in own.items() if name not in said
    }


def _amount(resource_class: str, value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        amount = value
    elif isinstance(value, str) and _AMOUNT.match(value):
        amount = int(value)
    else:
        raise invalid("", value, f"an amount is a whole number from 0 to {MAX_AMOUNT}.")
    check_resource(resource_class, amount or 1)
    return amount
