"""Gauges through the OpenTelemetry API."""

import math

from opentelemetry import metrics

from stepscope.model.records import Metric
from stepscope.testing import recorded

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
