"""The real Placement service inside this process, on SQLite."""

import io
import re
import threading
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
from sqlalchemy import Engine

from wharfinger import private_files
from wharfinger.exceptions import ConfigurationError, StateError
from wharfinger.sqlite import allow_concurrent_writers, reason, schema_lock

ENDPOINT: Final = "http://placement.embedded"
#: Placement's noauth2 takes the token as the user, and the roles from this header.
_ROLES: Final = {"X-Roles": "admin,member,reader,service"}
_LOCK: Final = threading.Lock()
#: Distributions of the extra "embedded", by module.
_EXTRA: Final = {"placement": "openstack-placement", "webob": "WebOb"}
_INSTALL: Final = (
    "Run `pip install 'wharfinger[embedded]'`; or set embedded = false, and the options that lead "
    "to a Placement service."
)
#: The message of SQLite in an error of SQLAlchemy; Placement replaces the newlines in it.
_SQLITE_ERROR: Final = re.compile(r"\(sqlite3\.\w+\) (.*?)\s*(?:\[SQL: |\(Background |\\?\"|\n|$)")


def check_installed() -> None:
    """Raise ConfigurationError if the extra "embedded" is not installed."""
    specs = {distribution: find_spec(module) for module, distribution in _EXTRA.items()}
    # A directory without a package has a spec, but no origin.
    missing = [name for name, spec in specs.items() if spec is None or spec.origin is None]
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        raise _cannot_start(f"{' and '.join(missing)} {verb} not installed.", _INSTALL)


class EmbeddedPlacement:
    """Placement on a SQLite file, which several threads and processes may use.

    Each process can have only one. Raises ConfigurationError and StateError.
    """

    _started: Path | None = None

    def __init__(self, database: Path) -> None:
        check_installed()
        with _LOCK:
            if EmbeddedPlacement._started is not None:
                raise _cannot_start(
                    f"this process already has an embedded Placement on "
                    f"{EmbeddedPlacement._started}, and can have only one.",
                    "Use the adapter of that Placement, or another process.",
                    database,
                )
            self.application, self.engine = self._load(database)
        self.transport: Final = _WSGITransport(self.application, database)
        session = requests.Session()
        session.trust_env = False  # no proxy leads to this process
        session.mount(ENDPOINT, self.transport)
        self.adapter: Final = Adapter(
            Session(session=session),
            auth=token_endpoint.Token(ENDPOINT, "admin"),
            service_type="placement",
            endpoint_override=ENDPOINT,
            additional_headers=_ROLES,
        )

    @classmethod
    def _load(cls, database: Path) -> tuple[Any, Engine]:
        try:
            from placement import conf as placement_conf  # noqa: PLC0415
            from placement import db_api, deploy  # noqa: PLC0415
        except ImportError as error:
            # A dependency of openstack-placement may be missing, too.
            problem = f"a dependency of openstack-placement ({error}) is not installed."
            raise _cannot_start(problem, _INSTALL) from error
        conf = cfg.ConfigOpts()
        placement_conf.register_opts(conf)
        conf.set_override("auth_strategy", "noauth2", "api")
        conf.set_override("connection", f"sqlite:///{database}", "placement_database")
        conf.set_override("sync_on_startup", True, "placement_database")
        conf([], project="placement", default_config_files=[], default_config_dirs=[])
        # From here on Placement's globals are in use, even if it does not start.
        cls._started = database
        try:
            private_files.make_directory(database.parent)
            private_files.make_database(database)
            db_api.configure(conf)
            # By default, oslo.db sleeps after each transaction, which only green threads need.
            db_api.placement_context_manager.configure(thread_checkin=False)
            engine = db_api.get_placement_engine()
            allow_concurrent_writers(engine)
            with schema_lock(database.parent):
                return deploy.loadapp(conf), engine
        except StateError:
            raise
        except Exception as error:
            # Placement's libraries raise many types of errors.
            remedy = "Check that the file can be written, or name another file."
            raise _cannot_start(f"{reason(error)}.", remedy, database) from error


class _WSGITransport(HTTPAdapter):
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
            base_url=ENDPOINT,
            method=request.method,
            headers=request.headers,
            body=request.body.encode() if isinstance(request.body, str) else request.body or b"",
        )
        answer = call.get_response(self._application)
        if answer.status_int == HTTPStatus.INTERNAL_SERVER_ERROR and b"(sqlite3." in answer.body:
            found = _SQLITE_ERROR.search(answer.body.decode(errors="replace"))
            message = found[1] if found else "its database has failed"
            raise StateError(
                path=str(self._database),
                problem=f"the embedded Placement cannot use its database: {message}.",
                remedy="Check that the file is intact and writable, and that the disk is not full.",
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


def _cannot_start(problem: str, remedy: str, database: Path | None = None) -> ConfigurationError:
    return ConfigurationError(
        section="placement",
        key="embedded_database" if database else "embedded",
        value=database or "true",
        problem=f"the embedded Placement cannot start: {problem}",
        remedy=remedy,
    )
