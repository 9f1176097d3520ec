"""Run claims and releases of instances, and let another actor act between any two of their steps.

The steps of a claim are its requests to Placement and its calls to the database. Reads are steps,
too: another process may change the answer before the next step.
"""

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Barrier
from typing import Any, Final, TypeVar

import fixtures
import pytest

from tests.lab.allocating import Desk, faults, flavor, held
from tests.lab.cycles import Publishing, everything
from tests.lab.database_writes import DatabaseWrites
from tests.lab.moments import Moments
from tests.lab.objects import opened
from tests.lab.placement import PlacementFixture
from tests.lab.reserving import Crash, Passing, is_full
from wharfinger.db.database import Database
from wharfinger.exceptions import NoCandidates
from wharfinger.objects import Context, InstanceList, MigrationList

_T = TypeVar("_T")

#: Methods of the database with which claims read.
_READS: Final = ("select", "revisions", "read")
#: Methods of the database with which claims write.
_WRITES: Final = ("insert", "update", "delete", "replace", "write")


class Boundaries(Passing):
    """Boundaries before and after each request to Placement and each database call that writes.

    With ``reads``, reading requests and calls have boundaries, too. See Passing for what can happen
    at a boundary: a crash, or the whole of ``act``.
    """

    def __init__(self, placement: PlacementFixture, *, reads: bool = False, **what: Any) -> None:
        super().__init__(placement, **what)
        self._reads = reads

    def _setUp(self) -> None:
        adapter = self._placement.adapter
        self.addCleanup(setattr, adapter, "before", adapter.before)
        self.addCleanup(setattr, adapter, "after", adapter.after)
        adapter.before = lambda method, path: self._request("before", method, path)
        adapter.after = lambda method, path: self._request("after", method, path)
        self.useFixture(DatabaseWrites(self._around, _WRITES))
        for name in _READS if self._reads else ():
            self._watch(name, getattr(Database, name))

    @contextmanager
    def _around(self, name: str, _work: object) -> Iterator[None]:
        self._reach(f"before {name}")
        yield
        self._reach(f"after {name}")

    def _watch(self, name: str, call: Callable[..., Any]) -> None:
        def called(database: Database, table: str, *args: Any, **kwargs: Any) -> Any:
            self._reach(f"before {name} {table}")
            answer = call(database, table, *args, **kwargs)
            self._reach(f"after {name} {table}")
            return answer

        path = f"{Database.__module__}.{Database.__qualname__}.{name}"
        self.useFixture(fixtures.MonkeyPatch(path, called))

    def _request(self, when: str, method: str, path: str) -> None:
        if self._reads or method != "GET":
            self._reach(f"{when} {method} {path.partition('?')[0]}")


def between(passed: list[str]) -> list[tuple[int, str]]:
    """Return the numbers and names of the boundaries, without a "before" that follows an "after".

    Nothing happens between the end of a step and the start of the next one.
    """
    return [
        (number, name)
        for number, name in enumerate(passed)
        if number == 0 or name.startswith("after") or not passed[number - 1].startswith("after")
    ]


class Rehearsal:
    """Repeats an act from the same initial state, each time with another interruption.

    A first run finds the boundaries of the act. ``passed`` has all of them, ``steps`` those of
    ``between``.
    """

    def __init__(
        self,
        placement: PlacementFixture,
        state_path: Path,
        act: Callable[[], object],
        *,
        reads: bool = False,
    ) -> None:
        self._placement, self._act, self._reads = placement, act, reads
        self._moments = Moments(state_path)
        self._beginning = self._moments.take()
        with Boundaries(placement, reads=reads) as whole:
            act()
        self.passed = whole.passed
        self.steps = between(whole.passed)
        self.go_back()

    def go_back(self) -> None:
        """Restore the initial state of Placement and the database."""
        self._moments.go_back(self._beginning)

    def die(self, number: int) -> None:
        """Run the act from the initial state until it crashes at a boundary, by its number."""
        self.go_back()
        crashing = Boundaries(self._placement, reads=self._reads, crash_at=number)
        with crashing, pytest.raises(Crash):
            self._act()

    def die_at(self, name: str) -> None:
        """Run the act from the initial state until it crashes at the first boundary ``name``."""
        self.die(self.passed.index(name))

    def interrupted(self, number: int, act: Callable[[], object]) -> Any:
        """Run the act of this rehearsal, and ``act`` at a boundary; return the first result."""
        self.go_back()
        with Boundaries(self._placement, reads=self._reads, act_at=number, act=act):
            return self._act()


