"""The requests to Cyborg's API."""

from http import HTTPStatus
from typing import Final, Self, TypeVar
from urllib.parse import urlencode

import msgspec
from keystoneauth1 import exceptions as keystone_exceptions
from keystoneauth1.adapter import Adapter
from openstack import exceptions as sdk_exceptions
from openstack.connection import Connection
from oslo_config import cfg
from requests import Response

from wharfinger.conf import keystone
from wharfinger.exceptions import (
    BackendError,
    ProgrammingFailed,
    ProgrammingRefused,
    printable,
    shown,
)
from wharfinger.providers import names
from wharfinger_cyborg.config import CyborgSection
from wharfinger_cyborg.deployable import Deployable

_ERRORS: Final = (
    keystone_exceptions.ClientException,
    sdk_exceptions.SDKException,
    ValueError,  # for an invalid URL
)
#: The largest number of characters of a shown error.
_LONGEST: Final = 1000
#: The state of an accelerator request that Cyborg is binding.
_BINDING: Final = "BindStarted"
#: Cyborg's messages if a device refused its image, and if Cyborg has no driver to program a device.
_REFUSED_BY_DEVICE: Final = "FPGA programming failed"
_NO_DRIVER: Final = "Not find the FPGA driver"

_Answer = TypeVar("_Answer")


class _Device(msgspec.Struct, frozen=True):
    hostname: str


class _Devices(msgspec.Struct, frozen=True):
    devices: list[_Device]


class _Deployables(msgspec.Struct, frozen=True):
    deployables: list[Deployable]


class AcceleratorRequest(msgspec.Struct, frozen=True):
    """An accelerator request (ARQ), with the field names of Cyborg's API."""

    uuid: str
    state: str
    device_rp_uuid: str | None = None


class _Requests(msgspec.Struct, frozen=True):
    arqs: list[AcceleratorRequest]


class _Error(msgspec.Struct, frozen=True):
    error_message: str


class _Fault(msgspec.Struct, frozen=True):
    faultstring: str


