"""Claim, move and release allocations of instances, and check them."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import fixtures

from tests.lab.cycles import everything
from wharfinger.allocations import Claimed, FlavorSearch, Moves
from wharfinger.conf import parse
from wharfinger.conformance.other_program_client import WritingClient
from wharfinger.objects import Context, Flavor, InstanceList, Migration, MigrationList
from wharfinger.scheduling.request_filters import Surroundings

#: Retry without a wait.
AT_ONCE = timedelta()
PROJECT, USER = "project", "user"
#: Extra specs that request a VGPU with the owner nova, and one with the owner Cyborg.
NOVAS = {"resources_N:VGPU": "1", "trait_N:OWNER_NOVA": "required"}
CYBORGS = {"resources_C:VGPU": "1", "trait_C:OWNER_CYBORG": "required"}


def flavor(name: str, vcpus: int = 1, /, **extra_specs: str) -> Flavor:
    """Return a flavor with VCPUs and extra specs."""
    made = Flavor(flavorid=name, name=name, vcpus=vcpus, memory_mb=0, extra_specs=extra_specs)
    made.obj_set_defaults()
    return made


class Desk(fixtures.Fixture):
    """The framework's claims and moves of instances, as in a new process."""

    def __init__(
        self, client: WritingClient, context: Context, *conf: Path, down_time: timedelta = AT_ONCE
    ) -> None:
        super().__init__()
        self.client, self.context = client, context
        self._conf, self._down_time = [str(path) for path in conf], down_time

    def _setUp(self) -> None:
        surroundings = Surroundings(parse(self._conf), self.client, self.context)
        search = FlavorSearch(surroundings)
        self.moves = Moves(search, self._down_time)
        self.claims = self.moves.claims

    def claim(self, wanted: Flavor, **more: Any) -> Claimed:
        """Claim an allocation for a new instance of this flavor."""
        return self.claims.claim(wanted, project_id=PROJECT, user_id=USER, **more)


def held() -> dict[str, dict[str, dict[str, int]]]:
    """Return all allocations in Placement: by consumer uuid, by provider name, and by class."""
    found: dict[str, dict[str, dict[str, int]]] = {}
    for name, one in everything().items():
        for (consumer, kind), amount in one["allocations"].items():
            found.setdefault(consumer, {}).setdefault(name, {})[kind] = amount
    return found


def faults(context: Context) -> list[str]:
    """Return a text for each allocation that is missing in Placement or has no reason.

    Each instance on a node and each move in progress has to have an allocation, and nothing else.
    """
    instances = {one.uuid: one for one in InstanceList.get_by_filters(context)}
    moves: dict[str, Migration] = {
        one.uuid: one for one in MigrationList.get_by_filters(context) if one.is_in_progress
    }
    owed = {uuid for uuid, one in instances.items() if one.node is not None} | moves.keys()
    has = held().keys()
    return [
        *(
            f"{uuid} has an allocation, but neither a node nor a move"
            for uuid in sorted(has - owed)
        ),
        *(f"{uuid} has no allocation" for uuid in sorted(owed - has)),
    ]
