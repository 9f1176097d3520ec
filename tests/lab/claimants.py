"""Who claims and releases at the same time: others between any two steps, and other processes.

The steps of a claim are its requests to Placement and its calls of the database, reads too: what is
decided by one of them may have changed by the next.
"""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any, Final

import fixtures

from tests.lab import killing
from tests.lab.allocating import Desk, faults, flavor, held
from tests.lab.cycles import HOST, Publishing
from tests.lab.objects import opened
from tests.lab.placement import PlacementFixture, adapter_to
from tests.lab.reserving import Passing
from tests.lab.sqlite import WithoutSync
from wharfinger.db.database import Database
from wharfinger.exceptions import WharfingerError
from wharfinger.objects import Context, InstanceList
from wharfinger.objects.context import local
from wharfinger.placement.client import PlacementClient

#: What is read and written of the database by all that claims do.
_READS: Final = ("select", "revisions")
_WRITES: Final = ("insert", "update", "delete", "replace")
#: What claims and releases raise by their contract, and how a process says that it got nothing.
REFUSALS: Final = WharfingerError


class Boundaries(Passing):
    """Those of each request to Placement and call of the database; what only reads, if ``reads``.

    Somebody else does ``act`` from beginning to end.
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
        for name in (*_WRITES, *(_READS if self._reads else ())):
            self._watch(name, getattr(Database, name))

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
    """The boundaries that differ for others: what ends is followed at once by what begins."""
    return [
        (number, name)
        for number, name in enumerate(passed)
        if number == 0 or name.startswith("after") or not passed[number - 1].startswith("after")
    ]


class Posts(fixtures.Fixture):
    """The allocations that are asked for: ``bodies`` of POST /allocations, in order.

    ``before`` is called with each when it is on its way, ``after`` when it has been answered.
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
        """Pass it on."""
        if (method, path) != ("POST", "/allocations"):
            return self._adapter.request(path, method, **kwargs)
        body: dict[str, Any] = json.loads(kwargs["data"])
        self.bodies.append(body)
        self.before(body)
        answer = self._adapter.request(path, method, **kwargs)
        self.after(body)
        return answer


def providers_of(body: dict[str, Any]) -> list[str]:
    """The uuids of the providers that somebody is to be given something of."""
    return [uuid for consumer in body.values() for uuid in consumer["allocations"]]


def unknown(context: Context) -> set[str]:
    """The consumers that have something, and of which there is no row."""
    return held().keys() - {one.uuid for one in InstanceList.get_by_filters(context)}


def claim_in_a_process() -> None:
    """What a process of its own does: it claims once when it is told to, and says what it got."""
    url, state, uuid, vcpus = sys.argv[1:]
    with WithoutSync():
        context = local(Path(state), HOST)
        with Desk(PlacementClient(adapter_to(url)), context) as desk:
            print("ready", flush=True)
            sys.stdin.readline()
            try:
                claimed = desk.claim(flavor("small", int(vcpus)), uuid=uuid)
            except REFUSALS as error:
                print(type(error).__name__, flush=True)
            else:
                print(claimed.instance.node, flush=True)


def claims_together(url: str, state: Path, uuids: list[str], vcpus: int = 1) -> dict[str, str]:
    """Have a process for each uuid claim at the same time; what each said."""
    program = f"import {__name__} as lab; lab.claim_in_a_process()"
    processes = [
        Popen(
            [sys.executable, "-c", program, url, str(state), uuid, str(vcpus)],
            cwd=Path(__file__).resolve().parents[2],
            stdin=PIPE,
            stdout=PIPE,
            text=True,
        )
        for uuid in uuids
    ]
    said = {}
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        for uuid, process in zip(uuids, processes, strict=True):
            out, _ = process.communicate(timeout=killing.TIMEOUT)
            said[uuid] = out.strip()
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    return said


def play(
    act: str,
    uuid: str,
    url: str,
    state: Path,
    report: Any,
    *,
    port: int | None,
    kill_at: int | None,
) -> None:
    """What a process does that is killed: it claims for an instance, or releases it."""
    assert port is None
    boundaries = killing._Boundaries(kill_at, report)
    with (
        WithoutSync(),
        killing._WatchedDatabase(boundaries),
        killing._PlacementOverHTTP(url, boundaries) as placement,
        Desk(placement.client, local(state, HOST)) as desk,
    ):
        if act == "claim":
            desk.claim(flavor("small"), uuid=uuid)
        else:
            desk.claims.release(uuid)
    report.send(boundaries.passed)


def warm(desk: Desk) -> None:
    """Have it know all that it asks once."""
    desk.claims.release(desk.claim(flavor("small")).instance.uuid)


@contextmanager
def anew(publishing: Publishing) -> Iterator[Desk]:
    """A desk of a process that starts now."""
    context = opened(publishing.state_path)
    try:
        with Desk(publishing.placement.new_client(), context) as desk:
            yield desk
    finally:
        context.close()


def settled(publishing: Publishing) -> list[str]:
    """What is wrong when a cycle has gone over all of it."""
    problems = publishing.cycle.drift().problems
    return [*faults(publishing.context), *map(str, problems)]
