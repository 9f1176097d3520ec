"""Drivers and harnesses that authors might have, to be run by the kit."""

import os
import subprocess
import sys
import threading
from typing import ClassVar

from oslo_config import cfg

from tests.lab.conformance.harnesses import WorldHarness
from wharfinger.conformance.harness import Harness
from wharfinger.driver import Capabilities, ComputeDriver, unsupported
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


class SilentDriver(ShelfDriver):
    """Never says what its node has."""

    def get_inventory(self, nodename: str) -> dict[str, Inventory]:
        threading.Event().wait()
        raise AssertionError


class UnbornDriver(ShelfDriver):
    """Waits while it is made."""

    def __init__(self, conf: cfg.ConfigOpts, host: str, name: str) -> None:
        super().__init__(conf, host, name)
        threading.Event().wait()


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
    """Has a process, whose id is told, and waits until somebody ends the run."""

    def start(self) -> None:
        super().start()
        self._process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
        os.write(1, f"\nit has started {self._process.pid}\n".encode())
        threading.Event().wait()

    def stop(self) -> None:
        self._process.kill()
        self._process.communicate()
        super().stop()
