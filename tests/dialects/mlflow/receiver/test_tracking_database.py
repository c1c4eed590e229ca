"""The SQLite file of the MLflow receiver."""

import os
import sqlite3
import threading
from pathlib import Path

import pytest

from stepscope.dialects.mlflow.receiver import tracking_database
from stepscope.dialects.mlflow.receiver.tracking_database import TrackingDatabase
from stepscope.model.errors import Retry


def test_threads_that_end_leave_no_connections(tmp_path: Path) -> None:
    """The threads that serve artifacts end when idle; the files that their reads opened are used by the next."""
    database = TrackingDatabase(tmp_path / "tracking.db")

    def read() -> None:
        with database.read() as db:
            assert db.execute("SELECT count(*) FROM runs").fetchone() == (0,)

    read()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        thread = threading.Thread(target=read)
        thread.start()
        thread.join()
    assert len(os.listdir("/proc/self/fd")) == before
    database.close()


def test_a_database_that_cannot_be_opened_asks_to_come_again(tmp_path: Path) -> None:
    """A hub without files to open answers with Retry, and reads again when it has some."""
    database = TrackingDatabase(tmp_path / "tracking.db")
    (tmp_path / "tracking.db").rename(tmp_path / "away")
    (tmp_path / "tracking.db").mkdir()
    with pytest.raises(Retry, match="cannot read"), database.read():
        pass
    (tmp_path / "tracking.db").rmdir()
    (tmp_path / "away").rename(tmp_path / "tracking.db")
    with database.read() as db, pytest.raises(sqlite3.OperationalError):
        db.execute("SELECT nothing FROM nowhere")
    with database.read() as db:
        assert db.execute("SELECT 1").fetchone() == (1,)
    database.close()


def test_a_database_of_the_first_version_is_brought_up(tmp_path: Path) -> None:
    """Its rows stay, and datasets that are added later come behind them."""
    with sqlite3.connect(tmp_path / "tracking.db") as old:
        old.executescript(f"{tracking_database._VERSIONS[0]}PRAGMA user_version = 1;")
        old.execute("INSERT INTO datasets VALUES (1, 'n', 'z', NULL, '{}')")
    database = TrackingDatabase(tmp_path / "tracking.db")
    with database.write() as db:
        db.execute("INSERT INTO datasets VALUES (1, 'n', 'a', NULL, '{}')")
        assert db.execute("SELECT digest FROM datasets ORDER BY rowid").fetchall() == [("z",), ("a",)]
        assert db.execute("PRAGMA user_version").fetchone() == (tracking_database.VERSION,)
    database.close()
