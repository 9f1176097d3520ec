"""A host that takes over a node of another host, and is killed with SIGKILL meanwhile."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

import fixtures

from tests.lab import killing
from tests.lab.claiming import instance, migration, noted, taken
from tests.lab.cycles import HOST, Publishing, allocate, everything, stored
from tests.lab.killing import Ended
from tests.lab.moments import Moments
from tests.lab.objects import elsewhere
from tests.lab.placement import PlacementFixture
from tests.lab.reserving import lose_records
from tests.lab.skewed import Machine
from tests.lab.sqlite import WithoutSync
from wharfinger.exceptions import WharfingerError
from wharfinger.objects import ComputeNodeList, Instance, Migration

FAR: Final = "far-host"
CONSUMER: Final = "6f9de2f4-9d0c-4d0f-a4a6-0c2c5b1f7d31"
#: The node that moves: it is reserved, and only its record knows its own reserved amount.
COMES: Final = {"cn": Machine(own=1, vgpus=4, why="cleaning")}
FREE: Final = Machine(own=1, vgpus=4)
STAYS: Final = {"stays": Machine()}
#: Takeovers by the same driver instance; by the same one after the loss of its records; and by an
#: instance of another name, whose trait has replaced that of the earlier one.
TAKEOVERS: Final = ("namesake", "records lost", "another name")


class TakingOver(fixtures.Fixture):
    """The initial state of each process: a node that its host has released."""

    def __init__(
        self, placement: PlacementFixture, url: str, directory: Path, kind: str = "namesake"
    ) -> None:
        super().__init__()
        self._kind = kind
        self._placement = placement
        self._url = url
        self._state = directory / "state"

    def _setUp(self) -> None:
        with self._publishing(HOST, {**COMES, **STAYS}) as near:
            assert not near.cycle.sync().problems
            context, here = near.context, (HOST, "cn")
            self._sits = instance(context, 2, place=here).uuid
            goes = instance(context, 3, place=here)
            self._goes = goes.uuid
            self._move = migration(context, goes, here, dest_compute=HOST, dest_node="stays").uuid
            use: dict[str, Any] = {"cn-gpu": {"VGPU": 1}}
            allocate(self._placement, CONSUMER, **use)
            near.driver.nodes = dict(STAYS)
            assert not near.cycle.sync().problems
            if self._kind == "records lost":
                lose_records(near)
            elif self._kind == "another name":
                self._hand_over()
        self.before = everything()
        self._moments = Moments(self._state)
        self._beginning = self._moments.take()
        ended = self.play()
        assert ended.code == 0, "its traceback is on standard error"
        self.boundaries = ended.boundaries

    def play(self, kill_at: int | None = None) -> Ended:
        """Restore the initial state and sync on the other host; kill it at a boundary,
        from 0 on.
        """
        self._moments.go_back(self._beginning)
        name = "renamed" if self._kind == "another name" else "scripted"
        return killing.run(_play, self._url, self._state, name, kill_at=kill_at)

    def hosts(self) -> set[str]:
        """Return the hosts of the node, its instances and its moves."""
        with self._publishing(FAR, {}) as far:
            context = far.context
            rows = ComputeNodeList.get_by_filters(context, hypervisor_hostname="cn")
            instances = [Instance.get_by_uuid(context, one) for one in (self._sits, self._goes)]
            move = Migration.get_by_uuid(context, self._move)
            found = {*(one.host for one in (*rows, *instances)), move.source_compute}
        return {str(host) for host in found}

    def _hand_over(self) -> None:
        """Replace the instance trait on the tree that moves, as the operator does for a rename."""
        client = self._placement.client
        client.create_trait("CUSTOM_WHARFINGER_RENAMED")
        for name in ("cn", "cn-gpu"):
            [one] = client.list_providers(name=name)
            there = client.get_traits(one.uuid)
            traits = there.traits - {"CUSTOM_WHARFINGER_SCRIPTED"} | {"CUSTOM_WHARFINGER_RENAMED"}
            client.set_traits(one.uuid, there.resource_provider_generation, traits)

    def faults(self, *, near_first: bool = False) -> list[str]:
        """Return the faults while both hosts sync, in either order, and after that."""
        faults = []
        if everything() != self.before:
            faults.append(f"Placement had {everything()}")
        syncs = [(FAR, COMES), (HOST, STAYS)]
        try:
            for host, nodes in [*(reversed(syncs) if near_first else syncs), *syncs]:
                with self._publishing(host, nodes) as publishing:
                    faults += map(str, publishing.cycle.sync().problems)
            with self._publishing(FAR, {"cn": FREE}) as far:
                faults += self._wrong(far, FAR)
                far.cycle.sync()
                if everything()["cn"]["inventories"] != {"VCPU": (8, 1)}:
                    faults.append(f"its own figures are lost: {everything()['cn']}")
        except WharfingerError as error:
            return [*faults, str(error)]
        return faults

    def faults_back(self) -> list[str]:
        """Return the faults if the former host has the node again, and the other host is gone."""
        faults: list[str] = []
        try:
            for _ in range(2):
                with self._publishing(HOST, {**COMES, **STAYS}) as near:
                    faults += map(str, near.cycle.sync().problems)
                    faults += self._wrong(near, HOST)
            with self._publishing(HOST, {"cn": FREE, **STAYS}) as near:
                near.cycle.sync()
                if everything()["cn"]["inventories"] != {"VCPU": (8, 1)}:
                    faults.append(f"its own figures are lost: {everything()['cn']}")
        except WharfingerError as error:
            return [*faults, str(error)]
        return faults

    def _wrong(self, one: Publishing, host: str) -> Iterator[str]:
        """Yield the faults if the node is on that host."""
        context = one.context
        if everything() != self.before:
            yield f"Placement has {everything()}"
        rows = ComputeNodeList.get_by_filters(context)
        hosts = {row.hypervisor_hostname: row.host for row in rows}
        if hosts != {"cn": host, "stays": HOST}:
            yield f"nodes are on {hosts}"
        if not {"cn", "cn-gpu"} <= self._known(host):
            yield f"{host} remembers {self._known(host)}"
        if host == FAR and self._known(HOST) != {"stays"}:
            yield f"{HOST} remembers {self._known(HOST)}"
        if Instance.get_by_uuid(context, self._sits).host != host:
            yield "an instance was left behind"
        move = Migration.get_by_uuid(context, self._move)
        if (move.source_compute, move.dest_compute) != (host, HOST):
            yield "a move was left behind"
        if noted(context) != taken(context):
            yield f"rows say {noted(context)}, and it is {taken(context)}"

    def _known(self, host: str) -> set[str]:
        records = stored(self._state, host=host).values()
        return {record.applied.name for record in records if record.applied}

    @contextmanager
    def _publishing(self, host: str, nodes: dict[str, Machine]) -> Iterator[Publishing]:
        with Publishing(self._placement, self._state, host=host) as publishing:
            publishing.driver.nodes = dict(nodes)
            yield publishing


def _play(
    url: str, state: Path, name: str, report: Connection, *, port: int | None, kill_at: int | None
) -> None:
    """Run one sync of the new host in the process."""
    boundaries = killing._Boundaries(kill_at, report)
    with (
        WithoutSync(),
        killing._WatchedDatabase(boundaries),
        nullcontext() if port is None else elsewhere(killing._WatchedAsking(port, boundaries)),
        killing._PlacementOverHTTP(url, boundaries) as placement,
        Publishing(placement, state, name=name, host=FAR) as publishing,
    ):
        publishing.driver.nodes = dict(COMES)
        outcome = publishing.cycle.sync()
        # Its children still have the trait of the former instance.
        assert name == "renamed" or not outcome.problems, outcome.problems
    report.send(boundaries.passed)
