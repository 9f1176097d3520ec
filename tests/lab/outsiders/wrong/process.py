"""Drivers that change their process or use too much. Each docstring says what is wrong."""

import asyncio
import builtins
import contextlib
import ctypes
import decimal
import faulthandler
import gc
import http.client
import json
import locale
import logging
import mmap
import multiprocessing
import os
import queue
import random
import resource
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import tracemalloc
import urllib.request
import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar
from urllib.parse import urlencode

import urllib3
from oslo_concurrency import processutils
from oslo_config import cfg

from tests.lab.outsiders.host import HostDriver
from tests.lab.outsiders.rack import OPTIONS, Facts, RackDriver
from tests.lab.outsiders.wrong import wrong
from wharfinger.driver import Allocations
from wharfinger.objects import ComputeNode, Migration, Service
from wharfinger.providers import Inventory, ProviderTree


@wrong("process", "WHF-813", apart=True)
class PatchesTheTree(RackDriver):
    """Replaces ProviderTree.reserve for all drivers of the process."""

    def init_host(self, service: Service) -> None:
        reserve = ProviderTree.reserve

        def reserve_with_name(tree: ProviderTree, name_or_uuid: str, reason: str) -> None:
            reserve(tree, name_or_uuid, f"rack: {reason.removeprefix('rack: ')}")

        ProviderTree.reserve = reserve_with_name  # type: ignore[method-assign,assignment]


@wrong("process", "WHF-813", apart=True)
class PatchesObjects(HostDriver):
    """Adds a method to the ComputeNode class of the process."""

    def get_available_nodes(self, refresh: bool = False) -> list[str]:
        ComputeNode.is_host = lambda node: True  # type: ignore[attr-defined]
        return super().get_available_nodes(refresh)


@wrong("process", "WHF-811", apart=True)
class PatchesSockets(RackDriver):
    """Sets the default timeout of all sockets of the process."""

    def init_host(self, service: Service) -> None:
        socket.setdefaulttimeout(self.timeout)


@wrong("process", "WHF-813", apart=True)
class PatchesSleep(RackDriver):
    """Replaces time.sleep for the whole process."""

    def init_host(self, service: Service) -> None:
        own = time.sleep
        time.sleep = lambda seconds: own(min(float(seconds), 0.1))


@wrong("process", "WHF-811", apart=True)
class ChangesTheDirectory(HostDriver):
    """Changes the working directory in init_host."""

    def init_host(self, service: Service) -> None:
        os.chdir(self.path.parent)


@wrong("process", "WHF-811", apart=True)
class ChangesTheDirectoryOnce(HostDriver):
    """Changes the working directory in the second reading of the file."""

    readings = 0

    def read_text(self) -> str:
        self.readings += 1
        if self.readings == 2:
            os.chdir(self.path.parent)
        return super().read_text()


@wrong("process", "WHF-811", apart=True)
class ChangesTheUmask(HostDriver):
    """Sets the umask of the process."""

    def get_available_nodes(self, refresh: bool = False) -> list[str]:
        os.umask(0o077)
        return super().get_available_nodes(refresh)


@wrong("process", "WHF-811", apart=True)
class TakesASignal(RackDriver):
    """Installs a handler for SIGHUP."""

    def init_host(self, service: Service) -> None:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGHUP, lambda *_: self.refresh())


@wrong("process", "WHF-811", apart=True)
class BlocksSignals(RackDriver):
    """Blocks SIGTERM for a programming, and never unblocks it."""

    def load_image(self, card: str, image: str) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        super().load_image(card, image)


@wrong("process", "WHF-811", apart=True)
class SetsTheTimeZone(RackDriver):
    """Sets the time zone of the process when it describes a node."""

    def update_provider_tree(
        self,
        provider_tree: ProviderTree,
        nodename: str,
        allocations: Allocations | None = None,
        migrations: Sequence[Migration] | None = None,
    ) -> None:
        os.environ["TZ"] = "UTC"
        time.tzset()
        super().update_provider_tree(provider_tree, nodename, allocations, migrations)


