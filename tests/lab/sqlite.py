"""Make SQLite faster for tests, whose data need not survive a crash of the machine."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import fixtures

from wharfinger.conformance import quick_databases


class WithoutSync(fixtures.Fixture):
    """Keeps SQLite from waiting for the disk, in all databases of this process.

    Data survives the end of the process, but not a crash of the machine.
    """

    def _setUp(self) -> None:
        _enter(self, quick_databases.without_sync())


class StayingOpen(fixtures.Fixture):
    """Keeps connections to SQLite files open that oslo.db opens from now on.

    Without it, oslo.db connects anew for each transaction, which takes longer than most
    transactions. The clean-up closes all connections.
    """

    def _setUp(self) -> None:
        _enter(self, _staying_open())


@contextmanager
def _staying_open() -> Iterator[None]:
    with quick_databases.staying_open() as pools:
        yield
    for pool in pools:
        pool.dispose()


def _enter(fixture: fixtures.Fixture, manager: Any) -> None:
    fixture.addCleanup(manager.__exit__, None, None, None)
    manager.__enter__()
