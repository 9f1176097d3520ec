"""Run two processes with the same database and Placement, and kill them with SIGKILL.

The agent runs the cycles of two hosts whose machines change all the time; another of its threads
acts as a user. The other process, called people, only acts as a user. A user creates, moves and
deletes instances with their allocations, and reserves and releases providers.

A process dies at a boundary: before or after a write to Placement or the database, counted over all
its threads. The test does not choose where the other threads are then. A seed draws the actions,
but not their order between threads, so the same seed does not always have the same result.
"""

import multiprocessing
import os
import random
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final
from uuid import UUID

import fixtures
from keystoneauth1.adapter import Adapter

from tests.lab import killing
from tests.lab.database_writes import DatabaseWrites
from tests.lab.placement import adapter_to
from tests.lab.sqlite import WithoutSync
from tests.lab.yard import HOSTS, Yard, YardDriver
from wharfinger.allocations.allocation_writer import Consumers
from wharfinger.conformance.other_program_client import WritingClient
from wharfinger.db.database import Database
from wharfinger.exceptions import PlacementUnavailable, StateError, WharfingerError
from wharfinger.objects import (
    ComputeNode,
    ComputeNodeList,
    Context,
    Flavor,
    Instance,
    Migration,
    MigrationList,
)
from wharfinger.placement.model import ProviderSummary
from wharfinger.providers.ownership import Publisher
from wharfinger.providers.removal import RemovalPolicy
from wharfinger.reconcile.cycle import Reconciler
from wharfinger.reconcile.reserve_and_release import Reservations
from wharfinger.tracker import service_record
from wharfinger.tracker.instance_claims import Claims, End

INSTANCE: Final = "scripted"
OWNER: Final = "OWNER_NOVA"
#: Seconds to wait for a process, which lives about one second.
TIMEOUT: Final = 60.0
#: The largest number of boundaries in the life of a process.
_LONGEST_LIFE: Final = 200
#: The statuses of a move until it waits for its confirmation.
_WAY: Final = ("pre-migrating", "migrating", "post-migrating", "finished")
#: The factor by which waits between two attempts are shorter than in production.
_HASTE: Final = 50

_CONTEXT: Final = multiprocessing.get_context("forkserver")
# A further call would replace the list, so it also has the modules that killing.py needs.
_CONTEXT.set_forkserver_preload(["__main__", killing.__name__, __name__, "psycopg"])

#: Reports an action before it starts, and again when its result is known.
Note = Callable[..., None]


@dataclass
class Ledger:
    """The results of actions that the processes have reported before they died."""

    #: The last step of the yard.
    step: int = 0
    #: The requested amounts of each consumer, by class.
    amounts: dict[str, dict[str, int]] = field(default_factory=dict)
    #: Consumers with an allocation, without one, and with a request whose result is unknown.
    held: set[str] = field(default_factory=set)
    free: set[str] = field(default_factory=set)
    open: set[str] = field(default_factory=set)
    #: Errors that must not occur.
    odd: list[str] = field(default_factory=list)

    def note(self, what: str, about: Any) -> None:
        """Record one report: the name of a field, and the step, the consumer or the error."""
        if what == "step":
            self.step = max(self.step, about)
        elif what == "odd":
            self.odd.append(about)
        elif what == "amounts":
            consumer, amounts = about
            self.amounts[consumer] = amounts
        else:
            for consumers in (self.held, self.free, self.open):
                consumers.discard(about)
            getattr(self, what).add(about)


def cycles(
    yard: Yard, context: Context, new_client: Callable[[], WritingClient]
) -> dict[str, Reconciler]:
    """Return a new Reconciler for each host of the yard."""
    return {
        host: Reconciler(
            YardDriver(host, yard),
            Publisher(INSTANCE, OWNER),
            new_client(),
            context,
            RemovalPolicy(delay=0, allow_mass=True),
        )
        for host in HOSTS
    }


@dataclass(frozen=True, kw_only=True)
class Work:
    """The settings of both processes: the URLs of Placement and the database, and so on.

    ``seed`` seeds all random choices. ``step`` is the step of the yard at which they begin.
    """

    placement: str
    database: str
    directory: Path
    seed: int
    step: int = 0

    def draw(self, who: str) -> random.Random:
        """Return the random generator for the actor ``who``."""
        return random.Random(f"{self.seed} {who} {self.step}")


