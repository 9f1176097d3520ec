"""End a child process of the agent together with the agent."""

import ctypes
import os
import signal
from typing import Final

#: The option of prctl(2) for the signal that a process gets when its parent ends.
_PR_SET_PDEATHSIG: Final = 1


def end_with(parent_pid: int) -> None:
    """Arrange that this process ends when its parent process ends."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:  # the parent has ended already
        os._exit(1)
