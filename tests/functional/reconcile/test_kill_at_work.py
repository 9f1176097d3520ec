"""Objects, records and Placement agree after a kill at any moment and the next cycles.

WHARFINGER_KILLS is the number of kills on each database with --all. A long run has 50.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.drawing import Draw
from tests.lab.harbour import Harbour
from tests.lab.objects import Kept, KeptByServer, KeptInFile
from tests.lab.placement import PlacementFixture
from tests.lab.postgresql import PostgreSQL
from wharfinger.placement.embedded import EmbeddedPlacement

KILLS = int(os.environ.get("WHARFINGER_KILLS") or 5)
FIRST_SEED = int(os.environ.get("WHARFINGER_SEED") or 1606)


@pytest.fixture(scope="module", autouse=True)
def where() -> str:
    """Let both processes open the database directly."""
    return "here"


@pytest.fixture(params=["sqlite", "postgresql"])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Kept]:
    if request.param == "sqlite":
        with KeptInFile(tmp_path) as file:
            yield file
        return
    server: PostgreSQL = request.getfixturevalue("postgresql")
    with KeptByServer(server.create_database(), tmp_path) as database:
        yield database


@pytest.fixture
def harbour(
    kept: Kept,
    placement: PlacementFixture,
    placement_service: EmbeddedPlacement,
    tmp_path: Path,
) -> Iterator[Harbour]:
    with Harbour(kept, tmp_path, placement, placement_service) as fixture:
        yield fixture


def test_kill_at_any_point_of_work_leaves_objects_records_and_placement_in_agreement(
    harbour: Harbour, draw: Draw
) -> None:
    seeds = draw(range(FIRST_SEED, FIRST_SEED + KILLS), 1)
    found = [f"seed {seed}: {fault}" for seed in seeds for fault in harbour.faults(seed)]

    assert not found, "\n".join(found)
