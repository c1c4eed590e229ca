"""Definitions and reporters: values, units, tags and buckets, in the journal, on a console, for Prometheus."""

import io
import math
import threading
from typing import Any

import numpy as np
import pytest

import stepscope
from stepscope.model.records import Histogram, Metric
from stepscope.testing import read_run
from stepscope.training.bus import Bus, definitions
from stepscope.training.bus.definitions import counter, distribution, last_value, summary
from stepscope.training.bus.prometheus import MAX_SETS, PrometheusReporter
from stepscope.training.bus.reporters import console_reporter, journal_reporter

ALL = [
    counter("http.request.count", tags=["status"]),
    definitions.sum("http.request.bytes", unit="byte"),
    last_value("queue.depth", description="Items that wait"),
    summary("http.request.duration", unit=("native", "second")),
    distribution("http.request.latency", measurement="duration", unit=("native", "millisecond"), buckets=[1, 10]),
]


def fill(bus: Bus) -> None:
    """Two requests and a queue."""
    bus.execute("http.request.stop", {"duration": 5_000_000, "bytes": 10}, {"status": 'o"k'})
    bus.execute("http.request.stop", {"duration": 50_000_000, "bytes": -4}, {"status": 'o"k'})
    bus.execute("queue", {"depth": 3}, {})
    bus.execute("queue", {"depth": 2}, {})


def test_the_journal(run: stepscope.Run) -> None:
    """Each kind is a metric of its type, in its unit."""
    bus = Bus()
    journal_reporter(ALL, bus)
    fill(bus)
    stepscope.finish()
    found: dict[str, list[Metric]] = {}
    for each in read_run(run.home, run.id):
        if isinstance(each, Metric) and each.instrument is not None and each.instrument.scope == "stepscope.bus":
            found.setdefault(next(iter(each.values)), []).append(each)
    last = {name: each[-1].values[name] for name, each in found.items()}
    assert last["http.request.count"] == 2
    assert last["http.request.bytes"] == 6
    assert [each.values["queue.depth"] for each in found["queue.depth"]] == [3, 2]
    samples = found["http.request.duration"]
    assert [each.values["http.request.duration"] for each in samples] == pytest.approx([0.005, 0.05])
    assert {(each.instrument.type, each.instrument.unit) for each in samples if each.instrument} == {("histogram", "s")}
    latency = last["http.request.latency"]
    assert isinstance(latency, Histogram)
    assert (latency.bounds, latency.counts) == ((1, 10), (0, 1, 1))


def test_a_second_run_counts_from_nothing(run: stepscope.Run) -> None:
    """A reporter continues with the next run, which has its own counters."""
    bus = Bus()
    journal_reporter(ALL, bus)
    for amount in (2, 3):
        current = stepscope.init(project="again", otel=False)
        for _ in range(amount):
            bus.execute("http.request", {}, {})
        stepscope.finish()
        counts = [
            each.values["http.request.count"]
            for each in read_run(current.home, current.id)
            if isinstance(each, Metric) and "http.request.count" in each.values
        ]
        assert counts[-1] == amount


def test_the_console() -> None:
    """A line for each value; after closing none."""
    bus, out = Bus(), io.StringIO()
    with console_reporter(ALL, out, bus):
        fill(bus)
    fill(bus)
    lines = out.getvalue().splitlines()
    assert len(lines) == 10
    assert lines[0] == 'counter      http.request.count 1 status=o"k'
    assert "distribution http.request.latency 5 ms" in lines


