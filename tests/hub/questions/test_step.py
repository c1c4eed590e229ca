"""The step inspector, asked over HTTP."""

import math
import re

import pytest

from stepscope.hub.service import Hub
from stepscope.hub.store import embedded
from stepscope.model.ports import Batch, Writer
from stepscope.model.records import Alert, Log, Metric, Record, Span
from tests.hub.questions.conftest import Get
from tests.hub.questions.world import BAD, FAILED, SPIKE, START, STEPS
from tests.waiting import wait_until


def test_values_against_the_steps_before(get: Get) -> None:
    """A spike is many deviations away from the fifty steps before it, on each rank."""
    found = get(f"/api/runs/big/steps/{SPIKE}")
    loss, lr = found["metrics"]
    assert (loss["key"], lr["key"]) == ("trainer/loss", "trainer/lr")
    assert [value["rank"] for value in loss["values"]] == [0, 1]
    for value in loss["values"]:
        assert (value["value"], value["before"]) == (50.0, 50)
        assert value["delta"] == pytest.approx(50.0 - value["mean"])
        assert value["z"] > 100
    assert [value["z"] for value in lr["values"]] == [None, None]


def test_the_rounding_of_a_mean_is_no_difference(hub: Hub, get: Get) -> None:
    """A value that is always the same differs by 0 from the mean, also where the sum of such values is rounded."""
    writer = Writer(id="even-0", run="even", project="p", wall_ns=START)
    same: list[Record] = [Metric(START + step, step, None, None, {"lr": 0.1, "wd": 3e-4}) for step in range(60)]
    hub.store.write(Batch(writer, 1, same))
    found = get("/api/runs/even/steps/59")["metrics"]
    assert {each["key"]: each["values"][0]["delta"] for each in found} == {"lr": 0.0, "wd": 0.0}


def test_a_step_of_metrics_and_spans_takes_six_statements(hub: Hub, get: Get, monkeypatch: pytest.MonkeyPatch) -> None:
    """One finds that there are no logs, alerts, open spans and samples; the values and their neighbours take one."""
    for rank in range(3):
        records: list[Record] = []
        for step in range(30):
            ids = rank.to_bytes(16), (rank * 100 + step + 1).to_bytes(8)
            records.append(Metric(START + step, step, None, None, {"lr": 0.1 * step}))
            records.append(Span(START + step, 5, step, None, *ids, None, "step"))
        writer = Writer(id=f"plain-{rank}", run="plain", project="p", rank=rank, world_size=3, wall_ns=START)
        hub.store.write(Batch(writer, 1, records))
    get("/api/runs/plain/steps/20", limit=2)
    asked: list[str] = []
    run = embedded._run

    def watched(connection: object, sql: str, format: str) -> bytes:
        asked.append(sql)
        return run(connection, sql, format)

    monkeypatch.setattr(embedded, "_run", watched)
    found = get("/api/runs/plain/steps/21", limit=2)
    assert (found["previous"], found["next"], found["all_ranks"]["count"]) == (20, 22, 3)
    assert [value["before"] for value in found["metrics"][0]["values"]] == [21, 21]
    around = ["alerts", "spans", "logs"]
    here = ["logs", "alerts", "open_spans", "samples"]
    tables = [re.findall(r"FROM ([a-z_]+)", sql) for sql in asked]
    assert sorted(tables) == sorted([around, here, ["metrics"], ["spans"], ["spans"], ["spans"]])


def test_span_trees(get: Get) -> None:
    """Each rank has its tree, with durations against the usual ones and the critical path."""
    found = get(f"/api/runs/big/steps/{SPIKE}")
    assert [lane["rank"] for lane in found["ranks"]] == [0, 1]
    assert sum(lane["critical"] for lane in found["ranks"]) == 1
    root, forward, backward = found["ranks"][0]["spans"]
    assert [span["depth"] for span in (root, forward, backward)] == [0, 1, 1]
    assert (root["duration_ms"], root["usual_ms"], root["ratio"]) == (900.0, 300.0, 3.0)
    assert backward["offset_ms"] == 360.0
    assert sum(span["critical_ms"] for span in (root, forward, backward)) == pytest.approx(900.0)
    assert found["ranks"][0]["critical_path"][0] == root["span_id"]


def test_logs_alerts_and_the_machine(get: Get) -> None:
    """What else happened at the step is there, and the machine's state around it."""
    found = get(f"/api/runs/big/steps/{BAD}")
    assert [alert["name"] for alert in found["alerts"]] == ["nan"]
    assert sorted((log["rank"], log["body"]) for log in found["logs"]) == [
        (0, f"step {BAD} done"),
        (1, f"step {BAD} done"),
    ]
    assert {(reading["key"], reading["rank"], reading["value"]) for reading in found["system"]} == {
        ("system/gpu_util", 0, 90.0),
        ("system/gpu_util", 1, 91.0),
    }
    (bad,) = [value for value in found["metrics"][0]["values"] if value["rank"] == 1]
    assert (bad["value"], bad["delta"], bad["z"]) == ("NaN", None, None)