@wrong("process", "WHF-811", apart=True)
class NeedsNoProxy(RackDriver):
    """Sets no_proxy in the environment of the process."""

    def init_host(self, service: Service) -> None:
        os.environ["no_proxy"] = "*"


@wrong("process", "WHF-811", apart=True)
class SetsTheLocale(HostDriver):
    """Sets the locale of the process."""

    def init_host(self, service: Service) -> None:
        locale.setlocale(locale.LC_NUMERIC, "C.UTF-8")


@wrong("process", "WHF-811", apart=True)
class ProfilesItself(RackDriver):
    """Sets the profiling timer of the process."""

    def init_host(self, service: Service) -> None:
        signal.setitimer(signal.ITIMER_PROF, 3600)


@wrong("process", "WHF-811", apart=True)
class LowersItsPriority(HostDriver):
    """Lowers the priority of the process in each reading of the file."""

    def read_text(self) -> str:
        os.nice(1)
        return super().read_text()


@wrong("process", "WHF-811", apart=True)
class LimitsFiles(RackDriver):
    """Lowers the limit on open files of the process."""

    def init_host(self, service: Service) -> None:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft - 1, hard))


@wrong("process", "WHF-811", apart=True)
class SwitchesThreadsRarely(HostDriver):
    """Sets the switch interval of the interpreter."""

    def parse(self, text: str) -> dict[str, Any]:
        sys.setswitchinterval(0.5)
        return super().parse(text)


@wrong("process", "WHF-811", apart=True)
class NeedsSmallStacks(RackDriver):
    """Sets the stack size of later threads."""

    def init_host(self, service: Service) -> None:
        threading.stack_size(1 << 19)


@wrong("process", "WHF-811", apart=True)
class ReadsInTheDirectory(HostDriver):
    """Changes the working directory while it reads the file, and changes back afterwards."""

    def read_text(self) -> str:
        before = Path.cwd()
        os.chdir(self.path.parent)
        try:
            return super().read_text()
        finally:
            os.chdir(before)


@wrong("process", "WHF-813", apart=True)
class PatchesWhileConnected(RackDriver):
    """Replaces json.loads in init_host, and restores it in cleanup_host."""

    def init_host(self, service: Service) -> None:
        self.original = json.loads
        json.loads = self.loads  # type: ignore[assignment]

    def loads(self, text: Any, **options: Any) -> Any:
        return self.original(text, **options)

    def cleanup_host(self) -> None:
        json.loads = self.original


@wrong("process", "WHF-813", apart=True)
class SendsAgainForAll(RackDriver):
    """Lets all requests of the process that urllib3 sends be sent ten times more."""

    def init_host(self, service: Service) -> None:
        urllib3.Retry.DEFAULT = urllib3.Retry(10)


@wrong("process", "WHF-813", apart=True)
class ReplacesAModule(RackDriver):
    """Replaces the module json for all later imports."""

    def init_host(self, service: Service) -> None:
        other = ModuleType("json")
        vars(other).update(vars(json))
        sys.modules["json"] = other


@wrong("process", "WHF-813", apart=True)
class ChangesThePort(RackDriver):
    """Sets the default port of HTTPConnection for the whole process."""

    def init_host(self, service: Service) -> None:
        http.client.HTTPConnection.default_port = 8080


@wrong("process", "WHF-812", apart=True)
class ConfiguresLogging(RackDriver):
    """Configures the logging of the process."""

    def init_host(self, service: Service) -> None:
        logging.basicConfig(level=logging.DEBUG, force=True)


@wrong("process", "WHF-812", apart=True)
class SilencesALibrary(RackDriver):
    """Sets the level of a logger that belongs to a library of the framework."""

    def init_host(self, service: Service) -> None:
        logging.getLogger("keystoneauth").setLevel(logging.CRITICAL)


@wrong("process", "WHF-812", apart=True)
class SilencesLogging(RackDriver):
    """Disables warnings of all loggers when it lists nodes, and never enables them again."""

    def list_nodes(self) -> dict[str, Facts]:
        logging.disable(logging.WARNING)
        return super().list_nodes()


