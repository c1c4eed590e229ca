"""`stepscope store migrate` copies a store to a real server and back, continues after a kill, and compares the copy."""

import contextlib
import json
import math
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from stepscope.cli.main import main
from stepscope.diagnosis.finding import Finding
from stepscope.hub.home import HubHome
from stepscope.hub.home_store import open_home_store
from stepscope.hub.store import migration
from stepscope.hub.store.cluster.ownership import this_process
from stepscope.hub.store.fingerprint import COPIED, TOTALS
from stepscope.hub.store.read.run_catalog import list_runs, run_number
from stepscope.hub.store.store import Store, open_server, open_store
from stepscope.hub.store.write.finding_rows import Diagnosed, write_findings
from stepscope.model.errors import ConfigError
from stepscope.model.names import SCOPE_SAMPLES
from stepscope.model.ports import Batch
from stepscope.model.records import (
    Alert,
    Event,
    Histogram,
    Instrument,
    Link,
    Log,
    Metric,
    Record,
    Span,
    SpanEvent,
    Summary,
)
from stepscope.testing.clickhouse_cluster import ClusterProcesses
from tests.hub.cluster.conftest import PASSWORD
from tests.hub.conftest import PACKAGE
from tests.hub.store.contract import T, floats, line, losses, writer

RUNS = 8
_KILLED = """
import os, signal, sys
from stepscope.cli.main import main
from stepscope.hub.store import migration

migration.PIECE, made, blocks = 700, migration._block, []

def block(found, types):
    blocks.append("value" in types)
    if sum(blocks) == 4:
        os.kill(os.getpid(), signal.SIGKILL)
    return made(found, types)

migration._block = block
main(["store", "migrate", *sys.argv[1:]])
"""


