"""A proxy between a client and a real HTTP service, which records requests and injects faults."""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import requests
import webob

from tests.lab.faults import Answer, Ending, Fault, Interceptor, Where
from wharfinger_harnesses.daemons import TIMEOUT

_GET: Final = frozenset({"GET"})
#: Headers of a connection, which a proxy does not forward.
_OF_CONNECTION: Final = frozenset(
    {"connection", "content-encoding", "content-length", "host", "keep-alive", "transfer-encoding"}
)


@dataclass(frozen=True)
class Asked:
    """A request that was answered, and the number of nodes in the answer."""

    path: str
    rows: int

    @property
    def query(self) -> dict[str, str]:
        """Return the parameters of the query."""
        given = parse_qs(urlsplit(self.path).query, keep_blank_values=True)
        return {name: value for name, [value] in given.items()}


class Between(Interceptor):
    """A proxy for the service at ``url``, which records the answered requests in ``asked``.

    ``expect`` injects a fault into a request. ``replace``, ``act`` and ``is_slow`` change an answer
    in other ways.
    """

    def __init__(self, url: str) -> None:
        super().__init__(self._forward)
        self._service = url
        self.asked: list[Asked] = []

    def expect(self, where: Where | None = None, fault: Fault | None = None) -> None:
        super().expect(where, fault)
        self.asked.clear()

    def replace(
        self, where: Where, change: Callable[[Answer], Answer], *, each_time: bool = False
    ) -> None:
        """Replace the answer to a request by the result of ``change`` for the service's answer.

        The first request of ``where`` gets it; with ``each_time``, every one.
        """
        self.expect(
            where, Fault("replaced", "", answer=change, carried_out=_GET, persistent=each_time)
        )

    def act(self, where: Where, action: Callable[[], object]) -> None:
        """Run an action after a request was answered and before the client receives the answer."""

        def change(answer: Answer) -> Answer:
            action()
            return answer

        self.replace(where, change)

    def is_slow(self, where: Where) -> None:
        """Delay the answer to a request until the client gives up."""
        self.expect(where, Fault("slow", "", Ending.LATE, carried_out=_GET))

    @property
    def rows(self) -> list[int]:
        """The number of nodes in each recorded answer."""
        return [one.rows for one in self.asked]

    def _forward(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        content = forward(self._service, environ, start_response)
        self.asked.append(Asked(webob.Request(environ).path_qs, _rows(content)))
        return [content]


def forward(url: str, environ: dict[str, Any], start_response: Any) -> bytes:
    """Forward a WSGI request to a service; return the body of its answer."""
    request = webob.Request(environ)
    answer = requests.request(
        request.method,
        f"{url}{request.path_qs}",
        data=request.body,
        headers=_passed_on(request.headers.items()),
        timeout=TIMEOUT,
        allow_redirects=False,
    )
    headers = _passed_on(answer.headers.items())
    start_response(f"{answer.status_code} {answer.reason}", list(headers.items()))
    return answer.content


def edited(change: Callable[[Any], object]) -> Callable[[Answer], Answer]:
    """Return a function for ``replace`` that lets ``change`` edit the JSON of an answer."""

    def edit(answer: Answer) -> Answer:
        content = json.loads(answer.body)
        change(content)
        return replace(answer, body=json.dumps(content).encode())

    return edit


def _passed_on(headers: Iterable[tuple[str, str]]) -> dict[str, str]:
    return {name: value for name, value in headers if name.lower() not in _OF_CONNECTION}


def _rows(content: bytes) -> int:
    try:
        return len(json.loads(content)["nodes"])
    except (KeyError, TypeError, ValueError):
        return 0
