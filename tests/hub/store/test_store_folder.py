"""A folder that is not ours, is in use, is newer or is damaged is refused with one clear sentence."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from stepscope.cli.main import main
from stepscope.diagnosis.finding import Finding
from stepscope.hub.home import HubHome
from stepscope.hub.questions.logs import find_logs
from stepscope.hub.questions.series.metric_keys import list_keys
from stepscope.hub.questions.toolbox.conditions import RecordQuery
from stepscope.hub.questions.traces.stored_spans import find_spans
from stepscope.hub.store import maintenance, rollups, schema
from stepscope.hub.store.columns import numbers
from stepscope.hub.store.engine import Engine
from stepscope.hub.store.read.finding_catalog import read_findings, undiagnosed
from stepscope.hub.store.read.sample_rows import sample_steps
from stepscope.hub.store.store import open_store
from stepscope.hub.store.store_folder import Folder
from stepscope.hub.store.write.finding_rows import Diagnosed, write_findings
from stepscope.model.errors import ConfigError, Retry
from stepscope.model.names import SCOPE_SAMPLES
from stepscope.model.ports import Batch
from stepscope.model.records import Log, Metric, Span
from tests.hub.store.contract import T, floats, line, losses, writer

HOLD = """
import sys, pathlib
from stepscope.hub.store.store_folder import Folder
folder = Folder(pathlib.Path(sys.argv[1]))
print(flush=True)
input()
"""


def test_a_foreign_folder_is_refused(tmp_path: Path) -> None:
    """A folder of another program is refused and not changed."""
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(ConfigError, match="not a Stepscope store: choose an empty folder"):
        open_store(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_file_is_refused(tmp_path: Path) -> None:
    """A path that can not be a folder says so."""
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be used"):
        open_store(tmp_path / "file")


def test_a_second_process_is_refused_with_the_name_of_the_holder(tmp_path: Path) -> None:
    """A second process is refused until the first one ends."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path / "store")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        with pytest.raises(ConfigError, match=f"open in another process .pid {holder.pid}."):
            Folder(tmp_path / "store")
        holder.communicate("\n")
    Folder(tmp_path / "store").close()


