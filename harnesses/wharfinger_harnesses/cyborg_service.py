"""Run the real Cyborg in one process: its conductor, its agents, and its API below /accelerator.

Usage: `cyborg_service.py DIRECTORY PORT [--reports-every SECONDS]`. An optional `cyborg.conf` in
the directory overrides the options of this module.

If [placement] has an endpoint_override, an agent runs for each host in `hardware.json`. Placement
must then have a root provider with the name of each host.
"""

import gc
import os
import sys

if sys.flags.isolated:
    # With the default thresholds, the search for garbage takes a sixth of the start.
    gc.set_threshold(100_000, 50, 50)
else:
    # -I: the module cyborg of this directory must not hide Cyborg. -W: libraries warn.
    os.execv(sys.executable, [sys.executable, "-I", "-W", "ignore", *sys.argv])

import argparse
import importlib.util
import json
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from socketserver import ThreadingMixIn
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

# Before all other imports, since it selects the kind of threads of oslo.service.
import cyborg.cmd
import oslo_messaging
from cyborg import context
from cyborg.agent.manager import AgentManager
from cyborg.api import app
from cyborg.common import constants, exception, rpc, service, utils
from cyborg.conductor.manager import ConductorManager
from cyborg.conf import CONF
from cyborg.db import migration
from cyborg.objects.base import CyborgObjectSerializer
from oslo_db.sqlalchemy import enginefacade
from oslo_messaging._drivers import impl_fake
from oslo_service import systemd

Application = Callable[[dict[str, Any], Any], Iterable[bytes]]

LOG = logging.getLogger("cyborg.lab")
#: The most FPGAs that Cyborg programs at the same time.
_PROGRAMMINGS = 128

_DEFAULTS = """\
[DEFAULT]
transport_url = fake://
state_path = {directory}
log_file = {directory}/cyborg.log

[api]
api_paste_config = {directory}/api-paste.ini

[database]
connection = sqlite:///{directory}/cyborg.sqlite
# The database need not survive a crash of the machine.
sqlite_synchronous = False

[agent]
enabled_drivers = lab
resource_provider_startup_retries = 0

[oslo_concurrency]
lock_path = {directory}

# The conductor creates clients for these services when it starts. The URLs name a version, so the
# clients do not send requests for it: the services do not answer yet.
[placement]
auth_type = admin_token
token = admin
endpoint = http://127.0.0.1:9/v1

[nova]
auth_type = none
endpoint = http://127.0.0.1:{port}/compute/v2.1

[glance]
endpoint_override = http://127.0.0.1:{port}/image
"""
#: The URL of Glance for the part of Cyborg that binds accelerator requests.
_CLOUDS = """\
clouds:
  devstack-admin:
    auth_type: none
    auth:
      endpoint: http://127.0.0.1:{port}/image/v2
    image_endpoint_override: http://127.0.0.1:{port}/image/v2
"""
#: Cyborg's own paste pipeline, with without_keystone in place of keystone's filter.
_PIPELINE = """\
[pipeline:main]
pipeline = cors http_proxy_to_wsgi request_id without_keystone api_v2

[app:api_v2]
paste.app_factory = cyborg.api.app:app_factory

[filter:cors]
paste.filter_factory = oslo_middleware.cors:filter_factory
oslo_config_project = cyborg

[filter:http_proxy_to_wsgi]
paste.filter_factory = oslo_middleware.http_proxy_to_wsgi:HTTPProxyToWSGI.factory

[filter:request_id]
paste.filter_factory = oslo_middleware:RequestId.factory

[filter:without_keystone]
paste.filter_factory = __main__:without_keystone
"""
_HARDWARE = "cyborg_hardware"
_PEERS = "cyborg_peers"
_ENTRY_POINTS = f"""\
[cyborg.accelerator.driver]
lab = {_HARDWARE}:LabDriver
"""

#: Headers that keystone would add for an administrator.
_ADMINISTRATOR = {
    "HTTP_X_AUTH_TOKEN": "admin",
    "HTTP_X_ROLES": "admin,member,reader",
    "HTTP_X_USER_ID": "0" * 32,
    "HTTP_X_PROJECT_ID": "1" * 32,
}
#: The path of the API in service catalogs, and of the links in Cyborg's answers.
_MOUNTED_AT = "/accelerator"