def test_the_way_to_other_steps(get: Get) -> None:
    """The adjacent steps, and the nearest steps with an anomaly."""
    found = get("/api/runs/big/steps/95")
    assert (found["previous"], found["next"]) == (94, 96)
    assert found["previous_anomaly"]["step"] == BAD
    assert found["next_anomaly"] == {"step": FAILED, "reason": "failed span", "attempt": 1}
    first, last = get("/api/runs/big/steps/0"), get(f"/api/runs/big/steps/{STEPS - 1}")
    assert (first["previous"], first["previous_anomaly"]) == (None, None)
    assert (last["next"], last["next_anomaly"]) == (None, None)


def test_whether_the_run_is_diagnosed_is_said(get: Get) -> None:
    """Without findings a step is unsuspicious only once all records of its run are diagnosed."""
    wait_until(lambda: get("/api/runs/big/findings")["complete"])
    assert get(f"/api/runs/big/steps/{SPIKE}")["complete"] is True


def test_a_step_that_never_was(get: Get) -> None:
    """An unknown step is empty and still tells the way; an unknown run is not found."""
    found = get("/api/runs/big/steps/100000")
    assert (found["metrics"], found["ranks"], found["begin"]) == ([], [], None)
    assert found["previous"] == STEPS - 1
    get("/api/runs/none/steps/1", expect=404)
    assert "must be an integer" in get("/api/runs/big/steps/x", expect=400)["error"]["message"]


def test_all_of_a_step_is_of_the_attempt_that_is_named(get: Get) -> None:
    """Values, what is usual, time and neighbours; all attempts that reached the step are listed, whichever is named."""
    newest = get("/api/runs/again/steps/60")
    assert (newest["attempt"], newest["attempts"]) == (2, [1, 2])
    assert [value["value"] for value in newest["metrics"][0]["values"]] == [2.0]
    first = get("/api/runs/again/steps/60", attempt=1)
    (value,) = first["metrics"][0]["values"]
    assert (first["attempt"], first["attempts"]) == (1, [1, 2])
    assert (value["attempt"], value["value"], value["mean"], value["logged"]) == (1, 1.0, 1.0, 1)
    assert newest["begin"] - first["begin"] == 1000.0
    assert (get("/api/runs/again/steps/99", attempt=1)["next"], get("/api/runs/again/steps/99")["next"]) == (None, 100)
    assert get("/api/runs/again/steps/50", attempt=2)["previous"] is None


def test_an_attempt_that_never_came_to_a_step_is_refused(get: Get) -> None:
    """The error lists the attempts that reached the step."""
    said = get("/api/runs/again/steps/120", attempt=1, expect=404)["error"]["message"]
    assert said == "attempt 1 did not reach step 120; attempt 2 did"
    assert "attempts 1, 2 did" in get("/api/runs/again/steps/60", attempt=7, expect=404)["error"]["message"]


def test_a_step_counts_whatever_it_recorded(get: Get, hub: Hub) -> None:
    """One comes to the step of a crash and away from it, though it has a span only, and across any gap."""

    def keep(attempt: int, *records: Record) -> None:
        writer = Writer(id=f"c{attempt}", run="crashed", project="gpt", attempt=attempt, wall_ns=START)
        hub.store.write(Batch(writer, 1, list(records)))

    def metric(step: int) -> Metric:
        return Metric(START + step, step, None, "trainer", {"loss": 1.0})

    def beside(step: int, **given: int) -> tuple[int | None, int | None]:
        found = get(f"/api/runs/crashed/steps/{step}", **given)
        return found["previous"], found["next"]

    failed = Span(START, 5, 10, None, b"t" * 16, b"s" * 8, None, "train.step", status=2, message="gone")
    far = (5_000, 10_000_000)
    said = Log(START, 7_000, None, None, None, 9, "between"), Alert(START, 8_000, None, None, None, 9, "a")
    begun = Span(START, None, 20_000_000, None, b"t" * 16, b"o" * 8, None, "train.step")
    keep(1, *map(metric, range(10)), failed)
    keep(2, *map(metric, range(5, 20)), *map(metric, far), *said, begun)
    assert (beside(10, attempt=1), beside(9, attempt=1)) == ((9, None), (8, 10))
    assert (beside(9), beside(4, attempt=1), beside(5, attempt=2)) == ((8, 10), (3, 5), (None, 6))
    assert (beside(19), beside(5_000), beside(7_500), beside(8_000)) == (
        (18, 5_000), (19, 7_000), (7_000, 8_000), (7_000, 10_000_000)
    )  # fmt: skip
    assert (beside(10_000_000), beside(20_000_000)) == ((8_000, 20_000_000), (10_000_000, None))
    assert get("/api/runs/crashed/steps/3")["next_anomaly"] == {"step": 10, "reason": "failed span", "attempt": 1}


