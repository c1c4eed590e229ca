"""The document of a traced training loop: its functions, spans, attributes, errors, in the journal and on the wire."""

import asyncio
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import stepscope
from stepscope.model.records import Span
from stepscope.testing import read_run
from stepscope.training.tracing import (
    TracingContext,
    get_tracer,
    setup_tracing,
    trace_batch_processing,
    trace_data_loading,
    trace_feature_engineering,
    trace_function,
    trace_training_epoch,
    trace_validation,
)
from tests.sinks.servers import Server
from tests.training.conftest import Read, of_user

TASKS = ("dir", "vol", "trend", "vol_regime", "candle")
VALIDATION = ("dir_acc", "vol_acc", "trend_acc", "vol_regime_acc", "candle_acc", "ret_rmse", "close_rmse")
Until = Callable[..., None]


@pytest.fixture
def collector() -> Iterator[Server]:
    """An OTLP server."""
    server = Server()
    yield server
    stepscope.finish()
    server.stop()


def train_multitask(tracer: Any, epochs: int = 2, batches: int = 3) -> None:
    """A loop as the document instruments it."""
    for epoch in range(1, epochs + 1):
        with trace_training_epoch(tracer, epoch, epochs) as epoch_span:
            for index in range(batches):
                with trace_batch_processing(tracer, index, 32) as batch_span:
                    batch_span.set_attribute("loss", 1.0 / (index + 1))
                    for task in TASKS:
                        batch_span.set_attribute(f"task.{task}", 0.1)
                epoch_span.set_attribute(f"loss_at_step_{index}", 1.0 / (index + 1))
            with trace_validation(tracer) as span:
                span.set_attribute("val_loss", 0.4)
                span.set_attribute("val_metric", 0.9)
                for measure in VALIDATION:
                    span.set_attribute(f"val.{measure}", 0.5)
            epoch_span.set_attribute("train_loss", 0.5)
            epoch_span.set_attribute("val_loss", 0.4)
            epoch_span.set_attribute("val_metric", 0.9)


def by_name(spans: list[Span], name: str) -> list[Span]:
    """The spans of a name."""
    return [span for span in spans if span.name == name]


def test_every_attribute_and_the_hierarchy(read: Read) -> None:
    """Epochs hold their batches and validations, each with the attributes of its table."""
    setup_tracing("sequence-multitask-training", None)
    train_multitask(get_tracer(__name__))
    spans = read(Span)
    epochs, batches, validations = (by_name(spans, n) for n in ("training_epoch", "batch_processing", "validation"))
    assert (len(epochs), len(batches), len(validations), len(spans)) == (2, 6, 2, 10)
    assert [span.attrs["epoch"] for span in epochs] == [1, 2]
    assert set(epochs[0].attrs) == {
        *("epoch", "total_epochs", "train_loss", "val_loss", "val_metric"),
        *(f"loss_at_step_{index}" for index in range(3)),
    }
    assert [span.parent_id for span in batches] == [epochs[0].span_id] * 3 + [epochs[1].span_id] * 3
    assert [span.trace_id for span in validations] == [epoch.trace_id for epoch in epochs]
    assert [span.parent_id for span in validations] == [epoch.span_id for epoch in epochs]
    assert all(epoch.parent_id is None for epoch in epochs)
    expected = {"batch_index", "batch_size", "loss", "train.bucket", *(f"task.{task}" for task in TASKS)}
    assert set(batches[0].attrs) == expected
    assert (batches[1].attrs["batch_index"], batches[1].attrs["batch_size"]) == (1, 32)
    expected = {"epoch", "val_loss", "val_metric", "train.bucket", *(f"val.{name}" for name in VALIDATION)}
    assert [span.attrs["epoch"] for span in validations] == [1, 2]
    assert set(validations[0].attrs) == expected
    assert {span.scope for span in spans} == {__name__}


def test_data_pipeline(read: Read) -> None:
    """Loading and features have spans of their own."""
    setup_tracing(otlp_endpoint=None)
    tracer = get_tracer(__name__)
    with trace_data_loading(tracer, "gbpusd", 1000), trace_feature_engineering(tracer, "gbpusd", 42):
        pass
    with trace_data_loading(tracer, "eurusd") as span:
        span.set_attribute("num_samples", 5)
    with trace_validation(tracer, 0.5, 0.25):
        pass
    features, first, second, validation = read(Span)
    assert (features.name, features.attrs) == (
        "feature_engineering",
        {"pair": "gbpusd", "feature_count": 42, "train.bucket": "overhead"},
    )
    assert first.attrs == {"pair": "gbpusd", "num_samples": 1000, "train.bucket": "idle"}
    assert (second.name, second.attrs["num_samples"]) == ("data_loading", 5)
    assert validation.attrs == {"val_loss": 0.5, "val_metric": 0.25, "train.bucket": "overhead"}


