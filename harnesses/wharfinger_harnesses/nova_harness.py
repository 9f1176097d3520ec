"""The nova driver's harness: nova's fake driver, with nodes that an HTTP service lists."""

import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, Final
from uuid import NAMESPACE_URL, uuid5

from wharfinger.conformance.backend_proxy import Proxy
from wharfinger.conformance.harness import Expected, Fault, Harness, OldLayout, Placement
from wharfinger.providers import Inventory

#: The number of nodes after a reset, and of the CPUs of the first node.
_COUNT: Final = 3
_VCPUS: Final = 8
#: The totals of each node.
_MEMORY_MB, _DISK_GB, _MAGIC = 8192, 1028, 10
#: Seconds that the compute driver waits for an answer.
_TIMEOUT: Final = 2
_FILE: Final = "nodes.json"


class NovaHarness(Harness):
    """Nodes of nova's fake driver, each with a child provider."""

    # No second_host: all driver instances of a process share nova's configuration.
    patience = 2.0 * _TIMEOUT

    def __init__(self, directory: Path, placement: Placement) -> None:
        super().__init__(directory, placement)
        self._open: Final = ExitStack()
        self._service: Final = ExitStack()
        self._nodes: dict[str, dict[str, Any]] = {}
        self._removed: dict[str, dict[str, Any]] = {}
        self._numbered = 0
        self._port = 0

    def start(self) -> None:
        self._open.callback(self._service.close)
        self._serve()
        self._proxy = Proxy(f"http://127.0.0.1:{self._port}")
        self._open.callback(self._proxy.stop)
        self._proxy.start()
        (self.directory / "nova.conf").write_text(
            f"[DEFAULT]\nstate_path = {self.directory}\n"
            f"[fleet]\nurl = {self._proxy.url}/{_FILE}\ntimeout = {_TIMEOUT}\n"
        )

    def stop(self) -> None:
        self._open.close()

    def restart(self) -> None:
        self._service.close()
        self._serve()

    def _serve(self) -> None:
        files = partial(_QuietHandler, directory=self.directory)
        server = ThreadingHTTPServer(("127.0.0.1", self._port), files)
        self._service.enter_context(server)
        Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        self._service.callback(server.shutdown)
        self._port = server.server_port

    def configuration(self, instance: str) -> str:
        return f"""\
[{instance}]
compute_driver = wharfinger_harnesses.nova_hardware.FleetDriver
nova_config = {self.directory / "nova.conf"}
"""

    def reset(self) -> None:
        self._proxy.expect()
        self._nodes, self._removed, self._numbered = {}, {}, 0
        self.grow(_COUNT)

    def things(self) -> Sequence[str]:
        return [*self._nodes]

    def add(self) -> str:
        self.grow(1)
        return [*self._nodes][-1]

    def grow(self, count: int) -> None:
        for _ in range(count):
            self._nodes[f"nova-node-{self._numbered}"] = {"vcpus": _VCPUS + self._numbered}
            self._numbered += 1
        self._write()

    def remove(self, thing: str) -> None:
        self._removed[thing] = self._nodes.pop(thing)
        self._write()

    def put_back(self, thing: str) -> None:
        self._nodes[thing] = self._removed.pop(thing)
        self._write()

    def make_busy(self, thing: str) -> None:
        self._nodes[thing]["busy"] = True
        self._write()

    def make_free(self, thing: str) -> None:
        del self._nodes[thing]["busy"]
        self._write()

    def change(self, thing: str) -> None:
        self._nodes[thing]["vcpus"] += 1000
        self._write()

    def use(self, thing: str) -> None:
        # The compute driver ignores it.
        self._nodes[thing]["instances"] = 1
        self._write()

    def expected(self) -> Mapping[str, Expected]:
        return {
            name: Expected(
                {"VCPU": node["vcpus"], "MEMORY_MB": _MEMORY_MB, "DISK_GB": _DISK_GB},
                frozenset({"COMPUTE_TRUSTED_CERTS"}),
            )
            for name, node in self._nodes.items()
            if not node.get("busy")
        }

    def use_old_layout(self) -> OldLayout:
        (node, *_) = self._nodes.values()
        return OldLayout(
            inventories={
                "VCPU": Inventory(total=node["vcpus"], max_unit=node["vcpus"]),
                "MEMORY_MB": Inventory(total=_MEMORY_MB, max_unit=_MEMORY_MB, reserved=512),
                "DISK_GB": Inventory(total=_DISK_GB, max_unit=_DISK_GB),
                "CUSTOM_MAGIC": Inventory(total=_MAGIC, max_unit=_MAGIC),
            },
            allocations={
                _consumer(0): {"VCPU": 1, "MEMORY_MB": 64, "CUSTOM_MAGIC": 2},
                _consumer(1): {"CUSTOM_MAGIC": 3},
            },
        )

    def expect(self, at: int | None = None, fault: Fault | None = None) -> None:
        self._proxy.expect(at, fault)

    @property
    def calls(self) -> Sequence[str]:
        return self._proxy.calls

    def _write(self) -> None:
        # The service may be reading the list.
        new = self.directory / "nodes.new"
        new.write_text(json.dumps(self._nodes))
        new.replace(self.directory / _FILE)


class _QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


def _consumer(number: int) -> str:
    return str(uuid5(NAMESPACE_URL, f"nova-node/consumer/{number}"))
