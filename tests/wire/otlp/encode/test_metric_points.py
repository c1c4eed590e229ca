"""Sums and histograms in the temporality a destination wants."""

from typing import Any, Literal

import pytest
from msgspec import structs

from stepscope.model.ports import Writer
from stepscope.model.records import Histogram, Instrument, Metric, Value
from stepscope.wire.otlp.encode.encode_request import BASELINE, encode
from stepscope.wire.otlp.encode.metric_points import Temporality

WRITER = Writer(id="w", run="R", project="P")


def point(time: int, value: Value, *, cumulative: bool, start: int = 0, monotonic: bool = True, **attrs: Any) -> Metric:
    """One point of a sum."""
    kind = "histogram" if isinstance(value, Histogram) else "sum"
    instrument = Instrument(kind, "1", "", cumulative, monotonic, start)
    return Metric(time, None, None, None, {"n": value}, attrs, instrument)


def converted(
    wanted: Literal["cumulative", "delta"], *records: Metric, writer: Writer = WRITER
) -> list[tuple[Any, int, bool] | None]:
    """(value, start, cumulative) of each record after conversion."""
    temporality = Temporality(wanted)
    return [
        (found.values["n"], found.instrument.start, found.instrument.cumulative)
        if (found := temporality.convert(writer, record)) is not None and found.instrument is not None
        else None
        for record in records
    ]


def test_deltas_are_added_up() -> None:
    """Deltas are summed from the start of the first."""
    deltas = [point(time, 2, cumulative=False, start=time - 10) for time in (110, 120, 130)]
    assert converted("cumulative", *deltas) == [(2, 100, True), (4, 100, True), (6, 100, True)]


def test_cumulative_sums_become_deltas() -> None:
    """The first counts from its start, each other from the one before."""
    sums = [point(time, value, cumulative=True, start=100) for time, value in ((110, 2), (120, 5), (130, 5))]
    assert converted("delta", *sums) == [(2, 100, False), (3, 110, False), (0, 120, False)]


def test_a_reset_counts_from_its_own_start() -> None:
    """Recognised by a new start, or by a value that shrank."""
    restarted = [point(110, 9, cumulative=True, start=100), point(130, 4, cumulative=True, start=120)]
    assert converted("delta", *restarted) == [(9, 100, False), (4, 120, False)]
    shrunk = [point(110, 9, cumulative=True, start=100), point(130, 4, cumulative=True, start=100)]
    assert converted("delta", *shrunk) == [(9, 100, False), (4, 100, False)]


def test_without_a_start_the_first_is_only_the_baseline() -> None:
    """Nothing tells how much of it is old; it is left out and counted."""
    sums = [point(110, 1000, cumulative=True), point(120, 1001, cumulative=True)]
    assert converted("delta", *sums) == [None, (1, 110, False)]
    assert encode([(WRITER, sums[:1])], temporality=Temporality("delta")).skipped == {BASELINE: 1}


@pytest.mark.parametrize("wanted", ["cumulative", "delta"])
def test_what_has_no_temporality_passes(wanted: Literal["cumulative", "delta"]) -> None:
    """Step metrics, gauges, and what is right already."""
    temporality = Temporality(wanted)
    for record in (
        Metric(5, 1, None, None, {"loss": 0.5}),
        Metric(5, 1, None, None, {"h": Histogram(1, 1.0, None, None, (), ())}),
        Metric(5, 1, None, None, {"g": 1}, {}, Instrument("gauge", "s")),
        point(5, 1, cumulative=wanted == "cumulative"),
    ):
        assert temporality.convert(WRITER, record) is record


def test_up_down_counters_stay_cumulative() -> None:
    """Up/down counters stay cumulative, as with OpenTelemetry's delta preference."""
    record = point(5, -1, cumulative=True, monotonic=False)
    assert Temporality("delta").convert(WRITER, record) is record


def test_series_are_told_apart() -> None:
    """Series are distinguished by writer, attributes and instrument, not by exemplars."""
    temporality = Temporality("cumulative")
    other = structs.replace(WRITER, id="v")

    def total(writer: Writer, record: Metric) -> Any:
        found = temporality.convert(writer, record)
        return found.values["n"] if found else None

    assert total(WRITER, point(1, 1, cumulative=False, k="a")) == 1
    assert total(WRITER, point(1, 1, cumulative=False, k="b")) == 1
    assert total(other, point(1, 1, cumulative=False, k="a")) == 1
    again = structs.replace(point(1, 1, cumulative=False), attrs={"k": "a", "otel.exemplars": [{"value": 5}]})
    assert total(WRITER, again) == 2


def test_histograms_are_converted_both_ways() -> None:
    """Counts and sums; a change of buckets is a reset."""
    first, second = Histogram(2, 3.0, 1.0, 2.0, (1.0,), (1, 1)), Histogram(5, 9.0, 0.5, 4.0, (1.0,), (3, 2))
    summed = converted("cumulative", point(10, first, cumulative=False, start=1), point(20, second, cumulative=False))
    assert summed[1] == (Histogram(7, 12.0, 0.5, 4.0, (1.0,), (4, 3)), 1, True)
    passed = converted("delta", point(10, first, cumulative=True, start=1), point(20, second, cumulative=True, start=1))
    assert passed[1] == (Histogram(3, 6.0, None, None, (1.0,), (2, 1)), 10, False)
    other = Histogram(1, 1.0, 1.0, 1.0, (5.0,), (1, 0))
    reset = converted(
        "cumulative", point(10, first, cumulative=False, start=1), point(20, other, cumulative=False, start=10)
    )
    assert reset[1] == (other, 10, True)


def test_a_batch_offered_again_is_converted_to_the_same() -> None:
    """What was learnt counts only once it is committed: a retry does not count twice."""
    temporality = Temporality("cumulative")
    batch = [point(10, 2, cumulative=False, start=1), point(20, 3, cumulative=False, start=10)]
    first = encode([(WRITER, batch)], temporality=temporality)
    second = encode([(WRITER, batch)], temporality=temporality)
    assert first == second
    temporality.commit()
    third = temporality.convert(WRITER, point(30, 1, cumulative=False, start=20))
    assert third is not None
    assert third.values == {"n": 6}


def test_forgotten_series_start_anew() -> None:
    """Memory is bounded; the series used longest ago goes first, and starts over with a new start."""
    temporality = Temporality("cumulative", most=2)
    for attr in ("a", "b", "a", "c"):
        temporality.convert(WRITER, point(10, 1, cumulative=False, start=5, k=attr))
        temporality.commit()
    found = [temporality.convert(WRITER, point(20, 1, cumulative=False, start=10, k=attr)) for attr in ("a", "b", "c")]
    assert [(record.values["n"], record.instrument.start) for record in found if record and record.instrument] == [
        (3, 5),
        (1, 10),
        (2, 5),
    ]
