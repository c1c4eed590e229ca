"""The client of the Datadog document: its examples, every type on the wire and in the journal, and bad input."""

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stepscope
from stepscope.model import names
from stepscope.model.records import Event, Metric
from stepscope.testing import read_run
from stepscope.training.collector import MetricsCollector, create_metrics_collector
from stepscope.training.collector.datadog import DatadogMetrics, get_metrics_client
from stepscope.wire import foreign_names
from tests.dialects.datadog.sink.dogstatsd_listener import Listener
from tests.training.conftest import Mute, Read, Until, arrived, broken, by_key, of_user


@pytest.fixture
def metrics(agent: Listener) -> DatadogMetrics:
    """The client of the document's configuration."""
    return DatadogMetrics(
        enabled=True,
        api_key="your-api-key",
        app_key="your-app-key",
        namespace="signal",  # Metric prefix
        constant_tags=["env:production", "team:ml"],
    )


def test_custom_metrics_and_types(metrics: DatadogMetrics, agent: Listener, until: Until) -> None:
    """Each call arrives as its type, with constant and own tags, and the namespace once."""
    metrics.gauge("signal.custom.my_metric", 42.0, tags=["run_id:123"])
    metrics.histogram("signal.custom.latency_ms", 125.3)
    metrics.increment("signal.custom.event_count", value=1)
    metrics.decrement("signal.custom.open", value=2)
    metrics.distribution("signal.performance.forward_backward_duration_ms", 12.0)
    metrics.timing("custom.timing", 7)
    metrics.set("custom.users", "ann b")
    metrics.set_metric("custom.hosts", "h1")
    metrics.gauge("test.metric", 1.0)
    found = arrived(agent, until, lambda lines: any(line.name == "signal.test.metric" for line in lines))
    seen = {name: (line.type, line.value if line.type == "s" else float(line.value)) for name, line in found.items()}
    assert {name: line for name, line in seen.items() if ".stepscope." not in name} == {
        "signal.custom.my_metric": ("g", 42.0),
        "signal.custom.latency_ms": ("h", 125.3),
        "signal.custom.event_count": ("c", 1.0),
        "signal.custom.open": ("c", -2.0),
        "signal.performance.forward_backward_duration_ms": ("d", 12.0),
        "signal.custom.timing": ("ms", 7.0),
        "signal.custom.users": ("s", "ann b"),
        "signal.custom.hosts": ("s", "h1"),
        "signal.test.metric": ("g", 1.0),
    }
    assert set(found["signal.custom.my_metric"].tags) == {"env:production", "team:ml", "run_id:123"}
    assert set(found["signal.test.metric"].tags) == {"env:production", "team:ml"}, "no tag of its own: each is billed"


def test_the_run_of_the_caller_is_kept(agent: Listener, until: Until) -> None:
    """A `run_id` that the caller wrote is a tag of gauges, a collector's metrics and checks, without `run_tag`."""
    stepscope.init(sinks=[{"datadog": {"namespace": "signal"}}], run_id="other", otel=False)
    metrics, collector = DatadogMetrics(), create_metrics_collector(run_id="run_123")
    metrics.gauge("custom.mine", 1.0, tags=["run_id:123"])
    metrics.gauge("custom.plain", 1.0)
    collector.collect_training_metrics(loss=0.5, step=1)
    metrics.service_check("rl.kl", "OK", tags=["run_id:123", "text:no message", "message:none", "team:ml"])
    until(lambda: any(line.startswith("_sc|rl.kl") for line in agent.read()))
    found = arrived(agent, until, lambda lines: any(line.name == "signal.training.loss" for line in lines))
    assert found["signal.custom.mine"].tags == ["run_id:123"]
    assert found["signal.custom.plain"].tags == []
    assert found["signal.training.loss"].tags == ["run_id:run_123"]
    (check,) = [line for line in agent.read() if line.startswith("_sc|rl.kl")]
    assert check.partition("|#")[2] == "run_id:123,text:no_message,message:none,team:ml", "no message is made of tags"


def test_events_and_checks(metrics: DatadogMetrics, agent: Listener, until: Until) -> None:
    """The document's alerts arrive as events and service checks, with no namespace."""
    kl_divergence, run_id, loss = 0.2, "run_1", 0.125
    if kl_divergence > 0.1:
        metrics.event(
            title="High KL Divergence Detected",
            text=f"KL divergence {kl_divergence:.4f} exceeds threshold 0.1",
            alert_type="warning",
            tags=[f"run_id:{run_id}"],
        )
        metrics.service_check(
            check_name="rl.kl_divergence",
            status="CRITICAL",
            message=f"KL divergence {kl_divergence:.4f} exceeds 0.1",
            tags=[f"run_id:{run_id}"],
        )
    metrics.event(
        title="Training Milestone Reached",
        text=f"Model reached 1000 steps with loss {loss:.4f}",
        alert_type="success",
        tags=[f"run_id:{run_id}", "milestone:1000"],
    )
    until(lambda: any("Milestone" in line for line in agent.read()))
    lines = agent.read()
    (warning,) = [line for line in lines if "High KL Divergence" in line]
    assert "exceeds threshold 0.1" in warning
    assert "|t:warning" in warning
    assert "run_id:run_1" in warning
    (milestone,) = [line for line in lines if "Training Milestone" in line]
    assert "|t:success" in milestone
    assert "milestone:1000" in milestone
    (check,) = [line for line in lines if line.startswith("_sc|")]
    assert re.match(r"_sc\|rl\.kl_divergence\|2\|", check)
    assert "m:KL divergence 0.2000 exceeds 0.1" in check


