"""Program devices of a real Cyborg, in this process and in others.

A test can claim the devices at the same time, and record the allocation candidates all the time.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, TypeVar
from uuid import uuid4

import fixtures

from tests.lab import killing
from tests.lab.between import Between
from tests.lab.cyborg_harness import Harness
from tests.lab.cycles import make_state
from tests.lab.placement import adapter_to
from tests.lab.program import Done
from tests.lab.running import Running, Work, Working, play, play_work
from wharfinger import jobs
from wharfinger.conf import parse
from wharfinger.conformance.other_program_client import WritingClient
from wharfinger.objects import JOB_HOLDER, DeviceJob, DeviceJobList, ReservationList, connect
from wharfinger.objects.field_types import now
from wharfinger.providers.device_function_traits import function_traits
from wharfinger.providers.removal import RemovalPolicy
from wharfinger.reconcile import driver_instance_loader
from wharfinger.reconcile.cycle import Reconciler
from wharfinger.reconcile.cycle_result import CycleResult
from wharfinger_cyborg.driver import CyborgDriver
from wharfinger_harnesses.cyborg import HOST, Part
from wharfinger_harnesses.daemons import TIMEOUT, LabError

INSTANCE: Final = "fpga"
OWNER: Final = CyborgDriver.default_owner
#: A request for any FPGA.
_ANY: Final = f"/allocation_candidates?resources=FPGA:1&required={OWNER}"
_MICROVERSION: Final = "1.38"
#: Seconds between two checks of a condition; twice that between two requests for candidates.
_PAUSE: Final = 0.01
_DOWN_TIME: Final = timedelta(seconds=60)

T = TypeVar("T")


def named(bus: str, name: str = "r0") -> str:
    """Return the name of a deployable, which is also its provider's, from the bus of its device."""
    return f"{HOST}_{bus}_{name}"


def trait(function: str) -> str:
    """Return the trait for a function of a simulated device."""
    return f"CUSTOM_FPGA_FUNCTION_ID_LAB_{function}"


@dataclass(frozen=True)
class Seen:
    """The candidates at one moment."""

    #: The times of the request and of the answer, in seconds of the epoch.
    asked: float
    told: float
    #: The function traits of each candidate, by its provider uuid.
    candidates: Mapping[str, frozenset[str]]


