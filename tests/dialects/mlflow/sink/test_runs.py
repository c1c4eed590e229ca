"""The MLflow sink against a real MLflow server: what arrives, once, and how a run looks there."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from stepscope.dialects.mlflow.sink import NO_LOGS, Mlflow
from stepscope.model.errors import Retry
from stepscope.model.ports import Batch, Sink, Writer
from stepscope.model.records import Alert, Event, Histogram, Log, Metric, Record, Span
from stepscope.testing.sinks import SinkContract, closing
from tests.conftest import Python
from tests.dialects.mlflow.server_peer import MlflowPeer, MlflowServer
from tests.dialects.mlflow.sink.test_settings import doctor
from tests.late import late

late("mlflow")

T = 1_700_000_000_000_000_000


def open_parts(peer: MlflowPeer, **options: Any) -> list[Sink]:
    """The sinks of a server: runs, and traces."""
    config = Mlflow.read({"uri": peer.url, "experiment": peer.experiment, **options}, {})
    return [part.open() for part in config.parts]


@pytest.fixture
def sink(peer: MlflowPeer) -> Iterator[Sink]:
    """The sink of its runs."""
    with closing(open_parts(peer)[0]) as made:
        yield made


def writer(run: str = "demo", attempt: int = 1, rank: int = 0, **more: Any) -> Writer:
    """A process of a run."""
    identity = f"r{rank}-a{attempt}-host-{rank + 7}-{attempt:06x}"
    return Writer(id=identity, run=run, project="p", attempt=attempt, rank=rank, world_size=2, wall_ns=T, **more)


def batch(*records: Record, seq: int = 0, **who: Any) -> Batch:
    """Records of a process."""
    return Batch(writer(**who), seq, list(records))


def loss(step: int | None, value: float = 0.5, key: str = "loss") -> Metric:
    """One point."""
    return Metric(T + (step or 0) * 1_000_000_000, step, None, "trainer", {key: value})


def started(config: dict[str, Any]) -> Event:
    """The first event of a run."""
    attrs = {"config": config, "argv": ["train.py", "--fast"], "git.commit": "c0ffee", "git.branch": "main"}
    return Event(T, None, None, None, None, 9, "train.run.started", attrs)


def finished(status: str, second: int = 60) -> Event:
    """The last event of a run."""
    return Event(T + second * 1_000_000_000, None, None, None, None, 9, "train.run.finished", {"status": status})


def span(number: int, name: str = "train.step", parent: bytes | None = None, trace: int | None = None) -> Span:
    """A span with unique ids."""
    ids = (T + (trace or number)).to_bytes(16, "big"), number.to_bytes(8, "big")
    return Span(T + number, 1_000_000, number, None, *ids, parent, name)


class TestContract(SinkContract):
    """Every sink's contract."""