class TestWithEngine:
    @pytest.fixture(autouse=True)
    def _engine(self) -> None:
        pytest.importorskip("tests.chdb")

    def test_a_newer_store_is_refused(self, tmp_path: Path) -> None:
        """The error has both schema versions."""
        store = open_store(tmp_path / "store")
        store.engine.insert("versions", {"version": numbers("UInt32", [99]), "time": numbers("Int64", [0])})
        store.close()
        with pytest.raises(ConfigError, match="schema 99 and this Stepscope knows 9: upgrade"):
            open_store(tmp_path / "store")

    def test_an_older_store_is_upgraded(self, tmp_path: Path) -> None:
        """Step by step, each once, with its data kept."""
        store = open_store(tmp_path / "store")
        store.write(Batch(writer("r"), 0, losses([(1, 2.0)])))
        ran: list[int] = []

        def add(engine: Engine) -> None:
            ran.append(10)
            engine.execute("ALTER TABLE runs ADD COLUMN note String DEFAULT 'none'")

        upgrades = {**schema.UPGRADES, 10: add, 11: lambda _: ran.append(11)}
        assert (schema.prepare(store.engine, upgrades), schema.prepare(store.engine, upgrades)) == (11, 11)
        assert ran == [10, 11]
        assert store.engine.query("SELECT note FROM runs")["note"] == ["none"]
        assert floats(line(store, "r")) == [2.0]
        store.close()

    def test_a_store_of_version_2_goes_on(self, tmp_path: Path) -> None:
        """Its ledger gets the column that version 3 has more; what was stored stays, and more follows."""
        store = open_store(tmp_path / "store")
        store.write(Batch(writer("r"), 0, losses([(1, 2.0)])))
        store.engine.execute("ALTER TABLE ledger DROP COLUMN began")
        store.engine.execute("TRUNCATE TABLE versions")
        store.engine.insert("versions", {"version": numbers("UInt32", [2]), "time": numbers("Int64", [0])})
        store.close()
        store = open_store(tmp_path / "store")
        store.write(Batch(writer("r"), 1, losses([(2, 3.0)])))
        assert floats(line(store, "r")) == [2.0, 3.0]
        assert max(store.engine.query("SELECT began FROM ledger")["began"]) > 0
        assert store.engine.query("SELECT max(version) AS version FROM versions")["version"] == [max(schema.UPGRADES)]
        store.close()

    def test_a_store_of_version_3_goes_on(self, tmp_path: Path) -> None:
        """Spans, logs and points get the columns that version 4 has more; what was stored reads as before."""
        span = Span(T, 5, 1, None, b"t" * 16, b"s" * 8, None, "old", flags=0x101)
        log = Log(T, 1, None, None, None, 9, "old", observed=T + 7, flags=1)
        store = open_store(tmp_path / "store")
        store.write(Batch(writer("r"), 0, [*losses([(1, 2.0)]), span, log]))
        for table, added in schema.FOURTH.items():
            for name in added:
                store.engine.execute(f"ALTER TABLE {table} DROP COLUMN {name}")
        store.engine.execute("TRUNCATE TABLE versions")
        store.engine.insert("versions", {"version": numbers("UInt32", [3]), "time": numbers("Int64", [0])})
        store.close()
        store = open_store(tmp_path / "store")
        new = Span(T + 1, 5, 2, None, b"t" * 16, b"n" * 8, None, "new", flags=0x301)
        large = Metric(T, 2, None, None, {"loss": 2**63 - 1})
        store.write(Batch(writer("r"), 1, [large, new, structs.replace(log, time=T + 1)]))
        run = store.engine.query("SELECT run FROM runs")["run"][0]
        spans = find_spans(store.engine, RecordQuery(run=run))
        assert [(row.span.flags, row.writer > 0) for row in spans] == [(0x301, True), (0, False)]
        logs = [row.record for row in find_logs(store.engine, RecordQuery(run=run))]
        assert [(each.observed, each.flags) for each in logs] == [(T + 7, 1), (0, 0)]
        assert list_keys(store.engine, run)[0]["max"] == 2**63 - 1
        assert store.engine.query("SELECT max(version) AS version FROM versions")["version"] == [max(schema.UPGRADES)]
        store.close()

    def test_a_store_of_version_4_goes_on(self, tmp_path: Path) -> None:
        """The store gets the tables of findings, and its runs are diagnosed."""
        store = open_store(tmp_path / "store")
        store.write(Batch(writer("r"), 0, losses([(1, 2.0)])))
        for table in schema.FIFTH:
            store.engine.execute(f"DROP TABLE {table}")
        store.engine.execute("TRUNCATE TABLE versions")
        store.engine.insert("versions", {"version": numbers("UInt32", [4]), "time": numbers("Int64", [0])})
        store.close()
        store = open_store(tmp_path / "store")
        run = store.engine.query("SELECT run FROM runs")["run"][0]
        assert undiagnosed(store.engine, 1) == [run]
        assert read_findings(store.engine, run) == []
        store.close()

    def test_a_store_of_version_8_goes_on(self, tmp_path: Path) -> None:
        """The steps of the samples that it has are listed, once, also when the upgrade was cut off and is repeated."""
        rows = [Log(T + at, at // 3, None, None, None, 9, "t", {"n": at}, SCOPE_SAMPLES) for at in range(7)]
        store = open_store(tmp_path / "store")
        store.write(Batch(writer("r"), 0, rows))
        store.write(Batch(writer("r"), 1, rows[:1]))
        run = store.engine.query("SELECT run FROM runs")["run"][0]
        stored = sample_steps(store.engine, run, "t")
        assert stored == [(0, 4), (1, 3), (2, 1)]
        for table in schema.NINTH:
            store.engine.execute(f"DROP TABLE {table}")
        store.engine.execute("TRUNCATE TABLE versions")
        store.engine.insert("versions", {"version": numbers("UInt32", [8]), "time": numbers("Int64", [0])})
        store.close()
        store = open_store(tmp_path / "store")
        assert sample_steps(store.engine, run, "t") == stored
        schema.ninth(store.engine)
        assert sample_steps(store.engine, run, "t") == stored
        assert maintenance.check(store.engine) == []
        store.close()

    def test_samples_of_an_older_hub_are_listed_by_compact(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """A hub of version 8 that still writes while another upgrades leaves them out, which `check` says."""
        rows = [Log(T + at, at // 3, None, None, None, 9, "t", {"n": at}, SCOPE_SAMPLES) for at in range(7)]
        HubHome(tmp_path).close()
        store = open_store(tmp_path / "hub" / "store")
        store.write(Batch(writer("r"), 0, rows[:2]))
        run = store.engine.query("SELECT run FROM runs")["run"][0]
        listed = sample_steps(store.engine, run, "t")
        store.write(Batch(writer("r"), 1, rows[2:]))
        everything = sample_steps(store.engine, run, "t")
        newest = store.engine.query("SELECT max(commit) AS newest FROM samples").one("newest")
        store.engine.execute(f"ALTER TABLE sample_steps DELETE WHERE commit = {newest}")
        assert sample_steps(store.engine, run, "t") == listed
        store.close()
        home = ["--home", str(tmp_path)]
        assert main(["store", "check", *home]) == 1
        assert "sample_steps: 2 samples instead of 7): `stepscope store compact` mends this" in capsys.readouterr().out
        assert main(["store", "compact", *home]) == 0
        assert main(["store", "check", *home]) == 0
        store = open_store(tmp_path / "hub" / "store")
        assert sample_steps(store.engine, run, "t") == everything
        store.close()

    def test_a_store_of_version_5_goes_on(self, tmp_path: Path) -> None:
        """Its findings get the column that version 6 has more; those that were stored read as before."""
        store = open_store(tmp_path / "store")
        store.write(Batch(writer("r"), 0, losses([(1, 2.0)])))
        run = store.engine.query("SELECT run FROM runs")["run"][0]
        old = Finding("spike", "WARN", "old", step=1, expected=(0.0, 1.0))
        write_findings(store.engine, [Diagnosed(run, [old], 5, 1)], 1)
        store.engine.execute("ALTER TABLE findings DROP COLUMN expects")
        store.engine.execute("TRUNCATE TABLE versions")
        store.engine.insert("versions", {"version": numbers("UInt32", [5]), "time": numbers("Int64", [0])})
        store.close()
        store = open_store(tmp_path / "store")
        assert read_findings(store.engine, run) == [old]
        new = replace(old, expected=None, expects="each step once")
        write_findings(store.engine, [Diagnosed(run, [old, new], 6, 1)], 2)
        assert read_findings(store.engine, run) == [old, new]
        store.close()

    def test_a_store_of_version_6_goes_on(self, tmp_path: Path) -> None:
        """It gets rollups and the index of commits; what was stored is folded when it is asked for."""
        store = open_store(tmp_path / "store")
        store.write(Batch(writer("r"), 0, losses((step, 2.0) for step in range(rollups.FOLD_POINTS))))
        store.engine.execute("ALTER TABLE metrics DROP INDEX by_commit")
        store.engine.execute("DROP TABLE rollups")
        store.engine.execute("TRUNCATE TABLE versions")
        store.engine.insert("versions", {"version": numbers("UInt32", [6]), "time": numbers("Int64", [0])})
        store.close()
        store = open_store(tmp_path / "store")
        assert line(store, "r", points=10).total == rollups.FOLD_POINTS
        store.fold_all()
        held = store.engine.query(f"SELECT sum(points) AS held FROM rollups WHERE level = {rollups.MARK}").one("held")
        assert held == line(store, "r", points=9).total == rollups.FOLD_POINTS
        kept = "SELECT count() AS found FROM system.parts WHERE table = 'metrics' AND secondary_indices_marks_bytes = 0"
        assert store.engine.query(f"{kept} AND active").one("found") == 0
        store.close()

    def test_a_damaged_store_says_what_to_do(self, tmp_path: Path) -> None:
        """A store whose tables can not be loaded is not opened as if it were empty."""
        store = open_store(tmp_path / "store")
        store.write(Batch(writer("r"), 0, losses([(1, 2.0)])))
        store.close()
        definitions = [path for path in (tmp_path / "store").rglob("ledger.sql") if path.is_file()]
        assert definitions
        for path in definitions:
            path.write_text("ATTACH TABLE nonsense")
        with pytest.raises(ConfigError, match=r"damaged.*move the folder away"):
            open_store(tmp_path / "store")

    def test_a_full_disk_is_a_retry(self, tmp_path: Path) -> None:
        """Nothing is taken while the disk has less left than the reserve; later it is."""
        store = open_store(tmp_path / "store", reserve=2**62)
        batch = Batch(writer("r"), 0, losses([(1, 2.0)]))
        with pytest.raises(Retry, match="less than"):
            store.write(batch)
        store.reserve = 0
        store.write(batch)
        assert floats(line(store, "r")) == [2.0]
        store.close()
