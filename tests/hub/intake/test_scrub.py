"""What is done to records before they are taken."""

import copy
from collections import Counter

import pytest
from msgspec import structs

from stepscope.hub.intake import scrub
from stepscope.hub.intake.scrub import CUT, NAME_CUT, TOO_DEEP, TOO_MANY, TOO_MANY_SERIES, Scrubber
from stepscope.hub.limits import Limits
from stepscope.model.ports import Batch, Writer
from stepscope.model.records import Alert, Event, Instrument, Link, Log, Metric, Record, Span, SpanEvent
from stepscope.model.redaction import MASK
from tests.model.secret_corpus import Planted, planted

SMALL = Limits(attributes=3, text=10, name=27, long_text=20, keys=2)


def test_secrets() -> None:
    """Secrets are masked wherever a record carries attributes, also nested."""
    span = Span(
        1, 1, None, None, bytes(16), bytes(8), None, "s",
        attrs={"api_key": "x1", "a": {"password": "x2"}},
        events=(SpanEvent(1, "e", {"token": "x3", "n": [{"secret": "x4"}]}),),
        links=(Link(bytes(16), bytes(8), {"cookie": "x5"}),),
    )  # fmt: skip
    log = Log(1, None, None, None, None, 9, {"authorization": "x6"}, {"max_tokens": 5})
    kept = Scrubber(Limits()).scrub("r", [span, log], Counter())
    assert not [text for text in ("x1", "x2", "x3", "x4", "x5", "x6") if text in repr(kept)]
    assert "'max_tokens': 5" in repr(kept)


ADDRESS = "postgres://bob:Zq7kV9xTr4@db/x"


def test_keys_and_names_of_runs() -> None:
    """Secrets in the keys of attributes and metrics, and in what a run is called, are masked each time they come."""
    scrubber = Scrubber(Limits())
    for _ in range(2):
        lost: Counter[str] = Counter()
        writer = Writer(id="w", run="r", project=ADDRESS, name=ADDRESS, resource={ADDRESS: 1})
        metrics: list[Record] = [Metric(1, 1, None, None, {ADDRESS: 1.0, "loss": 2.0})]
        log = Log(1, None, None, None, None, 9, {ADDRESS: 1}, {ADDRESS: 1, "n": {ADDRESS: 2}})
        kept = scrubber.scrub("r", [*metrics, log], lost)
        batch = scrubber.mask_batch(Batch(writer, 1, metrics))
        assert "Zq7kV9xTr4" not in repr((kept, batch))
        assert repr((kept, batch)).count(MASK) == 8
    plain = Writer(id="w", run="r", project="p", name="n")
    assert scrubber.safe_writer(plain, Counter()) is plain


