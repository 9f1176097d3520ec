"""Drivers that do what few do, and that is right, with the rule that could take it for wrong."""

import fcntl
import json
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from oslo_config import cfg

from tests.lab.conformance.honest import DevicesDriver, Facts, LabDriver, MachinesDriver
from wharfinger.driver import Allocations
from wharfinger.exceptions import BackendError
from wharfinger.objects import Migration, Service
from wharfinger.providers import ProviderTree


class EndsItsThreadSoon(DevicesDriver):
    """It has a thread that comes to its end a moment after it has been told to."""

    def init_host(self, service: Service) -> None:
        super().init_host(service)
        self.over = threading.Event()
        threading.Thread(target=self.watch, name="watching", daemon=True).start()

    def watch(self) -> None:
        self.over.wait()
        threading.Event().wait(0.2)

    def cleanup_host(self) -> None:
        self.over.set()


class LooksWhoLeaves(MachinesDriver):
    """It looks which of the moves leave a node, and what they take."""

    def update_provider_tree(
        self,
        provider_tree: ProviderTree,
        nodename: str,
        allocations: Allocations | None = None,
        migrations: Sequence[Migration] | None = None,
    ) -> None:
        ends = [(one.source_compute, one.source_node) for one in migrations or ()]
        assert all(end == (self.host, nodename) for end in ends)
        self.leaving = sum(one.old_flavor.vcpus for one in migrations or ())
        super().update_provider_tree(provider_tree, nodename, allocations, migrations)


class AsksAgain(DevicesDriver):
    """It asks up to three times before it gives up."""

    def asked(self, words: str) -> Any:
        for _ in range(2):
            with suppress(BackendError):
                return super().asked(words)
        return super().asked(words)


class FreesAtTheSecondLook(MachinesDriver):
    """A machine is free when it was not busy at two looks, one after the other."""

    def read_devices(self, names: Sequence[str]) -> dict[str, Facts]:
        before = {name for name, facts in self.devices.items() if facts["was_busy"]}
        devices = super().read_devices(names)
        return {
            name: {**facts, "was_busy": facts["busy"], "busy": facts["busy"] or name in before}
            for name, facts in devices.items()
        }


class AsksInThreads(DevicesDriver):
    """It asks for several devices at once: the calls are in another order each time."""

    def read_devices(self, names: Sequence[str]) -> dict[str, Facts]:
        with ThreadPoolExecutor(4) as pool:
            found = pool.map(lambda name: self.ask(f"show {name}"), names)
            return dict(zip(names, found, strict=True))


class KeepsAFileAndALock(MachinesDriver):
    """Its file is always whole, and its lock ends with its process."""

    reachable = True

    def __init__(self, conf: cfg.ConfigOpts, host: str, name: str) -> None:
        super().__init__(conf, host, name)
        self.directory = Path(conf.state_path)

    def read(self) -> None:
        with (self.directory / "machines.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            super().read()
            new = self.directory / "machines.json.new"
            new.write_text(json.dumps(self.devices))
            new.replace(self.directory / "machines.json")

    def init_host(self, service: Service) -> None:
        super().init_host(service)
        file = self.directory / "machines.json"
        self.devices = json.loads(file.read_text()) if file.exists() else {}


class HasASlowBackend(DevicesDriver):
    """Each of its calls takes a while."""

    def sent(self, words: str) -> str:
        threading.Event().wait(0.05)
        return super().sent(words)


UNUSUAL: Sequence[tuple[str, type[LabDriver]]] = [
    ("WHF-211", LooksWhoLeaves),
    ("WHF-721", AsksAgain),
    ("WHF-721", AsksInThreads),
    ("WHF-721", FreesAtTheSecondLook),
    ("WHF-721", HasASlowBackend),
    ("WHF-722", AsksAgain),
    ("WHF-722", AsksInThreads),
    ("WHF-722", FreesAtTheSecondLook),
    ("WHF-723", KeepsAFileAndALock),
    ("WHF-804", EndsItsThreadSoon),
]
