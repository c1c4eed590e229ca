"""How much memory records are estimated to take, against what the interpreter takes for them."""

import tracemalloc
from collections.abc import Callable

import msgspec
import pytest

from stepscope.hub.intake.store_pump import ReceivedBatch, held_bytes, measured
from stepscope.hub.store.write.metric_rows import metric_rows
from stepscope.model.ports import Batch, Writer
from stepscope.model.records import Alert, Event, Histogram, Link, Log, Metric, Record, Span, SpanEvent

AT = 1_790_000_000 * 10**9
IDS = (b"\x01" * 16, b"\x02" * 8)
LONG = "a prompt and its answer, " * 200


def metric(at: int) -> Record:
    """What a trainer logs."""
    return Metric(AT + at, at, None, "trainer", {f"key{number}": at + number / 3 for number in range(5)})


def histogram(at: int) -> Record:
    """A histogram of a hundred bins."""
    bins = tuple(at + number / 7 for number in range(100))
    value = Histogram(900, 1.0, 0.0, 9.0, bins, tuple(range(at + 1000, at + 1101)))
    return Metric(AT + at, at, None, "trainer", {"weights": value})


def span(at: int) -> Record:
    """A span with an event, a link and texts."""
    events = (SpanEvent(AT + at, "prompt", {"text": f"{at}{LONG}"}),)
    return Span(AT + at, 5, at, None, *IDS, None, "chat", attrs={"number": at}, events=events, links=(Link(*IDS),))


def line(at: int) -> Record:
    """A line of a log."""
    return Log(AT + at, at, None, *IDS, 9, f"a line of the log, number {at}", {"logger": f"train.{at}", "index": at})


def sample(at: int) -> Record:
    """Rows of generated texts."""
    return Log(AT + at, at, None, None, None, 9, "samples", {"prompt": [f"{at}.{row}{LONG}" for row in range(8)]})


def nested(at: int) -> Record:
    """An event with a body of lists and dicts."""
    return Event(AT + at, at, None, None, None, 9, "done", body={"rows": [{"text": f"{at}{LONG}"}, [f"{at}"]]})


def alert(at: int) -> Record:
    """An alert with a long message."""
    return Alert(AT + at, at, None, None, None, 17, "loss", f"{at}{LONG}")


@pytest.mark.parametrize("make", [metric, histogram, span, line, sample, nested, alert])
def test_the_estimate_is_near_the_truth(make: Callable[[int], Record]) -> None:
    """Within half and double, for records of every kind."""
    packed = msgspec.msgpack.encode([make(at) for at in range(300)])
    decoder = msgspec.msgpack.Decoder(list[Metric | Span | Log | Event | Alert])
    decoder.decode(packed)
    tracemalloc.start()
    try:
        records = decoder.decode(packed)
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert taken / 2 < held_bytes(records) < taken * 2


def test_a_mixture_is_the_sum_of_its_parts() -> None:
    """Metrics are estimated by some of them, and what is between them counts whole."""
    metrics, samples = [metric(at) for at in range(50)], [sample(at) for at in range(50)]
    mixed = [record for pair in zip(metrics, samples, strict=True) for record in pair]
    assert held_bytes(mixed) == pytest.approx(held_bytes(metrics) + held_bytes(samples))


def test_columns_are_not_unpacked() -> None:
    """Metrics that came as columns stay columns: to make records of them would take longer than to store them."""
    rows = metric_rows(memoryview(b"\xdd\0\0\0\x64" + msgspec.msgpack.encode(metric(7)) * 100))
    assert rows is not None
    (found,) = measured([ReceivedBatch("folder", Batch(Writer(id="w", run="r", project=""), 1, rows))])  # type: ignore[arg-type]
    assert found.bytes > 100 * 100
    assert rows._made is None
