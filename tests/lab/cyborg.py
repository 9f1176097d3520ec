"""A real Cyborg, for as long as a test or a module of them; PyPI's openstack-cyborg."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import requests

from tests.lab.daemons import TIMEOUT, Daemon, LabError

_PROGRAM = Path(__file__).with_name("cyborg_service.py")
_CONFIGURATION = """\
[DEFAULT]
host = {host}
transport_url = fake://
state_path = {directory}

[api]
api_paste_config = {directory}/api-paste.ini

[database]
connection = sqlite:///{directory}/cyborg.sqlite

[oslo_concurrency]
lock_path = {directory}

# What the conductor makes clients for when it starts. It asks them for nothing as long as no
# agent reports: nobody listens there. Without a version it would look for one.
[placement]
auth_type = none
endpoint = http://127.0.0.1:9/v1

[nova]
auth_type = none
endpoint = http://127.0.0.1:9/v2.1
"""
#: What Cyborg comes with, but for keystone's filter.
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


class Cyborg(Daemon):
    """Cyborg's conductor and its API on 127.0.0.1, with an empty database.

    ``url`` is what a catalog has for the service.
    """

    host = "accelerated-host-1"
    url: str

    def _setUp(self) -> None:
        super()._setUp()
        self._has("cyborg.conf", _CONFIGURATION)
        self._has("api-paste.ini", _PIPELINE)
        # Isolated: beside the program there is a module that is called cyborg.
        self.start(sys.executable, "-I", "-W", "ignore", str(_PROGRAM), str(self.directory))
        port = int((self.directory / "port").read_text())
        self.url = f"http://127.0.0.1:{port}/accelerator/v2"

    def _give_up_root(self) -> None:
        """Stay who we are: nobody else need be able to read what Python is to run."""

    def _has(self, name: str, template: str) -> None:
        text = template.format(directory=self.directory, host=self.host)
        (self.directory / name).write_text(text)

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> requests.Response:
        """What Cyborg answers to a request, whatever that is."""
        return requests.request(
            method, f"{self.url}{path}", json=body, headers=headers, timeout=TIMEOUT
        )

    def create_profile(self, name: str, *groups: Mapping[str, str]) -> dict[str, Any]:
        """Make a device profile of these groups; return Cyborg's description of it."""
        answer = self.ask("POST", "/device_profiles", [{"name": name, "groups": groups}])
        if answer.status_code != 201:
            raise LabError(self._tell(f"no profile {name}: {answer.status_code}: {answer.text}"))
        created: dict[str, Any] = answer.json()
        return created

    def log(self) -> str:
        """All that it has said so far."""
        return self._log.read_text(errors="replace")
