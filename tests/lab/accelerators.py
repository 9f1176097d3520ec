"""Instances of the Cyborg driver, with a real Cyborg and the real Placement."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import fixtures
import pytest

from tests.lab.cyborg_harness import MARKS, Contents
from tests.lab.cycles import allocate, everything, make_state
from tests.lab.objects import opened
from tests.lab.placement import PlacementFixture, Requests
from wharfinger.conf import load
from wharfinger.objects import Context, DeviceJob, Reservation, Service
from wharfinger.providers.removal import RemovalPolicy
from wharfinger.reconcile import driver_instance_loader
from wharfinger.reconcile.cycle import Reconciler
from wharfinger.reconcile.cycle_result import CycleResult
from wharfinger.reconcile.reserve_and_release import Reservations
from wharfinger.scheduling import provider_details
from wharfinger_cyborg import accelerators

#: The service host of the instances. It has no devices.
CONTROLLER: Final = "ctl"

#: Total and reserved amounts by resource class.
Figures = dict[str, tuple[int, int]]


class Cards(fixtures.Fixture):
    """An instance of the Cyborg driver, with its database and its Reconciler ``cycle``.

    ``url`` is the URL of Cyborg. ``options`` are written to the instance's section.
    """

    def __init__(
        self,
        placement: PlacementFixture,
        url: str,
        state_path: Path,
        *,
        name: str = "fpga",
        removal_delay: float = 0,
        **options: str,
    ) -> None:
        super().__init__()
        self.placement = placement
        self.name = name
        self._state_path = state_path
        self._removal_delay = removal_delay
        self._options = {"driver": "cyborg", "auth_type": "none", "endpoint": url, **options}

    def _setUp(self) -> None:
        make_state(self._state_path)
        self.configuration = self._state_path / f"{self.name}.conf"
        lines = [
            "[DEFAULT]",
            f"enabled_drivers = {self.name}",
            f"host = {CONTROLLER}",
            f"state_path = {self._state_path}",
            f"[{self.name}]",
            *(f"{name} = {value}" for name, value in self._options.items()),
            "",
        ]
        self.configuration.write_text("\n".join(lines))
        self._open: list[Context] = []
        self.addCleanup(self._close)
        self.restarted()

    def restarted(self) -> Reconciler:
        """Load the instance anew, as a new process does; only the database on disk stays."""
        instance = driver_instance_loader.load(load([str(self.configuration)]), self.name)
        instance.driver.init_host(Service(host=CONTROLLER, binary="wharfinger"))
        self.driver = instance.driver
        self.context = opened(self._state_path, CONTROLLER)
        self._open.append(self.context)
        self.client = self.placement.new_client()
        self.cycle = Reconciler(
            instance.driver,
            instance.publisher,
            self.client,
            self.context,
            RemovalPolicy(delay=self._removal_delay),
        )
        return self.cycle

    def _close(self) -> None:
        for context in self._open:
            context.close()

    # Actions.

    def sync(self) -> CycleResult:
        """Run a full cycle and require that it has no problems."""
        return sound(self.cycle.sync())

    def drift(self) -> CycleResult:
        """Run a drift cycle and require that it has no problems."""
        return sound(self.cycle.drift())

    def poll(self) -> CycleResult:
        """Run a poll and require that it has no problems."""
        return sound(self.cycle.poll())

    def problems(self) -> list[str]:
        """Run a full cycle, and return the texts of its problems."""
        return [str(problem) for problem in self.cycle.sync().problems]

    def hold(self, uuid: str, reason: str = "maintenance") -> Reservation:
        """Reserve a provider with the holder "operator"."""
        provider = provider_details.find(self.client, uuid)
        return Reservations(self.client, self.context).reserve(
            provider, holder="operator", reason=reason
        )

    def release(self, uuid: str) -> None:
        """Release the operator's reservation."""
        Reservations(self.client, self.context).release(
            provider_details.find(self.client, uuid), "operator"
        )

    def allocate(self, name: str, consumer: str, **amounts: int) -> None:
        """Create a consumer's allocation of a provider: amounts by resource class."""
        wanted: dict[str, Any] = {name: amounts}
        allocate(self.placement, consumer, **wanted)

    def was_programmed(self, uuid: str, trait: str | None, *stale: str) -> None:
        """Store an ended programming job of a provider.

        After the job, ``trait`` is the function trait of the device, and ``stale`` are the traits
        that it may no longer have.
        """
        job = DeviceJob(
            self.context,
            provider_uuid=uuid,
            provider_name=uuid,
            driver_instance=self.name,
            host=CONTROLLER,
            process_id=1,
            image=str(uuid4()),
            function=None,
            trait=trait,
            problem=None,
            stale_traits=[*stale],
            former_traits=[],
        )
        job.note_held(trait)
        job.create()

    # Observations.

    def reasons(self, uuid: str) -> list[str]:
        """Return why a provider is reserved, as ``wharfinger reservation list`` prints it."""
        every = provider_details.reserved(self.context)
        return [one.reason for one in every if one.provider_uuid == uuid]

    @contextmanager
    def costing(self) -> Iterator[Requests]:
        """Yield the list of requests to Placement, emptied before the block."""
        self.placement.requests.clear()
        yield self.placement.requests


def sound(outcome: CycleResult) -> CycleResult:
    """Require that a cycle has no problems and no foreign providers; return its result."""
    assert not outcome.problems, [*map(str, outcome.problems)]
    assert not outcome.foreign
    return outcome


def without_marks(contents: Contents) -> Contents:
    """Return the contents of Placement without owner trait and instance trait of our providers."""
    return {name: {**one, "traits": one["traits"] - MARKS} for name, one in contents.items()}


def figures(name: str) -> Figures | None:
    """Return total and reserved amounts of a provider by class; None if it does not exist."""
    provider = everything().get(name)
    return provider and provider["inventories"]


def traits(name: str) -> set[str]:
    """Return the traits of the provider with this name in Placement."""
    found: set[str] = everything()[name]["traits"]
    return found


@dataclass
class Clock:
    """The clock by which the driver waits between requests to Cyborg. A test advances it."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now

    @classmethod
    def stopped(cls, monkeypatch: pytest.MonkeyPatch) -> "Clock":
        """Replace the driver's clock with one that only the test advances."""
        clock = cls()
        monkeypatch.setattr(accelerators, "monotonic", clock)
        return clock
