"""A deadline for a whole HTTP request, including the answer."""

import http.client
import io
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

#: The deadline of the present request of this thread, in seconds of the monotonic clock.
_END: Final[ContextVar[float | None]] = ContextVar("request_deadline", default=None)


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Set one deadline for all requests in a block."""
    end = time.monotonic() + seconds
    outer = _END.get()
    token = _END.set(end if outer is None else min(outer, end))
    try:
        yield
    finally:
        _END.reset(token)


def is_over() -> bool:
    """Return whether the deadline of the present request has passed."""
    end = _END.get()
    return end is not None and end <= time.monotonic()


def _left(end: float | None) -> float | None:
    if end is None:
        return None
    left = end - time.monotonic()
    if left <= 0:
        raise TimeoutError("timed out")
    return left


class _AnswerReader(io.RawIOBase):
    def __init__(self, raw: io.RawIOBase, connection: socket.socket) -> None:
        self._raw: Final = raw
        self._connection: Final = connection
        self._end: Final = _END.get()

    def readable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._raw.fileno()

    def readinto(self, buffer: Any) -> int | None:
        if self._end is not None:
            self._connection.settimeout(_left(self._end))
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Answer(http.client.HTTPResponse):
    def __init__(self, sock: socket.socket, *args: Any, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        self.fp = io.BufferedReader(_AnswerReader(self.fp.detach(), sock))


class _Limited:
    response_class = _Answer
    _timeout: float | None = None

    @property
    def timeout(self) -> float | None:
        left = _left(_END.get())
        given = [one for one in (self._timeout, left) if one is not None]
        return min(given, default=None)

    @timeout.setter
    def timeout(self, value: float | None) -> None:
        self._timeout = value


class _LimitedHTTP(_Limited, HTTPConnection):  # type: ignore[misc]
    pass


class _LimitedHTTPS(_Limited, HTTPSConnection):  # type: ignore[misc]
    pass


class _HTTPPool(HTTPConnectionPool):
    ConnectionCls = _LimitedHTTP


class _HTTPSPool(HTTPSConnectionPool):
    ConnectionCls = _LimitedHTTPS


#: Pools of connections that observe the deadline, by scheme, for a pool manager of urllib3.
POOLS: Final = {"http": _HTTPPool, "https": _HTTPSPool}