def test_a_run_as_mlflow_tells_it(peer: MlflowPeer, sink: Sink) -> None:
    """Name, begin, params, tags, metrics with their times and steps, status and end."""
    config = {"lr": 3e-4, "optimizer": {"name": "adam", "betas": [0.9, 0.99]}, "api_key": "hunter2", "x%": None}
    records = [started(config), loss(3, 0.25), loss(None, 4.0, "note"), finished("finished")]
    assert not sink.write([batch(*records, name="baseline")])
    run = peer.run()
    assert (run["run_name"], run["status"]) == ("baseline", "FINISHED")
    assert (run["start_time"], run["end_time"]) == (T // 10**6, T // 10**6 + 60_000)
    params = run["params"]
    assert {"lr": "0.0003", "optimizer/name": "adam", "optimizer/betas": "[0.9, 0.99]"}.items() <= params.items()
    assert params["api_key"] == "[redacted]"
    assert [value for key, value in params.items() if key.startswith("x_-")] == ["None"]
    tags = run["tags"]
    assert (tags["stepscope.run_id"], tags["stepscope.attempt"], tags["stepscope.project"]) == ("demo", "1", "p")
    assert (tags["mlflow.source.git.commit"], tags["mlflow.source.name"]) == ("c0ffee", "train.py")
    assert peer.history("trainer/loss") == [
        {"key": "trainer/loss", "value": 0.25, "timestamp": T // 10**6 + 3000, "step": 3}
    ]
    assert peer.history("trainer/note")[0].get("step", 0) == 0


def test_numbers_that_are_none(peer: MlflowPeer, sink: Sink) -> None:
    """NaN is kept; MLflow makes the largest double of an infinity; one in a batch harms no other."""
    values = [1.0, float("nan"), float("inf"), float("-inf"), 2**2000, True]
    assert not sink.write([batch(*(loss(step, value) for step, value in enumerate(values)))])
    found = {point.get("step", 0): point["value"] for point in peer.history("trainer/loss")}
    largest = 1.7976931348623157e308
    assert found == {0: 1.0, 1: "NaN", 2: largest, 3: -largest, 4: largest, 5: 1.0}


def test_keys_mlflow_does_not_take(peer: MlflowPeer, sink: Sink) -> None:
    """Keys that MLflow does not allow are replaced by distinct valid keys."""
    keys = ["acc%", "acc$", "acc_", "/abs", "a//b", "../up", "x" * 400, "x" * 401, "naïve", "with space", ""]
    assert not sink.write([batch(*(loss(1, 1.0, key) for key in keys))])
    found = [each["key"] for each in peer.run()["metrics"]]
    assert len(found) == len(keys)
    assert {"trainer/acc_", "trainer/naïve", "trainer/with space"} <= set(found)


def test_ranks_and_attempts_share_a_run(peer: MlflowPeer, sink: Sink) -> None:
    """Ranks have keys of their own; a new attempt opens the run again and keeps the params of the first."""
    sink.write([batch(started({"lr": 1}), loss(1)), batch(loss(1), rank=1), batch(finished("failed"), seq=1, rank=1)])
    assert peer.run()["status"] == "FAILED"
    sink.write([batch(finished("finished"), seq=1)])
    assert peer.run()["status"] == "FAILED", "the worst that a rank said stands"
    with closing(open_parts(peer)[0]) as another:
        another.write([batch(started({"lr": 2, "new": 3}), loss(2), attempt=2)])
        assert peer.run()["status"] == "RUNNING"
        another.write([batch(finished("failed"), seq=9), batch(finished("finished", 90), seq=1, attempt=2)])
    run = peer.run()
    assert (run["status"], run["end_time"]) == ("FINISHED", T // 10**6 + 90_000)
    assert run["params"] == {"lr": "1", "attempt_2/rank_0/lr": "2", "new": "3"}
    assert [len(peer.history(key)) for key in ("trainer/loss", "trainer/loss/rank_1")] == [2, 1]


def test_killed_runs(peer: MlflowPeer, sink: Sink) -> None:
    """Preempted is KILLED; another rank's good end decides nothing."""
    sink.write([batch(loss(1)), batch(finished("finished"), rank=1)])
    assert peer.run()["status"] == "RUNNING"
    sink.write([batch(finished("preempted"), seq=1)])
    assert peer.run()["status"] == "KILLED"


def test_delivered_twice_is_stored_once(peer: MlflowPeer, sink: Sink) -> None:
    """After a kill between delivery and cursor all of a group comes again, from a sink that remembers nothing."""
    records = [started({"lr": 1}), *(loss(step) for step in range(300)), finished("finished")]
    sink.write([batch(*records)])
    with closing(open_parts(peer)[0]) as another:
        another.write([batch(*records)])
    assert len(peer.history("trainer/loss")) == 300
    assert peer.run()["status"] == "FINISHED"


def test_backlog_in_batches_of_a_thousand(peer: MlflowPeer, sink: Sink) -> None:
    """1,200 metrics of one step, and many steps: no request holds more than MLflow takes."""
    wide = Metric(T, 1, None, "trainer", {f"k{number}": float(number) for number in range(1200)})
    assert not sink.write([batch(wide, *(loss(step) for step in range(1500)))])
    assert len(peer.history("trainer/loss")) == 1500
    assert len(peer.run()["metrics"]) == 1201
    assert [passed.status for passed in peer.paths("log-batch")] == [200] * 4


def test_what_a_run_says_about_itself(peer: MlflowPeer, sink: Sink) -> None:
    """Tags are tags, notes are the description, and a new name is the run's, also when they change later."""
    said = {"tags": {"baseline": True, "team": "red"}, "notes": "as started", "group": "sweep", "job_type": "eval"}
    begin = Event(T, None, None, None, None, 9, "train.run.started", {"config": {}, **said})
    change = {"name": "renamed", "notes": "as edited", "tags": {"team": "blue", "baseline": None}}
    edited = Event(T + 1, None, None, None, None, 9, "train.run.edited", change)
    assert not sink.write([batch(begin, loss(1))])
    tags = peer.run()["tags"]
    assert (tags["baseline"], tags["team"], tags["mlflow.note.content"]) == ("true", "red", "as started")
    assert (tags["stepscope.group"], tags["stepscope.job_type"]) == ("sweep", "eval")
    assert not sink.write([batch(edited, seq=1)])
    run = peer.run()
    assert (run["tags"]["team"], run["tags"]["mlflow.note.content"]) == ("blue", "as edited")
    assert run["run_name"] == "renamed"
    assert "event.train.run.edited" not in run["tags"]


def test_other_kinds(peer: MlflowPeer, sink: Sink) -> None:
    """The latest event and alert of a name is a tag; logs have no place, and are counted."""
    alert = Alert(T, 7, None, None, None, 17, "loss is NaN", "at rank 0")
    line = Log(T, 1, None, None, None, 9, "hello")
    milestones = [Event(T, step, None, None, None, 9, "milestone", {"n": step}) for step in (1, 2)]
    assert sink.write([batch(alert, line, line, *milestones)]) == {NO_LOGS: 2}
    tags = peer.run()["tags"]
    assert tags["alert.loss is NaN"] == "ERROR 2023-11-14T22:13:20+00:00 step 7: at rank 0"
    assert tags["event.milestone"].endswith('step 2: {"n": 2}')


def test_distributions_and_attributes(peer: MlflowPeer, sink: Sink) -> None:
    """What parts two series becomes part of the key; a histogram becomes numbers."""
    value = Histogram(4, 10.0, 1.0, 4.0, (2.0,), (2, 2))
    sink.write([batch(Metric(T, None, None, None, {"wait": value}, {"model": "a b"}))])
    found = {each["key"]: each["value"] for each in peer.run()["metrics"]}
    wanted = {"count": 4, "sum": 10, "min": 1, "max": 4, "mean": 2.5}
    assert found == {f"wait/{name}/model:a b": number for name, number in wanted.items()}


def test_experiments(peer: MlflowPeer, mlflow_server: MlflowServer) -> None:
    """By id, by name though it looks like an id, by project; a deleted one is named with the fix."""
    made = mlflow_server.post("experiments/create", {"name": peer.experiment})["experiment_id"]
    for experiment in (made, int(made)):
        open_parts(peer, experiment=experiment)[0].write([batch(loss(1), run=f"by-{experiment!r}".strip("'"))])
    assert {each["info"]["experiment_id"] for each in peer.runs()} == {made}
    digits = peer.experiment = str(int(peer.experiment[5:], 16))
    Mlflow.read({"uri": peer.url}, {"MLFLOW_EXPERIMENT_NAME": digits}).open().write([batch(loss(1))])
    assert peer.run()["status"] == "RUNNING"
    mlflow_server.post("experiments/delete", {"experiment_id": peer.experiment_id()})
    with pytest.raises(Retry, match="deleted in MLflow: restore it"):
        open_parts(peer, experiment=digits)[0].write([batch(loss(1))])
    Mlflow.read({"uri": peer.url}, {}).open().write([batch(loss(1), run="free")])
    peer.experiment = "p"
    assert "free" in [each["info"]["run_name"] for each in peer.runs()]


def test_a_run_that_is_there_already(peer: MlflowPeer, mlflow_server: MlflowServer) -> None:
    """MLFLOW_RUN_ID names it: nothing is created."""
    made = mlflow_server.post("experiments/create", {"name": peer.experiment})["experiment_id"]
    run = mlflow_server.post("runs/create", {"experiment_id": made})["run"]["info"]["run_id"]
    Mlflow.read({"uri": peer.url}, {"MLFLOW_RUN_ID": run}).open().write([batch(loss(1))])
    assert peer.run()["run_id"] == run
    assert len(peer.history("trainer/loss")) == 1


def test_a_run_deleted_by_hand(peer: MlflowPeer, mlflow_server: MlflowServer, sink: Sink) -> None:
    """What comes afterwards goes to a new run; nothing is lost."""
    sink.write([batch(loss(1))])
    mlflow_server.post("runs/delete", {"run_id": peer.run()["run_id"]})
    with pytest.raises(Retry, match="was deleted in MLflow"):
        sink.write([batch(loss(2), seq=1)])
    assert not sink.write([batch(loss(2), seq=1)])
    assert peer.steps() == [2]


def spans_of(peer: MlflowPeer) -> Sequence[str]:
    """The ids of the traces MLflow has, sorted."""
    return sorted(trace["trace_id"] for trace in peer.traces())


def test_traces_belong_to_their_run(peer: MlflowPeer) -> None:
    """Spans go by trace, with both headers; sent twice they are stored once; each trace is linked to the run."""
    runs, traces = open_parts(peer)
    root = span(1_000_001)
    child = span(1_000_002, "forward", parent=root.span_id, trace=1_000_001)
    given = [batch(loss(1), child, span(1_000_003), root)]
    runs.write(given)
    for _ in range(2):
        assert not traces.write(given)
    assert spans_of(peer) == sorted(f"tr-{each.trace_id.hex()}" for each in (root, span(1_000_003)))
    sent = peer.paths("/v1/traces")
    assert {passed.headers["x-mlflow-run-id"] for passed in sent} == {peer.run()["run_id"]}
    assert {passed.headers["x-mlflow-experiment-id"] for passed in sent} == {peer.experiment_id()}
    assert len(linked(peer)) == 2


def linked(peer: MlflowPeer) -> list[dict[str, Any]]:
    """The traces of the only run, as MLflow finds them for its page."""
    place = {"type": "MLFLOW_EXPERIMENT", "mlflow_experiment": {"experiment_id": peer.experiment_id()}}
    query = {"locations": [place], "filter": f"metadata.`mlflow.sourceRun` = '{peer.run()['run_id']}'"}
    return list(peer.server.post("/api/3.0/mlflow/traces/search", query).get("traces", []))


def test_a_short_run_in_a_thread(peer: MlflowPeer, python: Python, home: Path) -> None:
    """The traces of a short program wait for their run, which is created concurrently."""
    program = """
        import stepscope
        for number in range(5):
            run = stepscope.init(project="p", run_id=f"short{number}", capture_logs=False, otel=False)
            with run.step(number), run.span("forward"):
                run.log({"loss": 0.5})
            assert run.finish().undelivered == 0
    """
    sinks = json.dumps([{"mlflow": {"uri": peer.url, "experiment": peer.experiment}}])
    env = {"STEPSCOPE_SINKS": sinks, "STEPSCOPE_SHIPPER": "thread", "STEPSCOPE_EXIT_TIMEOUT": "30"}
    done = python(program, env=env)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_doctor_is_content(peer: MlflowPeer, tmp_path: Path) -> None:
    """It sends a point, a tag and a span, to one run however often it is asked, and ends it."""
    for _ in range(2):
        code, lines = doctor(tmp_path, peer.url, experiment=peer.experiment, timeout=60)
        assert (code, [("accepted a record" in line) for line in lines]) == (0, [True, True]), lines
    run = peer.run()
    assert (run["run_name"], run["status"]) == ("stepscope-doctor", "FINISHED")
    assert "event.stepscope.probe" in run["tags"]
    assert len(peer.traces()) == 2
