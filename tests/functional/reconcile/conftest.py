"""Fixtures for tests of cycles, some of which run twice.

Tests marked ANYWHERE (see ``places``) run twice: once with the objects stored by this process, once
with the objects stored by another process. These are the tests whose result can depend on the
storing process: tests of rows, records and damaged records, of takeovers, killed processes and
claims, and of a random history. All tests of the objects themselves also run twice. Tests of
Placement or of a driver run only with the objects in this process.
"""

from collections.abc import Iterator

import pytest

from tests.lab.objects import Served, elsewhere
from tests.lab.sqlite import StayingOpen


@pytest.fixture(scope="session")
def keeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Start the other process that stores objects; all tests share it."""
    with Served(tmp_path_factory.mktemp("keeper")) as served:
        yield served


@pytest.fixture(scope="module", autouse=True)
def where(request: pytest.FixtureRequest) -> Iterator[str]:
    """Store objects in this process or in the other one.

    A module fixture that opens the state directory must request this fixture. In the other process,
    each call of a remotable method arrives as JSON.
    """
    place: str = getattr(request, "param", "here")
    if place == "here":
        yield place
        return
    served: Served = request.getfixturevalue("keeper")
    with elsewhere(served):
        yield place
    served.questions.clear()


@pytest.fixture(scope="module", autouse=True)
def files_stay_open() -> Iterator[None]:
    """Keep SQLite files open between transactions; tests of the objects open them each time."""
    with StayingOpen():
        yield


@pytest.fixture(autouse=True)
def no_waits(no_waiting: None) -> None:
    """Skip waits between attempts; tests check only that the number of attempts is bounded."""