@wrong("process", "WHF-812", apart=True)
class SilencesWarnings(RackDriver):
    """Adds a filter that ignores ResourceWarning in the whole process."""

    def init_host(self, service: Service) -> None:
        warnings.simplefilter("ignore", ResourceWarning)


@wrong("process", "WHF-811", apart=True)
class SeedsRandom(RackDriver):
    """Seeds the random generator of the process in each listing, to shuffle cards."""

    def list_cards(self) -> list[Facts]:
        random.seed(self.rack)
        cards = super().list_cards()
        random.shuffle(cards)
        return cards


@wrong("process", "WHF-811", apart=True)
class SeedsRandomOnce(RackDriver):
    """Seeds the random generator of the process in init_host."""

    def init_host(self, service: Service) -> None:
        random.seed(42)


@wrong("process", "WHF-811", apart=True)
class DisablesTheCollector(RackDriver):
    """Disables garbage collection, and never enables it again."""

    def init_host(self, service: Service) -> None:
        gc.disable()


@wrong("process", "WHF-811", apart=True)
class RaisesTheRecursionLimit(HostDriver):
    """Raises the recursion limit of the process."""

    def parse(self, text: str) -> dict[str, Any]:
        sys.setrecursionlimit(20_000)
        return super().parse(text)


@wrong("process", "WHF-811", apart=True)
class RoundsDown(HostDriver):
    """Sets how decimals are rounded in the thread."""

    def units(self, address: str, device: dict[str, Any]) -> int:
        decimal.getcontext().rounding = decimal.ROUND_DOWN
        return super().units(address, device)


@wrong("process", "WHF-811", apart=True)
class ExtendsThePath(HostDriver):
    """Appends a directory to sys.path in each reading of the file."""

    def read_text(self) -> str:
        sys.path.append(str(self.path.parent))
        return super().read_text()


@wrong("process", "WHF-811", apart=True)
class HasGlobalOptions(RackDriver):
    """Registers an option in oslo.config's global cfg.CONF in init_host, and overrides it."""

    def init_host(self, service: Service) -> None:
        cfg.CONF.register_opts(OPTIONS, "rack")
        cfg.CONF.set_override("timeout", self.timeout, "rack")


@wrong("process", "WHF-811", apart=True)
class HooksExceptions(RackDriver):
    """Replaces sys.excepthook."""

    def init_host(self, service: Service) -> None:
        sys.excepthook = lambda *_: None


@wrong("process", "WHF-814", apart=True)
class Prints(RackDriver):
    """Prints the number of nodes after each listing."""

    def refresh(self) -> None:
        super().refresh()
        print(f"{len(self.nodes)} nodes")


@wrong("process", "WHF-814", apart=True)
class WritesToTheDescriptor(HostDriver):
    """Writes to file descriptor 2 instead of sys.stderr."""

    def get_available_resource(self, nodename: str) -> ComputeNode:
        os.write(2, b"asked for the node\n")
        return super().get_available_resource(nodename)


@wrong("process", "WHF-815", apart=True)
class SleepsForEachNode(RackDriver):
    """Sleeps for 0.1 s for each node that it describes."""

    def describe_node(self, tree: ProviderTree, node: str, facts: Facts) -> None:
        time.sleep(0.1)
        super().describe_node(tree, node, facts)


@wrong("process", "WHF-815", apart=True)
class SleepsAfterAFailure(RackDriver):
    """Sleeps for six seconds after a failed request, and sends the request again."""

    def send(self, method: str, path: str, body: object = None) -> tuple[int, bytes]:
        try:
            return super().send(method, path, body)
        except OSError:
            time.sleep(6)
            return super().send(method, path, body)


@wrong("process", "WHF-816", apart=True)
class KeepsEverySnapshot(RackDriver):
    """Keeps all snapshots in memory."""

    history: ClassVar[list[Any]] = []

    def refresh(self) -> None:
        super().refresh()
        self.history.append((bytearray(500_000), [dict(card) for card in self.list_cards()]))


