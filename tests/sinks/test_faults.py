"""Every fault against every sink, on real sockets: what is waited for, what is refused, and that nothing is lost."""

import contextlib
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stepscope.dialects.datadog.sink.parts import IntakeSink
from stepscope.dialects.datadog.wire.translate import Spelling, Translator
from stepscope.dialects.mlflow.sink import Mlflow
from stepscope.dialects.otlp.sink import Otlp
from stepscope.dialects.tinker.sink import Tinker
from stepscope.journal.following import Following
from stepscope.journal.quarantine import Quarantine
from stepscope.journal.segments import Journal
from stepscope.model.errors import Retry
from stepscope.model.ports import Sink, Writer
from stepscope.model.records import Metric
from stepscope.pump import Pump
from stepscope.sinks.hub import Hub
from stepscope.testing.sinks import closing, example_batches
from stepscope.wire.otlp.replies import Status
from tests.dialects.otlp.sink.test_grpc_channel import GrpcPeer
from tests.dialects.otlp.sink.test_http import OtlpPeer
from tests.sinks.faults import Relay, blackhole, refused, silent
from tests.sinks.servers import Received, Reply, Server, http_date
from tests.sinks.test_hub import HubPeer

KINDS = ("otlp_http", "otlp_grpc", "hub")
COUNT = 200
WORDS = {
    "refused": "refused|UNAVAILABLE",
    "blackhole": "in time|UNAVAILABLE|DEADLINE",
    "silent": "in time|closed the connection|UNAVAILABLE|DEADLINE",
    "tls hang": "in time|UNAVAILABLE|DEADLINE",
    "dns": "DNS|UNAVAILABLE|DEADLINE",
}


def sink_of(kind: str, address: str, timeout: float = 5.0) -> Sink:
    """The sink of a kind, for HOST:PORT with its scheme."""
    if kind == "hub":
        return Hub.read({"url": address, "timeout": timeout}, {}).open()
    protocol = "grpc" if kind == "otlp_grpc" else "http/protobuf"
    return Otlp.read({"endpoint": address, "protocol": protocol, "timeout": timeout}, {}).open()


@contextlib.contextmanager
def nowhere(fault: str) -> Iterator[str]:
    """An address without a listener."""
    if fault == "dns":
        yield "http://no-such-host.invalid:4318"
        return
    made = {"refused": refused, "blackhole": blackhole, "silent": silent, "tls hang": silent}[fault]
    with made() as port:
        yield f"{'https' if fault == 'tls hang' else 'http'}://127.0.0.1:{port}"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fault", WORDS)
def test_a_server_that_does_not_answer(kind: str, fault: str) -> None:
    """Means Retry with the reason in words, after the timeout at the latest; a second try has the same result."""
    with nowhere(fault) as address, closing(sink_of(kind, address, timeout=0.4)) as sink:
        for _ in range(2):
            began = time.monotonic()
            with pytest.raises(Retry, match=WORDS[fault]):
                sink.write(example_batches())
            assert time.monotonic() - began < 5, "no more than the timeout, on a busy machine"


@pytest.fixture
def peer(kind: str) -> Iterator[Any]:
    """The server of a kind."""
    server = {"otlp_http": OtlpPeer, "otlp_grpc": GrpcPeer, "hub": HubPeer}[kind]()
    yield server
    server.stop()


def port_of(peer: Any) -> int:
    """The port of a server."""
    return int(peer.port if isinstance(peer, GrpcPeer) else peer.url.rpartition(":")[2])


@pytest.mark.parametrize("kind", KINDS)
def test_slow(kind: str, peer: Any) -> None:
    """A peer 200 ms away is only slow: everything is taken at the first offer."""
    relay = Relay(port_of(peer), delay=0.2)
    try:
        with closing(sink_of(kind, f"http://127.0.0.1:{relay.port}", timeout=20.0)) as sink:
            began = time.monotonic()
            assert not sink.write(example_batches())
            assert time.monotonic() - began >= 0.2
        assert sorted(peer.steps()) == list(range(10))
    finally:
        relay.stop()


