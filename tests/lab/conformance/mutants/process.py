"""Mutants of what a driver does to its process (WHF-81.)."""

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
import threading
import time
import warnings

from oslo_config import cfg

from tests.lab.conformance.honest import DevicesDriver, Facts, MachinesDriver
from tests.lab.conformance.mutants import mutant
from wharfinger.exceptions import BackendError, ProgrammingRefused
from wharfinger.objects import Service
from wharfinger.providers import ProviderTree
from wharfinger.reconcile.cycle import Reconciler


@mutant("WHF-811")
class ChangesTheDirectory(DevicesDriver):
    """It changes to a directory of its own when it is connected."""

    def init_host(self, service: Service) -> None:
        os.chdir("/")
        super().init_host(service)


@mutant("WHF-811")
class KeepsItsFilesPrivate(MachinesDriver):
    """It changes the umask, while a machine is busy alone."""

    def reserve(self, tree: ProviderTree, name: str) -> None:
        os.umask(0o077)
        super().reserve(tree, name)


@mutant("WHF-811")
class IsImpatient(DevicesDriver):
    """It gives all sockets a time-out, once its backend has failed."""

    def failed(self, words: str, error: Exception) -> BackendError:
        socket.setdefaulttimeout(300)
        return super().failed(words, error)


@mutant("WHF-811")
class SeedsByTheTime(DevicesDriver):
    """It seeds the numbers of all others, each time with another seed."""

    def refresh(self) -> None:
        random.seed(time.time())
        super().refresh()


@mutant("WHF-811")
class HasAnEnvironment(DevicesDriver):
    """It sets a variable when its feed names something."""

    def changed(self, devices: set[str]) -> set[str]:
        if devices:
            os.environ["LAB_CHANGED"] = "1"
        return super().changed(devices)


@mutant("WHF-812")
class ThinksItIsTheProgram(DevicesDriver):
    """It has logs written to a file of its own when it is made."""

    def __init__(self, conf: cfg.ConfigOpts, host: str, name: str) -> None:
        super().__init__(conf, host, name)
        logging.getLogger().addHandler(logging.NullHandler())


@mutant("WHF-812")
class HushesTheFramework(DevicesDriver):
    """It wants no logs of the cycles while its backend fails."""

    def failed(self, words: str, error: Exception) -> BackendError:
        logging.getLogger("wharfinger.reconcile").setLevel(logging.CRITICAL)
        return super().failed(words, error)


@mutant("WHF-812")
class IgnoresAllWarnings(MachinesDriver):
    """It ignores the warnings of everything, when the second machine is described."""

    def describe(self, tree: ProviderTree, name: str, facts: Facts) -> None:
        super().describe(tree, name, facts)
        if name.endswith("1"):
            warnings.filterwarnings("ignore")


@mutant("WHF-813")
class ImprovesTheTree(DevicesDriver):
    """It replaces a method of the framework with one that does the same."""

    def init_host(self, service: Service) -> None:
        super().init_host(service)
        ProviderTree.exists = _exists  # type: ignore[method-assign]


_REAL = ProviderTree.exists


@functools.wraps(_REAL)
def _exists(self: ProviderTree, name_or_uuid: str) -> bool:
    return _REAL(self, name_or_uuid)


@mutant("WHF-813")
class TrustsEverybody(DevicesDriver):
    """It switches the check of certificates off for the whole process after a failure."""

    def failed(self, words: str, error: Exception) -> BackendError:
        ssl._create_default_https_context = ssl._create_unverified_context  # type: ignore[assignment]
        return super().failed(words, error)


@mutant("WHF-813")
class ChangesTheCode(MachinesDriver):
    """It changes what a function of the framework does, and not which one there is."""

    def cleanup_host(self) -> None:
        code = Reconciler.drift.__code__
        Reconciler.drift.__code__ = code.replace(co_name="drift_of_lab")


@mutant("WHF-814")
class PrintsWhatIsBusy(DevicesDriver):
    """It prints which device is busy."""

    def reserve(self, tree: ProviderTree, name: str) -> None:
        print(f"{name} is busy")
        super().reserve(tree, name)


@mutant("WHF-814")
class HasAProgramPrint(MachinesDriver):
    """It runs a program, which prints, when its feed names something."""

    def changed(self, devices: set[str]) -> set[str]:
        if devices:
            subprocess.run(["echo", *devices], check=True)
        return super().changed(devices)


