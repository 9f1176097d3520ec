"""Run full cycles in processes of their own, which are killed with SIGKILL at a boundary.

There is a boundary before and after each request that writes to Placement, and before and after
each write to the framework's database. If another process keeps the database objects, it is before
each request to that process and after its answer. A first process that is not killed reports its
boundaries; one process after the other is then killed at each of them.

The processes are forked from a server that has imported everything already, since the test process
has threads. They send HTTP requests to the Placement of the test process.
"""

import json
import multiprocessing
import os
import re
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

import fixtures
from keystoneauth1.adapter import Adapter

from tests.lab import soundness, worlds
from tests.lab.cycles import Publishing, allocate, everything
from tests.lab.database_writes import DatabaseWrites
from tests.lab.drivers import Edit
from tests.lab.moments import Moments
from tests.lab.objects import Asking, asking, decoded, elsewhere
from tests.lab.placement import PlacementFixture, RecordingAdapter, adapter_to
from tests.lab.sqlite import WithoutSync
from tests.lab.worlds import Host, World
from wharfinger.exceptions import WharfingerError
from wharfinger.objects import ComputeNodeList, RecordBatch, WharfingerObject
from wharfinger.providers.provider import decode

MARKS: Final = frozenset({"OWNER_NOVA", "CUSTOM_WHARFINGER_SCRIPTED"})
CONSUMER: Final = "6f9de2f4-9d0c-4d0f-a4a6-0c2c5b1f7d31"
#: Seconds to wait for a process. A full cycle takes tenths of a second.
TIMEOUT: Final = 60.0

_CONTEXT: Final = multiprocessing.get_context("forkserver")
# __main__ too, or each process would import it.
_CONTEXT.set_forkserver_preload(["__main__", __name__])

_UUID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_NAME: Final = WharfingerObject._obj_primitive_key("name")
_DATA: Final = WharfingerObject._obj_primitive_key("data")


@dataclass(frozen=True, kw_only=True)
class Act:
    """A change of what the driver reports, which the killed process publishes."""

    #: The worlds that are published before, one after the other.
    before: tuple[World, ...]
    #: The world of the killed process.
    after: World
    #: The number of its full cycles.
    syncs: int = 1
    #: The consumer's allocations: amounts by provider name and class.
    held: Mapping[str, dict[str, int]] = field(default_factory=dict)


def _without(host: Edit, *names: str) -> Host:
    assert isinstance(host, Host)
    return replace(host, devices=tuple(one for one in host.devices if one.name not in names))


#: Leave out devices that are created in the same way as another one.
_ONE_OF_EACH: Final[World] = {"cn": _without(worlds.HOST["cn"], "gpu-0", "gpu-3", "gpu-4", "gpu-6")}

ACTS: Final[Mapping[str, Act]] = {
    "created": Act(before=(), after=_ONE_OF_EACH),
    "changed": Act(
        before=(worlds.HOST,),
        after=worlds.HOST_CHANGED,
        held={"gpu-3": {"VGPU": 2}, "cn": {"VCPU": 1}},
    ),
    # The framework removes a provider after two listings without it.
    "shrunk": Act(
        before=(worlds.HOST, worlds.HOST_CHANGED),
        after=worlds.HOST_SHRUNK,
        syncs=2,
        held={"gpu-3": {"VGPU": 2}, "cn": {"VCPU": 1}},
    ),
    "fleet changed": Act(
        before=(worlds.FLEET,), after=worlds.FLEET_CHANGED, held={"fpga-3": {"FPGA": 1}}
    ),
}


@dataclass(frozen=True)
class Ended:
    """The exit code of a process (a negative code is a signal), and the boundaries it passed."""

    code: int | None
    boundaries: tuple[str, ...]


def run(play: Callable[..., None], *args: Any, kill_at: int | None = None) -> Ended:
    """Run ``play`` in a new process that kills itself at the boundary ``kill_at``, from 0.

    ``play`` gets the arguments, a pipe to which it sends the passed boundaries, the ``port`` of the
    process that keeps the database objects (or None), and ``kill_at``.
    """
    receiver, sender = _CONTEXT.Pipe(duplex=False)
    way = asking()
    process = _CONTEXT.Process(
        target=play,
        args=(*args, sender),
        kwargs={"port": None if way is None else way.port, "kill_at": kill_at},
    )
    process.start()
    sender.close()
    try:
        with receiver:
            boundaries = receiver.recv() if receiver.poll(TIMEOUT) else ()
    except EOFError:  # the process failed
        boundaries = ()
    process.join(TIMEOUT)
    code = process.exitcode
    if code is None:
        process.kill()
        process.join()
    process.close()
    if way is not None:
        way.settle()
    return Ended(code, tuple(boundaries))


