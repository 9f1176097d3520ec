"""Instances that have a claim on a node of a service host, from their database rows."""

from collections.abc import Mapping
from typing import NamedTuple

from wharfinger.objects import HostState, Instance

#: Amounts by resource class, by provider uuid.
_Allocations = Mapping[str, Mapping[str, int]]


class ClaimedInstance(NamedTuple):
    """An instance that is on a node, and that no process claims or releases at the moment."""

    node: str
    revision: int
    #: The allocations in the row of the instance; None if no process has stored them there yet.
    allocations: _Allocations | None


class ClaimedInstances:
    """Cache of the claimed instances of a service host."""

    def __init__(self) -> None:
        self.by_uuid: dict[str, ClaimedInstance] = {}

    def update(self, rows: HostState) -> None:
        """Update instances that have changed since the last read; drop instances that left."""
        changed = {one.uuid: claimed_instance(one) for one in rows.instances if "uuid" in one}
        found = self.by_uuid | changed
        self.by_uuid = {
            uuid: claimed
            for uuid in rows.instance_revisions
            if (claimed := found.get(uuid)) is not None
        }


def claimed_instance(one: Instance) -> ClaimedInstance | None:
    """Return a ClaimedInstance; None if the instance is on no node, or in a claim or release."""
    node, revision = one.known("node"), one.known("revision")
    if node is None or revision is None or one.known("task_state") is not None:
        return None
    return ClaimedInstance(node, revision, one.known("claimed_allocations"))
