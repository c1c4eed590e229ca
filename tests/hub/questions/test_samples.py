"""Samples over HTTP: tables, steps, rows, searches, the same prompt elsewhere, exports, SQL, and their deletion."""

import csv
import io
import json
from collections.abc import Callable
from typing import Any

import pytest

from stepscope.hub.service import Hub
from stepscope.hub.store import maintenance
from stepscope.hub.store.read.replay import extent_of, replay
from stepscope.hub.store.read.run_catalog import run_number
from stepscope.model.names import SCOPE_SAMPLES
from stepscope.model.ports import Batch, Writer
from stepscope.model.records import Log, Metric, Record
from tests.hub.questions.conftest import Get
from tests.hub.questions.world import SECOND, START

STEPS, GROUP = 10, 4
LONG = "x" * 5000


def sampled(run: str, *, better: str = "") -> Batch:
    """A run that logs the answers to some prompts at every tenth step, and at the end an evaluation."""
    writer = Writer(id=f"{run}-w", run=run, project="rl", name=run, rank=1, wall_ns=START - len(run) * SECOND)
    records: list[Record] = [Metric(START, 0, None, None, {"loss": 1.0})]
    for step in range(0, STEPS * 10, 10):
        for at in range(GROUP):
            row = {
                "prompt": f"question {at % 2}",
                "completion": f"{better}answer {at} of step {step}",
                "reward": at / 10 + step,
                "messages": [{"role": "user"}],
            }
            records.append(Log(START + step * SECOND + at, step, None, None, None, 9, "samples", row, SCOPE_SAMPLES))
    records.append(Log(START, 90, None, None, None, 9, "eval", {"text": LONG, "n": None}, SCOPE_SAMPLES))
    records.append(Log(START + 1, 95, None, None, None, 9, "a line", {}, "trainer"))
    return Batch(writer, 1, records)


@pytest.fixture(scope="module", autouse=True)
def stored(hub: Hub) -> None:
    """Two runs with samples."""
    hub.store.write(sampled("rollouts"))
    hub.store.write(sampled("others", better="better "))


def test_tables_steps_and_rows_of_the_last_step(get: Get) -> None:
    """Without more, the rows of the largest table at its last step are answered, by rank and time."""
    found = get("/api/runs/rollouts/samples")
    assert found["tables"] == [
        {"name": "eval", "rows": 1, "steps": 1, "first_step": 90, "last_step": 90},
        {"name": "samples", "rows": 40, "steps": 10, "first_step": 0, "last_step": 90},
    ]
    assert (found["table"], found["step"], found["steps"]) == ("samples", 90, list(range(0, 100, 10)))
    assert found["columns"] == ["prompt", "completion", "reward", "messages"]
    assert [row["cells"]["completion"] for row in found["rows"]] == [f"answer {at} of step 90" for at in range(GROUP)]
    assert found["rows"][1]["cells"]["reward"] == 90.1
    assert found["rows"][0]["cells"]["messages"] == [{"role": "user"}]
    assert {row["rank"] for row in found["rows"]} == {1}
    assert found["next"] is None


def test_a_run_without_samples(get: Get) -> None:
    """The answer is empty, not an error; an unknown table or run is one."""
    found = get("/api/runs/big/samples")
    assert (found["tables"], found["table"], found["rows"]) == ([], None, [])
    assert "there are: eval, samples" in get("/api/runs/rollouts/samples", expect=404, table="no")["error"]["message"]
    get("/api/runs/none/samples", expect=404)


@pytest.mark.parametrize(("asked", "answered"), [(0, 0), (35, 30), (1000, 90), (-5, 0)])
def test_the_nearest_step_is_taken(get: Get, asked: int, answered: int) -> None:
    """The last step with rows at or before the given one; the first where there is none before."""
    found = get("/api/runs/rollouts/samples", step=asked)
    assert found["step"] == answered
    assert {row["step"] for row in found["rows"]} == {answered}


