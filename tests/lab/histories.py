"""Claim, move and release instances with resources of two owners on three nodes.

Before and after each write of a claim, release or move there is a boundary, at which a process may
die. The rows of such a process look as if it was still at work; ``age`` makes them older.
"""

import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple

import fixtures

from tests.lab import killing
from tests.lab.allocating import CYBORGS, NOVAS, Desk, flavor, held
from tests.lab.cycles import HOST, Publishing, everything
from tests.lab.drivers import flat
from tests.lab.objects import elsewhere, opened
from tests.lab.placement import PlacementFixture
from tests.lab.reserving import CleaningDriver, Steps, drives
from tests.lab.sqlite import WithoutSync
from wharfinger.allocations.candidate_attempts import Suits
from wharfinger.db.database import FILE_NAME
from wharfinger.driver import Allocations
from wharfinger.objects import (
    ComputeNodeList,
    Context,
    Flavor,
    Instance,
    InstanceList,
    Migration,
    MigrationList,
)
from wharfinger.providers import ProviderTree
from wharfinger.tracker import service_record

#: The age of rows up to which their process may still be working.
A_WHILE: Final = timedelta(minutes=10)
#: Two nodes, and a third that is cleaned after a release.
NODES: Final = ("cn-0", "cn-1", "metal")
CLEANED: Final = "metal"
#: The parts of a node: its root, and the child of each owner.
ROOT, NOVA, CYBORG = "", "-nova", "-cyborg"
_CLASSES: Final = {ROOT: "VCPU", NOVA: "VGPU", CYBORG: "VGPU"}

FLAVORS: Final[Mapping[str, Flavor]] = {
    one.name: one
    for one in (
        flavor("small"),
        flavor("large", 2),
        flavor("novas", **NOVAS),
        flavor("cyborgs", **CYBORGS),
        flavor("both", **NOVAS, **CYBORGS, group_policy="none"),
    )
}
#: The resources of each flavor, by part of a node.
_TAKES: Final[Mapping[str, Mapping[str, int]]] = {
    "small": {ROOT: 1},
    "large": {ROOT: 2},
    "novas": {ROOT: 1, NOVA: 1},
    "cyborgs": {ROOT: 1, CYBORG: 1},
    "both": {ROOT: 1, NOVA: 1, CYBORG: 1},
}

#: Methods that write objects of claims and moves, apart from reservations.
_WRITES: Final = (
    (Instance, ("create", "save", "destroy")),
    (Migration, ("create", "save", "destroy")),
    (ComputeNodeList, ("save",)),
)


class Boundaries(Steps):
    """Boundaries as in ``Steps``, also around all writes of instances, migrations and nodes."""

    def _setUp(self) -> None:
        super()._setUp()
        for kind, names in _WRITES:
            for name in names:
                self._replace(kind, name, self._around(kind, name))


class State(NamedTuple):
    """The expected state of an instance: its flavor, and the flavor of its move in progress."""

    flavor: str | None = None
    moves_to: str | None = None


class Quay(fixtures.Fixture):
    """Publishes three nodes of nova, each with a VGPU of nova and one of Cyborg.

    The node "metal" is cleaned after a release. ``totals`` has the totals by node and part; a test
    may change them, and a cycle publishes them.
    """

    def __init__(self, placement: PlacementFixture, state_path: Path) -> None:
        super().__init__()
        self.placement, self.state_path = placement, state_path

    def _setUp(self) -> None:
        self.totals = {(node, part): 2 for node in NODES for part in _CLASSES}
        novas, metals, cards = (
            self.useFixture(Publishing(self.placement, self.state_path, name=name, owner=owner))
            for name, owner in (
                ("novas", "OWNER_NOVA"),
                ("metals", "OWNER_NOVA"),
                ("cards", "OWNER_CYBORG"),
            )
        )
        self._publishing = (novas, metals, cards)
        self.cleaning = CleaningDriver("metals")
        self.cleaning.host = HOST
        drives(metals, self.cleaning)
        for node in NODES:
            by = metals if node == CLEANED else novas
            by.driver.nodes[node] = self._host
            cards.driver.nodes[node] = self._card
        self.cycle()
        service_record.report(self.context, HOST, {"OWNER_NOVA", "OWNER_CYBORG"}, complete=True)

    @property
    def context(self) -> Context:
        """The database context."""
        return self._publishing[0].context

    def desk(self) -> Desk:
        """Return a desk with a new client, as in a new process."""
        client = self.placement.new_client()
        return self.useFixture(Desk(client, self.context, down_time=A_WHILE))

    def restart(self) -> None:
        """Create the cycles of all driver instances anew, as a new process does."""
        for one in self._publishing:
            one.restarted()

    def cycle(self) -> None:
        """Run a full cycle of each driver instance, and require that it has no problems."""
        for one in self._publishing:
            outcome = one.cycle.sync()
            assert not outcome.problems, outcome.problems

    def clean(self) -> None:
        """Run full cycles while the driver reports that all providers are clean."""
        self.cleaning.clean = {one["uuid"] for one in everything().values()}
        self.cycle()
        self.cleaning.clean = set()

    def _host(self, tree: ProviderTree, node: str, allocations: Allocations | None) -> None:
        flat(VCPU=self.totals[node, ROOT])(tree, node, allocations)
        self._child(tree, node, NOVA)

    def _card(self, tree: ProviderTree, node: str, allocations: Allocations | None) -> None:
        self._child(tree, node, CYBORG)

    def _child(self, tree: ProviderTree, node: str, part: str) -> None:
        name = f"{node}{part}"
        if not tree.exists(name):
            tree.new_child(name, node)
        tree.update_inventory(name, {"VGPU": {"total": self.totals[node, part]}})


