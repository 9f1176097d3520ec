"""The real Cyborg in one process: its conductor, and its API beneath /accelerator.

Run as a program, by tests/lab/cyborg.py, in a directory that has the configuration. There it
leaves its port, and says when it is ready as systemd has it. Whoever asks is an administrator
unless the request says otherwise: there is no keystone.

Its parts talk in memory, so the agent has to be in this process as well.
"""

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIServer, make_server

# First of all, since it says how oslo.service is to have its threads.
import cyborg.cmd
import oslo_messaging
from cyborg.api import app
from cyborg.common import constants, rpc, service
from cyborg.conductor.manager import ConductorManager
from cyborg.conf import CONF
from cyborg.db import migration
from cyborg.objects.base import CyborgObjectSerializer
from oslo_service import systemd

Application = Callable[[dict[str, Any], Any], Iterable[bytes]]

#: What keystone would have said of whoever asks.
_ADMINISTRATOR = {
    "HTTP_X_ROLES": "admin,member,reader",
    "HTTP_X_USER_ID": "0" * 32,
    "HTTP_X_PROJECT_ID": "1" * 32,
}
#: Where catalogs have it, and where the links in Cyborg's own answers lead.
_MOUNTED_AT = "/accelerator"


class _ThreadingServer(ThreadingMixIn, WSGIServer):
    daemon_threads = True


def without_keystone(_defaults: dict[str, str]) -> Callable[[Application], Application]:
    """What the paste configuration has in the place of keystone's filter."""

    def filtered(application: Application) -> Application:
        def known(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
            return application({**_ADMINISTRATOR, **environ}, start_response)

        return known

    return filtered


def mounted(application: Application) -> Application:
    """The application where it is looked for; nothing anywhere else."""

    def dispatch(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        if not f"{path}/".startswith(f"{_MOUNTED_AT}/"):
            start_response("404 Not Found", [("Content-Length", "0")])
            return []
        environ["SCRIPT_NAME"] += _MOUNTED_AT
        environ["PATH_INFO"] = path.removeprefix(_MOUNTED_AT)
        return application(environ, start_response)

    return dispatch


def answer_calls(topic: str, manager: Any) -> None:
    """Have a manager do what is asked of it in the other parts."""
    target = oslo_messaging.Target(topic=topic, server=CONF.host)
    rpc.get_server(target, [manager], CyborgObjectSerializer()).start()
    manager.init_host()


def main(directory: Path) -> None:
    service.prepare_service([cyborg.cmd.__name__, "--config-file", str(directory / "cyborg.conf")])
    # Cyborg's migrations are not for SQLite.
    migration.create_schema()
    answer_calls(constants.CONDUCTOR_TOPIC, ConductorManager(constants.CONDUCTOR_TOPIC))
    server = make_server("127.0.0.1", 0, mounted(app.load_app()), _ThreadingServer)
    (directory / "port").write_text(str(server.server_port))
    systemd.notify_once()
    server.serve_forever()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
