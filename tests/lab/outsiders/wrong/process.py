"""Drivers that change their process, or cost too much."""

import decimal
import gc
import http.client
import json
import locale
import logging
import os
import random
import resource
import signal
import socket
import sys
import threading
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from oslo_config import cfg

from tests.lab.outsiders.host import HostDriver
from tests.lab.outsiders.rack import Facts, RackDriver
from tests.lab.outsiders.wrong import wrong
from wharfinger.driver import Allocations
from wharfinger.objects import ComputeNode, Migration, Service
from wharfinger.providers import Inventory, ProviderTree


@wrong("process", "WHF-813", apart=True)
class PatchesTheTree(RackDriver):
    """It changes how reservations are written, for all drivers of the process."""

    def init_host(self, service: Service) -> None:
        reserve = ProviderTree.reserve

        def reserve_with_name(tree: ProviderTree, name_or_uuid: str, reason: str) -> None:
            reserve(tree, name_or_uuid, f"rack: {reason.removeprefix('rack: ')}")

        ProviderTree.reserve = reserve_with_name  # type: ignore[method-assign,assignment]


@wrong("process", "WHF-813", apart=True)
class PatchesObjects(HostDriver):
    """It gives all node objects of the process a method more."""

    def get_available_nodes(self, refresh: bool = False) -> list[str]:
        ComputeNode.is_host = lambda node: True  # type: ignore[attr-defined]
        return super().get_available_nodes(refresh)


@wrong("process", "WHF-811", apart=True)
class PatchesSockets(RackDriver):
    """It gives all sockets of the process its timeout."""

    def init_host(self, service: Service) -> None:
        socket.setdefaulttimeout(self.timeout)


@wrong("process", "WHF-813", apart=True)
class PatchesSleep(RackDriver):
    """It replaces a function of the standard library for all of the process."""

    def init_host(self, service: Service) -> None:
        own = time.sleep
        time.sleep = lambda seconds: own(min(float(seconds), 0.1))


@wrong("process", "WHF-811", apart=True)
class ChangesTheDirectory(HostDriver):
    """It works in the directory of its file."""

    def init_host(self, service: Service) -> None:
        os.chdir(self.path.parent)


@wrong("process", "WHF-811", apart=True)
class ChangesTheDirectoryOnce(HostDriver):
    """It changes to the directory of its file with the second reading, and stays there."""

    readings = 0

    def read_text(self) -> str:
        self.readings += 1
        if self.readings == 2:
            os.chdir(self.path.parent)
        return super().read_text()


@wrong("process", "WHF-811", apart=True)
class ChangesTheUmask(HostDriver):
    """It lets no other user read what the process writes."""

    def get_available_nodes(self, refresh: bool = False) -> list[str]:
        os.umask(0o077)
        return super().get_available_nodes(refresh)


@wrong("process", "WHF-811", apart=True)
class TakesASignal(RackDriver):
    """It reads the list anew where the process gets SIGHUP."""

    def init_host(self, service: Service) -> None:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGHUP, lambda *_: self.refresh())


@wrong("process", "WHF-811", apart=True)
class BlocksSignals(RackDriver):
    """It blocks SIGTERM while it programs a card, and never again allows it."""

    def load_image(self, card: str, image: str) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        super().load_image(card, image)


@wrong("process", "WHF-811", apart=True)
class SetsTheTimeZone(RackDriver):
    """It sets the time zone of the process when it looks whether a card is clean."""

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
    """It switches proxies off for all of the process."""

    def init_host(self, service: Service) -> None:
        os.environ["no_proxy"] = "*"


@wrong("process", "WHF-811", apart=True)
class SetsTheLocale(HostDriver):
    """It sets the locale of the process to parse figures."""

    def init_host(self, service: Service) -> None:
        locale.setlocale(locale.LC_NUMERIC, "C.UTF-8")


@wrong("process", "WHF-811", apart=True)
class ProfilesItself(RackDriver):
    """It sets the timer of profilers."""

    def init_host(self, service: Service) -> None:
        signal.setitimer(signal.ITIMER_PROF, 3600)


@wrong("process", "WHF-811", apart=True)
class LowersItsPriority(HostDriver):
    """It lowers the priority of the process while it reads, for good."""

    def read_text(self) -> str:
        os.nice(1)
        return super().read_text()


@wrong("process", "WHF-811", apart=True)
class LimitsFiles(RackDriver):
    """It changes the number of files that the process may open."""

    def init_host(self, service: Service) -> None:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft - 1, hard))


@wrong("process", "WHF-811", apart=True)
class SwitchesThreadsRarely(HostDriver):
    """It lets threads run for longer, to parse faster."""

    def parse(self, text: str) -> dict[str, Any]:
        sys.setswitchinterval(0.5)
        return super().parse(text)


@wrong("process", "WHF-811", apart=True)
class NeedsSmallStacks(RackDriver):
    """It sets the stack size of all threads that start later."""

    def init_host(self, service: Service) -> None:
        threading.stack_size(1 << 19)


