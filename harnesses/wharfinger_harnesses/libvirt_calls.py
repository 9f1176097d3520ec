"""Observer of the calls from a driver to libvirt-python, each of which can meet a fault.

The calls are ``libvirt.open``, and all methods of the connection and of its devices and domains,
with two exceptions. libvirt does not refuse ``close``, and does not ask its daemon for ``name``.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Any, Final

import libvirt

from wharfinger.conformance.harness import Fault

_HANDLES: Final = (libvirt.virConnect, libvirt.virNodeDevice, libvirt.virDomain)
_NO_CALLS: Final = frozenset({"close", "name"})
#: Methods that answer with XML, which shows where a truncated answer ends.
_XML: Final = frozenset({"XMLDesc"})


class Calls:
    """The calls of all threads to libvirt, from ``attach`` to ``detach``."""

    def __init__(self) -> None:
        self._lock: Final = threading.Lock()
        self._made: list[str] = []
        self._at: int | None = None
        self._fault: Fault | None = None
        self._released = threading.Event()
        self._libvirt_open: Callable[..., Any] | None = None
        #: The last descriptions, by the call.
        self._xml: dict[str, str] = {}

    def forget(self) -> None:
        """Forget all descriptions."""
        with self._lock:
            self._xml.clear()

    def attach(self) -> None:
        """Observe each call from now on."""
        self._libvirt_open = libvirt.open
        libvirt.open = self._open

    def detach(self) -> None:
        """Stop observing, and release the calls that hang."""
        if self._libvirt_open is not None:
            libvirt.open = self._libvirt_open
            self._libvirt_open = None
        self.expect(None, None)

    @property
    def made(self) -> Sequence[str]:
        """The calls since the last ``expect``."""
        with self._lock:
            return tuple(self._made)

    def expect(self, at: int | None, fault: Fault | None) -> None:
        """As ``Harness.expect``."""
        with self._lock:
            self._released.set()
            self._released = threading.Event()
            self._made = []
            self._at, self._fault = at, fault

    def make(self, words: str, method: str, call: Callable[[], Any]) -> Any:
        """Make a call, unless it meets a fault; the calls of the returned object are noted, too."""
        fault, released = self._noted(words)
        if fault is Fault.HANG:
            released.wait()
        if fault is Fault.STALE and words in self._xml:
            return self._xml[words]
        if fault in (None, Fault.STALE, Fault.LATE):
            answer = self._seen(call())
            if method in _XML:
                self._xml[words] = answer
            if fault is Fault.LATE:
                released.wait()
            return answer
        if fault is Fault.HALF and method in _XML:
            xml: str = call()
            return xml[: len(xml) // 2]
        raise _broken()

    def _noted(self, words: str) -> tuple[Fault | None, threading.Event]:
        """Note a call; return its fault, and the event that releases it if it hangs."""
        with self._lock:
            is_meant = self._at in (None, len(self._made))
            self._made.append(words)
            return self._fault if is_meant else None, self._released

    def _open(self, uri: str | None = None) -> Any:
        call = self._libvirt_open
        if call is None:
            raise _broken()
        return self.make(f"open {uri}", "open", lambda: call(uri))

    def _seen(self, answer: Any) -> Any:
        if isinstance(answer, list):
            return [self._seen(one) for one in answer]
        return _Seen(answer, self) if isinstance(answer, _HANDLES) else answer


class _Seen:
    """A connection, device or domain whose calls are observed."""

    def __init__(self, handle: Any, calls: Calls) -> None:
        self._handle = handle
        self._calls = calls

    def __getattr__(self, method: str) -> Any:
        call = getattr(self._handle, method)
        if method in _NO_CALLS:
            return call
        of = "" if isinstance(self._handle, libvirt.virConnect) else f" of {self._handle.name()}"

        def make(*arguments: Any) -> Any:
            return self._calls.make(f"{method}{of}", method, lambda: call(*arguments))

        return make


def _broken() -> libvirt.libvirtError:
    """The error that libvirt raises if its daemon is gone, as seen with libvirt 9.0."""
    reason = "client socket is closed"
    message = f"internal error: {reason}"
    error = libvirt.libvirtError(message)
    # libvirt-python takes both from the thread's last error, whatever it was.
    error.args = (message,)
    error.err = (
        libvirt.VIR_ERR_INTERNAL_ERROR,
        libvirt.VIR_FROM_RPC,
        message,
        libvirt.VIR_ERR_ERROR,
        "internal error: %s",
        reason,
        None,
        -1,
        -1,
    )
    return error
