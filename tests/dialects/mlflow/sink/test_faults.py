"""The MLflow sink when things go wrong: lost answers, sick servers, restarts, kills; one run, every point, once."""

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import stepscope
from stepscope.dialects.mlflow.sink import LINK_SECONDS, LOOK_SECONDS, MetricsSink, Mlflow, TracesSink
from stepscope.dialects.mlflow.sink.tracking_server import FOLLOW_SECONDS, SETTLE_SECONDS, Target
from stepscope.journal.following import Following
from stepscope.journal.quarantine import Quarantine
from stepscope.model.errors import Reject, Retry, ServerError
from stepscope.pump import Pump
from tests.conftest import PACKAGE, Python, Start
from tests.dialects.mlflow.server_peer import Deed, MlflowPeer, MlflowServer, Passed
from tests.dialects.mlflow.sink.test_runs import batch, finished, linked, loss, span
from tests.late import late
from tests.repeats import repeats

late("mlflow")
pytestmark = pytest.mark.timeout(400)

KILLS = repeats(3, 20)


class Clock:
    """A clock that only moves when the test moves it."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def target(peer: MlflowPeer, **more: Any) -> Target:
    """Where the sinks of a test go."""
    return Mlflow.read({"uri": peer.url, "experiment": peer.experiment, **more}, {}).target


def creates(passed: Passed) -> bool:
    """Whether a request creates a run."""
    return passed.path.endswith("runs/create")


def test_a_create_whose_answer_is_lost(peer: MlflowPeer) -> None:
    """The run is found by its tag, by the same sink and by another after a kill: there is one."""
    peer.once(Deed(lose=True), creates)
    sink = MetricsSink(target(peer))
    with pytest.raises(Retry, match="closed the connection"):
        sink.write([batch(loss(1))])
    assert not MetricsSink(target(peer)).write([batch(loss(1))])
    assert not sink.write([batch(loss(2), seq=1)])
    assert sorted(peer.steps()) == [1, 2]
    assert len(peer.paths("runs/create")) == 1


def test_a_create_that_comes_through_late(peer: MlflowPeer) -> None:
    """A second run is created only if the first does not appear for a while; the late, unused one is deleted."""
    clock = Clock()
    peer.once(Deed(drop=True), creates)
    sink = MetricsSink(target(peer), clock=clock)
    with pytest.raises(Retry, match="closed the connection"):
        sink.write([batch(loss(1))])
    with pytest.raises(Retry, match="waiting to see whether the run exists"):
        sink.write([batch(loss(1))])
    clock.now += SETTLE_SECONDS + 1
    assert not sink.write([batch(loss(1))])
    (held, _) = peer.paths("runs/create")
    peer.server.post("runs/create", json.loads(held.body))
    assert len(peer.runs()) == 2
    sink.write([batch(finished("finished"), seq=1)])
    assert peer.run()["status"] == "FINISHED"
    assert peer.steps() == [1]


def test_other_hosts_leave_the_create_to_rank_0(peer: MlflowPeer) -> None:
    """They wait for it, and create the run themselves only when it does not come."""
    clock = Clock()
    other = MetricsSink(target(peer), clock=clock)
    with pytest.raises(Retry, match="the shipper of rank 0 creates it"):
        other.write([batch(loss(1), rank=1)])
    MetricsSink(target(peer)).write([batch(loss(1))])
    assert not other.write([batch(loss(1), rank=1)])
    with pytest.raises(Retry, match="the shipper of rank 0 creates it"):
        other.write([batch(loss(1), rank=1, run="orphan")])
    clock.now += FOLLOW_SECONDS + 1
    assert not other.write([batch(loss(1), rank=1, run="orphan")])
    assert sorted(each["info"]["run_name"] for each in peer.runs()) == ["demo", "orphan"]


def test_a_sick_server_is_waited_for(peer: MlflowPeer) -> None:
    """While it can write nothing, HTTP 500 blames no record; the same for a token that expired."""
    sink = MetricsSink(target(peer))
    sink.write([batch(loss(1))])
    for status in (500, 401, 403, 302):
        peer.decide = lambda passed, status=status: Deed(status, {}, b"oops") if "log-batch" in passed.path else None
        with pytest.raises(Retry, match=f"HTTP {status}"):
            sink.write([batch(loss(2), seq=1)])
    peer.decide = lambda passed: None
    assert not sink.write([batch(loss(2), seq=1)])
    assert sorted(peer.steps()) == [1, 2]


@pytest.mark.parametrize("status", [401, 403])
def test_spans_wait_for_a_token_that_is_mended(peer: MlflowPeer, status: int) -> None:
    """Traces that the server does not let in are no refusal of spans, however long it lasts."""
    clock = Clock()
    sink = TracesSink(target(peer), clock=clock)
    peer.decide = lambda passed: Deed(status, {}, b"not you")
    for _ in range(3):
        with pytest.raises(Retry, match=f"HTTP {status}: not you"):
            sink.write([batch(span(1))])
        clock.now += 3600
    sink.close()


def test_a_record_on_which_the_server_breaks(peer: MlflowPeer, tmp_path: Path) -> None:
    """One record is set aside, the others arrive."""
    write_run(tmp_path, 300)
    peer.decide = lambda passed: Deed(500, {}, b"") if b'"step":123}' in passed.body else None
    pump = pump_of(peer, tmp_path)
    run_dry(pump)
    assert sorted(peer.steps()) == [step for step in range(300) if step != 123]
    (entry,) = Quarantine(tmp_path, "q").entries()
    assert [record.step for record in entry.batch.records] == [123]  # type: ignore[union-attr]


def test_no_run_yet_and_traces_go(peer: MlflowPeer) -> None:
    """If runs cannot be created, spans still arrive; later metrics follow and the traces are linked."""
    clock = Clock()
    peer.decide = lambda passed: Deed(500, {}, b"no") if creates(passed) else None
    metrics, traces = MetricsSink(target(peer)), TracesSink(target(peer), clock=clock)
    first, second = [batch(loss(1), span(2_000_001))], [batch(loss(2), span(2_000_002), seq=1)]
    with pytest.raises(Retry, match="HTTP 500"):
        metrics.write(first)
    with pytest.raises(Retry, match="not in MLflow yet"):
        traces.write(first)
    clock.now += LINK_SECONDS
    assert not traces.write(first)
    assert [len(peer.traces()), len(peer.runs())] == [1, 0]
    peer.decide = lambda passed: None
    assert not metrics.write(first)
    clock.now += LOOK_SECONDS
    assert not traces.write(second)
    assert len(linked(peer)) == 2
    assert peer.steps() == [1]


def test_links_are_made_at_the_end(peer: MlflowPeer) -> None:
    """When no span comes after the run was created, the sink links the others before it leaves."""
    clock = Clock()
    traces = TracesSink(target(peer), clock=clock)
    with pytest.raises(Retry, match="not in MLflow yet"):
        traces.write([batch(span(5_000_001))])
    clock.now += LINK_SECONDS
    assert not traces.write([batch(span(5_000_001))])
    MetricsSink(target(peer)).write([batch(loss(1))])
    assert not linked(peer)
    traces.close()
    assert len(linked(peer)) == 1


def test_unprocessable_may_pass(peer: MlflowPeer) -> None:
    """MLflow answers 422 for a locked database as well as for a span it cannot read: the spans are offered again."""
    MetricsSink(target(peer)).write([batch(loss(1))])
    traces = TracesSink(target(peer), clock=Clock())
    peer.once(Deed(422, {}, b'{"detail": "Failed to log OpenTelemetry spans"}'), lambda passed: "traces" in passed.path)
    given = [batch(loss(1), span(3_000_001), span(3_000_002))]
    with pytest.raises(ServerError, match="Failed to log") as caught:
        traces.write(given)
    assert caught.value.where == (1, 2)
    assert not traces.write(given)


def test_a_server_without_traces(peer: MlflowPeer) -> None:
    """An old one, or one on files: its spans are refused with its words, and metrics are not held up."""
    MetricsSink(target(peer)).write([batch(loss(1))])
    peer.decide = lambda passed: Deed(501, {}, b'{"detail": "not supported"}') if "traces" in passed.path else None
    with pytest.raises(Reject, match="HTTP 501: not supported") as caught:
        TracesSink(target(peer)).write([batch(loss(1), span(4_000_001))])
    assert (caught.value.where, caught.value.together) == ((1,), False)


def write_run(home: Path, count: int, spans: int = 0) -> None:
    """Leave the journal of a run."""
    run = stepscope.init(
        project="p", run_id="demo", home=home, probes=False, capture_logs=False, otel=False, config={"lr": 1}
    )
    for step in range(count):
        run.log({"loss": float(step)}, step=step, category="trainer")
        if step % 250 == 249:
            run.flush(5)
    for step in range(spans):
        with run.step(step):
            pass
    run.finish()


def pump_of(peer: MlflowPeer, home: Path, url: str = "") -> Pump:
    """What a shipper has for the runs of a server."""
    config = Mlflow.read({"uri": url or peer.url, "experiment": peer.experiment, "timeout": 10}, {})
    return Pump(config.open(), Following(home, "q"), Quarantine(home, "q"), group_bytes=20_000)


def run_dry(pump: Pump, each: Callable[[], object] = lambda: None, seconds: float = 90) -> None:
    """Step until all is delivered."""
    deadline = time.monotonic() + seconds
    while pump.step().moved or pump.problem or not pump.at_end:
        assert time.monotonic() < deadline, pump.problem
        each()
        pump.wake()


def test_server_down_at_the_start_and_in_between(peer: MlflowPeer, mlflow_server: MlflowServer, tmp_path: Path) -> None:
    """A server that is not there, comes, is killed in the middle and comes again: every point is there, once."""
    write_run(tmp_path, 3000)
    url = f"http://127.0.0.1:{mlflow_server.port}"
    pump = pump_of(peer, tmp_path, url)
    mlflow_server.kill()
    for _ in range(6):
        pump.step()
        assert "nothing listens on this port" in pump.problem
        pump.wake()
    assert pump.is_stuck
    mlflow_server.start()

    def restart() -> None:
        if pump.counts["written"] > 500 and not restarted:
            restarted.append(True)
            mlflow_server.kill()
            pump.wake()
            pump.step()
            assert pump.problem
            mlflow_server.start()

    restarted: list[bool] = []
    run_dry(pump, restart, 200)
    assert restarted
    assert sorted(peer.steps()) == list(range(3000))
    assert peer.run()["status"] == "FINISHED"
    assert not list(Quarantine(tmp_path, "q").entries())


def test_a_dead_trainer_failed(peer: MlflowPeer) -> None:
    """A trainer without an exit record is FAILED; a late exit record or a new attempt overrides this."""
    sink = MetricsSink(target(peer), dead=lambda writer: True)
    sink.write([batch(loss(1)), batch(loss(1), rank=1)])
    sink.close()
    run = peer.run()
    assert (run["status"], run["tags"]["stepscope.presumed_dead"]) == ("FAILED", "1")
    late = MetricsSink(target(peer), dead=lambda writer: True)
    late.write([batch(loss(2), finished("finished"), seq=1)])
    late.close()
    run = peer.run()
    assert (run["status"], run["tags"]["stepscope.presumed_dead"]) == ("FINISHED", "no")
    again = MetricsSink(target(peer), dead=lambda writer: True)
    again.write([batch(loss(3), attempt=2)])
    assert peer.run()["status"] == "RUNNING"
    again.close()
    assert peer.run()["status"] == "FAILED"
    last = MetricsSink(target(peer), dead=lambda writer: False)
    last.write([batch(loss(4), attempt=3)])
    last.close()
    assert peer.run()["status"] == "RUNNING"


TRAIN = """
    import sys, time, stepscope
    run = stepscope.init(capture_logs=False, otel=False)
    for step in range(int(sys.argv[1]), int(sys.argv[2])):
        run.log({"loss": float(step)}, step=step, category="trainer")
        time.sleep(0.01)
    run.finish()
