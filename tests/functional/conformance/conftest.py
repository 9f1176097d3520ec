"""The kit on the process's one Placement, and the laboratory's drivers, installed."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.conformance.examining import Examiner
from tests.lab.conformance.honest import DevicesDriver, MachinesDriver
from tests.lab.conformance.installing import Installed
from tests.lab.conformance.mutants import all_mutants
from tests.lab.conformance.quick import InOneProcess, QuickPlacement
from wharfinger.conformance.checks import feeds
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
    placement_service: EmbeddedPlacement,
    tmp_path: Path,
    no_waiting: None,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Examiner]:
    """What examines a driver."""
    monkeypatch.setattr(feeds, "_WITHIN", 0.2)  # these feeds tell at once, or never
    placement = QuickPlacement(placement_service)
    with InOneProcess():
        yield Examiner(tmp_path, placement)
    placement.close()
