"""The trees of a plan: each that is reshaped alone, and all the others together."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from wharfinger.driver import Allocations
from wharfinger.providers import DesiredProvider, Provider
from wharfinger.providers.ownership import Publisher
from wharfinger.providers.plan import Plan
from wharfinger.providers.planner import plan_trees
from wharfinger.providers.record import Record
from wharfinger.providers.removal import Removals
from wharfinger.reconcile.desire import Answers


@dataclass(frozen=True, slots=True)
class _Scope:
    """Trees that are planned together; ``reshape`` as ``plan_trees`` takes it."""

    reshape: tuple[Allocations, Allocations] | None
    desired: list[DesiredProvider]
    live: dict[str, Provider]
    records: dict[str, Record]


class Scopes:
    """The trees that can be planned.

    Those of which nothing is known are left out, and those of which the root ``is_planned`` not:
    they stay as they are.
    """

    def __init__(
        self,
        answers: Answers,
        live: Mapping[str, Provider],
        records: Mapping[str, Record],
        is_planned: Callable[[str | None], bool],
    ) -> None:
        together = _Scope(None, [], {}, {})
        alone = {
            root: _Scope(reshape, [], {}, {})
            for root, reshape in answers.reshapes.items()
            if root not in answers.failed
        }
        self._scopes: Final = [together, *alone.values()]

        def known(root: str | None) -> Iterator[_Scope]:
            if root not in answers.failed and is_planned(root):
                yield alone.get(root or "", together)

        for wanted in answers.desired.values():
            for scope in known(wanted.provider.root_uuid):
                scope.desired.append(wanted)

        def root_of(uuid: str) -> str | None:
            # What moves from one tree to another is planned where it goes.
            if uuid in answers.desired:
                return answers.desired[uuid].provider.root_uuid
            return live[uuid].root_uuid if uuid in live else records[uuid].root_uuid

        for uuid, provider in live.items():
            for scope in known(root_of(uuid)):
                scope.live[uuid] = provider
        for uuid, record in records.items():
            for scope in known(root_of(uuid)):
                scope.records[uuid] = record

    def plan(
        self,
        publisher: Publisher,
        removals: Removals,
        *,
        allocated: frozenset[str],
        held: frozenset[str],
        elsewhere: Mapping[str, Provider],
    ) -> Plan:
        """The plan of all of them; the arguments are those of ``plan_trees``."""
        return Plan.merge(
            plan_trees(
                publisher,
                scope.desired,
                scope.live,
                scope.records,
                removals=removals,
                allocated=allocated,
                held=held,
                elsewhere=elsewhere,
                reshape=scope.reshape,
            )
            for scope in self._scopes
        )