class Programming(fixtures.Fixture):
    """Resets the shared Cyborg to these devices, and programs them with a configuration of its own.

    A first full cycle has given all of Cyborg's providers the owner trait. With ``is_between``, a
    job sends its requests through the proxies ``to_placement`` and ``to_cyborg``.
    """

    def __init__(self, harness: Harness, *hardware: Part, is_between: bool = False) -> None:
        super().__init__()
        self._harness = harness
        self._hardware = hardware
        self._is_between = is_between

    def _setUp(self) -> None:
        self.directory = Path(self.useFixture(fixtures.TempDir()).path)
        self._harness.begin(*self._hardware)
        self.cyborg, self.to_cyborg = self._harness.cyborg, self._harness.between
        self._url = self._harness.placement_url
        self._endpoint = self.cyborg.url
        self.adapter = adapter_to(self._url)
        self.client = WritingClient(self.adapter)
        if self._is_between:
            self.to_placement = self.useFixture(Between(self._url))
            self._url, self._endpoint = self.to_placement.url, self._harness.url
        self.config = self.configure("wharfinger.conf")
        #: The names of deployables and their providers, which replace uuids in boundaries.
        described = self.cyborg.deployables()
        self._names = {
            uuid: one["name"].removeprefix(f"{HOST}_")
            for one in described
            for uuid in (one["uuid"], one["rp_uuid"])
        }
        #: The provider uuid of each deployable. It stays the same if the device is added again.
        self._uuids = {one["name"]: str(one["rp_uuid"]) for one in described}
        make_state(self.directory / "state")
        self._conf = parse([str(self.config)], [])
        self.context = connect(self._conf)
        self.addCleanup(self.context.close)
        self.sync()

    def configure(self, name: str, **driver: Any) -> Path:
        """Write a configuration file with these additional options of the driver instance."""
        its = {"driver": "cyborg", "auth_type": "none", "endpoint": self._endpoint, **driver}
        section = "".join(f"{key} = {value}\n" for key, value in its.items())
        config = self.directory / name
        config.write_text(
            f"[DEFAULT]\nenabled_drivers = {INSTANCE}\nhost = ctl\n"
            f"state_path = {self.directory}/state\n"
            f"[{INSTANCE}]\n{section}"
            f"[placement]\nembedded = false\nauth_type = admin_token\ntoken = admin\n"
            f"endpoint = {self._url}\nendpoint_override = {self._url}\n"
        )
        return config

    def start_cyborg_again(self) -> None:
        """Start Cyborg again after a test has stopped it."""
        self._harness.start_again()

    # The program.

    def run(self, *arguments: str) -> Done:
        """Run the program in a new process; return its exit code and output."""
        done, _ = self.run_until(None, *arguments)
        return done

    def run_until(self, kill_at: int | None, *arguments: str) -> tuple[Done, tuple[str, ...]]:
        """Run the program, and kill it at this boundary; also return the passed boundaries."""
        out, err = self.directory / "out", self.directory / "err"
        command = ("--config-file", str(self.config), *arguments)
        ended = killing.run(play, command, self._names, out, err, kill_at=kill_at)
        code = ended.code
        assert code is not None, f"{arguments} comes to no end"
        return Done(code, out.read_text(), err.read_text()), ended.boundaries

    def start(self, bus: str, image: str, *more: str, name: str = "r0") -> Running:
        """Start ``wharfinger device program`` for a device in another process; do not wait."""
        command = ("device", "program", named(bus, name), "--image", image, *more)
        running = Running(self.directory, "--config-file", str(self.config), *command)
        self.addCleanup(running.kill)
        return running

    # Jobs and cycles in this process, each time with the state of a new process.

    def _work(self, bus: str, image: str, function: str | None, **more: Any) -> Work:
        name = named(bus, more.pop("name", "r0"))
        config = more.pop("config", self.config)
        return Work(config, self._url, INSTANCE, name, image, function, **more)

    def begin(self, bus: str, image: str, function: str | None = None, **more: Any) -> Working:
        """Begin a programming job in a thread.

        ``more`` can have the name of the deployable, by default "r0", and arguments of Work.
        """
        return Working(self._work(bus, image, function, **more))

    def program(self, bus: str, image: str, function: str | None = None, **more: Any) -> Done:
        """Run a programming job until it ends; return its result."""
        return self.begin(bus, image, function, **more).end()

    def kill(self, kill_at: int | None, bus: str, image: str, function: str) -> killing.Ended:
        """Run a programming job in a process that is killed at this boundary, counted from 0."""
        work = self._work(bus, image, function)
        return killing.run(play_work, work, self._names, kill_at=kill_at)

    def sync(self) -> None:
        """Run a full cycle in a new agent, and require that it has no problems."""
        with self.cycle() as cycle:
            sound(cycle.sync())

    def drift(self) -> None:
        """Run a drift cycle in a new agent, and require that it has no problems."""
        with self.cycle() as cycle:
            sound(cycle.drift())

    def restart(self) -> None:
        """Run a full cycle and a drift cycle in a new agent; require that they have no problems."""
        with self.cycle() as cycle:
            sound(cycle.sync())
            sound(cycle.drift())

    @contextmanager
    def cycle(self) -> Iterator[Reconciler]:
        """Yield the cycles of a new agent, which runs during the block."""
        instance = driver_instance_loader.load(self._conf, INSTANCE)
        policy = RemovalPolicy(delay=0, allow_mass=False)
        with driver_instance_loader.running(
            instance, self.through(), self.context, policy=policy
        ) as cycle:
            yield cycle

    def through(self) -> WritingClient:
        """Return a new client that sends its requests as a programming job does."""
        return WritingClient(adapter_to(self._url), connections=4)

    def job(self, bus: str, name: str = "r0") -> DeviceJob | None:
        """Return the job of a deployable in the database, None without one."""
        listed = DeviceJobList.get_by_filters(self.context, provider_name=named(bus, name))
        return listed[0] if listed else None

    def state(self, bus: str, name: str = "r0") -> tuple[str, bool]:
        """Return the state of a deployable's job, and whether a job has reserved its provider."""
        job = self.job(bus, name)
        assert job is not None
        held = ReservationList.get_by_filters(
            self.context, provider_uuid=job.scope, holder=JOB_HOLDER
        )
        return jobs.describe(job, _DOWN_TIME, now()), bool(held)

    def time_passes(self, bus: str) -> None:
        """Set ``seen_at`` of a device's job an hour back, as if its process had died then."""
        job = self.job(bus)
        assert job is not None
        job.seen_at -= timedelta(hours=1)
        job.save()

    def wait(self, what_is_wrong: str, look: Callable[[], T | None]) -> T:
        """Wait until ``look`` returns a true value, and return it; else raise LabError."""
        deadline = time.monotonic() + TIMEOUT
        while not (found := look()):
            if time.monotonic() > deadline:
                raise LabError(what_is_wrong)
            time.sleep(_PAUSE)
        return found

    def resolve(self, uuid: str, *, programmed: bool, trait: str | None = None) -> None:
        """Resolve the unknown job of a provider, as an operator does."""
        left = jobs.resolve(self.client, self.context, uuid, programmed=programmed, trait=trait)
        assert not left, left

    def resolve_by_looking(self, bus: str, image: str) -> None:
        """Resolve the unknown job of a device by whether the device really has the image."""
        self.resolve(self.uuid(bus), programmed=self.cyborg.programmed(bus) == image)

    # Observations.

    def uuid(self, bus: str, name: str = "r0") -> str:
        """Return the uuid of a deployable's provider."""
        return self._uuids[named(bus, name)]

    def figures(self, uuid: str) -> list[tuple[int, int]]:
        """Return total and reserved amount of each resource class of a provider."""
        live = self.client.get_inventories(uuid).inventories.values()
        return [(one.total, one.reserved) for one in live]

    def functions(self, uuid: str) -> set[str]:
        """Return the function traits of a provider in Placement."""
        return set(function_traits(self.client.get_traits(uuid).traits))

    def says(self, uuid: str, *functions: str) -> None:
        """Replace the function traits of a provider, as another program would."""
        there = self.client.get_traits(uuid)
        wanted = {trait(function) for function in functions}
        for one in wanted:
            self.client.create_trait(one)
        others = there.traits - function_traits(there.traits)
        self.client.set_traits(uuid, there.resource_provider_generation, others | wanted)

    def reservations(self) -> list[str]:
        """Return the uuids of the providers with a reservation in the database."""
        return sorted(one.provider_uuid for one in ReservationList.get_by_filters(self.context))

    def claim(self, uuid: str) -> tuple[int, str]:
        """Try to allocate one accelerator; return the status of the answer and the consumer."""
        consumer = str(uuid4())
        body = {
            "allocations": {uuid: {"resources": {"FPGA": 1}}},
            **{"consumer_generation": None, "consumer_type": "INSTANCE"},
            **{"project_id": "p", "user_id": "u"},
        }
        path = f"/allocations/{consumer}"
        answer = self.adapter.put(path, json=body, microversion=_MICROVERSION, raise_exc=False)
        return answer.status_code, consumer

    def candidates(self, required: str = "") -> Seen:
        """Return the present candidates for an FPGA; ``required`` is a trait that it must have."""
        path = f"{_ANY},{required}" if required else _ANY
        asked = time.time()
        answer = self.adapter.get(path, microversion=_MICROVERSION).json()
        summaries = answer["provider_summaries"]
        found = {uuid for one in answer["allocation_requests"] for uuid in one["allocations"]}
        return Seen(
            asked,
            time.time(),
            {uuid: function_traits(summaries[uuid]["traits"]) for uuid in found},
        )

    @contextmanager
    def watched(self) -> Iterator[list[Seen]]:
        """Yield a list that gets the candidates again and again during the block."""
        seen = [self.candidates()]
        over = threading.Event()
        failed: list[Exception] = []

        def look() -> None:
            try:
                while not over.wait(2 * _PAUSE):
                    seen.append(self.candidates())
            except Exception as error:
                failed.append(error)

        thread = threading.Thread(target=look, daemon=True)
        thread.start()
        try:
            yield seen
        finally:
            over.set()
            thread.join(TIMEOUT)
        assert not failed, failed
        seen.append(self.candidates())


def sound(outcome: CycleResult) -> CycleResult:
    """Require that a cycle has no problems, and return its result."""
    assert not outcome.problems, [*map(str, outcome.problems)]
    return outcome


def changes(seen: Sequence[Seen], uuid: str) -> list[frozenset[str] | None]:
    """Return the successive function traits of a provider; None while it is no candidate."""
    all_of_it = [one.candidates.get(uuid) for one in seen]
    return [*all_of_it[:1], *(new for old, new in pairwise(all_of_it) if old != new)]
