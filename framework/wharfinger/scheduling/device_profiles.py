"""From device profiles to requests for accelerators. Pure.

Cyborg keeps them; ``profile_sources`` reads them. Each of a profile's groups is one device's:
``{"resources:FPGA": "1", "trait:CUSTOM_FAST": "required", "accel:function_id": "..."}``; what
begins with ``accel:`` is for Cyborg. All groups ask for OWNER_CYBORG: by our doing, since
Cyborg takes no trait in a profile but CUSTOM_ ones.
"""

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

#: Groups as Cyborg has them.
ProfileGroups = Sequence[Mapping[str, object]]

_FOR_CYBORG: Final = "accel:"
#: As nova names them: who binds accelerators finds its groups by that.
_SUFFIX: Final = "device_profile_"


def from_profile(name: str, groups: ProfileGroups) -> ResourceRequest:
    """What a device profile asks for; raises InvalidRequest, DeviceProfileError."""
    wanted = []
    for number, group in enumerate(groups):
        with about(f"device profile {name}, group {number}"):
            wanted.append(_group(f"{_SUFFIX}{number}", group))
    with about(f"device profile {name}"):
        asked = tuple(group for group in wanted if group is not None)
        if not asked:
            raise DeviceProfileError(name=name, problem="it asks for no resources.")
        return ResourceRequest(groups=asked, group_policy=policy_needed(asked))


def _group(suffix: str, group: Mapping[str, object]) -> RequestGroup | None:
    draft = GroupDraft()
    for key, value in group.items():
        parts = flavor_request.split(key)
        if parts and not parts[1]:
            kind, _none, its = parts
            draft.read(key, kind, its.strip(), value)
        elif not key.startswith(_FOR_CYBORG):
            raise invalid(key, value, "a key is resources:CLASS, trait:TRAIT or of accel:.")
    for owner in draft.owners - {ownership.CYBORG}:
        raise invalid(
            draft.keys["trait", owner],
            "required",
            f"what a device profile asks for is {ownership.CYBORG}'s, and nobody else's.",
        )
    return draft.group(suffix, ownership.CYBORG)
