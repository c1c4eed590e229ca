"""The document of metrics and Datadog: every example with its import changed, every row of its tables."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

import stepscope
from stepscope.model import names
from stepscope.model.records import Metric, Span
from stepscope.training.collector import MetricsCollector, create_metrics_collector
from tests.dialects.datadog.sink.dogstatsd_listener import Listener
from tests.training.conftest import Read, Until, arrived, by_key

GAUGE, COUNT, HISTOGRAM = "g", "c", "h"
TRAINING = {
    "signal.training.loss": GAUGE,
    "signal.training.grad_norm": GAUGE,
    "signal.training.learning_rate": GAUGE,
    "signal.training.step": COUNT,
}
RL = {
    "policy_loss": -2.3,
    "value_loss": 0.5,
    "entropy": 3.2,
    "kl_divergence": 0.01,
    "clip_fraction": 0.2,
    "advantage_mean": 0.1,
    "advantage_std": 0.9,
    "explained_variance": 0.8,
    "reward_mean": 5.2,
}
PERFORMANCE: dict[str, tuple[str, float]] = {
    "forward_backward_duration_ms": (HISTOGRAM, 250.5),
    "optim_step_duration_ms": (HISTOGRAM, 50.2),
    "queue_depth": (GAUGE, 3),
    "gpu_utilization": (GAUGE, 95.5),
    "gpu_memory_used_gb": (GAUGE, 38.2),
}


def collect_everything(collector: MetricsCollector) -> None:
    """The three usage examples of the document."""
    collector.collect_training_metrics(
        loss=0.5,
        grad_norm=2.3,
        learning_rate=1e-4,
        step=100,
        extra_metrics={
            "perplexity": 5.2,
            "tokens_per_second": 1500,
        },
    )
    collector.collect_rl_metrics(step=100, **RL)
    collector.collect_performance_metrics(**{name: value for name, (_, value) in PERFORMANCE.items()})


def test_every_row_is_in_the_journal(read: Read) -> None:
    """All metrics of the three tables, with step, type and the user's id; the run has the id that was given."""
    collector = create_metrics_collector(run_id="run_123", user_id="user_456", enable_datadog=True)
    run = stepscope.current_run()
    assert run is not None
    assert run.id == "run_123"
    collect_everything(collector)
    found = by_key(read(Metric))
    expected = {*TRAINING, "signal.training.perplexity", "signal.training.tokens_per_second"}
    expected |= {f"signal.rl.{name}" for name in RL} | {f"signal.performance.{name}" for name in PERFORMANCE}
    assert set(found) == expected
    assert all(record.attrs == {"user_id": "user_456"} for record in found.values())
    assert found["signal.training.loss"].step == found["signal.rl.entropy"].step == 100
    assert found["signal.training.loss"].values["signal.training.loss"] == 0.5
    for name, value in RL.items():
        assert found[f"signal.rl.{name}"].values[f"signal.rl.{name}"] == value
    for name, (kind, value) in PERFORMANCE.items():
        record = found[f"signal.performance.{name}"]
        assert record.values[f"signal.performance.{name}"] == value
        assert (record.instrument is not None and record.instrument.type == "histogram") == (kind == HISTOGRAM)
    counted = found["signal.training.step"].instrument
    assert counted is not None
    assert (counted.type, counted.cumulative, counted.monotonic) == ("sum", False, True)


def test_every_row_is_on_the_wire(agent: Listener, until: Until) -> None:
    """An Agent gets all rows with their types and tags, the namespace once, and the step's number as well."""
    collect_everything(create_metrics_collector(run_id="run_123", user_id="user_456", enable_datadog=True))
    wanted = {**TRAINING, **{f"signal.rl.{name}": GAUGE for name in RL}}
    wanted |= {f"signal.performance.{name}": kind for name, (kind, _) in PERFORMANCE.items()}
    found = arrived(agent, until, lambda lines: set(wanted) <= {line.name for line in lines})
    for name, kind in wanted.items():
        assert found[name].type == kind, name
        assert {"run_id:run_123", "user_id:user_456"} <= set(found[name].tags), name
    assert float(found["signal.rl.policy_loss"].value) == -2.3
    assert found["signal.train.step"].value == "100"
    assert not [name for name in found if "signal.signal" in name]


