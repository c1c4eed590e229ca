"""Datadog's HTTP intake against a server that checks the documented shapes: what arrives, and every refusal."""

import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from stepscope.dialects.datadog.sink.parts import LATE, IntakeSink
from stepscope.dialects.datadog.wire.payloads import SETS
from stepscope.dialects.datadog.wire.translate import NOT_FINITE, Spelling, Translator
from stepscope.journal import layout
from stepscope.journal.following import Following
from stepscope.journal.quarantine import Quarantine
from stepscope.journal.segments import Journal
from stepscope.model import names
from stepscope.model.errors import Reject, Retry
from stepscope.model.ports import Batch, Sink
from stepscope.model.records import Alert, Event, Instrument, Log, Metric, Record
from stepscope.pump import Pump
from stepscope.testing.sinks import WRITERS, SinkContract, closing, example_batches
from stepscope.wire import foreign_names
from tests.dialects.datadog.sink.intake_peer import KEY, NOW, IntakePeer
from tests.sinks.faults import blackhole
from tests.sinks.servers import Reply, Server, http_date

T = 1_700_000_000_000_000_000


def open_sink(url: str, *, key: str = KEY, timeout: float = 5.0, now: Callable[[], float] = lambda: NOW) -> IntakeSink:
    """The sink of a server, which believes that the examples are of the present."""
    translator = Translator(Spelling(namespace="ns", tags=("env:test",)))
    return IntakeSink(url, url, key, translator, timeout=timeout, now=now)


@pytest.fixture
def peer() -> Iterator[IntakePeer]:
    """A server."""
    server = IntakePeer()
    yield server
    server.stop()


@pytest.fixture
def sink(peer: IntakePeer) -> Iterator[Sink]:
    """Its sink."""
    with closing(open_sink(peer.url)) as made:
        yield made


class TestContract(SinkContract):
    """Every sink's contract."""


def write(sink: Sink, *records: Record) -> object:
    """Offer records of one writer."""
    return sink.write([Batch(WRITERS[0], 0, list(records))])


