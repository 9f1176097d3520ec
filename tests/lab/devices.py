"""A driver that programs simulated devices, and what tests read of a device and its job."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any, ClassVar, Final

from tests.lab.cycles import Publishing, contents
from tests.lab.placement import PlacementFixture
from tests.lab.reserving import ReservingDriver, drives, makes, node, overlaid, summary
from tests.lab.samples import uuid
from wharfinger.driver import SUPPORTED, Capabilities
from wharfinger.exceptions import BackendError
from wharfinger.jobs import program
from wharfinger.objects import JOB_HOLDER, Context, DeviceJob, DeviceJobList, ReservationList
from wharfinger.providers.device_function_traits import PREFIX, function_traits

IMAGE: Final = uuid("image")
#: Total and reserved amount of each published device.
FREE: Final = {"FPGA": (4, 1)}
FULL: Final = {"FPGA": (4, 4)}
#: Two devices that the driver publishes, and a device of another owner.
OWN, SIBLING, CARD = "fpga", "fpga-2", "card"


class ProgrammableDriver(ReservingDriver):
    """A driver that programs simulated devices."""

    capabilities: ClassVar[Capabilities] = replace(
        ReservingDriver.capabilities, programming=SUPPORTED
    )

    def __init__(self, name: str = "scripted") -> None:
        super().__init__(name)
        #: The function of each device, by provider uuid. Without an entry, current_function raises.
        self.held: dict[str, str | None] = {}
        #: The programming scope of each device that is not programmed alone, by provider uuid.
        self.scopes: dict[str, list[str]] = {}
        #: The result of get_problems.
        self.problems: list[str] = []
        #: The arguments of the calls of program.
        self.programmed: list[tuple[str, str, str | None]] = []
        #: Called with the provider's uuid and the function by each program; may raise.
        self.loading: Callable[[str, str | None], object] = lambda uuid, function: None

    def program(self, provider_uuid: str, image: str, function: str | None = None) -> None:
        self.programmed.append((provider_uuid, image, function))
        self.loading(provider_uuid, function)

    def current_function(self, provider_uuid: str) -> str | None:
        if provider_uuid not in self.held:
            raise BackendError(driver=self.name, operation="looking", reason="it does not say")
        return self.held[provider_uuid]

    def programming_scope(self, provider_uuid: str) -> Collection[str]:
        return self.scopes.get(provider_uuid, [provider_uuid])

    def get_problems(self) -> list[str]:
        return self.problems


def publish_devices(publishing: Publishing, placement: PlacementFixture) -> ProgrammableDriver:
    """Publish a host with two devices, and let the driver add to a device of another owner."""
    driver = ProgrammableDriver()
    drives(publishing, driver)
    makes(placement, CARD, **FREE)
    driver.nodes["cn"] = node({"VCPU": (8, 0)}, **{OWN: FREE, SIBLING: FREE})
    driver.nodes[CARD] = overlaid
    assert not publishing.cycle.sync().problems
    return driver


class Device:
    """A published device: programs it, and reads its job and its provider."""

    def __init__(self, publishing: Publishing, placement: PlacementFixture, name: str) -> None:
        self.name = name
        self.publishing = publishing
        self.placement = placement
        self.summary = summary(placement, name)
        self.uuid = self.summary.uuid

    @property
    def driver(self) -> ProgrammableDriver:
        driver = self.publishing.driver
        assert isinstance(driver, ProgrammableDriver)
        return driver

    @property
    def context(self) -> Context:
        return self.publishing.context

    def program(self, function: str | None = None, **more: Any) -> DeviceJob:
        """Run a programming job for the device. The test has to shorten the job's ``_INTERVAL``."""
        return program(
            self.publishing.client,
            self.context,
            self.driver,
            self.summary,
            image=IMAGE,
            function=function,
            **more,
        )

    def falls_silent(self) -> None:
        """Set ``seen_at`` of the job an hour back, as if its process had died then."""
        job = self.job
        assert job is not None
        job.seen_at -= timedelta(hours=1)
        job.save()

    def says(self, *functions: str) -> None:
        """Replace the function traits of the device in Placement, as another program would."""
        client = self.placement.client
        there = client.get_traits(self.uuid)
        traits = {PREFIX + function for function in functions}
        for trait in traits:
            client.create_trait(trait)
        others = there.traits - function_traits(there.traits)
        client.set_traits(self.uuid, there.resource_provider_generation, others | traits)

    @property
    def functions(self) -> set[str]:
        """The functions for which the device has function traits in Placement."""
        traits = contents(self.placement)[self.name]["traits"]
        return {trait.removeprefix(PREFIX) for trait in function_traits(traits)}

    @property
    def figures(self) -> Mapping[str, tuple[int, int]]:
        found: Mapping[str, tuple[int, int]] = contents(self.placement)[self.name]["inventories"]
        return found

    @property
    def job(self) -> DeviceJob | None:
        """The job of the device in the database, None without one."""
        found = DeviceJobList.get_by_filters(self.context, provider_uuid=self.uuid)
        return found[0] if found else None

    @property
    def state(self) -> str | None:
        return self.job.state if self.job else None

    @property
    def is_held(self) -> bool:
        """Whether the database has a reservation of the device by a programming job."""
        return bool(
            ReservationList.get_by_filters(self.context, provider_uuid=self.uuid, holder=JOB_HOLDER)
        )

    def is_free(self) -> bool:
        """Return whether the device has its own reserved amount and no reservation by a job."""
        return self.figures == FREE and not self.is_held

    def is_left(self) -> bool:
        """Return whether the device is fully reserved, and its job has the state "unknown"."""
        return self.figures == FULL and self.is_held and self.state == "unknown"
