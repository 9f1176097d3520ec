"""Where device profiles are kept: the real Cyborg, or a file in its words."""

from http import HTTPStatus
from pathlib import Path
from typing import Final, Protocol

import msgspec
from keystoneauth1 import exceptions as keystone_exceptions
from keystoneauth1.adapter import Adapter

from wharfinger.conf import AcceleratorSection, Options
from wharfinger.conf.accelerator import GROUP
from wharfinger.exceptions import ConfigurationError, DeviceProfileError
from wharfinger.placement.model import UNDECODABLE
from wharfinger.placement.session import load_adapter
from wharfinger.scheduling.device_profiles import ProfileGroups, from_profile
from wharfinger.scheduling.request import ResourceRequest


class ProfileSource(Protocol):
    """What has device profiles."""

    def groups(self, name: str) -> ProfileGroups:
        """The groups of the profile of that name; raises DeviceProfileError."""


class _Profile(msgspec.Struct, frozen=True):
    name: str
    groups: list[dict[str, str | int]]


class _Profiles(msgspec.Struct, frozen=True):
    device_profiles: list[_Profile]


class CyborgProfiles:
    """Cyborg's API (version 2, any microversion)."""

    def __init__(self, adapter: Adapter) -> None:
        self._adapter: Final = adapter

    def groups(self, name: str) -> ProfileGroups:
        """One request."""
        try:
            answer = self._adapter.get("/device_profiles", params={"name": name}, raise_exc=False)
        except keystone_exceptions.ClientException as error:
            raise _unread(name, f"Cyborg does not answer: {error}") from error
        if answer.status_code != HTTPStatus.OK:
            raise _unread(
                name, f"Cyborg answers {answer.status_code} {answer.reason}: {answer.text[:300]}"
            )
        return _find(name, answer.content, "Cyborg")


class ProfileFile:
    """A JSON file in the form of Cyborg's list of device profiles."""

    def __init__(self, path: Path) -> None:
        self._path: Final = path

    def groups(self, name: str) -> ProfileGroups:
        """The file is read each time."""
        try:
            content = self._path.read_bytes()
        except OSError as error:
            raise _unread(name, f"{self._path}: {error.strerror}") from error
        return _find(name, content, str(self._path))


def open_source(conf: Options) -> ProfileSource:
    """What the configuration names; raises ConfigurationError."""
    section = AcceleratorSection.read(conf)
    if section.device_profiles is not None:
        return ProfileFile(section.device_profiles)
    if section.credentials is None:
        raise ConfigurationError(
            section=GROUP,
            key="auth_type",
            value="",
            problem="device profiles are asked for, and nothing says where they are kept.",
            remedy="Set auth_type and its options for Cyborg, or device_profiles for a file.",
        )
    return CyborgProfiles(load_adapter(conf, GROUP))


def read_profile(conf: Options, name: str) -> ResourceRequest:
    """What the device profile of that name asks for.

    Raises ConfigurationError, DeviceProfileError, InvalidRequest.
    """
    return from_profile(name, open_source(conf).groups(name))


def _find(name: str, content: bytes, where: str) -> ProfileGroups:
    try:
        listed = msgspec.json.decode(content, type=_Profiles).device_profiles
    except UNDECODABLE as error:
        raise _unread(name, f"{where} has no list of device profiles: {error}") from error
    found = [profile for profile in listed if profile.name == name]
    if len(found) != 1:
        count = len(found) or "none"
        known = ", ".join(sorted(profile.name for profile in listed)[:10])
        hint = f"; there are: {known}" if known else ""
        raise _unread(name, f"{where} has {count} of that name{hint}")
    return found[0].groups


def _unread(name: str, problem: str) -> DeviceProfileError:
    return DeviceProfileError(name=name, problem=f"{problem}.")