def test_time_operation(read: Read) -> None:
    """A block is timed, sync or async, with how it ended; what it raises goes on."""
    collector = create_metrics_collector(run_id="run_123")

    async def train() -> None:
        with collector.time_operation("forward_backward"):
            await asyncio.sleep(0)
        async with collector.time_operation("optim_step", tags=["gpu:0"]):
            await asyncio.sleep(0)

    asyncio.run(train())
    with pytest.raises(ZeroDivisionError), collector.time_operation("forward_backward"):
        1 / 0  # noqa: B018
    first, second, third = read(Metric)
    assert list(first.values) == list(third.values) == ["signal.performance.forward_backward_duration_ms"]
    assert first.values["signal.performance.forward_backward_duration_ms"] > 0
    assert (first.instrument.type, first.instrument.unit) == ("histogram", "ms")
    assert (first.attrs, third.attrs) == ({"outcome": "success"}, {"outcome": "error"})
    assert second.attrs == {"gpu": "0", "outcome": "success"}
    spans = read(Span)
    assert [(span.name, span.attrs["outcome"], span.status) for span in spans] == [
        ("forward_backward", "success", 0),
        ("optim_step", "success", 0),
        ("forward_backward", "error", 2),
    ]
    assert {span.attrs[names.ATTR_BUCKET] for span in spans} == {"productive"}
    assert collector.get_metrics_summary()["performance"]["num_metrics"] == 3


class TrainingService:
    """Stands for the client of the document's example, which is no part of it."""

    async def forward_backward(self, batch_data: list[int], loss_fn: str) -> dict[str, Any]:
        """Answer as the service does."""
        return {"loss": 0.5, "grad_norm": 1.0, "metrics": {"policy_loss": 0.1, "entropy": 2.0}}

    async def optim_step(self) -> None:
        """Answer nothing."""


def test_metrics_in_a_training_loop(read: Read, capsys: pytest.CaptureFixture[str]) -> None:
    """The document's loop runs as it stands."""
    training_client, batch = TrainingService(), [1, 2]

    async def train_with_metrics() -> None:
        run = {"run_id": "run_9"}
        collector = create_metrics_collector(
            run_id=run["run_id"],
            user_id="user_123",
            enable_datadog=True,
        )
        for step in range(20):
            with collector.time_operation("forward_backward"):
                result = await training_client.forward_backward(
                    batch_data=batch,
                    loss_fn="enhanced_ppo",
                )
            collector.collect_training_metrics(
                loss=result["loss"],
                grad_norm=result["grad_norm"],
                learning_rate=1e-5,
                step=step,
            )
            if "metrics" in result:
                metrics = result["metrics"]
                collector.collect_rl_metrics(
                    step=step,
                    policy_loss=metrics.get("policy_loss"),
                    value_loss=metrics.get("value_loss"),
                    entropy=metrics.get("entropy"),
                    kl_divergence=metrics.get("kl_divergence"),
                    clip_fraction=metrics.get("clip_fraction"),
                )
            with collector.time_operation("optim_step"):
                await training_client.optim_step()
            if step % 10 == 0:
                print(f"Step {step}: loss={result['loss']:.4f}")

    asyncio.run(train_with_metrics())
    assert capsys.readouterr().out == "Step 0: loss=0.5000\nStep 10: loss=0.5000\n"
    found = read(Metric)
    assert [each.step for each in found if "signal.training.loss" in each.values] == list(range(20))
    assert [list(each.values) for each in found if "signal.rl.entropy" in each.values] == [
        ["signal.rl.policy_loss", "signal.rl.entropy"]
    ] * 20
    run = stepscope.current_run()
    assert run is not None
    assert not [name for name in run.outcomes.snapshot() if name.startswith("rejected")]


