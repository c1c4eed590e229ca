"""Sums and histograms through the OpenTelemetry API, as they are journaled."""

import gc
import math
import threading
from collections.abc import Callable

import numpy as np
from opentelemetry import metrics

from stepscope.model.names import ATTR_EXEMPLARS
from stepscope.model.records import Histogram, Metric
from stepscope.sdk.otel import instrument_series
from stepscope.testing import Recording, recorded

meter = metrics.get_meter("measuring", "1")


def last(recording: Recording, name: str) -> dict[tuple[tuple[str, object], ...], Metric]:
    """The newest record of each attribute set of a metric."""
    found = {}
    for metric in recording.of(Metric):
        if name in metric.values:
            aside = ("otel.scope.version", ATTR_EXEMPLARS)
            said = {key: value for key, value in metric.attrs.items() if key not in aside}
            found[tuple(sorted(said.items()))] = metric
    return found


def test_a_counter_is_a_cumulative_sum_with_its_step() -> None:
    """One record per attribute set says the sum so far, since when, in what unit, and the step of the last add."""
    counter = meter.create_counter("requests", "{request}", "how many")
    with recorded(otel=True) as recording:
        with recording.run.step(1):
            counter.add(2, {"b": 1, "a": "x"})
        with recording.run.step(2):
            counter.add(3, {"a": "x", "b": 1})
            counter.add(0.5)
    found = last(recording, "requests")
    assert {key: metric.values["requests"] for key, metric in found.items()} == {
        (("a", "x"), ("b", 1)): 5,
        (): 0.5,
    }
    metric = found[("a", "x"), ("b", 1)]
    assert (metric.step, metric.category) == (2, None)
    (exemplar,) = metric.attrs.pop(ATTR_EXEMPLARS)
    assert exemplar["value"] == 3
    assert metric.attrs == {"otel.scope.version": "1", "a": "x", "b": 1}
    about = metric.instrument
    assert about is not None
    assert (about.type, about.unit, about.description, about.scope) == (
        "sum",
        "{request}",
        "how many",
        "measuring",
    )
    assert about.cumulative
    assert about.monotonic
    assert about.start == recording.run.started


def test_only_what_changed_is_journaled(until: Callable[..., None]) -> None:
    """Unchanged points are not written again."""
    busy, idle = meter.create_up_down_counter("busy"), meter.create_up_down_counter("idle")
    with recorded(otel=True) as recording:
        idle.add(-1)
        run = recording.run
        for amount in (1, -3, 5):
            busy.add(amount)
            for collect in list(run.periodic.collectors):
                collect()
    assert [value for _, value in recording.series("busy")] == [1, -2, 3]
    assert [value for _, value in recording.series("idle")] == [-1]
    assert not last(recording, "busy")[()].instrument.monotonic  # type: ignore[union-attr]


def test_a_histogram_counts_what_is_finite() -> None:
    """NaN and infinities never enter count, sum, low or high; they are counted in a series of their own."""
    latency = meter.create_histogram("latency", "s")
    with recorded(otel=True) as recording:
        for value in (0.002, 4, math.nan, math.inf, -math.inf, 0.3):
            latency.record(value)
    metric = last(recording, "latency")[()]
    found = metric.values["latency"]
    assert isinstance(found, Histogram)
    assert (found.count, found.total, found.low, found.high) == (3, 4.302, 0.002, 4.0)
    assert sum(found.counts) == 3
    assert recording.series("latency.nonfinite") == [(None, 3)]


def test_a_histogram_with_negatives_has_no_total() -> None:
    """A histogram with negative values has no sum, which would be meaningless, but count, min and max."""
    reward = meter.create_histogram("reward", explicit_bucket_boundaries_advisory=[-1, 0, 1])
    with recorded(otel=True) as recording:
        for value in (-5, 0.5, -0.5):
            reward.record(value)
    assert recording.series("reward") == [(None, Histogram(3, None, -5.0, 0.5, (-1.0, 0.0, 1.0), (1, 1, 1, 0)))]


def test_what_a_counter_cannot_take_is_counted_as_rejected() -> None:
    """Negative amounts, texts and vectors are rejected and counted, the others are added; NaN has its own series."""
    counter = meter.create_counter("strict")
    odd = [-1, "two", None, [1], np.zeros(3), math.nan, object()]
    with recorded(otel=True) as recording:
        for amount in (1, *odd, np.float32(2), np.int64(3), np.array(4), True, 10**30):
            counter.add(amount)  # type: ignore[arg-type]
    assert recording.series("strict") == [(None, float(11 + 10**30))]
    assert recording.series("strict.nonfinite") == [(None, 1)]
    outcomes = recording.run.outcomes.snapshot()
    reasons = {key.removeprefix("rejected/value/"): count for key, count in outcomes.items() if "rejected" in key}
    assert reasons == {"negative": 1, "string": 1, "none": 1, "vector": 2, "type object": 1}


