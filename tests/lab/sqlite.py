"""SQLite, quicker: tests write a great deal, and their machine does not lose its power."""

import sqlite3
from typing import Any

import fixtures
from sqlalchemy import Pool, QueuePool, event


class WithoutSync(fixtures.Fixture):
    """Have SQLite not wait for the disk: what is written survives a process, if not a crash.

    Takes effect in all databases of this process.
    """

    def _setUp(self) -> None:
        event.listen(Pool, "checkout", _turn_off_sync)
        self.addCleanup(event.remove, Pool, "checkout", _turn_off_sync)


class StayingOpen(fixtures.Fixture):
    """Have connections stay open to the files that oslo.db is first told of from now on.

    It would connect anew for each transaction, which takes longer than most transactions. In the
    end they are closed, whoever has opened them.
    """

    def _setUp(self) -> None:
        made: list[Pool] = []

        class Unlimited(QueuePool):
            """As many connections as there have been at once."""

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
