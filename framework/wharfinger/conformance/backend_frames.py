"""Find out whether code of the harness runs."""

import sys
from pathlib import Path
from types import FrameType
from typing import Final

from wharfinger.conformance.backend_proxy import Proxy
from wharfinger.conformance.harness import Harness

#: The file of the function that calls a driver's method for the kit.
_OBSERVED: Final = str(Path(__file__).with_name("driver_observer.py"))


class BackendFrames:
    """Recognizes stack frames that run code of the harness."""

    def __init__(self, harness: Harness | None, driver_class: type) -> None:
        own = getattr(harness, "_harness", harness)
        parts = [] if own is None else [own, *vars(own).values()]
        self._ids: Final = {id(one) for one in parts if one is not None}
        self._proxies: Final = [one for one in parts if isinstance(one, Proxy)]
        theirs = {_file_of(kind) for kind in driver_class.__mro__}
        self._file: Final = None if _file_of(type(own)) in theirs else _file_of(type(own))

    def is_running(self, frame: FrameType | None) -> bool:
        """Return whether a frame, or a caller of it, runs code of the harness."""
        while frame is not None and frame.f_code.co_filename != _OBSERVED:
            if id(frame.f_locals.get("self")) in self._ids:
                return True
            if frame.f_code.co_filename == self._file:
                return True
            frame = frame.f_back
        return False

    def is_answering(self) -> bool:
        """Return whether the harness may be answering a call now."""
        if any(one.has_open_calls for one in self._proxies):
            return True
        return any(map(self.is_running, sys._current_frames().values()))


def _file_of(kind: type) -> str | None:
    return getattr(sys.modules.get(kind.__module__), "__file__", None)
