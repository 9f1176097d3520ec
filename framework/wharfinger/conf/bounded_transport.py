"""HTTP transport of all clients, with a limit for the size of an answer.

Without it, keystoneauth, python-ironicclient and openstacksdk read a body of any size.
"""

from collections.abc import Iterator
from typing import Any, Final

import requests
from keystoneauth1.session import Session, TCPKeepAliveAdapter

_MEBIBYTE: Final = 1024 * 1024


class AnswerTooLarge(requests.RequestException):
    """An answer is larger than the limit; keystoneauth wraps this error in one of its own.

    ``url`` is the URL of the request, ``status`` the HTTP status of the answer.
    """

    def __init__(self, problem: str, url: str, status: int) -> None:
        super().__init__(problem)
        self.url: Final = url
        self.status: Final = status


class _Bounded:
    """The body of an answer, as urllib3 has it, up to a number of MiB after decompression."""

    def __init__(self, body: Any, url: str, limit: int, option: str) -> None:
        self._body: Final = body
        self._url: Final = url
        self._limit: Final = limit
        self._option: Final = option

    def __getattr__(self, name: str) -> Any:
        return getattr(self._body, name)

    def stream(self, *args: Any, **kwargs: Any) -> Iterator[bytes]:
        """Yield the body in parts; raises AnswerTooLarge, and closes the connection."""
        left = self._limit * _MEBIBYTE
        for chunk in self._body.stream(*args, **kwargs):
            left -= len(chunk)
            if left < 0:
                self._body.close()
                raise AnswerTooLarge(
                    f"the answer has more than {self._limit} MiB, and was not read to its end. "
                    "Check that the URL is the service's; if it is, raise "
                    f"{self._option}",
                    self._url,
                    self._body.status,
                )
            yield chunk


class BoundedTransport(TCPKeepAliveAdapter):
    """keystoneauth's transport, with a limit of ``limit`` MiB for an answer.

    ``option`` is the name of the option for that limit.
    """

    def __init__(self, limit: int, option: str) -> None:
        self._limit: Final = limit
        self._option: Final = option
        super().__init__()

    def send(
        self, request: requests.PreparedRequest, *args: Any, **kwargs: Any
    ) -> requests.Response:
        """Send a request; reading its answer may raise AnswerTooLarge."""
        answer = super().send(request, *args, **kwargs)
        answer.raw = _Bounded(answer.raw, answer.url, self._limit, self._option)
        return answer


def bound(session: Session, limit: int, option: str) -> None:
    """Limit the answers of a session to ``limit`` MiB; ``option`` is the option for it."""
    transport = BoundedTransport(limit, option)
    for scheme in ("https://", "http://"):
        session.session.mount(scheme, transport)
