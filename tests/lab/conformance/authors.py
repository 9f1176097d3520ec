"""Drivers and harnesses of authors, for tests of runs of the kit. Most of them have a defect."""

import atexit
import ctypes
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

from oslo_config import cfg

from tests.lab.conformance.harnesses import WorldHarness
from tests.lab.conformance.honest import Facts, MachinesDriver
from wharfinger.conformance import second_process
from wharfinger.conformance.harness import Harness
from wharfinger.driver import Capabilities, ComputeDriver, unsupported
from wharfinger.objects import Service
from wharfinger.providers import Inventory

_NONE = unsupported("shelves have no such thing")


class ShelfDriver(ComputeDriver):
    """Publishes one node, without a backend. Follows all core rules."""

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
    """Adds the owner trait itself, which breaks WHF-204."""

    def get_traits(self, nodename: str) -> set[str]:
        return {"OWNER_NOVA"}


class GenerousDriver(ShelfDriver):
    """Publishes a max_unit above the total, which breaks WHF-207, a SHOULD."""

    def get_inventory(self, nodename: str) -> dict[str, Inventory]:
        return {"CUSTOM_BOX": Inventory(total=3, allocation_ratio=2.0, max_unit=6)}


class SilentDriver(MachinesDriver):
    """Hangs while it describes a node."""

    def inventory(self, name: str, facts: Facts) -> dict[str, Inventory]:
        threading.Event().wait()
        return super().inventory(name, facts)


class UnbornDriver(ShelfDriver):
    """Hangs in its constructor."""

    def __init__(self, conf: cfg.ConfigOpts, host: str, name: str) -> None:
        super().__init__(conf, host, name)
        threading.Event().wait()


class _EndlessNames(list[str]):
    """Hangs when the caller reads the names: a thread keeps the interpreter's lock."""

    def __iter__(self) -> Iterator[str]:
        holding = threading.Thread(target=ctypes.PyDLL(None).pause, daemon=True)
        holding.start()
        holding.join()
        return super().__iter__()


class EndlessDriver(ShelfDriver):
    """Returns a list of nodes that hangs when the framework reads it."""

    def get_available_nodes(self, refresh: bool = False) -> list[str]:
        return _EndlessNames(["shelf"])


class HidingDriver(ShelfDriver):
    """Hangs in a second process."""

    def get_available_nodes(self, refresh: bool = False) -> list[str]:
        if sys.modules["__main__"].__file__ == second_process.__file__:
            threading.Event().wait()
        return super().get_available_nodes(refresh)


class _PartingNames(list[str]):
    """Ends the process with the exit code 0 when the caller reads the names."""

    def __iter__(self) -> Iterator[str]:
        os._exit(0)


class PartingDriver(ShelfDriver):
    """Returns a list of nodes that ends the process when the framework reads it."""

    def get_available_nodes(self, refresh: bool = False) -> list[str]:
        return _PartingNames(["shelf"])


def __getattr__(name: str) -> object:
    """Hang while the loader imports the driver "asleep"."""
    if name == "asleep":
        threading.Event().wait()
    raise AttributeError(name)


class LeavingDriver(MachinesDriver):
    """Ends the process with the exit code 0 while it describes a node."""

    def inventory(self, name: str, facts: Facts) -> dict[str, Inventory]:
        os._exit(0)


class EndingDriver(MachinesDriver):
    """Sends SIGTERM to its process while it describes a node."""

    def inventory(self, name: str, facts: Facts) -> dict[str, Inventory]:
        signal.raise_signal(signal.SIGTERM)
        return super().inventory(name, facts)


class CrashingDriver(MachinesDriver):
    """Reads from an invalid memory address while it describes a node."""

    def inventory(self, name: str, facts: Facts) -> dict[str, Inventory]:
        ctypes.string_at(0)
        return super().inventory(name, facts)


class ClosingDriver(MachinesDriver):
    """Closes every file of the process while it describes a node."""

    def inventory(self, name: str, facts: Facts) -> dict[str, Inventory]:
        os.closerange(0, 1000)
        return super().inventory(name, facts)


class StuckDriver(MachinesDriver):
    """Hangs in C while it describes a node, and lets no other Python thread run."""

    def inventory(self, name: str, facts: Facts) -> dict[str, Inventory]:
        ctypes.PyDLL(None).pause()
        return super().inventory(name, facts)


class LateDriver(MachinesDriver):
    """Adds the owner trait itself, and ends the process with the exit code 0 in an exit handler."""

    def init_host(self, service: Service) -> None:
        super().init_host(service)
        atexit.register(os._exit, 0)

    def traits(self, name: str, facts: Facts) -> set[str]:
        return {"OWNER_NOVA"}


class InterruptingDriver(MachinesDriver):
    """Sends SIGINT to its process, as Ctrl+C does, while it describes a node."""

    def inventory(self, name: str, facts: Facts) -> dict[str, Inventory]:
        signal.raise_signal(signal.SIGINT)
        return super().inventory(name, facts)


class WaitingHarness(WorldHarness):
    """Hangs in ``reset``."""

    def reset(self) -> None:
        threading.Event().wait()


class DownHarness(WorldHarness):
    """Raises in ``start``."""

    def start(self) -> None:
        raise OSError("no route to\nthe laboratory")


class StayingHarness(WorldHarness):
    """Raises in ``stop``."""

    def stop(self) -> None:
        raise OSError("it is still there")


class AbstractHarness(Harness):
    """Lacks methods that a harness must have."""


class HeldHarness(WorldHarness):
    """Starts a process, writes the process id to a file, and waits until the run ends."""

    def start(self) -> None:
        super().start()
        self._process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
        Path("started").write_text(str(self._process.pid))
        threading.Event().wait()

    def stop(self) -> None:
        self._process.kill()
        self._process.communicate()
        super().stop()
