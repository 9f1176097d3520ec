"""Drivers that end, stop or silence the process of the kit.

The rules in the decorator are those during which it happens.
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
    """Ends the process with exit code 0 when a card is busy."""

    def is_busy(self, card: Facts) -> bool:
        if super().is_busy(card):
            os._exit(0)
        return False


@wrong("runs", "WHF-201", apart=True)
class ExitsInTheEnd(RackDriver):
    """Ends the process with exit code 0 in cleanup_host."""

    def cleanup_host(self) -> None:
        os._exit(0)


@wrong("runs", "WHF-302", "WHF-303", "WHF-301", "WHF-305", apart=True)
class ExitsAtExit(RackDriver):
    """Registers an exit handler that ends the process with exit code 0."""

    def init_host(self, service: Service) -> None:
        atexit.register(os._exit, 0)


@wrong("runs", "WHF-203", "WHF-301", "WHF-305", apart=True)
class ExitsInAThread(HostDriver):
    """Ends the process with exit code 0 in a thread, half a second after init_host."""

    def init_host(self, service: Service) -> None:
        thread = threading.Timer(0.5, os._exit, (0,))
        thread.daemon = True
        thread.start()


@wrong("runs", "WHF-701", apart=True)
class RaisesSystemExit(HostDriver):
    """Calls sys.exit(0) if it cannot read its file."""

    def load(self) -> dict[str, Any]:
        try:
            return super().load()
        except BackendError:
            sys.exit(0)


@wrong("runs", "WHF-701", apart=True)
class RaisesCancelled(RackDriver):
    """Raises CancelledError, which is not an Exception, when a request fails."""

    def failed(self, operation: str, error: Exception) -> Exception:
        raise asyncio.CancelledError(operation)


@wrong("runs", "WHF-931", apart=True)
class KillsItself(RackDriver):
    """Sends SIGKILL to its process in is_clean."""

    def is_clean(self, provider_uuid: str, since: datetime) -> bool:
        signal.raise_signal(signal.SIGKILL)
        return False


@wrong("runs", "WHF-501", apart=True)
class InterruptsItself(HostDriver):
    """Sends SIGINT to its process when a device is busy."""

    def reserve(self, tree: ProviderTree, node: str, address: str, device: dict[str, Any]) -> None:
        signal.raise_signal(signal.SIGINT)


@wrong("runs", "WHF-701", apart=True)
class TerminatesItself(HostDriver):
    """Sends SIGTERM to its process if it cannot read its file."""

    def load(self) -> dict[str, Any]:
        try:
            return super().load()
        except BackendError:
            signal.raise_signal(signal.SIGTERM)
            raise


@wrong("runs", "WHF-921", apart=True)
class Crashes(RackDriver):
    """Reads from address 0 when it programs a card, which crashes the process."""

    def load_image(self, card: str, image: str) -> None:
        ctypes.string_at(0)


@wrong("runs", "WHF-802", apart=True)
class Aborts(HostDriver):
    """Aborts the process when the host has more than ten devices."""

    def refresh(self) -> None:
        super().refresh()
        if len(self.facts["devices"]) > 10:
            os.abort()


@wrong("runs", "WHF-201", "WHF-811", apart=True)
class ClosesStdout(RackDriver):
    """Closes the standard output in init_host, as daemons do."""

    def init_host(self, service: Service) -> None:
        os.close(1)


@wrong("runs", "WHF-201", apart=True)
class ClosesEverything(HostDriver):
    """Closes all file descriptors in init_host, as daemons do."""

    def init_host(self, service: Service) -> None:
        os.closerange(0, 256)


@wrong("runs", "WHF-201", "WHF-811", apart=True)
class RedirectsStdout(RackDriver):
    """Redirects standard output and standard error to /dev/null."""

    def init_host(self, service: Service) -> None:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for one in (1, 2):
            os.dup2(nowhere, one)
        os.close(nowhere)


@wrong("runs", "WHF-811", "WHF-814", apart=True)
class ReplacesStdout(RackDriver):
    """Replaces sys.stdout by a file that discards the output."""

    def init_host(self, service: Service) -> None:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123


@wrong("runs", "WHF-201", apart=True)
class Daemonizes(HostDriver):
    """Forks in init_host, and ends the parent with exit code 0."""

    def init_host(self, service: Service) -> None:
        if os.fork():
            os._exit(0)


@wrong("runs", "WHF-201", "WHF-202", "WHF-203", apart=True)
class ForksAndReturns(HostDriver):
    """Forks in the first listing, and lets the child go on in the code of the kit, too."""

    worker = 0

    def refresh(self) -> None:
        super().refresh()
        if not self.worker:
            self.worker = os.fork() or -1


@wrong("runs", "WHF-704", apart=True)
class HangsInPython(HostDriver):
    """Never returns from reading a file that is cut off."""

    def parse(self, text: str) -> dict[str, Any]:
        while True:
            try:
                return super().parse(text)
            except ValueError:
                time.sleep(0.1)


@wrong("runs", "WHF-501", apart=True)
class HangsInC(RackDriver):
    """Hangs in C code when a card is busy, and lets no other thread run."""

    def is_busy(self, card: Facts) -> bool:
        if super().is_busy(card):
            library, mutex = ctypes.PyDLL(None), ctypes.create_string_buffer(64)
            for _ in range(2):
                library.pthread_mutex_lock(mutex)
        return False


@wrong("runs", "WHF-301", "WHF-302", apart=True)
class HangsInInit(RackDriver):
    """Never returns from the third call of its constructor."""

    made = 0

    def __init__(self, conf: cfg.ConfigOpts, host: str, name: str) -> None:
        super().__init__(conf, host, name)
        type(self).made += 1
        while self.made >= 3:
            threading.Event().wait(1)


@wrong("runs", "WHF-201", apart=True)
class HangsInCleanup(RackDriver):
    """Never returns from cleanup_host."""

    def cleanup_host(self) -> None:
        threading.Event().wait()


@wrong("runs", "WHF-701", apart=True)
class HangsAndLetsNothingThrough(HostDriver):
    """Never returns after a failed reading, and catches every exception."""

    def load(self) -> dict[str, Any]:
        while True:
            try:
                return super().load()
            except BaseException:
                time.sleep(0.1)


@wrong("runs", "WHF-804", apart=True)
class StaysForEver(RackDriver):
    """Starts a thread that never ends and is no daemon."""

    def init_host(self, service: Service) -> None:
        threading.Thread(target=threading.Event().wait).start()


@wrong("runs", "WHF-701", apart=True)
class TakesTheAlarm(HostDriver):
    """Ignores SIGALRM, cancels the alarm of the process, and hangs after a failed reading."""

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
    """Replaces the program of the process when a card is busy."""

    def is_busy(self, card: Facts) -> bool:
        if super().is_busy(card):
            os.execv("/bin/true", ["true"])
        return False
