"""The document of the RL trainer's dual pipeline: its settings, categories, step fields, labels and keys."""

import argparse
import logging
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import stepscope
from stepscope.model.records import Event, Log, Metric, Span
from stepscope.testing import read_run
from stepscope.training import DistInfo, MetricRegistry, TrainingContext
from tests.training.conftest import Mute, Read


@pytest.fixture
def context(place: Path) -> Iterator[TrainingContext]:
    """A context with nothing configured."""
    made = TrainingContext.initialize({"learning_rate": 3e-4}, algorithm="ppo")
    yield made
    made.finish()


def keys(records: list[Any]) -> list[str]:
    """The keys of metrics."""
    return [key for record in records for key, _ in record.points()]


def test_initialization_path(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A binary loads its arguments, resolves who it is, initializes and trains; all of it is in the run."""
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    parser = argparse.ArgumentParser()
    parser.add_argument("--gamma", type=float, default=0.99)
    parser.add_argument("--otlp-endpoint", default=None)
    args = parser.parse_args([])
    dist = DistInfo.resolve()
    context = TrainingContext.initialize(args, dist, algorithm="spo")
    assert (context.dist.rank, context.dist.world_size, context.dist.is_main) == (1, 2, False)
    context.emit("TRAINER", policy_version=1, actor_loss=0.5)
    run = context.run
    context.finish()
    assert (run.rank, run.settings.service_name) == (1, "spo")
    (started,) = [each for each in read_run(place, run.id) if isinstance(each, Event) and "config" in each.attrs]
    assert started.attrs["config"]["gamma"] == 0.99


@pytest.mark.parametrize(
    ("word", "key"),
    [
        ("TRAINER", "trainer/x"),
        ("train", "trainer/x"),
        ("ACTOR", "actor/x"),
        ("Act", "actor/x"),
        ("EVALUATOR", "evaluator/x"),
        ("eval", "evaluator/x"),
        ("MISC", "misc/x"),
        ("whatever", "misc/x"),
        (None, "misc/x"),
        (17, "misc/x"),
    ],
)
def test_categories_and_prefixes(context: TrainingContext, read: Read, word: Any, key: str) -> None:
    """Each category has its prefix; aliases and case are ignored, and unknown categories are under misc."""
    context.emit(word, step=1, x=1.0)
    assert keys(read(Metric)) == [key]


@pytest.mark.parametrize("field", ["category", "telemetry"])
def test_the_category_may_be_a_field(context: TrainingContext, read: Read, field: str) -> None:
    """`telemetry` means `category`, in metrics as everywhere."""
    context.emit(None, {field: "ACTOR", "timesteps": 4, "mean_return": 1.0})
    assert keys(read(Metric)) == ["actor/mean_return"]


def test_only_numbers_are_metrics(context: TrainingContext, read: Read) -> None:
    """Truth values, texts and objects stay on the event; the numbers are exported, NaN among them."""
    numpy = pytest.importorskip("numpy")
    odd = {"ok": True, "flag": numpy.bool_(True), "name": "ppo", "none": None, "many": [1, 2], "other": object()}
    good = {"a": 1, "b": 2.5, "c": numpy.float32(0.5), "d": math.nan, "e": numpy.array([3])}
    context.emit("TRAINER", {**odd, **good, "step": 3})
    (metric,) = read(Metric)
    assert sorted(metric.values) == ["a", "b", "c", "d", "e"]
    assert math.isnan(metric.values["d"])
    assert not [name for name in context.run.outcomes.snapshot() if name.startswith("rejected")]


@pytest.mark.parametrize("name", ["timesteps", "policy_version", "step", "global_step", "update"])
def test_step_fields(context: TrainingContext, read: Read, name: str) -> None:
    """Each accepted name gives the step, and the name is kept as its axis."""
    context.emit("TRAINER", {name: 7, "loss": 1.0})
    (metric,) = read(Metric)
    assert (metric.step, metric.axis, list(metric.values)) == (7, None if name == "step" else name, ["loss"])


def test_precedence_of_step_fields(context: TrainingContext, read: Read) -> None:
    """The order does not depend on how an event was written; the weaker step is a number like any other."""
    context.emit("TRAINER", timesteps=4096, policy_version=3, actor_loss=0.1)
    context.emit("EVALUATOR", policy_version=3, timesteps=4096, mean_return=0.1)
    first, second = read(Metric)
    assert (first.step, first.axis) == (second.step, second.axis) == (3, "policy_version")
    assert first.values["timesteps"] == second.values["timesteps"] == 4096


def test_a_float_is_no_step(context: TrainingContext, read: Read) -> None:
    """A float in a step field is a metric, as in the original; another field is the step."""
    context.emit("TRAINER", step=1.5, update=2)
    (metric,) = read(Metric)
    assert (metric.step, metric.axis, metric.values) == (2, "update", {"step": 1.5})


def test_no_step_no_metric(context: TrainingContext, read: Read) -> None:
    """Such an event is counted and kept as an event; inside a step that one counts."""
    context.emit("MISC", message="saved checkpoint", checkpoint_step=5, path="/tmp/x")
    context.emit("MISC", message="startup", step=0, seed=7)
    assert read(Metric) == []
    assert context.run.outcomes.snapshot()["rejected/metrics/no step"] == 1
    names = [event.name for event in read(Event)]
    assert "saved checkpoint" in names
    with context.step(9, "policy_version"):
        context.emit("TRAINER", loss=1.0)
    (metric,) = read(Metric)
    assert (metric.step, metric.axis) == (9, "policy_version")


def test_events_are_on_the_span_they_happen_in(context: TrainingContext, read: Read) -> None:
    """The trace has all fields, texts too; the metrics have the numbers."""
    with context.span("rollout"):
        context.emit("ACTOR", timesteps=128, mean_return=2.0, env="cartpole")
    (span,) = read(Span)
    (noted,) = span.events
    assert noted.attrs == {"category": "ACTOR", "timesteps": 128, "mean_return": 2.0, "env": "cartpole"}
    assert keys(read(Metric)) == ["actor/mean_return"]


@pytest.mark.parametrize(
    ("level", "recorded"),
    [("trace", 4), ("debug", 3), ("warn", 2), ("error", 1), ("off", 0), (25, 2), ("info,h2=off", 2), ("loud", 2)],
)
def test_log_levels(read: Read, caplog: pytest.LogCaptureFixture, level: Any, recorded: int) -> None:
    """A trainer's `log_level` may be a word of any language; an unknown one gives a warning and raises nothing."""
    logger = logging.getLogger("trainer")
    with caplog.at_level(1, "trainer"), TrainingContext.initialize({"logging": {"log_level": level}}) as context:
        for number in (5, logging.DEBUG, logging.WARNING, logging.ERROR):
            logger.log(number, "line")
        assert len([each for each in read(Log) if each.scope == "trainer"]) == recorded
        told = " ".join([*context.run.outcomes.take_notices(), caplog.text])
        assert ("not a known level" in told) == (level == "loud")


def test_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Defaults and the variable name metrics on the console, and nowhere else."""
    monkeypatch.setenv("RUST_RL_METRIC_LABELS", "global_grad_norm=Grad Norm,steps_per_second=SPS, =x,odd,y=")
    registry = MetricRegistry()
    assert registry.label("global_grad_norm") == "Grad Norm"
    assert registry.label("steps_per_second") == "SPS"
    assert registry.label("critic_loss") == "Critic loss"
    assert registry.label("mpo_alpha_loss") == "Mpo alpha loss"
    registry.register("mpo_alpha_loss", "Alpha")
    line = registry.line("train", {"global_grad_norm": 2.3, "mpo_alpha_loss": 0.0, "critic_loss": 1e-5})
    assert line == "TRAINER - Grad Norm: 2.300000 | Alpha: 0 | Critic loss: 1.000000e-05"
    assert registry.line("x", {}) == "MISC - No metrics"


def test_labels_reach_the_console(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A context with a console prints lines with these labels; keys stay as they are."""
    monkeypatch.setenv("RUST_RL_METRIC_LABELS", "loss=Verlust")
    context = TrainingContext.initialize(console=True)
    context.emit("TRAINER", step=1, loss=0.5)
    context.finish(wait=20)
    assert "TRAINER - Verlust: 0.500000" in capfd.readouterr().out


def test_evaluator_schema(context: TrainingContext, read: Read) -> None:
    """Evaluations of all algorithms have the same eight keys."""
    context.evaluation([1.0, 3.0], [10, 20], duration_ms=12.5, policy_version=4)
    (metric,) = read(Metric)
    assert metric.values == {
        "episodes": 2,
        "mean_return": 2.0,
        "max_return": 3.0,
        "min_return": 1.0,
        "episode_length_mean": 15.0,
        "episode_length_max": 20.0,
        "episode_length_min": 10.0,
        "duration_ms": 12.5,
    }
    assert (metric.category, metric.step, metric.axis) == ("evaluator", 4, "policy_version")
    context.evaluation([], [], duration_ms=1.0, policy_version=5)
    assert math.isnan(read(Metric)[-1].values["mean_return"])


def test_bad_input_is_counted(context: TrainingContext) -> None:
    """Nothing raises: odd fields, odd categories, calls after the end."""
    context.emit("TRAINER", "no mapping")  # type: ignore[arg-type]
    context.emit("nonsense", step=1, x=1)
    context.emit("TRAINER", step=2**70, x=1)
    context.evaluation(["x"], [1], duration_ms=1)  # type: ignore[list-item]
    run = context.run
    context.finish()
    context.emit("TRAINER", step=1, x=1.0)
    context.finish()
    counts = run.outcomes.snapshot()
    assert counts["unknown/category/misc"] == 1
    assert counts["rejected/call/after finish"] == 1
    assert counts["rejected/metrics/no step"] == 1
    assert sum(count for name, count in counts.items() if name.startswith("rejected/value")) == 2


def test_wrong_configuration_raises() -> None:
    """Only ConfigError is raised, as from `stepscope.init`."""
    with pytest.raises(stepscope.ConfigError):
        TrainingContext.initialize({"otlp_endpoint": "file:///x"})
    with pytest.raises(stepscope.ConfigError):
        TrainingContext.initialize(17)


def test_a_nested_context_joins(context: TrainingContext, read: Read) -> None:
    """A second context in the same process writes to the same run."""
    inner = TrainingContext.initialize({"otlp_endpoint": "http://127.0.0.1:1"})
    assert inner.run is context.run
    inner.emit("ACTOR", step=1, x=1.0)
    assert keys(read(Metric)) == ["actor/x"]


def test_who_began_the_run_ends_it(context: TrainingContext, read: Read) -> None:
    """A context that joined writes out what it has and tells what it raised; the run goes on for the first."""
    joined = TrainingContext.initialize()
    joined.emit("ACTOR", step=1, x=1.0)
    joined.finish("failed")
    joined.emit("ACTOR", step=2, x=1.0)
    with pytest.raises(ArithmeticError), TrainingContext.initialize():
        raise ArithmeticError("diverged")
    assert stepscope.current_run() is context.run
    assert context.run.status == "running"
    context.emit("TRAINER", step=2, loss=1.0)
    assert keys(read(Metric)) == ["actor/x", "trainer/loss"]
    assert [each.attrs["exception.type"] for each in read(Event) if each.name == "exception"] == ["ArithmeticError"]
    context.finish()
    assert stepscope.current_run() is None


def test_calls_after_the_end_are_counted(context: TrainingContext) -> None:
    """Steps and spans as well, whichever code ended the run; the blocks still run."""
    run, done = context.run, []
    stepscope.finish()
    with context.step(1), context.span("x"):
        done.append(1)
    context.finish()
    with context.step(2), context.span("y"):
        done.append(2)
    context.emit("TRAINER", step=1, x=1.0)
    assert done == [1, 2]
    assert run.outcomes.snapshot()["rejected/call/after finish"] == 5


def test_a_line_of_anything() -> None:
    """Numbers of every make, texts, objects without one, and what is no mapping."""
    numpy = pytest.importorskip("numpy")
    registry = MetricRegistry()
    odd = {"x": "text", "y": numpy.float32(0.5), "z": None, 3: Mute(), "n": True}
    assert registry.line("TRAINER", odd) == "TRAINER - X: text | Y: 0.500000 | Z: None | 3: <Mute> | N: 1"  # type: ignore[arg-type]
    with TrainingContext.initialize(registry=registry) as context:
        assert context.line("TRAINER", {"x": "str"}) == "TRAINER - X: str"
        assert context.line("TRAINER", 5) == "TRAINER - No metrics"


def test_labels_of_a_config_and_of_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the config stand above the variables and below those of a registry, which has them all."""
    monkeypatch.setenv("RUST_RL_METRIC_LABELS", "a=first,b=first,c=first,d=first")
    monkeypatch.setenv("STEPSCOPE_METRIC_LABELS", "b=second,c=second,d=second")
    registry = MetricRegistry({"d": "code"})
    config = {"metric_labels": {"c": "config", "d": "config"}}
    with TrainingContext.initialize(config, registry=registry) as context:
        assert [context.registry.label(key) for key in "abcd"] == ["first", "second", "config", "code"]
        assert context.registry is registry


def test_disabled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every call does nothing."""
    monkeypatch.setenv("STEPSCOPE_DISABLED", "1")
    with TrainingContext.initialize() as context:
        context.emit("TRAINER", step=1, x=1.0)
        with context.step(1), context.span("x"):
            pass
