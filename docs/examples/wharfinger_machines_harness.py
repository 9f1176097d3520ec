"""An inventory service for the conformance of the machines driver: a file, served over HTTP."""

import json
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

from wharfinger.conformance.backend_proxy import Proxy
from wharfinger.conformance.harness import Fault, Harness, Placement


class MachinesHarness(Harness):
    patience = 3.0  # the driver gives up after one second

    def __init__(self, directory: Path, placement: Placement) -> None:
        super().__init__(directory, placement)
        self.machines: dict[str, dict[str, Any]] = {}
        self.removed: dict[str, dict[str, Any]] = {}
        self.service, self.open = ExitStack(), ExitStack()

    # The service, and the proxy before it, which counts calls and breaks them.

    def start(self) -> None:
        self.open.callback(self.service.close)
        port = self.serve(0)
        self.proxy = Proxy(f"http://127.0.0.1:{port}")
        self.open.callback(self.proxy.stop)
        self.proxy.start()

    def stop(self) -> None:
        self.open.close()

    def restart(self) -> None:
        self.service.close()
        self.serve(self.port)

    def serve(self, port: int) -> int:
        files = partial(QuietHandler, directory=self.directory)
        server = self.service.enter_context(ThreadingHTTPServer(("127.0.0.1", port), files))
        Thread(target=server.serve_forever, daemon=True).start()
        self.service.callback(server.shutdown)
        self.port = server.server_port
        return self.port

    def configuration(self, instance: str) -> str:
        return f"[{instance}]\nurl = {self.proxy.url}/machines.json\ntimeout = 1\n"

    def expect(self, at: int | None = None, fault: Fault | None = None) -> None:
        self.proxy.expect(at, fault)

    @property
    def calls(self) -> Sequence[str]:
        return self.proxy.calls

    # The machines.

    def reset(self) -> None:
        self.machines, self.removed = {}, {}
        self.grow(2)

    def things(self) -> Sequence[str]:
        return [*self.machines]

    def add(self) -> str:
        name = f"machine-{len(self.machines) + len(self.removed)}"
        self.machines[name] = {"traits": ["CUSTOM_QUIET"]}
        self.write()
        return name

    def remove(self, thing: str) -> None:
        self.removed[thing] = self.machines.pop(thing)
        self.write()

    def put_back(self, thing: str) -> None:
        self.machines[thing] = self.removed.pop(thing)
        self.write()

    def make_busy(self, thing: str) -> None:
        self.machines[thing]["busy"] = "maintenance"
        self.write()

    def make_free(self, thing: str) -> None:
        del self.machines[thing]["busy"]
        self.write()

    def write(self) -> None:
        (self.directory / "machines.json").write_text(json.dumps(self.machines))


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass
