"""Limit the time that the driver waits for libvirt."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final, TypeVar

from wharfinger.exceptions import BackendError

_T = TypeVar("_T")


class TimeLimit:
    """Stops waiting for a call that takes too long, and makes no other until it ends."""

    def __init__(self, instance: str, seconds: float) -> None:
        self._instance: Final = instance
        self._seconds: Final = seconds
        #: The thread of a call that took too long, and has not ended yet.
        self._hanging: threading.Thread | None = None

    def run(self, operation: str, call: Callable[[], _T]) -> _T:
        """Return the result of a call. Raises BackendError after the time limit.

        A call that takes too long continues in its thread.
        """
        if self._hanging is not None:
            self._hanging.join(self._seconds)
            if self._hanging.is_alive():
                raise self._failed(operation, "an earlier call to libvirt has not ended yet")
            self._hanging = None
        outcome: Future[_T] = Future()
        thread = threading.Thread(
            target=_run, args=(call, outcome), name=f"libvirt of {self._instance}", daemon=True
        )
        thread.start()
        thread.join(self._seconds)
        if not outcome.done():
            self._hanging = thread
            raise self._failed(operation, f"libvirt has not answered for {self._seconds:g} s")
        thread.join()
        return outcome.result()

    def _failed(self, operation: str, reason: str) -> BackendError:
        return BackendError(driver=self._instance, operation=operation, reason=reason)


def _run(call: Callable[[], _T], outcome: "Future[_T]") -> None:
    try:
        outcome.set_result(call())
    except BaseException as error:
        outcome.set_exception(error)