def play(work: Work, ledger: Ledger) -> None:
    """Run both processes until they end, and record their reports in ``ledger``.

    The agent always dies at a boundary; the other process dies or is asked to stop.
    """
    draw = work.draw("death")
    agent_dies, people_die = (draw.randrange(_LONGEST_LIFE) for _ in range(2))
    people_survive = draw.random() < 0.5
    lives = [
        _Life(_be_agent, work, agent_dies),
        _Life(_be_people, work, None if people_survive else people_die),
    ]
    try:
        _listen(lives, ledger)
    finally:
        for life in lives:
            life.end()
    agent, people = (life.code for life in lives)
    assert agent == -signal.SIGKILL, agent
    # The other process may be asked to stop before it reaches its boundary.
    assert people in ({0} if people_survive else {0, -signal.SIGKILL}), people


class _Life:
    """A running process, the pipe with its reports, and the pipe that asks it to stop."""

    def __init__(self, target: Callable[..., None], work: Work, dies_at: int | None) -> None:
        self.told, tells = _CONTEXT.Pipe(duplex=False)
        stopped, self._stop = _CONTEXT.Pipe(duplex=False)
        self._process = _CONTEXT.Process(target=target, args=(work, dies_at, tells, stopped))
        self._process.start()
        tells.close()
        stopped.close()

    @property
    def code(self) -> int | None:
        """The exit code of the process; a negative code is the signal that killed it."""
        return self._process.exitcode

    def stop(self) -> None:
        """Ask the process to stop after its present actions."""
        self._stop.close()

    def end(self) -> None:
        """Ask the process to stop, and wait for its end; kill it if it does not end."""
        self.stop()
        self.told.close()
        self._process.join(TIMEOUT)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


def _listen(lives: list[_Life], ledger: Ledger) -> None:
    """Record reports until both processes have ended; stop the second when the first has ended."""
    talking = {life.told: life for life in lives}
    while talking:
        ready = wait(list(talking), TIMEOUT)
        assert ready, "nothing happens any more"
        for told in ready:
            assert isinstance(told, Connection)
            try:
                ledger.note(*told.recv())
            except EOFError:
                if talking.pop(told) is lives[0]:
                    lives[1].stop()


class _Boundaries:
    """Counts the boundaries that this process reaches, and kills it at the given one."""

    def __init__(self, dies_at: int | None) -> None:
        self._left = dies_at
        self._lock = threading.Lock()

    @contextmanager
    def around(self) -> Iterator[None]:
        self._reach()
        yield
        self._reach()

    def _reach(self) -> None:
        with self._lock:
            if self._left is None:
                return
            if not self._left:
                os.kill(os.getpid(), signal.SIGKILL)
            self._left -= 1


class _WatchedAdapter:
    """A keystoneauth adapter with a boundary before and after each writing request."""

    def __init__(self, adapter: Adapter, boundaries: _Boundaries) -> None:
        self._adapter = adapter
        self._boundaries = boundaries

    def request(self, path: str, method: str, **kwargs: Any) -> Any:
        if method == "GET":
            return self._adapter.request(path, method, **kwargs)
        with self._boundaries.around():
            return self._adapter.request(path, method, **kwargs)


