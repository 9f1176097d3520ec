"""Syncs in processes of their own that are killed with SIGKILL at a boundary of their steps.

Boundaries are before and after each request that writes to Placement, and before and after each
write to our own database. If another process keeps the objects, they are before each request to it
and after its answer. A process that is not killed reports the boundaries that it passed; others are
then killed there. They are forked off a server that has imported everything already, since the test
process has threads, and talk HTTP to the Placement in it.
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
from wharfinger.providers.provider_record import decode

MARKS: Final = frozenset({"OWNER_NOVA", "CUSTOM_WHARFINGER_SCRIPTED"})
CONSUMER: Final = "6f9de2f4-9d0c-4d0f-a4a6-0c2c5b1f7d31"
#: Seconds; a sync takes tenths of a second.
TIMEOUT: Final = 60.0

_CONTEXT: Final = multiprocessing.get_context("forkserver")
# __main__ too, or each process would import it.
_CONTEXT.set_forkserver_preload(["__main__", __name__])

_UUID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_NAME: Final = WharfingerObject._obj_primitive_key("name")
_DATA: Final = WharfingerObject._obj_primitive_key("data")


@dataclass(frozen=True, kw_only=True)
class Act:
    """A change from one world to another. ``held`` are the consumer's amounts of each provider."""

    before: tuple[World, ...]
    after: World
    syncs: int = 1
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
    # A provider counts as absent after two listings without it.
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
    """Exit code of a process (a negative code is a signal), and the boundaries that it passed."""

    code: int | None
    boundaries: tuple[str, ...]


def run(play: Callable[..., None], *args: Any, kill_at: int | None = None) -> Ended:
    """Run ``play`` in a process that kills itself at a boundary, counted from 0.

    ``play`` receives the arguments, a connection for the boundaries that it passes, the ``port`` of
    the process that keeps the objects, and ``kill_at``.
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
    """An act that is repeated, each time from the same initial state.

    ``boundaries`` are those of a process that was not killed; ``old`` and ``new`` are the contents
    of Placement before and after it.
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
        """Restore the initial state and sync in a process; kill it at a boundary,
        counted from 0.
        """
        self._moments.go_back(self._beginning)
        return run(_play, self._name, self._url, self._state, kill_at=kill_at)

    def faults(self, *, back: bool = False) -> list[str]:
        """Return the faults now, in the next syncs, and after them.

        With ``back`` the driver reports the former world again.
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
                faults.append(f"the nodes are {self._nodes()}")
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
        """Return VCPUs and uuid of each node that has a row, by name."""
        with self._publishing({}) as publishing:
            rows = ComputeNodeList.get_by_filters(publishing.context)
            return {row.hypervisor_hostname: (row.vcpus, row.uuid) for row in rows}

    @contextmanager
    def _publishing(self, world: World) -> Iterator[Publishing]:
        with Publishing(self._placement, self._state) as publishing:
            publishing.driver.nodes = dict(world)
            yield publishing


class _Boundaries:
    """The boundaries that a process passes; it kills itself at one of them."""

    def __init__(self, kill_at: int | None, report: Connection) -> None:
        self._kill_at = kill_at
        self._report = report
        self._lock = threading.Lock()
        self._names: dict[str, str] = {}
        self.passed: list[str] = []

    @contextmanager
    def around(self, what: str, before: str, after: str) -> Iterator[None]:
        self._reach(f"{what}: {before}")
        yield
        self._reach(f"{what}: {after}")

    def writing(self, name: str, work: object) -> AbstractContextManager[None]:
        """Add boundaries to a transaction of the database."""
        if not isinstance(work, RecordBatch):
            return self._saving(name)
        for record in work.records:
            side = record.intended or record.applied or record.live
            self._names[record.provider_uuid] = decode(side).name if side else record.provider_uuid
        uuids = [*(record.provider_uuid for record in work.records), *work.forgotten]
        return self._saving(f"{name}: {self._called(uuids)}" if uuids else name)

    def asking(self, question: Any) -> AbstractContextManager[None]:
        """Add boundaries to a request to another process, unless it only reads."""
        method: str = question.get("method", "get_")  # an exchange of versions has no method
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

    def _reach(self, name: str) -> None:
        with self._lock:
            count = Counter(each.partition(" #")[0] for each in self.passed)[name] + 1
            self.passed.append(f"{name} #{count}" if count > 1 else name)
            if len(self.passed) - 1 == self._kill_at:
                self._report.send(self.passed)
                os.kill(os.getpid(), signal.SIGKILL)


class _Watched:
    """A keystoneauth adapter whose writing requests have boundaries."""

    def __init__(self, adapter: Adapter, boundaries: _Boundaries) -> None:
        self._adapter = adapter
        self._boundaries = boundaries

    def request(self, path: str, method: str, **kwargs: Any) -> Any:
        if method == "GET":
            return self._adapter.request(path, method, **kwargs)
        with self._boundaries.sending(method, path, kwargs.get("data", b"")):
            return self._adapter.request(path, method, **kwargs)


class _PlacementOverHTTP(PlacementFixture):
    """The Placement of the test's process, seen from another process."""

    def __init__(self, url: str, boundaries: _Boundaries) -> None:
        fixtures.Fixture.__init__(self)
        self._adapter = adapter_to(url)
        self._boundaries = boundaries

    def _setUp(self) -> None:
        self.adapter = RecordingAdapter(_Watched(self._adapter, self._boundaries))
        self.client = self.new_client()
        self.requests = self.adapter.requests


class _WatchedDatabase(fixtures.Fixture):
    """Adds boundaries to writes to our database."""

    def __init__(self, boundaries: _Boundaries) -> None:
        super().__init__()
        self._boundaries = boundaries

    def _setUp(self) -> None:
        # The heartbeat writes at times of its own.
        verbs = ("insert", "update", "delete", "write")
        self.useFixture(DatabaseWrites(self._boundaries.writing, verbs))


class _WatchedAsking(Asking):
    """Adds boundaries to requests that write objects in another process."""

    def __init__(self, port: int, boundaries: _Boundaries) -> None:
        super().__init__(port)
        self._boundaries = boundaries

    def send(self, question: bytes, directory: Path | None = None) -> bytes:
        with self._boundaries.asking(decoded(question)):
            return super().send(question, directory)


def _play(
    act: str, url: str, state: Path, report: Connection, *, port: int | None, kill_at: int | None
) -> None:
    """Run all syncs of an act in the process; ``port`` is the port of the object store."""
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
