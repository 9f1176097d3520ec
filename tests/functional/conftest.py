"""Fixtures for tests that publish into the real Placement."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab import placement as lab
from tests.lab.cycles import Publishing
from tests.lab.mariadb import MariaDB
from tests.lab.postgresql import PostgreSQL
from wharfinger.placement.embedded import EmbeddedPlacement


@pytest.fixture(scope="session", autouse=True)
def _without_sync(without_sync: None) -> None:
    """Let SQLite skip syncing to the disk in all these tests."""


@pytest.fixture(autouse=True)
def _empty_placement(request: pytest.FixtureRequest) -> None:
    """Empty Placement before each test."""
    if "placement_service" in request.fixturenames:
        request.getfixturevalue("placement_service")
        lab.empty()


@pytest.fixture(scope="session")
def postgresql() -> Iterator[PostgreSQL]:
    """A server for all tests of this process; each test has its own database."""
    with PostgreSQL() as server:
        yield server


@pytest.fixture(scope="session")
def mariadb() -> Iterator[MariaDB]:
    """A server for all tests of this process; each test has its own database."""
    with MariaDB() as server:
        yield server


@pytest.fixture
def placement_url(placement_service: EmbeddedPlacement) -> Iterator[tuple[str, lab.Requests]]:
    with lab.over_http(placement_service) as served:
        yield served


@pytest.fixture
def publishing(placement: lab.PlacementFixture, tmp_path: Path) -> Iterator[Publishing]:
    """A driver instance whose driver is scripted by the test."""
    with Publishing(placement, tmp_path / "state") as fixture:
        yield fixture
