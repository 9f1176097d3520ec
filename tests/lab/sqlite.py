"""Make SQLite faster for tests, whose data need not survive a crash of the machine."""

import sqlite3
from typing import Any

import fixtures
from sqlalchemy import Pool, QueuePool, event


class WithoutSync(fixtures.Fixture):
    """Keeps SQLite from waiting for the disk, in all databases of this process.

    Data survives the end of the process, but not a crash of the machine.
    """

    def _setUp(self) -> None:
        event.listen(Pool, "checkout", _turn_off_sync)
        self.addCleanup(event.remove, Pool, "checkout", _turn_off_sync)


class StayingOpen(fixtures.Fixture):
    """Keeps connections to SQLite files open that oslo.db opens from now on.

    Without it, oslo.db connects anew for each transaction, which takes longer than most
    transactions. The clean-up closes all connections.
    """

    def _setUp(self) -> None:
        made: list[Pool] = []

        class Unlimited(QueuePool):
            """A pool without a limit, which keeps as many connections as were used at once."""

            def __init__(self, creator: Any, **options: Any) -> None:
                super().__init__(creator, **{**options, "pool_size": 0})
                made.append(self)

        self.useFixture(fixtures.MonkeyPatch("sqlalchemy.pool.NullPool", Unlimited))
        self.addCleanup(_dispose, made)


def _dispose(pools: list[Pool]) -> None:
    for pool in pools:
        pool.dispose()


def _turn_off_sync(connection: Any, *_: object) -> None:
    if isinstance(connection, sqlite3.Connection):
        connection.execute("PRAGMA synchronous=OFF").close()