@pytest.mark.parametrize("kind", KINDS)
def test_cut_in_the_middle_of_the_answer(kind: str, peer: Any) -> None:
    """A request with an unknown outcome is sent again; nothing is lost."""
    relay = Relay(port_of(peer), cut=12)
    try:
        with closing(sink_of(kind, f"http://127.0.0.1:{relay.port}", timeout=2.0)) as sink:
            with pytest.raises(Retry):
                sink.write(example_batches())
            relay.cut = None
            _until_taken(sink)
        assert set(peer.steps()) == set(range(10))
    finally:
        relay.stop()


def _until_taken(sink: Sink) -> None:
    deadline = time.monotonic() + 300
    while True:
        try:
            sink.write(example_batches())
            return
        except Retry:
            assert time.monotonic() < deadline


def write_journal(home: Path) -> None:
    """A journal of metrics at rising steps, ten to a batch."""
    name = "r0-a1-host-1-abc"
    journal = Journal(home / "runs" / "run" / name, Writer(id=name, run="run", project="p"))
    for first in range(0, COUNT, 10):
        records = [Metric(step + 1, step, None, "trainer", {"loss": 0.5}) for step in range(first, first + 10)]
        journal.append([msgspec.msgpack.encode(record) for record in records])
    journal.close()


def write_poison(home: Path) -> None:
    """A journal of three records, the second of which is the poison."""
    name = "r1-a1-host-2-abc"
    journal = Journal(home / "runs" / "run" / name, Writer(id=name, run="run", project="p", rank=1))
    records = [Metric(COUNT + 1, COUNT, None, "trainer", {key: 1.0}) for key in ("before", "poison", "after")]
    journal.append([msgspec.msgpack.encode(record) for record in records])
    journal.close()


def plain(got: Received) -> bytes:
    """The body of a request, inflated if need be."""
    return zlib.decompress(got.body) if got.headers.get("content-encoding") == "deflate" else got.body


def deliver(home: Path, sink: Sink, seconds: float = 3600.0) -> tuple[Pump, float]:
    """Pump until nothing is left, on a clock that jumps over the waits; the pump, and the longest wait."""
    now = longest = 0.0
    pump = Pump(sink, Following(home, "s"), Quarantine(home, "s"), group_bytes=1500, clock=lambda: now)
    while not pump.at_end and now < seconds:
        wait = pump.step().wait
        longest = max(longest, wait)
        now += wait
    return pump, longest


GRPC = {
    "429 seconds": Status(8, "slow down", 20.0),
    "500": Status(13, "internal"),
    "503": Status(14, "full", 20.0),
    "413": Status(8, "too large"),
    "302": Status(12, "not here"),
}
HTTP = {
    "429 seconds": lambda: Reply(429, {"Retry-After": "20"}),
    "429 date": lambda: Reply(429, {"Retry-After": http_date(20)}),
    "500": lambda: Reply(500, {}, b"oops"),
    "503": lambda: Reply(503, {"Retry-After": "20"}),
    "413": lambda: Reply(413),
    "302": lambda: Reply(302, {"Location": "http://127.0.0.1:1/login"}),
}
WAITED_FOR = ("429 seconds", "429 date", "503")
RETRIED = (*WAITED_FOR, "500")