def _records(run: int) -> list[Record]:
    exemplar = {"otel.exemplars": [{"value": 2.0, "time": T, "trace_id": "ab" * 16, "span_id": "cd" * 8}]}
    values = [math.nan, math.inf, -0.0, 5e-324] + [0.1 * step for step in range(300 if run < RUNS - 1 else 2000)]
    return [
        *losses(enumerate(values)),
        Metric(T, 1, None, "system", {"h": Histogram(6, None, -1.0, None, (0.5, 1.0), (1, 2, 3))}, {}, Instrument("h")),
        Metric(T, 2, None, "system", {"s": Summary(3, 4.5, ((0.5, 1.0),))}, {"gpu": 1}, Instrument("s")),
        Metric(T, 3, None, None, {"x": 1.0}, exemplar),
        Span(T, 1, 1, "policy", b"t" * 16, b"s" * 8, None, "it's \\ \0", attrs={"a": [1, "ü"]},
             events=(SpanEvent(T + 1, "e", {"n": 1}),), links=(Link(b"l" * 16, b"m" * 8, {"w": "r"}),)),
        Log(T, 1, None, None, None, 9, "text \n", {"k": True}),
        Log(T, 1, None, None, None, 9, "samples", {"prompt": "2+2=", "reward": 0.5}, SCOPE_SAMPLES),
        Event(T, 1, None, None, None, 17, "train.nan_detected", {"key": "loss"}, {"nested": [1]}),
        Alert(T + 2, 2, None, None, None, 21, "nan", "loss is NaN", {"rule": "r"}),
        Event(T, None, None, None, None, 9, "train.run.started", {"config": {"lr": 0.1}}),
    ]  # fmt: skip


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with a store of several runs that have rows in every table."""
    place = HubHome(tmp_path / "home")
    store = open_home_store(place)
    for seq in range(2):
        store.write_many([Batch(writer(f"r{run}"), seq, _records(run)) for run in range(RUNS)])
    number = run_number(store.engine, "r1")
    assert number is not None
    found = Finding("nan", "ERROR", "loss is NaN", 1, 2, ranks=(0,), key="loss")
    write_findings(store.engine, [Diagnosed(number, [found], 1, 2)], 7)
    store.close()
    place.close()
    return tmp_path / "home"


def _migrate(capsys: pytest.CaptureFixture[str], *ends: object) -> Any:
    assert main(["store", "migrate", "--json", *map(str, ends)]) == 0
    shown = capsys.readouterr()
    assert PASSWORD not in shown.out + shown.err
    return json.loads(shown.out)


def _look(store: Store) -> Any:
    """What a reader sees."""
    rows = [row for row in list_runs(store.engine, keys=["trainer/loss"]) if row.id]
    return sorted((repr(row.values), row.id, row.counts, row.beginning) for row in rows), floats(line(store, "r3"))[4:]


@pytest.fixture(params=["database", "cluster"])
def target(request: pytest.FixtureRequest) -> str:
    """An empty database on a server, and one on a cluster."""
    found = request.getfixturevalue(request.param)
    return str(found) if request.param == "database" else str(found.url(f"moved_{os.getpid()}"))


def test_there_and_back(
    home: Path, target: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every row of every run, killed in between and run again; the copy is refused until it is complete."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("STEPSCOPE_")}
    killed = subprocess.run(
        [sys.executable, "-c", _KILLED, str(home), target],
        env={**environment, "PYTHONPATH": str(PACKAGE)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    done = _migrate(capsys, home, target)
    copied = {table["name"]: (table["copied"], table["rows"]) for table in done["tables"]}
    assert set(copied) == {*COPIED, TOTALS}
    assert copied["ledger"][0] == 0
    assert 0 < copied["metrics"][0] < copied["metrics"][1]
    assert [name for name, (_, rows) in copied.items() if not rows] == ["open_spans"]
    assert done["runs"] == RUNS

    back = tmp_path / "back"
    monkeypatch.setattr(migration, "_total", _interrupt)
    assert main(["store", "migrate", target, str(back)]) != 0
    monkeypatch.undo()
    with contextlib.closing(HubHome(back)) as place, pytest.raises(ConfigError, match="incomplete copy"):
        open_home_store(place)
    returned = _migrate(capsys, target, back)
    assert (returned["rows"], returned["copied"]) == (done["rows"], copied[TOTALS][1])
    looks = []
    for folder in (home, back):
        store = open_store(folder / "hub" / "store")
        looks.append(_look(store))
        store.write(Batch(writer("r3"), 0, losses([(1, 9.0)])))
        looks.append(_look(store))
        store.close()
    assert [look[0] for look in looks[1:]] == [looks[0][0]] * 3
    assert all(look[1] == looks[0][1] for look in looks)


def test_rows_are_not_deleted_by_way_of_the_queue(cluster: ClusterProcesses) -> None:
    """An ALTER that two replicas of a shard take from the queue of the cluster stops one of their servers' queues."""
    store = open_server(cluster.url(f"altered_{os.getpid()}"), member=this_process("b" * 16))
    store.write_many([Batch(writer(f"r{run}"), 0, losses([(1, 1.0)])) for run in range(RUNS)])
    store.engine.execute("ALTER TABLE metrics DELETE WHERE step >= 0")
    assert store.engine.query("SELECT count() AS n FROM metrics").one("n") == 0
    store.engine.execute("ALTER TABLE runs ADD COLUMN added UInt8")
    store.engine.execute("ALTER TABLE runs ADD COLUMN added UInt8")
    assert store.engine.query("SELECT sum(added) AS n FROM runs").one("n") == 0
    queued = "SELECT value FROM system.zookeeper WHERE path = '/clickhouse/task_queue/ddl'"
    statements = [each for each in store.engine.query(queued)["value"] if f"altered_{os.getpid()}" in each]
    assert any("CREATE TABLE" in each for each in statements)
    assert not any("ALTER" in each for each in statements)
    store.close()


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


class TestRefusals:
    def test_a_hub_that_runs(self, home: Path, database: str, capsys: pytest.CaptureFixture[str]) -> None:
        """On either side: by the lock of the folder, by the lease of the server."""
        running = HubHome(home)
        assert main(["store", "migrate", str(home), database]) == 2
        assert "has" in capsys.readouterr().err
        running.close()
        other = open_server(database, member=this_process("b" * 16))
        assert main(["store", "migrate", str(home), database]) == 2
        assert "another hub" in capsys.readouterr().err
        other.close()

    def test_a_target_that_is_not_empty(self, home: Path, database: str, capsys: pytest.CaptureFixture[str]) -> None:
        """Numbers of runs would collide."""
        other = open_server(database)
        other.write(Batch(writer("elsewhere"), 0, losses([(1, 1.0)])))
        other.close()
        assert main(["store", "migrate", str(home), database]) == 2
        assert "holds runs already" in capsys.readouterr().err

    def test_two_folders(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """And a source that has no store."""
        assert main(["store", "migrate", str(tmp_path), str(tmp_path / "b")]) == 2
        assert "one of the two must be clickhouse://" in capsys.readouterr().err
        assert main(["store", "migrate", str(tmp_path), "clickhouse://127.0.0.1:1/x"]) == 2
        assert "there is no store in" in capsys.readouterr().err
