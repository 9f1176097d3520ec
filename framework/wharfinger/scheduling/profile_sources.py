"""Read device profiles from Cyborg or from a file."""

from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec
import requests
from keystoneauth1 import exceptions as keystone_exceptions
from keystoneauth1.adapter import Adapter

from wharfinger.conf import AcceleratorSection, Options, keystone
from wharfinger.conf.accelerator import GROUP
from wharfinger.exceptions import ConfigurationError, DeviceProfileError, printable
from wharfinger.placement.model import UNDECODABLE
from wharfinger.scheduling.device_profiles import ProfileGroups, from_profile
from wharfinger.scheduling.request import ResourceRequest

#: The largest number of characters of Cyborg's explanation in an error.
_LONGEST: Final = 1000


class ProfileSource(Protocol):
    """Interface of a source of device profiles."""

    def groups(self, name: str) -> ProfileGroups:
        """Return the groups of a device profile. Raises DeviceProfileError."""


class _Profile(msgspec.Struct, frozen=True):
    # Raw JSON, since only the groups of one profile are decoded.
    name: str
    groups: msgspec.Raw


class _Error(msgspec.Struct, frozen=True):
    error_message: str


class _Fault(msgspec.Struct, frozen=True):
    faultstring: str


class _Profiles(msgspec.Struct, frozen=True):
    device_profiles: list[_Profile]


class CyborgProfiles:
    """Read device profiles from Cyborg's API, version 2."""

    def __init__(self, adapter: Adapter) -> None:
        self._adapter: Final = adapter

    def groups(self, name: str) -> ProfileGroups:
        """Return the groups of a device profile. Raises DeviceProfileError."""
        try:
            answer = self._adapter.get("/device_profiles", params={"name": name}, raise_exc=False)
        except (
            keystone_exceptions.ClientException,
            ValueError,
        ) as error:  # ValueError: an invalid URL
            raise _unread(name, f"Cyborg does not answer: {error}") from error
        if answer.status_code != HTTPStatus.OK:
            raise _unread(name, f"Cyborg answers {answer.status_code}: {_fault(answer)}")
        return _find(name, answer.content, "Cyborg")


class ProfileFile:
    """Read device profiles from a JSON file, in the format of Cyborg's list."""

    def __init__(self, path: Path) -> None:
        self._path: Final = path

    def groups(self, name: str) -> ProfileGroups:
        """Return the groups of a device profile. Raises DeviceProfileError."""
        try:
            content = self._path.read_bytes()
        except OSError as error:
            raise _unread(name, f"{self._path}: {error.strerror}") from error
        return _find(name, content, str(self._path))


def open_source(conf: Options) -> ProfileSource:
    """Return the configured source of device profiles. Raises ConfigurationError."""
    section = AcceleratorSection.read(conf)
    if section.device_profiles is not None:
        return ProfileFile(section.device_profiles)
    if section.credentials is None:
        raise ConfigurationError(
            section=GROUP,
            key="auth_type",
            value="",
            problem="a device profile is requested, but no source of device profiles is set.",
            remedy="To read profiles from Cyborg, set auth_type and its options. To read profiles "
            "from a file, set device_profiles.",
        )
    return CyborgProfiles(keystone.load_adapter(conf, GROUP))


def read_profile(conf: Options, name: str) -> ResourceRequest:
    """Return the request for a device profile.

    Raises ConfigurationError, DeviceProfileError, InvalidRequest.
    """
    return from_profile(name, open_source(conf).groups(name))


def _find(name: str, content: bytes, where: str) -> ProfileGroups:
    try:
        listed = msgspec.json.decode(content, type=_Profiles).device_profiles
    except UNDECODABLE as error:
        raise _unread(name, f"{where} has no list of device profiles: {error}") from error
    found = [profile.groups for profile in listed if profile.name == name]
    if len(found) != 1:
        count = len(found) or "none"
        known = ", ".join(sorted(profile.name for profile in listed)[:10])
        hint = f"; its device profiles are: {known}" if known else ""
        raise _unread(name, f"{where} has {count} of that name{hint}")
    try:
        return msgspec.json.decode(found[0], type=list[dict[str, Any]])
    except UNDECODABLE as error:
        raise _unread(name, f"{where} has invalid groups: {error}") from error


def _fault(answer: requests.Response) -> str:
    try:
        inner = msgspec.json.decode(answer.content, type=_Error).error_message
        fault = msgspec.json.decode(inner, type=_Fault).faultstring
        return printable(fault)[:_LONGEST]
    except UNDECODABLE:
        return answer.reason or "Cyborg gave no explanation"


def _unread(name: str, problem: str) -> DeviceProfileError:
    return DeviceProfileError(name=name, problem=f"{problem.rstrip('.')}.")
