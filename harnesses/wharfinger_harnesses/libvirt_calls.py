"""Record calls to libvirt-python, and inject faults into them."""

import threading
from collections.abc import Callable, Sequence
from typing import Any, Final

import libvirt

from wharfinger.conformance.harness import Fault

_HANDLES: Final = (libvirt.virConnect, libvirt.virNodeDevice, libvirt.virDomain)
_NO_CALLS: Final = frozenset({"close", "name"})
#: Methods that return XML: HALF, STALE and MISSING need one of these.
_XML: Final = frozenset({"XMLDesc"})


class Calls:
    """Records calls to libvirt, and injects faults into them.

    Only connections that open between ``attach`` and ``detach`` are affected.
    """

    def __init__(self) -> None:
        self._lock: Final = threading.Lock()
        self._made: list[str] = []
        self._at: int | None = None
        self._fault: Fault | None = None
        self._released = threading.Event()
        self._libvirt_open: Callable[..., Any] | None = None
        #: The last XML that each call returned, by the text of the call.
        self._xml: dict[str, str] = {}

    def forget(self) -> None:
        """Forget the earlier answers, which the fault STALE would repeat."""
        with self._lock:
            self._xml.clear()

    def attach(self) -> None:
        """Record the calls of new connections from now on."""
        self._libvirt_open = libvirt.open
        libvirt.open = self._open

    def detach(self) -> None:
        """Restore ``libvirt.open``, and end the fault."""
        if self._libvirt_open is not None:
            libvirt.open = self._libvirt_open
            self._libvirt_open = None
        self.expect(None, None)

    @property
    def made(self) -> Sequence[str]:
        """The texts of the calls since the last ``expect``."""
        with self._lock:
            return tuple(self._made)

    def expect(self, at: int | None, fault: Fault | None) -> None:
        """Clear ``made``, and inject the fault from now on; without ``at`` into every call."""
        with self._lock:
            self._released.set()
            self._released = threading.Event()
            self._made = []
            self._at, self._fault = at, fault

    def make(self, words: str, method: str, call: Callable[[], Any]) -> Any:
        """Record a call; return its result or simulate the fault."""
        fault, released = self._noted(words)
        if fault is Fault.HANG:
            released.wait()
        if fault is Fault.STALE and words in self._xml:
            return self._xml[words]
        if fault in (None, Fault.STALE, Fault.LATE):
            answer = self._recorded(call())
            if method in _XML:
                self._xml[words] = answer
            if fault is Fault.LATE:
                released.wait()
            return answer
        if fault is Fault.HALF and method in _XML:
            xml: str = call()
            return xml[: len(xml) // 2]
        raise _device_gone() if fault is Fault.MISSING and method in _XML else _daemon_stopped()

    def _noted(self, words: str) -> tuple[Fault | None, threading.Event]:
        with self._lock:
            is_meant = self._at in (None, len(self._made))
            self._made.append(words)
            return self._fault if is_meant else None, self._released

    def _open(self, uri: str | None = None) -> Any:
        call = self._libvirt_open
        if call is None:
            raise _daemon_stopped()
        return self.make(f"open {uri}", "open", lambda: call(uri))

    def _recorded(self, answer: Any) -> Any:
        if isinstance(answer, list):
            return [self._recorded(one) for one in answer]
        return _RecordedHandle(answer, self) if isinstance(answer, _HANDLES) else answer


class _RecordedHandle:
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


def _daemon_stopped() -> libvirt.libvirtError:
    code, domain = libvirt.VIR_ERR_INTERNAL_ERROR, libvirt.VIR_FROM_RPC
    return _error(code, domain, "internal error: %s", "client socket is closed")


def _device_gone() -> libvirt.libvirtError:
    code, domain = libvirt.VIR_ERR_NO_NODE_DEVICE, libvirt.VIR_FROM_NODEDEV
    return _error(code, domain, "Node device not found: %s", "no node device with that name")


def _error(code: int, domain: int, text: str, reason: str) -> libvirt.libvirtError:
    message = text % reason
    error = libvirt.libvirtError(message)
    # The constructor of libvirtError sets both from the last error of the thread.
    error.args = (message,)
    error.err = (code, domain, message, libvirt.VIR_ERR_ERROR, text, reason, None, -1, -1)
    return error
