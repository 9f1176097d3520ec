"""HTTP session of all clients, which limits the size of an answer and the time of a request."""

from collections.abc import Iterator
from typing import Any, Final

import requests
from keystoneauth1.loading import session as session_loading
from keystoneauth1.session import Session, TCPKeepAliveAdapter
from urllib3.exceptions import HTTPError

from wharfinger.conf import request_deadline

_MEBIBYTE: Final = 1024 * 1024


class AnswerTooLarge(requests.RequestException):
    """An answer is larger than the limit; keystoneauth raises its own error from this one."""

    def __init__(self, problem: str, url: str, status: int) -> None:
        super().__init__(problem)
        self.url: Final = url
        self.status: Final = status


class RequestTimedOut(requests.RequestException):
    """A request was not complete in time; keystoneauth does not retry the request."""

    def __init__(self, url: str, section: str) -> None:
        super().__init__(f"{url} timed out: no complete answer within [{section}] timeout")


class BoundedSession(Session):
    """keystoneauth's session, but ``timeout`` limits a whole request."""

    def request(self, url: str, method: str, *args: Any, **kwargs: Any) -> requests.Response:
        """Send a request within ``timeout``, by default that of the session; return the answer."""
        timeout = kwargs.get("timeout") or self.timeout
        assert timeout is not None, "the option has a default"
        with request_deadline.within(timeout):
            return super().request(url, method, *args, **kwargs)


class SessionLoader(session_loading.Session):
    """Creates a BoundedSession from keystoneauth's options."""

    @property
    def plugin_class(self) -> type[Session]:
        """Return the class of the session."""
        return BoundedSession


class _Bounded:
    """The body of an answer, at most ``limit`` MiB after decompression."""

    def __init__(self, body: Any, url: str, limit: int, section: str) -> None:
        self._body: Final = body
        self._url: Final = url
        self._limit: Final = limit
        self._section: Final = section

    def __getattr__(self, name: str) -> Any:
        return getattr(self._body, name)

    def stream(self, *args: Any, **kwargs: Any) -> Iterator[bytes]:
        left = self._limit * _MEBIBYTE
        try:
            for chunk in self._body.stream(*args, **kwargs):
                left -= len(chunk)
                if left < 0:
                    self._body.close()
                    raise AnswerTooLarge(
                        f"the answer has more than {self._limit} MiB, and was not read to its "
                        "end. Check that the URL is the service's; if it is, raise "
                        f"[{self._section}] max_response_size",
                        self._url,
                        self._body.status,
                    )
                yield chunk
        except HTTPError as error:
            if request_deadline.is_over():
                raise RequestTimedOut(self._url, self._section) from error
            raise


class BoundedTransport(TCPKeepAliveAdapter):
    """keystoneauth's transport, which observes the deadline of a request.

    It limits an answer to ``limit`` MiB after decompression. ``section`` is the configuration
    section with the limits, for errors.
    """

    def __init__(self, limit: int, section: str) -> None:
        self._limit: Final = limit
        self._section: Final = section
        super().__init__()

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        """Create the pools of connections, which observe the deadline."""
        super().init_poolmanager(*args, **kwargs)
        self.poolmanager.pool_classes_by_scheme = request_deadline.POOLS

    def proxy_manager_for(self, proxy: str, **kwargs: Any) -> Any:
        """Return the pools of connections for a proxy; only SOCKS proxies ignore the deadline."""
        manager = super().proxy_manager_for(proxy, **kwargs)
        if not proxy.lower().startswith("socks"):
            manager.pool_classes_by_scheme = request_deadline.POOLS
        return manager

    def send(
        self, request: requests.PreparedRequest, *args: Any, **kwargs: Any
    ) -> requests.Response:
        """Send a request; return the answer, or raise RequestTimedOut.

        Reading the answer may raise RequestTimedOut, too, or AnswerTooLarge.
        """
        try:
            answer = super().send(request, *args, **kwargs)
        except (OSError, HTTPError) as error:  # requests' own errors are OSErrors
            if request_deadline.is_over():
                raise RequestTimedOut(request.url or "", self._section) from error
            raise
        answer.raw = _Bounded(answer.raw, answer.url, self._limit, self._section)
        return answer


def bound(session: Session, limit: int, section: str) -> None:
    """Let a session observe deadlines, and limit each answer to ``limit`` MiB.

    Errors name the ``section``.
    """
    transport = BoundedTransport(limit, section)
    for scheme in ("https://", "http://"):
        session.session.mount(scheme, transport)
