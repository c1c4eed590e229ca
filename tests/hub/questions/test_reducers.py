"""Fields of runs that are computed from points: means of last steps, and one metric where another is best."""

import math

import pytest

from stepscope.hub.questions.runs import reducers
from stepscope.hub.questions.runs.reducers import _read
from stepscope.hub.service import Hub
from stepscope.hub.store.engine import Engine
from stepscope.hub.store.read import reductions
from stepscope.hub.store.read.reductions import Budget, Reduced
from stepscope.model.point_fields import PointField, point_field
from stepscope.model.ports import Batch, Writer
from stepscope.model.records import Metric, Record
from tests.hub.questions.conftest import Get
from tests.hub.questions.world import SECOND, START, began, ended

BEST = 40


@pytest.fixture(scope="module", autouse=True)
def curves(hub: Hub) -> None:
    """Store runs whose score is best at a step that the loss does not have, and one with a dense beginning."""
    for number in range(3):
        for rank in range(2):
            name = f"curve-{number}"
            writer = Writer(
                id=f"{name}-{rank}", run=name, project="curves", name=name, rank=rank, world_size=2, wall_ns=START
            )
            records: list[Record] = [began({"seed": number})]
            for step in range(0, 100, 3):
                records.append(
                    Metric(START + step * SECOND, step, None, "trainer", {"loss": 10.0 * number + step + rank})
                )
            for step in range(0, 100, 10):
                score = 1.0 - abs(step - BEST) / 100 + number
                records.append(Metric(START + step * SECOND, step, None, "eval", {"score": score}))
            records.append(Metric(START, None, None, "system", {"heat": 50.0}))
            hub.store.write(Batch(writer, 1, [*records, ended(START + 100 * SECOND)]))
    writer = Writer(id="dense", run="dense", project="curves", name="dense", wall_ns=START)
    steps = [*range(2000), *range(10_000, 1_000_000, 10_000)]
    points = [Metric(START + step, step, None, "trainer", {"loss": math.nan if step % 7 else 1.0}) for step in steps]
    points.append(Metric(START, 5, None, "phase", {"score": 1.0}))
    hub.store.write(Batch(writer, 1, [began({}), *points, ended(START + SECOND)]))


def column(get: Get, run: str, field: str) -> object:
    """The value of a column in a run; None when it has none."""
    (row,) = get("/api/runs", filter=f"id = {run}", column=field)["runs"]
    return row["columns"].get(field, {}).get("value")


def test_mean_of_the_last_steps(get: Get) -> None:
    """All ranks count, and values that are not finite do not; fewer steps than asked for are enough."""
    assert column(get, "curve-1", "last1.loss") == pytest.approx(10 + 99 + 0.5)
    assert column(get, "curve-1", "last4.trainer/loss") == pytest.approx(10 + (99 + 96 + 93 + 90) / 4 + 0.5)
    assert column(get, "curve-0", "last1000.loss") == pytest.approx(99 / 2 + 0.5)
    assert column(get, "small-3", "last5.loss") is None  # Infinity alone
    assert column(get, "curve-0", "last5.system/heat") is None  # no step


def test_last_steps_are_found_behind_a_dense_beginning(get: Get) -> None:
    """The distance of the last steps is guessed from all of them, and looked at again where it is larger."""
    (row,) = get("/api/runs", filter="id = dense", column="last60.loss")["runs"]
    assert row["columns"]["last60.loss"] == {"key": "trainer/loss", "value": 1.0, "step": 990_000, "unit": ""}


def test_newest_attempt_counts(get: Get) -> None:
    """At a step of two attempts the newest counts, as in charts."""
    assert column(get, "again", "last100.loss") == 2.0
    assert column(get, "again", "last110.loss") == pytest.approx((100 * 2 + 10 * 1) / 110)


def test_value_where_another_is_best(get: Get) -> None:
    """It is that of the same step or the last one before; what is best follows from the name, or is asked for."""
    (row,) = get("/api/runs", filter="id = curve-2", column=["metrics.loss@best.eval/score"])["runs"]
    found = row["columns"]["metrics.loss@best.eval/score"]
    assert (found["key"], found["step"], found["value"]) == ("trainer/loss", 39, pytest.approx(20 + 39 + 0.5))
    assert column(get, "curve-2", "metrics.eval/score@best.loss") == pytest.approx(2.6)
    assert column(get, "curve-2", "metrics.loss@min.eval/score") == pytest.approx(20 + 90 + 0.5)
    assert column(get, "curve-2", "metrics.eval/score@max.loss") == pytest.approx(2.5)
    assert column(get, "small-1", "metrics.loss@best.eval/score") is None


def test_such_fields_filter_and_sort(get: Get) -> None:
    """A filter and an order take them like any other field; runs without one come last."""
    found = get("/api/runs", filter="project = curves", sort="-last3.loss")["runs"]
    assert [run["id"] for run in found] == ["curve-2", "curve-1", "curve-0", "dense"]
    assert found[0]["columns"]["last3.loss"]["value"] == pytest.approx(20 + 96 + 0.5)
    wanted = "metrics.loss@best.eval/score > 45 and (last3.loss < 110 or status = failed)"
    assert [run["id"] for run in get("/api/runs", filter=wanted)["runs"]] == ["curve-1"]
    assert [
        run["id"] for run in get("/api/runs", filter=f"not ({wanted}) and project = curves and ranks = 2")["runs"]
    ] == [
        "curve-2",
        "curve-0",
    ]