def test_local_metrics() -> None:
    """Without Datadog, metrics are still collected and summarized."""
    collector = create_metrics_collector(
        run_id="run_123",
        enable_datadog=False,  # Disable Datadog
    )
    empty = collector.get_metrics_summary()
    assert (empty["num_metrics"], empty["last_step"], empty["last_loss"]) == (0, None, None)
    collector.collect_rl_metrics(step=7, entropy=1.0)
    assert collector.get_metrics_summary()["last_step"] == 7
    collector.collect_training_metrics(loss=0.25, grad_norm=1.0, learning_rate=1e-4, step=8)
    collector.collect_performance_metrics(queue_depth=2)
    summary = collector.get_metrics_summary()
    assert (summary["last_step"], summary["last_loss"], summary["num_metrics"]) == (8, 0.25, 3)
    assert summary["first_timestamp"] <= summary["last_timestamp"]
    assert summary["rl"]["last"]["entropy"] == 1.0
    assert summary["performance"]["last"]["queue_depth"] == 2
    collector.metrics_history.clear()
    assert collector.get_metrics_summary()["num_metrics"] == 0
    run = stepscope.current_run()
    assert run is not None
    assert run.settings.sinks == ()


def test_history_is_bounded() -> None:
    """Memory does not grow with the run; the number of metrics still tells all of them."""
    collector = create_metrics_collector(run_id="long", enable_datadog=False)
    for step in range(10_500):
        collector.collect_custom_metrics({"my_metric": step}, step=step)
    summary = collector.get_metrics_summary()
    assert (len(collector.metrics_history), summary["num_metrics"], summary["in_history"]) == (10_000, 10_500, 10_000)
    assert collector.metrics_history[0]["step"] == 500


def test_tensors_are_welcome(read: Read) -> None:
    """Tensors are accepted without keeping their autograd graph."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    weight = torch.ones(3, requires_grad=True)
    collector = create_metrics_collector(run_id="tensors")
    collector.collect_training_metrics(loss=(weight * 2).sum(), grad_norm=torch.tensor(1.5), learning_rate=0.1, step=1)
    assert by_key(read(Metric))["signal.training.loss"].values["signal.training.loss"] == 6.0
    assert collector.get_metrics_summary()["last_loss"] == 6.0
    assert collector._loss.grad_fn is None


def test_collectors_of_two_runs(read: Read) -> None:
    """A second collector writes to the run of the first, and says which run its records are of."""
    first = create_metrics_collector(run_id="one")
    second = create_metrics_collector(run_id="two", user_id="u")
    first.collect_custom_metrics({"x": 1})
    second.collect_custom_metrics({"x": 2}, tags=["a:1", "a:2", "bare"])
    assert [record.attrs for record in read(Metric)] == [
        {},
        {"run_id": "two", "user_id": "u", "a": ["1", "2"], "bare": ""},
    ]


def test_metrics_may_be_called_anything() -> None:
    """One with the name of a field of the history costs only itself there."""
    collector = create_metrics_collector(run_id="named", enable_datadog=False)
    odd = {"family": 3.0, "timestamp": 4.0, "step": 5.0, "own": 6.0}
    collector.collect_training_metrics(loss=0.5, step=1, extra_metrics=odd)
    summary = collector.get_metrics_summary()
    assert (summary["training"]["num_metrics"], summary["last_step"]) == (1, 1)
    assert summary["training"]["last"]["own"] == 6.0
    assert collector.metrics_history[0]["family"] == "training"


@pytest.mark.parametrize("step", ["abc", 3.0, 2**70])
def test_an_invalid_step_is_dropped_alone(read: Read, step: Any) -> None:
    """The values are kept without a step, the step is counted once, and the last step stays."""
    collector = create_metrics_collector(run_id="odd", enable_datadog=False)
    collector.collect_training_metrics(loss=0.5, step=7)
    collector.collect_training_metrics(loss=0.25, grad_norm=1.0, step=step)
    found = [(each.step, each.values) for each in read(Metric)]
    assert found[2:] == [
        (None, {"signal.training.loss": 0.25, "signal.training.grad_norm": 1.0}),
        (None, {"signal.training.step": 1}),
    ]
    assert collector.get_metrics_summary()["last_step"] == 7
    run = stepscope.current_run()
    assert run is not None
    rejected = {name: count for name, count in run.outcomes.snapshot().items() if name.startswith("rejected")}
    assert list(rejected.values()) == [1]


def test_calls_after_the_end_are_counted() -> None:
    """Each call after the end is counted once in the ended run."""
    collector = create_metrics_collector(run_id="over", enable_datadog=False)
    run = stepscope.current_run()
    assert run is not None
    stepscope.finish()
    collector.collect_training_metrics(loss=0.5, step=1)
    collector.collect_rl_metrics(step=1, entropy=1.0)
    collector.collect_performance_metrics(queue_depth=1, optim_step_duration_ms=2.0)
    collector.collect_custom_metrics({"x": 1})
    collector.send_event("a", "b")
    with collector.time_operation("x"):
        pass
    assert run.outcomes.snapshot()["rejected/call/after finish"] == 6


def test_runs_stay_apart_on_the_wire(agent: Listener, until: Until) -> None:
    """A second collector's records are found under its own id, whatever that looks like, and under no other."""
    first, second = create_metrics_collector(run_id="run_A"), create_metrics_collector(run_id="team/run:B 2")
    for collector in (first, second):
        collector.collect_training_metrics(loss=0.5, grad_norm=1.0, learning_rate=1e-4, step=3)
        collector.send_event("Milestone", "reached\n1000 | steps", "success")
    until(lambda: len([line for line in agent.metrics() if line.name == "signal.train.step"]) >= 2)
    runs: dict[str, list[list[str]]] = {}
    for line in agent.metrics():
        runs.setdefault(line.name, []).append([tag for tag in line.tags if tag.startswith("run_id:")])
    for name in ("signal.training.loss", "signal.training.step", "signal.train.step"):
        assert runs[name] == [["run_id:run_A"], ["run_id:team/run:B_2"]], name


