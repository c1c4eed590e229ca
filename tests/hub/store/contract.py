"""The contract of a store: what any engine must keep, refuse and answer."""

import math
import struct
from collections.abc import Iterable

from msgspec import structs

from stepscope.hub.questions.distributions import read_distributions
from stepscope.hub.questions.logs import find_alerts, find_logs
from stepscope.hub.questions.series import Series, SeriesQuery, read_series, series_json
from stepscope.hub.questions.series.metric_keys import list_keys
from stepscope.hub.questions.step.step_sql import read_step
from stepscope.hub.questions.toolbox.conditions import RecordQuery
from stepscope.hub.questions.traces.stored_spans import find_spans, open_spans, read_trace
from stepscope.hub.store import rollups
from stepscope.hub.store.maintenance import describe
from stepscope.hub.store.read.run_catalog import find_series, list_runs, read_writers, run_number
from stepscope.hub.store.read.sample_rows import (
    SampleRow,
    by_column,
    every_sample,
    has_text,
    of_table,
    read_samples,
    sample_columns,
    sample_steps,
    sample_tables,
    with_prompts,
)
from stepscope.hub.store.rollups import MARK
from stepscope.hub.store.schema import NO_STEP, PUBLIC
from stepscope.hub.store.store import Store
from stepscope.model import names
from stepscope.model.errors import Reject
from stepscope.model.ports import Batch, Writer
from stepscope.model.records import (
    FIRST_STEP,
    Alert,
    Attrs,
    Event,
    ExponentialHistogram,
    Histogram,
    Instrument,
    Link,
    Log,
    Metric,
    Record,
    Span,
    SpanEvent,
    Summary,
    Value,
)
from stepscope.model.sample_columns import prompt_number

T = 1_790_000_000_000_000_000
NASTY = 'it\'s \\ a "trap"; -- \n\t\0 ünï⛏ %s {x} `y`'
NASTY_ID = "".join(letter for letter in NASTY if letter.isprintable())
"""The same without control characters, which no run id may have."""
KEY = "trainer/loss"


def writer(run: str, rank: int = 0, attempt: int = 1) -> Writer:
    """A process of a run."""
    return Writer(
        id=f"r{rank}-a{attempt}-host-7-abc", run=run, project="contract", name=None if rank else "named", rank=rank,
        attempt=attempt, world_size=4, host=f"host{rank}", wall_ns=T, resource={"service.name": "x", "n": 1},
    )  # fmt: skip


def losses(values: Iterable[tuple[int | None, float]], key: str = "loss", category: str = "trainer") -> list[Record]:
    """One metric at many steps, a second apart."""
    return [Metric(T + i * 10**9, step, None, category, {key: value}) for i, (step, value) in enumerate(values)]


def numbered(store: Store, run: str) -> int:
    """The number of a run that is there."""
    number = run_number(store.engine, run)
    assert number is not None
    return number


def line(store: Store, run: str, key: str = KEY, **question: object) -> Series:
    """Read a line of a run."""
    return read_series(store.engine, SeriesQuery(numbered(store, run), key, **question))  # type: ignore[arg-type]


def bits(values: Iterable[float]) -> list[bytes]:
    """Floats by their bits."""
    return [struct.pack("<d", value) for value in values]


def floats(series: Series) -> list[float]:
    """The values of a line whose points all fit."""
    assert series.raw is not None
    return [float(value) for value in series.raw.value]