"""


def test_trainers_and_their_shipper(peer: MlflowPeer, start: Start, python: Python, until: Callable[..., None]) -> None:
    """From a trainer that is killed to its next attempt: what was recorded arrives, and how it ended."""
    sinks = json.dumps([{"mlflow": {"uri": peer.url, "experiment": peer.experiment}}])
    program = start(TRAIN, 0, 100_000, env={"STEPSCOPE_SINKS": sinks})
    until(lambda: peer.steps())
    assert peer.run()["status"] == "RUNNING"
    program.end()
    until(lambda: peer.run()["status"] == "FAILED")
    before = sorted(peer.steps())
    assert before == list(range(len(before)))
    done = python(TRAIN, 200_000, 200_010, env={"STEPSCOPE_SINKS": sinks, "STEPSCOPE_QUIET": "1"})
    assert (done.returncode, done.stderr) == (0, "")
    until(lambda: peer.run()["status"] == "FINISHED")
    assert sorted(peer.steps()) == [*before, *range(200_000, 200_010)]
    assert peer.run()["tags"]["stepscope.attempt"] == "2"


def ship_line(home: Path, *servers: tuple[str, str]) -> list[str]:
    """The command that delivers a home to servers and experiments, and waits for one on a busy machine."""
    sinks = [{"mlflow": {"uri": url, "experiment": experiment, "timeout": 300}} for url, experiment in servers]
    line = [sys.executable, "-m", "stepscope", "ship", "--home", str(home), "--json"]
    return [*line, "--sink", json.dumps(sinks)]


def environment() -> dict[str, str]:
    """That of a command, without settings of ours or MLflow's."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("STEPSCOPE_", "MLFLOW_", "OTEL_"))}
    return {**kept, "PYTHONPATH": str(PACKAGE)}


