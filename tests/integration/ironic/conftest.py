"""Fixtures for tests of the Ironic driver: three Ironics, and a proxy before one of them."""

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from tests.lab.background import InBackground
from tests.lab.bare_metal import Metal
from tests.lab.between import Between
from tests.lab.placement import PlacementFixture
from wharfinger_harnesses.ironic import Ironic


@pytest.fixture(scope="package")
def old_ironic_starting() -> Iterator[InBackground[Ironic]]:
    with InBackground(lambda: Ironic({"DEFAULT": {"pin_release_version": "13.0"}})) as starting:
        yield starting


@pytest.fixture(scope="package", autouse=True)
def _start_all(
    ironic_starting: InBackground[Ironic],
    ironic_on_postgresql_starting: InBackground[Ironic],
    old_ironic_starting: InBackground[Ironic],
) -> None:
    """Start all Ironics at the same time."""


@pytest.fixture(scope="package")
def old_ironic(old_ironic_starting: InBackground[Ironic]) -> Ironic:
    """An Ironic whose newest API is 1.58."""
    return old_ironic_starting.ready()


@pytest.fixture
def between(ironic: Ironic) -> Iterator[Between]:
    with Between(ironic.url) as between:
        yield between


@pytest.fixture
def metal(placement: PlacementFixture, ironic: Ironic, tmp_path: Path) -> Iterator[Metal]:
    with Metal(placement, ironic, tmp_path / "state") as metal:
        yield metal


@pytest.fixture
def instance() -> str:
    return str(uuid4())
