"""Cycles of a scripted driver against the real Placement."""

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import fixtures

from tests.lab.drivers import ScriptedDriver
from tests.lab.placement import PlacementFixture
from wharfinger.db.database import FILE_NAME
from wharfinger.objects import Context
from wharfinger.objects.context import local
from wharfinger.placement import survey
from wharfinger.providers.ownership import Publisher
from wharfinger.providers.record import Record
from wharfinger.providers.removal import RemovalPolicy
from wharfinger.tracker.cycle import DriverCycle
from wharfinger.tracker.memory import InstanceMemory

HOST = "test-host"


class Publishing(fixtures.Fixture):
    """A scripted driver instance, its state and what it has published."""

    def __init__(
        self,
        placement: PlacementFixture,
        state_path: Path,
        *,
        owner: str = "OWNER_NOVA",
        name: str = "scripted",
        removal_delay: float = 0,
        allow_mass_removal: bool = False,
    ) -> None:
        super().__init__()
        self.placement = placement
        self.state_path = state_path
        self.publisher = Publisher(name, owner)
        self.removal_delay = removal_delay
        self.allow_mass_removal = allow_mass_removal

    def _setUp(self) -> None:
        self.driver = ScriptedDriver(self.publisher.instance)
        make_state(self.state_path)
        self._open: list[Context] = []
        self.addCleanup(self._close)
        self.restarted()

    def restarted(self) -> DriverCycle:
        """From now on, the cycle of a process that starts now: it knows what is on the disk."""
        context = self.context = local(self.state_path, HOST)
        self._open.append(context)
        self.client = self.placement.new_client()
        self.cycle = DriverCycle(
            self.driver,
            self.publisher,
            self.client,
            context,
            RemovalPolicy(delay=self.removal_delay, allow_mass=self.allow_mass_removal),
        )
        self.memory = self.cycle.memory
        return self.cycle

    def _close(self) -> None:
        for context in self._open:
            context.close()


def make_state(state_path: Path) -> None:
    """Have a state directory with an empty database: copied, which is quicker than its making."""
    database = state_path / FILE_NAME
    if not database.exists():
        state_path.mkdir(parents=True, exist_ok=True, mode=0o750)
        database.write_bytes(_empty_database())


@cache
def _empty_database() -> bytes:
    with TemporaryDirectory() as directory:
        local(Path(directory), HOST).close()
        return (Path(directory) / FILE_NAME).read_bytes()


def stored(state_path: Path, instance: str = "scripted") -> dict[str, Record]:
    """What a process that starts now would remember."""
    context = local(state_path, HOST)
    try:
        return dict(InstanceMemory(context, HOST, instance).records)
    finally:
        context.close()


def contents(placement: PlacementFixture) -> dict[str, dict[str, Any]]:
    """Everything in Placement, by provider name; less what only counts changes."""
    client = placement.new_client()
    summaries = client.list_providers()
    names = {summary.uuid: summary.name for summary in summaries}
    return {
        one.summary.name: {
            "uuid": one.summary.uuid,
            "parent": names.get(one.summary.parent_provider_uuid or ""),
            "inventories": {
                name: (item.total, item.reserved)
                for name, item in sorted((one.inventories or {}).items())
            },
            "traits": set(one.traits or ()),
            "aggregates": set(client.get_aggregates(one.summary.uuid).aggregates),
        }
        for one in survey.details(client, summaries, inventory=True, traits=True)
    }


def allocate(
    placement: PlacementFixture,
    consumer: str,
    microversion: str = "1.39",
    **amounts: dict[str, int],
) -> None:
    """Have a consumer use amounts, by class, of providers by name."""
    kind = {"consumer_type": "INSTANCE"} if microversion == "1.39" else {}
    by_name = {one.name: one.uuid for one in placement.client.list_providers()}
    response = placement.adapter.request(
        f"/allocations/{consumer}",
        "PUT",
        microversion=microversion,
        raise_exc=False,
        json={
            "allocations": {by_name[name]: {"resources": use} for name, use in amounts.items()},
            "project_id": "project",
            "user_id": "user",
            "consumer_generation": None,
            **kind,
        },
    )
    assert response.status_code == 204, response.text
