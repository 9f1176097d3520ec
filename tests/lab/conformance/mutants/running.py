"""Mutants that call the backend too often, share state, or leak (WHF-8xx)."""

import os
import subprocess
import threading
from collections.abc import Sequence

from tests.lab.conformance.honest import DevicesDriver, Facts, MachinesDriver
from tests.lab.conformance.mutants import mutant
from wharfinger.exceptions import BackendError
from wharfinger.objects import Service
from wharfinger.providers import ProviderTree


@mutant("WHF-801")
class AsksForEach(DevicesDriver):
    """Sends a request for each device that it describes."""

    def describe(self, tree: ProviderTree, name: str, facts: Facts) -> None:
        super().describe(tree, name, self.ask(f"show {name}"))


@mutant("WHF-801")
class RunsPrograms(DevicesDriver):
    """Runs a program for each device that it describes."""

    def describe(self, tree: ProviderTree, name: str, facts: Facts) -> None:
        subprocess.run(["true"], check=True)
        super().describe(tree, name, facts)


_SHARED: dict[str, Facts] = {}


@mutant("WHF-803")
class SharesItsSnapshot(DevicesDriver):
    """Keeps the devices of all its instances in the same dictionary."""

    def read_devices(self, names: Sequence[str]) -> dict[str, Facts]:
        found = super().read_devices(names)
        _SHARED.clear()
        _SHARED.update(found)
        return _SHARED


@mutant("WHF-804")
class NeverEndsItsThread(DevicesDriver):
    """Starts a thread when it is connected, and does not end it in cleanup_host."""

    def init_host(self, service: Service) -> None:
        super().init_host(service)
        watching = threading.Event()
        threading.Thread(target=watching.wait, args=(30,), name="watching", daemon=True).start()


@mutant("WHF-805")
class LeavesFilesOpen(DevicesDriver):
    """Opens a file in each listing, and closes them only in cleanup_host."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self.files: list[int] = []

    def refresh(self) -> None:
        super().refresh()
        self.files.append(os.open(os.devnull, os.O_RDONLY))

    def cleanup_host(self) -> None:
        super().cleanup_host()
        while self.files:
            os.close(self.files.pop())


@mutant("WHF-804")
class WatchesEachFailure(MachinesDriver):
    """Starts a thread that runs for minutes at each failure."""

    def failed(self, words: str, error: Exception) -> BackendError:
        waiting = threading.Event()
        threading.Thread(target=waiting.wait, args=(300,), name="waiting", daemon=True).start()
        return super().failed(words, error)


@mutant("WHF-805")
class LeavesAPipe(DevicesDriver):
    """Opens a pipe when it is connected, and never closes it."""

    def init_host(self, service: Service) -> None:
        super().init_host(service)
        os.pipe()
