"""Meters: which instruments are identical, and the warnings for conflicts."""

import logging
import math
import subprocess
import sys

import pytest
from opentelemetry import metrics

from stepscope.model.records import ExponentialHistogram, Histogram, Metric
from stepscope.sdk.otel import meter as meters
from stepscope.sdk.otel.current_run import CurrentRun
from stepscope.testing import recorded


def test_the_same_instrument_is_made_once() -> None:
    """Asking again, in another place or another case, counts in the same storage."""
    with recorded(otel=True) as recording:
        first = metrics.get_meter("twice", "1").create_counter("Shared.count", "1", "text")
        second = metrics.get_meter("twice", "1").create_counter("shared.Count", "1", "text")
        other = metrics.get_meter("else").create_counter("Shared.count", "1", "text")
        first.add(1)
        second.add(2)
        other.add(4)
    assert first is second
    assert sorted(value for _, value in recording.series("Shared.count")) == [3, 4]  # type: ignore[type-var]


def test_a_conflict_is_told_once_and_kept_apart(caplog: pytest.LogCaptureFixture) -> None:
    """The same name with another type, unit or bounds warns once; both are recorded."""
    with recorded(otel=True) as recording, caplog.at_level(logging.WARNING, "stepscope"):
        meter = metrics.get_meter("conflicts")
        meter.create_counter("thing", "s").add(1)
        meter.create_up_down_counter("thing", "s").add(-2)
        meter.create_counter("thing", "ms").add(3)
        meter.create_histogram("wide", explicit_bucket_boundaries_advisory=[1, 2]).record(1)
        meter.create_histogram("wide", explicit_bucket_boundaries_advisory=[5]).record(1)
    told = [record.getMessage() for record in caplog.records if "another type" in record.getMessage()]
    assert len(told) == 2
    assert sorted(value for _, value in recording.series("thing")) == [-2, 1, 3]  # type: ignore[type-var]
    assert recording.series("wide") == [(None, Histogram(2, 2.0, 1.0, 1.0, (1.0, 2.0), (2, 0, 0)))]


def test_advised_bounds_are_taken(caplog: pytest.LogCaptureFixture) -> None:
    """Sensible advice is followed; other advice gives a warning and the bounds of the unit are used."""
    with recorded(otel=True) as recording, caplog.at_level(logging.WARNING, "stepscope"):
        meter = metrics.get_meter("advice")
        meter.create_histogram("good", "s", explicit_bucket_boundaries_advisory=(0.5, 1)).record(0.7)
        meter.create_histogram("bad", "s", explicit_bucket_boundaries_advisory=(2, 1)).record(0.7)
    good, bad = recording.series("good")[0][1], recording.series("bad")[0][1]
    assert isinstance(good, Histogram)
    assert isinstance(bad, Histogram)
    assert (good.bounds, good.counts) == ((0.5, 1.0), (0, 1, 0))
    assert len(bad.bounds) > 10
    assert "not increasing" in caplog.text


def test_histograms_are_exponential_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """OpenTelemetry's variable chooses exponential buckets for the process, advice or not."""
    monkeypatch.setenv(meters.AGGREGATION, meters.EXPONENTIAL)
    with recorded(otel=True) as recording:
        histogram = metrics.get_meter("exponential").create_histogram("scaled", explicit_bucket_boundaries_advisory=[1])
        for value in (1.0, 2.0, 4.0, 0.0, -1.0):
            histogram.record(value)
    (metric,) = [metric for metric in recording.of(Metric) if "scaled" in metric.values]
    found = metric.values["scaled"]
    assert isinstance(found, ExponentialHistogram)
    assert (found.count, found.total, found.low, found.high, found.zeros) == (5, None, -1.0, 4.0, 1)
    assert (sum(found.positive), sum(found.negative)) == (3, 1)
    assert metric.instrument is not None
    assert metric.instrument.type == "exponential_histogram"


def test_instruments_are_bounded(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """An unbounded number of names gives a warning, and memory stays bounded."""
    monkeypatch.setattr(meters, "MAX_INSTRUMENTS", 3)
    provider = meters.MeterProvider(CurrentRun())
    with caplog.at_level(logging.WARNING, "stepscope"):
        for number in range(5):
            provider.get_meter("endless").create_counter(f"name{number}").add(1)
    assert len(provider.series) == 3
    assert caplog.text.count("more than 3 instruments") == 2


def test_nothing_raises() -> None:
    """Instruments with invalid names and units still work."""
    with recorded(otel=True) as recording:
        meter = metrics.get_meter(None, attributes="text")  # type: ignore[arg-type]
        meter.create_counter(5, None, None).add(1)  # type: ignore[arg-type]
        meter.create_histogram("", unit=7, explicit_bucket_boundaries_advisory="text").record(1)  # type: ignore[arg-type]
        meter.create_gauge("ü" * 400).set(1)
        meter.create_observable_gauge("none", None)
        meter.create_observable_counter("one", 5)  # type: ignore[arg-type]
    assert recording.series("5") == [(None, 1)]
    assert recording.series("ü" * 400) == [(None, 1)]


meter = metrics.get_meter("gauging")


def test_every_set_is_a_record() -> None:
    """No value is lost between collections: each has its time and step, NaN and infinities too."""
    loss = meter.create_gauge("loss", "1", "how wrong")
    values = [0.5, math.nan, math.inf, -math.inf, 3, 2**70]
    with recorded(otel=True) as recording:
        for step, value in enumerate(values):
            with recording.run.step(step):
                loss.set(value, {"split": "train", "secret": "x"})
    found = [metric for metric in recording.of(Metric) if "loss" in metric.values]
    assert [metric.step for metric in found] == list(range(len(values)))
    assert str([metric.values["loss"] for metric in found]) == str([*values[:-1], 2.0**70])
    assert all(metric.attrs == {"split": "train", "secret": "[redacted]"} for metric in found)
    assert sorted(metric.time for metric in found) == [metric.time for metric in found]
    about = found[0].instrument
    assert about is not None
    assert (about.type, about.unit, about.description, about.scope) == ("gauge", "1", "how wrong", "gauging")


def test_what_is_no_number_is_rejected() -> None:
    """The call returns, the rejection is counted, the next set is recorded."""
    gauge = meter.create_gauge("picky")
    with recorded(otel=True) as recording:
        for value in ("one", None, {"a": 1}, [1, 2]):
            gauge.set(value)  # type: ignore[arg-type]
        gauge.set(1, 5)  # type: ignore[arg-type]
        gauge.set(2, {"list": [1]})
    assert recording.series("picky") == [(None, 1), (None, 2)]


def test_many_attribute_sets_stay_apart() -> None:
    """A gauge adds nothing up, so any number of attribute sets is recorded as given."""
    gauge = meter.create_gauge("each")
    with recorded(otel=True) as recording:
        for number in range(9000):
            gauge.set(number, {"id": number})
    found = [metric for metric in recording.of(Metric) if "each" in metric.values]
    assert all(metric.attrs["id"] == metric.values["each"] for metric in found)
    assert len(found) == 9000


def test_gauges_need_no_private_name_of_opentelemetry() -> None:
    """A release that renames its private gauge class costs nothing but the relation to that class."""
    code = (
        "from opentelemetry import metrics; del metrics._Gauge\n"
        "from stepscope.sdk.otel.current_run import CurrentRun\n"
        "from stepscope.sdk.otel.meter import MeterProvider\n"
        "MeterProvider(CurrentRun()).get_meter('m').create_gauge('g').set(1.0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
