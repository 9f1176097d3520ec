"""Mutants of inventory in use that moves (WHF-6..)."""

from tests.lab.conformance.honest import UNITS, DevicesDriver, Held
from tests.lab.conformance.mutants import mutant
from wharfinger.exceptions import BackendError
from wharfinger.providers import ProviderTree


@mutant("WHF-601")
class LosesAllocations(DevicesDriver):
    """It takes the units from the node, and gives one of them to each device in use."""

    def move(self, tree: ProviderTree, node: str, consumer: str, held: Held) -> None:
        root = tree.data(node).uuid
        if held[root]["resources"].pop(UNITS, 0):
            device = next(iter(self.uses[consumer]))
            held[tree.data(device).uuid] = {"resources": {UNITS: 1}}
        if not held[root]["resources"]:
            del held[root]


@mutant("WHF-601")
class LosesWhatIsElsewhere(DevicesDriver):
    """It says anew what a consumer has, and leaves out what that has of others."""

    def move(self, tree: ProviderTree, node: str, consumer: str, held: Held) -> None:
        super().move(tree, node, consumer, held)
        for uuid in [one for one in held if not tree.exists(one)]:
            del held[uuid]


@mutant("WHF-601")
class MovesNothing(DevicesDriver):
    """It has the inventory move, and not what is allocated from it."""

    def reshape_needed(self) -> None:
        pass


@mutant("WHF-602")
class MovesAgain(DevicesDriver):
    """It has a part of each allocation be on another device each time."""

    def has_to_move(self, tree: ProviderTree, node: str) -> bool:
        return bool(self.uses)


@mutant("WHF-603")
class AsksTooLate(DevicesDriver):
    """It asks who uses what when that has to move, and takes no answer for nobody."""

    def reshape_needed(self) -> None:
        try:
            self.uses = self.ask("uses")
        except BackendError:
            return
        super().reshape_needed()
