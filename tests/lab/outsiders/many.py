"""A right driver whose rack has two thousand nodes."""

from typing import Any, ClassVar, Final

from tests.lab.outsiders.rack import RackDriver
from tests.lab.outsiders.rack_harness import RackHarness
from tests.lab.outsiders.running import Outsider


class ManyNodesHarness(RackHarness):
    """Gives each node one card. Rules that grow the backend grow it to two thousand nodes."""

    growth: ClassVar[int] = 500

    def add(self) -> str:
        number = self.made
        self.made += 1
        return self.put(f"a-node{number}", 0)

    def new_node(self, node: str) -> dict[str, Any]:
        return {"name": node, "cpus": 64, "memory": 262144}


class TwoThousandNodes(RackDriver):
    """Publishes up to two thousand nodes with one card each."""


MANY: Final = Outsider(TwoThousandNodes, ManyNodesHarness)
