"""The document of an event bus: its events, spans, handler, metrics and reporter, in the journal."""

import functools
import time
from collections.abc import Iterator
from typing import Any

import pytest

import stepscope
from stepscope.model.records import Event, Histogram, Metric
from stepscope.testing import read_run
from stepscope.training import bus as telemetry_bus
from stepscope.training.bus import attach_many, detach, execute, list_handlers, span
from stepscope.training.bus.definitions import Definition, counter, distribution, last_value
from stepscope.training.bus.reporters import event_reporter, journal_reporter
from stepscope.training.bus.runtime import Poller, dispatch_vm_metrics
from tests.training.conftest import Read

EVENTS = [
    *(("tinkex", "http", "request", end) for end in ("start", "stop", "exception")),
    *(("tinkex", "training", "forward_backward", end) for end in ("start", "stop", "exception")),
    *(("tinkex", "sampling", "sample", end) for end in ("start", "stop", "exception")),
    *(("tinkex", "future", "poll", end) for end in ("start", "stop", "exception")),
    ("tinkex", "retry"),
]


@pytest.fixture(autouse=True)
def clean_bus() -> Iterator[None]:
    """Nothing stays attached after a test."""
    yield
    for each in {each.id for each in list_handlers()}:
        detach(each)


def post(path: str, result: Any) -> Any:
    """The document's `Tinkex.API.post`."""
    start_time = time.monotonic_ns()
    metadata: dict[str, Any] = {"path": path, "method": "post", "pool": "training"}
    execute(["tinkex", "http", "request", "start"], {"system_time": time.time_ns()}, metadata)
    measurements = {"duration": time.monotonic_ns() - start_time, "monotonic_time": time.monotonic_ns()}
    if isinstance(result, Exception):
        metadata = {**metadata, "status": "error", "error": result}
    else:
        metadata = {**metadata, "status": "success"}
    execute(["tinkex", "http", "request", "stop"], measurements, metadata)
    return result


def forward_backward(data: list[Any], loss_fn: str) -> Any:
    """The document's `Tinkex.TrainingClient.forward_backward`."""
    metadata = {"data_size": len(data), "loss_fn": loss_fn}
    return span(["tinkex", "training", "forward_backward"], metadata, lambda: (sum(data), metadata))


def test_the_document_s_handler() -> None:
    """Attached to all its events, it sees start, stop and exception with their measurements and metadata."""
    seen: list[tuple[Any, ...]] = []
    assert attach_many("tinkex-telemetry-handler", EVENTS, lambda *said: seen.append(said), None)
    assert {each.event for each in list_handlers()} == set(EVENTS)
    assert post("/api/v1/forward", "ok") == "ok"
    assert forward_backward([1, 2], "cross_entropy") == 3
    with pytest.raises(TypeError):
        forward_backward(["a"], "cross_entropy")
    execute("tinkex.retry", {"attempt": 1, "delay": 500}, {"error": "timeout"})
    ends = [(".".join(event[1:]), set(measured), said.get("status")) for event, measured, said, _ in seen]
    assert ends == [
        ("http.request.start", {"system_time"}, None),
        ("http.request.stop", {"duration", "monotonic_time"}, "success"),
        ("training.forward_backward.start", {"system_time", "monotonic_time"}, None),
        ("training.forward_backward.stop", {"duration", "monotonic_time"}, None),
        ("training.forward_backward.start", {"system_time", "monotonic_time"}, None),
        ("training.forward_backward.exception", {"duration", "monotonic_time"}, None),
        ("retry", {"attempt", "delay"}, None),
    ]
    assert isinstance(seen[5][2]["error"], TypeError)
    assert "TypeError" in seen[5][2]["stacktrace"]
    assert seen[3][2]["loss_fn"] == "cross_entropy"


def metrics() -> list[Definition]:
    """The document's `Tinkex.Telemetry.Metrics.metrics`."""
    return [
        counter("tinkex.http.request.count", tags=["method", "path", "status"]),
        distribution(
            "tinkex.http.request.duration",
            unit=("native", "millisecond"),
            tags=["method", "path"],
            reporter_options={"buckets": [10, 100, 500, 1000, 5000, 10000]},
        ),
        counter("tinkex.training.forward_backward.count", tags=["loss_fn"]),
        distribution("tinkex.training.forward_backward.duration", unit=("native", "millisecond"), tags=["loss_fn"]),
        counter("tinkex.sampling.sample.count"),
        distribution("tinkex.sampling.sample.duration", unit=("native", "millisecond")),
        counter("tinkex.future.poll.count", tags=["status"]),
        distribution("tinkex.future.poll.iterations", description="Number of polling iterations until completion"),
        counter("tinkex.retry.count", tags=["error_type"]),
        last_value("vm.memory.total", unit="byte"),
        last_value("vm.total_run_queue_lengths.total"),
        last_value("vm.total_run_queue_lengths.cpu"),
    ]


