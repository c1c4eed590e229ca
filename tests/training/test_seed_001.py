"""The document of a multi-tenant service: settings, instruments, gauges, keys, logs; all of it in test_service.py."""

import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.metrics import CallbackOptions

import stepscope
from stepscope.model.records import Event, Histogram, Log, Metric, Span
from stepscope.sdk import settings
from stepscope.testing import read_batches, read_run
from stepscope.training.service import (
    correlate,
    correlation,
    entered,
    extract_context,
    get_metrics,
    get_tracer,
    init_telemetry,
    inject_context,
    read_config,
    shutdown_telemetry,
)
from stepscope.training.service.service_metrics import GAUGES, INSTRUMENTS, attribute, machine
from tests.training.conftest import Read

Until = Callable[..., None]
QUICK_START = """
telemetry:
  enabled: true
  service_name: tuft
  otlp_endpoint: http://localhost:4317
  resource_attributes:
    deployment.environment: production
    service.version: 1.0.0
model: {other: settings, of: the service}
"""
PUBLISHED = {
    "tuft.training.models.active": "sum",
    "tuft.training.tokens_per_second": "histogram",
    "tuft.training.checkpoints.saved": "sum",
    "tuft.training.checkpoint.size_bytes": "histogram",
    "tuft.sampling.sessions.active": "sum",
    "tuft.sampling.requests": "sum",
    "tuft.sampling.duration": "histogram",
    "tuft.sampling.tokens_per_second": "histogram",
    "tuft.sampling.output_tokens": "histogram",
    "tuft.futures.queue_length": "sum",
    "tuft.futures.created": "sum",
    "tuft.futures.completed": "sum",
    "tuft.futures.wait_time": "histogram",
    "tuft.futures.execution_time": "histogram",
    "tuft.redis.operation.duration": "histogram",
}
GAUGED = {
    "tuft.resource.cpu.utilization_percent",
    "tuft.resource.memory.used_bytes",
    "tuft.resource.memory.total_bytes",
    "tuft.resource.memory.utilization_percent",
    "tuft.resource.process.memory_used_bytes",
}


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch, place: Path) -> Any:
    """No server and no console; the service's run is over after the test."""
    for name in ("TUFT_OTLP_ENDPOINT", "TUFT_OTEL_DEBUG", "OTEL_EXPORTER_OTLP_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("STEPSCOPE_SHIPPER", "none")
    yield
    shutdown_telemetry()


def started(**more: Any) -> stepscope.Run:
    """A service that records."""
    run = init_telemetry({"telemetry": {"enabled": True, **more}})
    assert run is not None
    return run


def ended(run: stepscope.Run, *kinds: type) -> list[Any]:
    """What a service recorded until its end."""
    assert shutdown_telemetry()
    return [each for each in read_run(run.home, run.id) if isinstance(each, kinds)]


def test_the_quick_start(tmp_path: Path) -> None:
    """The document's YAML begins a run of that service, with its attributes on everything, sent by gRPC."""
    path = tmp_path / "tuft_config.yaml"
    path.write_text(QUICK_START)
    run = init_telemetry(path)
    assert run is not None
    (sink,) = run.settings.sinks
    assert sink.name == "otlp"
    assert {(each.protocol, each.url) for each in sink.config.targets.values()} == {("grpc", "http://localhost:4317")}
    assert run.flush(300)
    resource = next(iter(read_batches(run.home, run.id))).writer.resource
    assert resource["service.name"] == "tuft"
    assert (resource["deployment.environment"], resource["service.version"]) == ("production", "1.0.0")


def test_the_quick_start_as_our_own_settings_file() -> None:
    """The same section in stepscope.yaml means the same to `stepscope.init`."""
    Path("stepscope.yaml").write_text(QUICK_START)
    run = stepscope.init()
    assert run.settings.service_name == "tuft"
    assert run.settings.resource_attributes["service.version"] == "1.0.0"
    (sink,) = run.settings.sinks
    assert {(each.protocol, each.url) for each in sink.config.targets.values()} == {("grpc", "http://localhost:4317")}


@pytest.mark.parametrize(
    ("config", "variable", "default", "url"),
    [
        ("http://c:4317", "http://v:4317", "http://d:4317", "http://c:4317"),
        (None, "http://v:4317", "http://d:4317", "http://v:4317"),
        (None, None, "http://d:4317", "http://d:4317"),
        (None, None, None, "http://localhost:4317"),
    ],
)
def test_the_endpoint_s_order(
    monkeypatch: pytest.MonkeyPatch, config: str | None, variable: str | None, default: str | None, url: str
) -> None:
    """The config, then the variable, then OpenTelemetry's own."""
    if variable:
        monkeypatch.setenv("TUFT_OTLP_ENDPOINT", variable)
    if default:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", default)
    (sink,) = started(otlp_endpoint=config).settings.sinks
    assert {(each.protocol, each.url) for each in sink.config.targets.values()} == {("grpc", url)}


def test_a_port_tells_what_is_spoken_there() -> None:
    """HTTP on 4318, with or without the path of traces; gRPC on any other."""
    (sink,) = started(otlp_endpoint="http://c:4318/v1/traces").settings.sinks
    assert {each.protocol for each in sink.config.targets.values()} == {"http/protobuf"}
    assert sink.config.targets["traces"].url == "http://c:4318/v1/traces"
    shutdown_telemetry()
    (sink,) = started(otlp_endpoint="http://c:9999").settings.sinks
    assert {(each.protocol, each.url) for each in sink.config.targets.values()} == {("grpc", "http://c:9999")}


def test_debug_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable gives a console in place of OTLP."""
    monkeypatch.setenv("TUFT_OTEL_DEBUG", "1")
    assert [each.name for each in started(otlp_endpoint="http://c:4317").settings.sinks] == ["console"]


def test_disabled_by_default(tmp_path: Path) -> None:
    """Without `enabled: true` nothing is started, and every call still works."""
    assert init_telemetry({"telemetry": {}}) is None
    assert stepscope.current_run() is None
    with get_tracer().start_as_current_span("x") as span:
        span.set_attribute("tuft.session_id", "s")
    get_metrics().futures_created.add(1, {"operation_type": "x"})
    assert shutdown_telemetry()


@pytest.mark.parametrize(
    "wrong",
    [
        {"telemetry": {"enabled": "perhaps"}},
        {"telemetry": {"otlp_endpont": "http://x"}},
        {"telemetry": [1]},
        {"telemetry": {"enabled": True, "resource_attributes": "a"}},
        "/nowhere/tuft.yaml",
        3,
    ],
)
def test_wrong_settings_raise(wrong: Any) -> None:
    """An invalid config is reported at once."""
    with pytest.raises(stepscope.ConfigError):
        read_config(wrong)


def test_again_after_shutdown() -> None:
    """Each start records into a run of its own, instruments count from nothing, and each log line is there once."""
    for amount in (3, 4):
        run = started()
        with get_tracer("tuft.again").start_as_current_span("again"):
            logging.getLogger("tuft.again").warning("line %d", amount)
        get_metrics().futures_created.add(amount, {"operation_type": "sample"})
        records = ended(run, Span, Log, Metric)
        assert len([each for each in records if isinstance(each, Span) and each.name == "again"]) == 1
        assert [each.body for each in records if isinstance(each, Log)] == [f"line {amount}"]
        created = [each for each in records if isinstance(each, Metric) and "tuft.futures.created" in each.values]
        assert created[-1].values["tuft.futures.created"] == amount


def test_a_second_init_gives_the_same_run() -> None:
    """And a run somebody else started is joined and left running, without our gauges."""
    run = started()
    assert started() is run
    shutdown_telemetry()
    other = stepscope.init(project="mine")
    assert started() is other
    observe = machine().gauge("memory/used_bytes", 1)
    assert list(observe(CallbackOptions()))
    shutdown_telemetry()
    assert stepscope.current_run() is other
    assert list(observe(CallbackOptions())) == []


def test_every_published_instrument() -> None:
    """Each name is there with its kind, and bounds that separate its values."""
    assert set(INSTRUMENTS) == set(PUBLISHED)
    run = started()
    metrics = get_metrics()
    assert get_metrics() is metrics
    metrics.futures_created.add(1, {"operation_type": "forward_backward"})
    metrics.futures_execution_time.record(0.123, {"operation_type": "forward_backward"})
    for name, (kind, unit, _) in INSTRUMENTS.items():
        instrument = getattr(metrics, attribute(name))
        if kind != "histogram":
            instrument.add(1, {"base_model": "b"})
            continue
        for value in {"s": (0.002, 0.2, 20), "bytes": (5e3, 5e6, 5e9)}.get(unit, (10, 1000, 100_000)):
            instrument.record(value, {"base_model": "b"})
    found = {name: each for each in ended(run, Metric) for name in each.values if name in PUBLISHED}
    assert {name: each.instrument.type for name, each in found.items()} == PUBLISHED
    for name, each in found.items():
        value = each.values[name]
        if isinstance(value, Histogram):
            assert max(value.counts) == 1, name
            assert value.counts[-1] == 0, name


def test_resource_gauges(until: Until, read: Read) -> None:
    """Each gauge that this machine has is observed; the first reading of a rate is no zero that nobody measured."""
    started()
    gauges: dict[str, list[float]] = {}

    def seen() -> bool:
        gauges.clear()
        for each in read(Metric):
            for name, value in each.values.items():
                gauges.setdefault(name, []).append(value)
        return set(gauges) >= GAUGED

    until(seen)
    assert set(GAUGES) == GAUGED
    assert gauges["tuft.resource.memory.total_bytes"][0] > gauges["tuft.resource.memory.used_bytes"][0] > 0
    assert 0 < gauges["tuft.resource.memory.utilization_percent"][0] <= 100
    assert gauges["tuft.resource.process.memory_used_bytes"][0] > 1e6
    assert all(0 <= value <= 100 for value in gauges["tuft.resource.cpu.utilization_percent"])


def test_gpu_gauges() -> None:
    """Each GPU's readings are observed with its id, and a machine without one observes none."""
    made = machine()
    observe = made.gpu_gauge("memory_used_bytes", 1)
    real = [each for each in made.readings() if each.startswith("gpu/")]
    observed = list(observe(None))  # type: ignore[arg-type]
    assert bool(observed) == bool([each for each in real if each.endswith("memory_used_bytes")])


def test_the_developer_s_guide(read: Read) -> None:
    """The document's span has the attributes that were set."""
    started()
    session_id, training_run_id = "s1", "t1"
    tracer = get_tracer("tuft.my_module")
    with tracer.start_as_current_span("my_operation") as span:
        span.set_attribute("tuft.session_id", session_id)
        span.set_attribute("tuft.training_run_id", training_run_id)
    (found,) = read(Span)
    assert (found.name, found.scope) == ("my_operation", "tuft.my_module")
    assert found.attrs == {"tuft.session_id": "s1", "tuft.training_run_id": "t1"}


def test_keys_are_set_once(read: Read) -> None:
    """They are on the span they were set in, all below it by whatever API, and logs and events; not beside it."""
    started()
    tracer = get_tracer("tuft")
    with tracer.start_as_current_span("above"):
        correlate(session_id="s", lora_rank=8, team="red")
        with stepscope.span("ours"), tracer.start_as_current_span("theirs", attributes={"own": 1}):
            logging.getLogger("tuft").warning("hello")
            stepscope.event("happened", {"a": 1})
            with correlate(request_id="r"):
                tracer.start_span("inner").end()
            tracer.start_span("after").end()
    tracer.start_span("beside").end()
    spans = {each.name: each.attrs for each in read(Span)}
    keys = {"tuft.session_id": "s", "tuft.lora_rank": 8, "team": "red"}
    assert spans == {
        "above": keys,
        "ours": keys,
        "theirs": {**keys, "own": 1, "tuft.request_id": "r"},
        "inner": {**keys, "tuft.request_id": "r"},
        "after": keys,
        "beside": {},
    }
    (line,) = read(Log)
    assert keys.items() <= line.attrs.items()
    (event,) = [each for each in read(Event) if each.name == "happened"]
    assert event.attrs == {**keys, "a": 1}


def test_keys_stay_in_their_context() -> None:
    """Another thread has none of them, and None takes one back."""
    with correlate(session_id="s"):
        seen: list[Any] = []
        thread = threading.Thread(target=lambda: seen.append(correlation()))
        thread.start()
        thread.join()
        assert seen == [{}]
        with correlate(session_id=None):
            assert correlation() == {}
        assert correlation() == {"tuft.session_id": "s"}
    assert correlation() == {}


def test_context_goes_through_a_dict(read: Read) -> None:
    """A span started from what was injected is a child, with the keys, and so are those below it."""
    started()
    tracer = get_tracer("tuft")
    with tracer.start_as_current_span("caller"), correlate(session_id="s", backward=True):
        carrier = inject_context()
    assert all(isinstance(value, str) for value in carrier.values())
    with tracer.start_as_current_span("callee", context=extract_context(carrier)):
        tracer.start_span("below").end()
    with entered(carrier):
        tracer.start_span("entered").end()
    spans = {each.name: each for each in read(Span)}
    assert spans["callee"].parent_id == spans["entered"].parent_id == spans["caller"].span_id
    assert spans["below"].parent_id == spans["callee"].span_id
    keys = {"tuft.session_id": "s", "tuft.backward": True}
    assert [spans[name].attrs for name in ("callee", "below", "entered")] == [keys] * 3


@pytest.mark.parametrize("odd", [None, {}, {"traceparent": "x"}, {"stepscope-carried": "{"}, [1], "text"])
def test_odd_carriers(odd: Any) -> None:
    """What carries nothing that can be read gives an empty context, and nothing raises."""
    started()
    with get_tracer().start_as_current_span("x", context=extract_context(odd)) as span:
        assert span.is_recording()


def test_failed_work_shows_error(read: Read) -> None:
    """A span that an exception ends has the ERROR status and the exception."""
    started()
    with pytest.raises(ValueError, match="no"), get_tracer().start_as_current_span("future_store.execute_operation"):
        raise ValueError("no")
    (span,) = read(Span)
    assert span.status == 2
    assert span.events[0].name == "exception"


def test_existing_log_handlers_stay(capsys: pytest.CaptureFixture[str], read: Read) -> None:
    """The bridge adds to what logging does and takes nothing away; each record is exported once."""
    lines: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    root, keep = logging.getLogger(), Keep()
    root.addHandler(keep)
    try:
        started()
        logging.getLogger("tuft.server").error("once")
        assert lines == ["once"]
        assert keep in root.handlers
        assert [each.body for each in read(Log)] == ["once"]
    finally:
        root.removeHandler(keep)


SECTION = "telemetry:\n  enabled: true\n  service_name: tuft\n"


@pytest.mark.parametrize(
    ("section", "env", "sent"),
    [
        (SECTION + "  otlp_endpoint: http://c:4317\n", {}, ["http://c:4317"]),
        (SECTION + "  otlp_endpoint: http://c:4318\n", {}, ["http://c:4318/v1/traces"]),
        (SECTION, {"TUFT_OTLP_ENDPOINT": "http://v:4317"}, ["http://v:4317"]),
        (SECTION + "  otlp_endpoint: http://c:4317\n", {"TUFT_OTLP_ENDPOINT": "http://v:4317"}, ["http://c:4317"]),
        (SECTION + "  otlp_endpoint: http://c:4317\n", {"TUFT_OTEL_DEBUG": "1"}, ["console"]),
        ("telemetry:\n  project: p\n", {"TUFT_OTLP_ENDPOINT": "http://v:4317"}, []),
    ],
)
def test_the_section_means_the_same_in_our_own_settings(
    tmp_path: Path, section: str, env: dict[str, str], sent: list[str]
) -> None:
    """The config before the variable, the protocol by the port, and only the console while debugging."""
    (tmp_path / "stepscope.yaml").write_text(section)
    found = settings.load({}, env, tmp_path)
    assert [each.config.place.split()[0] for each in found.sinks] == sent