def test_manual_tracing(read: Read) -> None:
    """The document's example, with its import changed."""
    setup_tracing("sequence-training", None)
    value = 17
    tracer = get_tracer(__name__)

    with TracingContext(tracer, "my_operation", {"pair": "gbpusd"}) as span:
        span.set_attribute("result", value)

    (found,) = read(Span)
    assert (found.name, found.attrs) == ("my_operation", {"pair": "gbpusd", "result": 17})


def test_errors(read: Read) -> None:
    """An exception is reported by type and message, recorded with its stack, marks the span as failed, and goes on."""
    setup_tracing(otlp_endpoint=None)
    with pytest.raises(ValueError, match="bad pair"), TracingContext(get_tracer("m"), "load"):
        raise ValueError("bad pair")
    (span,) = read(Span)
    assert (span.attrs["error.type"], span.attrs["error.message"]) == ("ValueError", "bad pair")
    assert span.status == 2
    assert span.events[0].attrs["exception.stacktrace"]


@pytest.mark.parametrize("with_tracer", [True, False])
def test_trace_function(read: Read, with_tracer: bool) -> None:
    """Functions and coroutines keep their names, documentation and results."""
    setup_tracing(otlp_endpoint=None)
    tracer = get_tracer("m") if with_tracer else None

    @trace_function(tracer)
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    @trace_function(tracer, func_name="later")
    async def wait(a: int) -> int:
        await asyncio.sleep(0)
        return a

    @trace_function
    def fail() -> None:
        raise KeyError("x")

    assert (add(1, b=2), asyncio.run(wait(3)), add.__name__, add.__doc__) == (3, 3, "add", "Add.")
    assert list(inspect.signature(add).parameters) == ["a", "b"]
    assert inspect.iscoroutinefunction(wait)
    with pytest.raises(KeyError):
        fail()
    found = [(span.name, span.attrs["function"], span.attrs["result.status"], span.status) for span in read(Span)]
    assert found == [
        ("add", "add", "success", 0),
        ("later", "later", "success", 0),
        ("fail", "fail", "error", 2),
    ]


