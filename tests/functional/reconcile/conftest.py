"""Fixtures of cycles, and of the tests that run twice: with objects in this process and in another.

Tests marked ANYWHERE (see ``places``) run twice: tests of rows and records, of damage, of
takeovers, of killed processes, of claims, and a random history. They depend on where objects are:
on their encoding, on requests and database statements, on the order of writes, on a process that
dies, and on errors that return. So do all tests of the objects themselves. Tests of Placement or a
driver run here alone.
"""

from collections.abc import Iterator

import pytest

from tests.lab.objects import Served, elsewhere
from tests.lab.sqlite import StayingOpen


@pytest.fixture(scope="session")
def keeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The other process, shared by all tests."""
    with Served(tmp_path_factory.mktemp("keeper")) as served:
        yield served


@pytest.fixture(scope="module", autouse=True)
def where(request: pytest.FixtureRequest) -> Iterator[str]:
    """Store objects in this process or in the other; a module fixture that opens state must request
    it.

    In the other process, each call of a remotable method arrives as JSON.
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
    """Keep files open; new connections for each transaction are tested with the objects."""
    with StayingOpen():
        yield


@pytest.fixture(autouse=True)
def no_waits(no_waiting: None) -> None:
    """Skip waits between attempts; tests check only that attempts are bounded."""
