"""Connections to SQLite files that several processes use."""

import sqlite3
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest
import sqlalchemy as sa

from wharfinger.sqlite import allow_concurrent_writers


def test_connection_to_a_new_file_that_another_process_writes_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(sqlite3.connect(tmp_path / "file", isolation_level=None)) as other:
        other.execute("CREATE TABLE one (a)")
        other.execute("BEGIN IMMEDIATE")
        waits: list[float] = []

        def wait(seconds: float) -> None:
            waits.append(seconds)
            other.execute("COMMIT")

        monkeypatch.setattr("tenacity.nap.time", SimpleNamespace(sleep=wait))
        engine = sa.create_engine(f"sqlite:///{tmp_path / 'file'}")
        allow_concurrent_writers(engine)

        with engine.connect() as connection:
            mode = connection.exec_driver_sql("PRAGMA journal_mode").scalar()

        assert mode == "wal"
        assert len(waits) == 1
        engine.dispose()
