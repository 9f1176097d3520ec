"""The requests to Ironic's API."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final, Self, TypeVar
from urllib.parse import urlencode

import msgspec
from ironicclient import client as ironicclient
from ironicclient import exc
from ironicclient.common.http import SessionClient
from keystoneauth1 import exceptions as keystone_exceptions
from oslo_config import cfg
from requests import Response

from wharfinger.conf import keystone
from wharfinger.exceptions import BackendError, printable, shown
from wharfinger.providers import names
from wharfinger_ironic.config import FleetSection
from wharfinger_ironic.node import FIELDS, Node

#: The largest number of nodes on a page; Ironic's default limit is the same.
PAGE: Final = 1000
#: A project that does not exist: only credentials that may list all nodes may list its nodes.
_NO_PROJECT: Final = "wharfinger-lists-all-nodes"
#: Built-in errors of Python that ironicclient raises for answers that do not come from Ironic.
_PYTHON_ERRORS: Final = (AttributeError, RuntimeError, TypeError, ValueError)
_ERRORS: Final = (exc.ClientException, keystone_exceptions.ClientException, *_PYTHON_ERRORS)
#: The largest number of characters of a shown error.
_LONGEST: Final = 1000

_Answer = TypeVar("_Answer")

# ironicclient logs each error that it raises; the driver reports it.
logging.getLogger("ironicclient.common.http").addFilter(
    lambda record: record.levelno != logging.ERROR
)


class _Nodes(msgspec.Struct, frozen=True):
    nodes: list[msgspec.Raw]
    next: str | None = None


class _Uuid(msgspec.Struct, frozen=True):
    uuid: str


class _Selection(msgspec.Struct, frozen=True):
    uuid: str
    conductor_group: str | None = None
    shard: str | None = None
    owner: str | None = None
    resource_class: str | None = None


class _Error(msgspec.Struct, frozen=True):
    error_message: str


class _Stamp(msgspec.Struct, frozen=True):
    updated_at: datetime | None


@dataclass(frozen=True, slots=True)
class Latest:
    """A page of the selected nodes, newest update first."""

    nodes: tuple[Node, ...]
    #: The time of each node's last update, None if it was never updated.
    updated: tuple[datetime | None, ...]
    #: The Date of Ironic's answer, None without one.
    answered: datetime | None
    #: Whether Ironic has more selected nodes.
    has_more: bool


class Ironic:
    """A client for the selected nodes of Ironic. All methods raise BackendError."""

    def __init__(self, client: SessionClient, section: FleetSection) -> None:
        self._client: Final = client
        self._section: Final = section

    @classmethod
    def connect(cls, conf: cfg.ConfigOpts, section: FleetSection) -> Self:
        """Return a client for the configured Ironic. Raises BackendError and ConfigurationError."""
        adapter = keystone.load_adapter(conf, section.name)
        try:
            client = ironicclient.get_client(
                "1",
                os_ironic_api_version=section.microversion,
                session=adapter.session,
                endpoint=adapter.get_endpoint(),  # its errors name the cause
                max_retries=0,  # the next cycle tries again
            )
        except _ERRORS as error:
            raise BackendError(
                driver=section.name,
                operation="looking for Ironic",
                reason=_error_text(error, section),
            ) from error
        return cls(client.http_client, section)

    def check_sees_all(self) -> None:
        """Raise BackendError if Ironic may omit nodes because of the credentials."""
        selected = self._section.selected
        project = selected.get("owner", _NO_PROJECT)
        query = {"project": project, "fields": "uuid", "limit": 1}
        try:
            self._nodes("checking that all nodes are listed", "/v1/nodes", query)
        except BackendError as error:
            if not isinstance(error.__cause__, exc.Forbidden):
                raise
            own = f" of project {project}" if "owner" in selected else ""
            raise BackendError(
                driver=self._section.name,
                operation=error.operation,
                reason=f"the configured user may not list all nodes{own}, and Ironic would omit "
                "nodes without an error. Give the user the reader role on the system, or the "
                "service role and Ironic [DEFAULT] rbac_service_role_elevated_access = true; or "
                "set node_owner to the id of the user's project.",
            ) from error

    def last(self) -> str | None:
        """Return the uuid of the last node in Ironic's list, or None."""
        query = {"fields": "uuid", "sort_dir": "desc", "limit": 1}
        nodes = self._nodes("looking for the last node", "/v1/nodes", query).nodes
        return self._read("looking for the last node", nodes[0], _Uuid).uuid if nodes else None

    def page(self, after: str | None) -> list[Node]:
        """Return the next page of nodes; [] after the last node. None requests the first page."""
        query: dict[str, Any] = {"fields": ",".join(FIELDS), "limit": PAGE}
        if after is not None:
            query["marker"] = after
        operation = "listing the nodes"
        found = self._nodes(operation, "/v1/nodes", query)
        return [self._node(operation, node) for node in found.nodes]

    def has(self, uuid: str) -> bool:
        """Return whether Ironic has a selected node with this uuid."""
        operation = f"asking for node {uuid}"
        selected = self._section.selected
        path = f"/v1/nodes/{uuid}?{urlencode({'fields': ','.join(['uuid', *selected])})}"
        try:
            answer = self._request(operation, path)
        except BackendError as error:
            if isinstance(error.__cause__, exc.NotFound) and _is_about(error.__cause__, uuid):
                return False
            raise
        node = self._read(operation, answer.content, _Selection)
        if node.uuid != uuid:
            reason = f"Ironic answers with another node, {shown(node.uuid)}"
            raise self._failed(operation, reason)
        return all(
            _is_selected(value, getattr(node, key) or "", key) for key, value in selected.items()
        )

    def latest(self, limit: int) -> Latest:
        """Return up to ``limit`` nodes that the options select, last updated first."""
        operation = "asking for the nodes that have changed"
        answer = self._get(
            operation,
            "/v1/nodes/detail",
            {"sort_key": "updated_at", "sort_dir": "desc", "limit": limit},
        )
        found = self._read(operation, answer.content, _Nodes)
        stamps = [self._read(operation, node, _Stamp).updated_at for node in found.nodes]
        return Latest(
            nodes=tuple(self._node(operation, node) for node in found.nodes),
            updated=tuple(stamp and _in_utc(stamp) for stamp in stamps),
            answered=_date(answer),
            has_more=found.next is not None,
        )

    def never_updated_come_last(self) -> bool:
        """Return whether the last node in the order of ``latest`` was never updated."""
        operation = "looking for nodes that were never updated"
        query = {"sort_key": "updated_at", "sort_dir": "asc", "limit": 1}
        found = self._nodes(operation, "/v1/nodes/detail", query)
        return any(self._read(operation, node, _Stamp).updated_at is None for node in found.nodes)

    def _nodes(self, operation: str, path: str, query: Mapping[str, Any]) -> _Nodes:
        return self._read(operation, self._get(operation, path, query).content, _Nodes)

    def _get(self, operation: str, path: str, query: Mapping[str, Any]) -> Response:
        return self._request(operation, f"{path}?{urlencode({**self._section.selected, **query})}")

    def _request(self, operation: str, path: str) -> Response:
        try:
            return self._client.raw_request("GET", path)
        except exc.UnsupportedVersion as error:
            needed = f"API {self._section.microversion} is needed for {self._section.needed_for}"
            reason = f"{needed}: {_error_text(error, self._section)}"
            raise self._failed(operation, reason) from error
        except _ERRORS as error:
            raise self._failed(operation, self._reason(error, path.partition("?")[0])) from error

    def _reason(self, error: Exception, path: str) -> str:
        told, where = _error_text(error, self._section), f"{self._where}{path}"
        return told if where in told else f"{where}: {told}"

    @property
    def _where(self) -> str:
        return printable(self._client.endpoint_trimmed)

    def _node(self, operation: str, content: msgspec.Raw) -> Node:
        node = self._read(operation, content, Node)
        try:
            names.check_uuid(node.uuid)
        except ValueError as error:
            reason = f"Ironic answers with a node whose uuid {shown(node.uuid)} is not a uuid"
            raise self._failed(operation, reason) from error
        return node

    def _read(self, operation: str, content: bytes, kind: type[_Answer]) -> _Answer:
        try:
            return msgspec.json.decode(content, type=kind)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
            told = f"an answer that is not understood, from {self._where}: {error}"
            raise self._failed(operation, f"{told}: {shown(bytes(content))}") from error

    def _failed(self, operation: str, reason: str) -> BackendError:
        return BackendError(driver=self._section.name, operation=operation, reason=reason)


