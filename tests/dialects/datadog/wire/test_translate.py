"""Records as Datadog's points, events, checks and logs."""

import math

from stepscope.dialects.datadog.wire.items import Check, LogLine, Notice, Point
from stepscope.dialects.datadog.wire.translate import NOT_FINITE, Spelling, Translated, Translator
from stepscope.model import names
from stepscope.model.ports import Batch, Writer
from stepscope.model.records import Alert, Event, Histogram, Instrument, Log, Metric, Record, Span, Summary
from stepscope.wire import foreign_names as foreign
from stepscope.wire.otlp.encode.encode_request import BASELINE

WRITER = Writer(id="w", run="r1", project="gpt", host="node1")
T = 1_700_000_000_000_000_000


def translate(*records: Record, spelling: Spelling | None = None, writer: Writer = WRITER) -> Translated:
    """Translate the records of one writer."""
    return Translator(spelling or Spelling()).translate([Batch(writer, 0, list(records))])


def points(*records: Record, spelling: Spelling | None = None) -> list[tuple[str, str, float | str]]:
    """Type, name and value of each point, without the step."""
    found = translate(*records, spelling=spelling).items
    return [(each.type, each.name, each.value) for each in found if isinstance(each, Point) and "step" not in each.name]


def one(value: float, instrument: Instrument, **attrs: object) -> Metric:
    """A point of an instrument."""
    return Metric(T, None, None, None, {"x": value}, dict(attrs), instrument)


def test_step_metrics_are_gauges() -> None:
    """Keys are prefixed with the category, and bools are numbers."""
    found = points(Metric(T, 1, None, "trainer", {"loss": 0.5, "ok": True}), spelling=Spelling(namespace="ns"))
    assert found == [("g", "ns.trainer.loss", 0.5), ("g", "ns.trainer.ok", 1)]


