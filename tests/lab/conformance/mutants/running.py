"""Mutants of what a driver costs, and leaves behind (WHF-8..)."""

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
    """It asks for each device when it is described."""

    def describe(self, tree: ProviderTree, name: str, facts: Facts) -> None:
        super().describe(tree, name, self.ask(f"show {name}"))


@mutant("WHF-801")
class RunsPrograms(DevicesDriver):
    """It runs a program for each device that is described."""

    def describe(self, tree: ProviderTree, name: str, facts: Facts) -> None:
        subprocess.run(["true"], check=True)
        super().describe(tree, name, facts)


_SHARED: dict[str, Facts] = {}


@mutant("WHF-803")
class SharesItsSnapshot(DevicesDriver):
    """All its instances write to one dictionary."""

    def read_devices(self, names: Sequence[str]) -> dict[str, Facts]:
        found = super().read_devices(names)
        _SHARED.clear()
        _SHARED.update(found)
        return _SHARED


@mutant("WHF-804")
class NeverEndsItsThread(DevicesDriver):
    """It watches its backend in a thread, which goes on."""

    def init_host(self, service: Service) -> None:
        super().init_host(service)
        watching = threading.Event()
        threading.Thread(target=watching.wait, args=(30,), name="watching", daemon=True).start()


@mutant("WHF-805")
class LeavesFilesOpen(DevicesDriver):
    """It opens a file for each refresh."""

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
    """It begins a thread for each failure, which looks for a long time whether that is over."""

    def failed(self, words: str, error: Exception) -> BackendError:
        waiting = threading.Event()
        threading.Thread(target=waiting.wait, args=(300,), name="waiting", daemon=True).start()
        return super().failed(words, error)


@mutant("WHF-805")
class LeavesAPipe(DevicesDriver):
    """It makes a pipe when it is connected, and never closes it."""

    def init_host(self, service: Service) -> None:
        super().init_host(service)
        os.pipe()