def answer_with(peer: Any, fault: str, times: int) -> None:
    """Have a server answer so often with a fault."""
    if isinstance(peer, GrpcPeer):
        peer.refusals += [GRPC[fault]] * times
    else:
        peer.replies += [HTTP[fault]() for _ in range(times)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fault", HTTP)
def test_answers(tmp_path: Path, kind: str, peer: Any, fault: str) -> None:
    """Each record ends at the server, once, or in the quarantine with the reason, from where it is taken again."""
    if kind == "otlp_grpc" and fault not in GRPC:
        pytest.skip("gRPC has one form of Retry-After")
    write_journal(tmp_path)
    answer_with(peer, fault, 2)
    with closing(sink_of(kind, f"http://127.0.0.1:{port_of(peer)}")) as sink:
        pump, longest = deliver(tmp_path, sink)
        quarantine = Quarantine(tmp_path, "s")
        aside = [record.step for entry in quarantine.entries() for record in entry.batch.records]
        if fault in WAITED_FOR:
            assert (longest, aside) == (pytest.approx(20, abs=2), [])
        if fault in RETRIED:
            assert (pump.counts["retried"], aside) == (2, [])
        assert pump.counts["written"] + pump.counts["rejected"] == COUNT
        assert sorted(peer.steps() + aside) == list(range(COUNT))
        for entry in quarantine.entries():
            sink.write([entry.batch])
    assert sorted(peer.steps()) == list(range(COUNT))


class Accepting(Server):
    """Takes everything, in Tinker's words, which are good enough for Datadog."""

    def __init__(self) -> None:
        super().__init__()
        self.success = Reply(body=b'{"status": "accepted"}')


def open_intake(url: str) -> Sink:
    """The sink of Datadog's intake, at the time of the journal."""
    return IntakeSink(url, url, "k", Translator(Spelling()), timeout=5.0, now=lambda: 0.0)


DENIALS: dict[str, tuple[Callable[[], Any], Callable[[str], Sink], Any]] = {
    "otlp_http": (OtlpPeer, lambda url: sink_of("otlp_http", url), Reply(403, {}, b"not you")),
    "otlp_grpc": (GrpcPeer, lambda url: sink_of("otlp_grpc", url), Status(16, "not you")),
    "hub": (HubPeer, lambda url: sink_of("hub", url), Reply(401, {}, b'{"error": {"message": "not you"}}')),
    "tinker": (
        Accepting,
        lambda url: Tinker.read({"url": url, "kinds": "metric"}, {}).open(),
        Reply(401, {}, b'{"detail": "not you"}'),
    ),
    "datadog": (Accepting, open_intake, Reply(403, {}, b'{"errors": ["not you"]}')),
}
"""A server of each kind, the sink for it, and how it says that a token is wrong; MLflow has tests of its own."""


@pytest.mark.parametrize("kind", [each for each in DENIALS if each != "otlp_grpc"])
def test_a_record_that_breaks_the_server(tmp_path: Path, kind: str) -> None:
    """A server that answers 500 whenever one record is in a request gets all others, and that one is quarantined."""
    start, open_sink, _ = DENIALS[kind]
    with contextlib.ExitStack() as undo:
        peer = start()
        undo.callback(peer.stop)
        write_journal(tmp_path)
        write_poison(tmp_path)
        peer.decide = lambda got: Reply(500, {}, b"oops") if b"poison" in plain(got) else peer.success
        sink = undo.enter_context(closing(open_sink(peer.url)))
        pump, _ = deliver(tmp_path, sink)
        (entry,) = Quarantine(tmp_path, "s").entries()
        assert [record.values for record in entry.batch.records if isinstance(record, Metric)] == [{"poison": 1.0}]
        assert "500" in entry.note.reason
        assert (pump.counts["written"], pump.counts["rejected"]) == (COUNT + 2, 1)
        peer.decide = None
        before = len(peer.received)
        assert not sink.write([entry.batch])
        assert len(peer.received) == before + 1


@pytest.mark.parametrize("kind", DENIALS)
def test_a_wrong_token_keeps_everything_in_the_journal(tmp_path: Path, kind: str) -> None:
    """During an outage nothing is rejected and the error is reported; afterwards everything is delivered."""
    write_journal(tmp_path)
    make, opened, denial = DENIALS[kind]
    peer, now = make(), 0.0
    answers = peer.refusals if isinstance(peer, GrpcPeer) else peer.replies
    answers += [denial] * 1000
    try:
        with closing(opened(f"http://127.0.0.1:{port_of(peer)}")) as sink:
            pump = Pump(sink, Following(tmp_path, "s"), Quarantine(tmp_path, "s"), clock=lambda: now)
            while now < 3600:
                now += pump.step().wait
            assert {key.partition("/")[0] for key in pump.counts} == {"retried"}
            assert 40 < pump.counts["retried"] < 200, "it is asked seldom, and not given up"
            assert ("not you" in pump.problem, pump.is_stuck, pump.at_end) == (True, True, False)
            assert Following(tmp_path, "s").unread() > 0
            answers.clear()
            while not pump.at_end:
                now += pump.step().wait
            assert (pump.counts["written"], pump.problem) == (COUNT, "")
    finally:
        peer.stop()
    assert not list(Quarantine(tmp_path, "s").entries())


def open_example_intake(url: str) -> Sink:
    """The sink of Datadog's intake, at the time of the examples."""
    return IntakeSink(url, url, "k", Translator(Spelling()), timeout=5.0, now=lambda: 1.7e9)


def open_mlflow(url: str, part: int) -> Sink:
    """The sink of MLflow's runs, or that of its traces."""
    return Mlflow.read({"uri": url, "experiment_id": "1"}, {}).parts[part].open()


OVER_HTTP: dict[str, tuple[str, Callable[[str], Sink]]] = {
    "otlp protobuf": ("an OTLP server", lambda url: sink_of("otlp_http", url)),
    "otlp json": ("an OTLP server", lambda url: Otlp.read({"endpoint": url, "protocol": "http/json"}, {}).open()),
    "hub": ("a Stepscope hub", lambda url: sink_of("hub", url)),
    "datadog": ("Datadog's intake", open_example_intake),
    "tinker": ("a Tinker service", lambda url: Tinker.read({"url": url}, {}).open()),
    "mlflow runs": ("an MLflow server", lambda url: open_mlflow(url, 0)),
    "mlflow traces": ("an MLflow server", lambda url: open_mlflow(url, 1)),
}
PAGE = b"<!doctype html><title>Sign in</title>"
PAGES = {
    "html": Reply(200, {"Content-Type": "text/html; charset=utf-8"}, PAGE),
    "undeclared": Reply(200, {}, PAGE),
    "called json": Reply(200, {"Content-Type": "application/json"}, PAGE),
    "called protobuf": Reply(202, {"Content-Type": "application/x-protobuf"}, PAGE),
    "text": Reply(200, {"Content-Type": "text/plain"}, b"OK"),
    "json list": Reply(200, {"Content-Type": "application/json"}, b"[]"),
}


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("kind", OVER_HTTP)
def test_a_page_is_no_delivery(kind: str, page: str) -> None:
    """A success that the service did not write delivers nothing; the error says what answered, and where to look."""
    service, open_sink = OVER_HTTP[kind]
    server = Server()
    server.always = PAGES[page]
    try:
        with closing(open_sink(server.url)) as sink:
            for _ in range(2):
                with pytest.raises(Retry, match=f"HTTP 20[02].*not from {service}.*Check the address"):
                    sink.write(example_batches())
        assert server.requests >= 2
    finally:
        server.stop()


RESTARTS: dict[str, Callable[[int], Any]] = {
    "otlp_http": lambda port: OtlpPeer(port=port),
    "otlp_grpc": lambda port: GrpcPeer(port=port),
    "hub": lambda port: HubPeer(port=port),
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_server_restarts_in_mid_stream(tmp_path: Path, kind: str) -> None:
    """What one server took and what the next took is everything, in order, each once."""
    write_journal(tmp_path)
    first = RESTARTS[kind](0)
    port = port_of(first)
    pump_steps: list[int] = []
    with closing(sink_of(kind, f"http://127.0.0.1:{port}", timeout=2.0)) as sink:
        pump = Pump(sink, Following(tmp_path, "s"), Quarantine(tmp_path, "s"), group_bytes=1500)
        for _ in range(3):
            pump.step()
        first.stop()
        pump_steps += first.steps()
        assert 0 < len(pump_steps) < COUNT
        pump.step()
        assert pump.counts["retried"] == 1
        second = RESTARTS[kind](port)
        try:
            deadline = time.monotonic() + 300
            while not pump.at_end:
                assert time.monotonic() < deadline, pump.problem
                pump.wake()
                pump.step()
            pump_steps += second.steps()
        finally:
            second.stop()
    assert pump_steps == list(range(COUNT))
