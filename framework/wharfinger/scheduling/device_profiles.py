"""Translate Cyborg's device profiles to requests for the owner OWNER_CYBORG. Pure."""

from collections.abc import Mapping, Sequence
from typing import Final

from wharfinger.exceptions import DeviceProfileError
from wharfinger.providers import ownership
from wharfinger.scheduling import flavor_request
from wharfinger.scheduling.flavor_request import GroupDraft
from wharfinger.scheduling.request import (
    RequestGroup,
    ResourceRequest,
    about,
    invalid,
    policy_needed,
)

#: The groups of a device profile, as Cyborg returns them.
ProfileGroups = Sequence[Mapping[str, object]]

_FOR_CYBORG: Final = "accel:"
#: nova's prefix for the suffixes of these groups.
_SUFFIX: Final = "device_profile_"


def from_profile(name: str, groups: ProfileGroups) -> ResourceRequest:
    """Return the request for a device profile. Raises InvalidRequest and DeviceProfileError."""
    wanted = []
    for number, group in enumerate(groups):
        with about(f"device profile {name}, group {number}"):
            wanted.append(_group(f"{_SUFFIX}{number}", group))
    with about(f"device profile {name}"):
        asked = tuple(group for group in wanted if group is not None)
        if not asked:
            raise DeviceProfileError(
                name=name,
                problem="the profile requests no resources. Add resources:CLASS to a group.",
            )
        return ResourceRequest(groups=asked, group_policy=policy_needed(asked))


def _group(suffix: str, group: Mapping[str, object]) -> RequestGroup | None:
    draft = GroupDraft()
    for key, value in group.items():
        parts = flavor_request.split(key)
        if parts and not parts[1]:
            kind, _none, its = parts
            draft.read(key, kind, its.strip(), value)
        elif not key.startswith(_FOR_CYBORG):
            raise invalid(key, value, "use resources:CLASS, trait:TRAIT or accel:NAME.")
    for owner in draft.owners - {ownership.CYBORG}:
        raise invalid(
            draft.keys["trait", owner],
            "required",
            f"the resources of a device profile belong to {ownership.CYBORG}. Remove this trait.",
        )
    return draft.group(suffix, ownership.CYBORG)