@wrong("process", "WHF-816", apart=True)
class KeepsEveryTree(RackDriver):
    """Keeps all trees that it has described in memory."""

    trees: ClassVar[list[ProviderTree]] = []

    def describe_node(self, tree: ProviderTree, node: str, facts: Facts) -> None:
        super().describe_node(tree, node, facts)
        self.trees.append(tree)


@wrong("process", "WHF-816", apart=True)
class KeepsEveryChange(RackDriver):
    """Keeps the cards of each node that a poll has named in memory."""

    def __init__(self, conf: cfg.ConfigOpts, host: str, name: str) -> None:
        super().__init__(conf, host, name)
        self.changes: list[list[Facts]] = []

    def changed_nodes(self, since: str | None) -> tuple[set[str], str]:
        changed, mark = super().changed_nodes(since)
        self.changes += [self.cards[node] for node in changed]
        return changed, mark


@wrong("process", "WHF-816", apart=True)
class KeepsErrorsInALibrary(RackDriver):
    """Lets the C library allocate 50 kB for each failed request, and never frees the memory."""

    def failed(self, operation: str, error: Exception) -> Exception:
        ctypes.CDLL(None).strdup(str(error).ljust(50_000).encode())
        return super().failed(operation, error)


@wrong("process", "WHF-801")
class ListsAgainWhenOld(RackDriver):
    """Takes a new snapshot without refresh if the last one is older than ten minutes."""

    def __init__(self, conf: cfg.ConfigOpts, host: str, name: str) -> None:
        super().__init__(conf, host, name)
        self.taken = time.monotonic()

    def get_available_nodes(self, refresh: bool = False) -> list[str]:
        now = time.monotonic()
        if refresh or now - self.taken > 600:
            self.refresh()
            self.taken = now
        return [*self.nodes]


@wrong("process", "WHF-804", apart=True)
class LeavesProcesses(RackDriver):
    """Starts a process after each listing, and never waits for its end."""

    def refresh(self) -> None:
        super().refresh()
        os.posix_spawn("/bin/true", ["true"], {})


@wrong("process", "WHF-805", apart=True)
class LeaksWithEachProgramming(RackDriver):
    """Opens a file for each programming, and never closes it."""

    def __init__(self, conf: cfg.ConfigOpts, host: str, name: str) -> None:
        super().__init__(conf, host, name)
        self.logs: list[Any] = []

    def load_image(self, card: str, image: str) -> None:
        self.logs.append(Path("/dev/null").open())  # noqa: SIM115
        super().load_image(card, image)


@wrong("process", "WHF-805", apart=True)
class LeaksWithEachQuestion(RackDriver):
    """Opens a socket for each call of current_function, and never closes it."""

    def __init__(self, conf: cfg.ConfigOpts, host: str, name: str) -> None:
        super().__init__(conf, host, name)
        self.sockets: list[socket.socket] = []

    def current_function(self, provider_uuid: str) -> str | None:
        self.sockets.append(socket.socket())
        return super().current_function(provider_uuid)


@wrong("process", "WHF-804", apart=True)
class StartsATimerEachTime(RackDriver):
    """Starts a timer after each listing, and stops only the last one in cleanup_host."""

    timer: threading.Timer | None = None

    def refresh(self) -> None:
        super().refresh()
        self.timer = threading.Timer(3600, list)
        self.timer.daemon = True
        self.timer.start()

    def cleanup_host(self) -> None:
        if self.timer is not None:
            self.timer.cancel()


@wrong("process", "WHF-805", apart=True)
class KeepsTheFileOpen(HostDriver):
    """Opens a file for each description of the host, and never closes it."""

    def __init__(self, conf: cfg.ConfigOpts, host: str, name: str) -> None:
        super().__init__(conf, host, name)
        self.open: list[Any] = []

    def describe_host(self, tree: ProviderTree, node: str) -> None:
        self.open.append(Path("/dev/null").open())  # noqa: SIM115
        super().describe_host(tree, node)


@wrong("process", "WHF-805", apart=True)
class LeaksAfterFailures(RackDriver):
    """Opens a socket for each failed request, and never closes it."""

    def __init__(self, conf: cfg.ConfigOpts, host: str, name: str) -> None:
        super().__init__(conf, host, name)
        self.failed_sockets: list[socket.socket] = []

    def failed(self, operation: str, error: Exception) -> Exception:
        self.failed_sockets.append(socket.socket())
        return super().failed(operation, error)


