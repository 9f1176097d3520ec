"""Processes that the agent starts end with it, whatever ends it."""

import ctypes
import os
import signal
from typing import Final

#: prctl(2): the signal that a process gets when its parent ends.
_PR_SET_PDEATHSIG: Final = 1


def end_with(parent: int) -> None:
    """Make the kernel kill this process when its parent ends; ``parent`` is the parent's id."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it has ended meanwhile
        os._exit(1)
