"""DogStatsD with real sockets: what arrives, in which datagrams, and the errors without a reader."""

import math
import re
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stepscope.dialects.datadog.sink import Datadog
from stepscope.dialects.datadog.sink.agent_socket import Address, Agent, most_bytes_of
from stepscope.dialects.datadog.sink.parts import LATE, TOO_LONG, DogStatsdSink
from stepscope.dialects.datadog.wire.translate import NOT_FINITE, Spelling, Translator
from stepscope.journal import layout
from stepscope.journal.following import Following
from stepscope.journal.quarantine import Quarantine
from stepscope.journal.segments import Journal
from stepscope.model import names
from stepscope.model.errors import Retry
from stepscope.model.ports import Batch, Sink
from stepscope.model.records import Event, Instrument, Metric, Record
from stepscope.pump import Pump
from stepscope.testing.sinks import WRITERS, SinkContract, closing, example_batches
from stepscope.wire import foreign_names
from tests.dialects.datadog.sink.dogstatsd_listener import Listener

NOW = 1_700_000_001.0
T = 1_700_000_000_000_000_000


def open_sink(address: Address, *, now: Callable[[], float] = lambda: NOW, **options: Any) -> DogStatsdSink:
    """The sink of an address, which believes that the examples are of the present."""
    spelling = Spelling(namespace="ns", tags=("env:test",))
    agent = Agent(address, timeout=0.05)
    made = {"timeout": 5.0, "most_bytes": most_bytes_of(address), **options}
    return DogStatsdSink(agent, Translator(spelling, logs=False), now=now, **made)


@pytest.fixture(params=["udp", "unix", "unixstream"])
def kind(request: pytest.FixtureRequest) -> str:
    """The kind of socket."""
    return str(request.param)


@pytest.fixture
def peer(kind: str, tmp_path: Path) -> Iterator[Listener]:
    """A listener."""
    made = Listener() if kind == "udp" else Listener(tmp_path / "dsd.sock", stream=kind == "unixstream")
    yield made
    made.stop()


@pytest.fixture
def address(kind: str, peer: Listener, tmp_path: Path) -> Address:
    """Its address."""
    return Address("127.0.0.1", peer.port) if kind == "udp" else Address(socket_path=f"{kind}://{tmp_path}/dsd.sock")


@pytest.fixture
def sink(address: Address) -> Iterator[Sink]:
    """Its sink."""
    with closing(open_sink(address)) as made:
        yield made


class TestContract(SinkContract):
    """Every sink's contract; an Agent answers nothing, so it is never busy and refuses nothing."""

    can_be_busy = False
    can_refuse = False


def test_every_type_arrives(peer: Listener, sink: Sink) -> None:
    """Every metric type arrives with its rate and tags."""
    words = {"gauge": "g", "histogram": "h", "distribution": "d", "timing": "ms"}
    records: list[Record] = [
        Metric(T, None, None, None, {f"x.{word}": 1.5}, {"a": "b"}, Instrument(word, cumulative=False))
        for word in words
    ]
    count = Instrument("sum", cumulative=False)
    member = Instrument("set", cumulative=False)
    records.append(Metric(T, None, None, None, {"x.count": 2}, {names.ATTR_SAMPLE_RATE: 0.5}, count))
    records.append(Metric(T, None, None, None, {"x.set": 1}, {names.ATTR_SET_MEMBER: "ann"}, member))
    assert not sink.write([Batch(WRITERS[0], 0, records)])
    found = {line.name: line for line in peer.metrics()}
    assert {name: found[f"ns.x.{name}"].type for name in words} == words
    assert found["ns.x.gauge"].tags == ["env:test", "project:sinks", "rank:0", "a:b"]
    assert (found["ns.x.count"].type, found["ns.x.count"].rate, found["ns.x.count"].value) == ("c", 0.5, "2")
    assert (found["ns.x.set"].type, found["ns.x.set"].value) == ("s", "ann")


def test_events_and_checks_arrive(peer: Listener, sink: Sink) -> None:
    """Events and checks arrive as separate lines."""
    check = Event(T, None, None, None, None, 9, "rl.kl", {foreign_names.ATTR_CHECK_STATUS: "CRITICAL"}, "too high")
    sink.write([Batch(WRITERS[0], 0, [Event(T, None, None, None, None, 13, "Hé", {}, "one\ntwo"), check])])
    event, checked = peer.read()
    assert re.match(r"_e\{3,\d+\}:Hé\|one\\ntwo\|d:1700000000\|p:normal\|t:warning\|#", event)
    assert re.match(r"_sc\|rl.kl\|2\|d:1700000000\|#.*\|m:too high", checked)


def test_datagrams_are_full_and_no_fuller(peer: Listener, address: Address) -> None:
    """Many lines share a datagram, within what the way carries, also where letters have several bytes."""
    records: list[Record] = [Metric(T, None, None, None, {"x": float(n)}, {"größe": "ü" * 20}) for n in range(500)]
    most = most_bytes_of(address)
    assert not peer.take(open_sink(address), [Batch(WRITERS[0], 0, records)])
    assert [float(line.value) for line in peer.metrics()] == [float(n) for n in range(500)]
    sizes = [len(each) for each in peer.datagrams]
    assert max(sizes) <= most
    assert min(sizes[:-1]) > most - 200


def test_an_event_without_listeners(kind: str, tmp_path: Path) -> None:
    """A missing Agent is reported immediately; when it starts, each record arrives once."""
    if kind == "udp":
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
            free.bind(("127.0.0.1", 0))
            address = Address("127.0.0.1", int(free.getsockname()[1]))
    else:
        address = Address(socket_path=f"{kind}://{tmp_path}/none.sock")
    with closing(open_sink(address)) as sink:
        for _ in range(2):
            with pytest.raises(Retry, match="no Agent listens"):
                sink.write(example_batches())
        if kind != "udp":
            peer = Listener(tmp_path / "none.sock", stream=kind == "unixstream")
            assert not sink.write(example_batches())
            assert sorted(peer.steps()) == list(range(10))
            peer.stop()


