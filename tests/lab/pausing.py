"""Pause a process with SIGSTOP in the middle of a cycle, while another process publishes its node.

The other process is of another host, which takes the node over. Or it is of the same host and the
same database, with another state_path: an operator has started it, since the first one seemed dead.
"""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

import fixtures

from tests.lab import killing
from tests.lab.cycles import HOST, Publishing, everything, stored
from tests.lab.database_writes import DatabaseWrites
from tests.lab.moments import Moments
from tests.lab.placement import PlacementFixture, RecordingAdapter, adapter_to
from tests.lab.skewed import Machine
from tests.lab.sqlite import WithoutSync
from wharfinger.db.database import Database
from wharfinger.objects import AGENT_BINARY, ComputeNodeList, Service
from wharfinger.objects.field_types import now
from wharfinger.tracker import service_record

FAR: Final = "far-host"
#: Seconds without a report after which a host counts as down. Intended writes are valid half as
#: long.
DOWN_TIME: Final = 1.0
BEFORE: Final = {"cn": Machine(own=1, vgpus=4)}
#: The paused cycle publishes a new node, other inventories, and no vGPUs.
PAUSED: Final = {"cn": Machine(16, own=3, why="cleaning"), "new": Machine(2)}
TAKEN: Final = {"cn": Machine(32, own=2, vgpus=8)}


class Pausing(fixtures.Fixture):
    """Pauses a cycle of one host, while another process publishes the same node.

    Each cycle starts from the same state. ``points`` has the names of the points at which it can be
    paused. ``taker`` is the host of the other process.
    """

    def __init__(
        self, placement: PlacementFixture, url: str, directory: Path, taker: str = FAR
    ) -> None:
        super().__init__()
        self._taker = taker
        self._placement = placement
        self._url = url
        self._state = directory / "state"

    def _setUp(self) -> None:
        with self._publishing(HOST, BEFORE) as near:
            service_record.begin(near.context, HOST)
            assert not near.cycle.sync().problems
            near.driver.nodes["cn"] = Machine(own=1)  # its vGPUs are absent for the first time
            near.cycle.sync()
        self._moments = Moments(self._state)
        self._beginning = self._moments.take()
        with self._started(None) as paused:
            self.points = paused.end()

    def faults(self, point: int) -> list[str]:
        """Pause a cycle at a point, let another host publish the node, and resume the cycle.

        Return a text for each problem, and for each change of what the other host has published.
        """
        with self._started(point) as paused:
            paused.wait_until_stopped()
            # The paused host counts as down after this time. The database has full seconds.
            time.sleep(DOWN_TIME + 1)
            with self._publishing(self._taker, TAKEN) as far:
                faults = [str(one) for one in far.cycle.sync().problems]
                self._report_for_an_hour(far)
                expected = self._work_of_far(far)
                if expected["hosts"]["cn"] != self._taker:
                    return [*faults, f"the node was not taken over: {expected['hosts']}"]
                paused.wake()
                paused.end()
                if (found := self._work_of_far(far)) != expected:
                    faults.append(f"it was {expected}, and is {found}")
                result = far.cycle.sync()
                faults += [f"{step.verb} {step.name}" for step in result.steps]
                faults += [str(one) for one in result.problems]
        return faults

    def overwritten(self, point: int) -> list[str]:
        """Pause a cycle at a point, let a successor of the same host publish, and resume the cycle.

        Return a text for each change of the successor's providers in Placement.
        """
        with self._started(point) as paused:
            paused.wait_until_stopped()
            time.sleep(DOWN_TIME)
            with self._publishing(self._taker, TAKEN) as successor:
                faults = [str(one) for one in successor.cycle.sync().problems]
                expected = self._work_of_far(successor)["placement"]
                paused.wake()
                paused.end()
                if (found := self._work_of_far(successor)["placement"]) != expected:
                    faults.append(f"it was {expected}, and is {found}")
        return faults

    def _work_of_far(self, far: Publishing) -> dict[str, Any]:
        rows = ComputeNodeList.get_by_filters(far.context, hypervisor_hostname="cn")
        return {
            "placement": {
                name: one for name, one in everything().items() if name in ("cn", "cn-gpu")
            },
            "records": stored(self._state, host=self._taker),
            "hosts": {one.hypervisor_hostname: one.host for one in rows},
            "rows": [(one.vcpus, one.revision) for one in rows],
        }

    def _report_for_an_hour(self, far: Publishing) -> None:
        """Store that the service of the other host is up for an hour, as the test may be slow."""
        service_record.begin(far.context, self._taker)
        service = Service.get_by_host_and_binary(far.context, self._taker, AGENT_BINARY)
        service.last_seen_up = now() + timedelta(hours=1)
        service.save()

    @contextmanager
    def _started(self, point: int | None) -> Iterator["_Paused"]:
        self._moments.go_back(self._beginning)
        # With the same host, a second cycle of this process may publish its own values.
        cycles = 1 if self._taker == HOST else 2
        paused = _Paused(self._url, self._state, point, cycles)
        try:
            yield paused
        finally:
            paused.stop()

    @contextmanager
    def _publishing(self, host: str, nodes: dict[str, Machine]) -> Iterator[Publishing]:
        with Publishing(
            self._placement, self._state, host=host, down_time=timedelta(seconds=DOWN_TIME)
        ) as publishing:
            publishing.driver.nodes = dict(nodes)
            yield publishing


