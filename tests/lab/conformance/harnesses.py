"""The harnesses of the lab's drivers: they change a World, which is a backend in memory."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final
from uuid import NAMESPACE_URL, uuid5

from tests.lab.conformance.honest import (
    NODE,
    SLOTS,
    UNITS,
    DevicesDriver,
    LabDriver,
    MachinesDriver,
)
from tests.lab.conformance.world import WORLDS, Device, World, WorldServer
from wharfinger.conformance.harness import Expected, Fault, Harness, OldLayout, Placement
from wharfinger.driver import SUPPORTED, Capability, unsupported
from wharfinger.exceptions import NotFound
from wharfinger.providers import Inventory
from wharfinger.providers.device_function_traits import function_trait

#: The number of devices after a reset.
_COUNT: Final = 2
#: A trait that no device has at first.
_MORE: Final = "HW_GPU_API_OPENCL_V2_2"
#: The prefix of the names on the second host.
_SECOND: Final = "second-"


class WorldHarness(Harness):
    """A world whose devices are machines: each device is a thing."""

    patience: ClassVar[float] = 3.0
    other_processes: ClassVar[Capability] = unsupported("it is in this process's memory")
    prefix: ClassVar[str] = "machine-"
    faults = frozenset(Fault)

    def __init__(self, directory: Path, placement: Placement) -> None:
        super().__init__(directory, placement)
        self.world: Final = World(self.prefix)
        self.world.allocations = self.allocations
        self.second: Final = World(f"{_SECOND}{self.prefix}")

    def start(self) -> None:
        """Register this host's and the second host's world, so that drivers find them."""
        WORLDS[str(self.directory)] = self.world
        WORLDS[self._second_name] = self.second

    def stop(self) -> None:
        """Release the requests that hang, and unregister the worlds."""
        for world in (self.world, self.second):
            world.expect(None, None)
        WORLDS.pop(str(self.directory), None)
        WORLDS.pop(self._second_name, None)

    def reset(self) -> None:
        """Replace all devices by two new ones."""
        self.world.reset(_COUNT)

    def configuration(self, instance: str) -> str:
        """Return a section with the name of the world."""
        return f"[{instance}]\nworld = {self.directory}\n"

    def things(self) -> Sequence[str]:
        """Return the names of the devices."""
        return [*self.world.devices]

    def add(self) -> str:
        """Add a device to the world."""
        return self.world.add()

    def remove(self, thing: str) -> None:
        """Remove a device from the world."""
        self.world.pull(thing)

    def put_back(self, thing: str) -> None:
        """Add a removed device again, as it was."""
        self.world.put_back(thing)

    def make_busy(self, thing: str) -> None:
        """Set a device to busy."""
        self.world.change(thing, busy=True)

    def make_free(self, thing: str) -> None:
        """Clean a device, which makes the device free."""
        self.world.clean(thing)

    def restart(self) -> None:
        """Restart the world: sessions from before are no longer valid."""
        self.world.restart()

    def expect(self, at: int | None = None, fault: Fault | None = None) -> None:
        """Break the requests from now on, as ``Harness.expect`` describes."""
        self.world.expect(at, fault)

    @property
    def calls(self) -> Sequence[str]:
        """The drivers' requests since the last ``expect``."""
        return tuple(self.world.calls)

    def expected(self) -> Mapping[str, Expected]:
        """Return the units and traits of each device that is not busy."""
        return {
            name: Expected({UNITS: one.units}, self.traits(one))
            for name, one in self.world.devices.items()
            if not one.busy
        }

    def traits(self, device: Device) -> frozenset[str]:
        """Return the traits that the driver has to publish for a device."""
        return frozenset(device.traits)

    def change(self, thing: str) -> None:
        """Add two units and a trait to a device."""
        device = self.world.devices[thing]
        self.world.change(thing, units=device.units + 2, traits=(*device.traits, _MORE))

    def use(self, thing: str) -> None:
        """Let an instance use one more unit of a device."""
        self.world.change(thing, used=self.world.devices[thing].used + 1)

    def second_host(self, instance: str) -> str:
        """Return a section with the name of another world, with two new devices."""
        self.second.reset(_COUNT)
        return f"[{instance}]\nworld = {self._second_name}\n"

    def allocations(self, provider: str) -> Mapping[str, Any]:
        """Return the allocations of a provider by consumer, {} for an unknown provider."""
        try:
            return self.placement.client.get_provider_allocations(provider)
        except NotFound:
            return {}

    @property
    def _second_name(self) -> str:
        return f"{self.directory}-second"


