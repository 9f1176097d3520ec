"""Instances of the Ironic driver, with a real Ironic and the real Placement.

Each instance publishes only the nodes with its owner in Ironic. So tests can share an Ironic, which
takes seconds to start.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import fixtures

from tests.lab.cycles import HOST, allocate, everything, make_state
from tests.lab.objects import opened
from tests.lab.placement import PlacementFixture
from wharfinger.allocations.allocation_writer import Consumers
from wharfinger.conf import load
from wharfinger.objects import Context, Service
from wharfinger.providers.removal import RemovalPolicy
from wharfinger.reconcile import driver_instance_loader
from wharfinger.reconcile.cycle import Reconciler
from wharfinger.reconcile.cycle_result import CycleResult
from wharfinger.reconcile.reserve_and_release import Reservations
from wharfinger.scheduling import provider_details
from wharfinger_harnesses.ironic import Ironic

#: The resource class of a node by default.
GOLD: Final = "CUSTOM_BAREMETAL_GOLD"

#: The traits of each node.
TRAITS: Final = ("CUSTOM_FAST", "HW_CPU_X86_VMX")

#: Total and reserved amounts by resource class.
Figures = dict[str, tuple[int, int]]


def with_template(ironic: Ironic) -> Ironic:
    """Create an available node without an owner, which ``Metal.available`` copies.

    A copy is quicker than to enroll and clean a node. Return the Ironic.
    """
    node = ironic.create_node(None)
    ironic.set_traits(node, *TRAITS)
    ironic.make_available(node)
    return ironic


class Metal(fixtures.Fixture):
    """An instance of the Ironic driver, with its database and its Reconciler ``cycle``.

    Instances with the same ``state_path`` share a database. ``options`` are written to the
    instance's section. ``url`` is the URL of Ironic, by default that of the fixture.
    """

    def __init__(
        self,
        placement: PlacementFixture,
        ironic: Ironic,
        state_path: Path,
        *,
        url: str | None = None,
        owner: str | None = None,
        name: str = "metal",
        host: str = HOST,
        removal_delay: float = 0,
        **options: str,
    ) -> None:
        super().__init__()
        self.placement = placement
        self.ironic = ironic
        self.owner = owner or uuid4().hex
        self.name = name
        self._url = url or ironic.url
        self._state_path = state_path
        self._host = host
        self._removal_delay = removal_delay
        self._options = options

    def _setUp(self) -> None:
        make_state(self._state_path)
        self._configuration = self._state_path / f"{self.name}-{self._host}.conf"
        self._configuration.write_text(self._configured())
        self._open: list[Context] = []
        self.addCleanup(self._close)
        self.restarted()

    def _configured(self) -> str:
        options = {
            "driver": "ironic",
            "auth_type": "none",
            "endpoint": self._url,
            "node_owner": self.owner,
            **self._options,
        }
        return "\n".join(
            [
                "[DEFAULT]",
                f"enabled_drivers = {self.name}",
                f"host = {self._host}",
                f"[{self.name}]",
                *(f"{name} = {value}" for name, value in options.items()),
                "",
            ]
        )

    def restarted(self) -> Reconciler:
        """Load the instance anew, as a new process does; only the database on disk stays."""
        instance = driver_instance_loader.load(load([str(self._configuration)]), self.name)
        instance.driver.init_host(Service(host=self._host, binary="wharfinger"))
        self.context = opened(self._state_path, self._host)
        self._open.append(self.context)
        self.client = self.placement.new_client()
        self.cycle = Reconciler(
            instance.driver,
            instance.publisher,
            self.client,
            self.context,
            RemovalPolicy(delay=self._removal_delay),
        )
        return self.cycle

    def _close(self) -> None:
        for context in self._open:
            context.close()

    # Actions.

    def enroll(self, **told: str) -> str:
        """Enroll a node with ``told`` as its ``extra["lab"]``; return its uuid.

        ``extra["lab"]`` controls the simulated hardware: see ironic_hardware.py.
        """
        uuid = self.ironic.create_node(None, owner=self.owner, extra={"lab": told})
        self.ironic.set_traits(uuid, *TRAITS)
        return uuid

    def available(self, **told: str) -> str:
        """Insert an available node with ``told`` as its ``extra["lab"]``; return its uuid."""
        extra = json.dumps({"lab": told})
        [uuid] = self.ironic.insert_nodes(1, owner=self.owner, extra=extra, updated_at=None)
        return uuid

    def told(self, uuid: str, **told: str) -> None:
        """Replace ``extra["lab"]`` of a node."""
        self.ironic.update_node(uuid, extra={"lab": told})

    def switch(self, uuid: str, power: str) -> None:
        """Switch the power of a node, and wait until Ironic shows it."""
        before = self.ironic.node(uuid)
        answer = self.ironic.ask("PUT", f"/v1/nodes/{uuid}/states/power", {"target": power})
        assert answer.ok
        # Ironic locks the node after it has answered.
        after = self.ironic.wait_for(uuid, before["provision_state"])
        assert after["power_state"] == power

    def forget(self, uuid: str) -> None:
        """Delete a node from Ironic's database, in any state."""
        for statement in (
            "DELETE FROM node_traits WHERE node_id = (SELECT id FROM nodes WHERE uuid = :it)",
            "DELETE FROM nodes WHERE uuid = :it",
        ):
            self.ironic.execute(statement, it=uuid)

    def write(self, uuid: str, **columns: Any) -> None:
        """Write columns of a node to Ironic's database, with a new ``updated_at``."""
        now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")
        values = {**columns, "updated_at": now}
        assignments = ", ".join(f"{name} = :{name}" for name in values)
        self.ironic.execute(f"UPDATE nodes SET {assignments} WHERE uuid = :it", **values, it=uuid)

    def goes(self, uuid: str, target: str, arrives: str) -> None:
        """Request the change ``target`` of a node, wait for the state ``arrives``, and poll."""
        self.ironic.provision(uuid, target)
        self.ironic.wait_for(uuid, arrives)
        self.poll()

    def goes_on(self, uuid: str, arrives: str) -> None:
        """Let a stopped node continue, wait until it is in the state ``arrives``, and poll."""
        self.ironic.go(uuid)
        self.ironic.wait_for(uuid, arrives)
        self.poll()

    def allocate(self, uuid: str, consumer: str) -> None:
        """Create a consumer's allocation of a node."""
        amounts: dict[str, Any] = {uuid: {GOLD: 1}}
        allocate(self.placement, consumer, **amounts)

    def sync(self) -> CycleResult:
        """Run a full cycle and require that it has no problems."""
        return _sound(self.cycle.sync())

    def poll(self) -> CycleResult:
        """Run a poll and require that it has no problems."""
        return _sound(self.cycle.poll())

    def release(self, consumer: str) -> None:
        Consumers(self.client).release(consumer, Reservations(self.client, self.context))

    # Observations.

    def figures(self, uuid: str) -> Figures | None:
        """Return total and reserved amounts of a node by class; None if it has no provider."""
        provider = everything().get(uuid)
        return provider and provider["inventories"]

    def reasons(self, uuid: str) -> list[str]:
        """Return why a node is reserved, as ``wharfinger reservation list`` prints it."""
        every = provider_details.reserved(self.context)
        return [one.reason for one in every if one.provider_uuid == uuid]

    def shows(self, uuid: str) -> tuple[Figures | None, list[str]]:
        return self.figures(uuid), self.reasons(uuid)