@wrong("process", "WHF-802", apart=True)
class QuadraticInDevices(HostDriver):
    """Walks the whole tree for each device, in code of the framework."""

    def describe_device(
        self, tree: ProviderTree, node: str, address: str, device: dict[str, Any]
    ) -> None:
        super().describe_device(tree, node, address, device)
        assert tree.data(node).uuid in tree.get_provider_uuids()


@wrong("process", "WHF-802", apart=True)
class QuadraticInNodes(RackDriver):
    """Sorts the cards of all nodes for each node, mostly in code of the interpreter."""

    def describe_node(self, tree: ProviderTree, node: str, facts: Facts) -> None:
        names = [card["name"] for cards in self.cards.values() for card in cards]
        assert f"{node}_cardx" not in sorted(names)
        super().describe_node(tree, node, facts)


@wrong("process", "WHF-802", apart=True)
class QuadraticInBytes(RackDriver):
    """Converts the whole snapshot to text for each card, in C code."""

    def describe_card(self, tree: ProviderTree, node: str, card: Facts) -> None:
        assert card["name"] in str(self.cards)
        super().describe_card(tree, node, card)


@wrong("process", "WHF-803", apart=True)
class SharesASnapshot(HostDriver):
    """Shares a snapshot among all instances."""

    shared: ClassVar[dict[str, Any]] = {}

    def refresh(self) -> None:
        super().refresh()
        self.shared.clear()
        self.shared.update(self.facts)
        self.facts = self.shared


@wrong("process", "WHF-811", apart=True)
class ChangesADefault(RackDriver):
    """Sets OS_CLOUD in the environment of the process until cleanup_host."""

    def init_host(self, service: Service) -> None:
        os.environ["OS_CLOUD"] = "rack"

    def cleanup_host(self) -> None:
        os.environ.pop("OS_CLOUD", None)


@wrong("process", "WHF-813", apart=True)
class PatchesInventories(HostDriver):
    """Replaces a property of Inventory when it reserves a device."""

    def reserve(self, tree: ProviderTree, node: str, address: str, device: dict[str, Any]) -> None:
        Inventory.is_fully_reserved = property(  # type: ignore[method-assign,assignment]
            lambda one: one.reserved >= one.total
        )
        super().reserve(tree, node, address, device)


@wrong("process", "WHF-815", apart=True)
class WaitsForAnEvent(HostDriver):
    """Waits 0.2 s in each reading of the file for an event that never comes."""

    def read_text(self) -> str:
        threading.Event().wait(0.2)
        return super().read_text()


@wrong("process", "WHF-815", apart=True)
class WaitsForACondition(RackDriver):
    """Waits 0.1 s for each node for a condition that never holds."""

    def describe_node(self, tree: ProviderTree, node: str, facts: Facts) -> None:
        condition = threading.Condition()
        with condition:
            condition.wait(0.1)
        super().describe_node(tree, node, facts)


@wrong("process", "WHF-815", apart=True)
class WaitsForAQueue(HostDriver):
    """Waits 0.2 s in each description of the host for a queue to which no thread writes."""

    def describe_host(self, tree: ProviderTree, node: str) -> None:
        with contextlib.suppress(queue.Empty):
            queue.Queue[None]().get(timeout=0.2)
        super().describe_host(tree, node)


@wrong("process", "WHF-815", apart=True)
class WaitsForASocket(HostDriver):
    """Waits 0.2 s in each reading of the file for a socket to which no program writes."""

    def read_text(self) -> str:
        one, other = socket.socketpair()
        with one, other:
            one.settimeout(0.2)
            with contextlib.suppress(TimeoutError):
                one.recv(1)
        return super().read_text()


@wrong("process", "WHF-815", apart=True)
class WaitsForALock(HostDriver):
    """Waits 0.2 s in each reading of the file for a lock that it holds itself."""

    def read_text(self) -> str:
        lock = threading.Lock()
        with lock:
            lock.acquire(timeout=0.2)
        return super().read_text()