class WritingContract:
    """What a store keeps and what it refuses."""

    def test_a_batch_is_stored_once(self, store: Store, run: str) -> None:
        """The same writer and number again changes nothing, in the same group or later."""
        batch = Batch(writer(run), 0, losses([(1, 0.5)]))
        assert store.write_many([batch, batch]) == [None, None]
        store.write(batch)
        assert floats(line(store, run)) == [0.5]

    def test_tables_are_described(self, store: Store, run: str) -> None:
        """Each that people may query, with its columns and its size."""
        store.write(Batch(writer(run), 0, losses([(1, 1.0)])))
        found = {each.name: each for each in describe(store.engine)}
        assert set(found) == set(PUBLIC)
        assert {"series", "step", "value"} <= {name for name, _ in found["metrics"].columns}
        assert found["metrics"].rows > 0
        assert all(each.columns for each in found.values())

    def test_values_keep_every_bit(self, store: Store, run: str) -> None:
        """NaN with its payload, infinities, the sign of zero, the smallest numbers."""
        (odd,) = struct.unpack("<d", b"\x01\x02\x03\x04\x05\x06\xf8\xff")
        values = [math.nan, odd, math.inf, -math.inf, -0.0, 5e-324, 1.7976931348623157e308, 0.1]
        store.write(Batch(writer(run), 0, losses(enumerate(values))))
        assert bits(floats(line(store, run))) == bits(values)
        assert (few := line(store, run, points=4).buckets) is not None
        assert few.flags.tolist() == [1, 6, 0, 0]
        assert [math.isnan(value) for value in (*few.low, *few.mean)] == [True, True, False, False] * 2

    def test_a_long_line_is_read_from_rollups(self, store: Store, run: str) -> None:
        """Folded or not, late points included, it has the same marks; a step of a later attempt counts once."""
        count = rollups.FOLD_POINTS
        values = [
            (step, 1e6 if step == 999 else math.nan if step == 2000 else float(step % 100)) for step in range(count)
        ]
        store.write(Batch(writer(run), 0, losses(values)))
        number = numbered(store, run)
        folded = f"SELECT count() AS held FROM rollups WHERE bitShiftRight(series, 32) = {number} AND level < {MARK}"
        assert store.engine.query(folded).one("held") > count // rollups.width(0)
        store.write(Batch(writer(run), 1, losses([(500, -7.0), (count + 10, 1.0)])))
        store.write(Batch(writer(run, attempt=2), 0, losses([(count + 10, 2.0)])))
        found = line(store, run, points=20)
        assert found.buckets is not None
        assert (found.total, found.superseded, found.flags) == (count + 2, 1, 1)
        assert (max(found.buckets.high), min(found.buckets.low), found.buckets.last[-1]) == (1e6, -7.0, 2.0)
        assert (found.buckets.first[0], found.buckets.last_x[-1]) == (0, count + 10)
        part = line(store, run, points=20, start=1000, end=20_000)
        assert part.buckets is not None
        assert (part.total, max(part.buckets.high), sum(part.buckets.flags)) == (19_001, 99.0, 1)

    def test_bad_records_are_named_and_the_rest_is_kept(self, store: Store, run: str) -> None:
        """A Reject names the records that can never be stored; the others are stored."""
        records: list[Record] = [
            *losses([(1, 1.0), (2**63, 2.0)]),
            Span(T, 1, 1, None, b"short", bytes(8), None, "x"),
            Log(T, 1, None, None, None, 9, "lone \ud800 surrogate"),
            Metric(T, 2, None, "trainer", {"loss": 10**400}),
            *losses([(3, 3.0)]),
        ]
        batch = Batch(writer(run), 0, records)
        (outcome,) = store.write_many([batch])
        assert isinstance(outcome, Reject)
        assert outcome.where == (1, 2, 3, 4)
        store.write(batch)
        assert floats(line(store, run)) == [1.0, 3.0]
        counts = list_runs(store.engine, ids=[run])[0].counts
        assert (counts["points"], counts["rejected"]) == (2, 4)

    def test_steps_out_of_range_are_rejected(self, store: Store, run: str) -> None:
        """The integers that stand for no step are refused in every kind of record; a journal may hold any integer."""
        below = (FIRST_STEP - 1, FIRST_STEP - 2)
        bins = Histogram(1, 1.0, 1.0, 1.0, (2.0,), (1, 0))
        records: list[Record] = [
            *losses([(FIRST_STEP, 1.0), *((step, 2.0) for step in below)]),
            *[Metric(T, step, None, None, {"bins": bins}) for step in below],
            *[Span(T, 1, step, None, bytes(16), bytes(8), None, "x") for step in below],
            *[Log(T, step, None, None, None, 9, "x") for step in below],
        ]
        (outcome,) = store.write_many([Batch(writer(run), 0, records)])
        assert isinstance(outcome, Reject)
        assert outcome.where == tuple(range(1, 9))
        assert "a step is out of range" in str(outcome)
        assert floats(line(store, run)) == [1.0]

    def test_an_unfit_writer_is_refused_alone(self, store: Store, run: str) -> None:
        """A writer that cannot be stored does not affect others, not even one without records."""
        refused, taken = store.write_many([Batch(writer(""), 0, losses([(1, 1.0)])), Batch(writer(run), 0, [])])
        assert isinstance(refused, Reject)
        assert taken is None
        assert [row.id for row in list_runs(store.engine, ids=[run])] == [run]

    def test_any_text_comes_back(self, store: Store, run: str) -> None:
        """Quotes, escapes, zeros and other scripts, in names, values and questions."""
        span = Span(T, 1, 1, NASTY, b"n" * 16, b"n" * 8, None, NASTY, attrs={NASTY: NASTY}, message=NASTY, scope=NASTY)
        log = Log(T, 1, None, None, None, 9, NASTY, {NASTY: NASTY})
        metric = Metric(T, 1, NASTY, None, {NASTY: 1.0}, {NASTY: NASTY})
        store.write(Batch(writer(run + NASTY_ID), 0, [span, log, metric]))
        number = numbered(store, run + NASTY_ID)
        asked = RecordQuery(run=number, name=NASTY, attrs={NASTY: NASTY})
        assert [row.span for row in find_spans(store.engine, asked)] == [span]
        assert [row.record for row in find_logs(store.engine, RecordQuery(run=number, text=NASTY))] == [log]
        assert floats(line(store, run + NASTY_ID, NASTY, attrs={NASTY: NASTY}, axis=NASTY)) == [1.0]