@wrong("process", "WHF-811", apart=True)
class ReadsInTheDirectory(HostDriver):
    """It changes to the directory of its file for the time of a reading."""

    def read_text(self) -> str:
        before = Path.cwd()
        os.chdir(self.path.parent)
        try:
            return super().read_text()
        finally:
            os.chdir(before)


@wrong("process", "WHF-813", apart=True)
class PatchesWhileConnected(RackDriver):
    """It replaces a function of Python, and cleanup_host puts the original back."""

    def init_host(self, service: Service) -> None:
        self.original = json.loads
        json.loads = self.loads  # type: ignore[assignment]

    def loads(self, text: Any, **options: Any) -> Any:
        return self.original(text, **options)

    def cleanup_host(self) -> None:
        json.loads = self.original


@wrong("process", "WHF-813", apart=True)
class ChangesThePort(RackDriver):
    """It sets an attribute of a class of Python, for all connections of the process."""

    def init_host(self, service: Service) -> None:
        http.client.HTTPConnection.default_port = 8080


@wrong("process", "WHF-812", apart=True)
class ConfiguresLogging(RackDriver):
    """It configures logging to standard error itself."""

    def init_host(self, service: Service) -> None:
        logging.basicConfig(level=logging.DEBUG, force=True)


@wrong("process", "WHF-812", apart=True)
class SilencesALibrary(RackDriver):
    """It silences the loggers of a library that the framework uses, too."""

    def init_host(self, service: Service) -> None:
        logging.getLogger("keystoneauth").setLevel(logging.CRITICAL)


@wrong("process", "WHF-812", apart=True)
class SilencesLogging(RackDriver):
    """It switches the warnings of all loggers off while it lists, and forgets to switch them on."""

    def list_nodes(self) -> dict[str, Facts]:
        logging.disable(logging.WARNING)
        return super().list_nodes()


@wrong("process", "WHF-812", apart=True)
class SilencesWarnings(RackDriver):
    """It ignores all warnings of the process."""

    def init_host(self, service: Service) -> None:
        warnings.simplefilter("ignore", ResourceWarning)


@wrong("process", "WHF-811", apart=True)
class SeedsRandom(RackDriver):
    """It seeds the random numbers of the process, for the order of its requests."""

    def list_cards(self) -> list[Facts]:
        random.seed(self.rack)
        cards = super().list_cards()
        random.shuffle(cards)
        return cards


@wrong("process", "WHF-811", apart=True)
class SeedsRandomOnce(RackDriver):
    """It seeds the random numbers of the process when it is connected."""

    def init_host(self, service: Service) -> None:
        random.seed(42)


@wrong("process", "WHF-811", apart=True)
class DisablesTheCollector(RackDriver):
    """It switches the collection of garbage off, and leaves it so."""

    def init_host(self, service: Service) -> None:
        gc.disable()


@wrong("process", "WHF-811", apart=True)
class RaisesTheRecursionLimit(HostDriver):
    """It has a deep tree to parse, and raises the limit for all threads."""

    def parse(self, text: str) -> dict[str, Any]:
        sys.setrecursionlimit(20_000)
        return super().parse(text)


@wrong("process", "WHF-811", apart=True)
class RoundsDown(HostDriver):
    """It sets how decimals of the thread are rounded."""

    def units(self, address: str, device: dict[str, Any]) -> int:
        decimal.getcontext().rounding = decimal.ROUND_DOWN
        return super().units(address, device)


@wrong("process", "WHF-811", apart=True)
class ExtendsThePath(HostDriver):
    """It adds the directory of its file to the path of modules, with each reading."""

    def read_text(self) -> str:
        sys.path.append(str(self.path.parent))
        return super().read_text()


@wrong("process", "WHF-811", apart=True)
class HooksExceptions(RackDriver):
    """It reports exceptions that no code catches itself."""

    def init_host(self, service: Service) -> None:
        sys.excepthook = lambda *_: None


@wrong("process", "WHF-814", apart=True)
class Prints(RackDriver):
    """It prints what it lists."""

    def refresh(self) -> None:
        super().refresh()
        print(f"{len(self.nodes)} nodes")


@wrong("process", "WHF-814", apart=True)
class WritesToTheDescriptor(HostDriver):
    """It writes to the standard error output beside Python."""

    def get_available_resource(self, nodename: str) -> ComputeNode:
        os.write(2, b"asked for the node\n")
        return super().get_available_resource(nodename)


@wrong("process", "WHF-815", apart=True)
class SleepsForEachNode(RackDriver):
    """It waits for a moment after each node, to be kind to the framework."""

    def describe_node(self, tree: ProviderTree, node: str, facts: Facts) -> None:
        time.sleep(0.1)
        super().describe_node(tree, node, facts)


@wrong("process", "WHF-815", apart=True)
class SleepsAfterAFailure(RackDriver):
    """It waits for a second before it asks again."""

    def send(self, method: str, path: str, body: object = None) -> tuple[int, bytes]:
        try:
            return super().send(method, path, body)
        except OSError:
            time.sleep(1)
            return super().send(method, path, body)


