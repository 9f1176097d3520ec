"""Mutants that break the rules on loading and creating a driver (WHF-1xx)."""

import signal
import threading
from tempfile import TemporaryFile
from typing import ClassVar

from oslo_config import cfg

from tests.lab.conformance.honest import DevicesDriver, MachinesDriver
from tests.lab.conformance.mutants import mutant
from wharfinger.driver import SUPPORTED, Capabilities, unsupported
from wharfinger.objects import Service


@mutant("WHF-101")
class ClaimsMore(MachinesDriver):
    """Declares programming, but has no method for it."""

    capabilities: ClassVar[Capabilities] = Capabilities(
        nested_providers=unsupported("a machine is one provider"),
        reshape=unsupported("there is nothing that it could move to"),
        change_feed=SUPPORTED,
        programming=SUPPORTED,
        cleans_after_release=unsupported("a machine keeps no data of its last user"),
    )


@mutant("WHF-101")
class NamesNoOwner(MachinesDriver):
    """Declares a default owner that is not an owner trait."""

    default_owner: ClassVar[str] = "LAB"


@mutant("WHF-102")
class ConnectsTooSoon(DevicesDriver):
    """Connects to the backend in its constructor."""

    def __init__(self, conf: cfg.ConfigOpts, host: str, name: str) -> None:
        super().__init__(conf, host, name)
        self.connect()


@mutant("WHF-102")
class WatchesTooSoon(MachinesDriver):
    """Starts a thread in its constructor, and ends it when it is connected."""

    def __init__(self, conf: cfg.ConfigOpts, host: str, name: str) -> None:
        super().__init__(conf, host, name)
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.over.wait, args=(5,), daemon=True)
        self.thread.start()

    def init_host(self, service: Service) -> None:
        self.over.set()
        self.thread.join()
        super().init_host(service)


@mutant("WHF-103")
class HasAnOptionMore(DevicesDriver):
    """Registers an option that its package does not list."""

    def __init__(self, conf: cfg.ConfigOpts, host: str, name: str) -> None:
        super().__init__(conf, host, name)
        conf.register_opts([cfg.StrOpt("colour", help="Of the case.")], name)


@mutant("WHF-102")
class KeepsAJournal(MachinesDriver):
    """Writes a file in its constructor."""

    def __init__(self, conf: cfg.ConfigOpts, host: str, name: str) -> None:
        super().__init__(conf, host, name)
        with TemporaryFile("w") as journal:
            journal.write("here I am")


@mutant("WHF-102")
class HandlesSignals(DevicesDriver):
    """Sets a signal handler in its constructor."""

    def __init__(self, conf: cfg.ConfigOpts, host: str, name: str) -> None:
        super().__init__(conf, host, name)
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGUSR2, lambda number, frame: None)
