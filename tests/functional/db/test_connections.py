"""Connections that close, and servers that stop and start again."""

import gc
import signal
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa

from tests.functional.db.databases import Place, connect
from tests.lab import samples
from tests.lab.mariadb import MariaDB
from tests.lab.postgresql import PostgreSQL
from wharfinger.db.database import FILE_NAME
from wharfinger.exceptions import DatabaseUnavailable, StateError
from wharfinger.objects import ComputeNode, ComputeNodeList
from wharfinger.objects.database_context import local

UUID = samples.node(None).uuid
PASSWORD = "open-sesame"


@pytest.fixture(params=["on_postgresql", "on_mariadb"])
def served(request: pytest.FixtureRequest) -> Place:
    place: Place = request.getfixturevalue(request.param)
    place.upgrade()
    return place


def close_connections(place: Place) -> int:
    """Close all other connections on the server; return their number."""
    if place.kind == "postgresql":
        return len(
            place.rows(
                "(SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid != pg_backend_pid()) AS ended"
            )
        )
    others = place.rows(
        "information_schema.processlist WHERE db = DATABASE() AND id != CONNECTION_ID()"
    )
    place.execute(*(f"KILL {one['ID']}" for one in others))
    return len(others)


def test_connection_closed_meanwhile_is_opened_again(served: Place) -> None:
    context = served.open()
    node = samples.node(context)
    node.create()

    assert close_connections(served)
    node.vcpus_used = 1
    node.save()
    assert close_connections(served)
    assert ComputeNode.get_by_uuid(context, UUID).vcpus_used == 1


def test_connection_closed_during_a_save_is_an_error_and_nothing_is_written(
    served: Place,
) -> None:
    context = served.open()
    node = samples.node(context)
    node.create()
    node.vcpus_used = 1

    def close(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        if "FOR UPDATE" in statement:
            close_connections(served)

    sa.event.listen(sa.Engine, "after_cursor_execute", close)
    try:
        with pytest.raises(StateError, match="that the server answers"):
            node.save()
    finally:
        sa.event.remove(sa.Engine, "after_cursor_execute", close)
    assert ComputeNode.get_by_uuid(context, UUID).vcpus_used == 0

    node.save()
    assert ComputeNode.get_by_uuid(context, UUID).vcpus_used == 1


def with_password(server: PostgreSQL | MariaDB, url: str) -> str:
    """Return the URL of the same database for a user with a password."""
    if isinstance(server, MariaDB):
        with sa.create_engine(url, poolclass=sa.NullPool).begin() as connection:
            connection.execute(sa.text(f"CREATE USER us@localhost IDENTIFIED BY '{PASSWORD}'"))
            connection.execute(sa.text("GRANT ALL ON *.* TO us@localhost"))
        url = sa.make_url(url).set(username="us").render_as_string(hide_password=False)
    return sa.make_url(url).set(password=PASSWORD).render_as_string(hide_password=False)


def assert_error(use: Callable[[], object], url: str) -> None:
    with pytest.raises(StateError) as caught:
        use()
    assert caught.value.path == str(sa.make_url(url).set(query={}))
    assert ":***@" in caught.value.path
    assert PASSWORD not in str(caught.value)
    assert "Check [database] connection" in caught.value.remedy


def test_option_that_the_driver_refuses_is_an_error_without_the_password(served: Place) -> None:
    url = sa.make_url(served.url).update_query_dict({"foo": "bar"}).set(password=PASSWORD)
    with pytest.raises(StateError) as caught:
        connect(url.render_as_string(hide_password=False), served.directory)
    assert "foo" in caught.value.problem
    assert "[database] connection" in caught.value.remedy
    assert PASSWORD not in str(caught.value)


# PyMySQL does not close a socket after a failed connection.
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
@pytest.mark.parametrize(
    ("kind", "ending"), [(PostgreSQL, signal.SIGINT), (MariaDB, signal.SIGTERM)]
)
def test_stopped_server_is_an_error_and_is_used_again_after_its_start(
    kind: type[PostgreSQL | MariaDB], ending: signal.Signals, tmp_path: Path
) -> None:
    with (
        kind() as server,
        Place(with_password(server, server.create_database()), tmp_path) as place,
    ):
        url = place.url
        place.upgrade()
        context = place.open()
        node = samples.node(context)
        node.create()
        node.vcpus_used = 1
        server.stop(ending)

        uses: list[Callable[[], object]] = [
            node.save,
            node.destroy,
            samples.node(context, 1).create,
            lambda: ComputeNode.get_by_uuid(context, UUID),
            lambda: ComputeNodeList.get_by_filters(context),
            context.db.schema,
            context.db.missing,
            lambda: connect(url, tmp_path),
        ]
        for use in uses:
            assert_error(use, url)
        gc.collect()

        server.start_again()
        node.save()
        assert ComputeNode.get_by_uuid(context, UUID).vcpus_used == 1
        assert len(ComputeNodeList.get_by_filters(context)) == 1


def test_file_that_another_process_keeps_locked_is_an_error_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wharfinger.sqlite._PRAGMAS", ("busy_timeout=0",))
    context = local(tmp_path, "host")
    with closing(sqlite3.connect(tmp_path / FILE_NAME, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")

        with pytest.raises(DatabaseUnavailable, match=r"database is locked\. Find the process"):
            samples.node(context).create()

    samples.node(context).create()
    context.close()