@wrong("process", "WHF-816", apart=True)
class KeepsEverySnapshot(RackDriver):
    """It keeps the history of all listings in memory."""

    history: ClassVar[list[Any]] = []

    def refresh(self) -> None:
        super().refresh()
        self.history.append((bytearray(500_000), [dict(card) for card in self.list_cards()]))


@wrong("process", "WHF-816", apart=True)
class KeepsEveryTree(RackDriver):
    """It keeps each tree that it has described."""

    trees: ClassVar[list[ProviderTree]] = []

    def describe_node(self, tree: ProviderTree, node: str, facts: Facts) -> None:
        super().describe_node(tree, node, facts)
        self.trees.append(tree)


@wrong("process", "WHF-804", apart=True)
class LeavesProcesses(RackDriver):
    """It runs a program with each listing, and never asks how that has ended."""

    def refresh(self) -> None:
        super().refresh()
        os.posix_spawn("/bin/true", ["true"], {})


@wrong("process", "WHF-805", apart=True)
class LeaksWithEachProgramming(RackDriver):
    """It opens the log of programmings each time, and never closes it."""

    def __init__(self, conf: cfg.ConfigOpts, host: str, name: str) -> None:
        super().__init__(conf, host, name)
        self.logs: list[Any] = []

    def load_image(self, card: str, image: str) -> None:
        self.logs.append(Path("/dev/null").open())  # noqa: SIM115
        super().load_image(card, image)


@wrong("process", "WHF-805", apart=True)
class LeaksWithEachQuestion(RackDriver):
    """It has another socket for each question for the function of a card."""

    def __init__(self, conf: cfg.ConfigOpts, host: str, name: str) -> None:
        super().__init__(conf, host, name)
        self.sockets: list[socket.socket] = []

    def current_function(self, provider_uuid: str) -> str | None:
        self.sockets.append(socket.socket())
        return super().current_function(provider_uuid)


@wrong("process", "WHF-804", apart=True)
class StartsATimerEachTime(RackDriver):
    """Each listing starts a timer that outlives it; cleanup_host ends the last one."""

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
    """Each description of the host opens its file once more."""

    def __init__(self, conf: cfg.ConfigOpts, host: str, name: str) -> None:
        super().__init__(conf, host, name)
        self.open: list[Any] = []

    def describe_host(self, tree: ProviderTree, node: str) -> None:
        self.open.append(Path("/dev/null").open())  # noqa: SIM115
        super().describe_host(tree, node)


@wrong("process", "WHF-805", apart=True)
class LeaksAfterFailures(RackDriver):
    """A connection on which a request has failed is kept open."""

    def __init__(self, conf: cfg.ConfigOpts, host: str, name: str) -> None:
        super().__init__(conf, host, name)
        self.failed_sockets: list[socket.socket] = []

    def failed(self, operation: str, error: Exception) -> Exception:
        self.failed_sockets.append(socket.socket())
        return super().failed(operation, error)


@wrong("process", "WHF-802", apart=True)
class QuadraticInDevices(HostDriver):
    """For each device it walks the whole tree, in code of the framework."""

    def describe_device(
        self, tree: ProviderTree, node: str, address: str, device: dict[str, Any]
    ) -> None:
        super().describe_device(tree, node, address, device)
        assert tree.data(node).uuid in tree.get_provider_uuids()


@wrong("process", "WHF-802", apart=True)
class QuadraticInNodes(RackDriver):
    """For each node it looks through the cards of all nodes, in code of the interpreter."""

    def describe_node(self, tree: ProviderTree, node: str, facts: Facts) -> None:
        names = [card["name"] for cards in self.cards.values() for card in cards]
        assert f"{node}_cardx" not in sorted(names)
        super().describe_node(tree, node, facts)


@wrong("process", "WHF-802", apart=True)
class QuadraticInBytes(RackDriver):
    """For each card it writes the whole snapshot as text, in C."""

    def describe_card(self, tree: ProviderTree, node: str, card: Facts) -> None:
        assert card["name"] in str(self.cards)
        super().describe_card(tree, node, card)


@wrong("process", "WHF-803", apart=True)
class SharesASnapshot(HostDriver):
    """All instances have one snapshot."""

    shared: ClassVar[dict[str, Any]] = {}

    def refresh(self) -> None:
        super().refresh()
        self.shared.clear()
        self.shared.update(self.facts)
        self.facts = self.shared


@wrong("process", "WHF-811", apart=True)
class ChangesADefault(RackDriver):
    """It changes an option of the framework for all instances."""

    def init_host(self, service: Service) -> None:
        os.environ["OS_CLOUD"] = "rack"

    def cleanup_host(self) -> None:
        os.environ.pop("OS_CLOUD", None)


@wrong("process", "WHF-813", apart=True)
class PatchesInventories(HostDriver):
    """It changes a method of inventories with the first busy device."""

    def reserve(self, tree: ProviderTree, node: str, address: str, device: dict[str, Any]) -> None:
        Inventory.is_fully_reserved = property(  # type: ignore[method-assign,assignment]
            lambda one: one.reserved >= one.total
        )
        super().reserve(tree, node, address, device)