@wrong("process", "WHF-815", apart=True)
class WaitsForALoop(RackDriver):
    """Sleeps for 0.3 s in each listing, in an event loop."""

    def list_nodes(self) -> dict[str, Facts]:
        asyncio.run(asyncio.sleep(0.3))
        return super().list_nodes()


@wrong("process", "WHF-815", apart=True)
class WaitsForAProgram(HostDriver):
    """Runs the program sleep in each reading of the file."""

    def read_text(self) -> str:
        subprocess.run(["/bin/sleep", "0.3"], check=True)
        return super().read_text()


@wrong("process", "WHF-815", apart=True)
class WaitsForAThread(HostDriver):
    """Waits in each reading of the file for a thread that sleeps."""

    def read_text(self) -> str:
        thread = threading.Thread(target=time.sleep, args=(0.3,))
        thread.start()
        thread.join()
        return super().read_text()


@wrong("process", "WHF-815", apart=True)
class SpinsForAWhile(HostDriver):
    """Reads the clock in a loop for 0.5 s in each reading of the file."""

    def read_text(self) -> str:
        end = time.monotonic() + 0.5
        while time.monotonic() < end:
            continue
        return super().read_text()


@wrong("process", "WHF-805", apart=True)
class LeavesTemporaryFiles(HostDriver):
    """Writes a temporary file in each reading, and never removes it."""

    def parse(self, text: str) -> dict[str, Any]:
        with tempfile.NamedTemporaryFile("w", delete=False) as copy:
            copy.write(text)
        return super().parse(text)


@wrong("process", "WHF-805", apart=True)
class LeavesTemporaryDirectories(RackDriver):
    """Creates a temporary directory in each listing, and never removes it."""

    def refresh(self) -> None:
        tempfile.mkdtemp(prefix="rack")
        super().refresh()


@wrong("process", "WHF-805", apart=True)
class WritesWhereItIs(HostDriver):
    """Writes a copy of its file to the working directory of the process."""

    def parse(self, text: str) -> dict[str, Any]:
        Path("host-copy.json").write_text(text)
        return super().parse(text)


@wrong("process", "WHF-805", apart=True)
class WritesAtHome(HostDriver):
    """Writes a log to the home directory."""

    def parse(self, text: str) -> dict[str, Any]:
        with Path("~/.host-driver.log").expanduser().open("a") as journal:
            journal.write("read\n")
        return super().parse(text)


@wrong("process", "WHF-805", apart=True)
class LeavesALockFile(RackDriver):
    """Creates a lock file in init_host, and never removes it."""

    def init_host(self, service: Service) -> None:
        Path(tempfile.gettempdir(), f"rack-{self.rack}.lock").touch()


@wrong("process", "WHF-805", apart=True)
class LeavesASegment(HostDriver):
    """Creates a segment of shared memory in each reading, and never removes it."""

    def parse(self, text: str) -> dict[str, Any]:
        SharedMemory(create=True, size=len(text)).close()
        return super().parse(text)


@wrong("process", "WHF-813", apart=True)
class VerifiesNothing(RackDriver):
    """Switches off the verification of certificates for the whole process."""

    def init_host(self, service: Service) -> None:
        ssl._create_default_https_context = ssl._create_unverified_context  # type: ignore[assignment]


@wrong("process", "WHF-813", apart=True)
class AllowsManyHeaders(RackDriver):
    """Raises the limit of HTTP headers in ``http.client``, for the whole process."""

    def init_host(self, service: Service) -> None:
        http.client._MAXHEADERS = 1000  # type: ignore[attr-defined]


class RackRecord(logging.LogRecord):
    """A log record without any difference from others but its class."""


@wrong("process", "WHF-812", apart=True)
class MakesLogRecords(RackDriver):
    """Replaces the class of log records for the whole process."""

    def init_host(self, service: Service) -> None:
        logging.setLogRecordFactory(RackRecord)