def test_the_step_is_a_gauge_and_never_a_tag() -> None:
    """Sent whenever it changes, once; a step with a name says which."""
    records = [Metric(T + n, n // 2, None, None, {"a": 1.0}) for n in range(4)]
    records.append(Metric(T, 700, "timesteps", None, {"b": 2.0}))
    found = [each for each in translate(*records).items if isinstance(each, Point)]
    steps = [(each.value, each.tags) for each in found if each.name == "train.step"]
    assert steps == [(0, ("project:gpt",)), (1, ("project:gpt",)), (700, ("project:gpt", "axis:timesteps"))]
    assert not any("step" in tag.split(":")[0] for each in found for tag in each.tags)


def test_what_was_not_delivered_is_translated_alike() -> None:
    """Until it is committed, the same records give the same items; after that the step is known."""
    translator = Translator(Spelling())
    batches = [Batch(WRITER, 0, [Metric(T, 5, None, None, {"a": 1.0})])]
    assert translator.translate(batches) == translator.translate(batches)
    translator.commit()
    assert len(translator.translate(batches).items) == 1


def test_statsd_types() -> None:
    """The instrument says what a number is; a set's member is an attribute."""
    delta = Instrument("sum", cumulative=False)
    assert points(one(3, delta)) == [("c", "x", 3)]
    assert points(one(-3, delta)) == [("c", "x", -3)]
    for word, kind in (("histogram", "h"), ("distribution", "d"), ("timing", "ms"), ("gauge", "g"), ("odd", "g")):
        assert points(one(1.5, Instrument(word, cumulative=False))) == [(kind, "x", 1.5)]
    member = one(1, Instrument("set", cumulative=False), **{names.ATTR_SET_MEMBER: "user 7"})
    assert points(member) == [("s", "x", "user 7")]


def test_sample_rates_are_kept() -> None:
    """A sample rate is kept as a rate, never as a tag; an invalid one is 1."""
    for said, rate in ((0.25, 0.25), (0, 1.0), (7, 1.0), ("no", 1.0), (math.nan, 1.0)):
        (point,) = translate(one(1, Instrument("timing"), **{names.ATTR_SAMPLE_RATE: said})).items
        assert isinstance(point, Point)
        assert point.rate == rate
        assert point.tags == ("project:gpt",)


def test_cumulative_sums_become_counts() -> None:
    """What was added since the last; the first with no start to count from is counted as refused."""
    total = [one(value, Instrument("sum", monotonic=True, start=T)) for value in (5.0, 7.0, 7.0)]
    assert points(*total) == [("c", "x", 5.0), ("c", "x", 2.0), ("c", "x", 0.0)]
    assert translate(one(5.0, Instrument("sum", monotonic=True))).refused == {BASELINE: 1}
    assert points(one(5.0, Instrument("sum"))) == [("g", "x", 5.0)]


def test_histograms_and_summaries() -> None:
    """Count and sum as counts, least and greatest as gauges, quantiles with a tag."""
    histogram = Histogram(3, 6.0, 1.0, 3.0, (2.0,), (2, 1))
    assert points(Metric(T, 1, None, None, {"h": histogram})) == [
        ("c", "h.count", 3),
        ("c", "h.sum", 6.0),
        ("g", "h.min", 1.0),
        ("g", "h.max", 3.0),
    ]
    found = translate(Metric(T, None, None, None, {"s": Summary(2, 3.0, ((0.5, 1.5),))})).items
    assert [(each.name, each.tags) for each in found if isinstance(each, Point)][-1] == (
        "s.quantile",
        ("project:gpt", "quantile:0.5"),
    )


def test_what_is_not_finite_is_counted_and_told() -> None:
    """Datadog takes no NaN: it is a counted refusal, and a count of its own says which metric it was."""
    found = translate(Metric(T, None, None, "trainer", {"loss": math.nan, "lr": math.inf, "ok": 1.0}))
    assert found.refused == {NOT_FINITE: 2}
    told = [(each.type, each.name, each.value, each.tags[-1]) for each in found.items if isinstance(each, Point)]
    assert told[:2] == [
        ("c", "non_finite", 1, "metric:trainer.loss"),
        ("c", "non_finite", 1, "metric:trainer.lr"),
    ]
    assert told[2][1:3] == ("trainer.ok", 1.0)


def test_tags_of_the_writer() -> None:
    """Constant tags, the project, the rank of several; the run when asked for, or when the record has one."""
    many = Writer(id="w", run="r1", project="gpt", rank=3, world_size=8)
    metric = Metric(T, None, None, None, {"a": 1.0}, {"env": "own"})
    (plain,) = translate(metric, writer=many, spelling=Spelling(tags=("env:prod",))).items
    (full,) = translate(metric, writer=many, spelling=Spelling(run_tag=True, rank_tag=False)).items
    assert plain.tags == ("env:prod", "project:gpt", "rank:3", "env:own")
    assert full.tags == ("project:gpt", "run_id:r1", "env:own")
    own = Metric(T, None, None, None, {"a": 1.0}, {"run_id": "r2"})
    assert [each.tags for each in translate(own, writer=many, spelling=Spelling(rank_tag=False)).items] == [
        ("project:gpt", "run_id:r2")
    ]
    (bare,) = translate(metric, writer=Writer(id="w", run="r1", project="default")).items
    assert bare.tags == ("env:own",)


def test_events_and_alerts() -> None:
    """A title, the text as it was given, an alert type by severity unless one was given; run and step are tags."""
    given = {"team": "ml", "datadog.alert_type": "success", "run_id": "r1", "datadog.aggregation_key": "k"}
    found = translate(
        Event(T, 7, None, None, None, 9, "Milestone", given, "1000 steps"),
        Event(
            T, None, None, None, None, 17, "exception", {"exception.message": "boom", "exception.stacktrace": "at x"}
        ),
        Alert(T, 3, None, None, None, 13, "high KL", "0.2 > 0.1"),
    ).items
    first, second, third = (each for each in found if isinstance(each, Notice))
    assert (first.title, first.alert_type, first.aggregation_key) == ("Milestone", "success", "k")
    assert first.text == "1000 steps"
    assert first.tags == ("project:gpt", "team:ml", "run_id:r1", "step:7")
    assert second.alert_type == "error"
    assert second.text.startswith("boom\nat x")
    assert (third.alert_type, third.text) == ("warning", "0.2 > 0.1")
    assert third.tags == ("project:gpt", "run_id:r1", "step:3")
    (bare,) = translate(Event(T, None, None, None, None, 9, "bare", {}, "")).items
    assert isinstance(bare, Notice)
    assert bare.text == "run r1, rank 0"


def test_a_record_of_another_run_is_not_found_under_this_one() -> None:
    """Its own run, rank and project take the writer's place in metrics, their steps, events and checks."""
    own = {"run_id": "run_B", "rank": "7", "a": "b"}
    check = {**own, "datadog.check": "OK"}
    found = translate(
        Metric(T, 5, None, None, {"loss": 1.0, "bad": float("nan")}, own),
        Metric(T, 5, None, None, {"loss": 2.0}),
        Event(T, 5, None, None, None, 9, "e", own, "text"),
        Event(T, None, None, None, None, 9, "check", check),
        writer=Writer(id="w", run="run_A", project="gpt", world_size=8),
        spelling=Spelling(run_tag=True, tags=("run_id:configured",)),
    ).items
    runs = [{each for each in item.tags if each.startswith("run_id:")} for item in found]
    assert runs == [{"run_id:run_B"}] * 3 + [{"run_id:configured", "run_id:run_A"}] * 2 + [{"run_id:run_B"}] * 2
    steps = [item for item in found if isinstance(item, Point) and item.name == "train.step"]
    assert ["rank:7" in item.tags for item in steps] == [True, False]


def test_overlong_events_are_cut_visibly() -> None:
    """Events are truncated visibly to Datadog's limits."""
    (found,) = translate(Event(T, 1, None, None, None, 9, "t" * 500, {}, "ä" * 9000)).items
    assert isinstance(found, Notice)
    assert (len(found.title), len(found.text)) == (100, 4000)
    assert found.text.endswith("ä…")


def test_service_checks() -> None:
    """An event with a status is a check; a status nobody knows is UNKNOWN."""
    for said, status in (("OK", 0), ("warning", 1), ("CRITICAL", 2), ("what", 3), (2, 2), (9, 3), (None, 3)):
        event = Event(T, None, None, None, None, 9, "rl.kl", {foreign.ATTR_CHECK_STATUS: said, "a": "b"}, "too high")
        (found,) = translate(event).items
        assert isinstance(found, Check)
        assert (found.name, found.status, found.message) == ("rl.kl", status, "too high")
        assert found.tags == ("project:gpt", "a:b")
    for attrs, message in (({"message": "given"}, "given"), ({"text": "a tag"}, ""), ({"a": "b"}, "")):
        event = Event(T, None, None, None, None, 9, "c", {foreign.ATTR_CHECK_STATUS: "OK", **attrs})
        (found,) = translate(event).items
        assert isinstance(found, Check)
        assert found.message == message, "no message is made of attributes"


def test_logs() -> None:
    """Run, rank and step are attributes of a log line; secrets are masked."""
    record = Log(T, 4, None, b"\1" * 16, b"\2" * 8, 17, "lost", {"api_key": "k", "v": math.nan}, "my.logger")
    (found,) = translate(record).items
    assert isinstance(found, LogLine)
    assert (found.message, found.status, found.service) == ("lost", "error", "gpt")
    assert found.attrs["api_key"] == "[redacted]"
    assert found.attrs["v"] == "NaN"
    assert (found.attrs["train.step"], found.attrs["train.run.id"]) == (4, "r1")
    assert not Translator(Spelling(), logs=False).translate([Batch(WRITER, 0, [record])]).items


def test_spans_are_passed_over() -> None:
    """Spans are skipped: they are sent to Datadog by OTLP."""
    found = translate(Span(T, 1, 1, None, b"\1" * 16, b"\1" * 8, None, "train.step"))
    assert found == ([], {})


def test_the_host_that_a_person_named() -> None:
    """The host of the run's resource stands above the machine's own name."""
    writer = Writer(id="w", run="r", project="p", host="machine", resource={"host.name": "rack-7"})
    found = translate(Metric(T, None, None, None, {"a": 1.0}), Alert(T, None, None, None, None, 9, "x"), writer=writer)
    assert [item.host for item in found.items] == ["rack-7", "rack-7"]
