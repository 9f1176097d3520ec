"""Fixtures for all stores of objects; the same tests run on each."""

from collections.abc import Iterator

import pytest

from tests.lab.mariadb import MariaDB
from tests.lab.objects import Kept, KeptByServer, KeptElsewhere, KeptInFile
from tests.lab.postgresql import PostgreSQL
from wharfinger.objects import Context


@pytest.fixture(scope="session")
def in_file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KeptInFile]:
    with KeptInFile(tmp_path_factory.mktemp("objects")) as kept:
        yield kept


@pytest.fixture(scope="session")
def by_postgresql(
    postgresql: PostgreSQL, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Kept]:
    directory = tmp_path_factory.mktemp("postgresql")
    with KeptByServer(postgresql.create_database(), directory) as kept:
        yield kept


@pytest.fixture(scope="session")
def by_mariadb(mariadb: MariaDB, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kept]:
    directory = tmp_path_factory.mktemp("mariadb")
    with KeptByServer(mariadb.create_database(), directory) as kept:
        yield kept


@pytest.fixture(scope="session")
def by_another_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KeptElsewhere]:
    with KeptElsewhere(tmp_path_factory.mktemp("elsewhere")) as kept:
        yield kept


#: All tests run on a file. For each other store, the seed draws 6 tests of a module.
ELSEWHERE = [
    pytest.param(place, marks=pytest.mark.drawn(6, of="module"))
    for place in ("by_postgresql", "by_mariadb", "by_another_process")
]


@pytest.fixture(params=["in_file", *ELSEWHERE])
def kept(request: pytest.FixtureRequest) -> Iterator[Kept]:
    """An empty store of objects."""
    where: Kept = request.getfixturevalue(request.param)
    with where.in_use():
        yield where


@pytest.fixture
def context(kept: Kept) -> Context:
    return kept.context


@pytest.fixture
def file(in_file: KeptInFile) -> Iterator[KeptInFile]:
    """An empty file, for tests whose result does not depend on the store."""
    with in_file.in_use():
        yield in_file


@pytest.fixture
def elsewhere(by_another_process: KeptElsewhere) -> Iterator[KeptElsewhere]:
    """An empty store in another process, for tests of the requests to it."""
    with by_another_process.in_use():
        yield by_another_process
