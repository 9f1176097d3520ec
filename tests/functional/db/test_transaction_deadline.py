"""A transaction on a server ends at its deadline, and the next one succeeds."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from tests.functional.db.databases import HOST, Place
from wharfinger.db.database import Database
from wharfinger.exceptions import DatabaseUnavailable

#: Statements that lock a table against other connections, and unlock it.
LOCKS = {
    "postgresql": ("LOCK TABLE services IN ACCESS EXCLUSIVE MODE", "COMMIT"),
    "mariadb": ("LOCK TABLES services WRITE", "UNLOCK TABLES"),
}


@pytest.fixture(params=LOCKS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    server = request.getfixturevalue(request.param)
    with Place(server.create_database(), tmp_path) as place:
        place.upgrade()
        yield place


def test_transaction_that_waits_too_long_is_ended_and_the_next_one_succeeds(
    place: Place, request: pytest.FixtureRequest
) -> None:
    lock, unlock = LOCKS[request.node.callspec.params["place"]]
    database = Database(place.url, directory=place.directory, host=HOST, managed=False, timeout=1)
    try:
        assert database.select("services") == []
        with place.engine.connect() as other:
            other.execute(sa.text(lock))
            for attempt in (
                lambda: database.select("services"),
                lambda: database.write(["services"], lambda rows: rows.select({})),
            ):
                with pytest.raises(DatabaseUnavailable, match=r"within \[database\] timeout"):
                    attempt()
            other.execute(sa.text(unlock))
        assert database.select("services") == []
    finally:
        database.close()
