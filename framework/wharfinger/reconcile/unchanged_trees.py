"""Trees that the last full cycle left unchanged: full cycles skip them until they change."""

from collections.abc import Iterable

from wharfinger.providers import DesiredProvider
from wharfinger.providers.plan import Plan
from wharfinger.reconcile.cycle_state import CycleState


class UnchangedTrees:
    """Keeps the desired providers of each unchanged tree, to save computing time."""

    def __init__(self) -> None:
        self._desired: dict[str, list[DesiredProvider]] = {}

    def find(self, state: CycleState, changing: Iterable[str]) -> frozenset[str]:
        """Return the roots of the trees in which the driver reports the same providers as before.

        ``changing`` are the roots of trees that may change for another reason: leave them out.
        """
        same = {
            root
            for root, desired in _trees(state).items()
            if self._desired.get(root) == desired
            and all(
                (live := state.live.get(wanted.provider.uuid)) and live.root_uuid == root
                for wanted in desired
            )
        }
        return frozenset(same.difference(changing))

    def forget(self, roots: Iterable[str]) -> None:
        """Forget trees that a drift cycle or poll may have changed."""
        for root in roots:
            self._desired.pop(root, None)

    def update(self, state: CycleState, plan: Plan) -> None:
        """Note the trees that the plan of a full cycle leaves unchanged."""
        changed = {tree.root_uuid for tree in plan.trees} | state.blocked
        for tree in plan.trees:
            uuids = [
                *tree.records,
                *(one.uuid for one in tree.pending),
                *(one.uuid for one in tree.foreign),
            ]
            changed.update(state.live[uuid].root_uuid for uuid in uuids if uuid in state.live)
            changed.update(step.root_uuid for step in tree.steps)
        self._desired = {
            root: desired
            for root, desired in _trees(state).items()
            if root in state.unchanged or root not in changed
        }


def _trees(state: CycleState) -> dict[str, list[DesiredProvider]]:
    trees: dict[str, list[DesiredProvider]] = {}
    for wanted in state.desired.values():
        trees.setdefault(wanted.provider.root_uuid, []).append(wanted)
    return trees