def test_a_run_is_read_again_only_when_it_records_more(get: Get, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    """Values of a run that rests are known; those of one that recorded something since are not."""
    read: list[int] = []

    def counting(engine: Engine, keys: dict[int, list[str]], parts: PointField, budget: Budget) -> dict[int, Reduced]:
        read.append(len(keys))
        return _read(engine, keys, parts, budget)

    monkeypatch.setattr(reducers, "_read", counting)
    writer = Writer(id="live", run="live", project="live", name="live", wall_ns=START)
    hub.store.write(Batch(writer, 1, [began({}), Metric(START, 1, None, "trainer", {"loss": 1.0})]))
    assert [column(get, "live", "last2.loss") for _ in range(2)] == [1.0, 1.0]
    assert read == [1, 1]  # a replica may lack what came just now
    monkeypatch.setattr(reducers, "_SETTLED_NS", -3600 * SECOND)
    assert [column(get, "live", "last2.loss") for _ in range(3)] == [1.0, 1.0, 1.0]
    assert read == [1, 1, 1, 0, 0]
    hub.store.write(Batch(writer, 3, [Metric(START + 1, 2, None, "trainer", {"loss": 3.0})]))
    assert column(get, "live", "last2.loss") == 2.0
    assert read[-1] == 1


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"sort": "last0.loss"}, "is the mean of 1 to 1000 steps: write last10.loss"),
        ({"filter": "last1001.loss < 1"}, "is the mean of 1 to 1000 steps"),
        ({"sort": "last5.los"}, "no run has metrics.los; did you mean metrics.loss"),
        ({"sort": "metrics.loss@best.eval/scor"}, "no run has metrics.eval/scor; did you mean metrics.eval/score or"),
        ({"filter": "last5.loss < small"}, "is not a number, and last5.loss is one"),
        ({"column": "loss"}, "metrics.KEY@best.OTHER or one of gpu_hours, gpu_kwh, gpu_utilization, not 'loss'"),
        ({"column": "last2000.loss"}, "is the mean of 1 to 1000 steps"),
    ],
)
def test_errors_say_what_to_write(get: Get, params: dict[str, str], message: str) -> None:
    """A wrong field is refused with the right one."""
    assert message in get("/api/runs", expect=400, **params)["error"]["message"]


def test_price(get: Get, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that would read too many points is refused; a filter by other fields makes it cheaper."""
    monkeypatch.setattr(reductions, "MAX_POINTS", 100)
    refused = get("/api/runs", expect=400, sort="last7.loss", filter="project = curves")["error"]["message"]
    assert refused == "this reads 2,303 points, and a request may read 100: choose fewer runs with a filter"
    assert len(get("/api/runs", sort="last7.loss", filter="project = curves and id = curve-0")["runs"]) == 1


def test_a_column_that_is_too_dear_is_left_out(get: Get, monkeypatch: pytest.MonkeyPatch) -> None:
    """One budget is for the whole request; the runs are listed without the column, with the reason."""
    monkeypatch.setattr(reductions, "MAX_POINTS", 150)
    few, more = "last6.loss", "metrics.loss@best.eval/score"
    found = get("/api/runs", filter="id = curve-0", column=[few, more])
    assert list(found["runs"][0]["columns"]) == [few]
    assert found["left_out"] == {
        more: "this reads 88 points, and a request may read 150, of which 82 are left: choose fewer runs with a filter"
    }
    both = get("/api/runs", filter="id = curve-1", sort="last5.loss", column=[more])
    assert (list(both["runs"][0]["columns"]), list(both["left_out"])) == (["last5.loss"], [more])
    alone = get("/api/runs", filter="id = curve-1", column=[more])
    assert (list(alone["runs"][0]["columns"]), alone["left_out"]) == ([more], {})


def test_last_steps_are_priced_by_what_they_read(get: Get, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last steps of a long run are few points; where another is best, all of them are read."""
    writer = Writer(id="long", run="long", project="long", name="long", wall_ns=START)
    points = [Metric(START + step, step, None, "trainer", {"loss": float(step)}) for step in range(5000)]
    hub.store.write(Batch(writer, 1, [began({}), *points, ended(START + SECOND)]))
    monkeypatch.setattr(reductions, "MAX_POINTS", 1000)
    assert column(get, "long", "last2.loss") == 4998.5
    get("/api/runs", expect=400, filter="id = long", sort="metrics.loss@best.loss")


def test_names_of_such_fields() -> None:
    """Numbers are ASCII digits, nine at most; both sides of `@best.` have a name."""
    assert point_field("last10.a.b") == PointField("a.b", 10)
    assert point_field("metrics.a@min.b@max.c") == PointField("a", 0, "min", "b@max.c")
    others = ("last1234567890.a", "last\u0663.a", "last5.", "metrics.@best.a", "metrics.a@best.", "a@best.b")
    assert [point_field(each) for each in others] == [None] * len(others)


def test_statements_are_short(get: Get, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs are read in portions; the values are the same."""
    whole = get("/api/runs", sort="last9.loss", column="metrics.loss@min.eval/score")["runs"]
    monkeypatch.setattr(reductions, "_MAX_SERIES", 5)
    monkeypatch.setattr(reductions, "_FEW", 2)
    parts = get("/api/runs", sort="last9.trainer/loss", column="metrics.trainer/loss@min.eval/score")["runs"]
    assert [run["id"] for run in parts] == [run["id"] for run in whole]
    assert [list(run["columns"].values()) for run in parts] == [list(run["columns"].values()) for run in whole]