def test_a_dead_server_delays_no_other(peer: MlflowPeer, tmp_path: Path) -> None:
    """Of two sinks, one of them dead, the healthy one gets everything."""
    write_run(tmp_path, 500, spans=5)
    line = [*ship_line(tmp_path, ("http://127.0.0.1:9", "dead"), (peer.url, peer.experiment)), "--timeout", "20"]
    done = subprocess.run(line, env=environment(), capture_output=True, text=True, timeout=300)
    assert done.returncode == 1, done.stderr
    told = {each["place"]: each for each in json.loads(done.stdout)["sinks"]}
    assert len(told) == 4
    assert sorted(peer.steps()) == list(range(500))
    assert len(peer.traces()) == 6
    for place, each in told.items():
        assert bool(each["trouble"]) == ("127.0.0.1:9 " in place)


def test_killed_shippers(peer: MlflowPeer, tmp_path: Path) -> None:
    """SIGKILL at random moments: one run, every point and every trace, once."""
    write_run(tmp_path, 6000, spans=200)
    chance = random.Random(7)
    line = ship_line(tmp_path, (peer.url, peer.experiment))
    kills = 0
    for _ in range(KILLS):
        before = len(peer.passed)
        shipper = subprocess.Popen(line, env=environment(), stdout=subprocess.DEVNULL)
        wanted = before + chance.randrange(1, 12)
        deadline = time.monotonic() + 300
        while len(peer.passed) < wanted and shipper.poll() is None:
            assert time.monotonic() < deadline
            time.sleep(0.002)
        time.sleep(chance.random() * 0.02)
        kills += shipper.poll() is None
        shipper.kill()
        shipper.wait()
    done = subprocess.run(line, env=environment(), capture_output=True, text=True, timeout=500)
    assert json.loads(done.stdout)["delivered"] is True
    assert kills > 0
    assert len(peer.runs()) == 1
    assert sorted(peer.steps()) == list(range(6000))
    assert len(peer.traces()) == 201
    assert peer.run()["status"] == "FINISHED"