def test_events_are_in_the_journal(run: stepscope.Run, read: Read) -> None:
    """Events have text, alert type and tags; an unknown check status is UNKNOWN."""
    metrics = DatadogMetrics()
    metrics.event("T", "text", "nonsense", ["a:b"])
    for status in ("ok", 1, "CRITICAL", "strange", None):
        metrics.service_check("c", status)
    create_metrics_collector(run_id=run.id, user_id="u").send_event("S", "x", "error")
    event, *checks, sent = [each for each in read(Event) if not each.name.startswith("train.run")]
    assert event.attrs == {"a": "b", "text": "text", "datadog.alert_type": "info"}
    words = [each.attrs[foreign_names.ATTR_CHECK_STATUS] for each in checks]
    assert words == ["OK", "WARNING", "CRITICAL", "UNKNOWN", "UNKNOWN"]
    assert (sent.severity, sent.attrs["user_id"]) == (17, "u")


def test_sampling(run: stepscope.Run, read: Read) -> None:
    """The client samples, and the record has the sample rate."""
    draws = iter([0.05, 0.5, 0.0999, 0.1])
    metrics = DatadogMetrics(chance=lambda: next(draws))
    for duration_ms in range(4):
        metrics.histogram(
            "signal.performance.forward_backward_duration_ms",
            duration_ms,
            sample_rate=0.1,  # 10% sampling
        )
    metrics.gauge("always", 1, sample_rate=1.0)
    metrics.gauge("odd", 1, sample_rate="x")  # type: ignore[arg-type]
    found = read(Metric)
    assert [next(iter(each.values.values())) for each in found] == [0, 2, 1, 1]
    assert [each.attrs.get(names.ATTR_SAMPLE_RATE) for each in found] == [0.1, 0.1, None, None]
    assert run.outcomes.snapshot()["rejected/sample_rate/str"] == 1


def test_timed(run: stepscope.Run, read: Read) -> None:
    """Functions, coroutines and blocks are timed in milliseconds, also when they raise."""
    metrics = DatadogMetrics()

    @metrics.timed("f", tags=["a:b"])
    def work(x: int) -> int:
        """Work."""
        return 1 // x

    @metrics.timed("g")
    async def later() -> int:
        return 2

    assert (work(1), asyncio.run(later()), work.__doc__) == (1, 2, "Work.")
    with pytest.raises(ZeroDivisionError):
        work(0)
    with metrics.timed("h"):
        pass
    found = read(Metric)
    assert [next(iter(each.values)) for each in found] == ["signal.f", "signal.g", "signal.f", "signal.h"]
    assert {each.instrument.type for each in found} == {"timing"}
    assert found[0].attrs == {"a": "b"}


def test_bad_input_is_counted(run: stepscope.Run, read: Read) -> None:
    """Wrong names, values, tags and steps cost themselves only."""
    metrics = DatadogMetrics()
    metrics.gauge(17, 1.0)  # type: ignore[arg-type]
    metrics.gauge("text", "x")
    metrics.decrement("text", "x")
    metrics.gauge("good", 1.0, tags=17)
    collector = create_metrics_collector(run_id=run.id)
    collector.collect_training_metrics(loss="bad", grad_norm=1.0, learning_rate=None, step="x")  # type: ignore[arg-type]
    collector.collect_training_metrics(loss=1, grad_norm=1.0, step=1, extra_metrics=[1])  # type: ignore[arg-type]
    collector.collect_custom_metrics({"nested": {"a": 1}, "bad": object()})
    keys = [key for each in read(Metric) for key in each.values]
    assert keys == [
        "signal.good",
        "signal.training.grad_norm",
        "signal.training.step",
        "signal.training.loss",
        "signal.training.grad_norm",
        "signal.training.step",
        "signal.custom.nested/a",
    ]
    counts = run.outcomes.snapshot()
    assert sum(count for name, count in counts.items() if name.startswith("rejected/value")) == 6
    assert sum(count for name, count in counts.items() if name.startswith(("rejected/extra_", "rejected/metrics"))) == 1


def test_counting_down_is_negative_whatever_counts(run: stepscope.Run, read: Read) -> None:
    """Unsigned numbers and truth values of numpy and torch have a negative here."""
    metrics = DatadogMetrics()
    given: list[Any] = [1, 2.5, True, np.uint8(1), np.bool_(True), np.array([3], dtype=np.uint16)]
    for value in given:
        metrics.decrement("open", value)
    assert [each.values["signal.open"] for each in read(Metric)] == [-1, -2.5, -1, -1, -1, -3]
    torch = pytest.importorskip("torch", reason="torch is not installed")
    for value in (torch.tensor(True), torch.tensor(200, dtype=torch.uint8)):
        metrics.decrement("open", value)
    assert [each.values["signal.open"] for each in read(Metric)[len(given) :]] == [-1, -200]
    assert not [name for name in run.outcomes.snapshot() if name.startswith("rejected")]


