"""The request id of the work that is under way, as OpenStack's services have it.

A cycle is such work. Its id goes to Placement with each request, and into our log lines. It is
kept in a context variable and not in oslo.context, where the embedded Placement puts its own.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from oslo_utils.uuidutils import generate_uuid

_CURRENT: Final[ContextVar[str | None]] = ContextVar("request_id", default=None)


def current() -> str | None:
    """Return the id of the work that this thread does; None outside of any."""
    return _CURRENT.get()


def thread_pool(threads: int) -> ThreadPoolExecutor:
    """Return a pool of threads that work for the calling thread, with its request id."""
    return ThreadPoolExecutor(threads, initializer=_CURRENT.set, initargs=(_CURRENT.get(),))


@contextmanager
def same_request() -> Iterator[None]:
    """Use one request id in the block: that of the surrounding block, or a new one."""
    if _CURRENT.get() is not None:
        yield
        return
    token = _CURRENT.set(f"req-{generate_uuid()}")
    try:
        yield
    finally:
        _CURRENT.reset(token)