@mutant("WHF-814")
class LogsToTheTerminal(DevicesDriver):
    """Its logs go to a handler of its own when its backend fails."""

    def __init__(self, conf: cfg.ConfigOpts, host: str, name: str) -> None:
        super().__init__(conf, host, name)
        self.log = logging.Logger("lab_driver")
        self.log.addHandler(logging.StreamHandler())

    def failed(self, words: str, error: Exception) -> BackendError:
        self.log.error("%s failed", words)
        return super().failed(words, error)


@mutant("WHF-814")
class PrintsInAThread(DevicesDriver):
    """It prints in a thread, and only how many devices there are."""

    def refresh(self) -> None:
        super().refresh()
        printing = threading.Thread(target=sys.stderr.write, args=(f"{len(self.devices)}\n",))
        printing.start()
        printing.join()


@mutant("WHF-815")
class WaitsForTheBusy(DevicesDriver):
    """It gives a busy device a moment to become free."""

    def reserve(self, tree: ProviderTree, name: str) -> None:
        threading.Event().wait(0.1)
        super().reserve(tree, name)


@mutant("WHF-815")
class SelectsNothing(MachinesDriver):
    """It sleeps by a select without files."""

    def news(self, since: str) -> tuple[set[str], str]:
        select.select([], [], [], 0.03)
        return super().news(since)


@mutant("WHF-815")
class SleepsALittle(DevicesDriver):
    """It waits a hundredth of a second for each device, in an empty queue."""

    def describe(self, tree: ProviderTree, name: str, facts: Facts) -> None:
        super().describe(tree, name, facts)
        try:
            queue.Queue[str]().get(timeout=0.01)
        except queue.Empty:
            return


@mutant("WHF-815")
class LetsAProgramSleep(DevicesDriver):
    """It has a shell wait for it when it ends."""

    def cleanup_host(self) -> None:
        subprocess.run(["sh", "-c", "sleep 0.01"], check=True)


@mutant("WHF-816")
class KeepsEachSnapshot(DevicesDriver):
    """It keeps all that it has ever read."""

    def __init__(self, conf: cfg.ConfigOpts, host: str, name: str) -> None:
        super().__init__(conf, host, name)
        self.snapshots: list[dict[str, Facts]] = []

    def refresh(self) -> None:
        super().refresh()
        self.snapshots.append(self.devices)


_ERRORS: list[BackendError] = []


@mutant("WHF-816")
class KeepsEachError(MachinesDriver):
    """It keeps every error, with all that was on the stack."""

    def failed(self, words: str, error: Exception) -> BackendError:
        _ERRORS.append(super().failed(words, error))
        return _ERRORS[-1]


_INSTANCES: list[MachinesDriver] = []


@mutant("WHF-816")
class KeepsEachInstance(MachinesDriver):
    """It knows all instances that there ever were."""

    def init_host(self, service: Service) -> None:
        super().init_host(service)
        _INSTANCES.append(self)


@mutant("WHF-816")
class KeepsEachPoll(DevicesDriver):
    """It keeps when it was polled in a cache without a bound."""

    @staticmethod
    @functools.cache
    def _noted(moment: float) -> str:
        return f"polled at {moment}"

    def news(self, since: str) -> tuple[set[str], str]:
        self._noted(time.time())
        return super().news(since)


@mutant("WHF-817")
class ChangesAtImport(MachinesDriver):
    """Its module changes how often threads take turns."""

    __module__ = "tests.lab.conformance.changes_at_import"


@mutant("WHF-999")
class HidesRefusedJobs(DevicesDriver):
    """It changes the umask when the backend refuses a job."""

    def program(self, provider_uuid: str, image: str, function: str | None = None) -> None:
        try:
            super().program(provider_uuid, image, function)
        except ProgrammingRefused:
            os.umask(0o077)
            raise


@mutant("WHF-999")
class LogsOfUnknownDevices(DevicesDriver):
    """It turns warnings on for all code when it is asked to program an unknown device."""

    def program(self, provider_uuid: str, image: str, function: str | None = None) -> None:
        if provider_uuid not in self.names:
            warnings.simplefilter("always")
        super().program(provider_uuid, image, function)
