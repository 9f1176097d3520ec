"""The Ironic driver's harness: a real Ironic, whose nodes the conformance kit changes."""

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

#: The number of nodes after a reset.
_COUNT: Final = 3
_TRAITS: Final = ("CUSTOM_FAST", "HW_CPU_X86_VMX")
_CLASSES: Final = ("baremetal.gold", "baremetal.silver")
#: The conductor group of the second host. The first host has the default group.
_SECOND: Final = "second"
#: The age of the last update of nodes that must not look changed, and the time between two nodes.
_REST: Final = timedelta(hours=1)
_APART: Final = timedelta(minutes=1)
#: Seconds that the driver waits for an answer.
_TIMEOUT: Final = 2


class IronicHarness(ServiceHarness):
    """Nodes of a real Ironic. A busy node is being cleaned."""

    patience = 2.0 * _TIMEOUT
    uses = unsupported("an instance uses a whole node, and the driver then reserves the node")
    cleaning = unsupported("a node that is available has been cleaned, if its Ironic cleans")

    def __init__(self, directory: Path, placement: Placement) -> None:
        super().__init__(directory, placement)
        self._removed: dict[str, Row] = {}
        self._numbered = 0
        self._others: list[str] = []

    def start(self) -> None:
        self._ironic = Ironic()
        self._serve(self._ironic)
        node = self._ironic.create_node(None)
        self._ironic.set_traits(node, *_TRAITS)
        self._ironic.make_available(node)
        self._ironic.update_node(node, extra={"lab": {"clean": "wait"}})
        self._first = self._read(node)

    def reset(self) -> None:
        self._proxy.expect()
        self._ironic.rows.clear()
        self._ironic.clear_goes()
        self._removed.clear()
        self._numbered = 0
        self._others = []
        self.grow(_COUNT)

    def configuration(self, instance: str) -> str:
        return self._configuration(instance, "")

    def second_host(self, instance: str) -> str:
        self._others = self._make([datetime.now(UTC)] * 2, conductor_group=_SECOND)
        return self._configuration(instance, _SECOND)

    def _configuration(self, instance: str, group: str) -> str:
        return f"""\
[{instance}]
auth_type = none
endpoint = {self._proxy.url}
timeout = {_TIMEOUT}
conductor_group = {group}
"""

    def things(self) -> Sequence[str]:
        return [uuid for uuid in self._ironic.rows.uuids() if uuid not in self._others]

    def add(self) -> str:
        [uuid] = self._make([datetime.now(UTC)])
        return uuid

    def grow(self, count: int) -> None:
        latest = datetime.now(UTC) - _REST - self._numbered * _APART
        self._make([latest - index * _APART for index in range(count)])

    def _make(self, updated: Sequence[datetime], **columns: str) -> list[str]:
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
                    **columns,
                }
                for uuid, number, then in zip(uuids, numbers, updated, strict=True)
            ],
        )
        return uuids

    def remove(self, thing: str) -> None:
        self._removed[thing] = row = self._read(thing)
        if row.columns["provision_state"] != "available":
            self._ironic.set_maintenance(thing, "to be deleted")
        self._ironic.delete_node(thing)

    def put_back(self, thing: str) -> None:
        now = _in_database(datetime.now(UTC))
        self._ironic.rows.write(self._removed.pop(thing), [{"updated_at": now}])

    def make_busy(self, thing: str) -> None:
        self._ironic.provision(thing, "manage")
        self._ironic.wait_for(thing, "manageable")
        self._ironic.provision(thing, "provide")
        self._ironic.wait_for(thing, "clean wait")

    def make_free(self, thing: str) -> None:
        self._ironic.go(thing)
        self._ironic.wait_for(thing, "available")

    def expected(self) -> Mapping[str, Expected]:
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
        traits = [trait["trait"] for trait in self._read(thing).traits]
        self._ironic.set_traits(thing, *traits, f"CUSTOM_MORE_{len(traits)}")

    def _read(self, uuid: str) -> Row:
        row = self._ironic.rows.read(uuid)
        if row is None:
            raise LabError(f"there is no node {uuid}")
        return row


def _in_database(moment: datetime) -> datetime:
    return moment.astimezone(UTC).replace(tzinfo=None)
