"""Start servers in the background; a test waits for a server when it needs it."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractContextManager
from typing import Generic, TypeVar

import fixtures

T = TypeVar("T")


class InBackground(fixtures.Fixture, Generic[T]):
    """Enters and leaves the context of ``make``, which starts a server, in a thread of its own.

    The thread lasts as long as this fixture, since a server dies with the thread that started it.
    """

    def __init__(self, make: Callable[[], AbstractContextManager[T]]) -> None:
        super().__init__()
        self._make = make
        self._over = threading.Event()
        self._made = Future[T]()
        self._ended = Future[None]()

    def _setUp(self) -> None:
        thread = threading.Thread(target=self._run, daemon=True)
        thread.start()
        self.addCleanup(self._end)

    def ready(self) -> T:
        """Wait until the context is entered, and return its value; raise the error of ``make``."""
        return self._made.result()

    def _run(self) -> None:
        try:
            with self._make() as made:
                self._made.set_result(made)
                self._over.wait()
        except BaseException as error:
            (self._ended if self._made.done() else self._made).set_exception(error)
        if not self._ended.done():
            self._ended.set_result(None)

    def _end(self) -> None:
        self._over.set()
        self._ended.result()