class Killing(fixtures.Fixture):
    """Repeats an act of ACTS, each time from the same initial state.

    The set-up runs it once without a kill: ``boundaries`` has the boundaries of that process,
    ``old`` and ``new`` the contents of Placement before and after it.
    """

    def __init__(self, placement: PlacementFixture, url: str, directory: Path, act: str) -> None:
        super().__init__()
        self._placement = placement
        self._url = url
        self._state = directory / "state"
        self._name = act
        self._act = ACTS[act]

    def _setUp(self) -> None:
        for world in ({}, *self._act.before):
            with self._publishing(world) as publishing:
                outcome = publishing.cycle.sync()
                assert not outcome.problems, outcome.problems
        if self._act.held:
            allocate(self._placement, CONSUMER, "1.39", **self._act.held)
        self._moments = Moments(self._state)
        self._beginning = self._moments.take()
        self.old, self._old_nodes = everything(), self._nodes()
        ended = self.play()
        assert ended.code == 0, "its traceback is on standard error"
        self.boundaries = ended.boundaries
        self.new, self._new_nodes = everything(), self._nodes()

    def play(self, kill_at: int | None = None) -> Ended:
        """Restore the initial state, and run the act in a process; kill it at this boundary."""
        self._moments.go_back(self._beginning)
        return run(_play, self._name, self._url, self._state, kill_at=kill_at)

    def faults(self, *, back: bool = False) -> list[str]:
        """Return the faults of Placement now, the problems of the next cycles, and later faults.

        With ``back``, the driver reports the world from before the act again.
        """
        world, expected, nodes = self._act.after, self.new, self._new_nodes
        if back:
            world, expected, nodes = self._act.before[-1], self.old, self._old_nodes
        faults = soundness.faults(self.old, self.new, everything(), MARKS)
        try:
            for _ in range(self._act.syncs):
                with self._publishing(world) as publishing:
                    faults += map(str, publishing.cycle.sync().problems)
            if everything() != expected:
                faults.append(f"Placement has {everything()}")
            if self._nodes() != nodes:
                faults.append(f"the rows of the nodes are {self._nodes()}")
            with self._publishing(world) as publishing:
                plan = publishing.cycle.plan()
        except WharfingerError as error:
            return [*faults, str(error)]
        return [
            *faults,
            *(f"then still: {step.verb} {step.name}" for step in plan.steps),
            *(f"then still: {one.name}: {one.reason}" for one in plan.pending),
            *map(str, plan.problems),
        ]

    def _nodes(self) -> dict[str, tuple[int, str]]:
        """Return the VCPUs and the uuid in the row of each node, by name."""
        with self._publishing({}) as publishing:
            rows = ComputeNodeList.get_by_filters(publishing.context)
            return {row.hypervisor_hostname: (row.vcpus, row.uuid) for row in rows}

    @contextmanager
    def _publishing(self, world: World) -> Iterator[Publishing]:
        with Publishing(self._placement, self._state) as publishing:
            publishing.driver.nodes = dict(world)
            yield publishing


class Boundaries:
    """Records the boundaries that this process passes, and kills it at one of them."""

    def __init__(self, kill_at: int | None, report: Connection) -> None:
        self._kill_at = kill_at
        self._report = report
        self._lock = threading.Lock()
        self.passed: list[str] = []

    def reach(self, name: str) -> None:
        with self._lock:
            count = Counter(each.partition(" #")[0] for each in self.passed)[name] + 1
            self.passed.append(f"{name} #{count}" if count > 1 else name)
            if len(self.passed) - 1 == self._kill_at:
                self._report.send(self.passed)
                os.kill(os.getpid(), signal.SIGKILL)


