"""A real libvirtd with simulated GPUs; fakesys.py makes them.

The fixtures need Debian's libvirt-daemon and mdevctl, and root or unprivileged user namespaces. If
something is missing, they raise LabError with its name, and skip no test.
"""

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import fixtures
import libvirt

from tests.lab import fakesys
from wharfinger_harnesses.daemons import TIMEOUT, LabError, path_with, socket_in

_PROGRAMS = {
    "unshare": "util-linux",
    "setpriv": "util-linux",
    "libvirtd": "libvirt-daemon",
    "mdevctl": "mdevctl",
}


class Libvirtd(fixtures.Fixture):
    """libvirtd and its simulated devices, in namespaces of their own.

    This process connects to ``uri``. The GPUs are ``fakesys.GPUS``, their mdev types
    ``fakesys.GPU_TYPES``.
    """

    uri: str
    is_up: bool
    _process: "subprocess.Popen[str]"

    def _setUp(self) -> None:
        path = path_with(_PROGRAMS)
        directory = Path(self.useFixture(fixtures.TempDir()).path)
        socket = socket_in(directory, "libvirt-sock")
        self.uri = f"qemu:///system?socket={socket}"
        self._domains = directory / "qemu"
        self._logs = (directory / "stderr", directory / "libvirtd.log")
        with self._logs[0].open("w") as errors:
            self._process = subprocess.Popen(
                [
                    *("unshare", "--mount", "--net", "--propagation", "unchanged"),
                    *(() if os.geteuid() == 0 else ("--user", "--map-root-user")),
                    *(sys.executable, "-I", fakesys.__file__, str(directory)),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env={**os.environ, "PATH": path},
            )
        self.addCleanup(self._stop)
        self.start()

    def start(self) -> None:
        """Start libvirtd and wait until it is ready."""
        self._command("start")
        self.is_up = True

    def kill(self) -> None:
        """Kill libvirtd with SIGKILL. The devices stay as they are."""
        self._command("kill")
        self.is_up = False

    def define(self, domains: Mapping[str, str]) -> None:
        """Define exactly these domains, by name and XML, without starting them.

        This restarts libvirtd, which reads them from files. Its API would need an emulator.
        """
        self.kill()
        for path in self._domains.glob("*.xml"):
            path.unlink()
        for name, xml in domains.items():
            (self._domains / f"{name}.xml").write_text(xml)
        self.start()

    def _command(self, command: str) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(f"{command}\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            self._process.wait(TIMEOUT)
            raise LabError(
                "libvirtd needs mount and network namespaces: run as root (with CAP_SYS_ADMIN), "
                "or allow unprivileged user namespaces (sysctl user.max_user_namespaces, "
                "kernel.unprivileged_userns_clone, "
                "kernel.apparmor_restrict_unprivileged_userns).\n" + self._output()
            )
        answer = json.loads(line)
        if not answer["done"]:
            raise LabError(f"{command} libvirtd: {answer['error']}\n{self._output()}")

    def _output(self) -> str:
        return "\n".join(log.read_text() for log in self._logs if log.exists())

    def _stop(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(TIMEOUT)
        except subprocess.TimeoutExpired:
            self._process.kill()  # libvirtd dies with it
            self._process.wait()
        self._process.stdout.close()
        if self._process.returncode:
            raise LabError(f"fakesys.py failed:\n{self._output()}")


class Mdevs(fixtures.Fixture):
    """Creates and deletes mdevs through libvirt, as an administrator does.

    Each call returns after libvirt's event about it, so that other clients see the result.
    """

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._events: queue.Queue[tuple[str, int]] = queue.Queue()

    def _setUp(self) -> None:
        _run_event_loop()
        self._connection = libvirt.open(self._uri)
        self._callback = self._connection.nodeDeviceEventRegisterAny(
            None, libvirt.VIR_NODE_DEVICE_EVENT_ID_LIFECYCLE, self._note, None
        )
        self.addCleanup(self._close)

    def create(self, parent: str, type_id: str) -> str:
        """Create and start an mdev without defining it; return its name."""
        device = self._connection.nodeDeviceCreateXML(_xml(parent, type_id), 0)
        return self._announced(device, libvirt.VIR_NODE_DEVICE_EVENT_CREATED)

    def define(self, parent: str, type_id: str) -> str:
        """Define an mdev without starting it; return its name."""
        device = self._connection.nodeDeviceDefineXML(_xml(parent, type_id), 0)
        return self._announced(device, libvirt.VIR_NODE_DEVICE_EVENT_DEFINED)

    def start(self, name: str) -> None:
        """Start a defined mdev."""
        device = self._connection.nodeDeviceLookupByName(name)
        device.create(0)
        self._announced(device, libvirt.VIR_NODE_DEVICE_EVENT_CREATED)

    def destroy(self, name: str) -> None:
        """Stop an mdev; a defined one stays defined."""
        device = self._connection.nodeDeviceLookupByName(name)
        device.destroy()
        self._announced(device, libvirt.VIR_NODE_DEVICE_EVENT_DELETED)

    def undefine(self, name: str) -> None:
        """Delete the definition of an mdev."""
        device = self._connection.nodeDeviceLookupByName(name)
        device.undefine(0)
        self._announced(device, libvirt.VIR_NODE_DEVICE_EVENT_UNDEFINED)

    def clear(self) -> None:
        """Stop and undefine all mdevs."""
        kind = libvirt.VIR_CONNECT_LIST_NODE_DEVICES_CAP_MDEV
        for state, end in (
            (libvirt.VIR_CONNECT_LIST_NODE_DEVICES_ACTIVE, self.destroy),
            (libvirt.VIR_CONNECT_LIST_NODE_DEVICES_INACTIVE, self.undefine),
        ):
            for device in self._connection.listAllDevices(kind | state):
                end(device.name())

    def _announced(self, device: Any, event: int) -> str:
        name = str(device.name())
        while self._events.get(timeout=TIMEOUT) != (name, event):
            pass
        return name

    def _note(self, _connection: object, device: Any, event: int, *_: object) -> None:
        self._events.put((device.name(), event))

    def _close(self) -> None:
        with suppress(libvirt.libvirtError):  # the test may have killed libvirtd
            self._connection.nodeDeviceEventDeregisterAny(self._callback)
            self._connection.close()


@cache
def _run_event_loop() -> None:
    """Start libvirt's event loop in a thread, once for this process. It cannot be stopped."""
    libvirt.registerErrorHandler(lambda context, error: None, None)
    libvirt.virEventRegisterDefaultImpl()

    def loop() -> None:
        while True:
            libvirt.virEventRunDefaultImpl()

    threading.Thread(target=loop, name="libvirt-events", daemon=True).start()


def _xml(parent: str, type_id: str) -> str:
    return (
        f"<device><parent>{parent}</parent>"
        f"<capability type='mdev'><type id='{type_id}'/></capability></device>"
    )