def test_prometheus() -> None:
    """The page has types, units in names, escaped labels, buckets that add up, and quantiles."""
    bus = Bus()
    reporter = PrometheusReporter(ALL, bus)
    assert reporter.text() == ""
    fill(bus)
    page = reporter.text()
    for line in (
        "# TYPE http_request_count_total counter",
        'http_request_count_total{status="o\\"k"} 2',
        "http_request_bytes 6.0",
        "# HELP queue_depth Items that wait",
        "queue_depth 2.0",
        'http_request_duration_seconds{quantile="0.5"} 0.05',
        "http_request_duration_seconds_count 2",
        'http_request_latency_milliseconds_bucket{le="1.0"} 0',
        'http_request_latency_milliseconds_bucket{le="10.0"} 1',
        'http_request_latency_milliseconds_bucket{le="+Inf"} 2',
        "http_request_latency_milliseconds_sum 55.0",
    ):
        assert line in page.splitlines()


def test_prometheus_is_bounded(run: stepscope.Run) -> None:
    """Tags that differ each time are refused beyond a number, and counted."""
    bus = Bus()
    reporter = PrometheusReporter([counter("a.count", tags=["id"])], bus)
    for number in range(MAX_SETS + 5):
        bus.execute("a", {}, {"id": number})
    assert len(reporter.text().splitlines()) == MAX_SETS + 2
    assert run.outcomes.snapshot()["rejected/tags/dict"] == 5


