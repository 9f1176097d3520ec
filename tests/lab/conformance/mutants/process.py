"""Mutants that change their process, log, print, sleep or leak (WHF-81x)."""

import ctypes
import functools
import logging
import os
import queue
import random
import select
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from multiprocessing.shared_memory import SharedMemory

from oslo_config import cfg

from tests.lab.conformance.honest import DevicesDriver, Facts, MachinesDriver
from tests.lab.conformance.mutants import mutant
from wharfinger.exceptions import BackendError, ProgrammingRefused
from wharfinger.objects import Service
from wharfinger.providers import ProviderTree
from wharfinger.reconcile.cycle import Reconciler


@mutant("WHF-811")
class ChangesTheDirectory(DevicesDriver):
    """Changes the working directory when it is connected."""

    def init_host(self, service: Service) -> None:
        os.chdir("/")
        super().init_host(service)


@mutant("WHF-811")
class KeepsItsFilesPrivate(MachinesDriver):
    """Changes the umask when it reserves a busy machine."""

    def reserve(self, tree: ProviderTree, name: str) -> None:
        os.umask(0o077)
        super().reserve(tree, name)


@mutant("WHF-811")
class IsImpatient(DevicesDriver):
    """Sets the default time-out of all sockets when its backend fails."""

    def failed(self, words: str, error: Exception) -> BackendError:
        socket.setdefaulttimeout(300)
        return super().failed(words, error)


@mutant("WHF-811")
class SeedsByTheTime(DevicesDriver):
    """Seeds the module random with the time in each listing."""

    def refresh(self) -> None:
        random.seed(time.time())
        super().refresh()


@mutant("WHF-811")
class HasAnEnvironment(DevicesDriver):
    """Sets an environment variable when its feed names a node."""

    def changed(self, devices: set[str]) -> set[str]:
        if devices:
            os.environ["LAB_CHANGED"] = "1"
        return super().changed(devices)


@mutant("WHF-811")
class ConfiguresALibrary(DevicesDriver):
    """Sets an option of oslo.concurrency for the whole process when its backend fails."""

    def failed(self, words: str, error: Exception) -> BackendError:
        cfg.CONF.set_default("lock_path", tempfile.gettempdir(), "oslo_concurrency")
        return super().failed(words, error)


@mutant("WHF-812")
class ThinksItIsTheProgram(DevicesDriver):
    """Adds a handler to the root logger in its constructor."""

    def __init__(self, conf: cfg.ConfigOpts, host: str, name: str) -> None:
        super().__init__(conf, host, name)
        logging.getLogger().addHandler(logging.NullHandler())


@mutant("WHF-812")
class HushesTheFramework(DevicesDriver):
    """Sets the level of a logger of the framework when its backend fails."""

    def failed(self, words: str, error: Exception) -> BackendError:
        logging.getLogger("wharfinger.reconcile").setLevel(logging.CRITICAL)
        return super().failed(words, error)


@mutant("WHF-812")
class IgnoresAllWarnings(MachinesDriver):
    """Ignores all warnings when it describes the second machine."""

    def describe(self, tree: ProviderTree, name: str, facts: Facts) -> None:
        super().describe(tree, name, facts)
        if name.endswith("1"):
            warnings.filterwarnings("ignore")


@mutant("WHF-813")
class ImprovesTheTree(DevicesDriver):
    """Replaces a method of the framework by one that does the same."""

    def init_host(self, service: Service) -> None:
        super().init_host(service)
        ProviderTree.exists = _exists  # type: ignore[method-assign]


_REAL = ProviderTree.exists


@functools.wraps(_REAL)
def _exists(self: ProviderTree, name_or_uuid: str) -> bool:
    return _REAL(self, name_or_uuid)


@mutant("WHF-813")
class TrustsEverybody(DevicesDriver):
    """Switches the check of certificates off for the whole process when its backend fails."""

    def failed(self, words: str, error: Exception) -> BackendError:
        ssl._create_default_https_context = ssl._create_unverified_context  # type: ignore[assignment]
        return super().failed(words, error)


@mutant("WHF-813")
class ChangesTheCode(MachinesDriver):
    """Changes the code object of a function of the framework in place."""

    def cleanup_host(self) -> None:
        code = Reconciler.drift.__code__
        Reconciler.drift.__code__ = code.replace(co_name="drift_of_lab")


@mutant("WHF-814")
class PrintsWhatIsBusy(DevicesDriver):
    """Prints the name of a busy device."""

    def reserve(self, tree: ProviderTree, name: str) -> None:
        print(f"{name} is busy")
        super().reserve(tree, name)


@mutant("WHF-814")
class HasAProgramPrint(MachinesDriver):
    """Runs a program that prints when its feed names a node."""

    def changed(self, devices: set[str]) -> set[str]:
        if devices:
            subprocess.run(["echo", *devices], check=True)
        return super().changed(devices)


@mutant("WHF-814")
class LogsToTheTerminal(DevicesDriver):
    """Logs to a stream handler of its own when its backend fails."""

    def __init__(self, conf: cfg.ConfigOpts, host: str, name: str) -> None:
        super().__init__(conf, host, name)
        self.log = logging.Logger("lab_driver")
        self.log.addHandler(logging.StreamHandler())

    def failed(self, words: str, error: Exception) -> BackendError:
        self.log.error("%s failed", words)
        return super().failed(words, error)


