"""Two processes at work on one database and one Placement, which are killed by SIGKILL.

The agent runs the cycles of two hosts whose machines change all the time, and somebody in it
claims and moves; the other process is people, who do that too. In both, instances come and go with
what is allocated to them, and providers are reserved, released and given back. A process dies at a
boundary, before or after a write to Placement or the database, counted over all its threads: where
the other threads are then is nobody's choice. What is done is drawn from a seed, but not in which
order threads do it: the same seed comes close to the same end, not always to it.
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
from wharfinger.allocations.consumer_release import AllocationRelease
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
#: Seconds; a life takes about one.
TIMEOUT: Final = 60.0
#: The most boundaries that a process comes to.
_LONGEST_LIFE: Final = 200
#: How a move comes to wait for its confirmation.
_WAY: Final = ("pre-migrating", "migrating", "post-migrating", "finished")
#: How much shorter than in earnest one waits between two attempts.
_HASTE: Final = 50

_CONTEXT: Final = multiprocessing.get_context("forkserver")
# Those of the other module too: whoever comes last says what all have.
_CONTEXT.set_forkserver_preload(["__main__", killing.__name__, __name__, "psycopg"])

#: What somebody tells of what he does: before it, and when he knows how it went.
Note = Callable[..., None]


@dataclass
class Ledger:
    """What the processes told before they ended.

    ``step`` is how far the yard had come. ``held``, ``free`` and ``open`` are consumers: whose
    allocation was written, whose was not or is deleted, and of whom neither is known; ``amounts``
    is what each was to have, by class. ``odd`` is what nobody should have met.
    """

    step: int = 0
    amounts: dict[str, dict[str, int]] = field(default_factory=dict)
    held: set[str] = field(default_factory=set)
    free: set[str] = field(default_factory=set)
    open: set[str] = field(default_factory=set)
    odd: list[str] = field(default_factory=list)

    def note(self, what: str, about: Any) -> None:
        """Take down what somebody told."""
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
    """The cycles of both hosts, of a process that starts now."""
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
    """Where two processes work: the URLs of Placement and of the database, and the directory.

    ``seed`` is what all is drawn from, ``step`` how far the yard has come.
    """

    placement: str
    database: str
    directory: Path
    seed: int
    step: int = 0

    def draw(self, who: str) -> random.Random:
        """What somebody draws from."""
        return random.Random(f"{self.seed} {who} {self.step}")


def play(work: Work, ledger: Ledger) -> None:
    """Both processes, from their beginning to their end; the agent is always killed."""
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
    # They may be told to stop before they have come so far.
    assert people in ({0} if people_survive else {0, -signal.SIGKILL}), people


class _Life:
    """A process, what it tells, and how it is told to stop."""

    def __init__(self, target: Callable[..., None], work: Work, dies_at: int | None) -> None:
        self.told, tells = _CONTEXT.Pipe(duplex=False)
        stopped, self._stop = _CONTEXT.Pipe(duplex=False)
        self._process = _CONTEXT.Process(target=target, args=(work, dies_at, tells, stopped))
        self._process.start()
        tells.close()
        stopped.close()

    @property
    def code(self) -> int | None:
        """How it ended; a negative code is a signal."""
        return self._process.exitcode

    def stop(self) -> None:
        """Have it come to an end by itself."""
        self._stop.close()

    def end(self) -> None:
        """See that it has ended."""
        self.stop()
        self.told.close()
        self._process.join(TIMEOUT)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


def _listen(lives: list[_Life], ledger: Ledger) -> None:
    """Take down what processes tell until all have ended; the first end is the others' signal."""
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
    """Counts what a process comes to; at one of them it dies."""

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
    """Around a keystoneauth adapter: requests that write have boundaries."""

    def __init__(self, adapter: Adapter, boundaries: _Boundaries) -> None:
        self._adapter = adapter
        self._boundaries = boundaries

    def request(self, path: str, method: str, **kwargs: Any) -> Any:
        if method == "GET":
            return self._adapter.request(path, method, **kwargs)
        with self._boundaries.around():
            return self._adapter.request(path, method, **kwargs)


