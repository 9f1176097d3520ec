"""The real Placement of this process, which has one, and no waiting, for tests that want them."""

# ruff: noqa: PLC0415 - unit tests want none, and are quick without it

import os
from collections.abc import Iterator
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.lab.placement import PlacementFixture
    from wharfinger.placement.embedded import EmbeddedPlacement

# eventlet, which libraries import where it is installed, comes with a resolver that nobody asks
# here, and that takes an eighth of the time in which a process of ours starts.
os.environ.setdefault("EVENTLET_NO_GREENDNS", "yes")


@pytest.fixture(scope="session")
def placement_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator["EmbeddedPlacement"]:
    from tests.lab import placement as lab

    with lab.started(tmp_path_factory.mktemp("placement")) as service:
        yield service


@pytest.fixture(scope="session")
def without_sync() -> Iterator[None]:
    from tests.lab.sqlite import WithoutSync

    with WithoutSync():
        yield


@pytest.fixture
def placement(placement_service: "EmbeddedPlacement") -> Iterator["PlacementFixture"]:
    from tests.lab import placement as lab

    with lab.PlacementFixture(placement_service) as fixture:
        yield fixture


@pytest.fixture
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits between two attempts."""
    monkeypatch.setattr("tenacity.nap.time", SimpleNamespace(sleep=lambda seconds: None))