class _Boundaries(Boundaries):
    """Names the boundaries of a cycle by the providers that it writes."""

    def __init__(self, kill_at: int | None, report: Connection) -> None:
        super().__init__(kill_at, report)
        self._names: dict[str, str] = {}

    @contextmanager
    def around(self, what: str, before: str, after: str) -> Iterator[None]:
        self.reach(f"{what}: {before}")
        yield
        self.reach(f"{what}: {after}")

    def writing(self, name: str, work: object) -> AbstractContextManager[None]:
        """Return a context with boundaries before and after a transaction of the database."""
        if not isinstance(work, RecordBatch):
            return self._saving(name)
        for record in work.records:
            side = record.intended or record.applied or record.live
            self._names[record.provider_uuid] = decode(side).name if side else record.provider_uuid
        uuids = [*(record.provider_uuid for record in work.records), *work.forgotten]
        return self._saving(f"{name}: {self._called(uuids)}" if uuids else name)

    def asking(self, question: Any) -> AbstractContextManager[None]:
        """Return a context with boundaries around a request to the process with the objects.

        A request that only reads has no boundaries.
        """
        method: str = question.get("method", "get_")  # a request for versions has no method
        if method.startswith("get_"):
            return nullcontext()
        about = question.get("name") or question["object"][_NAME]
        return self._saving(f"{method} {about}")

    def _saving(self, what: str) -> AbstractContextManager[None]:
        return self.around(what, "to be saved", "saved")

    def sending(self, method: str, path: str, body: bytes) -> AbstractContextManager[None]:
        what = f"{method} {_UUID.sub(lambda match: self._called([match[0]]), path)}"
        if path == "/resource_providers":
            what += f" {json.loads(body)['name']}"
        elif method == "POST":
            uuids = dict.fromkeys(_UUID.findall(body.decode()))
            what += f" {self._called(uuids)}"
        return self.around(what, "to be sent", "answered")

    def _called(self, uuids: Iterable[str]) -> str:
        return ", ".join(self._names.get(uuid, uuid) for uuid in uuids)


class _Watched:
    """A keystoneauth adapter with a boundary before and after each writing request."""

    def __init__(self, adapter: Adapter, boundaries: _Boundaries) -> None:
        self._adapter = adapter
        self._boundaries = boundaries

    def request(self, path: str, method: str, **kwargs: Any) -> Any:
        if method == "GET":
            return self._adapter.request(path, method, **kwargs)
        with self._boundaries.sending(method, path, kwargs.get("data", b"")):
            return self._adapter.request(path, method, **kwargs)


class _PlacementOverHTTP(PlacementFixture):
    """A client in this process for the Placement that the test process serves over HTTP."""

    def __init__(self, url: str, boundaries: _Boundaries) -> None:
        fixtures.Fixture.__init__(self)
        self._adapter = adapter_to(url)
        self._boundaries = boundaries

    def _setUp(self) -> None:
        self.adapter = RecordingAdapter(_Watched(self._adapter, self._boundaries))
        self.client = self.new_client()
        self.requests = self.adapter.requests


class _WatchedDatabase(fixtures.Fixture):
    """Adds boundaries before and after each write to the framework's database."""

    def __init__(self, boundaries: _Boundaries) -> None:
        super().__init__()
        self._boundaries = boundaries

    def _setUp(self) -> None:
        # Not "touch", since service reports depend on the time.
        verbs = ("insert", "update", "delete", "write")
        self.useFixture(DatabaseWrites(self._boundaries.writing, verbs))


class _WatchedAsking(Asking):
    """Adds boundaries to the requests that write objects in the process that keeps them."""

    def __init__(self, port: int, boundaries: _Boundaries) -> None:
        super().__init__(port)
        self._boundaries = boundaries

    def send(self, question: bytes, directory: Path | None = None) -> bytes:
        with self._boundaries.asking(decoded(question)):
            return super().send(question, directory)


def _play(
    act: str, url: str, state: Path, report: Connection, *, port: int | None, kill_at: int | None
) -> None:
    """Run the full cycles of an act in this process, with boundaries.

    ``port`` is that of the process that keeps the database objects, None for this process.
    """
    boundaries = _Boundaries(kill_at, report)
    with (
        WithoutSync(),
        _WatchedDatabase(boundaries),
        nullcontext() if port is None else elsewhere(_WatchedAsking(port, boundaries)),
        _PlacementOverHTTP(url, boundaries) as placement,
        Publishing(placement, state) as publishing,
    ):
        publishing.driver.nodes = dict(ACTS[act].after)
        for _ in range(ACTS[act].syncs):
            outcome = publishing.cycle.sync()
            assert not outcome.problems, outcome.problems
    report.send(boundaries.passed)