class DevicesHarness(WorldHarness):
    """A world whose devices are children of one node: each device is a thing."""

    prefix: ClassVar[str] = f"{NODE}_device"

    def use_old_layout(self) -> OldLayout:
        """Let two instances use the devices, and return a layout with all units on the node.

        The first instance uses one unit of each of two devices, the second one of the second.
        """
        one, two = self.things()[:_COUNT]
        first, second = (str(uuid5(NAMESPACE_URL, f"{NODE}/{number}")) for number in (1, 2))
        self.world.uses = {first: {one: 1, two: 1}, second: {two: 1}}
        units = sum(device.units for device in self.world.devices.values())
        return OldLayout(
            inventories={
                SLOTS: Inventory(total=8, max_unit=8, allocation_ratio=4.0),
                UNITS: Inventory(total=units, max_unit=units),
            },
            allocations={first: {SLOTS: 2, UNITS: 2}, second: {UNITS: 1}},
            uses={
                consumer: {thing: {UNITS: units} for thing, units in its.items()}
                for consumer, its in self.world.uses.items()
            },
        )

    def traits(self, device: Device) -> frozenset[str]:
        """Return the traits of a device, with the trait of its function."""
        functions = {function_trait(device.function)} if device.function else set()
        return super().traits(device) | functions

    def image(self, thing: str) -> tuple[str, str]:
        """Return an image for all devices, with a function that this device does not have."""
        held = self.world.devices[thing].function
        function = "after" if held != "after" else "later"
        uuid = str(uuid5(NAMESPACE_URL, function))
        self.world.images[uuid] = function
        return uuid, function


class ReachableHarness(WorldHarness):
    """A world of machines that drivers in other processes reach over HTTP."""

    other_processes: ClassVar[Capability] = SUPPORTED

    def start(self) -> None:
        """Register the world, and serve the world over HTTP."""
        super().start()
        self.server = WorldServer(self.world)
        self.server.write(self.directory)

    def stop(self) -> None:
        """Unregister the world, and stop serving the world."""
        super().stop()
        self.server.shutdown()
        self.server.server_close()


class OlderHarness(Harness):
    """Removes the optional methods from the harness that comes after it in the bases."""

    expected = Harness.expected
    change = Harness.change
    use = Harness.use
    second_host = Harness.second_host


class OlderWorldHarness(OlderHarness, WorldHarness):
    """A WorldHarness without the optional methods."""


class OlderDevicesHarness(OlderHarness, DevicesHarness):
    """A DevicesHarness without the optional methods."""


class ManyMachinesHarness(WorldHarness):
    """A WorldHarness that has two thousand machines after each reset."""

    def reset(self) -> None:
        """Replace all devices by two thousand new ones."""
        self.world.reset(2000)


def harness_of(kind: type[LabDriver]) -> type[WorldHarness]:
    """Return the class of the harness that a driver needs."""
    if issubclass(kind, MachinesDriver):
        if kind.older:
            return OlderWorldHarness
        if kind.has_many:
            return ManyMachinesHarness
        return ReachableHarness if kind.reachable else WorldHarness
    assert issubclass(kind, DevicesDriver)
    return OlderDevicesHarness if kind.older else DevicesHarness
