"""Copies of a run in each format hold every point and every record."""

import csv
import io
import json
from collections.abc import Callable
from typing import Any

import pytest

from stepscope.hub.questions import export
from tests.hub.questions.world import BAD, STEPS

POINTS = 6 * STEPS


def test_jsonl_and_csv(ask: Callable[..., Any]) -> None:
    """Text formats hold every point, NaN as a word."""
    lines = ask("GET", "/api/runs/big/export").text.splitlines()
    rows = [json.loads(line) for line in lines]
    assert len(rows) == POINTS
    assert [row["rank"] for row in rows if row["value"] == "NaN"] == [1]
    response = ask("GET", "/api/runs/big/export", params={"format": "csv", "key": "trainer/loss", "rank": 1})
    table = list(csv.DictReader(io.StringIO(response.text)))
    assert len(table) == STEPS
    assert table[BAD]["value"] == "NaN"
    assert table[1]["time"] == "1790000001.900000000"
    assert 'filename="big-metrics.csv"' in response.headers["content-disposition"]


@pytest.mark.parametrize("what", ["metrics", "histograms", "exemplars"])
def test_the_run_is_named_in_a_first_column(ask: Callable[..., Any], what: str) -> None:
    """The run id is the first column, also in text formats, so that files can be concatenated."""
    given = {"what": what, "run_column": "true"}
    named = ask("GET", "/api/runs/big/export", params={**given, "format": "csv"}).text.splitlines()
    plain = ask("GET", "/api/runs/big/export", params={"what": what, "format": "csv"}).text.splitlines()
    assert named == [f"run,{plain[0]}", *(f"big,{line}" for line in plain[1:])]
    lines = ask("GET", "/api/runs/big/export", params={**given, "format": "jsonl"}).text.splitlines()
    assert all(next(iter(json.loads(line).items())) == ("run", "big") for line in lines)
    assert len(lines) == len(plain) - 1


@pytest.mark.parametrize("format", ["parquet", "arrow"])
def test_arrow(ask: Callable[..., Any], format: str) -> None:
    """Tables hold the same, with types."""
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    data = io.BytesIO(ask("GET", "/api/runs/big/export", params={"format": format}).content)
    table = parquet.read_table(data) if format == "parquet" else arrow.ipc.open_stream(data).read_all()
    assert table.num_rows == POINTS
    assert str(table.schema.field("time").type) == "timestamp[ns, tz=UTC]"
    assert table.column("step").null_count == 2 * STEPS
    assert table.column("value").null_count == 0


@pytest.mark.parametrize(("what", "count"), [("spans", 6 * STEPS), ("logs", 2 * STEPS + 4), ("alerts", 1)])
def test_records(ask: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, what: str, count: int) -> None:
    """Records come page by page, each once, also where many have the same time."""
    monkeypatch.setattr(export, "PAGE", 7)
    lines = ask("GET", "/api/runs/big/export", params={"what": what}).text.splitlines()
    assert len(lines) == len(set(lines)) == count


def test_refusals(ask: Callable[..., Any]) -> None:
    """An unknown run or format is refused before anything is sent."""
    assert ask("GET", "/api/runs/none/export").status_code == 404
    assert ask("GET", "/api/runs/big/export", params={"format": "xls"}).status_code == 400