def reserved(*reasons: str, kind: str = GOLD) -> tuple[Figures, list[str]]:
    """Return what ``Metal.shows`` returns of a node that is reserved for these reasons."""
    return {kind: (1, 1)}, list(reasons)


def free(kind: str = GOLD) -> tuple[Figures, list[str]]:
    """Return what ``Metal.shows`` returns of a free node."""
    return {kind: (1, 0)}, []


@dataclass(frozen=True)
class Look:
    """The state of a provider before or after a request to Placement."""

    when: str
    figures: Figures
    is_candidate: bool

    @property
    def is_full(self) -> bool:
        """Return whether the provider has inventory and all of it is reserved."""
        return bool(self.figures) and all(total == its for total, its in self.figures.values())


def is_candidate(placement: PlacementFixture, uuid: str, kind: str = GOLD) -> bool:
    """Return whether Placement offers the node as a candidate for one unit of the class."""
    path = f"/allocation_candidates?resources={kind}:1"
    answer = placement.adapter.request(path, "GET", microversion="1.39")
    return uuid in answer.json()["provider_summaries"]


@contextmanager
def watching(placement: PlacementFixture, uuid: str, kind: str = GOLD) -> Iterator[list[Look]]:
    """Yield a list that gets the state of a provider before and after each write to Placement."""
    adapter = placement.adapter
    looks: list[Look] = []

    def look(when: str, method: str, path: str) -> None:
        if method != "GET":
            figures = everything()[uuid]["inventories"]
            looks.append(
                Look(f"{when} {method} {path}", figures, is_candidate(placement, uuid, kind))
            )

    adapter.before, adapter.after = partial(look, "before"), partial(look, "after")
    try:
        yield looks
    finally:
        adapter.before = adapter.after = lambda method, path: None


def _sound(outcome: CycleResult) -> CycleResult:
    assert not outcome.problems
    assert not outcome.foreign
    return outcome
