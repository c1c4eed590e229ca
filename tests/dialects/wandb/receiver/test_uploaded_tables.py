"""Tables that wandb's own client uploads are samples: the rows of scripts, of TRL and of verl."""

import json
import time
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from stepscope.dialects.wandb.receiver.uploaded_tables import is_table
from stepscope.dialects.wandb.wire import read_table
from stepscope.model.sample_columns import MAX_COLUMNS
from tests.dialects.wandb.receiver.conftest import run_wandb, wait_state
from tests.hub.conftest import RunningHub
from tests.waiting import wait_until

SCRIPT = """
import wandb
run = wandb.init(project="p", id="tabled", settings=wandb.Settings(silent=True))
columns = ["step", "input_1", "output_1", "score_1", "input_2", "output_2", "score_2"]
data = []
for step in (5, 10):
    data.append([step, "a", f"b{step}", 1.0, "c", f"d{step}", 0.0])
    run.log({"val/generations": wandb.Table(columns=columns, data=data)}, step=step)
run.log({"plain": wandb.Table(columns=["prompt", "reward"], data=[["x", 0.5], ["y", None]])})
run.finish()
"""


def rows(hub: RunningHub, run: str, table: str, count: int) -> list[tuple[int, dict[str, Any]]]:
    """Step and cells of the rows of a table by step, once there are so many: the client uploads tables in any order."""
    found: list[tuple[int, dict[str, Any]]] = []

    def is_there() -> bool:
        path = f"/api/runs/{run}/export?what=samples&format=jsonl"
        lines = [json.loads(line) for line in hub.request("GET", path).body.splitlines()]
        place = ("table", "step", "axis", "rank", "attempt", "time")
        found[:] = [
            (line["step"], {name: value for name, value in line.items() if name not in place and value is not None})
            for line in lines
            if line.get("table") == table
        ]
        return len(found) >= count

    wait_until(is_there)
    return sorted(found, key=lambda row: row[0])


def test_tables_of_the_real_client(hub: RunningHub, tmp_path: Path) -> None:
    """Numbered columns become rows at their step, once, though each table has all earlier rows again."""
    run_wandb(hub, tmp_path / "client", SCRIPT)
    wait_state(hub, "tabled", "finished")
    assert rows(hub, "tabled", "val/generations", 4) == [
        (step, {"input": first, "output": f"{second}{step}", "score": score})
        for step in (5, 10)
        for first, second, score in (("a", "b", 1.0), ("c", "d", 0.0))
    ]
    assert rows(hub, "tabled", "plain", 2) == [(10, {"prompt": "x", "reward": 0.5}), (10, {"prompt": "y"})]


def test_a_table_that_is_sent_again_is_recorded_once(hub: RunningHub) -> None:
    """A retry changes nothing, and a file that is no table is only a file."""
    body = json.dumps({"columns": ["a"], "data": [["1"], ["2"], "no row"]}).encode()
    for _ in range(2):
        assert (
            hub.request("PUT", "/files/team/p/again/media/table/t_3_0123456789abcdef0123.table.json", body).status
            == 200
        )
    for number, bad in enumerate((b"no JSON", b"[]", b'{"columns": 5}', b'{"columns": ["a"], "data": {"x": 1}}')):
        name = f"media/table/bad_{number}_0123456789abcdef0123.table.json"
        assert hub.request("PUT", f"/files/team/p/again/{name}", bad).status == 200
    last = json.dumps({"columns": ["a"], "data": [["last"]]}).encode()
    assert hub.request("PUT", "/files/team/p/again/media/table/u_4_0123456789abcdef0123.table.json", last).status == 200
    assert rows(hub, "again", "u", 1) == [(4, {"a": "last"})]
    assert rows(hub, "again", "t", 2) == [(3, {"a": "1"}), (3, {"a": "2"})]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("media/table/val/generations_5_0123456789abcdef0123.table.json", True),
        ("media/table/rows.table.json", False),
        ("media/images/a_1_0123456789abcdef0123.png", False),
        ("media/table/" + "x" * 300 + "_5_0123456789abcdef0123.table.json", False),
    ],
)
def test_names_of_tables(name: str, expected: bool) -> None:
    """Only what the client names as a logged table is read."""
    assert is_table(name) is expected


def test_a_row_that_repeats_thousands_of_columns_costs_what_is_kept(tmp_path: Path) -> None:
    """A table of 60 kB with thousands of common and of numbered columns does not become hundreds of megabytes."""
    columns = [f"c{at}x" for at in range(2000)] + [f"prompt_{at}" for at in range(2000)]
    file = tmp_path / "t.table.json"
    file.write_text(json.dumps({"columns": columns, "data": [[1] * 4000]}))
    tracemalloc.start()
    try:
        rows, more = read_table(file)
        assert tracemalloc.get_traced_memory()[1] < 40 * 1024**2
    finally:
        tracemalloc.stop()
    assert (len(rows), more) == (2000, False)
    assert {len(cells) for _, cells in rows} == {MAX_COLUMNS}


def test_empty_rows_cost_nothing_for_the_columns_of_their_table(tmp_path: Path) -> None:
    """The time of a row is that of its own cells."""
    file = tmp_path / "t.table.json"
    columns = [f"prompt_{at}" for at in range(50_000)]
    file.write_text(json.dumps({"columns": columns, "data": [[]] * 9_000}))
    began = time.thread_time()
    assert read_table(file) == ([], False)
    assert time.thread_time() - began < 5


def test_a_small_file_of_millions_of_values_is_no_table(tmp_path: Path) -> None:
    """It stays a file: in memory it would take hundreds of megabytes."""
    file = tmp_path / "t.table.json"
    file.write_bytes(b'{"columns":["a"],"data":[' + b"[]," * 1_500_000 + b"[]]}")
    with pytest.raises(ValueError, match="values"):
        read_table(file)
