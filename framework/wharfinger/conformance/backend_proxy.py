"""Between a driver and a backend that answers over HTTP: counts the calls, and breaks them.

For a harness whose driver finds its backend at a URL: the driver is configured with the proxy's.
The harness itself asks the backend directly: the proxy neither counts nor breaks such calls.
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from wharfinger.conformance.backend_proxy_server import Fate, Relay
from wharfinger.conformance.fault import Fault

#: Seconds between two looks whether to stop.
_PACE: Final = 0.02


@dataclass
class _Expected:
    """The fault for the calls from one ``expect`` to the next, and these calls."""

    at: int | None = None
    fault: Fault | None = None
    calls: list[str] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)


class Proxy:
    """Passes calls on to the backend whose root is ``url``, unless they are to meet a fault.

    RAISE resets the connection; HANG leaves it unanswered until the next ``expect``, and resets
    it then. ERROR answers 503 and DENIED 401, with a body that is JSON ({}). The backend sees none
    of these calls. HALF passes a call on, and the answer back with the first half of its body as if
    that were all: only who looks at the content notices. Where there is no body, it resets the
    connection after the call. STALE gives the last answer to the same request (method, path and
    conditions) once more, and the backend does not see the call. A call that changes something,
    and a request without an earlier answer, pass. LATE passes a call on at once, and the answer
    back at the next ``expect``.

    A backend that is down resets calls too. Any number of clients are served at once, each call on
    a connection of its own. The body of a request has to come with its length, or is refused (411).
    """

    #: The URL for the driver in place of the backend's; the same from ``start`` to ``stop``.
    url: str

    def __init__(self, url: str) -> None:
        self._backend = urlsplit(url)
        self._lock = threading.Lock()
        self._expected = _Expected()
        self._relay: Relay | None = None

    def start(self) -> None:
        """Listen on a free port of 127.0.0.1; the backend need not be there yet."""
        self._relay = Relay(self._backend.netloc, self._next)
        self.url = self._backend._replace(netloc=f"127.0.0.1:{self._relay.server_port}").geturl()
        threading.Thread(target=self._relay.serve_forever, args=(_PACE,), daemon=True).start()

    def stop(self) -> None:
        """Listen no more, and let go of who waits; nothing where it was not started."""
        self.expect()
        if self._relay is not None:
            self._relay.shutdown()
            self._relay.server_close()
            self._relay = None

    def expect(self, at: int | None = None, fault: Fault | None = None) -> None:
        """As ``Harness.expect``."""
        with self._lock:
            before, self._expected = self._expected, _Expected(at, fault)
        before.over.set()

    def forget(self) -> None:
        """As ``Harness.forget``."""
        if self._relay is not None:
            self._relay.forget()

    @property
    def calls(self) -> Sequence[str]:
        """As ``Harness.calls``: each as "GET /v1/nodes?limit=10"."""
        with self._lock:
            return tuple(self._expected.calls)

    def _next(self, call: str) -> Fate:
        """Count a call, and return its fate."""
        with self._lock:
            expected = self._expected
            is_met = expected.at is None or expected.at == len(expected.calls)
            expected.calls.append(call)
        return Fate(expected.fault if is_met else None, expected.over)