def _error_text(error: Exception, section: FleetSection) -> str:
    told = printable(" ".join(str(error).split())) or type(error).__name__
    if isinstance(error, _PYTHON_ERRORS):
        told = f"an answer that is not understood: {told}"
    if isinstance(error, keystone_exceptions.HttpError):
        told = f"Keystone: {told}"  # errors from Ironic are of ironicclient's types
    if len(told) > _LONGEST:
        told = f"{told[: _LONGEST - 3]}..."
    if isinstance(error, exc.Unauthorized | keystone_exceptions.Unauthorized):
        told = f"{told}. Check the credentials in [{section.credentials}]."
    return told


def _is_about(error: exc.NotFound, uuid: str) -> bool:
    content = b"" if error.response is None else error.response.content
    try:
        return uuid in msgspec.json.decode(content, type=_Error).error_message
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return False


def _is_selected(selected: str, value: str, key: str) -> bool:
    wanted = selected.split(",") if key == "shard" else [selected]
    return value.casefold() in {one.casefold() for one in wanted}


def _in_utc(stamp: datetime) -> datetime:
    return stamp if stamp.tzinfo else stamp.replace(tzinfo=UTC)


def _date(answer: Response) -> datetime | None:
    try:
        return _in_utc(parsedate_to_datetime(answer.headers["Date"]))
    except (KeyError, ValueError):
        return None
