"""Histories of instances with resources of two owners on three nodes.

Each write of a claim, release or move has boundaries, and a process may die at any of them. Its
rows look recent after that; ``age`` makes them old.
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

#: Rows of a process that may still be at work; ``age`` makes them older than this.
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
    """As ``Steps``, with all writes of claims, releases and moves."""

    def _setUp(self) -> None:
        super()._setUp()
        for kind, names in _WRITES:
            for name in names:
                self._replace(kind, name, self._around(kind, name))


class State(NamedTuple):
    """Expected state of an instance: its flavor, and the flavor that it moves to."""

    flavor: str | None = None
    moves_to: str | None = None


class Quay(fixtures.Fixture):
    """Three nodes of nova, one of which is cleaned, each with a card of Cyborg.

    ``totals`` are by node and part; a cycle publishes them.
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
        """Return the context of the objects."""
        return self._publishing[0].context

    def desk(self) -> Desk:
        """Return a desk of a new process."""
        client = self.placement.new_client()
        return self.useFixture(Desk(client, self.context, down_time=A_WHILE))

    def restart(self) -> None:
        """Restart both publishing instances, and run their full cycles."""
        for one in self._publishing:
            one.restarted()

    def cycle(self) -> None:
        """Run a cycle of each instance."""
        for one in self._publishing:
            outcome = one.cycle.sync()
            assert not outcome.problems, outcome.problems

    def clean(self) -> None:
        """Let the driver report that everything released is clean."""
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
    """Make all rows a day older, so that no process counts as at work on them."""
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
    """Return the state of each instance by uuid, and require the allocations that it implies.

    Needs a moment without processes at work and without interrupted operations.
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
    """Return capacity and used amount by provider and class."""
    return {
        (name, kind): (
            total - reserved,
            sum(many for (_, each), many in one["allocations"].items() if each == kind),
        )
        for name, one in everything().items()
        for kind, (total, reserved) in one["inventories"].items()
    }


def overdrawn(before: Mapping[tuple[str, str], tuple[int, int]]) -> Iterator[str]:
    """Yield each use above the former capacity; an earlier excess may stay."""
    for (name, kind), (_, now) in free().items():
        could, had = before[name, kind]
        if now > max(could, had):
            yield f"{now} {kind} of {name}, of {could}"


def on(name: str) -> Suits:
    """Return a condition that selects the node of a name."""
    return lambda node: node.hypervisor_hostname == name


#: Acts by name: on instances with a VGPU of nova, and on their moves to Cyborg's VGPU on a node.
ACTS: Final[Mapping[str, Callable[[Desk, str, str], object]]] = {
    "start": lambda desk, uuid, node: desk.moves.start(uuid, FLAVORS["cyborgs"], suits=on(node)),
    "confirm": lambda desk, uuid, _node: desk.moves.confirm(uuid),
    "revert": lambda desk, uuid, _node: desk.moves.revert(uuid),
    "release": lambda desk, uuid, _node: desk.claims.release(uuid),
    "recover": lambda desk, _uuid, _node: [desk.moves.recover(one) for one in desk.moves.left()],
}


class Work(NamedTuple):
    """An act of ACTS on an instance that moves to a node, for another process.

    ``url`` is the URL of Placement, ``state`` the directory of the objects.
    """

    act: str
    uuid: str
    node: str
    url: str
    state: Path


def play(work: Work, report: Any, *, port: int | None, kill_at: int | None) -> None:
    """Do the act in a process that is killed; ``port`` is the port of the object store."""
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