class _ThreadingServer(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _QuietHandler(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


def without_keystone(_defaults: dict[str, str]) -> Callable[[Application], Application]:
    """Return a paste filter that adds the headers of an administrator to a request."""

    def filtered(application: Application) -> Application:
        def known(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
            return application({**_ADMINISTRATOR, **environ}, start_response)

        return known

    return filtered


def mounted(applications: Mapping[str, Application]) -> Application:
    """Return an application that serves each application below its path."""

    def dispatch(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        for place, application in applications.items():
            if f"{path}/".startswith(f"{place}/"):
                environ["SCRIPT_NAME"] += place
                environ["PATH_INFO"] = path.removeprefix(place)
                return application(environ, start_response)
        start_response("404 Not Found", [("Content-Length", "0")])
        return []

    return dispatch


def load_beside(name: str) -> Any:
    """Import a module that is beside this file."""
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def install_hardware(directory: Path) -> None:
    """Let Cyborg find the entry point of the driver `lab`."""
    distribution = directory / "lab-0.dist-info"
    distribution.mkdir(exist_ok=True)
    (distribution / "METADATA").write_text("Metadata-Version: 2.1\nName: lab\nVersion: 0\n")
    (distribution / "entry_points.txt").write_text(_ENTRY_POINTS)
    sys.path.append(str(directory))


def configure(directory: Path, port: int) -> None:
    """Configure Cyborg with the options of this module and of `cyborg.conf`."""
    for name, template in {
        "defaults.conf": _DEFAULTS,
        "api-paste.ini": _PIPELINE,
        "clouds.yaml": _CLOUDS,
    }.items():
        (directory / name).write_text(template.format(directory=directory, port=port))
    for name in ("hardware.json", "images.json"):
        if not (directory / name).exists():
            (directory / name).write_text("{}")
    for name in ("go", "holds"):
        (directory / name).mkdir(exist_ok=True)
    os.environ["OS_CLIENT_CONFIG_FILE"] = str(directory / "clouds.yaml")
    names = [name for name in ("defaults.conf", "cyborg.conf") if (directory / name).exists()]
    options = [f"--config-file={directory / name}" for name in names]
    service.prepare_service([cyborg.cmd.__name__, *options])
    enginefacade.configure(thread_checkin=False)  # without a sleep after each transaction


def deliver_at_once() -> None:
    """Let RPC servers receive each message at once."""
    delivered = threading.Condition()
    deliver = impl_fake.FakeExchange.deliver_message

    def deliver_and_wake(*args: Any, **kwargs: Any) -> None:
        deliver(*args, **kwargs)
        with delivered:
            delivered.notify_all()

    def sleep(seconds: float) -> None:
        with delivered:
            delivered.wait(seconds)

    impl_fake.FakeExchange.deliver_message = deliver_and_wake
    impl_fake.time = SimpleNamespace(time=time.time, sleep=sleep)


def create_schema() -> None:
    """Create the tables if the database is empty."""
    # Cyborg's migrations do not work with SQLite.
    if migration.version() is None:
        migration.create_schema()


def answer_calls(topic: str, manager: Any, host: str) -> None:
    """Start an RPC server that passes calls on this topic to a manager."""
    target = oslo_messaging.Target(topic=topic, server=host)
    rpc.get_server(target, [manager], CyborgObjectSerializer()).start()
    manager.init_host()


class Agent:
    """Cyborg's real agent for one host."""

    def __init__(self, host: str) -> None:
        # AgentManager reads the name of its host from the configuration.
        CONF.set_override("host", host)
        CONF.set_override("resource_provider_name", host, "agent")
        self._manager = AgentManager(constants.AGENT_TOPIC, host)
        drivers = self._manager.fpga_driver
        self._manager.fpga_driver = SimpleNamespace(create=partial(drivers.create, host=host))
        # AgentManager ignores the conductor's error. _send keeps it for report.
        self._conductor = self._manager._rt.conductor_api
        self._manager._rt.conductor_api = SimpleNamespace(report_data=self._send)
        self._error: Exception | None = None
        self._reporting = threading.Lock()
        answer_calls(constants.AGENT_TOPIC, self._manager, host)

    def report(self) -> None:
        """Report the devices of the host to the conductor. Raises the conductor's error."""
        with self._reporting:
            self._error = None
            self._manager.update_available_resource(context.get_admin_context())
            if self._error is not None:
                raise self._error

    def _send(self, *report: Any) -> None:
        try:
            self._conductor.report_data(*report)
        except Exception as error:
            self._error = error
            raise


class Control:
    """A WSGI application through which tests control Cyborg."""

    def __init__(self, agents: Mapping[str, Agent]) -> None:
        self._agents = agents

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        """Run the command in the path of the request."""
        if environ["PATH_INFO"] == "/patience":
            (seconds,) = parse_qs(environ["QUERY_STRING"])["seconds"]
            CONF.set_override("rpc_response_timeout", int(seconds))
        if environ["PATH_INFO"] == "/discover":
            (host,) = parse_qs(environ["QUERY_STRING"])["host"]
            try:
                self._agents[host].report()
            except Exception as error:
                LOG.exception("Cyborg's agent of host %s cannot report its devices", host)
                start_response("500 No Report", [])
                return [f"{type(error).__name__}: {error}".encode()]
        start_response("200 OK", [])
        return []

    def report(self) -> None:
        """Let all agents report their devices; log errors."""
        for host, agent in self._agents.items():
            try:
                agent.report()
            except Exception:
                LOG.exception("Cyborg's agent of host %s cannot report its devices", host)

    def report_every(self, seconds: float) -> None:
        """Let all agents report at this interval for ever."""
        while True:
            time.sleep(seconds)
            self.report()


def main(directory: Path, port: int, reports_every: float | None) -> None:
    """Run Cyborg until a signal ends the process."""
    install_hardware(directory)
    configure(directory, port)
    deliver_at_once()
    # Not by the option thread_pool_size, which Cyborg reads before its configuration.
    utils.ThreadWorks(_PROGRAMMINGS)
    load_beside(_HARDWARE)
    peers = load_beside(_PEERS)
    create_schema()
    answer_calls(constants.CONDUCTOR_TOPIC, ConductorManager(constants.CONDUCTOR_TOPIC), CONF.host)
    hosts = json.loads((directory / "hardware.json").read_text())
    try:
        agents = {host: Agent(host) for host in hosts if CONF.placement.endpoint_override}
    except exception.PlacementResourceProviderNotFound as error:
        sys.exit(f"Placement must have a root provider for the host of each agent: {error}")
    control = Control(agents)
    control.report()
    if reports_every is not None:
        threading.Thread(target=control.report_every, args=(reports_every,), daemon=True).start()
    application = mounted(
        {
            _MOUNTED_AT: app.load_app(),
            "/image": peers.glance(directory),
            "/compute": peers.nova(directory),
            "/lab": control,
        }
    )
    server = make_server("127.0.0.1", port, application, _ThreadingServer, _QuietHandler)
    systemd.notify_once()
    server.serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("port", type=int)
    parser.add_argument("--reports-every", type=float, metavar="SECONDS")
    arguments = parser.parse_args()
    main(arguments.directory.resolve(), arguments.port, arguments.reports_every)
