"""Child processes of the agent, each the leader of a process group of its own."""

import os
import signal
from contextlib import suppress


def has_exited(pid: int) -> bool:
    """Return whether a child has ended; it is not reaped, so its id is still its own."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def kill_group(pid: int) -> None:
    """Kill a child that is not reaped yet, and what it has forked into its group."""
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
