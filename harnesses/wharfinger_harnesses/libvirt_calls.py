"""Count the calls of a driver to libvirt-python, and inject faults into them."""

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
    """Counts and breaks the calls of all threads to libvirt.

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
        """Forget all XML, so that STALE has none to repeat."""
        with self._lock:
            self._xml.clear()

    def attach(self) -> None:
        """Count the calls to libvirt from now on."""
        self._libvirt_open = libvirt.open
        libvirt.open = self._open

    def detach(self) -> None:
        """End the fault, release the calls that hang, and count no calls of new connections."""
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
        """Clear ``made``, and break the calls from now on, as ``Harness.expect`` describes."""
        with self._lock:
            self._released.set()
            self._released = threading.Event()
            self._made = []
            self._at, self._fault = at, fault

    def make(self, words: str, method: str, call: Callable[[], Any]) -> Any:
        """Add ``words`` to ``made``, run ``call``, and return its result.

        ``method`` is libvirt's name of the call. A fault can delay the call, return an old or
        incomplete result, or raise an error.
        """
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
        raise _missing() if fault is Fault.MISSING and method in _XML else _broken()

    def _noted(self, words: str) -> tuple[Fault | None, threading.Event]:
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
    """Stands for a connection, device or domain of libvirt, and passes its calls to Calls."""

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
    """Return the error that libvirt 9.0 raises if its daemon has stopped."""
    code, domain = libvirt.VIR_ERR_INTERNAL_ERROR, libvirt.VIR_FROM_RPC
    return _error(code, domain, "internal error: %s", "client socket is closed")


def _missing() -> libvirt.libvirtError:
    """Return the error that libvirt raises for a device that is gone."""
    code, domain = libvirt.VIR_ERR_NO_NODE_DEVICE, libvirt.VIR_FROM_NODEDEV
    return _error(code, domain, "Node device not found: %s", "no node device with that name")


def _error(code: int, domain: int, text: str, reason: str) -> libvirt.libvirtError:
    message = text % reason
    error = libvirt.libvirtError(message)
    # The constructor of libvirtError sets both from the last error of the thread.
    error.args = (message,)
    error.err = (code, domain, message, libvirt.VIR_ERR_ERROR, text, reason, None, -1, -1)
    return error
