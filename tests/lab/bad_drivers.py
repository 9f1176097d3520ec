"""A driver that misbehaves in its process in one of many ways: it hangs, leaks, crashes and so on.

The driver misbehaves while a file exists, which is called the switch. A test creates and deletes
it. A process that the driver forks or starts ends by itself after ``LIFETIME`` seconds.
"""

import ctypes
import mmap
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from oslo_config import cfg

from tests.lab import fleet_file
from tests.lab.fleet_file import FileDriver
from wharfinger.driver import Allocations
from wharfinger.objects import Migration, Service
from wharfinger.providers import ProviderTree

LIFETIME: Final = 120.0
FORKS: Final = 50
#: The limit of descriptors of a process whose driver leaks them, and the threads that it leaks.
DESCRIPTORS: Final = 256
THREADS: Final = 300
_MEBIBYTE: Final = 1024 * 1024
_PR_SET_PDEATHSIG: Final = 1
_SIG_IGN: Final = ctypes.c_void_p(1)
_SIG_DFL: Final = ctypes.c_void_p(0)
#: Functions of C that are called without a release of Python's global lock.
_LOCKED: Final = ctypes.PyDLL(None)
_C: Final = ctypes.CDLL(None)
_leaked: Final[list[Any]] = []


class BadDriver(FileDriver):
    """Driver that misbehaves in some of its methods while its switch exists."""

    def __init__(self, conf: cfg.ConfigOpts, host: str, name: str) -> None:
        super().__init__(conf, host, name)
        conf.register_opts([cfg.StrOpt("switch"), cfg.StrOpt("misbehaviour")], name)
        self._section = conf[name]
        self._called("__init__")

    def init_host(self, service: Service) -> None:
        self._called("init_host")

    def cleanup_host(self) -> None:
        self._called("cleanup_host")

    def get_available_nodes(self, refresh: bool = False) -> list[str]:
        self._called("get_available_nodes")
        return super().get_available_nodes(refresh)

    def update_provider_tree(
        self,
        provider_tree: ProviderTree,
        nodename: str,
        allocations: Allocations | None = None,
        migrations: Iterable[Migration] | None = None,
    ) -> None:
        self._called("update_provider_tree")
        super().update_provider_tree(provider_tree, nodename, allocations, migrations)

    def changed_nodes(self, since: str | None) -> tuple[set[str], str]:
        self._called("changed_nodes")
        return super().changed_nodes(since)

    def _called(self, operation: str) -> None:
        name = self._section.misbehaviour
        if name in MISBEHAVIOURS and operation in CALLS.get(name, ("changed_nodes",)):
            if Path(self._section.switch).exists():
                misbehave(name, Path(self._section.switch))
            else:
                behave()


def begun(switch: Path) -> Path:
    """Return the path of the file that a driver creates when it begins to misbehave."""
    return switch.with_suffix(".begun")


def misbehave(name: str, switch: Path) -> None:
    """Note that the driver begins to misbehave, and run the misbehaviour of this name."""
    begun(switch).touch()
    MISBEHAVIOURS[name]()


def behave() -> None:
    """Release the descriptors, memory and threads that earlier calls have leaked."""
    while _leaked:
        one = _leaked.pop()
        if isinstance(one, int):
            os.close(one)
        elif isinstance(one, threading.Event):
            one.set()


def hang() -> None:
    time.sleep(LIFETIME)


def raise_error() -> None:
    raise ZeroDivisionError("the backend is upside down")


def raise_nameless() -> None:
    class Nameless(Exception):
        def __str__(self) -> str:
            raise RuntimeError("this error has no text")

    raise Nameless


def hang_in_c() -> None:
    _LOCKED.sleep(int(LIFETIME))


def hang_in_background() -> None:
    """Return at once, and let another thread hold Python's global lock from a moment later on."""
    if not _leaked:
        _leaked.append(threading.Timer(0.3, hang_in_c))
        _leaked[0].daemon = True
        _leaked[0].start()


def loop() -> None:
    while True:
        pass


def stop_process() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def exit_python() -> None:
    sys.exit(3)


def exit_process() -> None:
    os._exit(0)


def read_nowhere() -> None:
    ctypes.string_at(0)


def kill_group() -> None:
    os.killpg(os.getpgrp(), signal.SIGKILL)


def fork_many() -> None:
    for _ in range(FORKS):
        if not os.fork():
            hang()
            os._exit(0)
    os._exit(9)


def fork_one() -> None:
    """Fork one process, at the first call only; it inherits all open files of this one."""
    if not _leaked:
        _leaked.append(fork_one)
        if not os.fork():
            hang()
            os._exit(0)


def leak_memory() -> None:
    _leaked.append(b"x" * (64 * _MEBIBYTE))


def leak_in_forks() -> None:
    """Fork a process that leaks memory, and that ends with this one."""
    if not os.fork():
        _C.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
        leak_memory()
        hang()
        os._exit(0)


def leak_descriptors() -> None:
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, hard))
    while True:
        _leaked.append(os.dup(0))


