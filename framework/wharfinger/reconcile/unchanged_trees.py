"""Find trees that full cycles can skip, since they are unchanged."""

from collections.abc import Iterable

from wharfinger.providers import DesiredProvider
from wharfinger.providers.plan import Plan
from wharfinger.reconcile.cycle_state import CycleState
from wharfinger.reconcile.observe import changed_trees


class UnchangedTrees:
    """Remembers the trees that the last full cycle left unchanged."""

    def __init__(self) -> None:
        self._desired: dict[str, list[DesiredProvider]] = {}

    def find(self, state: CycleState) -> frozenset[str]:
        """Return the roots of remembered trees that have not changed."""
        ends = {one.provider_uuid for one, phase in state.phases if phase is None}
        ends |= {one.provider_uuid for one in state.lost}
        changing = changed_trees(state).union(
            state.live[uuid].root_uuid for uuid in ends if uuid in state.live
        )
        same = {
            root
            for root, desired in _trees(state).items()
            if self._desired.get(root) == desired
            and all(
                (live := state.live.get(wanted.provider.uuid)) and live.root_uuid == root
                for wanted in desired
            )
        }
        return frozenset(same - changing)

    def forget(self, roots: Iterable[str]) -> None:
        """Forget trees that a cycle may have changed."""
        for root in roots:
            self._desired.pop(root, None)

    def update(self, state: CycleState, plan: Plan) -> None:
        """Note the trees that the plan of a full cycle leaves unchanged."""
        changed = {tree.root_uuid for tree in plan.trees} | state.blocked
        changed |= {step.root_uuid for step in plan.steps}
        planned = {uuid for tree in plan.trees for uuid in tree.records}
        planned |= {one.uuid for one in plan.pending}
        changed |= {state.live[uuid].root_uuid for uuid in planned & state.live.keys()}
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