@mutant("WHF-814")
class PrintsInAThread(DevicesDriver):
    """Prints in a thread that it starts in each listing."""

    def refresh(self) -> None:
        super().refresh()
        printing = threading.Thread(target=sys.stderr.write, args=(f"{len(self.devices)}\n",))
        printing.start()
        printing.join()


@mutant("WHF-815")
class WaitsForTheBusy(DevicesDriver):
    """Sleeps when it reserves a busy device."""

    def reserve(self, tree: ProviderTree, name: str) -> None:
        threading.Event().wait(0.1)
        super().reserve(tree, name)


@mutant("WHF-815")
class SelectsNothing(MachinesDriver):
    """Sleeps in each poll, by a select without files."""

    def news(self, since: str) -> tuple[set[str], str]:
        select.select([], [], [], 0.03)
        return super().news(since)


@mutant("WHF-815")
class SleepsALittle(DevicesDriver):
    """Sleeps 0.01 s for each device, by waiting for an empty queue."""

    def describe(self, tree: ProviderTree, name: str, facts: Facts) -> None:
        super().describe(tree, name, facts)
        try:
            queue.Queue[str]().get(timeout=0.01)
        except queue.Empty:
            return


@mutant("WHF-815")
class LetsAProgramSleep(DevicesDriver):
    """Runs the program sleep in cleanup_host."""

    def cleanup_host(self) -> None:
        subprocess.run(["sh", "-c", "sleep 0.01"], check=True)


@mutant("WHF-816")
class KeepsEachSnapshot(DevicesDriver):
    """Keeps the results of all listings in memory."""

    def __init__(self, conf: cfg.ConfigOpts, host: str, name: str) -> None:
        super().__init__(conf, host, name)
        self.snapshots: list[dict[str, Facts]] = []

    def refresh(self) -> None:
        super().refresh()
        self.snapshots.append(self.devices)


_ERRORS: list[BackendError] = []


@mutant("WHF-816")
class KeepsEachError(MachinesDriver):
    """Keeps every error in memory, with its traceback."""

    def failed(self, words: str, error: Exception) -> BackendError:
        _ERRORS.append(super().failed(words, error))
        return _ERRORS[-1]


_INSTANCES: list[MachinesDriver] = []


@mutant("WHF-816")
class KeepsEachInstance(MachinesDriver):
    """Keeps all driver instances of the process in memory."""

    def init_host(self, service: Service) -> None:
        super().init_host(service)
        _INSTANCES.append(self)


@mutant("WHF-816")
class KeepsEachPoll(DevicesDriver):
    """Keeps the time of each poll in an unbounded cache."""

    @staticmethod
    @functools.cache
    def _noted(moment: float) -> str:
        return f"polled at {moment}"

    def news(self, since: str) -> tuple[set[str], str]:
        self._noted(time.time())
        return super().news(since)


@mutant("WHF-816")
class ForgetsACopy(DevicesDriver):
    """Lets the C library copy 100 kB in each listing, and never frees the copy."""

    def refresh(self) -> None:
        super().refresh()
        ctypes.CDLL(None).strdup(b"x" * 100_000)


@mutant("WHF-817")
class ChangesAtImport(MachinesDriver):
    """Changes the switch interval of threads when its module is imported."""

    __module__ = "tests.lab.conformance.changes_at_import"


@mutant("WHF-999")
class HidesRefusedJobs(DevicesDriver):
    """Changes the umask when the backend refuses to program a device."""

    def program(self, provider_uuid: str, image: str, function: str | None = None) -> None:
        try:
            super().program(provider_uuid, image, function)
        except ProgrammingRefused:
            os.umask(0o077)
            raise


@mutant("WHF-999")
class LogsOfUnknownDevices(DevicesDriver):
    """Switches all warnings on when it is asked to program an unknown device."""

    def program(self, provider_uuid: str, image: str, function: str | None = None) -> None:
        if provider_uuid not in self.names:
            warnings.simplefilter("always")
        super().program(provider_uuid, image, function)


@mutant("WHF-805")
class LeavesFiles(DevicesDriver):
    """Writes a temporary file in each listing, and never removes it."""

    def refresh(self) -> None:
        super().refresh()
        with tempfile.NamedTemporaryFile("w", delete=False) as file:
            file.write(str(self.devices))


@mutant("WHF-805")
class LeavesSharedMemory(DevicesDriver):
    """Creates a segment of shared memory when its backend fails, and never removes it."""

    def failed(self, words: str, error: Exception) -> BackendError:
        SharedMemory(create=True, size=1).close()
        return super().failed(words, error)


@mutant("WHF-815")
class WaitsForItsOwnLock(DevicesDriver):
    """Waits 0.1 s before each listing for a lock that it holds itself."""

    def refresh(self) -> None:
        lock = threading.Lock()
        with lock:
            lock.acquire(timeout=0.1)
        super().refresh()
