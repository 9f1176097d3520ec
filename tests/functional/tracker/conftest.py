"""A scripted driver instance that publishes into the real Placement."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.cycles import Publishing
from tests.lab.placement import PlacementFixture


@pytest.fixture
def publishing(placement: PlacementFixture, tmp_path: Path) -> Iterator[Publishing]:
    with Publishing(placement, tmp_path / "state") as fixture:
        yield fixture
