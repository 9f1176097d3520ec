"""The Ironic driver's backend: a real Ironic, whose nodes the conformance kit changes.

New nodes are copies, in the database, of a node that Ironic has made available: that is quick. All
other changes are made through Ironic's API.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final
from uuid import UUID

from os_resource_classes import normalize_name

from wharfinger.conformance.harness import Expected, Placement
from wharfinger.driver import unsupported
from wharfinger_harnesses.daemons import LabError
from wharfinger_harnesses.ironic import Ironic
from wharfinger_harnesses.ironic_rows import Row
from wharfinger_harnesses.service_harness import ServiceHarness

#: Nodes that there are at the beginning.
_COUNT: Final = 3
_TRAITS: Final = ("CUSTOM_FAST", "HW_CPU_X86_VMX")
_CLASSES: Final = ("baremetal.gold", "baremetal.silver")
#: How long ago a node was updated that is at rest, and how long before the next one: what was
#: updated a few seconds before the latest a feed may take for changed.
_REST: Final = timedelta(hours=1)
_APART: Final = timedelta(minutes=1)
#: Seconds that the driver waits for an answer; Ironic takes tenths of one.
_TIMEOUT: Final = 2


class IronicHarness(ServiceHarness):
    """Nodes of a real Ironic, which the driver reaches through a proxy.

    A busy node is being cleaned, and stays in "clean wait". It is unlocked there, so
    that it can be removed, and a restart of Ironic does not end this state.

    There is no ``use``, since an instance has a whole node, which is reserved then. There is no
    ``second_host``, since each host has all nodes of an Ironic.

    Nodes are numbered from ``reset`` on, so their names and uuids are the same in each run.
    """

    patience = 2.0 * _TIMEOUT
    cleaning = unsupported("a node that is available has been cleaned, if its Ironic cleans")

    def __init__(self, directory: Path, placement: Placement) -> None:
        super().__init__(directory, placement)
        self._removed: dict[str, Row] = {}
        self._numbered = 0

    def start(self) -> None:
        """Start an Ironic and create the node that others are copies of; takes seconds."""
        self._ironic = Ironic()
        self._serve(self._ironic)
        node = self._ironic.create_node(None)
        self._ironic.set_traits(node, *_TRAITS)
        self._ironic.make_available(node)
        self._ironic.update_node(node, extra={"lab": {"clean": "wait"}})
        self._first = self._read(node)

    def reset(self) -> None:
        """Replace all nodes by three available ones, and end all faults."""
        self._proxy.expect()
        self._ironic.rows.clear()
        self._ironic.clear_goes()
        self._removed.clear()
        self._numbered = 0
        self.grow(_COUNT)

    def configuration(self, instance: str) -> str:
        """All nodes of an Ironic without a Keystone."""
        return f"""\
[{instance}]
auth_type = none
endpoint = {self._proxy.url}
timeout = {_TIMEOUT}
"""

    def things(self) -> Sequence[str]:
        """The uuids of the nodes, the oldest first."""
        return self._ironic.rows.uuids()

    def add(self) -> str:
        """Add a node that has just become available."""
        [uuid] = self._make([datetime.now(UTC)])
        return uuid

    def grow(self, count: int) -> None:
        """Add ``count`` nodes whose last update was a while ago.

        A change feed does not show them; only a listing of all nodes does.
        """
        latest = datetime.now(UTC) - _REST - self._numbered * _APART
        self._make([latest - index * _APART for index in range(count)])

    def _make(self, updated: Sequence[datetime]) -> list[str]:
        """Add a node for each of these times of its last update; return their uuids."""
        numbers = range(self._numbered + 1, self._numbered + len(updated) + 1)
        self._numbered += len(updated)
        uuids = [str(UUID(int=number, version=4)) for number in numbers]
        self._ironic.rows.write(
            self._first,
            [
                {
                    "uuid": uuid,
                    "name": f"node-{number}",
                    "resource_class": _CLASSES[number % len(_CLASSES)],
                    "updated_at": _in_database(then),
                }
                for uuid, number, then in zip(uuids, numbers, updated, strict=True)
            ],
        )
        return uuids

    def remove(self, thing: str) -> None:
        """Delete a node, as an operator does; one that is busy is in maintenance for that."""
        self._removed[thing] = row = self._read(thing)
        if row.columns["provision_state"] != "available":
            self._ironic.set_maintenance(thing, "to be deleted")
        self._ironic.delete_node(thing)

    def put_back(self, thing: str) -> None:
        """Restore a removed node in the state that it had; only ``updated_at`` is new."""
        now = _in_database(datetime.now(UTC))
        self._ironic.rows.write(self._removed.pop(thing), [{"updated_at": now}])

    def make_busy(self, thing: str) -> None:
        """Start the cleaning of a node; it ends when the node is made free."""
        self._ironic.provision(thing, "manage")
        self._ironic.wait_for(thing, "manageable")
        self._ironic.provision(thing, "provide")
        self._ironic.wait_for(thing, "clean wait")

    def make_free(self, thing: str) -> None:
        """Let the cleaning end."""
        self._ironic.go(thing)
        self._ironic.wait_for(thing, "available")

    def expected(self) -> Mapping[str, Expected]:
        """Return, for each available node, one unit of its resource class, and its traits."""
        rows = {uuid: self._read(uuid) for uuid in self.things()}
        return {
            uuid: Expected(
                {normalize_name(row.columns["resource_class"]): 1},
                frozenset(trait["trait"] for trait in row.traits),
            )
            for uuid, row in rows.items()
            if row.columns["provision_state"] == "available"
        }

    def change(self, thing: str) -> None:
        """Give a node one trait more, as an operator does."""
        traits = [trait["trait"] for trait in self._read(thing).traits]
        self._ironic.set_traits(thing, *traits, f"CUSTOM_MORE_{len(traits)}")

    def _read(self, uuid: str) -> Row:
        row = self._ironic.rows.read(uuid)
        if row is None:
            raise LabError(f"there is no node {uuid}")
        return row


def _in_database(moment: datetime) -> datetime:
    """Ironic's database stores times in UTC, without a time zone."""
    return moment.astimezone(UTC).replace(tzinfo=None)
