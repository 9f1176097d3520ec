"""Drivers that do what few do, and that is right, with the rule that could take it for wrong."""

import logging
import random
import threading
import time
import warnings
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from tests.lab.conformance.honest import DevicesDriver, LabDriver, MachinesDriver
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


class LogsAndWarns(DevicesDriver):
    """It logs by loggers of its own and of others, one of which it configures, and warns."""

    def refresh(self) -> None:
        super().refresh()
        logging.getLogger("lab_driver").setLevel(logging.DEBUG)
        logging.getLogger("lab_driver").error("a device is hot")
        logging.getLogger("a_library").warning("the answer was late")
        warnings.warn("the backend is old", stacklevel=2)


class DrawsNumbers(DevicesDriver):
    """It draws numbers, and seeds a generator of its own."""

    def refresh(self) -> None:
        super().refresh()
        self.jitter = random.uniform(0, 1) + random.Random(4).random()


class _OfALibrary(Warning):
    """A warning that only a library gives."""


class IgnoresALibrary(LogsAndWarns):
    """It ignores the warnings of a library, and configures its own loggers."""

    def init_host(self, service: Service) -> None:
        super().init_host(service)
        warnings.simplefilter("ignore", _OfALibrary)


class WaitsBetweenAttempts(DevicesDriver):
    """It waits after a failure, for its own thread, and for a device that it programs."""

    def failed(self, words: str, error: Exception) -> BackendError:
        time.sleep(0.05)
        return super().failed(words, error)

    def refresh(self) -> None:
        read = threading.Event()
        reading = threading.Timer(0.02, read.set)
        reading.start()
        read.wait(30)
        reading.join()
        super().refresh()

    def program(self, provider_uuid: str, image: str, function: str | None = None) -> None:
        super().program(provider_uuid, image, function)
        time.sleep(0.1)


class HasAPool(DevicesDriver):
    """It has as many threads as it needs, up to twelve, and ends them."""

    def init_host(self, service: Service) -> None:
        super().init_host(service)
        self.pool = ThreadPoolExecutor(12)

    def refresh(self) -> None:
        super().refresh()
        self.pool.submit(time.sleep, 0.01)

    def cleanup_host(self) -> None:
        self.pool.shutdown()


class RemembersForAWhile(MachinesDriver):
    """It knows when the last hundred refreshes were, and what they found."""

    def init_host(self, service: Service) -> None:
        super().init_host(service)
        self.history: deque[tuple[float, dict[str, object]]] = deque(maxlen=100)

    def refresh(self) -> None:
        super().refresh()
        self.history.append((time.time(), {**self.devices}))


UNUSUAL: Sequence[tuple[str, type[LabDriver]]] = [
    ("WHF-211", LooksWhoLeaves),
    ("WHF-804", EndsItsThreadSoon),
    ("WHF-804", HasAPool),
    ("WHF-811", DrawsNumbers),
    ("WHF-812", IgnoresALibrary),
    ("WHF-814", LogsAndWarns),
    ("WHF-815", WaitsBetweenAttempts),
    ("WHF-816", RemembersForAWhile),
]