def test_an_unknown_host() -> None:
    """An unknown host is reported in one line."""
    with pytest.raises(Retry, match="DNS"):
        open_sink(Address("no-such-host.invalid", 8125)).write(example_batches())


def test_an_agent_that_does_not_read(tmp_path: Path) -> None:
    """A full Unix socket is waited for, and what was taken is not sent again."""
    peer = Listener(tmp_path / "full.sock")
    records: list[Record] = [Metric(T, None, None, None, {"x": float(n)}) for n in range(3_000)]
    batches = [Batch(WRITERS[0], 0, records)]
    with closing(open_sink(Address(socket_path=f"unix://{tmp_path}/full.sock"))) as sink:
        with pytest.raises(Retry, match="slower") as caught:
            sink.write(batches)
        assert caught.value.after == 0.0
        with pytest.raises(Retry, match="does not read") as caught:
            sink.write(batches)
        assert caught.value.after is None
        assert not peer.take(sink, batches)
    assert [float(line.value) for line in peer.metrics()] == [float(n) for n in range(3_000)]
    peer.stop()


def test_old_and_future_points_are_counted(peer: Listener, address: Address) -> None:
    """Old points, which Datadog drops silently, are rejected; late gauges carry their own time; nothing is retried."""
    hour = 3600
    ages = {"fresh": 1, "late": 600, "old": hour + 60, "future": -hour}
    records: list[Record] = [
        Metric(int((NOW - age) * 1e9), None, None, None, {name: 1.0}) for name, age in ages.items()
    ]
    assert open_sink(address).write([Batch(WRITERS[0], 0, records)]) == {LATE: 2}
    assert {line.name: line.time for line in peer.metrics()} == {"ns.fresh": None, "ns.late": int(NOW) - 600}


def test_what_grows_old_while_waiting(tmp_path: Path) -> None:
    """A second offer counts what the Agent would now drop."""
    moment = [NOW]
    sink = open_sink(Address(socket_path=f"unix://{tmp_path}/later.sock"), now=lambda: moment[0])
    batches = [Batch(WRITERS[0], 0, [Metric(T, None, None, None, {"x": 1.0})])]
    with pytest.raises(Retry):
        sink.write(batches)
    moment[0] += 2 * 3600
    assert sink.write(batches) == {LATE: 1}


def test_nan_is_counted(peer: Listener, sink: Sink) -> None:
    """Each value that has no place, and the others of its record arrive."""
    values = {"a": math.nan, "b": -math.inf, "c": 1.0}
    assert sink.write([Batch(WRITERS[0], 0, [Metric(T, None, None, None, values)])]) == {NOT_FINITE: 2}
    assert [line.name for line in peer.metrics()] == ["ns.non_finite", "ns.non_finite", "ns.c"]


def test_overlong_lines(peer: Listener, sink: Sink) -> None:
    """Overlong tags are cut; a line that no Agent reads is counted, and the others arrive."""
    many = {f"k{n}": "ü" * 300 for n in range(40)}
    records: list[Record] = [
        Metric(T, None, None, None, {"long": 1.0}, {"k": "v" * 9000}),
        Metric(T, None, None, None, {"huge": 1.0}, many),
        Metric(T, None, None, None, {"short": 1.0}),
    ]
    assert sink.write([Batch(WRITERS[0], 0, records)]) == {TOO_LONG: 1}
    found = {line.name: line.tags for line in peer.metrics()}
    assert sorted(found) == ["ns.long", "ns.short"]
    assert len(found["ns.long"][-1]) == 200


def test_delivery_is_bounded_and_goes_on(peer: Listener, address: Address) -> None:
    """A write that reaches its timeout is resumed, and each line arrives once."""
    ticks = iter([0.0, 0.1, 0.1, 0.1, 9.0])
    records: list[Record] = [Metric(T, None, None, None, {"x": float(n)}) for n in range(2000)]
    sink = open_sink(address, clock=lambda: next(ticks, 9.0), timeout=1.0)
    with pytest.raises(Retry, match="continues") as caught:
        sink.write([Batch(WRITERS[0], 0, records)])
    assert caught.value.after == 0.0
    before = len(peer.metrics())
    assert 0 < before < 2000
    assert not peer.take(sink, [Batch(WRITERS[0], 0, records)])
    assert [float(line.value) for line in peer.metrics()] == [float(n) for n in range(2000)]


def test_through_the_pump(tmp_path: Path) -> None:
    """The pump delivers a journal to the socket completely, and counts rejections."""
    peer = Listener(tmp_path / "p.sock")
    writer = WRITERS[0]
    journal = Journal(layout.writer_folder(tmp_path, writer.run, writer.id), writer)
    losses = [math.nan if step == 3 else 0.5 for step in range(10)]
    records = [Metric(time.time_ns(), step, None, "trainer", {"loss": loss}) for step, loss in enumerate(losses)]
    journal.append([msgspec.msgpack.encode(record) for record in records])
    journal.close()
    sink = Datadog.read({"socket": f"{tmp_path}/p.sock"}, {}).open()
    pump = Pump(sink, Following(tmp_path, "dd"), Quarantine(tmp_path, "dd"))
    while pump.step().moved:
        pass
    pump.close()
    assert peer.steps() == list(range(10))
    assert (pump.counts["written"], pump.counts["rejected"], pump.problem) == (9, 1, "")
    peer.stop()
