"""Metric points: every type, and what makes one unacceptable."""

import math
from typing import Any

import pytest
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.metrics.v1 import metrics_pb2 as pb

from stepscope.model.records import ExponentialHistogram, Histogram, Instrument, Metric, Summary
from stepscope.wire.otlp.decode import decode_request
from stepscope.wire.otlp.names import Encoding
from tests.wire.otlp.bodies import ENCODINGS, SPAN, TIME, TRACE, attributes, decoded, gauge, records, request

pytestmark = pytest.mark.parametrize("encoding", ENCODINGS)


def one(metric: pb.Metric, encoding: Encoding, **options: Any) -> Metric:
    """The only record of a request that holds this metric."""
    (found,) = records(decoded("metrics", request("metrics", [metric], **options), encoding))
    assert isinstance(found, Metric)
    return found


def test_a_bare_gauge_is_a_step_metric(encoding: Encoding) -> None:
    """A gauge of which nothing is said but name and value has no instrument."""
    found = one(gauge("trainer/loss", {"train.step": 7, "phase": "a"}), encoding)
    assert found == Metric(TIME, 7, None, None, {"trainer/loss": 0.5}, {"phase": "a"}, None)


@pytest.mark.parametrize("value", [0.0, -0.0, math.inf, -math.inf, 5e-324])
def test_doubles_are_exact(encoding: Encoding, value: float) -> None:
    """Zeros, infinities and the smallest numbers arrive as they were."""
    (found,) = one(gauge(as_double=value), encoding).values.values()
    assert isinstance(found, float)
    assert (found, math.copysign(1, found)) == (value, math.copysign(1, value))


def test_nan_arrives(encoding: Encoding) -> None:
    """NaN, the most important value of a training run, is stored."""
    (found,) = one(gauge(as_double=math.nan), encoding).values.values()
    assert isinstance(found, float)
    assert math.isnan(found)


@pytest.mark.parametrize("value", [0, 1, -(2**63), 2**63 - 1])
def test_integers_stay_integers(encoding: Encoding, value: int) -> None:
    """The whole range of int64 arrives as integers."""
    metric = pb.Metric(name="n")
    metric.gauge.data_points.add(time_unix_nano=TIME, as_int=value)
    (found,) = one(metric, encoding).values.values()
    assert type(found) is int
    assert found == value


def test_a_gauge_of_an_instrument_keeps_what_is_said_of_it(encoding: Encoding) -> None:
    """Unit, description and scope make an instrument."""
    metric = gauge()
    metric.unit, metric.description = "s", "how long"
    found = one(metric, encoding, scope=InstrumentationScope(name="lib"))
    assert found.instrument == Instrument("gauge", "s", "how long", True, False, 0, "lib")


@pytest.mark.parametrize("temporality", [1, 2])
@pytest.mark.parametrize("monotonic", [False, True])
def test_sums(encoding: Encoding, temporality: int, monotonic: bool) -> None:
    """Delta and cumulative, monotonic and not, each with its start."""
    metric = pb.Metric(name="tokens", unit="{token}")
    metric.sum.aggregation_temporality, metric.sum.is_monotonic = temporality, monotonic
    metric.sum.data_points.add(start_time_unix_nano=TIME - 9, time_unix_nano=TIME, as_int=5)
    found = one(metric, encoding)
    assert found.values == {"tokens": 5}
    assert found.instrument == Instrument("sum", "{token}", "", temporality == 2, monotonic, TIME - 9)


def test_each_point_has_its_own_start(encoding: Encoding) -> None:
    """After a reset the start of a cumulative sum moves."""
    metric = pb.Metric(name="n")
    metric.sum.aggregation_temporality = 2
    for start in (1, 1, 5, 0):
        metric.sum.data_points.add(start_time_unix_nano=start, time_unix_nano=TIME, as_int=5)
    found = records(decoded("metrics", request("metrics", [metric]), encoding))
    assert [record.instrument.start for record in found] == [1, 1, 5, 0]


def test_histograms(encoding: Encoding) -> None:
    """Explicit buckets with and without sum, least and greatest."""
    metric = pb.Metric(name="h")
    metric.histogram.aggregation_temporality = 2
    metric.histogram.data_points.add(
        time_unix_nano=TIME, start_time_unix_nano=5, count=6, sum=1.5, min=-1, max=2, explicit_bounds=[0, 1],
        bucket_counts=[1, 2, 3],
    )  # fmt: skip
    metric.histogram.data_points.add(time_unix_nano=TIME, start_time_unix_nano=5, count=6)
    found = records(decoded("metrics", request("metrics", [metric]), encoding))
    assert [record.values["h"] for record in found] == [
        Histogram(6, 1.5, -1.0, 2.0, (0.0, 1.0), (1, 2, 3)),
        Histogram(6, None, None, None, (), ()),
    ]


def test_exponential_histograms(encoding: Encoding) -> None:
    """Both signs, offsets below zero, zeros and their threshold."""
    metric = pb.Metric(name="e")
    metric.exponential_histogram.aggregation_temporality = 1
    metric.exponential_histogram.data_points.add(
        time_unix_nano=TIME, start_time_unix_nano=5, count=6, sum=0, scale=-3, zero_count=1, zero_threshold=0.1,
        positive={"offset": -2, "bucket_counts": [1, 2]}, negative={"offset": 4, "bucket_counts": [2]},
    )  # fmt: skip
    found = one(metric, encoding)
    assert found.values["e"] == ExponentialHistogram(6, 0.0, None, None, -3, 1, 0.1, -2, (1, 2), 4, (2,))
    assert found.instrument == Instrument("exponential_histogram", cumulative=False, start=5)