def test_objects_that_raise_when_read_cost_themselves(run: stepscope.Run, read: Read) -> None:
    """Tags, titles, statuses and members that have no text are named by their type; a broken generator is counted."""
    metrics, mute = DatadogMetrics(constant_tags=[mute_tag := Mute()]), Mute()  # type: ignore[list-item]
    assert metrics.constant_tags == {"<Mute>": ""}
    metrics.gauge("a", 1.0, tags=[mute_tag], sample_rate=mute)  # type: ignore[arg-type]
    metrics.gauge("b", 1.0, tags=broken())
    metrics.gauge("c", 1.0, tags={mute: mute})
    metrics.set("d", mute)
    metrics.event(mute, mute, mute, [mute])  # type: ignore[arg-type]
    metrics.service_check(mute, mute, message=mute)  # type: ignore[arg-type]
    collector = create_metrics_collector(mute, mute)  # type: ignore[arg-type]
    collector.collect_custom_metrics({mute: 1}, tags=broken(), step=mute)  # type: ignore[dict-item, arg-type]
    with collector.time_operation("x", tags=[mute]):
        pass
    found = by_key(read(Metric))
    assert {"signal.a", "signal.b", "signal.c", "signal.d", "signal.custom.<Mute>"} <= set(found)
    assert found["signal.custom.<Mute>"].attrs == {"run_id": "<Mute>", "user_id": "<Mute>"}
    assert [each.name for each in read(Event) if not each.name.startswith("train.run")] == ["<Mute>", "<Mute>"]
    assert run.outcomes.snapshot()["rejected/tags/RuntimeError"] == 2


def test_nothing_is_recorded_where_nothing_is_asked_for(place: Path) -> None:
    """Without a run, and with `enabled=False`, calls do nothing; no run is started."""
    for metrics in (DatadogMetrics(), DatadogMetrics(enabled=False), get_metrics_client()):
        metrics.gauge("x", 1.0)
        metrics.event("a", "b")
        metrics.service_check("a", "OK")
    assert stepscope.current_run() is None
    run = stepscope.init(otel=False)
    DatadogMetrics(enabled=False).gauge("x", 1.0)
    run.finish()
    MetricsCollector.collect_custom_metrics(_collector_after_the_end(), {"x": 1})
    assert of_user(read_run(place, run.id), Metric) == []


def _collector_after_the_end() -> MetricsCollector:
    collector = create_metrics_collector(run_id="over")
    stepscope.finish()
    return collector


def test_a_wrong_destination_does_not_stop_training(place: Path, read: Read) -> None:
    """Recording continues without it."""
    metrics = DatadogMetrics(enabled=True, host="localhost", port=99999999)
    metrics.gauge("x", 1.0)
    assert by_key(read(Metric)).keys() == {"signal.x"}


def test_sinks_of_the_settings_stay(monkeypatch: pytest.MonkeyPatch, agent: Listener) -> None:
    """Configured sinks are kept in addition to Datadog; a configured Datadog sink is replaced by the one in code."""
    monkeypatch.setenv("STEPSCOPE_SINKS", "console,datadog")
    DatadogMetrics(enabled=True, namespace="other")
    run = stepscope.current_run()
    assert run is not None
    assert [(each.name, getattr(each.config, "namespace", "")) for each in run.settings.sinks] == [
        ("console", ""),
        ("datadog", "other"),
    ]


def test_each_client_has_its_namespace(agent: Listener, until: Until) -> None:
    """It is the metric's prefix, whatever the sink puts in front of other metrics."""
    create_metrics_collector("run_1").collect_custom_metrics({"n": 1})
    DatadogMetrics(namespace="other").gauge("x", 1)
    DatadogMetrics(namespace="other").gauge("other.y", float("nan"))
    DatadogMetrics(namespace="").gauge("plain", 1)
    DatadogMetrics().gauge("z", 1)
    found = arrived(agent, until, lambda lines: any(line.name == "signal.z" for line in lines))
    assert {"signal.custom.n", "other.x", "plain", "signal.z"} <= set(found)
    assert "metric:other.y" in found["signal.non_finite"].tags
    assert not [each for line in found.values() for each in line.tags if "namespace" in each]


def test_a_namespace_is_noted_only_where_it_is_needed(run: stepscope.Run, read: Read) -> None:
    """The attribute is set only if a sink would add a different namespace."""
    DatadogMetrics(namespace="other").gauge("x", 1)
    assert read(Metric)[0].attrs == {}


def test_generators_are_timed_to_their_end(run: stepscope.Run, read: Read) -> None:
    """Generators are timed until their end, not only their creation."""
    metrics = DatadogMetrics()

    @metrics.timed("g")
    def items() -> Iterator[int]:
        assert read(Metric) == []
        yield 1

    assert list(items()) == [1]
    assert [next(iter(each.values)) for each in read(Metric)] == ["signal.g"]
