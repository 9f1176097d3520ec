"""Run the real Keystone in one process, after creating its database and its keys.

tests/lab/keystone.py starts this program. The arguments are the directory with keystone.conf, the
region and the administrator's password. The program writes its port to a file in the directory,
and notifies systemd's socket when it is ready.
"""

import sys
from pathlib import Path
from socketserver import ThreadingMixIn
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

import keystone.server
from keystone.cmd.bootstrap import Bootstrapper
from keystone.common.fernet_utils import FernetUtils
from keystone.common.sql import upgrades
from keystone.server.flask import application, core
from oslo_service import systemd

_ADMINISTRATOR = "admin"


class _ThreadingServer(ThreadingMixIn, WSGIServer):
    daemon_threads = True


def make_keys(directory: Path) -> None:
    """Create the keys for tokens. Keystone does not start without them."""
    keys = FernetUtils(str(directory), 3, "fernet_tokens")
    keys.create_key_directory()
    keys.initialize_key_repository()


def bootstrap(url: str, region: str, password: str) -> None:
    """Create the roles, the administrator and Keystone's own entry in the catalog."""
    bootstrapper = Bootstrapper()
    bootstrapper.admin_username = bootstrapper.project_name = _ADMINISTRATOR
    bootstrapper.admin_role_name = _ADMINISTRATOR
    bootstrapper.admin_password = password
    bootstrapper.region_id = region
    bootstrapper.service_name = "keystone"
    bootstrapper.public_url = bootstrapper.internal_url = bootstrapper.admin_url = url
    bootstrapper.bootstrap()


def main(directory: Path, region: str, password: str) -> None:
    del sys.argv[1:]  # Keystone reads them, too
    keystone.server.configure(config_files=[str(directory / "keystone.conf")])
    make_keys(directory / "keys")
    upgrades.offline_sync_database_to_version()
    server = _ThreadingServer(("127.0.0.1", 0), WSGIRequestHandler)
    # Build the application only once: it loads the backends, which works once per process.
    bootstrap(f"http://127.0.0.1:{server.server_port}/v3", region, password)
    server.set_app(core.setup_app_middleware(application.application_factory("public")))
    (directory / "port").write_text(str(server.server_port))
    systemd.notify_once()
    server.serve_forever()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