def test_on_the_wire(collector: Server, until: Until, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program's spans, and only these, arrive at /v1/traces, under the service's name and environment."""
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "team=fx,environment=of%20the%20machine")
    provider = setup_tracing("sequence-training", collector.url, environment="production")
    assert provider is not None
    train_multitask(provider.get_tracer("train"), epochs=1, batches=2)
    assert provider.force_flush()
    until(lambda: collector.messages("/v1/traces"))
    run = stepscope.current_run()
    provider.shutdown()
    assert run is not None
    assert run.finish(wait=300).delivered
    assert sorted(span.name for span in _arrived(collector)) == [
        "batch_processing",
        "batch_processing",
        "training_epoch",
        "validation",
    ]
    resource = collector.messages("/v1/traces")[0].resource_spans[0].resource
    said = {each.key: each.value.string_value for each in resource.attributes}
    assert (said["service.name"], said["team"]) == ("sequence-training", "fx")
    assert (said["environment"], said["deployment.environment"]) == ("production", "production")
    epoch = next(span for span in _arrived(collector) if span.name == "training_epoch")
    others = [span for span in _arrived(collector) if span.name != "training_epoch"]
    assert {span.parent_span_id for span in others} == {epoch.span_id}
    assert {each.key for each in epoch.attributes} >= {"epoch", "total_epochs", "train_loss", "val_loss", "val_metric"}


def _arrived(collector: Server) -> list[Any]:
    return [
        span
        for message in collector.messages("/v1/traces")
        for resource in message.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]


@pytest.mark.parametrize(
    ("endpoint", "url", "protocol"),
    [
        ("http://localhost:4318", "http://localhost:4318/v1/traces", "http/protobuf"),
        ("http://localhost:4318/v1/traces", "http://localhost:4318/v1/traces", "http/protobuf"),
        ("http://localhost:4317", "http://localhost:4317", "grpc"),
    ],
)
def test_endpoints(monkeypatch: pytest.MonkeyPatch, endpoint: str, url: str, protocol: str) -> None:
    """Both addresses of the document are understood."""
    monkeypatch.setenv("STEPSCOPE_SHIPPER", "none")
    setup_tracing(otlp_endpoint=endpoint)
    run = stepscope.current_run()
    assert run is not None
    target = run.settings.sinks[0].config.targets["traces"]
    assert (target.url, target.protocol) == (url, protocol)


def test_no_collector_listens(place: Path) -> None:
    """Training goes on, everything is in the journal, and the end does not hang."""
    setup_tracing("sequence-training", "http://127.0.0.1:9", exit_timeout=2.0)
    run = stepscope.current_run()
    assert run is not None
    train_multitask(get_tracer(__name__))
    run.finish()
    assert len(of_user(read_run(place, run.id), Span)) == 10


def test_without_setup_and_after_the_end(place: Path) -> None:
    """With no run nothing is recorded, and nothing fails."""
    for _ in range(2):
        train_multitask(get_tracer("m"))
        train_multitask(None)
        assert not get_tracer("m").start_span("x").is_recording()
        run = stepscope.init(otel=False)
        run.finish()
        assert of_user(read_run(place, run.id), Span) == []


def test_wrong_settings_do_not_stop_training(read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong endpoint is left out; wrong settings of the process leave nothing recorded, and None is returned."""
    assert setup_tracing("s", "nonsense") is not None
    train_multitask(get_tracer("m"), epochs=1)
    assert len(read(Span)) == 5
    stepscope.finish()
    monkeypatch.setenv("STEPSCOPE_SINKS", "nobody-knows-this")
    assert setup_tracing("s") is None
    train_multitask(get_tracer("m"))


def test_disabled(monkeypatch: pytest.MonkeyPatch) -> None:
    """When disabled, `setup_tracing` returns None."""
    monkeypatch.setenv("STEPSCOPE_DISABLED", "1")
    assert setup_tracing("s") is None


def test_odd_attributes_and_tracers(run: stepscope.Run, read: Read) -> None:
    """Invalid attributes and tracers do not affect other data."""
    with TracingContext(get_tracer("m"), "a", "no mapping"):  # type: ignore[arg-type]
        pass
    with TracingContext("no tracer", "b", {1: object()}) as span:  # type: ignore[arg-type,dict-item]
        span.set_attribute("many", [1, {"x": 2}])
    first, second = read(Span)
    assert (first.name, first.attrs, second.name) == ("a", {}, "b")
    assert second.attrs["many"] == [1, {"x": 2}]
    counts = run.outcomes.snapshot()
    assert counts["rejected/attributes/str"] == counts["rejected/tracer/AttributeError"] == 1


def test_another_provider_is_welcome() -> None:
    """A tracer of OpenTelemetry's own SDK works in the same places, with the same nesting and errors."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("theirs")
    train_multitask(tracer, epochs=1, batches=1)
    with pytest.raises(ValueError, match="x"), TracingContext(tracer, "bad"):
        raise ValueError("x")
    batch, validation, epoch, bad = exporter.get_finished_spans()
    assert batch.parent is not None
    assert validation.parent is not None
    assert batch.parent.span_id == validation.parent.span_id == epoch.context.span_id
    assert bad.attributes is not None
    assert (bad.attributes["error.type"], bad.status.status_code) == ("ValueError", trace.StatusCode.ERROR)


def test_spans_join_the_step(run: stepscope.Run, read: Read) -> None:
    """Inside a step the spans carry it; a nested setup joins the run that is there."""
    assert setup_tracing("inner", "http://127.0.0.1:9") is not None
    assert stepscope.current_run() is run
    with run.step(5), trace_batch_processing(get_tracer("m"), 0, 8):
        pass
    batch, step = read(Span)
    assert (batch.step, batch.parent_id) == (5, step.span_id)


def test_who_began_the_run_ends_it() -> None:
    """A provider that joined a run leaves it; the one that started it ends it, and another run never."""
    run = stepscope.init(otel=False)
    joined = setup_tracing(otlp_endpoint=None)
    assert joined is not None
    joined.shutdown()
    assert stepscope.current_run() is run
    stepscope.finish()
    own = setup_tracing(otlp_endpoint=None)
    began = stepscope.current_run()
    assert own is not None
    assert began is not None
    own.shutdown()
    assert (stepscope.current_run(), began.status) == (None, "finished")
    later = stepscope.init(otel=False)
    own.shutdown()
    assert stepscope.current_run() is later


def test_async_blocks(read: Read) -> None:
    """Tasks that interleave keep their own parents."""
    setup_tracing(otlp_endpoint=None)
    tracer = get_tracer("m")

    async def one(number: int) -> None:
        async with trace_training_epoch(tracer, number, 2):
            await asyncio.sleep(0)
            async with trace_validation(tracer):
                await asyncio.sleep(0)

    async def both() -> None:
        await asyncio.gather(one(1), one(2))

    asyncio.run(both())
    spans = read(Span)
    epochs = {span.span_id: span.attrs["epoch"] for span in by_name(spans, "training_epoch")}
    found = [(epochs[span.parent_id or b""], span.attrs["epoch"]) for span in by_name(spans, "validation")]
    assert sorted(found) == [(1, 1), (2, 2)]
