"""One metric of many runs: a line for each, from one request, as the lines of one run have it."""

import pytest

from stepscope.hub.service import Hub
from stepscope.model.ports import Batch, Writer
from stepscope.model.records import Metric
from tests.hub.questions.conftest import Get
from tests.hub.questions.world import BAD, SECOND, SPIKE, START, STEPS, began

SMALL = [f"small-{number}" for number in range(12)]


@pytest.fixture(scope="module", autouse=True)
def runs(hub: Hub) -> None:
    """A run with the bare name of a metric, and one that has it in two spellings."""
    for run, keys in (("bare", ["loss"]), ("both", ["loss", "trainer/loss"])):
        writer = Writer(id="w", run=run, project="spelled", name=run, wall_ns=START, host="d")
        points = [Metric(START + step * SECOND, step, None, None, dict.fromkeys(keys, 1.0)) for step in range(5)]
        hub.store.write(Batch(writer, 1, [began({}, START), *points]))


def test_every_run_has_its_line(get: Get) -> None:
    """A line for each run that has the metric, and none for a run without it or one that does not exist."""
    found = get("/api/series", run=["big", "again", "nobody", *SMALL], key="train/loss")
    lines = {line["run"]: line for line in found["lines"]}
    assert set(lines) == {"big", "again", *SMALL}
    assert get("/api/series", run=["big", "again"], key="lr")["lines"][0]["key"] == "trainer/lr"
    assert lines["big"]["ranks"] == 2
    assert lines["small-5"]["columns"]["mean"] == [0.5]
    assert (lines["small-3"]["columns"]["mean"], lines["small-3"]["columns"]["flags"]) == ([None], [2])
    assert lines["small-3"]["last"] == "Infinity"


def test_lines_are_those_of_each_run(get: Get) -> None:
    """While points fit, marks are the mean and range over ranks of each step, without what a later attempt repeated."""
    lines = {line["run"]: line for line in get("/api/series", run=["big", "again"], key="trainer/loss")["lines"]}
    big, again = lines["big"]["columns"], lines["again"]["columns"]
    assert big["x"] == big["x_last"] == list(range(STEPS))
    assert big["mean"][10] == pytest.approx(1.905)
    assert (big["min"][10], big["max"][10]) == (pytest.approx(1.9), pytest.approx(1.91))
    assert (big["flags"][BAD], big["count"][BAD], big["max"][SPIKE]) == (1, 2, 50.0)
    assert again["mean"] == [1.0] * 50 + [2.0] * 100
    assert lines["again"]["total"] == 150
    for run in ("big", "again"):
        (alone,) = get(f"/api/runs/{run}/series", key="trainer/loss")["series"]
        assert alone["total"] == lines[run]["total"]
        assert alone["last"]["value"] == pytest.approx(lines[run]["last"])