def test_every_path(peer: IntakePeer, sink: Sink) -> None:
    """Gauges and counts, samples, events, checks and logs go where they belong, in the documented shapes."""
    delta, timing = Instrument("sum", cumulative=False), Instrument("timing", cumulative=False)
    check = {foreign_names.ATTR_CHECK_STATUS: "WARNING"}
    refused = write(
        sink,
        Metric(T, 3, None, "trainer", {"loss": 0.5}),
        Metric(T, None, None, None, {"tokens": 4}, {names.ATTR_SAMPLE_RATE: 0.5}, delta),
        Metric(T, None, None, None, {"forward": 2.5}, {names.ATTR_SAMPLE_RATE: 0.25}, timing),
        Event(T, None, None, None, None, 9, "Milestone", {}, "done"),
        Alert(T, 3, None, None, None, 17, "NaN", "loss is NaN"),
        Event(T, None, None, None, None, 9, "rl.kl", check, "high"),
        Log(T, 3, None, None, None, 13, "slow", {"a": {"b": 1}}),
    )
    assert not refused
    (series,) = peer.found("/api/v2/series")
    shown = {each.metric: (each.type, [point.value for point in each.points]) for each in series.series}
    assert shown == {"ns.train.step": (3, [3.0]), "ns.trainer.loss": (3, [0.5]), "ns.tokens": (1, [8.0])}
    assert series.series[0].tags == ["env:test", "project:sinks", "rank:0"]
    (samples,) = peer.found("/api/v1/distribution_points")
    assert samples.series[0].points == [(1_700_000_000, [2.5] * 4)]
    assert [event.alert_type for event in peer.found("/api/v1/events")] == ["info", "error"]
    assert [check.status for check in peer.found("/api/v1/check_run")[0]] == [1]
    (logs,) = peer.found("/api/v2/logs")
    assert (logs[0].message, logs[0].status, logs[0].timestamp) == ("slow", "warn", T // 1_000_000)


def test_a_wrong_key_is_explained(peer: IntakePeer) -> None:
    """What to check is in the reason, without a password; no record is refused, and one request is enough to know."""
    address = peer.url.replace("//", "//ada:PASS@")
    with (
        closing(open_sink(address, key="wrong")) as sink,
        pytest.raises(Retry, match=r"403.*DD_API_KEY.*DD_SITE") as caught,
    ):
        write(sink, *[Event(T, None, None, None, None, 9, f"e{n}") for n in range(50)])
    assert "PASS" not in str(caught.value)
    assert peer.requests == 1


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_retried(peer: IntakePeer, sink: Sink, status: int) -> None:
    """These mean try again; each record arrives once."""
    peer.instead = [Reply(status)]
    with pytest.raises(Retry, match=str(status)):
        sink.write(example_batches())
    assert not sink.write(example_batches())
    assert sorted(peer.steps()) == list(range(10))


def test_retry_after_forms(peer: IntakePeer) -> None:
    """Seconds, dates, and Datadog's own header for rate limits."""
    with closing(open_sink(peer.url, now=time.time)) as sink:
        said: list[tuple[dict[str, str], float | None]] = [
            ({"Retry-After": "120"}, 120.0),
            ({"Retry-After": http_date(90)}, 90.0),
            ({"X-RateLimit-Reset": "33"}, 33.0),
            ({}, None),
        ]
        for headers, wanted in said:
            peer.instead = [Reply(429, headers)]
            with pytest.raises(Retry) as caught:
                write(sink, Metric(time.time_ns(), None, None, None, {"a": 1.0}))
            assert caught.value.after == (None if wanted is None else pytest.approx(wanted, abs=2))


def test_too_large_means_split(peer: IntakePeer, sink: Sink) -> None:
    """413 is a refusal of the whole request, which the pump halves; the record alone that is too large is named."""
    peer.most_compressed = 300
    with pytest.raises(Reject, match=r"413.*too large") as caught:
        write(sink, *[Metric(T, None, None, None, {f"metric_{n}": float(n)}) for n in range(200)])
    assert caught.value.together
    assert caught.value.where == tuple(range(200))
    assert not write(sink, Metric(T, None, None, None, {"a": 1.0}))


def test_requests_keep_the_limits(peer: IntakePeer, sink: Sink) -> None:
    """A large delivery is parted before it is refused: points, samples, logs by number and by bytes."""
    timing = Instrument("timing", cumulative=False)
    records: list[Record] = [
        Metric(T, None, None, None, {f"m{n}.{k}": n * 0.123456789 + k for k in range(10)}) for n in range(6000)
    ]
    records += [Metric(T, None, None, None, {f"t{n % 50}": n * 0.1234567}, {}, timing) for n in range(3000)]
    records += [Log(T, None, None, None, None, 9, f"line {n}") for n in range(2500)]
    records += [Log(T, None, None, None, None, 9, "ü" * 2_000_000)]
    with closing(open_sink(peer.url, timeout=300.0)) as patient:
        assert not write(patient, *records)
    assert sum(len(body.series) for body in peer.found("/api/v2/series")) == 60_000
    assert sum(len(body) for body in peer.found("/api/v2/logs")) == 2501
    assert len(peer.found("/api/v2/series")) > 1


def test_old_points_are_counted_and_not_sent(peer: IntakePeer, sink: Sink) -> None:
    """An hour for points, 18 hours for events and logs, 10 minutes for checks; never tried again."""
    hour = 3600 * 10**9
    check = {foreign_names.ATTR_CHECK_STATUS: "OK"}
    refused = write(
        sink,
        Metric(T - 2 * hour, None, None, None, {"a": 1.0}),
        Metric(T + hour, None, None, None, {"a": 1.0}),
        Event(T - 2 * hour, None, None, None, None, 9, "taken"),
        Event(T - 20 * hour, None, None, None, None, 9, "old"),
        Event(T - hour, None, None, None, None, 9, "old", check),
        Log(T - 20 * hour, None, None, None, None, 9, "old"),
    )
    assert refused == {LATE: 5}
    assert [event.title for event in peer.found("/api/v1/events")] == ["taken"]


def test_what_has_no_place_is_counted(peer: IntakePeer, sink: Sink) -> None:
    """NaN, infinities and sets, by reason; the others arrive."""
    member = Instrument("set", cumulative=False)
    values = {"a": math.nan, "b": math.inf, "c": 1.0}
    refused = write(sink, Metric(T, None, None, None, values), Metric(T, None, None, None, {"users": 1}, {}, member))
    assert refused == {NOT_FINITE: 2, SETS: 1}
    assert {each.metric for each in peer.found("/api/v2/series")[0].series} == {"ns.non_finite", "ns.c"}


def test_errors_inside_a_success_are_counted(peer: IntakePeer, sink: Sink) -> None:
    """The intake may say 202 and list what it did not take."""
    peer.instead = [Reply(202, {}, b'{"errors": ["Unit is not valid"]}')]
    assert write(sink, Metric(T, None, None, None, {"a": 1.0})) == {"Unit is not valid": 1}


def test_unicode_and_overlong_tags(peer: IntakePeer, sink: Sink) -> None:
    """Letters of any language stay, tags are cut at 200 characters, names are Datadog's letters."""
    attrs = {"größe": "大きい", "long": "v" * 999, "sep": "a,b|c\nd"}
    assert not write(sink, Metric(T, None, None, "trainer", {"損失": 1.0}, attrs))
    (series,) = peer.found("/api/v2/series")[0].series
    assert series.tags[-3:] == ["größe:大きい", "long:" + "v" * 195, "sep:a_b_c_d"]
    assert series.metric == "ns.trainer.u640du5931"


def test_an_unreachable_server_is_retried(peer: IntakePeer) -> None:
    """Refused and swallowed connections are waited for, within the timeout."""
    with closing(open_sink(peer.url, timeout=0.3)) as sink:
        peer.stop()
        with pytest.raises(Retry, match="nothing listens"):
            sink.write(example_batches())
    with blackhole() as port, closing(open_sink(f"http://127.0.0.1:{port}", timeout=0.3)) as sink:
        for _ in range(2):
            with pytest.raises(Retry, match="in time"):
                sink.write(example_batches())


def test_time_for_one_delivery(peer: IntakePeer) -> None:
    """Events are sent one by one; after a timeout delivery resumes, and none is sent twice."""
    ticks = iter([0.0, 0.1, 0.2, 0.3, 99.0])
    sink = IntakeSink(
        peer.url, peer.url, KEY, Translator(Spelling()), timeout=5.0, now=lambda: NOW, clock=lambda: next(ticks, 99.0)
    )
    records = [Event(T, None, None, None, None, 9, f"e{n}") for n in range(9)]
    with pytest.raises(Retry) as caught:
        write(sink, *records)
    assert caught.value.after == 0.0
    assert len(peer.found("/api/v1/events")) == 3
    assert not write(sink, *records)
    assert [event.title for event in peer.found("/api/v1/events")] == [f"e{n}" for n in range(9)]


def test_logs_have_a_host_of_their_own(peer: IntakePeer) -> None:
    """Logs are sent to Datadog's separate host for logs."""
    other = Server()
    try:
        sink = IntakeSink(peer.url, f"{other.url}/logs", KEY, Translator(Spelling()), timeout=5.0, now=lambda: NOW)
        assert not write(sink, Log(T, None, None, None, None, 9, "x"), Metric(T, None, None, None, {"a": 1.0}))
        assert [got.path for got in other.received] == ["/logs/api/v2/logs"]
        assert len(peer.found("/api/v2/series")) == 1
    finally:
        other.stop()


def test_the_pump_splits_what_is_too_large(peer: IntakePeer, tmp_path: Path) -> None:
    """Everything arrives in smaller requests, but the one that is too large alone: it is set aside and counted."""
    peer.most_raw = 2000
    writer = WRITERS[0]
    now = time.time_ns()
    records = [Log(now, n, None, None, None, 9, "x" * (5000 if n == 33 else 10)) for n in range(64)]
    journal = Journal(layout.writer_folder(tmp_path, writer.run, writer.id), writer)
    journal.append([msgspec.msgpack.encode(record) for record in records])
    journal.close()
    sink = open_sink(peer.url, now=time.time)
    pump = Pump(sink, Following(tmp_path, "dd"), Quarantine(tmp_path, "dd"))
    deadline = time.monotonic() + 300
    while not pump.at_end and time.monotonic() < deadline:
        pump.wake()
        pump.step()
    pump.close()
    assert (pump.counts["written"], pump.counts["rejected"]) == (63, 1)
    assert sum(len(body) for body in peer.found("/api/v2/logs")) == 63
