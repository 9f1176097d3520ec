"""Kill the agent or the process of one of its driver instances with SIGKILL, again and again.

A kill comes after a random time, or when a random write has reached Placement, before its answer.
The agent then restarts the process of the instance; the test restarts the agent. All the time,
nodes of the backends are reserved, released, added and removed. An operator has reserved a node, a
consumer has an allocation, and another owner has a provider: the agent must not change these.
"""

import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from tests.lab.agent_process import TIMEOUT
from tests.lab.cycles import allocate, everything
from tests.lab.file_agent import AgentProcess
from tests.lab.fleet_file import RESOURCE_CLASS
from tests.lab.objects import opened
from tests.lab.placement import PlacementFixture, Requests
from wharfinger.reconcile.reserve_and_release import Reservations

NAMES: Final = ("one", "two")
CONSUMER: Final = "6f9de2f4-9d0c-4d0f-a4a6-0c2c5b1f7d31"
_STEP: Final = 0.1
#: The number of nodes of each instance. The operator reserves "two-0"; "one-1" has an allocation.
_NODES: Final = 6
#: The most seconds, and the most writes to Placement, before a kill.
_LONGEST: Final = 3.0
_WRITES: Final = 12


class KilledAgent(AgentProcess):
    """An agent that is killed again and again."""

    def __init__(
        self, placement: PlacementFixture, served: tuple[str, Requests], directory: Path
    ) -> None:
        super().__init__(directory, served[0], dict.fromkeys(NAMES, _NODES))
        self._placement = placement
        self._requests = served[1]
        self._added = 0
        #: The provider of another owner and the allocation, as they are at first.
        self._others: dict[str, Any] = {}

    def _setUp(self) -> None:
        super()._setUp()
        self._context = opened(self.state)
        self.addCleanup(self._context.close)
        self._placement.client.create_provider(str(uuid4()), "of-another", None)
        self._start()
        self.wait_until(lambda: not self.differences(), "first publishing")
        allocate(self._placement, CONSUMER, "1.39", **{"one-1": {RESOURCE_CLASS: 1}})
        provider = next(
            one for one in self._placement.client.list_providers() if one.name == "two-0"
        )
        Reservations(self._placement.client, self._context).reserve(
            provider, holder="operator", reason="repair"
        )
        self._others = self._of_others()

    def kill_something(self, number: int) -> list[str]:
        """Kill the agent or an instance at a random moment; wait until it runs again.

        Return a text if processes of the killed agent are left.
        """
        draw = random.Random(f"kill {number}")
        target = draw.choice(["agent", *NAMES])
        with self._changing(draw):
            pids = self.pids()
            self._wait_for_moment(draw)
            if target == "agent":
                self.kill()
                if left := self.processes():
                    return [f"processes are left of the agent: {left}"]
                self._start()
            else:
                with suppress(ProcessLookupError):
                    os.kill(pids[target], signal.SIGKILL)
                self.wait_until(
                    lambda: self.pids().get(target, pids[target]) != pids[target], "another start"
                )
        return []

    def settle(self) -> list[str]:
        """Wait until Placement agrees with the backends; return the differences that stay.

        Then replace a node by a new one for the next kill.
        """
        end = time.monotonic() + TIMEOUT
        while (differences := self.differences()) and time.monotonic() < end:
            time.sleep(_STEP)
        if self._of_others() != self._others:
            differences.append(f"changed for others: {self._others}, now {self._of_others()}")
        self._exchange()
        return differences

    def differences(self) -> list[str]:
        """Return how Placement differs from the backends and from the operator's reservation."""
        expected: dict[str, Any] = {}
        for fleet in self.fleets.values():
            expected |= fleet.nodes
        if self._others:
            expected["two-0"] = "repair"
        found = {
            name: one["inventories"].get(RESOURCE_CLASS)
            for name, one in everything().items()
            if name != "of-another"
        }
        differences = [f"{name} is left" for name in found.keys() - expected.keys()]
        differences += [f"{name} is missing" for name in expected.keys() - found.keys()]
        for name in expected.keys() & found.keys():
            wanted = (1, 1) if expected[name] else (1, 0)
            if found[name] is None or tuple(found[name][:2]) != wanted:
                differences.append(f"{name} has {found[name]}, and should have {wanted}")
        return differences

    def _exchange(self) -> None:
        """Remove a node of the first instance, and add a new one to it."""
        self._added += 1
        fleet = self.fleets["one"]
        fleet.remove(next(name for name in reversed(fleet.nodes) if name != "one-1"))
        fleet.change(f"one-new-{self._added}")

    @contextmanager
    def _changing(self, draw: random.Random) -> Iterator[None]:
        """Reserve and release random nodes of the backends during the block."""
        over = threading.Event()
        seed = draw.random()

        def change() -> None:
            drawn = random.Random(seed)
            while not over.wait(0.05):
                fleet = self.fleets[drawn.choice(NAMES)]
                name = drawn.choice(list(fleet.nodes))
                fleet.change(name, "" if fleet.nodes[name] else "cleaning")

        thread = threading.Thread(target=change)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _wait_for_moment(self, draw: random.Random) -> None:
        """Wait for the moment of the kill: a random time, or a random write that Placement gets."""
        end = time.monotonic() + draw.uniform(0, _LONGEST)
        if draw.random() < 0.5:
            time.sleep(end - time.monotonic())
            return
        writes = len(self._requests.writes) + draw.randrange(1, _WRITES)
        while len(self._requests.writes) < writes and time.monotonic() < end + _LONGEST:
            time.sleep(0.001)

    def _of_others(self) -> dict[str, Any]:
        """Return the provider of another owner and the allocation, which must not change."""
        allocations = self._placement.client.get_allocations(CONSUMER)["allocations"]
        return {
            "provider": everything()["of-another"],
            "allocations": {uuid: one["resources"] for uuid, one in allocations.items()},
        }

    def _start(self) -> None:
        self.start()
        self.wait_until(lambda: len(self.pids()) == len(NAMES), "start of the agent")
