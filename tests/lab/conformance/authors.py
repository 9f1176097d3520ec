"""Drivers and harnesses that authors might have, to be run by the kit."""

import atexit
import ctypes
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import ClassVar

from oslo_config import cfg

from tests.lab.conformance.harnesses import WorldHarness
from tests.lab.conformance.honest import Facts, MachinesDriver
from wharfinger.conformance.harness import Harness
from wharfinger.driver import Capabilities, ComputeDriver, unsupported
from wharfinger.objects import Service
from wharfinger.providers import Inventory

_NONE = unsupported("shelves have no such thing")


class ShelfDriver(ComputeDriver):
    """A node, without a backend: it keeps all rules of the core."""

    default_owner: ClassVar[str] = "CUSTOM_OWNER_SHELF"
    capabilities: ClassVar[Capabilities] = Capabilities(
        nested_providers=_NONE,
        reshape=_NONE,
        change_feed=_NONE,
        programming=_NONE,
        cleans_after_release=_NONE,
    )

    def __init__(self, conf: cfg.ConfigOpts, host: str, name: str) -> None:
        super().__init__(conf, host, name)
        conf.register_opts([cfg.IntOpt("boxes", default=3, min=1)], name)
        self.boxes: int = conf[name].boxes

    def get_available_nodes(self, refresh: bool = False) -> list[str]:
        return ["shelf"]

    def get_inventory(self, nodename: str) -> dict[str, Inventory]:
        return {"CUSTOM_BOX": Inventory(total=self.boxes)}


class TaggedDriver(ShelfDriver):
    """Tags its node itself, so that WHF-204 is not kept."""

    def get_traits(self, nodename: str) -> set[str]:
        return {"OWNER_NOVA"}


class GenerousDriver(ShelfDriver):
    """Gives an instance more than there is, so that WHF-207 is not kept: a SHOULD."""

    def get_inventory(self, nodename: str) -> dict[str, Inventory]:
        return {"CUSTOM_BOX": Inventory(total=3, allocation_ratio=2.0, max_unit=6)}


class SilentDriver(MachinesDriver):
    """Never says what a node has."""

    def inventory(self, name: str, facts: Facts) -> dict[str, Inventory]:
        threading.Event().wait()
        return super().inventory(name, facts)


class UnbornDriver(ShelfDriver):
    """Waits while it is made."""

    def __init__(self, conf: cfg.ConfigOpts, host: str, name: str) -> None:
        super().__init__(conf, host, name)
        threading.Event().wait()


class LeavingDriver(MachinesDriver):
    """Ends the process as if all were well."""

    def inventory(self, name: str, facts: Facts) -> dict[str, Inventory]:
        os._exit(0)


class EndingDriver(MachinesDriver):
    """Sends its process a signal."""

    def inventory(self, name: str, facts: Facts) -> dict[str, Inventory]:
        signal.raise_signal(signal.SIGTERM)
        return super().inventory(name, facts)


class CrashingDriver(MachinesDriver):
    """Reads from where there is no memory."""

    def inventory(self, name: str, facts: Facts) -> dict[str, Inventory]:
        ctypes.string_at(0)
        return super().inventory(name, facts)


class ClosingDriver(MachinesDriver):
    """Closes every file of the process."""

    def inventory(self, name: str, facts: Facts) -> dict[str, Inventory]:
        os.closerange(0, 1000)
        return super().inventory(name, facts)


class StuckDriver(MachinesDriver):
    """Waits in C, and lets no other thread of Python run."""

    def inventory(self, name: str, facts: Facts) -> dict[str, Inventory]:
        ctypes.PyDLL(None).pause()
        return super().inventory(name, facts)


class LateDriver(MachinesDriver):
    """Tags its node itself, and makes the process end as if all were well."""

    def init_host(self, service: Service) -> None:
        super().init_host(service)
        atexit.register(os._exit, 0)

    def traits(self, name: str, facts: Facts) -> set[str]:
        return {"OWNER_NOVA"}


class InterruptingDriver(MachinesDriver):
    """Sends its process what Ctrl+C sends."""

    def inventory(self, name: str, facts: Facts) -> dict[str, Inventory]:
        signal.raise_signal(signal.SIGINT)
        return super().inventory(name, facts)


class WaitingHarness(WorldHarness):
    """Never gets to the beginning again."""

    def reset(self) -> None:
        threading.Event().wait()


class DownHarness(WorldHarness):
    """Does not start."""

    def start(self) -> None:
        raise OSError("no route to\nthe laboratory")


class StayingHarness(WorldHarness):
    """Does not stop."""

    def stop(self) -> None:
        raise OSError("it is still there")


class AbstractHarness(Harness):
    """Has been begun, and no more."""


class HeldHarness(WorldHarness):
    """Starts a process, writes its id to a file, and waits until the run is ended."""

    def start(self) -> None:
        super().start()
        self._process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
        Path("started").write_text(str(self._process.pid))
        threading.Event().wait()

    def stop(self) -> None:
        self._process.kill()
        self._process.communicate()
        super().stop()
