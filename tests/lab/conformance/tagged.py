"""Machines behind HTTP whose answers have entity tags, and drivers that cache the answers.

The harness injects only the common faults, like one that was written before the others existed.
"""

import hashlib
import json
import threading
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import requests
from oslo_config import cfg
from requests.adapters import HTTPAdapter
from urllib3.util import Retry

from wharfinger.conformance.backend_proxy import Proxy
from wharfinger.conformance.harness import Fault, Harness, Placement
from wharfinger.driver import Allocations, Capabilities, ComputeDriver, unsupported
from wharfinger.exceptions import BackendError
from wharfinger.objects import Migration
from wharfinger.providers import Inventory, ProviderTree

_NONE = unsupported("machines have no such thing")


class TagsDriver(ComputeDriver):
    """Keeps its connections, repeats a request after an error, and reads only what has changed."""

    default_owner: ClassVar[str] = "CUSTOM_OWNER_TAGS"
    capabilities: ClassVar[Capabilities] = Capabilities(
        nested_providers=_NONE,
        reshape=_NONE,
        change_feed=_NONE,
        programming=_NONE,
        cleans_after_release=_NONE,
    )

    def __init__(self, conf: cfg.ConfigOpts, host: str, name: str) -> None:
        super().__init__(conf, host, name)
        conf.register_opts([cfg.StrOpt("url", required=True)], name)
        self.url: str = conf[name].url
        self.session = requests.Session()
        retries = Retry(2, status_forcelist=[503], backoff_factor=0.01)
        self.session.mount("http://", HTTPAdapter(pool_maxsize=4, max_retries=retries))
        #: The tag and the content of each path that was read.
        self.known: dict[str, tuple[str, Any]] = {}
        self.machines: dict[str, dict[str, Any]] = {}

    def cleanup_host(self) -> None:
        self.session.close()

    def get_available_nodes(self, refresh: bool = False) -> list[str]:
        if refresh:
            names = self.get("/machines")
            self.machines = {name: self.get(f"/machines/{name}") for name in names}
        return [*self.machines]

    def get(self, path: str) -> Any:
        """Request a path and return the content; raise BackendError."""
        tag, known = self.known.get(path, ("", None))
        try:
            answer = self.session.get(
                f"{self.url}{path}", headers={"If-None-Match": tag}, timeout=0.5
            )
            answer.raise_for_status()
            if answer.status_code == requests.codes.not_modified:
                return known
            return self.read(path, answer)
        except (requests.RequestException, ValueError) as error:
            raise BackendError(driver=self.name, operation=path, reason=str(error)) from error

    def read(self, path: str, answer: requests.Response) -> Any:
        """Return the content of an answer, and cache the content with its tag."""
        found = answer.json()
        self.known[path] = (answer.headers["ETag"], found)
        return found

    def update_provider_tree(
        self,
        provider_tree: ProviderTree,
        nodename: str,
        allocations: Allocations | None = None,
        migrations: Sequence[Migration] | None = None,
    ) -> None:
        units = self.machines[nodename]["units"]
        inventory = Inventory(total=units, max_unit=units)
        provider_tree.update_inventory(nodename, {"CUSTOM_UNIT": inventory})
        if self.machines[nodename]["busy"]:
            provider_tree.reserve(nodename, "it is busy")


class TagsBeforeReadingDriver(TagsDriver):
    """Caches the tag of an answer before it has read the content, which is a defect."""

    def read(self, path: str, answer: requests.Response) -> Any:
        _, known = self.known.get(path, ("", None))
        self.known[path] = (answer.headers["ETag"], known)
        return super().read(path, answer)


class TagsHarness(Harness):
    """A dictionary of machines, served over HTTP behind a proxy."""

    patience: ClassVar[float] = 3.0
    uses = unsupported("a user has a whole machine")

    def __init__(self, directory: Path, placement: Placement) -> None:
        super().__init__(directory, placement)
        self.machines: dict[str, dict[str, Any]] = {}
        self.removed: dict[str, dict[str, Any]] = {}
        self.server = _Server(("127.0.0.1", 0), _Request)
        self.server.harness = self
        self.proxy = Proxy(f"http://127.0.0.1:{self.server.server_port}")

    def start(self) -> None:
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()
        self.proxy.start()

    def stop(self) -> None:
        self.proxy.stop()
        self.server.shutdown()
        self.server.server_close()

    def reset(self) -> None:
        self.machines, self.removed = {}, {}
        self.grow(2)

    def configuration(self, instance: str) -> str:
        return f"[{instance}]\nurl = {self.proxy.url}\n"

    def things(self) -> Sequence[str]:
        return [*self.machines]

    def add(self) -> str:
        name = f"machine-{len(self.machines) + len(self.removed)}"
        self.machines[name] = {"units": 4, "busy": False}
        return name

    def remove(self, thing: str) -> None:
        self.removed[thing] = self.machines.pop(thing)

    def put_back(self, thing: str) -> None:
        self.machines[thing] = self.removed.pop(thing)

    def make_busy(self, thing: str) -> None:
        self.machines[thing]["busy"] = True

    def make_free(self, thing: str) -> None:
        self.machines[thing]["busy"] = False

    def change(self, thing: str) -> None:
        self.machines[thing]["units"] += 1

    def restart(self) -> None:
        raise AssertionError

    def expect(self, at: int | None = None, fault: Fault | None = None) -> None:
        self.proxy.expect(at, fault)

    @property
    def calls(self) -> Sequence[str]:
        return self.proxy.calls


class _Server(ThreadingHTTPServer):
    harness: TagsHarness


class _Request(BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        machines = self.server.harness.machines
        _, _, name = self.path[1:].partition("/")
        found: Any = machines.get(name) if name else [*machines]
        body = json.dumps(found).encode()
        tag = f'"{hashlib.sha256(body).hexdigest()}"'
        is_known = self.headers["If-None-Match"] == tag
        self.send_response(404 if found is None else 304 if is_known else 200)
        self.send_header("ETag", tag)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if not is_known:
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Do not log requests."""
