"""Instances of the Cyborg driver: what a real Cyborg has, and what Placement shows of it."""

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
from wharfinger.reconcile.cycle import CycleResult, Reconciler
from wharfinger.reconcile.reserve_and_release import Reservations
from wharfinger.scheduling import provider_details
from wharfinger_cyborg import accelerators

#: The service host of the instances: no device is there.
CONTROLLER: Final = "ctl"

#: Total and what is reserved of it, by resource class.
Figures = dict[str, tuple[int, int]]


class Cards(fixtures.Fixture):
    """An instance of the Cyborg driver, its state and what it has published.

    ``url`` is where it finds Cyborg; the ``options`` are of its section.
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
        """From now on, the cycle of a process that starts now: it knows what is on the disk."""
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

    # What is done.

    def sync(self) -> CycleResult:
        """A complete cycle that has no problems."""
        return sound(self.cycle.sync())

    def drift(self) -> CycleResult:
        """A drift cycle that has no problems."""
        return sound(self.cycle.drift())

    def poll(self) -> CycleResult:
        """A poll that has no problems."""
        return sound(self.cycle.poll())

    def problems(self) -> list[str]:
        """What a complete cycle could not do."""
        return [str(problem) for problem in self.cycle.sync().problems]

    def hold(self, uuid: str, reason: str = "maintenance") -> Reservation:
        """Have an operator reserve a provider."""
        provider = provider_details.find(self.client, uuid)
        return Reservations(self.client, self.context).reserve(
            provider, holder="operator", reason=reason
        )

    def release(self, uuid: str) -> None:
        """Have the operator give it back."""
        Reservations(self.client, self.context).release(
            provider_details.find(self.client, uuid), "operator"
        )

    def allocate(self, name: str, consumer: str, **amounts: int) -> None:
        """Have a consumer use a provider."""
        wanted: dict[str, Any] = {name: amounts}
        allocate(self.placement, consumer, **wanted)

    def was_programmed(self, uuid: str, trait: str | None, *stale: str) -> None:
        """Have a job for a provider have come to its end some time ago; ``stale`` it had before."""
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

    # What is to be seen.

    def reasons(self, uuid: str) -> list[str]:
        """Why a provider is reserved, as ``wharfinger reservation list`` has it."""
        every = provider_details.reserved(self.context)
        return [one.reason for one in every if one.provider_uuid == uuid]

    @contextmanager
    def costing(self) -> Iterator[Requests]:
        """What is asked of Placement within."""
        self.placement.requests.clear()
        yield self.placement.requests


def sound(outcome: CycleResult) -> CycleResult:
    """An outcome without problems."""
    assert not outcome.problems, [*map(str, outcome.problems)]
    assert not outcome.foreign
    return outcome


def without_marks(contents: Contents) -> Contents:
    """What is in Placement, less what instances mark it with."""
    return {name: {**one, "traits": one["traits"] - MARKS} for name, one in contents.items()}


def figures(name: str) -> Figures | None:
    """The inventory of a provider; None where there is none of that name."""
    provider = everything().get(name)
    return provider and provider["inventories"]


def traits(name: str) -> set[str]:
    """The traits of a provider."""
    found: set[str] = everything()[name]["traits"]
    return found


@dataclass
class Clock:
    """The time by which the driver spaces its questions; it stands still."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now

    @classmethod
    def stopped(cls, monkeypatch: pytest.MonkeyPatch) -> "Clock":
        """From now on, time goes on only when it is told to."""
        clock = cls()
        monkeypatch.setattr(accelerators, "monotonic", clock)
        return clock