class _Paused:
    """The paused process."""

    def __init__(self, url: str, state: Path, point: int | None, cycles: int) -> None:
        self._receiver, sender = killing._CONTEXT.Pipe(duplex=False)
        self._process = killing._CONTEXT.Process(
            target=_cycle, args=(url, state, point, cycles, sender)
        )
        self._process.start()
        sender.close()

    def wait_until_stopped(self) -> None:
        self._receive()
        status = Path(f"/proc/{self._process.pid}/stat")
        while status.read_text().rpartition(")")[2].split()[0] != "T":
            time.sleep(0.01)

    def wake(self) -> None:
        assert self._process.pid is not None
        os.kill(self._process.pid, signal.SIGCONT)

    def end(self) -> list[str]:
        """Wait for the end of the process's cycles; return the points that the first passed."""
        points = self._receive()
        self._process.join(killing.TIMEOUT)
        assert self._process.exitcode == 0, "its traceback is on standard error"
        return points

    def stop(self) -> None:
        if self._process.is_alive():
            self._process.kill()
        self._process.join()
        self._receiver.close()

    def _receive(self) -> list[str]:
        assert self._receiver.poll(killing.TIMEOUT), "the process does not reach the point"
        points: list[str] = self._receiver.recv()
        return points


class _Points:
    """Records the points that this process passes, and stops it with SIGSTOP at one of them."""

    def __init__(self, point: int | None, report: Connection) -> None:
        self._point = point
        self._report = report
        self._lock = threading.Lock()
        self.passed: list[str] = []

    def reach(self, name: str) -> None:
        with self._lock:
            self.passed.append(name)
            if len(self.passed) - 1 == self._point:
                self._report.send(self.passed)
                # To this thread, since another thread could get the signal a moment later.
                signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)

    @contextmanager
    def around(self, name: str, _work: object = None) -> Iterator[None]:
        self.reach(f"before {name}")
        yield
        self.reach(f"after {name}")


class _Placement(PlacementFixture):
    """A client for the Placement of the test process, with points between any two requests."""

    def __init__(self, url: str, points: _Points) -> None:
        fixtures.Fixture.__init__(self)
        self._url = url
        self._points = points

    def _setUp(self) -> None:
        self.adapter = RecordingAdapter(adapter_to(self._url))
        # No point before a write: the framework checks and sends it without a pause between.
        self.adapter.before = lambda method, path: (
            self._points.reach(f"before {method} {path}") if method == "GET" else None
        )
        self.adapter.after = lambda method, path: self._points.reach(f"after {method} {path}")
        self.client = self.new_client()
        self.requests = self.adapter.requests


def _cycle(url: str, state: Path, point: int | None, cycles: int, report: Connection) -> None:
    """Run the cycle that is paused, and the later ones, in this process; report its points."""
    points = _Points(point, report)
    with (
        WithoutSync(),
        DatabaseWrites(points.around),
        fixtures.MonkeyPatch(
            f"{Database.__module__}.{Database.__qualname__}.read", _around(Database.read, points)
        ),
        _Placement(url, points) as placement,
        Publishing(
            placement, state, host=HOST, down_time=timedelta(seconds=DOWN_TIME)
        ) as publishing,
    ):
        driver: Any = publishing.driver
        for name in ("get_available_nodes", "update_provider_tree"):
            setattr(driver, name, _around(getattr(driver, name), points))
        driver.nodes = dict(PAUSED)
        publishing.cycle.sync()
        first = list(points.passed)
        for _ in range(cycles - 1):
            publishing.cycle.sync()
    report.send(first)


def _around(call: Callable[..., Any], points: _Points) -> Callable[..., Any]:
    def called(*args: Any, **kwargs: Any) -> Any:
        with points.around(call.__name__):
            return call(*args, **kwargs)

    return called