def test_texts_that_come_once_do_not_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few are remembered, and those that repeat among them: a text that is known is not searched for secrets again."""
    searched: list[str] = []
    monkeypatch.setattr(scrub, "_MAX_TEXTS", 10)
    monkeypatch.setattr(scrub, "mask_text", lambda text: searched.append(text) or text)  # type: ignore[func-returns-value]
    scrubber = Scrubber(Limits())

    def take(text: str) -> None:
        scrubber.scrub("r", [Log(1, None, None, None, None, 9, text)], Counter())

    for number in range(35):
        take(f"a line of the log, number {number}")
        assert len(scrubber._plain_texts) <= 10
    searched.clear()
    for _ in range(5):
        take("a line that comes again and again")
    assert len(searched) == 1


def test_headers() -> None:
    """Headers in pairs, and under keys of bytes, in attributes and in bodies; the pairs count as lists do."""
    headers = [["Authorization", "x1"], (b"cookie", b"x2"), ["n", 1]]
    log = Log(1, None, None, None, None, 9, headers, {"h": headers, "d": {b"x-auth-token": b"x3", b"n": 2}})
    lost: Counter[str] = Counter()
    (kept,) = Scrubber(Limits()).scrub("r", [log], lost)
    masked = [["Authorization", MASK], [b"cookie", MASK], ["n", 1]]
    assert isinstance(kept, Log)
    assert (kept.body, kept.attrs) == (masked, {"h": masked, "d": {b"x-auth-token": MASK, b"n": 2}})
    (flat,) = Scrubber(Limits(depth=1)).scrub("r", [log], lost)
    assert isinstance(flat, Log)
    assert flat.body == [None] * 3


def test_bounds() -> None:
    """Long texts are cut, attributes beyond the limit go, and both are counted."""
    lost: Counter[str] = Counter()
    records = [
        Event(1, None, None, None, None, 9, "e", {str(index): index for index in range(5)}, "y" * 50),
        Log(1, None, None, None, None, 9, ["z" * 50], {"a": "x" * 50, "b": ["x" * 50]}),
    ]
    event, log = Scrubber(SMALL).scrub("r", records, lost)
    assert isinstance(event, Event)
    assert isinstance(log, Log)
    assert (len(event.attrs), len(event.body)) == (3, 20)
    assert (log.body, log.attrs) == (["z" * 10], {"a": "x" * 10, "b": ["x" * 10]})
    assert lost == {TOO_MANY: 2, CUT: 4}


def test_depth() -> None:
    """What is nested too deep is left out and counted, however deep it is; the rest of the value stays."""
    lost: Counter[str] = Counter()
    deep: list[object] = []
    for _ in range(5000):
        deep = [deep]
    log = Log(1, None, None, None, None, 9, {"a": 1, "b": deep}, {"c": deep, "d": [1, [2, [3]]]})
    (kept,) = Scrubber(Limits(depth=3)).scrub("r", [log], lost)
    assert isinstance(kept, Log)
    assert (kept.body, kept.attrs) == ({"a": 1, "b": [[None]]}, {"c": [[[None]]], "d": [1, [2, [3]]]})
    assert lost == {TOO_DEEP: 2}


def test_keys() -> None:
    """New metric keys are refused once a run has too many; known ones and other runs are not."""
    lost: Counter[str] = Counter()
    scrubber = Scrubber(SMALL)

    def taken(run: str | None, key: str) -> bool:
        return bool(scrubber.scrub(run, [Metric(1, 1, None, None, {key: 1.0})], lost))

    assert [taken("r", key) for key in "abcab"] == [True, True, False, True, True]
    assert taken("other", "c")
    assert taken(None, "d")
    assert lost == {TOO_MANY_SERIES: 1}


def test_names_that_are_known_still_have_their_values_looked_at() -> None:
    """Long texts and secrets, also nested, are handled each time, under known names too."""
    scrubber = Scrubber(SMALL)
    for _ in range(3):
        for value in (1, "short", "x" * 50, {"password": "x"}):
            attrs = {"a": value, "token": "x"}
            scrubber.scrub_attrs(attrs, Counter())
            assert attrs["token"] == MASK
            assert attrs["a"] in (1, "short", "x" * 10, {"password": MASK})
            alone = {"a": value}
            scrubber.scrub_attrs(alone, Counter())
            assert alone["a"] == attrs["a"]


def test_what_needs_no_mask_is_left_as_it_is() -> None:
    """A batch of plain metrics is not copied; one attribute among them is seen."""
    plain: list[Record] = [Metric(1, 1, None, None, {"loss": 0.5})] * 3
    scrubber = Scrubber(Limits())
    assert scrubber.mask(plain) is plain
    (*_, last) = scrubber.mask([*plain, Metric(1, 1, None, None, {"loss": 0.5}, {"api_key": "x"})])
    assert last.attrs == {"api_key": MASK}


def test_names_are_cut_too() -> None:
    """Keys, names, messages, scopes and units, wherever a record has them; known keys do not hide the others."""
    long, short = "x" * 50, "x" * 10
    lost: Counter[str] = Counter()
    context = (1, None, long, None, None, 9)
    records: list[Record] = [
        Span(1, 1, None, None, bytes(16), bytes(8), None, long, message=long, scope=long, attrs={long: 1},
             events=(SpanEvent(1, long),)),
        Log(*context, None, {"a": {long: 1}}, long),
        Event(*context, long),
        Alert(*context, long, long),
        Metric(1, 1, long, None, {long: 1.0}, {}, Instrument(unit=long, description=long)),
    ]  # fmt: skip
    scrubber = Scrubber(SMALL)
    kept = scrubber.scrub("r", records, lost)
    assert long not in repr(kept)
    assert repr(kept).count(short) == 17
    assert lost[NAME_CUT] == 17
    (again,) = scrubber.scrub("r", [Metric(1, 1, None, None, {short: 1.0}, {}, Instrument(scope=long))], lost)
    (ours,) = scrubber.mask([Metric(1, 1, None, None, {long: 1.0})])
    assert long not in repr((again, ours))
    attrs = {long + "_password": "s3cret"}
    scrubber.scrub_attrs(attrs, lost)
    assert attrs == {short: MASK}


def test_long_names_of_metrics_stay_apart_and_can_be_asked_for() -> None:
    """Keys, category and axis are cut to what an address has room for; two that differ at their end stay two."""
    one, two, secret = "k" * 5000, "k" * 4999 + "é", "k" * 490 + " " + ADDRESS
    for mask in (True, False):
        scrubber, lost = Scrubber(Limits()), Counter[str]()
        for _ in range(2):
            given: list[Record] = [Metric(1, 1, one, two, {one: 1.0, two: 2.0, "loss": 3.0, secret: 4.0})]
            (kept,) = scrubber.mask(given) if mask else scrubber.scrub("r", given, lost)
            assert isinstance(kept, Metric)
            assert list(kept.values.values()) == [1.0, 2.0, 3.0, 4.0]
            assert max(map(len, [*kept.values, kept.axis or "", kept.category or ""])) == 500
            assert [kept.axis, kept.category] == list(kept.values)[:2]
            assert "Zq7kV" not in repr(kept)
        assert mask or lost == {NAME_CUT: 10}


@pytest.mark.parametrize("each", list(planted()), ids=lambda each: f"{each.key}={each.text[:40]}")
def test_no_planted_secret_passes(each: Planted) -> None:
    """Records of foreign clients lose their secrets: attributes, names, messages, bodies, span events."""
    attrs = {each.key: each.text, "deep": [{each.key: each.text}], "bytes": b""}
    text = each.text if each.key == "note" else ""
    given: list[Record] = [
        Span(1, 1, 0, None, b"t" * 16, b"s" * 8, None, text, message=text, attrs=dict(attrs),
             events=(SpanEvent(1, text, dict(attrs)),)),
        Log(1, None, None, None, None, 9, text, dict(attrs)),
        Log(1, None, None, None, None, 9, {"deep": [text]}, dict(attrs)),
        Event(1, None, None, None, None, 9, text, dict(attrs), text),
        Alert(1, None, None, None, None, 9, text, text, dict(attrs)),
    ]  # fmt: skip
    assert each.secret not in repr(Scrubber(Limits()).scrub("run", given, Counter()))


def test_known_metrics_beside_others() -> None:
    """Metrics of known shape pass as they are; one with a secret, a long text or a new key among them is changed."""
    scrubber, lost = Scrubber(Limits(text=40, keys=2)), Counter[str]()
    attrs, made = {"model": "small"}, Instrument("timing", "ms")

    def records(value: str, unit: str = "ms", key: str = "loss") -> list[Record]:
        shared: list[Record] = [Metric(at, at, "step", None, {"loss": 1.0}, attrs, made) for at in range(3)]
        return [*shared, Metric(9, 9, "step", None, {key: 1.0}, {"model": value}, Instrument("timing", unit))]

    scrubber.scrub("r", records("small"), lost)
    assert scrubber.scrub("r", records("small"), lost) == records("small")
    assert not lost
    assert "Zq7kV9xTr4" not in repr(scrubber.scrub("r", records(ADDRESS), lost))
    assert not lost
    (*_, cut) = scrubber.scrub("r", records("small", unit="u" * 50), lost)
    assert isinstance(cut, Metric)
    assert cut.instrument == Instrument("timing", "u" * 40)
    assert lost == {NAME_CUT: 1}
    assert len(scrubber.scrub("r", records("small", key="acc"), lost)) == 4
    assert len(scrubber.scrub("r", records("small", key="third"), lost)) == 3
    assert lost == {NAME_CUT: 1, TOO_MANY_SERIES: 1}


SPAN = Span(1, 2, 3, None, bytes(16), bytes(8), None, "forward", links=(Link(bytes(16), bytes(8)),))
ODD = [
    structs.replace(SPAN, name=f"call {ADDRESS}"),
    structs.replace(SPAN, name="n" * 200),
    structs.replace(SPAN, message=ADDRESS),
    structs.replace(SPAN, scope=ADDRESS),
    structs.replace(SPAN, axis=ADDRESS),
    structs.replace(SPAN, attrs={"password": "x"}),
    structs.replace(SPAN, events=(SpanEvent(1, ADDRESS),)),
    structs.replace(SPAN, links=(Link(bytes(16), bytes(8), {"password": "x"}),)),
]


@pytest.mark.parametrize("odd", ODD)
def test_spans_and_metrics_without_texts_are_passed_on_at_once(odd: Span) -> None:
    """A batch of them is returned as it is, unless one of them has something to mask or to cut."""
    scrubber = Scrubber(Limits(text=100))
    plain: list[Record] = [SPAN, Metric(1, 3, None, None, {"loss": 1.0})]
    assert scrubber.mask(plain) is plain
    for records in ([odd], [*plain, odd]):
        (*kept, found) = scrubber.mask(copy.deepcopy(records))
        assert kept == records[:-1]
        assert found != odd
        assert "Zq7kV9xTr4" not in repr(found)