def test_attribute_sets_are_bounded() -> None:
    """Beyond the bound everything is counted in one overflow set; nothing is lost and memory holds."""
    counter = meter.create_counter("wide")
    with recorded(otel=True) as recording:
        for number in range(instrument_series.MAX_SETS + 500):
            counter.add(1, {"id": number})
        counter.add(1, {"id": 5})
    found = last(recording, "wide")
    values = {key: metric.values["wide"] for key, metric in found.items()}
    assert values[("id", 5),] == 2
    assert values[("otel.metric.overflow", True),] == 500
    assert sum(values.values()) == instrument_series.MAX_SETS + 501  # type: ignore[arg-type]


def test_attributes_of_any_sort_name_one_set() -> None:
    """Lists, nested values and masked secrets find their point again; what is no mapping counts without."""
    counter = meter.create_counter("odd")
    with recorded(otel=True) as recording:
        for _ in range(2):
            counter.add(1, {"list": [1, 2]})
            counter.add(1, {"api_key": "sk-1"})
            counter.add(1, {"api_key": "sk-2"})
            counter.add(1, "text")  # type: ignore[arg-type]
    values = [metric.values["odd"] for metric in recording.of(Metric) if "odd" in metric.values]
    assert sorted(values) == [2, 2, 4]  # type: ignore[type-var]
    assert "sk-" not in str(recording.records)


def test_threads_lose_nothing() -> None:
    """Eight threads add to the same points while they are counted; the sums are exact."""
    counter, sizes = meter.create_counter("threaded"), meter.create_histogram("sizes", "By")
    with recorded(otel=True) as recording:

        def work(number: int) -> None:
            for _ in range(5000):
                counter.add(1, {"worker": number % 2})
                sizes.record(number)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            for collect in list(recording.run.periodic.collectors):
                collect()
        for thread in threads:
            thread.join()
    assert sorted(metric.values["threaded"] for metric in last(recording, "threaded").values()) == [20000, 20000]  # type: ignore[type-var]
    (_, found) = recording.series("sizes")[-1]
    assert isinstance(found, Histogram)
    assert (found.count, found.total) == (40000, 5000 * sum(range(8)))


def test_a_measurement_may_interrupt_another() -> None:
    """Measuring in a callback of the garbage collector, which may run inside any measurement, does not lock up."""
    counter = meter.create_counter("collected")
    called = 0

    def on_collection(phase: str, info: dict[str, int]) -> None:
        nonlocal called
        called += 1
        for _ in range(instrument_series.MAX_PENDING):
            counter.add(1)

    with recorded(otel=True) as recording:
        gc.callbacks.append(on_collection)
        before = gc.get_threshold()
        gc.freeze()  # what is there already need not be looked at each time
        gc.set_threshold(20)
        try:
            for number in range(2000):
                counter.add(1, {"id": number % 7})
                recording.run.log({"x": [number]})
        finally:
            gc.set_threshold(*before)
            gc.unfreeze()
            gc.callbacks.remove(on_collection)
    assert called
    total = sum(metric.values["collected"] for metric in last(recording, "collected").values())  # type: ignore[misc]
    assert total == 2000 + called * instrument_series.MAX_PENDING


def test_a_new_run_counts_from_nothing() -> None:
    """Instruments outlive runs; what they measured does not, nor does what was measured between runs."""
    counter = meter.create_counter("again")
    with recorded(otel=True) as first:
        counter.add(5)
    counter.add(100)
    with recorded(otel=True) as second:
        counter.add(7)
    assert [first.series("again"), second.series("again")] == [[(None, 5)], [(None, 7)]]


def test_the_greatest_measurement_of_a_sampled_span_is_the_exemplar() -> None:
    """It names trace and span, comes back in OTLP's form, and a measurement outside of spans has none."""
    histogram = meter.create_histogram("latency", "s")
    with recorded(otel=True) as recording:
        with recording.run.span("fast"):
            histogram.record(0.1)
        with recording.run.span("slow") as slow:
            histogram.record(2.5)
        histogram.record(1.0)
        histogram.record(9.0, {"untraced": True})
        histogram.record(9.0, {"odd": True}, context="no context")  # type: ignore[arg-type]
        ids = slow.get_span_context()
    found = last(recording, "latency")
    (exemplar,) = found[()].attrs[ATTR_EXEMPLARS]
    assert (exemplar["value"], exemplar["trace_id"]) == (2.5, f"{ids.trace_id:032x}")
    assert exemplar["span_id"] == f"{ids.span_id:016x}"
    assert [ATTR_EXEMPLARS in metric.attrs for metric in found.values()].count(True) == 1
