"""Mutants of what a driver declares (WHF-1..)."""

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
    """It declares programming, and has no method for that."""

    capabilities: ClassVar[Capabilities] = Capabilities(
        nested_providers=unsupported("a machine is one provider"),
        reshape=unsupported("there is nothing that it could move to"),
        change_feed=SUPPORTED,
        programming=SUPPORTED,
        cleans_after_release=unsupported("a machine keeps no data of its last user"),
    )


@mutant("WHF-101")
class NamesNoOwner(MachinesDriver):
    """Its default owner is no owner trait."""

    default_owner: ClassVar[str] = "LAB"


@mutant("WHF-102")
class ConnectsTooSoon(DevicesDriver):
    """It connects when it is made."""

    def __init__(self, conf: cfg.ConfigOpts, host: str, name: str) -> None:
        super().__init__(conf, host, name)
        self.connect()


@mutant("WHF-102")
class WatchesTooSoon(MachinesDriver):
    """It has a thread from when it is made to when it is connected."""

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
    """It registers an option that its package does not list."""

    def __init__(self, conf: cfg.ConfigOpts, host: str, name: str) -> None:
        super().__init__(conf, host, name)
        conf.register_opts([cfg.StrOpt("colour", help="Of the case.")], name)


@mutant("WHF-102")
class KeepsAJournal(MachinesDriver):
    """It begins a journal when it is made."""

    def __init__(self, conf: cfg.ConfigOpts, host: str, name: str) -> None:
        super().__init__(conf, host, name)
        with TemporaryFile("w") as journal:
            journal.write("here I am")


@mutant("WHF-102")
class HandlesSignals(DevicesDriver):
    """It has an opinion of how the process is to end."""

    def __init__(self, conf: cfg.ConfigOpts, host: str, name: str) -> None:
        super().__init__(conf, host, name)
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGUSR2, lambda number, frame: None)
