"""Child processes of the agent, each the leader of a session and process group of its own."""

import os
import signal
import time
from contextlib import suppress
from typing import Final

#: Seconds that a killed process has to end. One in a call that the kernel does not interrupt stays.
KILL_TIMEOUT: Final = 1.0
_STEP: Final = 0.01


def has_exited(pid: int) -> bool:
    """Return whether a child has ended; it is not reaped, so its id is still its own."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def kill_group(pid: int) -> bool:
    """Kill a child that is not reaped yet, and what it has forked into its group.

    Return whether the child has ended within ``KILL_TIMEOUT``.
    """
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    end = time.monotonic() + KILL_TIMEOUT
    while not has_exited(pid):
        if time.monotonic() >= end:
            return False
        time.sleep(_STEP)
    return True
