"""An HTTP proxy between a driver and its backend, which records calls and injects faults."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from wharfinger.conformance.backend_proxy_server import CallFault, Relay
from wharfinger.conformance.fault import Fault

#: Seconds between two checks of whether the server has to stop.
_PAUSE: Final = 0.02


@dataclass
class _Expected:
    at: int | None = None
    fault: Fault | None = None
    calls: list[str] = field(default_factory=list)
    #: Set by the next ``expect``.
    over: threading.Event = field(default_factory=threading.Event)


class Proxy:
    """Passes a driver's calls on to the backend at ``url``, and injects faults.

    Configure the driver with the URL of the proxy. The faults have these effects:

    - RAISE resets the connection.
    - HANG resets the connection at the next ``expect``.
    - ERROR, DENIED, FORBIDDEN and MISSING answer 503, 401, 403 and 404.
    - HALF passes the call on, and returns half of the answer's body. If there is no body, it
      resets the connection.
    - STALE repeats the last answer to the same GET or HEAD request. A call without one passes.
    - LATE passes the call on, and returns the answer at the next ``expect``.

    If the backend is down, the proxy resets the connection. It answers 411 to a chunked request
    body.
    """

    #: The URL for the driver in place of the backend's; the same from ``start`` to ``stop``.
    url: str

    def __init__(self, url: str) -> None:
        self._backend = urlsplit(url)
        self._lock = threading.Lock()
        self._expected = _Expected()
        self._relay: Relay | None = None

    def start(self) -> None:
        """Listen on a free port of 127.0.0.1."""
        self._relay = Relay(self._backend.netloc, self._next)
        self.url = self._backend._replace(netloc=f"127.0.0.1:{self._relay.server_port}").geturl()
        threading.Thread(target=self._relay.serve_forever, args=(_PAUSE,), daemon=True).start()

    def stop(self) -> None:
        """Stop listening, and release the calls that hang."""
        self.expect()
        if self._relay is not None:
            self._relay.shutdown()
            self._relay.server_close()
            self._relay = None

    def expect(self, at: int | None = None, fault: Fault | None = None) -> None:
        """Clear ``calls``, release calls that hang, and inject ``fault`` from now on.

        The call with the index ``at``, counted from 0, meets the fault; with None, every call.
        """
        with self._lock:
            before, self._expected = self._expected, _Expected(at, fault)
        before.over.set()

    def forget(self) -> None:
        """Forget the answers so far, so that STALE repeats none of them."""
        if self._relay is not None:
            self._relay.forget()

    @property
    def calls(self) -> Sequence[str]:
        """The driver's calls since the last ``expect``, such as "GET /v1/nodes?limit=10"."""
        with self._lock:
            return tuple(self._expected.calls)

    @property
    def has_open_calls(self) -> bool:
        """Whether a call has not been answered yet."""
        return self._relay is not None and self._relay.has_open_calls

    def _next(self, call: str) -> CallFault:
        with self._lock:
            expected = self._expected
            is_met = expected.at is None or expected.at == len(expected.calls)
            expected.calls.append(call)
        return CallFault(expected.fault if is_met else None, expected.over)