def test_pages_and_order(get: Get) -> None:
    """Rows come in pages, and by a column in either direction."""
    first = get("/api/runs/rollouts/samples", limit=3)
    rest = get("/api/runs/rollouts/samples", limit=3, offset=first["next"])
    assert (len(first["rows"]), len(rest["rows"]), rest["next"]) == (3, 1, None)
    found = get("/api/runs/rollouts/samples", sort="-reward", step=0)
    assert [row["cells"]["reward"] for row in found["rows"]] == [0.3, 0.2, 0.1, 0.0]
    found = get("/api/runs/rollouts/samples", sort="completion", step=0)
    assert [row["cells"]["completion"][:8] for row in found["rows"]] == [f"answer {at}" for at in range(4)]


def test_search_goes_over_all_steps(get: Get) -> None:
    """A text is found in any column and case, newest first, or at one step only."""
    found = get("/api/runs/rollouts/samples", q="ANSWER 3 OF", limit=4)
    assert [row["step"] for row in found["rows"]] == [90, 80, 70, 60]
    assert (found["step"], found["next"], found["searched_from"]) == (None, 4, None)
    found = get("/api/runs/rollouts/samples", q="answer 3", step=20)
    assert [row["cells"]["completion"] for row in found["rows"]] == ["answer 3 of step 20"]
    assert [row["step"] for row in get("/api/runs/rollouts/samples", q="answer 0", before=20)["rows"]] == [10, 0]
    assert get("/api/runs/rollouts/samples", q="100%' OR 1")["rows"] == []


