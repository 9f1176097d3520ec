"""Run cycles of a scripted driver with the real Placement, and read Placement's contents."""

import sqlite3
from collections import defaultdict
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import fixtures
from placement import db_api
from sqlalchemy import Engine, text

from tests.lab.drivers import ScriptedDriver
from tests.lab.objects import opened
from tests.lab.placement import PlacementFixture
from wharfinger.db.database import FILE_NAME, Database
from wharfinger.objects import Context, ProviderRecordList
from wharfinger.objects.database_context import local
from wharfinger.providers.ownership import Publisher
from wharfinger.providers.provider import Record, Uptime
from wharfinger.providers.removal import RemovalPolicy
from wharfinger.reconcile.cycle import Reconciler
from wharfinger.reconcile.record_store import RecordStore

HOST = "test-host"
#: The queries with which ``contents`` reads everything.
_QUERIES: Final = {
    "inventories": "SELECT resource_provider_id, name, total, reserved FROM inventories"
    " JOIN resource_classes ON resource_classes.id = resource_class_id ORDER BY name",
    "traits": "SELECT resource_provider_id, name FROM resource_provider_traits"
    " JOIN traits ON traits.id = trait_id",
    "aggregates": "SELECT resource_provider_id, uuid FROM resource_provider_aggregates"
    " JOIN placement_aggregates ON placement_aggregates.id = aggregate_id",
    "allocations": "SELECT resource_provider_id, consumer_id, name, used FROM allocations"
    " JOIN resource_classes ON resource_classes.id = resource_class_id",
}


class Publishing(fixtures.Fixture):
    """An instance of the ScriptedDriver, with its database and its Reconciler ``cycle``.

    The database is a SQLite file in ``state_path``, or the one with the URL ``database``.
    """

    def __init__(
        self,
        placement: PlacementFixture,
        state_path: Path,
        *,
        owner: str = "OWNER_NOVA",
        name: str = "scripted",
        host: str = HOST,
        removal_delay: float = 0,
        allow_mass_removal: bool = False,
        database: str | None = None,
        down_time: timedelta = timedelta(seconds=60),
        read_uptime: Callable[[], Uptime | None] | None = None,
        adopts_matching: bool = False,
        adopts: frozenset[str] = frozenset(),
    ) -> None:
        super().__init__()
        self.database = database
        self.placement = placement
        self.state_path = state_path
        self.publisher = Publisher(name, owner, adopts_matching=adopts_matching, adopts=adopts)
        self.host = host
        self.removal_delay = removal_delay
        self.allow_mass_removal = allow_mass_removal
        self.down_time = down_time
        self.read_uptime = read_uptime

    def _setUp(self) -> None:
        if self.read_uptime is not None:
            self.useFixture(
                fixtures.MonkeyPatch("wharfinger.reconcile.kernel_uptime.read", self.read_uptime)
            )
        self.driver = ScriptedDriver(self.publisher.instance)
        self.driver.host = self.host
        make_state(self.state_path)
        self._open: list[Context] = []
        self.addCleanup(self._close)
        self.restarted()

    def restarted(self) -> Reconciler:
        """Create a new cycle and client, as a new process does; only the database stays."""
        context = self.context = (
            opened(self.state_path) if self.database is None else self._connected(self.database)
        )
        self._open.append(context)
        self.client = self.placement.new_client()
        self.cycle = Reconciler(
            self.driver,
            self.publisher,
            self.client,
            context,
            RemovalPolicy(delay=self.removal_delay, allow_mass=self.allow_mass_removal),
            down_time=self.down_time,
        )
        self.store = self.cycle.store
        return self.cycle

    def _connected(self, url: str) -> Context:
        return Context(Database(url, directory=self.state_path, host=self.host, managed=True))

    def _close(self) -> None:
        for context in self._open:
            context.close()


def make_state(state_path: Path) -> None:
    """Create a state directory with a copy of an empty database; migrations take longer."""
    database = state_path / FILE_NAME
    if not database.exists():
        state_path.mkdir(parents=True, exist_ok=True, mode=0o750)
        database.write_bytes(_empty_database())


@cache
def _empty_database() -> bytes:
    with TemporaryDirectory() as directory:
        local(Path(directory), HOST).close()
        return (Path(directory) / FILE_NAME).read_bytes()


def stored(state_path: Path, instance: str = "scripted", host: str = HOST) -> dict[str, Record]:
    """Return the records of an instance's providers, as a new process reads them."""
    context = opened(state_path)
    try:
        return record_store(context, host, instance).records
    finally:
        context.close()


def execute(publishing: "Publishing", statement: str, *values: str) -> None:
    """Change rows of the database, such as to damage them; assert that there are some."""
    with closing(sqlite3.connect(publishing.state_path / FILE_NAME)) as database, database:
        assert database.execute(statement, values).rowcount


def record_store(context: Context, host: str, instance: str) -> RecordStore:
    """Return a store with all records of a driver instance."""
    rows = ProviderRecordList.get_by_filters(context, host=host, driver_instance=instance)
    return RecordStore(context, host, instance, rows)


def contents(_placement: PlacementFixture) -> dict[str, dict[str, Any]]:
    """Return all providers in Placement by name, without allocations and generations."""
    return {
        name: {part: what for part, what in one.items() if part != "allocations"}
        for name, one in everything().items()
    }


def everything(engine: Engine | None = None) -> dict[str, dict[str, Any]]:
    """Return all providers in Placement by name, with their allocations.

    Read Placement's database, which is a hundred times faster than the API. ``engine`` is the
    database of another Placement than that of this process.
    """
    with (engine or db_api.get_placement_engine()).connect() as connection:
        providers = connection.execute(
            text("SELECT id, uuid, name, parent_provider_id FROM resource_providers")
        ).all()
        parts: dict[str, dict[int, list[Any]]] = {}
        for part, query in _QUERIES.items():
            rows = parts[part] = defaultdict(list)
            for provider, *values in connection.execute(text(query)):
                rows[provider].append(values)
    names = {provider.id: provider.name for provider in providers}
    found = {
        one.name: {
            "uuid": one.uuid,
            "parent": names.get(one.parent_provider_id),
            "inventories": {
                name: (total, reserved) for name, total, reserved in parts["inventories"][one.id]
            },
            "traits": {name for (name,) in parts["traits"][one.id]},
            "aggregates": {uuid for (uuid,) in parts["aggregates"][one.id]},
            "allocations": {
                (consumer, name): used for consumer, name, used in parts["allocations"][one.id]
            },
        }
        for one in providers
    }
    assert len(found) == len({one.uuid for one in providers}) == len(providers)
    return found


def allocate(
    placement: PlacementFixture,
    consumer: str,
    microversion: str = "1.39",
    **amounts: dict[str, int],
) -> None:
    """Create a consumer's allocations: amounts by provider name and class."""
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
