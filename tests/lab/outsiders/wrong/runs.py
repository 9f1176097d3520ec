"""Drivers that end, stop or silence the process that examines them.

The rules that are named are those in which that happens.
"""

import asyncio
import atexit
import ctypes
import os
import signal
import sys
import threading
import time
from datetime import datetime
from typing import Any

from oslo_config import cfg

from tests.lab.outsiders.host import HostDriver
from tests.lab.outsiders.rack import Facts, RackDriver
from tests.lab.outsiders.wrong import wrong
from wharfinger.exceptions import BackendError
from wharfinger.objects import Service
from wharfinger.providers import ProviderTree


@wrong("runs", "WHF-501", apart=True)
class ExitsWhenBusy(RackDriver):
    """It ends the process, with success, where a card is busy."""

    def is_busy(self, card: Facts) -> bool:
        if super().is_busy(card):
            os._exit(0)
        return False


@wrong("runs", "WHF-201", apart=True)
class ExitsInTheEnd(RackDriver):
    """It ends the process, with success, in cleanup_host."""

    def cleanup_host(self) -> None:
        os._exit(0)


@wrong("runs", "WHF-302", "WHF-303", "WHF-301", "WHF-305", apart=True)
class ExitsAtExit(RackDriver):
    """It has the process end with success, whatever comes."""

    def init_host(self, service: Service) -> None:
        atexit.register(os._exit, 0)


@wrong("runs", "WHF-301", "WHF-305", apart=True)
class ExitsInAThread(HostDriver):
    """A thread of it ends the process some seconds later."""

    def init_host(self, service: Service) -> None:
        thread = threading.Timer(4, os._exit, (0,))
        thread.daemon = True
        thread.start()


@wrong("runs", "WHF-701", apart=True)
class RaisesSystemExit(HostDriver):
    """It gives up by sys.exit(0) where its file cannot be read."""

    def load(self) -> dict[str, Any]:
        try:
            return super().load()
        except BackendError:
            sys.exit(0)


@wrong("runs", "WHF-701", apart=True)
class RaisesCancelled(RackDriver):
    """A request that fails raises what is no Exception."""

    def failed(self, operation: str, error: Exception) -> Exception:
        raise asyncio.CancelledError(operation)


@wrong("runs", "WHF-931", apart=True)
class KillsItself(RackDriver):
    """It kills its process when a card is asked whether it is clean."""

    def is_clean(self, provider_uuid: str, since: datetime) -> bool:
        signal.raise_signal(signal.SIGKILL)
        return False


@wrong("runs", "WHF-501", apart=True)
class InterruptsItself(HostDriver):
    """It sends SIGINT to its process when a device is busy."""

    def reserve(self, tree: ProviderTree, node: str, address: str, device: dict[str, Any]) -> None:
        signal.raise_signal(signal.SIGINT)


@wrong("runs", "WHF-701", apart=True)
class TerminatesItself(HostDriver):
    """It sends SIGTERM to its process where its file cannot be read."""

    def load(self) -> dict[str, Any]:
        try:
            return super().load()
        except BackendError:
            signal.raise_signal(signal.SIGTERM)
            raise


@wrong("runs", "WHF-921", apart=True)
class Crashes(RackDriver):
    """It reads where there is no memory, when a card is programmed."""

    def load_image(self, card: str, image: str) -> None:
        ctypes.string_at(0)


@wrong("runs", "WHF-802", apart=True)
class Aborts(HostDriver):
    """It aborts when the host has more than ten devices."""

    def refresh(self) -> None:
        super().refresh()
        if len(self.facts["devices"]) > 10:
            os.abort()


@wrong("runs", "WHF-201", "WHF-811", apart=True)
class ClosesStdout(RackDriver):
    """It closes the standard output, as daemons do."""

    def init_host(self, service: Service) -> None:
        os.close(1)


@wrong("runs", "WHF-201", apart=True)
class ClosesEverything(HostDriver):
    """It closes all descriptors that it does not know, as daemons do."""

    def init_host(self, service: Service) -> None:
        os.closerange(0, 256)


@wrong("runs", "WHF-201", "WHF-811", apart=True)
class RedirectsStdout(RackDriver):
    """It has what the process writes go nowhere."""

    def init_host(self, service: Service) -> None:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for one in (1, 2):
            os.dup2(nowhere, one)
        os.close(nowhere)


@wrong("runs", "WHF-811", "WHF-814", apart=True)
class ReplacesStdout(RackDriver):
    """It replaces sys.stdout."""

    def init_host(self, service: Service) -> None:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123


@wrong("runs", "WHF-201", apart=True)
class Daemonizes(HostDriver):
    """It goes on in a child process, and ends this one with success."""

    def init_host(self, service: Service) -> None:
        if os.fork():
            os._exit(0)


@wrong("runs", "WHF-201", apart=True)
class ForksAndReturns(HostDriver):
    """It starts a worker that comes back from where it was started, too."""

    worker = 0

    def refresh(self) -> None:
        super().refresh()
        if not self.worker:
            self.worker = os.fork() or -1


@wrong("runs", "WHF-704", apart=True)
class HangsInPython(HostDriver):
    """It never comes back from a file that breaks off."""

    def parse(self, text: str) -> dict[str, Any]:
        while True:
            try:
                return super().parse(text)
            except ValueError:
                time.sleep(0.1)


@wrong("runs", "WHF-501", apart=True)
class HangsInC(RackDriver):
    """It never comes back, in C, and no other thread runs meanwhile, when a card is busy."""

    def is_busy(self, card: Facts) -> bool:
        if super().is_busy(card):
            library, mutex = ctypes.PyDLL(None), ctypes.create_string_buffer(64)
            for _ in range(2):
                library.pthread_mutex_lock(mutex)
        return False


@wrong("runs", "WHF-301", "WHF-302", apart=True)
class HangsInInit(RackDriver):
    """It never comes back when it is made the third time."""

    made = 0

    def __init__(self, conf: cfg.ConfigOpts, host: str, name: str) -> None:
        super().__init__(conf, host, name)
        type(self).made += 1
        while self.made >= 3:
            threading.Event().wait(1)


@wrong("runs", "WHF-201", apart=True)
class HangsInCleanup(RackDriver):
    """It never comes back when it is let go of."""

    def cleanup_host(self) -> None:
        threading.Event().wait()


@wrong("runs", "WHF-701", apart=True)
class HangsAndLetsNothingThrough(HostDriver):
    """It never comes back from a failure, and lets no exception through."""

    def load(self) -> dict[str, Any]:
        while True:
            try:
                return super().load()
            except BaseException:
                continue


@wrong("runs", "WHF-804", apart=True)
class StaysForEver(RackDriver):
    """A thread of it, which the process waits for, never ends."""

    def init_host(self, service: Service) -> None:
        threading.Thread(target=threading.Event().wait).start()


@wrong("runs", "WHF-701", apart=True)
class TakesTheAlarm(HostDriver):
    """It limits the time of a reading by the alarm of the process, and switches that off."""

    def read_text(self) -> str:
        signal.signal(signal.SIGALRM, signal.SIG_IGN)
        signal.alarm(0)
        try:
            return super().read_text()
        except OSError:
            while True:
                time.sleep(1)


@wrong("runs", "WHF-501", apart=True)
class ReplacesTheProgram(RackDriver):
    """It replaces the process by another program, when a card is busy."""

    def is_busy(self, card: Facts) -> bool:
        if super().is_busy(card):
            os.execv("/bin/true", ["true"])
        return False
