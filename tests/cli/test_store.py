"""`stepscope store` measures, checks and compacts the hub's store, and says what is wrong with it."""

import json
from pathlib import Path
from typing import Any

import pytest

from stepscope.cli.main import main
from stepscope.hub.home import HubHome
from stepscope.hub.home_store import open_home_store
from stepscope.hub.store.columns import numbers
from stepscope.hub.store.schema import UPGRADES
from stepscope.model.ports import Batch
from stepscope.model.records import Log, Metric
from tests.hub.store.contract import T, writer

NEWEST = max(UPGRADES)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home whose hub has stored some points and a log."""
    pytest.importorskip("tests.chdb")
    place = HubHome(tmp_path)
    store = open_home_store(place)
    for seq in range(4):
        points = [
            Metric(T + step, step, None, None, {"k": 0.1 * step}) for step in range(seq * 1000, seq * 1000 + 1000)
        ]
        store.write(Batch(writer("r"), seq, [*points, Log(T + 5_000_000_000, None, None, None, None, 9, "end")]))
    store.close()
    place.close()
    return tmp_path


def ask(home: Path, capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    """What a command answers to a program, with its exit code."""
    code = main(["store", "--home", str(home), "--json", *arguments])
    return code, json.loads(capsys.readouterr().out)


def parts(home: Path, table: str) -> list[Path]:
    """The folders of a table's parts."""
    return [path.parent for path in (home / "hub" / "store" / "data" / "data" / "stepscope" / table).rglob("data.bin")]


def test_info(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Tables, rows, bytes, bytes per point, times and schema, for people and programs."""
    code, found = ask(home, capsys, "info")
    assert (code, found["schema"], found["points"]) == (0, NEWEST, 4000)
    assert {each["name"]: each["rows"] for each in found["tables"]}["logs"] == 4
    assert found["bytes_per_point"] > 1
    assert (found["oldest"], found["newest"]) == ("2026-09-21T14:13:20.000000Z", "2026-09-21T14:13:25.000000Z")
    assert main(["store", "--home", str(home)]) == 0
    assert "4,000 points" in capsys.readouterr().out


def test_compact(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Says what there was before and is after; every point is still there."""
    code, found = ask(home, capsys, "compact")
    before, after = found["before"], found["after"]
    assert (code, before["points"], after["points"]) == (0, 4000, 4000)
    assert after["bytes"] < before["bytes"]
    assert {each["name"]: each["parts"] for each in after["tables"]}["metrics"] == 1
    assert ask(home, capsys, "check") == (0, {"sound": True, "schema": NEWEST, "problems": []})


def test_a_flipped_byte_is_found(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One sentence names the table and says what to do; the exit code is 1."""
    ask(home, capsys, "compact")
    data = max(parts(home, "metrics"), key=lambda path: path.stat().st_mtime) / "data.bin"
    content = bytearray(data.read_bytes())
    content[len(content) // 2] ^= 0xFF
    data.write_bytes(content)
    assert main(["store", "--home", str(home), "check"]) == 1
    said = capsys.readouterr().out
    assert said.startswith("the store is damaged (metrics: part")
    assert said.endswith("start the hub, which reads every journal that is still there again\n")
    assert said.count("\n") == 1


def test_a_part_that_can_not_be_loaded_is_found(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Parts that the engine detaches when it starts are reported."""
    for part in parts(home, "logs"):
        (part / "columns.txt").write_text("nonsense")
        (part / "checksums.txt").write_text("nonsense")
    code, found = ask(home, capsys, "check")
    assert (code, found["sound"]) == (1, False)
    assert any(problem.startswith("logs: part") for problem in found["problems"])
    assert "move" in found["advice"]


def test_tables_that_can_not_be_loaded_are_told(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A store that cannot be opened says so in a sentence, with exit code 2."""
    for path in (home / "hub" / "store").rglob("ledger.sql"):
        path.write_text("ATTACH TABLE nonsense")
    assert main(["store", "--home", str(home), "check"]) == 2
    assert "move the folder away" in capsys.readouterr().err


def test_a_newer_schema_is_told(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The error has both versions and the fix."""
    place = HubHome(home)
    store = open_home_store(place)
    store.engine.insert("versions", {"version": numbers("UInt32", [99]), "time": numbers("Int64", [0])})
    store.close()
    place.close()
    assert main(["store", "--home", str(home), "check"]) == 2
    assert f"schema 99 and this Stepscope knows {NEWEST}: upgrade" in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["info", "check", "compact"])
def test_a_hub_that_runs_is_left_alone(home: Path, capsys: pytest.CaptureFixture[str], verb: str) -> None:
    """While a hub has the folder the command names it and does nothing."""
    place = HubHome(home)
    place.announce("http://127.0.0.1:1")
    try:
        assert main(["store", "--home", str(home), verb]) == 2
    finally:
        place.close()
    assert "http://127.0.0.1:1) has" in capsys.readouterr().err


def test_options_may_follow_the_verb(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`--home` and `--json` mean the same before and behind info, check and compact."""
    assert main(["store", "check", "--home", str(home)]) == 0
    assert capsys.readouterr().out.startswith("the store is sound")
    assert main(["store", "info", "--json", "--home", str(home)]) == 0
    assert json.loads(capsys.readouterr().out)["points"] == 4000
    assert main(["store", "--json", "--home", str(home), "info"]) == 0
    assert json.loads(capsys.readouterr().out)["points"] == 4000


def test_no_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A home without a store is not given one."""
    pytest.importorskip("tests.chdb")
    assert main(["store", "--home", str(tmp_path), "info"]) == 2
    assert "there is no store" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