def test_an_event_as_the_client_itself_sends_it(agent: Listener, until: Until) -> None:
    """Title and text, with their lengths, are the bytes that Datadog's own client sends."""
    dogstatsd: Any = pytest.importorskip("datadog.dogstatsd.base")
    client = dogstatsd.DogStatsd(host="127.0.0.1", port=agent.port, disable_telemetry=True)
    title, text = "Training Milestone Reached", "Model reached 1000 steps\nwith loss | 0.1250 é"
    client.event(title, text, alert_type="success", tags=["run_id:run_1", "milestone:1000"])
    collector = create_metrics_collector(run_id="run_1")
    collector.send_event(title, text, "success", tags=["milestone:1000"])
    until(lambda: len([line for line in agent.read() if line.startswith("_e")]) >= 2)
    theirs, ours = [line for line in agent.read() if line.startswith("_e")]
    head = theirs[: theirs.index("|t:success")]
    assert ours.startswith(f"{head}|d:")
    assert "|t:success|#" in ours
    assert set(theirs.rpartition("|#")[2].split(",")) <= set(ours.rpartition("|#")[2].split(","))


@pytest.mark.parametrize(
    ("title", "labels"),
    [
        ("KL divergence", {0.01: "normal", 0.07: "warning", 0.2: "critical"}),
        ("Clip fraction", {0.05: "too low", 0.2: "best", 0.6: "too high"}),
        ("Explained variance", {0.4: "poor", 0.6: "acceptable", 0.8: "good"}),
    ],
)
def test_the_dashboard_says_what_is_normal(title: str, labels: dict[float, str]) -> None:
    """The bands of the RL dashboard are those of the document."""
    yaml: Any = pytest.importorskip("yaml")
    content = yaml.safe_load((Path(stepscope.__file__).parent / "hub/dashboards/builtin/rl.yaml").read_text())
    (chart,) = [each for each in content["charts"] if each["title"] == title]
    for value, label in labels.items():
        inside = [band for band in chart["bands"] if band.get("from", -1) <= value < band.get("to", 2)]
        assert [band["label"] for band in inside] == [label]