def test_summaries(encoding: Encoding) -> None:
    """Quantiles of a foreign client."""
    metric = pb.Metric(name="s")
    metric.summary.data_points.add(
        time_unix_nano=TIME, count=2, sum=3,
        quantile_values=[{"quantile": 0.5, "value": 1}, {"quantile": 1, "value": 2}],
    )  # fmt: skip
    assert one(metric, encoding).values["s"] == Summary(2, 3.0, ((0.5, 1.0), (1.0, 2.0)))


def test_exemplars_are_kept_beside_the_attributes(encoding: Encoding) -> None:
    """An exemplar's value, time, ids in hex and filtered attributes stay with its point."""
    exemplar = pb.Exemplar(
        time_unix_nano=TIME, as_int=3, trace_id=TRACE, span_id=SPAN, filtered_attributes=attributes({"k": "v"})
    )
    found = one(gauge(exemplars=[exemplar]), encoding)
    assert found.attrs["otel.exemplars"] == [
        {"value": 3, "time": TIME, "trace_id": TRACE.hex(), "span_id": SPAN.hex(), "attrs": {"k": "v"}}
    ]


def _sum(temporality: int) -> pb.Metric:
    metric = pb.Metric(name="bad")
    metric.sum.aggregation_temporality = temporality
    metric.sum.data_points.add(time_unix_nano=TIME, as_int=1)
    return metric


def _histogram(**fields: Any) -> pb.Metric:
    metric = pb.Metric(name="bad")
    metric.histogram.aggregation_temporality = 2
    metric.histogram.data_points.add(time_unix_nano=TIME, **fields)
    return metric


def _valueless() -> pb.Metric:
    metric = pb.Metric(name="bad")
    metric.gauge.data_points.add(time_unix_nano=TIME)
    return metric


def _scaled(scale: int) -> pb.Metric:
    metric = pb.Metric(name="bad")
    metric.exponential_histogram.aggregation_temporality = 2
    metric.exponential_histogram.data_points.add(time_unix_nano=TIME, scale=scale)
    return metric


@pytest.mark.parametrize(
    ("metric", "reason"),
    [
        (gauge("bad", time_unix_nano=0), decode_request.NO_TIME),
        (gauge("bad", time_unix_nano=2**63), decode_request.NO_TIME),
        (gauge(""), decode_request.NO_NAME),
        (_valueless(), decode_request.NO_VALUE),
        (_sum(0), decode_request.BAD_TEMPORALITY),
        (_sum(7), decode_request.BAD_TEMPORALITY),
        (_histogram(bucket_counts=[1, 2], explicit_bounds=[1, 2]), decode_request.BAD_BUCKETS),
        (_histogram(bucket_counts=[], explicit_bounds=[1]), decode_request.BAD_BUCKETS),
        (_histogram(bucket_counts=[1, 2, 3], explicit_bounds=[2, 1]), decode_request.BAD_BUCKETS),
        (_histogram(bucket_counts=[1, 2], explicit_bounds=[math.nan]), decode_request.BAD_BUCKETS),
        (_scaled(2000), decode_request.BAD_BUCKETS),
    ],
)
def test_a_bad_point_is_refused_alone(encoding: Encoding, metric: pb.Metric, reason: str) -> None:
    """No time, no value, no temporality or impossible buckets cost that point and no other."""
    found = decoded("metrics", request("metrics", [gauge("a"), metric, gauge("b")]), encoding)
    assert [list(record.values) for record in records(found)] == [["a"], ["b"]]
    assert found.rejections.reasons == {reason: 1}


def test_all_points_of_a_bad_metric_are_counted(encoding: Encoding) -> None:
    """partial_success counts points, not metrics."""
    metric = _sum(0)
    metric.sum.data_points.add(time_unix_nano=TIME, as_int=2)
    assert decoded("metrics", request("metrics", [metric]), encoding).rejections.count == 2


def test_no_recorded_value_is_a_gap(encoding: Encoding) -> None:
    """The flag is no value and no mistake: counted apart."""
    metric = pb.Metric(name="gone")
    metric.gauge.data_points.add(time_unix_nano=TIME, flags=1)
    metric.gauge.data_points.add(time_unix_nano=TIME, flags=1, as_double=4)
    found = decoded("metrics", request("metrics", [metric]), encoding)
    assert (found.groups, found.rejections.count, found.gaps) == ([], 0, 2)


def test_what_a_scope_says_rides_on_its_points(encoding: Encoding) -> None:
    """The scope is part of a series' identity."""
    found = one(gauge(attrs={"a": 1}), encoding, scope=InstrumentationScope(version="2"))
    assert found.attrs == {"a": 1, "otel.scope.version": "2"}


def test_a_metric_without_data_holds_no_points(encoding: Encoding) -> None:
    """A metric without data has no points, and is not counted as rejected."""
    found = decoded("metrics", request("metrics", [pb.Metric(name="x")]), encoding)
    assert (found.groups, found.rejections.count) == ([], 0)
