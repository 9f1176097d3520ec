"""Fixtures with an empty database of each kind."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.functional.db import elsewhere
from tests.functional.db.databases import Place
from tests.lab.mariadb import MariaDB
from tests.lab.oldest import PRELOADED, PROCESSES
from tests.lab.postgresql import PostgreSQL
from wharfinger.db.database import FILE_NAME

PROCESSES.set_forkserver_preload([*PRELOADED, elsewhere.__name__])


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Place]:
    """A database in the file of a state directory."""
    with Place(f"sqlite:///{tmp_path / FILE_NAME}", tmp_path) as place:
        yield place


@pytest.fixture
def on_postgresql(postgresql: PostgreSQL, tmp_path: Path) -> Iterator[Place]:
    with Place(postgresql.create_database(), tmp_path) as place:
        yield place


@pytest.fixture
def on_mariadb(mariadb: MariaDB, tmp_path: Path) -> Iterator[Place]:
    with Place(mariadb.create_database(), tmp_path) as place:
        yield place


#: All tests run on a file. For each server, the seed draws 6 tests of a module that also run on it.
@pytest.fixture(
    params=[
        "file",
        *(
            pytest.param(server, marks=pytest.mark.drawn(6, of="module"))
            for server in ("on_postgresql", "on_mariadb")
        ),
    ]
)
def place(request: pytest.FixtureRequest) -> Place:
    found: Place = request.getfixturevalue(request.param)
    return found