class Posts(fixtures.Fixture):
    """Records the bodies of all POST /allocations in ``bodies``.

    ``before`` is called before each of these requests, ``after`` when it was answered.
    """

    def __init__(self, placement: PlacementFixture) -> None:
        super().__init__()
        self._placement = placement
        self.bodies: list[dict[str, Any]] = []
        self.before: Callable[[dict[str, Any]], object] = lambda body: None
        self.after: Callable[[dict[str, Any]], object] = lambda body: None

    def _setUp(self) -> None:
        adapter = self._placement.adapter
        self._adapter = adapter._adapter
        self.addCleanup(setattr, adapter, "_adapter", self._adapter)
        adapter._adapter = self

    def request(self, path: str, method: str, **kwargs: Any) -> Any:
        """Forward a request to Placement, and record it if it is a POST /allocations."""
        if (method, path) != ("POST", "/allocations"):
            return self._adapter.request(path, method, **kwargs)
        body: dict[str, Any] = json.loads(kwargs["data"])
        self.bodies.append(body)
        self.before(body)
        answer = self._adapter.request(path, method, **kwargs)
        self.after(body)
        return answer


def providers_of(body: dict[str, Any]) -> list[str]:
    """Return the uuids of the providers in a body of POST /allocations."""
    return [uuid for consumer in body.values() for uuid in consumer["allocations"]]


def unknown(context: Context) -> set[str]:
    """Return the uuids of the consumers with an allocation that are no instance."""
    return held().keys() - {one.uuid for one in InstanceList.get_by_filters(context)}


def there_are(context: Context) -> list[str]:
    """Return the uuids of all instances."""
    return [one.uuid for one in InstanceList.get_by_filters(context)]


def nothing_is_left(context: Context) -> bool:
    """Return whether there is no allocation, no instance and no move in progress."""
    moves = [one for one in MigrationList.get_by_filters(context) if one.is_in_progress]
    return (held(), there_are(context), moves) == ({}, [], [])


def reserved(placement: PlacementFixture) -> set[str]:
    """Return the names of the providers that are fully reserved."""
    return {name for name in everything() if is_full(placement, name)}


def together(works: list[Callable[[], _T]]) -> list[_T | Exception]:
    """Run functions in threads that start at the same time; return results or NoCandidates."""
    start = Barrier(len(works), timeout=60)

    def begin(work: Callable[[], _T]) -> _T | Exception:
        start.wait()
        try:
            return work()
        except NoCandidates as error:
            return error

    with ThreadPoolExecutor(len(works)) as pool:
        return list(pool.map(begin, works))


def warm(desk: Desk) -> None:
    """Claim and release an instance, so that the caches of the desk are filled."""
    desk.claims.release(desk.claim(flavor("small")).instance.uuid)


@contextmanager
def anew(publishing: Publishing) -> Iterator[Desk]:
    """Yield a desk with a new client and database connection, as in a new process."""
    context = opened(publishing.state_path)
    try:
        with Desk(publishing.placement.new_client(), context) as desk:
            yield desk
    finally:
        context.close()


def settled(publishing: Publishing) -> list[str]:
    """Run a drift cycle; return the faults of the allocations, and the problems of the cycle."""
    problems = publishing.cycle.drift().problems
    return [*faults(publishing.context), *map(str, problems)]
