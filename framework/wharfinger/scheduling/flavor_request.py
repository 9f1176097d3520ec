"""Translate flavors to requests. Pure."""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final, cast

import os_resource_classes as orc

from wharfinger.exceptions import InvalidRequest
from wharfinger.objects import Flavor
from wharfinger.placement.trait_conditions import TraitConditions, check_name
from wharfinger.providers import ownership
from wharfinger.scheduling import ungrouped_extra_specs
from wharfinger.scheduling.known_extra_specs import DEVICE_PROFILE, GROUP_POLICY, Asked, find
from wharfinger.scheduling.request import (
    MAX_AMOUNT,
    UNNUMBERED,
    GroupPolicy,
    RequestGroup,
    ResourceRequest,
    about,
    check_resource,
    invalid,
)

_KEY: Final = re.compile(r"(resources|trait)([a-zA-Z0-9_-]{0,64}):(.*)\Z", re.DOTALL)
#: Keys that look like a mistyped key of this module.
_NEARLY: Final = re.compile(
    r"(?i:resources?|traits?)[^:]*:[A-Z][A-Z0-9_]*\Z"
    r"|(?i:(resources?|traits?):|group[-_ ]?polic|accel:device[-_ ]?profile)"
)
_AMOUNT: Final = re.compile(r"[0-9]{1,10}\Z")
_MIB_IN_GIB: Final = 1024


