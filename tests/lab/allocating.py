"""Instances that claim, move and release what driver instances have published."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import fixtures

from tests.lab.cycles import everything
from wharfinger.allocations import AllocationClaims, Claimed, FlavorSearch, Moves
from wharfinger.conf import parse
from wharfinger.conformance.other_program_client import WritingClient
from wharfinger.objects import Context, Flavor, InstanceList, Migration, MigrationList
from wharfinger.scheduling.request_filters import Surroundings

#: Nobody is waited for.
AT_ONCE = timedelta()
PROJECT, USER = "project", "user"
#: What there is of nova's vGPUs and of Cyborg's, as extra specs ask for them.
NOVAS = {"resources_N:VGPU": "1", "trait_N:OWNER_NOVA": "required"}
CYBORGS = {"resources_C:VGPU": "1", "trait_C:OWNER_CYBORG": "required"}


def flavor(name: str, vcpus: int = 1, /, **extra_specs: str) -> Flavor:
    """One that asks for CPUs, and for what its extra specs say."""
    made = Flavor(flavorid=name, name=name, vcpus=vcpus, memory_mb=0, extra_specs=extra_specs)
    made.obj_set_defaults()
    return made


class Desk(fixtures.Fixture):
    """Where claims and moves are made, as by a process that starts now."""

    def __init__(
        self, client: WritingClient, context: Context, *conf: Path, down_time: timedelta = AT_ONCE
    ) -> None:
        super().__init__()
        self.client, self.context = client, context
        self._conf, self._down_time = [str(path) for path in conf], down_time

    def _setUp(self) -> None:
        surroundings = Surroundings(parse(self._conf), self.client, self.context)
        search = FlavorSearch(surroundings)
        self.claims = AllocationClaims(surroundings, search, self._down_time)
        self.moves = Moves(surroundings, search, self._down_time)

    def claim(self, wanted: Flavor, **more: Any) -> Claimed:
        """Claim for a new instance."""
        return self.claims.claim(wanted, project_id=PROJECT, user_id=USER, **more)


def held() -> dict[str, dict[str, dict[str, int]]]:
    """What each consumer has in Placement, by its uuid and the names of providers."""
    found: dict[str, dict[str, dict[str, int]]] = {}
    for name, one in everything().items():
        for (consumer, kind), amount in one["allocations"].items():
            found.setdefault(consumer, {}).setdefault(name, {})[kind] = amount
    return found


def faults(context: Context) -> list[str]:
    """What is held and nobody asked for, and what somebody was promised and does not hold.

    An instance on a node has an allocation, and so has a move that waits to be decided; nobody
    else has.
    """
    instances = {one.uuid: one for one in InstanceList.get_by_filters(context)}
    moves: dict[str, Migration] = {
        one.uuid: one for one in MigrationList.get_by_filters(context) if one.is_in_progress
    }
    owed = {uuid for uuid, one in instances.items() if one.node is not None} | moves.keys()
    has = held().keys()
    return [
        *(f"{uuid} has an allocation, and is nobody's" for uuid in sorted(has - owed)),
        *(f"{uuid} has no allocation" for uuid in sorted(owed - has)),
    ]
