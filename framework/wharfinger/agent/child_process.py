"""Observe and kill child processes of the agent, with their sessions."""

import os
import re
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

#: Seconds that a killed process has to end. It may be in a call that the kernel does not interrupt.
KILL_TIMEOUT: Final = 1.0
_STEP: Final = 0.01
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
#: Pss divides pages among the processes that use them.
_PROPORTIONAL: Final = re.compile(r"^Pss: *(\d+) kB$", re.MULTILINE)


def has_exited(pid: int) -> bool:
    """Return whether a child process has exited, without reaping it."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def kill_session(pid: int) -> bool:
    """Kill an unreaped child process and its session; return whether the child ended."""
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    for member in _session(pid):  # one may have a group of its own
        with suppress(ProcessLookupError, PermissionError):
            os.kill(member, signal.SIGKILL)
    end = time.monotonic() + KILL_TIMEOUT
    while not has_exited(pid):
        if time.monotonic() >= end:
            return False
        time.sleep(_STEP)
    return True


def memory(pid: int, exact_above: int) -> int:
    """Return the memory that the session of a child process uses, in bytes."""
    members = list(_session(pid))
    total = sum(map(_resident, members))
    return total if total <= exact_above else sum(map(_proportional, members))


def _session(leader: int) -> Iterator[int]:
    for name in os.listdir("/proc"):  # noqa: PTH208 - only names
        with suppress(ValueError, ProcessLookupError):
            if os.getsid(int(name)) == leader:
                yield int(name)


def _resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
    except (OSError, IndexError):  # it has just ended
        return 0


def _proportional(pid: int) -> int:
    try:
        found = _PROPORTIONAL.search(Path(f"/proc/{pid}/smaps_rollup").read_text())
    except OSError:  # it has just ended, or may not be read
        found = None
    return int(found[1]) * 1024 if found else _resident(pid)