def test_buckets_of_all_runs_lie_on_each_other(get: Get) -> None:
    """Beyond `points`, all runs have buckets of one width that begin at its multiples, and every spike is kept."""
    found = get("/api/series", run=["big", "again"], key="trainer/loss", points=20)
    assert found["width"] == 8
    for line in found["lines"]:
        columns = line["columns"]
        assert len(columns["x"]) <= 20
        assert all(first // 8 == last // 8 for first, last in zip(columns["x"], columns["x_last"], strict=True))
    assert max(found["lines"][0]["columns"]["max"]) == 50.0


def test_a_part_of_x_is_read(get: Get) -> None:
    """`from` and `to` bound x, both included; the last value and the extremes stay those of the whole line."""
    (line,) = get("/api/series", run="big", key="trainer/loss", **{"from": 10, "to": 12})["lines"]
    assert line["columns"]["x"] == [10, 11, 12]
    assert line["max"] == 50.0
    (none,) = get("/api/series", run="big", key="trainer/loss", **{"from": 500})["lines"]
    assert none["columns"]["x"] == []


def test_over_time_a_step_of_all_ranks_is_one_mark(get: Get) -> None:
    """Relative x begins with each run, so that runs of different days lie over each other."""
    found = get("/api/series", run=["big", "again"], key="trainer/loss", x="relative", points=5000)
    big, again = (line["columns"] for line in found["lines"])
    assert big["x"][:2] == [0.9, 1.9]
    assert big["count"][:2] == [2, 2]
    assert again["x"][0] == 0.0
    (gpu,) = get("/api/series", run=["big"], key="system/gpu_util", x="time")["lines"]
    assert gpu["columns"]["x"][0] == pytest.approx(START / 1e9 + 0.5)
    assert get("/api/series", run=["big"], key="system/gpu_util")["lines"][0]["columns"]["x"] == []


def test_names_under_which_runs_are_compared(get: Get) -> None:
    """A bare key is the trainer's where other runs have it there; two spellings of one run stay apart."""
    of = {each["name"]: each["compared"] for each in get("/api/fields", run=["big", "bare"])["metrics"]}
    assert of["loss"] == of["trainer/loss"] == "trainer/loss"
    of = {each["name"]: each["compared"] for each in get("/api/fields", project="spelled")["metrics"]}
    assert (of["loss"], of["trainer/loss"]) == ("loss", "trainer/loss")
    lines = get("/api/series", run=["big", "bare"], key="trainer/loss")["lines"]
    assert {line["run"]: line["key"] for line in lines} == {"big": "trainer/loss", "bare": "loss"}


def test_projects_are_counted(get: Get) -> None:
    """A project has its runs, how many have findings, and when something of it was last recorded."""
    found = get("/api/projects")["projects"]
    assert found[0]["project"] == "tiny"
    by_name = {each["project"]: each for each in found}
    assert (by_name["tiny"]["runs"], by_name["gpt"]["runs"]) == (12, 2)
    assert by_name["gpt"]["findings"] >= 1
    assert by_name["gpt"]["worst"] in ("FATAL", "ERROR")
    assert by_name["tiny"]["running"] == 0


def test_a_metric_needs_a_run(get: Get) -> None:
    """Without a run or a metric the request is refused; more than 200 runs are too many."""
    get("/api/series", expect=400, key="loss")
    get("/api/series", expect=400, run="big")
    get("/api/series", expect=400, key="loss", run=["big"] * 201)
    assert get("/api/series", run="big", key="nothing")["lines"] == []


def test_expression(get: Get, hub: Hub) -> None:
    """An expression has a line for each run with all its metrics, where all of them have a value."""
    writer = Writer(id="w", run="pair", project="pair", name="pair", wall_ns=START, host="d")
    points = [Metric(START + step * SECOND, step, None, "trainer", {"loss": step + 1.0}) for step in range(40)]
    points += [Metric(START + step * SECOND, step, None, "eval", {"loss": step / 2}) for step in range(0, 40, 10)]
    hub.store.write(Batch(writer, 1, [began({}, START), *points]))
    wanted = "{eval/loss} - {train/loss}"
    found = get("/api/series", run=["pair", "big"], expression=wanted)
    (line,) = found["lines"]
    assert (found["key"], line["run"], line["key"]) == (wanted, "pair", wanted)
    assert line["columns"]["x"] == line["columns"]["x_last"] == [0, 10, 20, 30]
    assert line["columns"]["mean"] == line["columns"]["min"] == line["columns"]["max"] == [-1, -6, -11, -16]
    assert (line["last"], line["last_step"], line["min"], line["max"]) == (-16, 30, -16, -1)
    (zoomed,) = get("/api/series", run="pair", expression=wanted, **{"from": 10, "to": 25})["lines"]
    assert zoomed["columns"]["x"] == [10, 20]
    (bucketed,) = get("/api/series", run="pair", expression="2 * loss + 1", points=10)["lines"]
    (whole,) = get("/api/series", run="pair", key="loss", points=10)["lines"]
    assert bucketed["columns"]["mean"] == [2 * mean + 1 for mean in whole["columns"]["mean"]]
    (odd,) = get("/api/series", run="pair", expression="1 / {eval/loss}")["lines"]
    assert (odd["columns"]["mean"][0], odd["columns"]["flags"]) == (None, [2, 0, 0, 0])
    (timed,) = get("/api/series", run="pair", expression=wanted, x="relative", points=400)["lines"]
    assert timed["columns"]["mean"] == [-1, -6, -11, -16]


def test_expression_mistakes(get: Get) -> None:
    """A wrong expression is refused in words; a request has a key or an expression."""
    refused = get("/api/series", expect=400, run="big", expression="{trainer/loss} -")["error"]["message"]
    assert refused == "expected a metric or a number at the end (at character 17)"
    for given in ({}, {"key": "loss", "expression": "loss"}):
        assert "give a key or an expression" in get("/api/series", expect=400, run="big", **given)["error"]["message"]
    assert get("/api/series", run="big", expression="{no/such} * 2")["lines"] == []


def test_another_metric_runs_along_x(hub: Hub, get: Get) -> None:
    """`along` places each mark at the value of another metric there, in its order, with the steps beside it."""
    writer = Writer(id="w", run="tokens", project="along", name="tokens", wall_ns=START, host="d")
    points = [
        Metric(
            START + step * SECOND,
            step,
            None,
            None,
            {"y": float(step), "seen": 100.0 - step} if step < 6 else {"y": 0.0},
        )
        for step in range(8)
    ]
    hub.store.write(Batch(writer, 1, [began({}, START), *points]))
    found = get("/api/series", run=["tokens", "bare"], key="y", along="seen")
    (line,) = found["lines"]
    columns = line["columns"]
    assert found["x"] == "metric"
    assert columns["x"] == columns["x_last"] == [95.0, 96.0, 97.0, 98.0, 99.0, 100.0]
    assert columns["mean"] == columns["step"] == columns["step_last"] == [5.0, 4.0, 3.0, 2.0, 1.0, 0.0]
    assert line["total"] == 6
    (part,) = get("/api/series", run="tokens", key="y", along="seen", **{"from": 97, "to": 98})["lines"]
    assert part["columns"]["step"] == [3, 2]
    (ratio,) = get("/api/series", run="tokens", expression="y / seen", along="seen", to=95)["lines"]
    assert ratio["columns"]["mean"] == [pytest.approx(5 / 95)]
