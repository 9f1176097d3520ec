"""A simulated HTTP service, for tests of a client without the real service."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Final

import webob

from tests.lab.faults import Answer, Fault, Interceptor

#: Returns the status and the JSON data for a path and the parameters of its query.
Serve = Callable[[str, dict[str, str]], tuple[int, Any]]
#: Returns a wrong answer in place of the correct one.
Change = Callable[[Answer], Answer]
_EVERY: Final = frozenset({"GET", "PATCH"})
#: The sign-in page of a proxy.
HTML: Final = b"<html><body><h1>Sign in</h1></body></html>"


def body(content: bytes) -> Change:
    """Return a Change that replaces the body of the answer."""
    return lambda answer: replace(answer, body=content)


class StubService(Interceptor):
    """Serves the answers of ``serve`` over HTTP; ``expect`` and ``replace`` change one of them."""

    def __init__(self, serve: Serve) -> None:
        def application(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
            request = webob.Request(environ)
            status, content = serve(request.path, dict(request.GET))
            answer = webob.Response(status=status, json_body=content, charset="UTF-8")
            answer.headers["Date"] = "Thu, 01 Jan 2026 00:00:00 GMT"
            found: Iterable[bytes] = answer(environ, start_response)
            return found

        super().__init__(application)

    def replace(self, at: int, change: Change) -> None:
        """Change the answer to the request with the index ``at``, counted from 0."""
        self.expect(at, Fault("replaced", "", answer=change, carried_out=_EVERY))
