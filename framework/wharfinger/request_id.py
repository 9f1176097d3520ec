"""Request ids, in the format of OpenStack's services."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from oslo_utils.uuidutils import generate_uuid

_CURRENT: Final[ContextVar[str | None]] = ContextVar("request_id", default=None)


def current() -> str | None:
    """Return the request id of this thread, None without one."""
    return _CURRENT.get()


def thread_pool(threads: int) -> ThreadPoolExecutor:
    """Return a pool of threads that have the request id of the calling thread."""
    return ThreadPoolExecutor(threads, initializer=_CURRENT.set, initargs=(_CURRENT.get(),))


@contextmanager
def same_request() -> Iterator[None]:
    """Use one request id in the block, that of a surrounding block if there is one."""
    if _CURRENT.get() is not None:
        yield
        return
    token = _CURRENT.set(f"req-{generate_uuid()}")
    try:
        yield
    finally:
        _CURRENT.reset(token)
