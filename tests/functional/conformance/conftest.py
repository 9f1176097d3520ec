"""Fixtures for tests of the conformance kit: the tests' Placement, and installed test drivers."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.conformance.examining import Examiner
from tests.lab.conformance.honest import DevicesDriver, MachinesDriver
from tests.lab.conformance.installing import Installed
from tests.lab.conformance.mutants import all_mutants
from tests.lab.conformance.quick import InOneProcess
from tests.lab.conformance.tagged import TagsBeforeReadingDriver, TagsDriver
from tests.lab.conformance.unusual import CONFORMING, UNUSUAL
from wharfinger.conformance import fault_history, subject
from wharfinger.conformance.checks import (
    change_feed,
    differential_faults,
    long_reservation,
    scale,
)
from wharfinger.conformance.placement import RunPlacement
from wharfinger.placement.embedded import EmbeddedPlacement

DRIVERS: dict[str, type] = {
    "devices": DevicesDriver,
    "machines": MachinesDriver,
    "tags": TagsDriver,
    "tags-before-reading": TagsBeforeReadingDriver,
    **{kind.__qualname__: kind for _rule, kind in (*all_mutants(), *UNUSUAL)},
    **{kind.__qualname__: kind for kind in CONFORMING},
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
    """An examiner, which runs rules of the kit on a driver; the rules use short times."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))  # some drivers leave files there
    monkeypatch.setattr(change_feed, "_WITHIN", 0.2)  # these feeds report a change at once or never
    monkeypatch.setattr(subject, "_PAUSE", 0)  # none of these drivers has a timer
    monkeypatch.setattr(
        long_reservation, "_LONG", 300.0
    )  # each cycle passes 300 s of simulated time
    monkeypatch.setattr(change_feed, "_QUIET", 2.0)
    monkeypatch.setattr(scale, "_MOST", 512)
    monkeypatch.setattr(scale, "_FAR", 640)
    monkeypatch.setattr(fault_history, "_POLLS", 0.2)
    seconds = dict.fromkeys(
        differential_faults._SECONDS, 0.0
    )  # time for only one history of faults
    monkeypatch.setattr(differential_faults, "_SECONDS", seconds)
    placement = RunPlacement(placement_service)
    with InOneProcess():
        yield Examiner(tmp_path, placement, seconds)
    placement.close()