def leak_threads() -> None:
    """Start THREADS threads, and raise the error that Python raises if it cannot start another."""
    while len(_leaked) < THREADS:
        end = threading.Event()
        _leaked.append(end)
        threading.Thread(target=end.wait, args=(LIFETIME,), daemon=True).start()
    raise RuntimeError("can't start new thread")


def leave_thread() -> None:
    """Start a thread that is no daemon, so that Python waits for it when the process ends."""
    if not _leaked:
        _leaked.append(threading.Event())
        threading.Thread(target=_leaked[0].wait, args=(LIFETIME,), daemon=False).start()


def print_megabytes() -> None:
    for stream in (sys.stdout, sys.stderr):
        stream.write(("noise " * 20 + "\n") * 10_000)
        stream.flush()


def change_signals() -> None:
    """Ignore all signals that can be ignored, with C's signal(), which Python does not notice."""
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        if number < signal.SIGRTMIN:
            _C.signal(int(number), _SIG_IGN)


def change_signals_and_hang() -> None:
    change_signals()
    hang()


def reset_signals() -> None:
    """Restore the default effect of all signals, with C's signal(), and hang."""
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        _C.signal(int(number), _SIG_DFL)
    hang()


def block_sigterm() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    _C.signal(int(signal.SIGTERM), _SIG_IGN)


def change_directory() -> None:
    os.chdir("/")
    os.umask(0o777)


def close_output() -> None:
    for descriptor in (0, 1, 2):
        with open(os.devnull) as null:  # noqa: PTH123 - a descriptor for the moment
            os.dup2(null.fileno(), descriptor)
        os.close(descriptor)


def close_all() -> None:
    os.closerange(0, 4096)


def write_to_report() -> None:
    """Overwrite the shared memory in which the process reports to the agent."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        if "wharfinger-report" in line:
            first, last = (int(one, 16) for one in line.split()[0].split("-"))
            ctypes.memmove(first, os.urandom(mmap.PAGESIZE), mmap.PAGESIZE)
            ctypes.memset(first + mmap.PAGESIZE, 0xFF, last - first - mmap.PAGESIZE)
    time.sleep(2)  # the end of this call writes a valid report again


MISBEHAVIOURS: Final[dict[str, Callable[[], object]]] = {
    "raise": raise_error,
    "raise_nameless": raise_nameless,
    "hang": hang,
    "hang_in_c": hang_in_c,
    "hang_in_background": hang_in_background,
    "loop": loop,
    "stop_process": stop_process,
    "sys_exit": exit_python,
    "exit_process": exit_process,
    "segfault": read_nowhere,
    "abort": os.abort,
    "kill_group": kill_group,
    "fork_many": fork_many,
    "fork_one": fork_one,
    "leak_memory": leak_memory,
    "leak_in_forks": leak_in_forks,
    "leak_descriptors": leak_descriptors,
    "leak_threads": leak_threads,
    "leave_thread": leave_thread,
    "print": print_megabytes,
    "ignore_signals": change_signals,
    "ignore_signals_and_hang": change_signals_and_hang,
    "reset_signals_and_hang": reset_signals,
    "block_sigterm": block_sigterm,
    "chdir_and_umask": change_directory,
    "close_output": close_output,
    "close_all": close_all,
    "write_to_report": write_to_report,
    "hang_at_start": hang,
    "exit_at_start": exit_process,
    "hang_in_init_host": hang,
    "raise_at_cleanup": raise_error,
    "hang_at_cleanup": hang,
    "hang_at_import": hang,
    "exit_at_import": exit_process,
    "raise_at_import": raise_error,
}
#: Methods in which a driver misbehaves. Without an entry, it does so in changed_nodes.
CALLS: Final[dict[str, Sequence[str]]] = {
    "raise": (
        *("init_host", "get_available_nodes", "update_provider_tree", "changed_nodes"),
        "cleanup_host",
    ),
    "hang_at_start": ("__init__",),
    "exit_at_start": ("__init__",),
    "hang_in_init_host": ("init_host",),
    "raise_at_cleanup": ("cleanup_host",),
    "hang_at_cleanup": ("cleanup_host",),
    "hang_at_import": (),
    "exit_at_import": (),
    "raise_at_import": (),
}
#: Misbehaviours that begin with the next start of the instance.
AT_START: Final = frozenset(
    {
        *("hang_at_start", "hang_in_init_host", "hang_at_import", "exit_at_start"),
        *("exit_at_import", "raise_at_import"),
    }
)
_AT_IMPORT: Final = """\
from pathlib import Path

from tests.lab import bad_drivers

if Path({switch!r}).exists():
    bad_drivers.misbehave({name!r}, Path({switch!r}))


class BadDriver(bad_drivers.BadDriver):
    pass
"""


def install(directory: Path, misbehaviour: str, switch: Path) -> Path:
    """Install the drivers ``file`` and ``bad`` in a directory; return it for PYTHONPATH.

    ``file`` behaves well. ``bad`` has this misbehaviour while the file ``switch`` exists.
    """
    site = fleet_file.install(directory, bad="bad_at_import:BadDriver")
    (site / "bad_at_import.py").write_text(
        _AT_IMPORT.format(switch=str(switch), name=misbehaviour)
        if misbehaviour.endswith("_at_import")
        else f"from {__name__} import BadDriver\n"
    )
    return site