class LineContract:
    """What a line shows."""

    def test_the_newest_attempt_is_the_line(self, store: Store, run: str) -> None:
        """At the same step of a rank a later attempt supersedes; what it has not reached stays; all is kept."""
        store.write(Batch(writer(run, attempt=2), 0, losses((step, 200.0 + step) for step in range(6, 9))))
        store.write(Batch(writer(run), 0, losses((step, 100.0 + step) for step in range(10))))
        store.write(Batch(writer(run, rank=1), 0, losses((step, 300.0 + step) for step in range(10))))
        newest = line(store, run, rank=0)
        assert floats(newest) == [100, 101, 102, 103, 104, 105, 206, 207, 208, 109]
        assert (newest.total, newest.superseded) == (10, 3)
        assert len(floats(line(store, run, rank=0, attempt="all"))) == 13
        assert floats(line(store, run, rank=0, attempt=1))[6:9] == [106, 107, 108]
        everyone = line(store, run, points=5)
        assert (marks := everyone.buckets) is not None
        assert (everyone.total, everyone.superseded, int(marks.count.sum())) == (20, 3, 20)

    def test_batches_and_steps_may_come_in_any_order(self, store: Store, run: str) -> None:
        """Late and unordered points merge into the line, and the highest step is the latest value."""
        for seq in (5, 3, 4, 0, 9, 1, 2):
            store.write(Batch(writer(run), seq, losses((step, float(step)) for step in (seq + 10, 20 - seq))))
        expected = sorted(float(step) for seq in (0, 1, 2, 3, 4, 5, 9) for step in (seq + 10, 20 - seq))
        assert floats(line(store, run)) == expected
        (row,) = list_runs(store.engine, ids=[run], keys=[KEY])
        assert (row.values[KEY].value, row.values[KEY].step, row.step) == (20.0, 20, 20)

    def test_every_spike_is_drawn(self, store: Store, run: str) -> None:
        """However few marks there may be, extremes, counts and what is not finite stay visible."""
        values = {12_345: 1e9, 777: -1e9, 5: math.nan, 6: math.inf, 19_999: -math.inf}
        store.write(Batch(writer(run), 0, losses((step, values.get(step, 1.0)) for step in range(20_000))))
        found = line(store, run, points=100)
        assert (found.total, found.shown, found.flags) == (20_000, 100, 7)
        assert (marks := found.buckets) is not None
        assert (marks.high.max(), marks.low.min(), marks.mean[50]) == (1e9, -1e9, 1.0)
        assert int(marks.count.sum()) == 20_000
        assert marks.flags.tolist() == [3, *[0] * 98, 4]

    def test_a_line_can_be_read_by_step_time_and_relative_time(self, store: Store, run: str) -> None:
        """Each with its own range, both ends included."""
        store.write(Batch(writer(run), 0, losses((step * 10, float(step)) for step in range(100))))
        assert floats(line(store, run, start=100, end=130)) == [10, 11, 12, 13]
        assert floats(line(store, run, x="time", start=T + 97 * 10**9)) == [97, 98, 99]
        relative = line(store, run, x="relative", start=2 * 10**9, end=3 * 10**9).raw
        assert relative is not None
        assert (relative.value.tolist(), relative.x.tolist()) == ([2, 3], [2 * 10**9, 3 * 10**9])
        assert line(store, run, start=5000).total == 0

    def test_points_without_a_step_are_on_the_time_axis(self, store: Store, run: str) -> None:
        """And nowhere else; a restart does not supersede them."""
        store.write(Batch(writer(run), 0, losses([(None, 1.0), (None, 2.0)])))
        store.write(Batch(writer(run, attempt=2), 0, losses([(None, 3.0)])))
        assert line(store, run).total == 0
        assert sorted(floats(line(store, run, x="time"))) == [1.0, 2.0, 3.0]

    def test_attributes_make_series(self, store: Store, run: str) -> None:
        """Points with other attributes are another series of the same key."""
        records: list[Record] = [
            Metric(T, 1, None, "system", {"gpu": float(index)}, {"hw.id": index}, Instrument("gauge", "1"))
            for index in range(3)
        ]
        store.write(Batch(writer(run), 0, records))
        assert line(store, run, "system/gpu").total == 3
        assert floats(line(store, run, "system/gpu", attrs={"hw.id": 2})) == [2.0]
        (key,) = list_keys(store.engine, numbered(store, run))
        assert (key["key"], key["unit"], key["type"], len(key["attrs"]), key["points"]) == (
            "system/gpu",
            "1",
            "gauge",
            3,
            3,
        )

    def test_large_integers_have_all_digits(self, store: Store, run: str) -> None:
        """In points, in the last value of a line, and in the row of the run."""
        large = 2**53 + 1
        store.write(Batch(writer(run), 0, [Metric(T + step, step, None, None, {"k": large + step}) for step in (0, 2)]))
        answer = series_json("k", None, line(store, run, "k"), "step")
        assert (answer["columns"]["value"], answer["last"]["value"]) == ([large, large + 2], large + 2)
        (row,) = list_runs(store.engine, ids=[run], keys=["k"])
        assert row.values["k"].value == large + 2
        (key,) = list_keys(store.engine, row.number)
        assert (key["min"], key["last"]) == (large, large + 2)

    def test_attributes_of_text(self, store: Store, run: str) -> None:
        """Names and values of attributes are distinguished, also from keys; their order does not matter."""
        given: list[tuple[Attrs, dict[str, Value]]] = [
            ({"a": "b"}, {"k": 1.0}),
            ({"b": "a"}, {"k": 2.0}),
            ({"a": "b", "k": "x"}, {"k": 3.0}),
            ({"k": "x", "a": "b"}, {"k": 4.0}),
            ({}, {"a": 9.0, "b": 9.0, "k": 5.0}),
        ]
        store.write(Batch(writer(run), 0, [Metric(T + i, 1 + i, None, None, v, a) for i, (a, v) in enumerate(given)]))
        for attrs, wanted in (({"b": "a"}, [2.0]), ({"k": "x", "a": "b"}, [3.0, 4.0]), ({"a": "b"}, [1.0])):
            assert floats(line(store, run, "k", attrs=attrs)) == wanted
        assert line(store, run, "k").total == 5

    def test_distributions_come_back(self, store: Store, run: str) -> None:
        """Histograms of both kinds and summaries, with what was not given left out."""
        values: list[Value] = [
            Histogram(6, None, -1.0, None, (0.5, 1.0), (1, 2, 3)),
            ExponentialHistogram(9, 2.5, None, 4.0, -3, 1, 0.25, -7, (1, 0, 2), 4, (5,)),
            Summary(3, 1.5, ((0.5, 0.1), (0.99, math.inf))),
        ]
        records: list[Record] = [
            Metric(T + i, i, None, None, {"lat": value}, {}, Instrument("histogram", "s", start=T))
            for i, value in enumerate(values)
        ]
        store.write(Batch(writer(run), 0, [*records, Metric(T, 0, None, None, {"lat": 1.0, "plain": values[0]})]))
        found = read_distributions(store.engine, find_series(store.engine, numbered(store, run), key="lat"))
        assert [row.value for row in reversed(found)] == values
        assert [key["key"] for key in list_keys(store.engine, numbered(store, run))] == ["lat", "plain"]


