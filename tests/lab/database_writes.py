"""Count and interrupt the transactions of the framework's database."""

import threading
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

import fixtures

from wharfinger.db.database import Database
from wharfinger.objects import RecordBatch

#: Methods of the database that write, one transaction each; ``touch`` reports a service.
VERBS: Final = ("insert", "update", "delete", "replace", "touch", "write")


class DatabaseWrites(fixtures.Fixture):
    """Runs each writing transaction inside the context that ``around`` returns.

    ``around`` gets the name of the transaction: the method and the table ("insert instances"), or
    that of the first change of a RecordBatch ("delete reservations"). It also gets the batch.
    """

    def __init__(
        self,
        around: Callable[[str, object], AbstractContextManager[None]],
        verbs: Collection[str] = VERBS,
    ) -> None:
        super().__init__()
        self._around = around
        self._verbs = verbs
        self._thread = threading.local()

    def _setUp(self) -> None:
        for verb in VERBS:  # also the unwatched ones, since they call ``write``
            watched = self._watched(verb, getattr(Database, verb))
            path = f"{Database.__module__}.{Database.__qualname__}.{verb}"
            self.useFixture(fixtures.MonkeyPatch(path, watched))

    def _watched(self, verb: str, write: Callable[..., Any]) -> Callable[..., Any]:
        def watched(database: Database, tables: Any, *args: Any, **kwargs: Any) -> Any:
            if getattr(self._thread, "is_within", False):
                return write(database, tables, *args, **kwargs)
            self._thread.is_within = True
            try:
                if verb not in self._verbs:
                    return write(database, tables, *args, **kwargs)
                work = getattr(args[0], "__self__", None) if verb == "write" else None
                name = f"{verb} {tables}" if work is None else name_of(work)
                with self._around(name, work):
                    return write(database, tables, *args, **kwargs)
            finally:
                self._thread.is_within = False

        return watched


class Transactions(fixtures.Fixture):
    """Records the names of all transactions in ``reads`` and ``writes``.

    Service reports (``touch``) are not recorded, since their time depends on an interval.
    """

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[str] = []
        self.writes: list[str] = []

    def _setUp(self) -> None:
        self.useFixture(DatabaseWrites(self._writing, [one for one in VERBS if one != "touch"]))
        for verb in ("select", "revisions", "read"):
            path = f"{Database.__module__}.{Database.__qualname__}.{verb}"
            self.useFixture(fixtures.MonkeyPatch(path, self._reading(getattr(Database, verb))))

    def clear(self) -> None:
        self.reads.clear()
        self.writes.clear()

    def _writing(self, name: str, _work: object) -> AbstractContextManager[None]:
        self.writes.append(name)
        return nullcontext()

    def _reading(self, read: Callable[..., Any]) -> Callable[..., Any]:
        def counted(database: Database, tables: Any, *args: Any, **kwargs: Any) -> Any:
            self.reads.append(f"{read.__name__} {tables}")
            return read(database, tables, *args, **kwargs)

        return counted


def name_of(work: object) -> str:
    """Return the name of the transaction that saves an object; of a batch, the first change."""
    if not isinstance(work, RecordBatch):
        return f"save {type(work).__name__}"
    changes = {
        "insert reservations": work.new_reservations,
        "delete reservations": work.ended,
        "update reservations": work.changed_reservations,
        "insert compute_nodes": work.new_nodes,
        "write provider_records": [*work.records, *work.forgotten],
        "update compute_nodes": work.changed_nodes,
    }
    return next((name for name, those in changes.items() if those), "check rows")
