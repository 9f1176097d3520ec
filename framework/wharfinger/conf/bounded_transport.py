"""HTTP sessions that limit the size of answers and the time of requests."""

from collections.abc import Iterator
from typing import Any, Final

import requests
from keystoneauth1.loading import session as session_loading
from keystoneauth1.session import Session, TCPKeepAliveAdapter
from urllib3.exceptions import HTTPError

from wharfinger.conf import request_deadline

_MEBIBYTE: Final = 1024 * 1024


class AnswerTooLarge(requests.RequestException):
    """An answer is larger than the limit. keystoneauth raises its own error from this one."""

    def __init__(self, problem: str, url: str, status: int) -> None:
        super().__init__(problem)
        self.url: Final = url
        self.status: Final = status


class RequestTimedOut(requests.RequestException):
    """A request was not complete in time. keystoneauth does not retry the request."""

    def __init__(self, url: str, section: str) -> None:
        super().__init__(f"{url} timed out: no complete answer within [{section}] timeout")


class BoundedSession(Session):
    """keystoneauth's session, but ``timeout`` limits a whole request."""

    def request(self, url: str, method: str, *args: Any, **kwargs: Any) -> requests.Response:
        """Send a request within the timeout; return the answer."""
        timeout = kwargs.get("timeout") or self.timeout
        assert timeout is not None, "the option has a default"
        with request_deadline.within(timeout):
            return super().request(url, method, *args, **kwargs)


class SessionLoader(session_loading.Session):
    """Creates a BoundedSession from keystoneauth's options."""

    @property
    def plugin_class(self) -> type[Session]:
        """The class of the session."""
        return BoundedSession


class _BoundedBody:
    def __init__(self, body: Any, url: str, limit_mib: int, section: str) -> None:
        self._body: Final = body
        self._url: Final = url
        self._limit_mib: Final = limit_mib
        self._section: Final = section

    def __getattr__(self, name: str) -> Any:
        return getattr(self._body, name)

    def stream(self, *args: Any, **kwargs: Any) -> Iterator[bytes]:
        left = self._limit_mib * _MEBIBYTE
        try:
            for chunk in self._body.stream(*args, **kwargs):
                left -= len(chunk)
                if left < 0:
                    self._body.close()
                    raise AnswerTooLarge(
                        f"the answer has more than {self._limit_mib} MiB, and was not read to its "
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
    """keystoneauth's transport, with a deadline and a size limit."""

    def __init__(self, limit_mib: int, section: str) -> None:
        self._limit_mib: Final = limit_mib
        self._section: Final = section
        super().__init__()

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        """Create pools of connections that observe the deadline."""
        super().init_poolmanager(*args, **kwargs)
        self.poolmanager.pool_classes_by_scheme = request_deadline.POOLS

    def proxy_manager_for(self, proxy: str, **kwargs: Any) -> Any:
        """Return the pools of connections for a proxy."""
        manager = super().proxy_manager_for(proxy, **kwargs)
        if not proxy.lower().startswith("socks"):
            manager.pool_classes_by_scheme = request_deadline.POOLS
        return manager

    def send(
        self, request: requests.PreparedRequest, *args: Any, **kwargs: Any
    ) -> requests.Response:
        """Send a request; return the answer. Raises RequestTimedOut."""
        try:
            answer = super().send(request, *args, **kwargs)
        except (OSError, HTTPError) as error:  # requests' own errors are OSErrors
            if request_deadline.is_over():
                raise RequestTimedOut(request.url or "", self._section) from error
            raise
        answer.raw = _BoundedBody(answer.raw, answer.url, self._limit_mib, self._section)
        return answer


def bound(session: Session, limit_mib: int, section: str) -> None:
    """Let a session observe deadlines, and limit the size of answers."""
    transport = BoundedTransport(limit_mib, section)
    for scheme in ("https://", "http://"):
        session.session.mount(scheme, transport)
