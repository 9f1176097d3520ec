"""How long a rule may be looked at, since a driver may never come back."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Overdue(KeyboardInterrupt):
    """It takes too long; whoever lets Ctrl+C through lets this through."""


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Raise Overdue wherever this is after so many seconds, and again each time they pass.

    Only the main thread can be interrupted: in others there is no limit.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(*_: object) -> None:
        raise Overdue(f"no end after {seconds:g} s")

    handler = signal.signal(signal.SIGALRM, ring)
    timer = signal.setitimer(signal.ITIMER_REAL, seconds, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, *timer)
        signal.signal(signal.SIGALRM, handler or signal.SIG_DFL)
