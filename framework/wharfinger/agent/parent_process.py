"""End a child process of the agent when the agent ends, even if the agent is killed."""

import ctypes
import os
import signal
from typing import Final

#: The option of prctl(2) for the signal that a process gets when its parent ends.
_PR_SET_PDEATHSIG: Final = 1


def end_with(parent: int) -> None:
    """Make the kernel kill this process when its parent ends.

    Exit at once if the parent is no longer the process ``parent``.
    """
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # the parent has ended already
        os._exit(1)
