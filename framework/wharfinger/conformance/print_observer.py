"""Record the text that calls to a driver print."""

import io
import logging
import os
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from tempfile import TemporaryFile
from typing import Any, Final, cast

from wharfinger.conformance.process_observer import Misuse, ProcessObserver

_NAMES: Final = {1: "stdout", 2: "stderr"}
#: The most characters of a printed text that are reported.
_LONGEST: Final = 60


class PrintObserver:
    """Records the text that calls to a driver print to stdout and stderr."""

    def __init__(self, process: ProcessObserver, package: str) -> None:
        self._process: Final = process
        self._package: Final = package
        self._redirects: Final[list[_Redirect]] = []

    def before(self, method: str) -> None:
        """Begin to record stdout and stderr."""
        for one in self._redirects:
            one.begin(self._process.own_threads)

    def after(self, method: str) -> None:
        """Restore stdout and stderr, and record the printed text."""
        for one in self._redirects:
            if text := one.end():
                self._process.note(Misuse.PRINT, f"{one.name}: {text[:_LONGEST]!r}", method)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """In the block, record the text that calls to the driver print."""
        with ExitStack() as stack:
            for number, name in _NAMES.items():
                with suppress(OSError):  # it is closed
                    self._redirects.append(stack.enter_context(_Redirect(number, name)))
            stack.enter_context(self._silent())
            yield

    @contextmanager
    def _silent(self) -> Iterator[None]:
        own = {id(one) for one in self._own_handlers()}
        handlers = [
            (one, one.stream)
            for one in filter(None, [reference() for reference in vars(logging)["_handlerList"]])
            if isinstance(one, logging.StreamHandler) and "stream" in vars(one)
        ]
        kept = logging.lastResort, logging.raiseExceptions, warnings.showwarning
        logging.lastResort = logging.NullHandler()
        logging.raiseExceptions = False  # a handler that fails prints its error to stderr
        warnings.showwarning = lambda *args, **kwargs: None
        for handler, stream in handlers:
            for redirect in self._redirects:
                if redirect.is_of(stream):
                    handler.stream = redirect.stream if id(handler) in own else io.StringIO()
        try:
            yield
        finally:
            logging.lastResort, logging.raiseExceptions, warnings.showwarning = kept
            for handler, stream in handlers:
                handler.stream = stream

    def _own_handlers(self) -> Iterator[logging.Handler]:
        for name, one in logging.root.manager.loggerDict.items():
            if name.partition(".")[0] == self._package and isinstance(one, logging.Logger):
                yield from one.handlers


class _Redirect:
    def __init__(self, number: int, name: str) -> None:
        self.name: Final = name
        self._number: Final = number
        self._size = 0

    def __enter__(self) -> "_Redirect":
        self._kept = os.dup(self._number)
        self._file = TemporaryFile()
        self._bytes = _SplitOutput(self._number, self._kept, self._file.fileno())
        # There is no buffer: each thread writes its own text.
        raw = cast(io.BufferedWriter, self._bytes)
        self.stream = io.TextIOWrapper(raw, "utf-8", "replace", write_through=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._bytes.end()  # a handler of the driver may still write to the stream
        self._file.close()
        os.close(self._kept)

    def is_of(self, stream: object) -> bool:
        return stream in (getattr(sys, self.name), getattr(sys, f"__{self.name}__"))

    def begin(self, own_threads: set[threading.Thread]) -> None:
        self._bytes.own_threads, self._bytes.caller = own_threads, threading.current_thread()
        self._real = getattr(sys, self.name)
        self._flush()
        os.dup2(self._file.fileno(), self._number)
        setattr(sys, self.name, self.stream)

    def end(self) -> str:
        self._flush()
        os.dup2(self._kept, self._number)
        if getattr(sys, self.name) is self.stream:  # ProcessObserver reports a replaced stream
            setattr(sys, self.name, self._real)
        size = os.fstat(self._file.fileno()).st_size
        text = os.pread(self._file.fileno(), size - self._size, self._size)
        self._size = size
        return text.decode(errors="replace")

    def _flush(self) -> None:
        for stream in (self.stream, self._real, getattr(sys, f"__{self.name}__")):
            with suppress(OSError, ValueError, AttributeError):
                stream.flush()


class _SplitOutput(io.RawIOBase):
    def __init__(self, number: int, kept: int, recorded: int) -> None:
        self._number = number
        self._kept = kept
        self._recorded = recorded
        self.own_threads: set[threading.Thread] = set()
        self.caller: threading.Thread | None = None

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._number

    def end(self) -> None:
        self._kept = self._recorded = self._number

    def write(self, data: Any) -> int:
        with suppress(OSError):  # it is closed
            present = threading.current_thread()
            is_own = present is self.caller or present in self.own_threads
            os.write(self._recorded if is_own else self._kept, data)
        return len(data)