def test_every_metric_of_the_document_is_in_the_journal(run: stepscope.Run, read: Read) -> None:
    """Counted, bucketed in the unit asked for, with the tags asked for and no others."""
    journal_reporter(metrics())
    execute(
        "tinkex.http.request.stop", {"duration": 250_000_000}, {"method": "post", "path": "/a", "status": "success"}
    )
    execute("tinkex.http.request.stop", {"duration": 5_000_000}, {"method": "post", "path": "/a", "status": "success"})
    forward_backward([1], "ce")
    span("tinkex.sampling.sample", {}, lambda: "text")
    execute("tinkex.future.poll.stop", {"duration": 1, "iterations": 7}, {"status": "ready"})
    execute("tinkex.retry", {"attempt": 1, "delay": 5}, {"error_type": "timeout"})
    Poller([dispatch_vm_metrics]).poll()
    stepscope.finish()
    points = {next(iter(each.values)): each for each in all_metrics(run)}
    assert set(points) == {each.name for each in metrics()}
    count = points["tinkex.http.request.count"]
    assert (count.values, count.attrs) == (
        {"tinkex.http.request.count": 2},
        {"method": "post", "path": "/a", "status": "success"},
    )
    duration = points["tinkex.http.request.duration"]
    bucketed = duration.values["tinkex.http.request.duration"]
    assert isinstance(bucketed, Histogram)
    assert (bucketed.bounds, bucketed.counts) == ((10, 100, 500, 1000, 5000, 10000), (1, 0, 1, 0, 0, 0, 0))
    assert (bucketed.total, duration.attrs) == (255.0, {"method": "post", "path": "/a"})
    assert duration.instrument is not None
    assert duration.instrument.unit == "ms"
    assert points["tinkex.future.poll.iterations"].values["tinkex.future.poll.iterations"].total == 7  # type: ignore[union-attr]
    assert points["tinkex.training.forward_backward.count"].attrs == {"loss_fn": "ce"}
    assert points["tinkex.retry.count"].attrs == {"error_type": "timeout"}
    memory = points["vm.memory.total"]
    assert memory.values["vm.memory.total"] > 1_000_000  # type: ignore[operator]
    assert memory.instrument is not None
    assert memory.instrument.unit == "By"


def all_metrics(run: stepscope.Run) -> list[Metric]:
    """The metrics a finished run recorded of the bus, the last of each name last."""
    found = [each for each in read_run(run.home, run.id) if isinstance(each, Metric) and each.instrument is not None]
    return [each for each in found if each.instrument and each.instrument.scope == "stepscope.bus"]


def test_server_side_reporter(run: stepscope.Run, read: Read) -> None:
    """The document's reporter: events of the bus become events of the session, by their dotted names."""
    ends = [each for each in EVENTS if each[-1] in ("stop", "retry") or each == EVENTS[2]]
    with event_reporter(ends, "session-of-the-bus"):
        post("/p", "ok")
        forward_backward([1], "ce")
        execute("tinkex.retry", {"attempt": 2, "delay": 5}, {"error": KeyError("x")})
    execute("tinkex.retry", {"attempt": 3}, {})
    found = [each for each in read(Event) if each.name.startswith("tinkex.")]
    assert [each.name for each in found] == [
        "tinkex.http.request.stop",
        "tinkex.training.forward_backward.stop",
        "tinkex.retry",
    ]
    assert found[2].attrs["measurements"] == {"attempt": 2, "delay": 5}
    assert found[2].attrs["metadata"] == {"error": "'x'"}
    assert [each.attrs["tinker.event_session_index"] for each in found] == [0, 1, 2]
    assert {each.attrs["tinker.session_id"] for each in found} == {"session-of-the-bus"}


def test_the_module_is_one_bus() -> None:
    """The functions of the module act on the bus of the process."""
    seen: list[Any] = []
    assert telemetry_bus.BUS.attach("one", "a.b", functools.partial(lambda keep, *said: keep.append(said), seen))
    execute(("a", "b"), 3)
    assert seen[0][:3] == (("a", "b"), {"value": 3}, {})
