"""Notify observers of the calls to a driver."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any, Final, Protocol

from wharfinger.driver import ComputeDriver

#: The methods of the contract, by name.
_METHODS: Final = tuple(
    name
    for name, value in vars(ComputeDriver).items()
    if not name.startswith("_") and callable(value)
)


class CallObserver(Protocol):
    """Is notified of the calls to a driver, in the thread of the call."""

    def before(self, method: str) -> None:
        """A call begins."""

    def after(self, method: str) -> None:
        """The call has returned or raised."""


def observe(driver: ComputeDriver, observers: Sequence[CallObserver]) -> None:
    """Notify observers of later calls to a driver. Their list may change later."""
    inside = threading.local()
    for name in _METHODS:
        setattr(driver, name, _observed(name, getattr(driver, name), observers, inside))


def _observed(
    name: str,
    method: Callable[..., Any],
    observers: Sequence[CallObserver],
    inside: threading.local,
) -> Callable[..., Any]:
    @wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        if getattr(inside, "call", False):
            return method(*args, **kwargs)
        with calling(name, observers):
            inside.call = True
            try:
                return method(*args, **kwargs)
            finally:
                inside.call = False

    return call


@contextmanager
def calling(method: str, observers: Sequence[CallObserver]) -> Iterator[None]:
    """Notify observers before and after the block, which calls ``method``."""
    present = [*observers]
    for one in present:
        one.before(method)
    try:
        yield
    finally:
        for one in reversed(present):
            one.after(method)