@dataclass(slots=True)
class GroupDraft:
    """A group of a request while its extra specs are read."""

    #: The extra specs, by kind and name of the resource or trait.
    keys: dict[tuple[str, str], str] = field(default_factory=dict)
    #: The values of the extra specs.
    values: dict[str, object] = field(default_factory=dict)
    resources: dict[str, int] = field(default_factory=dict)
    required: set[str] = field(default_factory=set)
    forbidden: set[str] = field(default_factory=set)

    def read(self, key: str, kind: str, name: str, value: object) -> None:
        """Add a resource or trait. Raises InvalidRequest."""
        try:
            if (kind, name) in self.keys:
                raise invalid("", value, f"{name} occurs twice.")
            self.keys[kind, name] = key
            self.values[key] = value
            if kind == "resources":
                self.resources[name] = _amount(name, value)
            else:
                check_name(name)
                self._traits(value).add(name)
        except InvalidRequest as error:
            raise invalid(key, value, error.problem) from error

    def ask(self, key: str, value: object, asked: Asked) -> None:
        """Add the resources and traits that an extra spec requests. Raises InvalidRequest."""
        self.values.setdefault(key, value)
        for name, amount in asked.resources.items():
            before = self.resources.get(name)
            if before and before != amount:
                other = self.keys["resources", name]
                problem = f"it requests {name}={amount}, but {other} requests {before}. Remove one."
                raise invalid(key, value, problem)
            try:
                check_resource(name, amount or 1)
            except InvalidRequest as error:
                raise invalid(key, value, error.problem) from error
            self.resources[name] = amount
            self.keys["resources", name] = key
        for traits, others in ((asked.required, self.forbidden), (asked.forbidden, self.required)):
            for trait in sorted(traits & others):
                other = self.keys["trait", trait]
                problem = f"{other} requests the opposite for {trait}. Remove one of them."
                raise invalid(key, value, problem)
            for trait in traits:
                self.keys.setdefault(("trait", trait), key)
        self.required |= asked.required
        self.forbidden |= asked.forbidden

    @property
    def owners(self) -> frozenset[str]:
        """Return the required owner traits."""
        return ownership.owners(self.required)

    def _traits(self, value: object) -> set[str]:
        match value:
            case "required":
                return self.required
            case "forbidden":
                return self.forbidden
        raise invalid("", value, "it has to be required or forbidden.")

    def group(self, suffix: str, owner: str | None) -> RequestGroup | None:
        """Return the group; None if it requests nothing. Raises InvalidRequest."""
        wanted = {name: amount for name, amount in self.resources.items() if amount}
        traits = TraitConditions(
            required=frozenset(self.required), forbidden=frozenset(self.forbidden)
        )
        if traits and not wanted:
            key = next(key for (kind, _name), key in self.keys.items() if kind == "trait")
            own_suffix = (split(key) or ("", "", ""))[1]
            raise invalid(
                key,
                self.values[key],
                f"it describes a provider, but the group requests no resources: there is no "
                f"resources{own_suffix}: above 0."
                + (f" Did you mean trait:{key.partition(':')[2]}?" if suffix == "s" else ""),
            )
        if len(self.owners) > 1:
            one, other = sorted(self.owners)[:2]
            raise invalid(
                self.keys["trait", other],
                "required",
                f"{self.keys['trait', one]} is required of the same providers, and a provider has "
                "one owner. Request each owner's resources in a group of its own.",
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
    """Return kind, suffix and name of a key such as trait1:CUSTOM_A, or None."""
    match = _KEY.match(key)
    return (match[1], match[2], match[3]) if match else None


@dataclass(slots=True)
class _Draft:
    groups: dict[str, GroupDraft] = field(default_factory=lambda: {UNNUMBERED: GroupDraft()})
    root: dict[str, str] = field(default_factory=dict)
    policy: GroupPolicy | None = None


def from_flavor(
    flavor: Flavor, device_profile: Callable[[str], ResourceRequest] | None = None
) -> ResourceRequest:
    """Return the request for an instance of a flavor.

    Groups without an owner trait request nova's resources. ``device_profile`` returns the request
    for a device profile. Raises InvalidRequest, and errors of ``device_profile``.
    """
    with about(f"flavor {flavor.name}"):
        draft = _read(flavor)
        _add_own(flavor, draft.groups)
        groups = (
            one.group(suffix, None if one.owners else ownership.NOVA)
            for suffix, one in draft.groups.items()
        )
        wanted = tuple(group for group in groups if group is not None)
        root = TraitConditions(required=frozenset(draft.root))
        profile = flavor.extra_specs.get(DEVICE_PROFILE)
        if profile is None:
            return ResourceRequest(groups=wanted, group_policy=draft.policy, root=root)
        if device_profile is None:
            raise invalid(DEVICE_PROFILE, profile, "this command does not read device profiles.")
        if not profile:
            raise invalid(DEVICE_PROFILE, profile, "name a device profile.")
        accelerators = device_profile(profile)
        if not wanted:
            policy = draft.policy or accelerators.group_policy
            return replace(accelerators, group_policy=policy, root=accelerators.root & root)
        own = ResourceRequest(groups=wanted, group_policy=draft.policy, root=root)
        return own.also(accelerators)


def keys_of(flavor: Flavor) -> dict[tuple[str, str | None, str], str]:
    """Return the keys of extra specs by kind, group suffix and name of what they request.

    The suffix is None for the root provider. Raises InvalidRequest.
    """
    draft = _read(flavor)
    found = {
        (kind, suffix, name): key
        for suffix, one in draft.groups.items()
        for (kind, name), key in one.keys.items()
    }
    return found | {("trait", None, trait): key for trait, key in draft.root.items()}


def _read(flavor: Flavor) -> _Draft:
    draft = _Draft()
    values = {}
    for key, value in sorted(flavor.extra_specs.items()):
        if parts := split(key):
            kind, suffix, name = parts
            draft.groups.setdefault(suffix, GroupDraft()).read(key, kind, name, value)
        elif find(key) is None and _NEARLY.match(key):
            raise invalid(
                key,
                value,
                "this key requests nothing. The keys are resources:CLASS, trait:TRAIT, both "
                f"with a group's suffix before the colon, {GROUP_POLICY} and {DEVICE_PROFILE}.",
            )
        elif (usual := ungrouped_extra_specs.check(key, value)) is not None:
            values[key] = usual
    draft.policy = cast("GroupPolicy | None", values.get(GROUP_POLICY))
    cpus = dict(_cpus(draft.groups.values()))
    for key, asked in ungrouped_extra_specs.asked(flavor, values, cpus):
        draft.groups[UNNUMBERED].ask(key, flavor.extra_specs[key], asked)
        draft.root |= dict.fromkeys(asked.root, key)
    return draft


def _cpus(groups: Iterable[GroupDraft]) -> Iterator[tuple[str, tuple[str, int]]]:
    groups = list(groups)
    for name in (orc.VCPU, orc.PCPU):
        asking = [one for one in groups if one.resources.get(name)]
        if asking:
            total = sum(one.resources[name] for one in asking)
            yield name, (asking[0].keys["resources", name], total)


def _add_own(flavor: Flavor, drafts: dict[str, GroupDraft]) -> None:
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
        raise invalid("", value, f"it has to be a whole number from 0 to {MAX_AMOUNT}.")
    check_resource(resource_class, amount or 1)
    return amount
