"""The harnesses of the drivers in this laboratory: they change a world that is in memory."""

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Final
from uuid import NAMESPACE_URL, uuid5

from tests.lab.conformance.honest import (
    NODE,
    SLOTS,
    UNITS,
    DevicesDriver,
    LabDriver,
    MachinesDriver,
)
from tests.lab.conformance.world import WORLDS, World
from wharfinger.conformance.harness import Fault, Harness, OldLayout, Placement
from wharfinger.driver import SUPPORTED, Capability, unsupported
from wharfinger.providers import Inventory

#: Devices at a reset.
_COUNT: Final = 2


class WorldHarness(Harness):
    """Machines: each is a thing."""

    patience: ClassVar[float] = 3.0
    other_processes: ClassVar[Capability] = unsupported("it is in this process's memory")
    prefix: ClassVar[str] = "machine-"

    def __init__(self, directory: Path, placement: Placement) -> None:
        super().__init__(directory, placement)
        self.world: Final = World(self.prefix)

    def start(self) -> None:
        """Have it be found by the name of the directory."""
        WORLDS[str(self.directory)] = self.world

    def stop(self) -> None:
        """Have it be found no longer, and end what waits for it."""
        self.world.expect(None, None)
        WORLDS.pop(str(self.directory), None)

    def reset(self) -> None:
        """Have new devices."""
        self.world.reset(_COUNT)

    def configuration(self, instance: str) -> str:
        """The world's name."""
        return f"[{instance}]\nworld = {self.directory}\n"

    def things(self) -> Sequence[str]:
        """The devices."""
        return [*self.world.devices]

    def add(self) -> str:
        """Have one more."""
        return self.world.add()

    def remove(self, thing: str) -> None:
        """Pull it."""
        self.world.pull(thing)

    def put_back(self, thing: str) -> None:
        """Put it into its slot."""
        self.world.put_back(thing)

    def make_busy(self, thing: str) -> None:
        """Have somebody else use it."""
        self.world.change(thing, busy=True)

    def make_free(self, thing: str) -> None:
        """Have it cleaned."""
        self.world.clean(thing)

    def restart(self) -> None:
        """Have sessions end."""
        self.world.restart()

    def expect(self, at: int | None = None, fault: Fault | None = None) -> None:
        """As the contract says."""
        self.world.expect(at, fault)

    @property
    def calls(self) -> Sequence[str]:
        """The requests."""
        return tuple(self.world.calls)


class DevicesHarness(WorldHarness):
    """Devices below a node: each is a thing."""

    prefix: ClassVar[str] = f"{NODE}_device"

    def use_old_layout(self) -> OldLayout:
        """Two consumers, one of which uses both devices."""
        one, two = self.things()[:_COUNT]
        first, second = (str(uuid5(NAMESPACE_URL, f"{NODE}/{number}")) for number in (1, 2))
        self.world.uses = {first: {one: 1, two: 1}, second: {two: 1}}
        return OldLayout(
            inventories={
                SLOTS: Inventory(total=8, max_unit=8, allocation_ratio=4.0),
                UNITS: Inventory(total=8, max_unit=8),
            },
            allocations={first: {SLOTS: 2, UNITS: 2}, second: {UNITS: 1}},
        )

    def image(self, thing: str) -> tuple[str, str]:
        """One that all devices take."""
        uuid = str(uuid5(NAMESPACE_URL, "image"))
        self.world.images[uuid] = "after"
        return uuid, "after"


class ReachableHarness(WorldHarness):
    """Machines of which other processes hear, as they are when they begin to."""

    other_processes: ClassVar[Capability] = SUPPORTED

    def configuration(self, instance: str) -> str:
        """The world's name, under which it is written down, too."""
        self.world.write(self.directory)
        return super().configuration(instance)


class ManyMachinesHarness(WorldHarness):
    """Two thousand machines, from the beginning."""

    def reset(self) -> None:
        """Have new devices."""
        self.world.reset(2000)


def harness_of(kind: type[LabDriver]) -> type[WorldHarness]:
    """The harness that fits a driver."""
    if issubclass(kind, MachinesDriver):
        if kind.has_many:
            return ManyMachinesHarness
        return ReachableHarness if kind.reachable else WorldHarness
    assert issubclass(kind, DevicesDriver)
    return DevicesHarness