class _Process(fixtures.Fixture):
    """The database, clients, reports and threads of one of the two processes."""

    def __init__(
        self, work: Work, dies_at: int | None, tells: Connection, stopped: Connection
    ) -> None:
        super().__init__()
        self._work = work
        self._boundaries = _Boundaries(dies_at)
        self._tells = tells
        self._stopped = stopped
        self._lock = threading.Lock()

    def _setUp(self) -> None:
        self.useFixture(WithoutSync())
        sleep = threading.Event().wait
        self._patch("tenacity.nap.time", SimpleNamespace(sleep=lambda time: sleep(time / _HASTE)))
        self.useFixture(DatabaseWrites(lambda _name, _work: self._boundaries.around()))
        self.context = Context(
            Database(
                self._work.database,
                directory=self._work.directory,
                host=HOSTS[0],
                managed=False,
            )
        )
        self.addCleanup(self.context.close)

    def new_client(self) -> WritingClient:
        adapter: Any = _WatchedAdapter(adapter_to(self._work.placement), self._boundaries)
        return WritingClient(adapter, connections=4)

    def note(self, what: str, about: object) -> None:
        """Send a report to the test, which gets it even if this process dies right after it."""
        with self._lock:
            self._tells.send((what, about))

    def has_to_stop(self) -> bool:
        return self._stopped.poll()

    def run(self, *works: Callable[[], None]) -> None:
        """Repeat each work in a thread of its own, until the process has to stop."""
        threads = [threading.Thread(target=self._repeat, args=(work,)) for work in works]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _repeat(self, work: Callable[[], None]) -> None:
        while not self.has_to_stop():
            try:
                work()
            except (StateError, PlacementUnavailable) as error:
                self.note("odd", str(error))
            except WharfingerError:
                pass  # another thread was faster, or the action does not apply
            except Exception as error:
                self.note("odd", repr(error))
                raise

    def _patch(self, name: str, value: object) -> None:
        self.useFixture(fixtures.MonkeyPatch(name, value))


class _Hand:
    """A user that does random actions with instances of its own, one after the other."""

    def __init__(self, process: _Process, name: str, draw: random.Random) -> None:
        self._draw = draw
        self._context = process.context
        self._client = process.new_client()
        self._note = process.note
        self._holder = name
        self._holds = Reservations(self._client, self._context)
        self._claims = {host: Claims(self._context, host) for host in HOSTS}
        self._instances: list[str] = []
        self._held: list[ProviderSummary] = []

    def act(self) -> None:
        """Do one random action."""
        self._draw.choice(_ACTS)(self)

    def arrive(self) -> None:
        """Create an instance with an allocation and a claim on a node; abort some of the claims."""
        row = self._node()
        instance = Instance(
            self._context,
            uuid=str(UUID(int=self._draw.getrandbits(128), version=4)),
            project_id="project",
            user_id="user",
            flavor=self._flavor(),
        )
        instance.create()
        self._instances.append(instance.uuid)
        self._allocate(instance.uuid, row.uuid)
        claims, node = self._claims[row.host], row.hypervisor_hostname
        claims.instance_claim(instance, node)
        if self._draw.random() < 0.2:
            claims.abort_instance_claim(instance, node)

    def move(self) -> None:
        """Begin to move an instance to a random node; abort some of the moves at once."""
        instance = self._instance()
        if instance.node is None or self._moves(instance):
            return
        row = self._node()
        move = Migration(
            self._context,
            instance_uuid=instance.uuid,
            migration_type="migration",
            source_compute=instance.host,
            source_node=instance.node,
            old_flavor=instance.flavor,
            new_flavor=self._flavor(),
        )
        move.create()
        claims, node = self._claims[row.host], row.hypervisor_hostname
        claims.move_claim(instance, node, move)
        if self._draw.random() < 0.2:
            claims.drop_move_claim(instance, move, End.DESTINATION)

    def arrive_there(self) -> None:
        """Complete the moves of an instance: confirm, revert or drop them."""
        instance = self._instance()
        for migration in self._moves(instance):
            claims = self._claims[self._draw.choice(HOSTS)]
            settle(claims, instance, migration, self._draw)

    def depart(self) -> None:
        """Delete an instance and its allocation, unless the instance is being moved."""
        instance = self._instance()
        if self._moves(instance):
            return
        instance.task_state = "releasing"  # otherwise its allocation would count as lost
        instance.save()
        self._note("open", instance.uuid)
        if (
            self._draw.random() < 0.6
            or not self._client.get_allocations(instance.uuid)["allocations"]
        ):
            Consumers(self._client).release(
                instance.uuid, Reservations(self._client, self._context)
            )
        else:
            self._client.delete_allocations(instance.uuid)
        self._note("free", instance.uuid)
        instance.destroy()

    def reserve(self) -> None:
        """Reserve a random provider."""
        provider = self._draw.choice(self._client.list_providers())
        self._held.append(provider)
        self._holds.reserve(provider, holder=self._holder, reason="operator")

    def release(self) -> None:
        """Release a random provider of those that this user has reserved."""
        if self._held:
            number = self._draw.randrange(len(self._held))
            self._holds.release(self._held.pop(number), self._holder)

    def _allocate(self, consumer: str, root: str) -> None:
        """Allocate one unit of two random providers of a tree, or of one; report the result."""
        providers = self._client.list_providers(in_tree=root)
        held = {}
        for one in self._draw.sample(providers, min(2, len(providers))):
            kinds = sorted(self._client.get_inventories(one.uuid).inventories)
            if kinds:  # a provider has inventory a moment after it was created
                held[one.uuid] = {"resources": {self._draw.choice(kinds): 1}}
        if not held:
            return
        who = {
            "project_id": "project",
            "user_id": "user",
            "consumer_generation": None,
            "consumer_type": "INSTANCE",
        }
        amounts = Counter(kind for its in held.values() for kind in its["resources"])
        self._note("amounts", (consumer, dict(amounts)))
        self._note("open", consumer)
        try:
            self._client.set_allocations({consumer: {"allocations": held, **who}})
        except WharfingerError:
            self._note("free", consumer)
            raise
        self._note("held", consumer)

    def _instance(self) -> Instance:
        if not self._instances:
            self.arrive()
        return Instance.get_by_uuid(self._context, self._draw.choice(self._instances))

    def _node(self) -> ComputeNode:
        return self._draw.choice(ComputeNodeList.get_by_filters(self._context).objects)

    def _moves(self, instance: Instance) -> list[Migration]:
        return moves(self._context).get(instance.uuid, [])

    def _flavor(self) -> Flavor:
        return flavor(self._draw.randint(1, 9))