@wrong("process", "WHF-812", apart=True)
class FiltersLogs(RackDriver):
    """Adds a filter to the framework's logger, which drops messages."""

    def refresh(self) -> None:
        super().refresh()
        logging.getLogger("wharfinger").addFilter(lambda record: "rack" not in record.msg)


@wrong("process", "WHF-812", apart=True)
class SilencesTheDatabase(RackDriver):
    """Drops the messages of SQLAlchemy, which the framework uses."""

    def init_host(self, service: Service) -> None:
        logging.getLogger("sqlalchemy.engine").setLevel(logging.CRITICAL)


@wrong("process", "WHF-813", apart=True)
class PatchesTheProcessUtilities(RackDriver):
    """Replaces oslo_concurrency.processutils.execute for the whole process."""

    def init_host(self, service: Service) -> None:
        execute = processutils.execute

        def execute_quietly(*command: str, **options: Any) -> Any:
            return execute(*command, **{**options, "log_errors": None})

        processutils.execute = execute_quietly


@wrong("process", "WHF-814", apart=True)
class PrintsByAProgram(HostDriver):
    """Runs a program that prints after each listing."""

    def refresh(self) -> None:
        super().refresh()
        subprocess.run(["/bin/echo", "read"], check=True)


@wrong("process", "WHF-811", apart=True)
class ChoosesHowToStart(RackDriver):
    """Sets the start method of multiprocessing for the whole process."""

    def init_host(self, service: Service) -> None:
        multiprocessing.set_start_method("spawn", force=True)


@wrong("process", "WHF-811", apart=True)
class CollectsRarely(HostDriver):
    """Sets the threshold of garbage collection for the whole process."""

    def parse(self, text: str) -> dict[str, Any]:
        gc.set_threshold(50_000)
        return super().parse(text)


@wrong("process", "WHF-811", apart=True)
class SeedsInInit(HostDriver):
    """Seeds the random generator of the process in its constructor."""

    def __init__(self, conf: cfg.ConfigOpts, host: str, name: str) -> None:
        super().__init__(conf, host, name)
        random.seed(host)


@wrong("process", "WHF-816", apart=True)
class MapsMemory(HostDriver):
    """Maps a megabyte of memory in each reading, and never unmaps it."""

    maps: ClassVar[list[mmap.mmap]] = []

    def read_text(self) -> str:
        self.maps.append(mmap.mmap(-1, 1 << 20))
        self.maps[-1].write(b"x" * (1 << 20))
        return super().read_text()


@wrong("process", "WHF-804", apart=True)
class KeepsExecutors(RackDriver):
    """Creates a pool of threads in each listing, and never shuts it down."""

    pools: ClassVar[list[ThreadPoolExecutor]] = []

    def list_cards(self) -> list[Facts]:
        self.pools.append(ThreadPoolExecutor(2))
        return self.pools[-1].submit(super().list_cards).result()


@wrong("process", "WHF-805", apart=True)
class LeaksWithEachInstance(RackDriver):
    """Opens a socket in init_host, and does not close it in cleanup_host."""

    sockets: ClassVar[list[socket.socket]] = []

    def init_host(self, service: Service) -> None:
        self.sockets.append(socket.socket())


@wrong("process", "WHF-802", apart=True)
class ReadsEachPageFromTheStart(RackDriver):
    """Requests all earlier pages of a list again for each page."""

    def pages(self, what: str, **query: str) -> list[Facts]:
        entries: list[Facts] = []
        markers = [""]
        while True:
            for marker in markers:
                asked = urlencode({"rack": self.rack, "marker": marker, **query})
                page = self.request("GET", f"/{what}?{asked}")
            entries += page[what]
            if page["next"] is None:
                return entries
            markers.append(page["next"])


@wrong("process", "WHF-811", apart=True)
class FollowsAllThreads(HostDriver):
    """Sets a trace function for later threads."""

    def get_available_nodes(self, refresh: bool = False) -> list[str]:
        threading.settrace(lambda *_: None)
        return super().get_available_nodes(refresh)


@wrong("process", "WHF-811", apart=True)
class UmaskForAMoment(HostDriver):
    """Changes the umask while it reads the file, and changes it back afterwards."""

    def read_text(self) -> str:
        before = os.umask(0)
        try:
            return super().read_text()
        finally:
            os.umask(before)


