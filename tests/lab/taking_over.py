"""Let a host take over a node of another host, and kill it with SIGKILL at a boundary.

The former host is called near, the new one far.
"""

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
#: The node that moves. It is reserved, so that only its record has its unreserved figures.
COMES: Final = {"cn": Machine(own=1, vgpus=4, why="cleaning")}
FREE: Final = Machine(own=1, vgpus=4)
STAYS: Final = {"stays": Machine()}
#: The kinds of takeovers: by the driver instance of the same name; by this one after the loss of
#: the records; by an instance of another name, after the operator has replaced the instance trait.
TAKEOVERS: Final = ("namesake", "records lost", "another name")


class TakingOver(fixtures.Fixture):
    """Runs the takeover again and again from the same state, in a process that is killed.

    In this state, the former host no longer reports the node, which is still in Placement.
    """

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
        """Restore the initial state, and run a full cycle of the new host in a process.

        Kill the process at the boundary ``kill_at``, counted from 0.
        """
        self._moments.go_back(self._beginning)
        name = "renamed" if self._kind == "another name" else "scripted"
        return killing.run(_play, self._url, self._state, name, kill_at=kill_at)

    def hosts(self) -> set[str]:
        """Return all hosts in the rows of the node, its instances and its move."""
        with self._publishing(FAR, {}) as far:
            context = far.context
            rows = ComputeNodeList.get_by_filters(context, hypervisor_hostname="cn")
            instances = [Instance.get_by_uuid(context, one) for one in (self._sits, self._goes)]
            move = Migration.get_by_uuid(context, self._move)
            found = {*(one.host for one in (*rows, *instances)), move.source_compute}
        return {str(host) for host in found}

    def _hand_over(self) -> None:
        """Replace the instance trait on the node's tree, as an operator does for a new name."""
        client = self._placement.client
        client.create_trait("CUSTOM_WHARFINGER_RENAMED")
        for name in ("cn", "cn-gpu"):
            [one] = client.list_providers(name=name)
            there = client.get_traits(one.uuid)
            traits = there.traits - {"CUSTOM_WHARFINGER_SCRIPTED"} | {"CUSTOM_WHARFINGER_RENAMED"}
            client.set_traits(one.uuid, there.resource_provider_generation, traits)

    def faults(self, *, near_first: bool = False) -> list[str]:
        """Run full cycles of both hosts, and return what is wrong after them.

        With ``near_first``, the former host runs first.
        """
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
                    faults.append(f"the unreserved figures are lost: {everything()['cn']}")
        except WharfingerError as error:
            return [*faults, str(error)]
        return faults

    def faults_back(self) -> list[str]:
        """Run cycles of the former host, which has the node again; return what is wrong then."""
        faults: list[str] = []
        try:
            for _ in range(2):
                with self._publishing(HOST, {**COMES, **STAYS}) as near:
                    faults += map(str, near.cycle.sync().problems)
                    faults += self._wrong(near, HOST)
            with self._publishing(HOST, {"cn": FREE, **STAYS}) as near:
                near.cycle.sync()
                if everything()["cn"]["inventories"] != {"VCPU": (8, 1)}:
                    faults.append(f"the unreserved figures are lost: {everything()['cn']}")
        except WharfingerError as error:
            return [*faults, str(error)]
        return faults

    def _wrong(self, one: Publishing, host: str) -> Iterator[str]:
        """Yield a text for all that is wrong if ``host`` should have the node."""
        context = one.context
        if everything() != self.before:
            yield f"Placement has {everything()}"
        rows = ComputeNodeList.get_by_filters(context)
        hosts = {row.hypervisor_hostname: row.host for row in rows}
        if hosts != {"cn": host, "stays": HOST}:
            yield f"the hosts of the nodes are {hosts}"
        if not {"cn", "cn-gpu"} <= self._known(host):
            yield f"{host} has records of {self._known(host)}"
        if host == FAR and self._known(HOST) != {"stays"}:
            yield f"{HOST} has records of {self._known(HOST)}"
        if Instance.get_by_uuid(context, self._sits).host != host:
            yield "the instance is on another host"
        move = Migration.get_by_uuid(context, self._move)
        if (move.source_compute, move.dest_compute) != (host, HOST):
            yield "the move has other hosts"
        if noted(context) != taken(context):
            yield f"the rows have {noted(context)}, instances and moves use {taken(context)}"

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
    """Run one full cycle of the new host in this process, with boundaries."""
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
        # An instance of another name may report problems about the former instance's children.
        assert name == "renamed" or not outcome.problems, outcome.problems
    report.send(boundaries.passed)
