"""Tests of cycles, some of which run twice: with objects kept here, and by another process.

What is different there is the objects' way, and what comes of it: what they carry, what is asked
for and said to the database, who writes first, what is left by a process that ends, and errors
that come back. Twice is run what is about that, marked ANYWHERE (see ``places``): whole files on
rows and records, on what follows when they are damaged, handed over, or of a process that was
killed, on claims, which are all objects; and a random history. Each test of the objects themselves
is run there too. What is about Placement or a driver is run here alone: it is the same question,
and the same answer.
"""

from collections.abc import Iterator

import pytest

from tests.lab.objects import Served, elsewhere
from tests.lab.sqlite import StayingOpen


@pytest.fixture(scope="session")
def keeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The other process: one for all tests."""
    with Served(tmp_path_factory.mktemp("keeper")) as served:
        yield served


@pytest.fixture(scope="module", autouse=True)
def where(request: pytest.FixtureRequest) -> Iterator[str]:
    """Where objects are kept; what opens a state directory for a whole module has to ask for it.

    Elsewhere, each call of a remotable method goes to the other process as JSON.
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
    """That each transaction may connect anew is tested with the objects, and by the program."""
    with StayingOpen():
        yield


@pytest.fixture(autouse=True)
def nobody_waits(no_waiting: None) -> None:
    """That attempts are bounded is tested, not how long one waits between two."""
