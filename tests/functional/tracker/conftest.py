"""Every test of the tracker is run twice: with objects kept here, and by another process."""

from collections.abc import Iterator

import pytest

from tests.lab.objects import Served, elsewhere
from tests.lab.sqlite import StayingOpen


@pytest.fixture(scope="session")
def keeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The other process: one for all tests."""
    with Served(tmp_path_factory.mktemp("keeper")) as served:
        yield served


@pytest.fixture(scope="module", autouse=True, params=["here", "elsewhere"])
def where(request: pytest.FixtureRequest) -> Iterator[str]:
    """Where objects are kept; what opens a state directory for a whole module has to ask for it.

    Elsewhere, each call of a remotable method goes to the other process as JSON.
    """
    if request.param == "here":
        yield request.param
        return
    served: Served = request.getfixturevalue("keeper")
    with elsewhere(served):
        yield request.param
    served.questions.clear()


@pytest.fixture(scope="module", autouse=True)
def files_stay_open() -> Iterator[None]:
    """That each transaction may connect anew is tested with the objects, and by the program."""
    with StayingOpen():
        yield


@pytest.fixture(autouse=True)
def nobody_waits(no_waiting: None) -> None:
    """That attempts are bounded is tested, not how long one waits between two."""
