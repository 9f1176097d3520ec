"""An HTTP service that answers from tables, for tests of a client without the service."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Final

import webob

from tests.lab.faults import Answer, Fault, Interceptor

#: Returns status and JSON for a path and the parameters of the query.
Serve = Callable[[str, dict[str, str]], tuple[int, Any]]
#: Changes a correct answer.
Change = Callable[[Answer], Answer]
_EVERY: Final = frozenset({"GET", "PATCH"})
#: The sign-in page of a proxy.
HTML: Final = b"<html><body><h1>Sign in</h1></body></html>"


def body(content: bytes) -> Change:
    """Return the correct answer with another body."""
    return lambda answer: replace(answer, body=content)


class StubService(Interceptor):
    """Serves the answers of a function; ``expect`` and ``replace`` change one of them."""

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
        """Change the correct answer to the request of that number."""
        self.expect(at, Fault("replaced", "", answer=change, carried_out=_EVERY))