class _Process(fixtures.Fixture):
    """What each of the two processes has."""

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
        """Tell it: what has been told is known, whatever becomes of this process."""
        with self._lock:
            self._tells.send((what, about))

    def has_to_stop(self) -> bool:
        return self._stopped.poll()

    def run(self, *works: Callable[[], None]) -> None:
        """Have threads each do their work again and again."""
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
                pass  # somebody was faster, or it cannot be meant
            except Exception as error:
                self.note("odd", repr(error))
                raise

    def _patch(self, name: str, value: object) -> None:
        self.useFixture(fixtures.MonkeyPatch(name, value))


class _Hand:
    """Somebody who does one thing after the other, and has instances of his own."""

    def __init__(self, process: _Process, name: str, draw: random.Random) -> None:
        self._draw = draw
        self._context = process.context
        self._client = process.new_client()
        self._note = process.note
        self._holder = name
        self._holds = Reservations(self._client, self._context)
        self._releases = AllocationRelease(self._client, self._context)
        self._claims = {host: Claims(self._context, host) for host in HOSTS}
        self._instances: list[str] = []
        self._held: list[ProviderSummary] = []

    def act(self) -> None:
        """Do something."""
        self._draw.choice(_ACTS)(self)

    def arrive(self) -> None:
        """An instance comes to a node, with an allocation; now and then it goes at once."""
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
        claim = self._claims[row.host].instance_claim(instance, row.hypervisor_hostname)
        if self._draw.random() < 0.2:
            claim.abort()

    def move(self) -> None:
        """An instance begins to move, and may think better of it."""
        instance = self._instance()
        if instance.node is None or self._moves(instance):
            return
        row = self._node()
        claim = self._claims[row.host].move_claim(instance, self._flavor(), row.hypervisor_hostname)
        if self._draw.random() < 0.2:
            claim.abort()

    def arrive_there(self) -> None:
        """A move is confirmed, or reverted."""
        instance = self._instance()
        for migration in self._moves(instance):
            claims = self._claims[self._draw.choice(HOSTS)]
            settle(claims, instance, migration, self._draw)

    def depart(self) -> None:
        """An instance that does not move is gone, and what is allocated to it."""
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
            self._releases.release(instance.uuid)
        else:
            self._client.delete_allocations(instance.uuid)
        self._note("free", instance.uuid)
        instance.destroy()

    def reserve(self) -> None:
        """A provider is reserved."""
        provider = self._draw.choice(self._client.list_providers())
        self._held.append(provider)
        self._holds.reserve(provider, holder=self._holder, reason="operator")

    def release(self) -> None:
        """One that was reserved is released."""
        if self._held:
            number = self._draw.randrange(len(self._held))
            self._holds.release(self._held.pop(number), self._holder)

    def _allocate(self, consumer: str, root: str) -> None:
        """One of something of a provider of a tree, and one of something of another."""
        providers = self._client.list_providers(in_tree=root)
        held = {}
        for one in self._draw.sample(providers, min(2, len(providers))):
            kinds = sorted(self._client.get_inventories(one.uuid).inventories)
            if kinds:  # it is to have some in a moment
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
    """A kind of instance that takes so much of everything."""
    made = Flavor(flavorid="f", name="f", vcpus=size, memory_mb=10 * size, root_gb=100 * size)
    made.obj_set_defaults()
    return made


def moves(context: Context) -> dict[str, list[Migration]]:
    """The migrations that are in progress, by instance."""
    found: dict[str, dict[str, Migration]] = {}
    for host in HOSTS:
        for one in MigrationList.get_in_progress_by_host(context, host):
            found.setdefault(one.instance_uuid, {})[one.uuid] = one
    return {uuid: list(ones.values()) for uuid, ones in found.items()}


def settle(claims: Claims, instance: Instance, migration: Migration, draw: random.Random) -> None:
    """End a move at one of its ends, by way of all that comes before."""
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
    """What the agent does until it is killed."""
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
    """What people do until they are killed, or have to stop."""
    with _Process(work, *of_process) as process:
        process.run(_Hand(process, "people", work.draw("people")).act)