class Cyborg:
    """A client for Cyborg. All methods raise BackendError."""

    def __init__(self, adapter: Adapter, section: CyborgSection) -> None:
        self._adapter: Final = adapter
        self._section: Final = section

    @classmethod
    def connect(cls, conf: cfg.ConfigOpts, section: CyborgSection) -> Self:
        """Return a client for the configured Cyborg. Raises BackendError and ConfigurationError."""
        adapter = keystone.load_adapter(conf, section.name)
        try:
            connection = Connection(
                session=adapter.session,
                accelerator_endpoint_override=adapter.get_endpoint(version="2"),
            )
            return cls(connection.accelerator, section)
        except _ERRORS as error:
            raise BackendError(
                driver=section.name,
                operation="looking for Cyborg",
                reason=_error_text(error, section),
            ) from error

    def hosts(self) -> frozenset[str]:
        """Return the hosts that have devices."""
        devices = self._get("listing the devices", "/devices", _Devices).devices
        return frozenset(device.hostname for device in devices)

    def has_host(self, host: str) -> bool:
        """Return whether a host has devices."""
        operation = f"asking for the devices of {host}"
        found = self._get(operation, f"/devices?{urlencode({'hostname': host})}", _Devices).devices
        return any(device.hostname == host for device in found)

    def deployables(self) -> list[Deployable]:
        """Return all deployables."""
        operation = "listing the deployables"
        found = self._get(operation, "/deployables", _Deployables).deployables
        for one in found:
            self._check(operation, one)
        return found

    def find(self, uuid: str) -> Deployable | None:
        """Return the deployable with this uuid, or None if Cyborg has none."""
        operation = f"asking for deployable {uuid}"
        answer = self._answer(operation, f"/deployables/{uuid}")
        if answer.status_code == HTTPStatus.NOT_FOUND and uuid in (_cyborg_error(answer) or ""):
            return None
        one = self._read(operation, self._ok(operation, answer), Deployable)
        self._check(operation, one)
        return one

    def deployable(self, uuid: str) -> Deployable:
        """Return the deployable with this uuid, which must exist."""
        operation = f"looking up deployable {uuid}"
        one = self._get(operation, f"/deployables/{uuid}", Deployable)
        self._check(operation, one)
        return one

    def binding(self) -> list[AcceleratorRequest]:
        """Return the accelerator requests that Cyborg is binding."""
        found = self._get("listing the accelerator requests", "/accelerator_requests", _Requests)
        return [one for one in found.arqs if one.state == _BINDING]

    def program(self, deployable: Deployable, image: str) -> None:
        """Load an image into a deployable.

        Raises ProgrammingRefused if Cyborg has not begun, ProgrammingFailed if the device has
        refused the image, and BackendError if the result is unknown.
        """
        operation = f"programming {deployable.name}"
        path = f"/deployables/{deployable.uuid}/program"
        change = {"op": "replace", "path": "/program", "value": [{"image_uuid": image}]}
        try:
            answer = self._adapter.patch(
                path, json=[change], raise_exc=False, timeout=self._section.program_timeout
            )
        except _ERRORS as error:
            raise self._failed(operation, _error_text(error, self._section)) from error
        if answer.status_code == HTTPStatus.OK:
            self._read(operation, answer, Deployable)
            return
        reason = self._unexpected(answer)
        is_refused = 400 <= answer.status_code < 500
        is_refused &= answer.status_code != HTTPStatus.REQUEST_TIMEOUT
        if is_refused or _NO_DRIVER in reason:
            raise ProgrammingRefused(
                driver=self._section.name, provider=deployable.name, reason=reason
            )
        if _REFUSED_BY_DEVICE in reason:
            raise ProgrammingFailed(
                driver=self._section.name, provider=deployable.name, reason=reason
            )
        raise self._failed(operation, reason)

    def _get(self, operation: str, path: str, kind: type[_Answer]) -> _Answer:
        return self._read(operation, self._ok(operation, self._answer(operation, path)), kind)

    def _answer(self, operation: str, path: str) -> Response:
        try:
            return self._adapter.get(path, raise_exc=False)
        except _ERRORS as error:
            raise self._failed(operation, _error_text(error, self._section)) from error

    def _ok(self, operation: str, answer: Response) -> Response:
        if answer.status_code != HTTPStatus.OK:
            raise self._failed(operation, self._unexpected(answer))
        return answer

    def _unexpected(self, answer: Response) -> str:
        told = _cyborg_error(answer) or answer.reason or "no explanation was given"
        where = printable(answer.url)
        return _short(
            f"{where} answers {answer.status_code}: {told}{_advice(answer, self._section)}"
        )

    def _check(self, operation: str, one: Deployable) -> None:
        for field in ("uuid", "rp_uuid"):
            value = getattr(one, field)
            try:
                if field == "uuid" or value is not None:
                    names.check_uuid(value)
            except ValueError as error:
                reason = (
                    f"deployable {shown(one.name)} has {field} {shown(value)}, which is not a uuid"
                )
                raise self._failed(operation, reason) from error

    def _read(self, operation: str, answer: Response, kind: type[_Answer]) -> _Answer:
        try:
            return msgspec.json.decode(answer.content, type=kind)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
            where = printable(answer.url)
            told = f"an answer that is not understood, from {where}: {error}"
            raise self._failed(operation, f"{told}: {shown(answer.content)}") from error

    def _failed(self, operation: str, reason: str) -> BackendError:
        return BackendError(driver=self._section.name, operation=operation, reason=reason)


def _cyborg_error(answer: Response) -> str | None:
    try:
        inner = msgspec.json.decode(answer.content, type=_Error).error_message
        return msgspec.json.decode(inner, type=_Fault).faultstring
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return None  # a proxy may have answered


def _advice(answer: Response, section: CyborgSection) -> str:
    if answer.status_code == HTTPStatus.UNAUTHORIZED:
        return f". Check the credentials in [{section.credentials}]"
    if answer.status_code == HTTPStatus.FORBIDDEN:
        return f". Give the user in [{section.credentials}] the admin role in its project"
    return ""


def _error_text(error: Exception, section: CyborgSection) -> str:
    told = printable(" ".join(str(error).split())) or type(error).__name__
    if isinstance(error, keystone_exceptions.Unauthorized):
        told = f"{told}. Check the credentials in [{section.credentials}]."
    return _short(told)


def _short(told: str) -> str:
    told = printable(told)
    return told if len(told) <= _LONGEST else f"{told[: _LONGEST - 3]}..."