def test_a_search_reads_a_bounded_number_of_rows(get: Get, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there are too many rows, the newest steps are searched, and the answer says from where on."""
    monkeypatch.setattr("stepscope.hub.questions.samples.MAX_SEARCHED", 10)
    found = get("/api/runs/rollouts/samples", q="answer 0")
    assert [row["step"] for row in found["rows"]] == [90, 80]
    older = get("/api/runs/rollouts/samples", q="answer 0", before=found["searched_from"])
    assert [row["step"] for row in older["rows"]] == [70, 60]


def test_long_texts_are_cut_and_read_whole_by_id(get: Get) -> None:
    """A text is cut to `chars`, with its length; a row is read whole by its id, and an answer stays small."""
    (row,) = get("/api/runs/rollouts/samples", table="eval", chars=100)["rows"]
    assert (row["cells"]["text"], row["cut"]) == ("x" * 100, {"text": 5000})
    (whole,) = get("/api/runs/rollouts/samples", table="eval", id=row["id"], step=90, chars=70_000, limit=1)["rows"]
    assert (whole["cells"]["text"], whole["cut"], whole["cells"]["n"]) == (LONG, {}, None)
    (row,) = get("/api/runs/rollouts/samples", table="eval", chars=70_000, limit=1000)["rows"]
    assert row["cut"] == {"text": 5000}
    assert "id" in get("/api/runs/rollouts/samples", expect=400, id="1 OR 1")["error"]["message"]


def test_the_same_prompts_at_another_step_and_in_another_run(get: Get) -> None:
    """Rows of the same prompts come with them, of another step, or of another run."""
    found = get("/api/runs/rollouts/samples", step=90, other_step=14)
    assert found["other_step"] == 10
    assert {row["prompt"] for row in found["others"]} == {row["prompt"] for row in found["rows"]}
    assert {row["step"] for row in found["others"]} == {10}
    found = get("/api/runs/rollouts/samples", step=50, other_run="others")
    assert {(row["run"], row["step"]) for row in found["others"]} == {("others", 50)}
    assert all(row["cells"]["completion"].startswith("better") for row in found["others"])
    get("/api/runs/rollouts/samples", expect=404, other_run="none")


def test_one_prompt_in_all_steps_and_runs(get: Get) -> None:
    """All rows of a prompt are found by its number, in the order of runs and steps."""
    prompt = get("/api/runs/rollouts/samples", limit=1)["rows"][0]["prompt"]
    found = get("/api/samples", prompt=prompt, run=["rollouts", "others"], limit=1000)
    assert len(found["rows"]) == 2 * STEPS * GROUP // 2
    assert {row["cells"]["prompt"] for row in found["rows"]} == {"question 0"}
    assert [row["step"] for row in found["rows"][:4]] == [0, 0, 10, 10]
    assert "run is missing" in get("/api/samples", expect=400, prompt=prompt)["error"]["message"]
    assert get("/api/samples", prompt="00" * 8, run="rollouts")["rows"] == []


def test_samples_are_no_log_lines_and_counted_at_their_step(get: Get) -> None:
    """Logs do not list samples; the step inspector counts them, and a step with nothing else is one."""
    assert [each["body"] for each in get("/api/logs", run="rollouts")["logs"]] == ["a line"]
    step = get("/api/runs/rollouts/steps/90")
    assert (step["samples"], step["logs"]) == ({"eval": 1, "samples": 4}, [])
    assert (step["previous"], step["next"]) == (80, 95)
    assert get("/api/runs/big/steps/7")["samples"] == {}


def test_sql_reads_samples(ask: Callable[..., Any]) -> None:
    """A SELECT sees the table; a column is an element of its arrays."""
    sql = """SELECT step, avg(toFloat64(attr_values[indexOf(attr_names, 'reward')])) AS reward FROM samples
        WHERE run = (SELECT run FROM runs WHERE id = 'rollouts') AND name = 'samples' GROUP BY step ORDER BY step"""
    answer = ask("POST", "/api/sql", json={"sql": sql}).json()
    assert [row[0] for row in answer["rows"]] == list(range(0, 100, 10))
    assert answer["rows"][1][1] == pytest.approx(10.15)


def test_exports_have_a_column_for_each(ask: Callable[..., Any]) -> None:
    """CSV and JSON lines have all rows of all tables, oldest first."""
    text = ask("GET", "/api/runs/rollouts/export", params={"what": "samples", "format": "csv"}).text
    rows = list(csv.DictReader(io.StringIO(text)))
    assert len(rows) == STEPS * GROUP + 1
    assert rows[0]["table"] == "eval" or rows[1]["table"] == "eval"
    last = rows[-1]
    assert (last["table"], last["step"], last["completion"], last["reward"]) == (
        *("samples", "90", "answer 3 of step 90"),
        "90.3",
    )
    lines = ask("GET", "/api/runs/rollouts/export", params={"what": "samples", "format": "jsonl"}).text.splitlines()
    found = [json.loads(line) for line in lines]
    assert [each["text"] for each in found if each["table"] == "eval"] == [LONG]
    assert found[-1]["messages"] == [{"role": "user"}]
    none = ask("GET", "/api/runs/small-3/export", params={"what": "samples", "format": "jsonl"})
    assert (none.status_code, none.text) == (200, "")


def test_a_stored_run_is_diagnosed_with_its_samples(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    """A replay has every row as the record it was, in the order of time, page by page."""
    monkeypatch.setattr("stepscope.hub.store.read.sample_rows.PAGE", 7)
    engine = hub.store.engine
    number = run_number(engine, "rollouts")
    assert number is not None
    extent = extent_of(engine, number)
    found = [each for _, part in replay(engine, number, extent) for each in part if isinstance(each.record, Log)]
    assert [each.at for each in found] == sorted(each.at for each in found)
    given = [each for each in sampled("rollouts").records if isinstance(each, Log) and each.scope == SCOPE_SAMPLES]
    assert sorted(map(repr, (each.record for each in found))) == sorted(map(repr, given))
    assert {each.rank for each in found} == {1}


def test_the_store_checks_and_drops_samples_with_their_run(hub: Hub) -> None:
    """The ledger counts samples as logs; a dropped run leaves no row behind."""
    hub.store.write(sampled("short-lived"))
    assert maintenance.check(hub.store.engine) == []
    number = run_number(hub.store.engine, "short-lived")
    assert number is not None
    maintenance.drop_runs(hub.store, [number])
    for table in ("samples", "sample_steps"):
        assert hub.store.engine.query(f"SELECT count() AS left FROM {table} WHERE run = {number}").one("left") == 0