class RecordContract:
    """What is found of spans, logs, events, alerts, runs and steps."""

    def test_spans_come_back_whole_and_are_found(self, store: Store, run: str) -> None:
        """Every field and every type of attribute; by step, name, status, duration, attribute and trace."""
        values = {"s": "x", "i": -(2**70), "f": 0.1, "inf": math.inf, "b": True, "n": None, "x": b"\0\xff"}
        rich = Span(
            *(T, 5_000, 3, "policy", b"t" * 16, b"s" * 8, b"p" * 8, "forward", 2, 2, "boom"),
            attrs={**values, "l": [1, "a", None], "d": {"k": [b"z", 1.5]}},
            events=(SpanEvent(T + 1, "exception", {"type": "E"}), SpanEvent(T + 2, "e")),
            links=(Link(b"l" * 16, b"m" * 8, {"why": "run"}), Link(b"o" * 16, b"q" * 8)),
            scope="lib",
        )
        plain = Span(T + 9, 10, None, None, b"u" * 16, b"v" * 8, None, "other")
        store.write(Batch(writer(run), 0, [rich, plain]))
        number = numbered(store, run)

        def found(**question: object) -> list[Span]:
            asked = RecordQuery(run=number, **question)  # type: ignore[arg-type]
            return [row.span for row in find_spans(store.engine, asked)]

        assert found() == [plain, rich]
        assert found(step=3) == found(name="forward") == found(status=2) == found(min_duration=11) == [rich]
        assert found(attrs={"s": "x", "b": "true"}) == found(trace_id=b"t" * 16) == found(until=T) == [rich]
        assert found(attrs={"s": ""}) == found(attrs={"none": ""}) == found(trace_id=b"0" * 16) == []
        assert found(order="slowest") == [rich, plain]
        assert found(limit=1, offset=1) == [rich]

    def test_open_spans_are_seen_until_they_end(self, store: Store, run: str) -> None:
        """A hung span is visible; its end takes it away."""
        begun = [Span(T, None, 1, None, run.encode()[-16:].rjust(16), bytes([i] * 8), None, "hang") for i in (1, 2)]
        ended = Span(T, 9, 1, None, begun[0].trace_id, begun[0].span_id, None, "hang")
        store.write(Batch(writer(run), 0, [*begun]))
        store.write(Batch(writer(run), 1, [ended]))
        assert [row.span for row in open_spans(store.engine, numbered(store, run))] == [begun[1]]
        spans, still = read_trace(store.engine, begun[0].trace_id)
        assert ([row.span for row in spans], [row.span for row in still]) == ([ended], [begun[1]])

    def test_logs_events_and_alerts_are_found(self, store: Store, run: str) -> None:
        """By text in any case, severity, kind, step, trace and time."""
        ids = (b"t" * 16, b"s" * 8)
        log = Log(T, 1, None, *ids, 9, "Loss went UP", {"a": 1}, "lib")
        event = Event(T + 1, 2, "policy", None, None, 17, "train.nan_detected", {"key": "loss"}, {"nested": [1]})
        alert = Alert(T + 2, 2, None, None, None, 21, "nan", "loss is NaN", {"rule": "r"})
        store.write(Batch(writer(run), 0, [log, event, alert]))
        number = numbered(store, run)

        def found(**question: object) -> list[Record]:
            asked = RecordQuery(run=number, **question)  # type: ignore[arg-type]
            return [row.record for row in find_logs(store.engine, asked)]

        assert found() == [event, log]
        assert found(order="oldest") == [log, event]
        assert found(text="went up") == found(kind="log") == found(trace_id=ids[0]) == found(until=T) == [log]
        assert found(severity=13) == found(step=2) == found(name="train.nan_detected") == [event]
        assert [row.record for row in find_alerts(store.engine, RecordQuery(run=number))] == [alert]

    def test_samples_are_read_as_rows(self, store: Store, run: str) -> None:
        """By table and step, with texts cut to a length, by a text in any case, by a column and by their prompt."""
        rows = [
            Log(
                T + at,
                at // 2,
                None,
                None,
                None,
                9,
                "t",
                {"prompt": f"ü {at % 2}", "n": at, "text": "Ab" * 50},
                names.SCOPE_SAMPLES,
            )
            for at in range(6)
        ]
        store.write(Batch(writer(run), 0, [*rows, Log(T, 1, None, None, None, 9, "a line")]))
        number = numbered(store, run)
        assert [(each.name, each.rows, each.steps) for each in sample_tables(store.engine, number)] == [("t", 6, 3)]
        assert sample_steps(store.engine, number, "t") == [(0, 2), (1, 2), (2, 2)]
        counted = store.engine.query(f"SELECT step, row_count FROM sample_steps WHERE run = {number} ORDER BY step")
        assert list(counted.rows("step", "row_count")) == [(0, 2), (1, 2), (2, 2)], (
            "the steps are listed apart from the rows"
        )
        of = of_table(number, "t")

        def found(where: str, order: str = "time", chars: int = 1000) -> list[SampleRow]:
            return read_samples(store.engine, f"{of} AND {where}", order, "100", chars)

        assert [row.cells for row in found("step = 1")] == [row.attrs for row in rows[2:4]]
        assert found("step = 1", chars=3)[0].cells == {"prompt": "ü 0", "n": 2, "text": "AbA"}
        assert found("step = 1", chars=3)[0].cut == {"text": 100}
        assert len(found(has_text("baB"))) == 6
        assert [row.cells["n"] for row in found("1", by_column("n", descending=True))] == [5, 4, 3, 2, 1, 0]
        assert [row.cells["n"] for row in found(with_prompts([prompt_number("ü 1")]))] == [1, 3, 5]
        assert [log for page in every_sample(store.engine, of) for _, _, log in page] == rows
        assert sample_columns(store.engine, number) == ["n", "prompt", "text"]
        later = structs.replace(rows[0], time=T + 10, step=2)
        store.write(Batch(writer(run, 1), 0, [later, structs.replace(later, step=None)]))
        assert sample_steps(store.engine, number, "t") == [(NO_STEP, 1), (0, 2), (1, 2), (2, 3)]
        assert [(each.rows, each.steps) for each in sample_tables(store.engine, number)] == [(8, 4)]

    def test_runs_are_folded_from_their_writers(self, store: Store, run: str) -> None:
        """Name, ranks, attempts, configuration, endings, counts and the newest values."""
        started = Event(T, None, None, None, None, 9, names.EVENT_STARTED, {"config": {"lr": 0.1}})
        finished = Event(T + 5, None, None, None, None, 9, names.EVENT_FINISHED, {"status": "failed"})
        for rank in (1, 0):
            store.write(Batch(writer(run, rank), 0, [started, *losses([(1, 10.0 + rank)])]))
        store.write(Batch(writer(run, 0, attempt=2), 0, [*losses([(0, 7.0)]), finished]))
        (row,) = list_runs(store.engine, ids=[run], keys=[KEY, "missing"])
        assert (row.name, row.project, row.ranks, row.world_size, row.attempts) == ("named", "contract", 2, 4, 2)
        assert row.beginning == {"config": {"lr": 0.1}}
        assert [(end.attempt, end.status) for end in row.endings] == [(2, "failed")]
        assert (row.counts["points"], row.counts["events"], row.hosts) == (3, 3, ("host0", "host1"))
        assert {key: latest.value for key, latest in row.values.items()} == {KEY: 7.0}
        expected = [writer(run), writer(run, 1), writer(run, 0, attempt=2)]
        assert [each.writer for each in read_writers(store.engine, row.number)] == expected

    def test_a_step_shows_everything_about_it(self, store: Store, run: str) -> None:
        """Values on all ranks against the steps before, spans, logs, events, alerts, system metrics, neighbours."""
        for rank in range(2):
            values = losses((step, float(step % 2)) for step in range(100))
            there: list[Record] = [
                Span(T, 7, 60, None, b"t" * 16, bytes([rank + 1] * 8), None, "train.step"),
                Log(T, 60, None, None, None, 9, "here"),
                Metric(T + 61 * 10**9, None, None, "system", {"gpu": 0.9}),
                Metric(T + 1000 * 10**9, None, None, "system", {"gpu": 0.1}),
            ]
            store.write(Batch(writer(run, rank), 0, [*values, *there]))
        alert = Alert(T, 60, None, None, None, 17, "a")
        store.write(Batch(writer(run, 0, attempt=2), 0, [*losses([(60, 50.0)]), alert]))
        view = read_step(store.engine, numbered(store, run), 60)
        values_there = [(value.series.rank, value.value, value.mean, value.std, value.before) for value in view.values]
        assert values_there == [(0, 50.0, 0.5, 0.5, 50), (1, 0.0, 0.5, 0.5, 50)]
        assert [(row.rank, row.span.name) for row in view.spans] == [(0, "train.step"), (1, "train.step")]
        assert (len(view.logs), [row.record for row in view.alerts]) == (2, [alert])
        assert [(reading.series.rank, reading.value) for reading in view.system] == [(0, 0.9), (1, 0.9)]
        assert (view.previous, view.following) == (59, 61)

    def test_the_spans_of_a_step_are_those_of_one_attempt(self, store: Store, run: str) -> None:
        """The newest in which a rank came to the step, or the one that is named."""
        for attempt, rank in ((1, 0), (1, 1), (2, 0)):
            id = bytes([attempt * 2 + rank] * 8)
            span = Span(T + attempt * 10**12, 10**6, 5, None, b"t" * 16, id, None, "train.step")
            store.write(Batch(writer(run, rank, attempt), 0, [span]))
        number = numbered(store, run)
        view, first = read_step(store.engine, number, 5), read_step(store.engine, number, 5, attempt=1)
        assert [(row.rank, row.attempt) for row in view.spans] == [(0, 2), (1, 1)]
        assert (view.attempt, view.attempts) == (2, [1, 2])
        assert [(row.rank, row.attempt) for row in first.spans] == [(0, 1), (1, 1)]
        assert (first.attempt, first.end - first.begin) == (1, 10**6)


class StoreContract(WritingContract, LineContract, RecordContract):
    """Everything a store promises; needs the fixtures `store`, an open one, and `run`, a fresh run id."""
