"""The real Placement service inside this process, on SQLite.

Placement keeps its database and its policy in module globals, so that a process can
hold one. It is mounted as a transport below keystoneauth: the client above it, and its
answers, are those of a service over HTTP.
"""

import io
import re
import threading
from collections.abc import Mapping
from http import HTTPStatus
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import requests
import urllib3
from keystoneauth1 import token_endpoint
from keystoneauth1.adapter import Adapter
from keystoneauth1.session import Session
from oslo_config import cfg
from requests.adapters import HTTPAdapter

from wharfinger import private_files
from wharfinger.exceptions import ConfigurationError, StateError
from wharfinger.sqlite import allow_concurrent_writers, reason, schema_lock

_ENDPOINT: Final = "http://placement.embedded"
#: Placement's noauth2 takes the token as the user and believes this header.
_ROLES: Final = {"X-Roles": "admin,member,reader,service"}
_LOCK: Final = threading.Lock()
#: The modules of the extra "embedded", with the distribution that has each.
_EXTRA: Final = {"placement": "openstack-placement", "webob": "WebOb"}
#: The message of SQLite in an error of SQLAlchemy; Placement replaces the newlines in it.
_SQLITE_ERROR: Final = re.compile(r"\(sqlite3\.\w+\) (.*?)\s*(?:\[SQL: |\(Background |\\?\"|\n|$)")


def check_installed() -> None:
    """Raise ConfigurationError where a distribution of the embedded Placement is missing.

    It imports none of them.
    """
    missing = [distribution for module, distribution in _EXTRA.items() if not _is_there(module)]
    if missing:
        raise _not_installed(f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'}")


class EmbeddedPlacement:
    """Placement on a SQLite file, with the schema, traits and classes in place.

    ``adapter`` is for our client; ``application`` is Placement's WSGI application. Safe for
    several threads, and for several processes on the same file. Raises ConfigurationError
    where openstack-placement is not installed, where this process has an embedded Placement
    already, or where the file cannot be used, and StateError where it is not ours.
    """

    _started: Path | None = None

    def __init__(self, database: Path) -> None:
        check_installed()
        with _LOCK:
            if EmbeddedPlacement._started is not None:
                raise _cannot_start(
                    database,
                    f"this process has an embedded Placement on {EmbeddedPlacement._started} "
                    "already, and Placement's own globals allow one.",
                    "Use that one's adapter, or another process.",
                )
            self.application: Final = self._load(database)
        transport = requests.Session()
        transport.mount(_ENDPOINT, _WSGITransport(self.application, database))
        self.adapter: Final = Adapter(
            Session(session=transport),
            auth=token_endpoint.Token(_ENDPOINT, "admin"),
            service_type="placement",
            endpoint_override=_ENDPOINT,
            additional_headers=_ROLES,
        )

    @classmethod
    def _load(cls, database: Path) -> Any:
        try:
            from placement import conf as placement_conf  # noqa: PLC0415
            from placement import db_api, deploy  # noqa: PLC0415
        except ImportError as error:
            # A dependency of openstack-placement may be missing, too.
            raise _not_installed(f"a dependency of openstack-placement ({error}) is") from error
        conf = cfg.ConfigOpts()
        placement_conf.register_opts(conf)
        conf.set_override("auth_strategy", "noauth2", "api")
        conf.set_override("connection", f"sqlite:///{database}", "placement_database")
        conf.set_override("sync_on_startup", True, "placement_database")
        conf([], project="placement", default_config_files=[], default_config_dirs=[])
        # From here on its globals are taken, even if it does not come up.
        cls._started = database
        try:
            private_files.make_directory(database.parent)
            private_files.make_database(database)
            db_api.configure(conf)
            allow_concurrent_writers(db_api.get_placement_engine())
            with schema_lock(database.parent):
                return deploy.loadapp(conf)
        except StateError:
            raise
        except Exception as error:
            # Whatever its libraries raise: an unusable file, a schema of a newer release.
            raise _cannot_start(
                database,
                f"{reason(error)}.",
                "Check that the file can be written, or name another.",
            ) from error


class _WSGITransport(HTTPAdapter):
    """A requests transport that calls a WSGI application."""

    def __init__(self, application: Any, database: Path) -> None:
        super().__init__()
        self._application = application
        self._database = database

    def send(
        self, request: requests.PreparedRequest, *_args: Any, **_kwargs: Any
    ) -> requests.Response:
        import webob  # noqa: PLC0415 - comes with the extra

        call = webob.Request.blank(
            request.path_url,
            base_url=_ENDPOINT,
            method=request.method,
            headers=_text(request.headers),
            body=request.body.encode() if isinstance(request.body, str) else request.body or b"",
        )
        answer = call.get_response(self._application)
        if answer.status_int == HTTPStatus.INTERNAL_SERVER_ERROR and b"(sqlite3." in answer.body:
            raise StateError(
                path=str(self._database),
                problem=f"the embedded Placement cannot go on: {_sqlite_error(answer.body)}.",
                remedy="Check that the file can be written and has space left.",
            )
        return self.build_response(
            request,
            urllib3.HTTPResponse(
                body=io.BytesIO(answer.body),
                headers=urllib3.HTTPHeaderDict(answer.headers.items()),
                status=answer.status_int,
                reason=answer.status.partition(" ")[2],
                preload_content=False,
            ),
        )


def _is_there(module: str) -> bool:
    """Return whether a module can be found; a directory without a package does not count."""
    spec = find_spec(module)
    return spec is not None and spec.origin is not None


def _sqlite_error(body: bytes) -> str:
    """Return what SQLite says in Placement's error document, without the statement."""
    found = _SQLITE_ERROR.search(body.decode(errors="replace"))
    return found[1] if found else "its database fails"


def _text(headers: Mapping[str, str | bytes]) -> dict[str, str]:
    return {
        name: value.decode("latin-1") if isinstance(value, bytes) else value
        for name, value in headers.items()
    }


def _not_installed(missing: str) -> ConfigurationError:
    return ConfigurationError(
        section="placement",
        key="embedded",
        value="true",
        problem=f"the embedded Placement cannot start: {missing} not installed.",
        remedy="Run `pip install 'wharfinger[embedded]'`; or set embedded = false, and the options "
        "that lead to a Placement service.",
    )


def _cannot_start(database: Path, problem: str, remedy: str) -> ConfigurationError:
    return ConfigurationError(
        section="placement",
        key="embedded_database",
        value=database,
        problem=f"the embedded Placement cannot start: {problem}",
        remedy=remedy,
    )
