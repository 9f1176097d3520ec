"""Trees of which a driver has not been asked, or could not say: what is to be done all the same."""

from collections.abc import Mapping, Set
from typing import Final

from wharfinger.providers import Provider
from wharfinger.providers.compute_status import as_it_is, says_disabled
from wharfinger.providers.ownership import Publisher
from wharfinger.providers.plan import Plan
from wharfinger.providers.planner import plan_trees
from wharfinger.providers.record import Record
from wharfinger.providers.removal import RemovalPolicy, Removals
from wharfinger.reconcile.records import InstanceMemory


class UnaskedTrees:
    """The trees of a driver instance, as far as it takes no driver to know what they have to say.

    Their roots say that the service is disabled if it is, and what is held is reserved; all else is
    as it is.
    """

    def __init__(self, publisher: Publisher, policy: RemovalPolicy, memory: InstanceMemory) -> None:
        self._publisher: Final = publisher
        self._policy: Final = policy
        self._memory: Final = memory

    def not_disabled(self) -> dict[str, Record]:
        """The records of the roots that do not say yet that the service is disabled."""
        return {
            uuid: record
            for uuid, record in self._memory.records.items()
            if record.applied
            and record.applied.parent_uuid is None
            and not says_disabled(record)
            and self._can_be_written(uuid, record)
        }

    def plan(
        self,
        roots: Set[str],
        live: Mapping[str, Provider],
        records: Mapping[str, Record],
        *,
        held: Set[str] = frozenset(),
        disabled: bool,
    ) -> Plan:
        """The plan of the trees of these roots."""
        due = {
            uuid: records[uuid]
            for uuid in {*roots, *held} & live.keys() & records.keys()
            if (uuid in held and live[uuid].root_uuid in roots) or (disabled and uuid in roots)
            if self._can_be_written(uuid, records[uuid])
        }
        return plan_trees(
            self._publisher,
            [
                as_it_is(live[uuid], record, disabled=disabled and uuid in roots)
                for uuid, record in due.items()
            ],
            {uuid: live[uuid] for uuid in due},
            due,
            removals=Removals(now=0.0, policy=self._policy, is_listing=False),
            held=held,
        )

    def _can_be_written(self, uuid: str, record: Record) -> bool:
        """Whether a provider can be written though no more is known of it.

        It is ours, and not absent.
        """
        return (
            record.applied is not None
            and record.absent_since is None
            and uuid not in self._memory.damaged
        )
