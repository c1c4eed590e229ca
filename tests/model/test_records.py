"""Records: five kinds with fixed tags, values that cannot be changed, keys with their category in front."""

import msgspec
import pytest

from stepscope.model.records import (
    ALERT,
    EVENT,
    KINDS,
    LOG,
    METRIC,
    SPAN,
    Alert,
    Event,
    Histogram,
    Log,
    Metric,
    Record,
    Span,
    kind,
)

EACH: dict[int, Record] = {
    METRIC: Metric(1, 2, None, "trainer", {"loss": 0.5, "lr": 1}),
    SPAN: Span(1, None, 2, "epoch", bytes(16), bytes(8), None, "train.step"),
    LOG: Log(1, None, None, None, None, 9, "a line"),
    EVENT: Event(1, 2, None, None, None, 9, "milestone", {"text": "half"}),
    ALERT: Alert(1, 2, None, None, None, 17, "loss is nan", "look"),
}


def test_the_tag_of_a_kind_is_its_place_among_the_kinds() -> None:
    """Journals on disk depend on it: the first element of a packed record names its kind for ever."""
    assert KINDS == ("metric", "span", "log", "event", "alert")
    for tag, record in EACH.items():
        assert kind(record) == KINDS[tag]
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(record))[0] == tag


def test_what_stands_in_a_journal_is_read_by_every_later_version() -> None:
    """The packed form of each kind as the first version wrote it; new fields may only follow."""
    written = {
        METRIC: "980001 02 c0 a7747261696e6572 82a46c6f7373cb3fe0000000000000a26c7201 80 c0",
        LOG: "9a0201 c0c0c0c0 09 a661206c696e65 80 a0",
        EVENT: "9a0301 02 c0c0c0 09 a96d696c6573746f6e65 81a474657874a468616c66 c0",
    }
    for tag, packed in written.items():
        assert msgspec.msgpack.decode(bytes.fromhex(packed), type=type(EACH[tag])) == EACH[tag]


def test_short_forms_are_expanded() -> None:
    """A record packed without its last fields has no attributes, and its own dict for them."""
    short = msgspec.msgpack.encode((METRIC, 1, 2, None, None, {"loss": 0.5}))
    first, second = (msgspec.msgpack.decode(short, type=Metric) for _ in range(2))
    assert first == Metric(1, 2, None, None, {"loss": 0.5}, {}, None)
    assert first.attrs is not second.attrs


@pytest.mark.parametrize("record", EACH.values(), ids=KINDS)
def test_a_record_cannot_be_changed(record: Record) -> None:
    """What was recorded stays as it was."""
    with pytest.raises(AttributeError):
        record.time = 3  # type: ignore[misc]


def test_points_have_the_category_in_front() -> None:
    """`loss` of the trainer is `trainer/loss`; without a category a key is itself."""
    assert dict(Metric(1, 2, None, "trainer", {"loss": 0.5, "a/b": 1}).points()) == {
        "trainer/loss": 0.5,
        "trainer/a/b": 1,
    }
    assert dict(Metric(1, 2, None, None, {"loss": 0.5}).points()) == {"loss": 0.5}


def test_a_value_may_be_a_distribution() -> None:
    """Numbers and histograms live side by side in one metric and come back as what they were."""
    histogram = Histogram(3, 6.0, 1.0, 3.0, (1.0, 2.0), (1, 1, 1))
    metric = Metric(1, None, None, None, {"big": 2**64 - 1, "small": -(2**63), "h": histogram})
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(metric), type=Metric) == metric