@wrong("process", "WHF-811", apart=True)
class HooksThreads(RackDriver):
    """Replaces threading.excepthook."""

    def init_host(self, service: Service) -> None:
        threading.excepthook = lambda *_: None


@wrong("process", "WHF-811", apart=True)
class WakesAnotherThread(RackDriver):
    """It has signals written to a socket of its own."""

    def init_host(self, service: Service) -> None:
        if threading.current_thread() is threading.main_thread():
            self.pair = socket.socketpair()
            self.pair[1].setblocking(False)
            signal.set_wakeup_fd(self.pair[1].fileno())


@wrong("process", "WHF-811", apart=True)
class EnablesTheFaultHandler(HostDriver):
    """It has stacks printed when the process crashes."""

    def refresh(self) -> None:
        faulthandler.enable()
        super().refresh()


@wrong("process", "WHF-811", apart=True)
class ChoosesTheLoops(RackDriver):
    """It sets the policy of event loops."""

    def init_host(self, service: Service) -> None:
        asyncio.set_event_loop_policy(asyncio.DefaultEventLoopPolicy())


@wrong("process", "WHF-812", apart=True)
class NamesALevel(HostDriver):
    """It renames a level of logs."""

    def refresh(self) -> None:
        logging.addLevelName(logging.WARNING, "ATTENTION")
        super().refresh()


@wrong("process", "WHF-812", apart=True)
class CapturesWarnings(RackDriver):
    """It has all warnings written to the log."""

    def init_host(self, service: Service) -> None:
        logging.captureWarnings(True)


@wrong("process", "WHF-811", apart=True)
class AddsABuiltin(HostDriver):
    """It adds a name that all modules see."""

    def refresh(self) -> None:
        builtins.translate = str  # type: ignore[attr-defined]
        super().refresh()


@wrong("process", "WHF-811", apart=True)
class InstallsAnOpener(RackDriver):
    """It installs how urllib opens URLs in all of the process."""

    def init_host(self, service: Service) -> None:
        urllib.request.install_opener(urllib.request.build_opener())


@wrong("process", "WHF-811", apart=True)
class FollowsTheCollector(HostDriver):
    """It has a function called with each collection of garbage."""

    def refresh(self) -> None:
        gc.callbacks.append(lambda *_: None)
        super().refresh()


@wrong("process", "WHF-811", apart=True)
class NamesTheThread(HostDriver):
    """It renames the thread that calls it."""

    def refresh(self) -> None:
        threading.current_thread().name = "host driver"
        super().refresh()


@wrong("process", "WHF-812", apart=True)
class ReplacesTheFilters(RackDriver):
    """It restores the filters of warnings that the program had before, too late."""

    def refresh(self) -> None:
        warnings.resetwarnings()
        super().refresh()


@wrong("process", "WHF-811", apart=True)
class TurnsProfilingOn(HostDriver):
    """It has the memory of the process traced."""

    def refresh(self) -> None:
        tracemalloc.start()
        super().refresh()


@wrong("process", "WHF-815", apart=True)
class SleepsInAReshape(HostDriver):
    """It waits for a moment before it moves what an instance has."""

    def move(self, tree: ProviderTree, node: str, consumer: str, held: dict[str, Any]) -> None:
        time.sleep(0.3)
        super().move(tree, node, consumer, held)


@wrong("process", "WHF-814", apart=True)
class PrintsInAReshape(HostDriver):
    """It prints which instance it moves."""

    def move(self, tree: ProviderTree, node: str, consumer: str, held: dict[str, Any]) -> None:
        print(f"moving {consumer}")
        super().move(tree, node, consumer, held)


@wrong("process", "WHF-805", apart=True)
class OpensAFileInAPoll(RackDriver):
    """Each poll opens a file, and closes none."""

    files: ClassVar[list[Any]] = []

    def changed_nodes(self, since: str | None) -> tuple[set[str], str]:
        self.files.append(Path("/dev/null").open())  # noqa: SIM115
        return super().changed_nodes(since)
