"""Instances of two owners' resources on three nodes, and what has become of them.

What claims, releases and moves write has boundaries, and at any of them a process may end. What a
process that has ended leaves is no older than it; ``age`` has it be from long ago.
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

#: For who is at work; ``age`` has more pass.
A_WHILE: Final = timedelta(minutes=10)
#: Two nodes, and a third which is cleaned when it is given back.
NODES: Final = ("cn-0", "cn-1", "metal")
CLEANED: Final = "metal"
#: The parts of a node: itself, and what two owners have below it.
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
#: What each of them takes, by part of a node.
_TAKES: Final[Mapping[str, Mapping[str, int]]] = {
    "small": {ROOT: 1},
    "large": {ROOT: 2},
    "novas": {ROOT: 1, NOVA: 1},
    "cyborgs": {ROOT: 1, CYBORG: 1},
    "both": {ROOT: 1, NOVA: 1, CYBORG: 1},
}

#: What writes to the objects that claims and moves concern, beside reservations.
_WRITES: Final = (
    (Instance, ("create", "save", "destroy")),
    (Migration, ("create", "save", "destroy")),
    (ComputeNodeList, ("save",)),
)


class Boundaries(Steps):
    """As ``Steps``, with all that claims, releases and moves write."""

    def _setUp(self) -> None:
        super()._setUp()
        for kind, names in _WRITES:
            for name in names:
                self._replace(kind, name, self._around(kind, name))


class State(NamedTuple):
    """An instance, by names: its flavor, None where there is none; and what it is to have."""

    flavor: str | None = None
    moves_to: str | None = None


class Quay(fixtures.Fixture):
    """Three nodes that nova has, one of which is cleaned, with a card of Cyborg's in each.

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
        """What leads to the objects."""
        return self._publishing[0].context

    def desk(self) -> Desk:
        """Where claims are made by a process that starts now."""
        client = self.placement.new_client()
        return self.useFixture(Desk(client, self.context, down_time=A_WHILE))

    def restart(self) -> None:
        """Have the processes that publish start anew, and look at all."""
        for one in self._publishing:
            one.restarted()

    def cycle(self) -> None:
        """Have all that is published be as it is to be."""
        for one in self._publishing:
            outcome = one.cycle.sync()
            assert not outcome.problems, outcome.problems

    def clean(self) -> None:
        """Have all be clean that has been given back."""
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
    """What an instance of a flavor has of a node, as ``held`` shows it."""
    return {f"{node}{part}": {_CLASSES[part]: many} for part, many in _TAKES[name].items()}


def age(state_path: Path) -> None:
    """Have all be of the day before: who was at work on it says nothing any more."""
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
    """What there is of each instance, by its uuid; and it has just what it is to have.

    For when nobody is at work, and nothing has been cut short.
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
    """What could be had at most, and what is had, by provider and class."""
    return {
        (name, kind): (
            total - reserved,
            sum(many for (_, each), many in one["allocations"].items() if each == kind),
        )
        for name, one in everything().items()
        for kind, (total, reserved) in one["inventories"].items()
    }


def overdrawn(before: Mapping[tuple[str, str], tuple[int, int]]) -> Iterator[str]:
    """Of what more is had than there was to be had before; what was too much already may stay."""
    for (name, kind), (_, now) in free().items():
        could, had = before[name, kind]
        if now > max(could, had):
            yield f"{now} {kind} of {name}, of {could}"


def on(name: str) -> Suits:
    """Whether a node is the one of that name."""
    return lambda node: node.hypervisor_hostname == name


#: What is done to instances of nova's VGPUs, and to their moves to Cyborg's on a node, by name.
ACTS: Final[Mapping[str, Callable[[Desk, str, str], object]]] = {
    "start": lambda desk, uuid, node: desk.moves.start(uuid, FLAVORS["cyborgs"], suits=on(node)),
    "confirm": lambda desk, uuid, _node: desk.moves.confirm(uuid),
    "revert": lambda desk, uuid, _node: desk.moves.revert(uuid),
    "release": lambda desk, uuid, _node: desk.claims.release(uuid),
    "recover": lambda desk, _uuid, _node: [desk.moves.recover(one) for one in desk.moves.left()],
}


class Work(NamedTuple):
    """What a process does: one of ACTS, with an instance that moves to a node.

    ``url`` is of Placement, ``state`` the directory of the objects.
    """

    act: str
    uuid: str
    node: str
    url: str
    state: Path


def play(work: Work, report: Any, *, port: int | None, kill_at: int | None) -> None:
    """What a process does that is killed; ``port`` is of who keeps its objects."""
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
