"""Mutants that break the rules on reshapes (WHF-6xx)."""

from collections import Counter
from collections.abc import Sequence
from itertools import cycle

from tests.lab.conformance.honest import SLOTS, UNITS, DevicesDriver, Facts, Held
from tests.lab.conformance.mutants import mutant
from wharfinger.driver import Allocations
from wharfinger.exceptions import BackendError
from wharfinger.objects import Migration
from wharfinger.providers import Inventory, ProviderTree


@mutant("WHF-601")
class LosesAllocations(DevicesDriver):
    """Moves only one unit of a consumer's allocation, to its first device."""

    def move(self, tree: ProviderTree, node: str, consumer: str, held: Held) -> None:
        root = tree.data(node).uuid
        if held[root]["resources"].pop(UNITS, 0):
            device = next(iter(self.uses[consumer]))
            held[tree.data(device).uuid] = {"resources": {UNITS: 1}}
        if not held[root]["resources"]:
            del held[root]


@mutant("WHF-601")
class LosesWhatIsElsewhere(DevicesDriver):
    """Drops a consumer's allocations of other programs' providers."""

    def move(self, tree: ProviderTree, node: str, consumer: str, held: Held) -> None:
        super().move(tree, node, consumer, held)
        for uuid in [one for one in held if not tree.exists(one)]:
            del held[uuid]


@mutant("WHF-601")
class MovesNothing(DevicesDriver):
    """Moves the inventory, but not the allocations."""

    def reshape_needed(self) -> None:
        pass


@mutant("WHF-604")
class MovesToTheFirst(DevicesDriver):
    """Moves the allocations of all consumers to the first device."""

    def move(self, tree: ProviderTree, node: str, consumer: str, held: Held) -> None:
        units = sum(self.uses.get(consumer, {}).values())
        self.uses = {**self.uses, consumer: {next(iter(self.devices)): units}}
        super().move(tree, node, consumer, held)


@mutant("WHF-604")
class ReadsTheDevicesBackwards(DevicesDriver):
    """Moves the allocations of each consumer to the devices in the opposite slots."""

    def read(self) -> None:
        super().read()
        opposite = dict(zip(self.devices, reversed(self.devices), strict=True))
        self.uses = {
            consumer: {opposite[device]: units for device, units in its.items()}
            for consumer, its in self.uses.items()
        }


@mutant("WHF-604")
class MovesInTurns(DevicesDriver):
    """Moves one unit after the other to the devices in turn."""

    def update_provider_tree(
        self,
        provider_tree: ProviderTree,
        nodename: str,
        allocations: Allocations | None = None,
        migrations: Sequence[Migration] | None = None,
    ) -> None:
        self.turns = cycle(self.devices)
        super().update_provider_tree(provider_tree, nodename, allocations, migrations)

    def move(self, tree: ProviderTree, node: str, consumer: str, held: Held) -> None:
        units = sum(self.uses.get(consumer, {}).values())
        turns = Counter(next(self.turns) for _ in range(units))
        self.uses = {**self.uses, consumer: turns}
        super().move(tree, node, consumer, held)


@mutant("WHF-605")
class MovesToThoseOfTheLast(DevicesDriver):
    """Moves all allocations to the device of the last consumer in the list."""

    def update_provider_tree(
        self,
        provider_tree: ProviderTree,
        nodename: str,
        allocations: Allocations | None = None,
        migrations: Sequence[Migration] | None = None,
    ) -> None:
        self.last = [*(allocations or [""])][-1]
        super().update_provider_tree(provider_tree, nodename, allocations, migrations)

    def move(self, tree: ProviderTree, node: str, consumer: str, held: Held) -> None:
        units = sum(self.uses.get(consumer, {}).values())
        device = next(iter(self.uses.get(self.last, {"": 0})))
        mine = self.uses
        self.uses = {**mine, consumer: {device: units}}
        super().move(tree, node, consumer, held)
        self.uses = mine


@mutant("WHF-602")
class MovesAgain(DevicesDriver):
    """Raises ReshapeNeeded again after the reshape."""

    def has_to_move(self, tree: ProviderTree, node: str) -> bool:
        return bool(self.uses)


@mutant("WHF-603")
class AsksTooLate(DevicesDriver):
    """Publishes the new layout without a reshape if it cannot read which devices consumers use."""

    def reshape_needed(self) -> None:
        try:
            self.uses = self.ask("uses")
        except BackendError:
            return
        super().reshape_needed()


@mutant("WHF-606")
class PublishesTheRest(DevicesDriver):
    """Subtracts the used units from the total of a device."""

    def inventory(self, name: str, facts: Facts) -> dict[str, Inventory]:
        used = sum(one.get(name, 0) for one in self.uses.values())
        return super().inventory(name, {**facts, "units": facts["units"] - used})


@mutant("WHF-606")
class CountsTheInstancesOfTheNode(DevicesDriver):
    """Publishes fewer slots of the node for each instance."""

    def describe_root(self, tree: ProviderTree, node: str) -> None:
        super().describe_root(tree, node)
        slots = 8 - len(self.uses)
        tree.update_inventory(
            node, {SLOTS: Inventory(total=slots, max_unit=slots, allocation_ratio=4.0)}
        )