def takes(name: str, node: str) -> dict[str, dict[str, int]]:
    """Return the resources of a flavor on a node, in the format of ``held``."""
    return {f"{node}{part}": {_CLASSES[part]: many} for part, many in _TAKES[name].items()}


def age(state_path: Path) -> None:
    """Make all instances and migrations a day older, so that no process seems at work on them."""
    with closing(sqlite3.connect(state_path / FILE_NAME)) as connection, connection:
        for table, column in (
            ("migrations", "created_at"),
            ("migrations", "updated_at"),
            ("instances", "updated_at"),
        ):
            connection.execute(
                f"UPDATE {table} SET {column} = datetime({column}, '-1 day') || '.000000'"
                f" WHERE {column} IS NOT NULL"
            )


def states(context: Context) -> dict[str, State]:
    """Return the state of each instance by uuid; require exactly the allocations that it implies.

    Call this only when no process is at work and all interrupted operations were recovered.
    """
    moves: dict[str, list[Migration]] = {}
    for one in MigrationList.get_by_filters(context):
        if one.is_in_progress:
            moves.setdefault(one.instance_uuid, []).append(one)
    found, owed = dict[str, State](), dict[str, Any]()
    for instance in InstanceList.get_by_filters(context):
        uuid, name, node = instance.uuid, instance.flavor.name, instance.node
        assert (node is not None, instance.task_state) == (True, None), uuid
        assert node is not None
        assert instance.flavor.extra_specs == FLAVORS[name].extra_specs
        its = moves.pop(uuid, [])
        if not its:
            found[uuid], owed[uuid] = State(name), takes(name, node)
            continue
        [move] = its
        source = (move.source_compute, move.source_node, move.old_flavor.name)
        assert move.status == "finished"
        assert source == (instance.host, node, name)
        assert move.dest_node is not None
        found[uuid] = State(name, move.new_flavor.name)
        owed[move.uuid] = takes(name, node)
        owed[uuid] = takes(move.new_flavor.name, move.dest_node)
    assert not moves, f"there are moves of no instance: {moves}"
    assert held() == owed
    return found


def free() -> dict[tuple[str, str], tuple[int, int]]:
    """Return capacity and used amount of each provider's class in Placement."""
    return {
        (name, kind): (
            total - reserved,
            sum(many for (_, each), many in one["allocations"].items() if each == kind),
        )
        for name, one in everything().items()
        for kind, (total, reserved) in one["inventories"].items()
    }


def overdrawn(before: Mapping[tuple[str, str], tuple[int, int]]) -> Iterator[str]:
    """Yield a text for each class whose use is above its capacity ``before``.

    A use that was above it before may stay, but not grow.
    """
    for (name, kind), (_, now) in free().items():
        could, had = before[name, kind]
        if now > max(could, had):
            yield f"{now} {kind} of {name}, of {could}"


def on(name: str) -> Suits:
    """Return a condition for claims that only the node with this name satisfies."""
    return lambda node: node.hypervisor_hostname == name


#: Acts by name, on an instance with a VGPU of nova that moves to a node with a VGPU of Cyborg.
ACTS: Final[Mapping[str, Callable[[Desk, str, str], object]]] = {
    "start": lambda desk, uuid, node: desk.moves.start(uuid, FLAVORS["cyborgs"], suits=on(node)),
    "confirm": lambda desk, uuid, _node: desk.moves.confirm(uuid),
    "revert": lambda desk, uuid, _node: desk.moves.revert(uuid),
    "release": lambda desk, uuid, _node: desk.claims.release(uuid),
    "recover": lambda desk, _uuid, _node: [
        desk.moves.recover(one) for one in desk.moves.interrupted()
    ],
}


class Work(NamedTuple):
    """An act of ACTS for another process, with its instance and node.

    ``url`` is the URL of Placement, ``state`` the state directory with the database.
    """

    act: str
    uuid: str
    node: str
    url: str
    state: Path


def play(work: Work, report: Any, *, port: int | None, kill_at: int | None) -> None:
    """Do the act in this process, which is killed at the boundary ``kill_at``.

    Send the passed boundaries to ``report``. ``port`` is that of another process with the
    database, None for the SQLite file.
    """
    boundaries = killing._Boundaries(kill_at, report)
    with (
        WithoutSync(),
        killing._WatchedDatabase(boundaries),
        nullcontext() if port is None else elsewhere(killing._WatchedAsking(port, boundaries)),
        killing._PlacementOverHTTP(work.url, boundaries) as placement,
        Desk(placement.client, opened(work.state)) as desk,
    ):
        ACTS[work.act](desk, work.uuid, work.node)
    report.send(boundaries.passed)
