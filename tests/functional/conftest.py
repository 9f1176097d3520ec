"""The real Placement for all functional tests."""

from collections.abc import Iterator

import pytest

from tests.lab import placement as lab
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