_ACTS: Final = (
    *(_Hand.arrive, _Hand.arrive, _Hand.move, _Hand.move, _Hand.arrive_there),
    *(_Hand.depart, _Hand.reserve, _Hand.release),
)


def flavor(size: int) -> Flavor:
    """Return a flavor with ``size`` VCPUs, and 10 and 100 times that for memory and disk."""
    made = Flavor(flavorid="f", name="f", vcpus=size, memory_mb=10 * size, root_gb=100 * size)
    made.obj_set_defaults()
    return made


def moves(context: Context) -> dict[str, list[Migration]]:
    """Return the migrations in progress, by the uuid of the instance."""
    found: dict[str, dict[str, Migration]] = {}
    for host in HOSTS:
        for one in MigrationList.get_in_progress_by_host(context, host):
            found.setdefault(one.instance_uuid, {})[one.uuid] = one
    return {uuid: list(ones.values()) for uuid, ones in found.items()}


def settle(claims: Claims, instance: Instance, migration: Migration, draw: random.Random) -> None:
    """Complete a move at a random end that its status allows: its source or its destination."""
    begun = {"confirming": End.SOURCE, "reverting": End.DESTINATION}
    end = begun.get(migration.status, draw.choice(list(End)))
    if migration.status in ("pre-migrating", "migrating", "post-migrating"):
        if end is End.DESTINATION and migration.status != "post-migrating":
            claims.drop_move_claim(instance, migration, end)
            return
        for status in _WAY[_WAY.index(migration.status) + 1 :]:
            migration.status = status
            migration.save()
    claims.drop_move_claim(instance, migration, end)


def _be_agent(work: Work, *of_process: Any) -> None:
    """Run the agent in this process until it is killed: two cycles and a user."""
    with _Process(work, *of_process) as process:
        yard = Yard(work.seed, work.step)
        running = cycles(yard, process.context, process.new_client)

        def cycling(host: str) -> Callable[[], None]:
            one, draw = running[host], work.draw(host)

            def cycle() -> None:
                outcome = draw.choice((one.sync, one.sync, one.drift, one.poll))()
                service_record.report(process.context, host, [OWNER], complete=not outcome.problems)
                for _ in range(draw.randrange(5) if host == HOSTS[0] else 0):
                    process.note("step", yard.step + 1)
                    yard.advance()

            return cycle

        hand = _Hand(process, "agent", work.draw("agent"))
        process.run(hand.act, *map(cycling, HOSTS))


def _be_people(work: Work, *of_process: Any) -> None:
    """Run a user in this process until the process is killed or has to stop."""
    with _Process(work, *of_process) as process:
        process.run(_Hand(process, "people", work.draw("people")).act)
