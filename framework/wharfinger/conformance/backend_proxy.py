"""A proxy between a driver and its HTTP backend: counts the calls, and breaks them.

A harness configures its driver with the URL of the proxy in place of the backend's. The harness
itself calls the backend directly: the proxy neither counts nor breaks its calls.
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from wharfinger.conformance.backend_proxy_server import Fate, Relay
from wharfinger.conformance.fault import Fault

#: Seconds between two looks whether to stop.
_PAUSE: Final = 0.02


@dataclass
class _Expected:
    """The fault for the calls from one ``expect`` to the next, and these calls."""

    at: int | None = None
    fault: Fault | None = None
    calls: list[str] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)


class Proxy:
    """Passes calls on to the backend whose root is ``url``, unless they meet a fault.

    RAISE resets the connection. HANG leaves the call unanswered until the next ``expect``, and
    resets the connection then. ERROR answers 503 and DENIED 401, with the body ``{}``. The backend
    sees none of these calls. HALF passes a call on, and returns the first half of the answer's body
    as if it were the whole: only the content shows that. Without a body, it resets the connection
    after the call. STALE returns the last answer to the same request (method, path and conditions)
    again, and the backend does not see the call. A call that changes the backend passes, and so
    does a request without an earlier answer. LATE passes a call on at once, and the answer back at
    the next ``expect``.

    If the backend is down, calls are reset, too. The proxy serves any number of clients at once,
    each call on a connection of its own. It refuses a request whose body comes without its length
    (411).
    """

    #: The URL for the driver in place of the backend's; the same from ``start`` to ``stop``.
    url: str

    def __init__(self, url: str) -> None:
        self._backend = urlsplit(url)
        self._lock = threading.Lock()
        self._expected = _Expected()
        self._relay: Relay | None = None

    def start(self) -> None:
        """Listen on a free port of 127.0.0.1; the backend need not run yet."""
        self._relay = Relay(self._backend.netloc, self._next)
        self.url = self._backend._replace(netloc=f"127.0.0.1:{self._relay.server_port}").geturl()
        threading.Thread(target=self._relay.serve_forever, args=(_PAUSE,), daemon=True).start()

    def stop(self) -> None:
        """Stop listening, and reset the calls that wait; does nothing before ``start``."""
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
        """Count a call, and return the fault that it meets."""
        with self._lock:
            expected = self._expected
            is_met = expected.at is None or expected.at == len(expected.calls)
            expected.calls.append(call)
        return Fate(expected.fault if is_met else None, expected.over)
