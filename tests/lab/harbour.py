"""Run the two processes of at_work.py until they are killed, and check what the next cycles repair.

One such run is a round. The faults are those of agreement.py.
"""

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import fixtures
import sqlalchemy as sa
from placement import db_api

from tests.lab.agreement import OTHERS, OTHERS_FIGURES, Seen
from tests.lab.at_work import OWNER, Ledger, Work, cycles, moves, play, settle
from tests.lab.objects import Kept
from tests.lab.placement import PlacementFixture, empty
from tests.lab.yard import HOSTS, Yard
from wharfinger.allocations.allocation_writer import Consumers
from wharfinger.objects import Instance, ReservationList
from wharfinger.placement.embedded import EmbeddedPlacement
from wharfinger.providers import Inventory
from wharfinger.reconcile.cycle import Reconciler
from wharfinger.reconcile.cycle_result import CycleResult
from wharfinger.reconcile.reserve_and_release import Reservations
from wharfinger.tracker import service_record
from wharfinger.tracker.instance_claims import Claims

#: The application name of the processes' connections to the database.
_NAME = "at work"
#: Tables that a round does not change.
_NAMES = frozenset({"alembic_version", "traits", "resource_classes"})


class Harbour(fixtures.Fixture):
    """A database and a Placement for rounds, which all start from the same state."""

    def __init__(
        self,
        kept: Kept,
        directory: Path,
        placement: PlacementFixture,
        service: EmbeddedPlacement,
    ) -> None:
        super().__init__()
        self._kept = kept
        self._directory = directory
        self._placement = placement
        self._service = service

    def _setUp(self) -> None:
        empty()
        with self._kept.in_use():
            self._begin()
        self._beginning = [_Contents(db_api.get_placement_engine()), _Contents(self._kept.engine)]

    def faults(self, seed: int) -> list[str]:
        """Run the round of a seed; return the faults after the kill and the following cycles.

        One full cycle of each host has to repair all providers that still exist. The next cycles
        remove absent providers, and then their parents. A node that has moved to another host
        appears there one cycle after its old host has missed it.
        """
        for before in self._beginning:
            before.come_back()
        for host in HOSTS:
            service_record.report(self._kept.context, host, [OWNER], complete=True)
        ledger = Ledger()
        with self._served() as url:
            work = Work(
                placement=url, database=self._database(), directory=self._directory, seed=seed
            )
            play(work, ledger)
        self._hang_up()
        return [*ledger.odd, *self._repaired(seed, ledger), *self._settled(seed, ledger)]

    def _begin(self) -> None:
        """Publish all machines, and let another owner add inventory to every second provider."""
        self._sync(Yard(0))
        client = self._placement.client
        for one in client.list_providers()[::2]:
            answer = client.get_inventories(one.uuid)
            total, reserved = OTHERS_FIGURES
            client.create_resource_class(OTHERS)
            client.set_inventories(
                one.uuid,
                answer.resource_provider_generation,
                {**answer.inventories, OTHERS: Inventory(total=total, reserved=reserved)},
            )

    def _repaired(self, seed: int, ledger: Ledger) -> Iterator[str]:
        """Yield the faults of existing providers after one cycle, and all faults after three."""
        yard = Yard(seed, ledger.step)
        before = self._seen(yard, ledger)
        running = self._started(yard)
        self._cycle(running)
        one = self._seen(yard, ledger)
        yield from (f"after one cycle: {fault}" for fault in one.faults(of=before.staying()))
        self._cycle(running)
        yield from self._last(self._cycle(running), running, yard, ledger)

    def _settled(self, seed: int, ledger: Ledger) -> Iterator[str]:
        """End all moves, release all reservations, and yield the faults after three cycles."""
        yard = Yard(seed, ledger.step)
        yard.always_clean = True
        draw = random.Random(seed)
        running = self._started(yard)
        context = self._kept.context
        for several in moves(context).values():
            for migration in several:
                instance = Instance.get_by_uuid(context, migration.instance_uuid)
                settle(Claims(context, HOSTS[0]), instance, migration, draw)
        holds = Reservations(self._placement.client, context)
        providers = {one.uuid: one for one in self._placement.client.list_providers()}
        for held in ReservationList.get_by_filters(context):
            if held.consumer_uuid is not None:
                Consumers(self._placement.client).release(
                    held.consumer_uuid, Reservations(self._placement.client, context)
                )
                ledger.note("free", held.consumer_uuid)
            elif held.provider_uuid in providers:
                holds.release(providers[held.provider_uuid], held.holder)
            else:
                held.destroy()
        for _ in range(2):
            self._cycle(running)
        yield from self._last(self._cycle(running), running, yard, ledger)
        wanted = yard.wanted()
        for held in ReservationList.get_by_filters(context):
            if held.provider_uuid in wanted and not wanted[held.provider_uuid].why:
                yield f"{wanted[held.provider_uuid].name} is {held.phase} for {held.holder}"
        if left := moves(context):
            yield f"moves are left: {left}"

    def _last(
        self,
        outcomes: list[CycleResult],
        running: dict[str, Reconciler],
        yard: Yard,
        ledger: Ledger,
    ) -> Iterator[str]:
        """Yield all faults after the last cycle, and what another cycle would still write."""
        yield from (str(problem) for outcome in outcomes for problem in outcome.problems)
        seen = self._seen(yard, ledger)
        yield from seen.faults()
        for host, one in running.items():
            plan = one.plan()
            yield from (f"{host}: then still: {step.verb} {step.name}" for step in plan.steps)
            yield from (f"{host}: foreign: {foreign}" for foreign in plan.foreign)
            yield from map(str, plan.problems)

    def _sync(self, yard: Yard) -> None:
        running = self._started(yard)
        problems = [str(one) for outcome in self._cycle(running) for one in outcome.problems]
        assert not problems, problems

    def _cycle(self, running: dict[str, Reconciler]) -> list[CycleResult]:
        return [each.sync() for each in running.values()]

    def _seen(self, yard: Yard, ledger: Ledger) -> Seen:
        return Seen.now(yard, ledger, self._placement.client, self._kept.context)

    def _started(self, yard: Yard) -> dict[str, Reconciler]:
        """Return a new Reconciler for each host, as a new process creates them."""
        return cycles(yard, self._kept.context, self._placement.new_client)

    @contextmanager
    def _served(self) -> Iterator[str]:
        """Serve Placement over HTTP in the block, and yield the URL; end all requests after it."""
        server = make_server("127.0.0.1", 0, self._service.application, _Server, _QuietHandler)
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
            server.server_close()

    def _database(self) -> str:
        """Return the URL of the database, on a server with the application name ``_NAME``."""
        url = self._kept.engine.url
        if url.get_backend_name() != "sqlite":
            url = url.update_query_dict({"application_name": _NAME})
        return url.render_as_string(hide_password=False)

    def _hang_up(self) -> None:
        """Let PostgreSQL close the connections of the killed processes."""
        if self._kept.engine.dialect.name == "postgresql":
            with self._kept.engine.connect() as connection:
                connection.execute(
                    sa.text(
                        "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
                        " WHERE datname = current_database() AND application_name = :name"
                    ),
                    {"name": _NAME},
                )


class _Contents:
    """The rows of a database at one moment, without the tables that never change."""

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine
        tables = sa.MetaData()
        tables.reflect(engine, only=lambda name, _: name not in _NAMES)
        with engine.begin() as connection:
            self._rows = {
                table: [dict(row) for row in connection.execute(sa.select(table)).mappings()]
                for table in tables.sorted_tables
            }

    def come_back(self) -> None:
        """Replace the rows of the database by those of that moment."""
        with self._engine.begin() as connection:
            for table in reversed(self._rows):
                connection.execute(sa.delete(table))
            for table, rows in self._rows.items():
                if rows:
                    connection.execute(sa.insert(table), rows)


class _Server(ThreadingMixIn, WSGIServer):
    """A server whose end waits for all requests that it has begun to answer."""

    daemon_threads = False


class _QuietHandler(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass
