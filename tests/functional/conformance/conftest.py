"""The kit on the process's one Placement, and the laboratory's drivers, installed."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab import placement as lab
from tests.lab.conformance.examining import Examiner
from tests.lab.conformance.honest import DevicesDriver, MachinesDriver
from tests.lab.conformance.installing import Installed
from tests.lab.conformance.mutants import all_mutants
from tests.lab.sqlite import StayingOpen
from wharfinger.conformance.placement import RunPlacement
from wharfinger.placement.embedded import EmbeddedPlacement

DRIVERS: dict[str, type] = {
    "devices": DevicesDriver,
    "machines": MachinesDriver,
    **{kind.__qualname__: kind for _rule, kind in all_mutants()},
}


@pytest.fixture(scope="session", autouse=True)
def _installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with Installed(tmp_path_factory.mktemp("installed"), DRIVERS):
        yield


@pytest.fixture
def examiner(
    placement_service: EmbeddedPlacement, tmp_path: Path, no_waiting: None
) -> Iterator[Examiner]:
    """What examines a driver."""
    lab.empty()
    placement = RunPlacement(placement_service)
    with StayingOpen():
        yield Examiner(tmp_path, placement)
    placement.close()
