"""The fleet driver's harness: an inventory service in this process.

The kit calls the machines of this service things.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

from wharfinger.conformance.backend_proxy import Proxy
from wharfinger.conformance.harness import Expected, Fault, Harness, Placement

#: The paths of the two lists.
HERE, ELSEWHERE = "/here", "/elsewhere"


class FleetHarness(Harness):
    """Serves the machines of this host and those of another host."""

    patience = 6.0  # more than the driver's timeout in the configuration below

    def __init__(self, directory: Path, placement: Placement) -> None:
        super().__init__(directory, placement)
        self.machines: dict[str, dict[str, Any]] = {}
        self.removed: dict[str, dict[str, Any]] = {}
        self.others: dict[str, dict[str, Any]] = {}
        self.service, self.open = ExitStack(), ExitStack()

    # The service, and the proxy that counts the driver's requests and injects faults.

    def start(self) -> None:
        """Start the service and the proxy."""
        self.open.callback(self.service.close)
        self.port = self.serve(0)
        self.proxy = Proxy(f"http://127.0.0.1:{self.port}")
        self.open.callback(self.proxy.stop)
        self.proxy.start()

    def stop(self) -> None:
        """Stop the service and the proxy."""
        self.open.close()

    def restart(self) -> None:
        """Stop the service, and start it on the same port."""
        self.service.close()
        self.serve(self.port)

    def serve(self, port: int) -> int:
        """Serve the machines of both hosts in a thread; return the port."""
        harness = self

        class Lists(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                machines = harness.machines if self.path == HERE else harness.others
                body = json.dumps({"machines": [*machines.values()]}).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        server = self.service.enter_context(ThreadingHTTPServer(("127.0.0.1", port), Lists))
        Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        self.service.callback(server.shutdown)
        return server.server_port

    def configuration(self, instance: str) -> str:
        """Return the driver's configuration for this host."""
        return self.section(instance, HERE)

    def section(self, instance: str, path: str) -> str:
        """Return the driver's configuration for the list at this path."""
        return f"[{instance}]\nurl = {self.proxy.url}{path}\ntimeout = 2\n"

    def expect(self, at: int | None = None, fault: Fault | None = None) -> None:
        """Clear ``calls``; call ``at`` (None: every call) then meets ``fault`` (None: no fault)."""
        self.proxy.expect(at, fault)

    @property
    def calls(self) -> Sequence[str]:
        """The driver's requests since the last ``expect``."""
        return self.proxy.calls

    # The machines.

    def reset(self) -> None:
        """Restore the first machines: two free ones in each list."""
        self.machines, self.removed = {}, {}
        self.others = {one["name"]: one for one in (machine("other", 0), machine("other", 1))}
        self.grow(2)

    def things(self) -> Sequence[str]:
        """Return the names of the machines."""
        return [*self.machines]

    def add(self) -> str:
        """Add a machine, and return its name."""
        new = machine("machine", len(self.machines) + len(self.removed))
        self.machines[new["name"]] = new
        return str(new["name"])

    def remove(self, thing: str) -> None:
        """Delete a machine from the list."""
        self.removed[thing] = self.machines.pop(thing)

    def put_back(self, thing: str) -> None:
        """List a deleted machine again."""
        self.machines[thing] = self.removed.pop(thing)

    def make_busy(self, thing: str) -> None:
        """Begin the repair of a machine."""
        self.machines[thing]["busy"] = "repair"

    def make_free(self, thing: str) -> None:
        """End the repair of a machine."""
        self.machines[thing]["busy"] = None

    # Optional methods. With them, no rule stays unproven.

    def expected(self) -> Mapping[str, Expected]:
        """Return the slots and traits of the machines that are not busy."""
        return {
            name: Expected({"CUSTOM_SLOT": one["slots"]}, frozenset(one["traits"]))
            for name, one in self.machines.items()
            if one["busy"] is None
        }

    def change(self, thing: str) -> None:
        """Add slots and a trait to a machine."""
        one = self.machines[thing]
        one["slots"] += 16
        one["free_slots"] += 16
        one["traits"].append(f"CUSTOM_SLOTS_{one['slots']}")

    def use(self, thing: str) -> None:
        """Let a consumer use one slot of a machine."""
        self.machines[thing]["free_slots"] -= 1

    def second_host(self, instance: str) -> str:
        """Return the driver's configuration for the other host."""
        return self.section(instance, ELSEWHERE)


def machine(kind: str, number: int) -> dict[str, Any]:
    """Return a new machine. Machines differ, so that the kit notices confused ones."""
    slots = 4 + number % 4
    return {
        "name": f"{kind}-{number}",
        "slots": slots,
        "free_slots": slots,
        "traits": [f"CUSTOM_SLOTS_{slots}"],
        "busy": None,
    }
