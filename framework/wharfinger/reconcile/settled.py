"""Trees that a complete listing left as they are: not planned again while nothing changes."""

from collections.abc import Iterable, Mapping, Set

from wharfinger.providers import DesiredProvider, Provider
from wharfinger.providers.plan import Plan
from wharfinger.reconcile.desire import Answers

_Trees = Mapping[str, list[DesiredProvider]]


class SettledTrees:
    """What was desired of each settled tree, by the uuid of its root."""

    def __init__(self) -> None:
        self._desired: dict[str, list[DesiredProvider]] = {}

    def among(
        self, answers: Answers, live: Mapping[str, Provider], unsettled: Iterable[str]
    ) -> frozenset[str]:
        """The roots of those of which the driver says what it said then, and that are whole.

        ``unsettled`` are those that something else may change, whatever it says.
        """
        same = {
            root
            for root, desired in _trees(answers).items()
            if self._desired.get(root) == desired
            and all(_is_in(root, live.get(wanted.provider.uuid)) for wanted in desired)
        }
        return frozenset(same.difference(unsettled))

    def forget(self, roots: Iterable[str]) -> None:
        """Take trees for unsettled: a plan of another kind may have changed them since."""
        for root in roots:
            self._desired.pop(root, None)

    def note(
        self, answers: Answers, live: Mapping[str, Provider], plan: Plan, before: Set[str]
    ) -> None:
        """Note which trees the plan of a listing leaves as they are; ``before`` were so already."""
        waiting = (one.uuid for one in plan.pending)
        uuids = [*plan.records, *waiting, *(one.uuid for one in plan.foreign)]
        touched = {
            *(step.root_uuid for step in plan.steps),
            *(live[uuid].root_uuid for uuid in uuids if uuid in live),
            *plan.troubled,
            *answers.failed,
        }
        self._desired = {
            root: desired
            for root, desired in _trees(answers).items()
            if root in before or root not in touched
        }


def _is_in(root: str, provider: Provider | None) -> bool:
    return provider is not None and provider.root_uuid == root


def _trees(answers: Answers) -> _Trees:
    trees: dict[str, list[DesiredProvider]] = {}
    for wanted in answers.desired.values():
        trees.setdefault(wanted.provider.root_uuid, []).append(wanted)
    return trees
