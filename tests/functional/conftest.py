"""The real Placement for all functional tests, and what publishes into it."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import tenacity.nap

from tests.lab import placement as lab
from tests.lab.cycles import Publishing
from wharfinger.placement.embedded import EmbeddedPlacement


@pytest.fixture(scope="session")
def placement_service(tmp_path_factory: pytest.TempPathFactory) -> EmbeddedPlacement:
    return lab.start(tmp_path_factory.mktemp("placement"))


@pytest.fixture(scope="session", autouse=True)
def without_sync() -> Iterator[None]:
    with lab.WithoutSync():
        yield


@pytest.fixture
def placement(placement_service: EmbeddedPlacement) -> Iterator[lab.PlacementFixture]:
    with lab.PlacementFixture(placement_service) as fixture:
        yield fixture


@pytest.fixture
def placement_url(placement_service: EmbeddedPlacement) -> Iterator[tuple[str, lab.Requests]]:
    with lab.over_http(placement_service) as served:
        yield served


@pytest.fixture
def publishing(placement: lab.PlacementFixture, tmp_path: Path) -> Iterator[Publishing]:
    """A scripted driver instance."""
    with Publishing(placement, tmp_path / "state") as fixture:
        yield fixture


@pytest.fixture
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits between two attempts."""
    monkeypatch.setattr(tenacity.nap, "time", SimpleNamespace(sleep=lambda seconds: None))