def test_an_earlier_attempt_does_not_make_a_step_longer(get: Get, hub: Hub) -> None:
    """A metric that only the first attempt had at a step is shown, but the step begins where the second one did."""
    second = 10**9
    for attempt in (1, 2):
        writer = Writer(id=f"e{attempt}", run="repeated", project="gpt", attempt=attempt, wall_ns=START)
        begin = START + attempt * second
        span = Span(begin, second // 10, 5, None, b"t" * 16, bytes([attempt]) * 8, None, "train.step")
        values = {"loss": 1.0, "reading": 2.0} if attempt == 1 else {"loss": 1.0}
        hub.store.write(Batch(writer, 1, [Metric(begin, 5, None, "trainer", values), span]))
    found = get("/api/runs/repeated/steps/5")
    assert [metric["key"] for metric in found["metrics"]] == ["trainer/loss", "trainer/reading"]
    assert (found["attempt"], found["duration_ms"], found["ranks"][0]["offset_ms"]) == (2, 100.0, 0.0)


def test_clocks_that_differ_do_not_make_a_step_longer(get: Get, hub: Hub) -> None:
    """A step lasts as long as its longest rank, though the clock of another machine is 37 s ahead."""
    second = 10**9
    for rank in range(2):
        writer = Writer(
            id=f"s{rank}", run="skewed", project="gpt", rank=rank, world_size=2, host=f"h{rank}", wall_ns=START
        )
        begin = START + rank * 37 * second
        span = Span(begin, second // (10 - 5 * rank), 5, None, b"t" * 16, bytes([rank + 1]) * 8, None, "train.step")
        hub.store.write(Batch(writer, 1, [Metric(begin, 5, None, "trainer", {"loss": 1.0}), span]))
    found = get("/api/runs/skewed/steps/5")
    assert found["duration_ms"] == 200.0
    assert sorted(each["duration_ms"] for each in found["ranks"]) == [100.0, 200.0]


def test_an_anomaly_has_the_same_reason_from_before_and_after(get: Get, hub: Hub) -> None:
    """Of several at one step the first in a fixed order is reported, of the newest attempt."""
    for attempt in (1, 2):
        writer = Writer(id=f"d{attempt}", run="doubly", project="gpt", attempt=attempt, wall_ns=START)
        bad = Metric(START, 5, None, "trainer", {"loss": math.nan})
        log = Log(START, 5, None, None, None, 17, "NaN!")
        hub.store.write(Batch(writer, 1, [bad, log]))
    alert = Alert(START, 5, None, None, None, 17, "nan")
    hub.store.write(Batch(Writer(id="d3", run="doubly", project="gpt", attempt=3, wall_ns=START), 1, [bad]))
    places = [get(f"/api/runs/doubly/steps/{step}") for step in (1, 9)]
    assert [places[0]["next_anomaly"], places[1]["previous_anomaly"]] == [
        {"step": 5, "reason": "not finite", "attempt": 3}
    ] * 2
    hub.store.write(Batch(Writer(id="d1", run="doubly", project="gpt", attempt=1, wall_ns=START), 2, [alert]))
    places = [get(f"/api/runs/doubly/steps/{step}") for step in (1, 9)]
    assert [places[0]["next_anomaly"], places[1]["previous_anomaly"]] == [
        {"step": 5, "reason": "alert", "attempt": 1}
    ] * 2


WIDE, SLOW, ODD, BROKEN = 40, 7, 23, 31
"""The number of ranks of the run `wide`, and those that are slow, far from the usual values, and have a failed span."""


@pytest.fixture(scope="module")
def wide(hub: Hub) -> None:
    """A run of many ranks, of which three are unlike the others in the last step."""
    batches = []
    for rank in range(WIDE):
        writer = Writer(id=f"wide{rank}", run="wide", project="gpt", rank=rank, world_size=WIDE, wall_ns=START)
        records: list[Record] = []
        for step in range(20):
            begin, last = START + step * 10**9, step == 19
            value = 1.0 + step % 3 / 10 + (50.0 if last and rank == ODD else 0.0)
            records.append(Metric(begin, step, None, "trainer", {"loss": value}))
            trace = bytes([rank + 1]) * 8 + step.to_bytes(8)
            ids = [bytes([rank + 1, place, step]) + b"wide!" for place in range(2)]
            lasts = (300 + rank + (500 if last and rank == SLOW else 0)) * 10**6
            failed = 2 if last and rank == BROKEN else 0
            records.append(Span(begin, lasts, step, None, trace, ids[0], None, "train.step"))
            records.append(Span(begin, lasts // 2, step, None, trace, ids[1], ids[0], "train.forward", status=failed))
            records.append(Log(begin, step, None, None, None, 9, f"line of {rank}"))
        batches.append(Batch(writer, 1, records))
    hub.store.write_many(batches)


@pytest.mark.usefixtures("wide")
def test_a_page_of_ranks_has_the_odd_and_the_slow_ones(get: Get) -> None:
    """Of forty ranks the first four are the last, the failed, the slowest and the oddest, with all they recorded."""
    found = get("/api/runs/wide/steps/19", limit=4)
    assert [lane["rank"] for lane in found["ranks"]] == [SLOW, ODD, BROKEN, WIDE - 1]
    assert [lane["rank"] for lane in found["ranks"] if lane["critical"]] == [SLOW]
    assert [value["rank"] for value in found["metrics"][0]["values"]] == [SLOW, ODD, BROKEN, WIDE - 1]
    assert sorted(log["rank"] for log in found["logs"]) == [SLOW, ODD, BROKEN, WIDE - 1]
    assert [each["text"] for each in found["findings"] if each["kind"] == "error"] == [
        f"train.forward failed on rank {BROKEN}"
    ]
    assert get("/api/runs/wide/steps/19", limit=1, rank=12)["ranks"][0]["rank"] == 12


def test_a_rank_with_an_open_span_or_a_line_alone_is_on_a_page(get: Get, hub: Hub) -> None:
    """One that hangs in a step comes before those that ended it, and one that only logged comes last."""
    ended = Span(START, 10**6, 3, None, b"t" * 16, b"e" * 8, None, "train.step")
    begun = Span(START, None, 3, None, b"u" * 16, b"b" * 8, None, "train.step")
    line = Log(START, 3, None, None, None, 9, "here")
    for rank, record in enumerate((ended, line, begun)):
        writer = Writer(id=f"hang{rank}", run="hanging", project="gpt", rank=rank, world_size=3, wall_ns=START)
        hub.store.write(Batch(writer, 1, [record]))
    pages = [get("/api/runs/hanging/steps/3", limit=2, offset=offset) for offset in (0, 2)]
    assert [span["rank"] for span in pages[0]["open_spans"]] == [2]
    assert [lane["rank"] for lane in pages[0]["ranks"]] == [0]
    assert [log["rank"] for log in pages[1]["logs"]] == [1]
    assert [page["all_ranks"]["count"] for page in pages] == [3, 3]


@pytest.mark.usefixtures("wide")
def test_the_pages_together_are_the_whole(get: Get) -> None:
    """Every rank is on one page, as it is in an answer without pages, and what concerns all ranks is on each."""
    whole = get("/api/runs/wide/steps/19")
    pages, offset = [], 0
    while offset is not None:
        pages.append(get("/api/runs/wide/steps/19", limit=7, offset=offset))
        offset = pages[-1]["all_ranks"]["next"]
    assert [len(page["ranks"]) for page in pages] == [7, 7, 7, 7, 7, 5]
    by_rank = {lane["rank"]: lane for page in pages for lane in page["ranks"]}
    assert by_rank == {lane["rank"]: lane for lane in whole["ranks"]}
    values = [value for page in pages for value in page["metrics"][0]["values"]]
    assert sorted(values, key=lambda value: value["rank"]) == whole["metrics"][0]["values"]
    assert whole["all_ranks"]["next"] is None
    for page in pages:
        assert page["all_ranks"]["spans"] == whole["all_ranks"]["spans"]
        assert [page[key] for key in ("begin", "end", "duration_ms", "attempts", "previous", "next")] == [
            whole[key] for key in ("begin", "end", "duration_ms", "attempts", "previous", "next")
        ]


@pytest.mark.usefixtures("wide")
def test_the_summary_of_all_ranks(get: Get) -> None:
    """The fastest, the median and the slowest rank of each name are told on a page of one rank."""
    found = get("/api/runs/wide/steps/19", limit=1)["all_ranks"]
    assert found["count"] == WIDE
    step, forward = found["spans"]
    assert (step["name"], step["ranks"], forward["name"]) == ("train.step", WIDE, "train.forward")
    assert (step["min_ms"], step["min_rank"]) == (300.0, 0)
    assert (step["max_ms"], step["max_rank"]) == (807.0, SLOW)
    assert step["median_ms"] == 320.0
    assert step["usual_ms"] == pytest.approx(319.5, abs=1)