def test_many_threads_lose_nothing() -> None:
    """Counting is exact however many say something."""
    bus = Bus()
    reporter = PrometheusReporter([counter("a.count")], bus)

    def work() -> None:
        for _ in range(1000):
            bus.execute("a")

    threads = [threading.Thread(target=work) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert "a_count_total 4000" in reporter.text()


def test_bad_values_cost_themselves(run: stepscope.Run) -> None:
    """A measurement that is no number, or a function that raises, is counted, and the reporter stays."""
    bus = Bus()
    wanted = [last_value("a.x"), last_value("a.y", measurement=lambda measured: measured["no"]), counter("a.count")]
    reporter = PrometheusReporter([*wanted, counter("a.kept", keep=lambda said: said.get("keep"))], bus)
    bus.execute("a", {"x": "text"}, {})
    bus.execute("a", {"x": 1}, {"keep": True})
    page = reporter.text()
    assert "a_x 1" in page
    assert "a_count_total 2" in page
    assert "a_kept_total 1" in page
    assert run.outcomes.snapshot()["rejected/measurement/KeyError"] == 2
    assert run.outcomes.snapshot()["rejected/measurement/ValueError"] == 1


@pytest.mark.parametrize(
    "options",
    [
        {"name": "short"},
        {"name": 3},
        {"name": "a..b"},
        {"name": "a.b", "unit": ("native", "byte")},
        {"name": "a.b", "unit": ("x",)},
        {"name": "a.b", "buckets": [3, 1]},
        {"name": "a.b", "tags": "status"},
        {"name": "a.b", "keep": bool, "drop": bool},
        {"name": "a.b", "keep": 5},
        {"name": "a.b", "tag_values": {"a": 1}},
        {"name": "a.b", "tags": None},
        {"name": "a.b", "tags": 5},
        {"name": "a.b", "foo": 1},
        {"name": "a.b", "measurement": 5},
        {"name": "a.b", "reporter_options": [("buckets", [1, 2])]},
        {"name": "a.b", "buckets": []},
        {"name": "a.b", "buckets": "12"},
        {"name": "a.b", "buckets": 5},
    ],
)
def test_wrong_definitions_raise(options: dict[str, Any]) -> None:
    """A definition is written once and read at the start: mistakes are reported there."""
    with pytest.raises(stepscope.ConfigError):
        distribution(**options)


def test_buckets_of_any_make() -> None:
    """An array, a range and a generator do as well as a list."""
    for given in (np.array([1, 2, 3]), range(1, 4), (number for number in (1, 2, 3))):
        assert distribution("a.b", buckets=given).buckets == (1.0, 2.0, 3.0)


@pytest.mark.parametrize("given", [None, 5, [5], "abc", [counter("a.b"), None]])
def test_what_is_no_definition_raises(given: Any) -> None:
    """Every reporter raises ConfigError for anything but a definition."""
    for make in (journal_reporter, console_reporter, PrometheusReporter):
        with pytest.raises(stepscope.ConfigError, match="not a definition"):
            make(given)


def test_a_definition_counts_once() -> None:
    """A definition is measured once, even if listed twice or passed without a list."""
    bus, made = Bus(), counter("a.b.count")
    twice, alone = PrometheusReporter([made, counter("a.b.count")], bus), PrometheusReporter(made, bus)  # type: ignore[arg-type]
    bus.execute("a.b")
    assert "a_b_count_total 1" in twice.text().splitlines()
    assert twice.text() == alone.text()


@pytest.mark.parametrize(
    "given",
    [
        [summary("a.b.duration"), distribution("a.b.duration")],
        [last_value("a.b"), last_value("a_b", event_name="a")],
        [summary("a.b"), last_value("a.b.count")],
        [counter("a.b"), last_value("a.b_total")],
        [counter("a.b", tags=["a.b", "a_b"])],
        [distribution("a.b", tags=["le"])],
        [summary("a.b", tags=["quantile"])],
    ],
)
def test_prometheus_refuses_one_name_for_two(given: Any) -> None:
    """Two metrics, or two labels, with the same name in Prometheus raise ConfigError."""
    with pytest.raises(stepscope.ConfigError, match="Prometheus"):
        PrometheusReporter(given, Bus())


def test_prometheus_writes_halves_of_characters() -> None:
    """A tag that is no whole text costs no page."""
    bus = Bus()
    reporter = PrometheusReporter([counter("a.b", tags=["t"])], bus)
    bus.execute("a", {}, {"t": "x\ud800"})
    assert 'a_b_total{t="x?"} 1' in reporter.text()


def test_an_event_of_its_own_and_dropping() -> None:
    """`event_name` overrides the name, and `drop` excludes events."""
    bus = Bus()
    made = counter("any.name", event_name="x.y", drop=lambda said: said.get("skip"), tag_values=lambda said: {"t": 1})
    reporter = PrometheusReporter([made], bus)
    bus.execute("x.y", {}, {"skip": True})
    bus.execute("x.y", {}, {})
    bus.execute("any", {}, {})
    assert "any_name_total 1" in reporter.text()


def test_nan_is_in_the_last_bucket_only() -> None:
    """As Prometheus counts it: no bound is above it; the sum is NaN, and no quantile is."""
    bus = Bus()
    reporter = PrometheusReporter([distribution("a.x", buckets=[0, 10]), summary("b.x"), summary("c.x")], bus)
    for value in (5, math.nan, 7):
        bus.execute("a", {"x": value})
        bus.execute("b", {"x": value})
    bus.execute("c", {"x": math.nan})
    lines = reporter.text().splitlines()
    assert [line for line in lines if line.startswith("a_x")] == [
        'a_x_bucket{le="0.0"} 0', 'a_x_bucket{le="10.0"} 2', 'a_x_bucket{le="+Inf"} 3', "a_x_count 3", "a_x_sum NaN",
    ]  # fmt: skip
    assert 'b_x{quantile="0.5"} 7.0' in lines
    assert 'b_x{quantile="0.99"} 7.0' in lines
    assert lines[-2:] == ["c_x_count 1", "c_x_sum NaN"]


def test_a_measurement_may_ask_the_metadata() -> None:
    """A function that needs two arguments gets both; any other the measurements alone."""
    bus = Bus()
    both = definitions.sum("a.both", measurement=lambda measured, said: measured["x"] * said["weight"])
    one = definitions.sum("a.one", measurement=lambda measured, scale=10: measured["x"] * scale)
    of_c = last_value("a.of_c", measurement=len)
    reporter = PrometheusReporter([both, one, of_c], bus)
    bus.execute("a", {"x": 2}, {"weight": 3})
    found = [line for line in reporter.text().splitlines() if not line.startswith("#")]
    assert found == ["a_both 6.0", "a_one 20.0", "a_of_c 1.0"]
