"""Run the real Placement in one process, with the database and middleware of its configuration.

The argument is a directory with placement.conf. The program writes its port to a file there, and
notifies systemd's socket when it is ready.
"""

import sys
from pathlib import Path
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIServer, make_server

import placement.conf
from oslo_config import cfg
from oslo_service import systemd
from placement import db_api, deploy

from wharfinger.sqlite import allow_concurrent_writers


class _ThreadingServer(ThreadingMixIn, WSGIServer):
    daemon_threads = True


def load(configuration: Path) -> Any:
    """Create Placement's database, and return its WSGI application."""
    conf = cfg.ConfigOpts()
    placement.conf.register_opts(conf)
    conf([], project="placement", default_config_files=[str(configuration)])
    db_api.configure(conf)
    engine = db_api.get_placement_engine()
    if engine.dialect.name == "sqlite":
        allow_concurrent_writers(engine)
    return deploy.loadapp(conf)


def main(directory: Path) -> None:
    application = load(directory / "placement.conf")
    server = make_server("127.0.0.1", 0, application, _ThreadingServer)
    (directory / "port").write_text(str(server.server_port))
    systemd.notify_once()
    server.serve_forever()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
