"""The Tinker sink against a server that reads requests with the unmodified types of Tinker's own client."""

from collections.abc import Iterator
from typing import Any

import pytest

from stepscope.cli.probe import probe
from stepscope.dialects.tinker.sink import Tinker
from stepscope.model.errors import ConfigError, Reject, Retry
from stepscope.model.ports import Batch, Sink
from stepscope.model.records import Event, Metric, Record
from stepscope.testing.sinks import WRITERS, SinkContract, closing, example_batches
from tests.dialects.tinker.sink_peer import TinkerPeer
from tests.late import late
from tests.sinks.faults import blackhole
from tests.sinks.servers import Reply, http_date

late("tinker")
T = 1_700_000_000_000_000_000
ALL = "metric,span,log,event,alert"


@pytest.fixture
def peer() -> Iterator[TinkerPeer]:
    """A server."""
    server = TinkerPeer()
    yield server
    server.stop()


@pytest.fixture
def sink(peer: TinkerPeer) -> Iterator[Sink]:
    """Its sink, with every kind of record."""
    with closing(Tinker.read({"url": peer.url, "kinds": ALL}, {}).open()) as made:
        yield made


class TestContract(SinkContract):
    """Every sink's contract."""


def events(count: int) -> list[Record]:
    """Some events."""
    return [Event(T + n, n, None, None, None, 9, "e", {"n": n}) for n in range(count)]


def test_only_events_and_alerts_unless_asked(peer: TinkerPeer) -> None:
    """The service is made for few events; values go there only when a person says so."""
    with closing(Tinker.read({}, {"TINKER_BASE_URL": peer.url, "TINKER_API_KEY": "tml-1"}).open()) as sink:
        assert not sink.write(example_batches())
    assert [each.event_name for each in peer.events()] == ["milestone", "milestone"]
    assert peer.received[0].headers["x-api-key"] == "tml-1"


def test_a_hundred_events_in_a_request(peer: TinkerPeer, sink: Sink) -> None:
    """A request has at most 100 events of one process, in order and numbered from 0 without gaps."""
    assert not sink.write([Batch(WRITERS[0], 0, events(250)), Batch(WRITERS[1], 0, events(10))])
    assert not sink.write([Batch(WRITERS[0], 1, events(5))])
    assert [len(request.events) for request in peer.told] == [100, 100, 50, 10, 5]
    first = [each for request in peer.told if len(request.events) != 10 for each in request.events]
    assert [each.event_session_index for each in first] == list(range(255))
    assert [each.event_session_index for each in peer.told[3].events] == list(range(10))
    assert len({request.process_uuid for request in peer.told}) == 2
    assert len({request.session_id for request in peer.told}) == 1


def test_a_repeated_request_can_be_recognised(peer: TinkerPeer, sink: Sink) -> None:
    """The same key, ids and numbers, whatever became of the first."""
    peer.instead = [Reply(503)]
    batches = [Batch(WRITERS[0], 0, events(3))]
    with pytest.raises(Retry):
        sink.write(batches)
    assert not sink.write(batches)
    assert not sink.write(batches)
    assert [each.event_session_index for each in peer.events()] == [0, 1, 2, 3, 4, 5]
    assert [each.event_id for each in peer.events()][:3] == [each.event_id for each in peer.events()][3:]
    keys = [got.headers["x-idempotency-key"] for got in peer.received]
    assert keys[0] == keys[1]


@pytest.mark.parametrize("status", [408, 409, 429, 502, 503, 504])
def test_retried(peer: TinkerPeer, sink: Sink, status: int) -> None:
    """The same statuses are retried as by the service's own client."""
    peer.instead = [Reply(status)]
    with pytest.raises(Retry, match=str(status)):
        sink.write(example_batches())
    assert not sink.write(example_batches())
    assert sorted(peer.steps()) == list(range(10))


def test_retry_after_forms(peer: TinkerPeer, sink: Sink) -> None:
    """Seconds and dates."""
    for text, wanted in (("120", 120.0), (http_date(90), 90.0)):
        peer.instead = [Reply(429, {"Retry-After": text})]
        with pytest.raises(Retry) as caught:
            sink.write(example_batches())
        assert caught.value.after == pytest.approx(wanted, abs=2)


def test_a_wrong_key_is_explained(peer: TinkerPeer, sink: Sink) -> None:
    """What to check is in the reason; the events wait, and arrive when the key is mended."""
    for status in (401, 403):
        peer.instead = [Reply(status, {}, b'{"detail": "bad key"}')]
        with pytest.raises(Retry, match=r"TINKER_API_KEY.*bad key"):
            sink.write(example_batches())
    assert not sink.write(example_batches())
    assert sorted(peer.steps()) == list(range(10))


def test_too_large_means_split(peer: TinkerPeer, sink: Sink) -> None:
    """The records of a request are refused together, so that the pump halves it."""
    peer.most = 3000
    with pytest.raises(Reject, match="413") as caught:
        sink.write([Batch(WRITERS[0], 0, events(50))])
    assert caught.value.together
    assert caught.value.where == tuple(range(50))


@pytest.mark.parametrize("status", [404, 405, 501])
def test_a_server_without_telemetry_is_waited_for(peer: TinkerPeer, sink: Sink, status: int) -> None:
    """A wrong address is no event's fault: the reason says so, and all events arrive once it is mended."""
    peer.instead = [Reply(status, {}, b'{"error": {"code": 5, "message": "nothing is here"}}')]
    with pytest.raises(Retry, match=r"not a Tinker service .*nothing is here.*TINKER_BASE_URL"):
        sink.write(example_batches())
    assert not sink.write(example_batches())
    assert sorted(peer.steps()) == list(range(10))


def test_sessions_that_take_turns(peer: TinkerPeer, sink: Sink) -> None:
    """Each session has requests of its own, and few of them."""
    said = [{"tinker.session_id": f"s{n % 2}", "tinker.event_session_index": n // 2} for n in range(20)]
    made: list[Record] = [Event(T + n, None, None, None, None, 9, "e", attrs) for n, attrs in enumerate(said)]
    assert not sink.write([Batch(WRITERS[0], 0, made)])
    assert [request.session_id for request in peer.told] == ["s0", "s1"]
    assert [[each.event_session_index for each in request.events] for request in peer.told] == [list(range(10))] * 2


@pytest.mark.parametrize("body", [b"{}", b"<html>It works!</html>", b'{"status": "ok"}', b"[1]"])
def test_something_else_answers(peer: TinkerPeer, sink: Sink, body: bytes) -> None:
    """A success response of another server does not count as accepted."""
    peer.instead = [Reply(200, {}, body)]
    with pytest.raises(Retry, match="not from a Tinker service"):
        sink.write(example_batches())


def test_204_is_accepted(peer: TinkerPeer, sink: Sink) -> None:
    """204 counts as accepted, as for the service's own client."""
    peer.instead = [Reply(204)] * 2
    assert not sink.write(example_batches())


def test_nan_and_unicode(peer: TinkerPeer, sink: Sink) -> None:
    """NaN arrives as a word, for JSON has no sign for it; letters of any language arrive."""
    assert not sink.write([Batch(WRITERS[0], 0, [Metric(T, 1, None, None, {"損失": float("nan")}, {"größe": "ü"})])])
    assert peer.events()[0].event_data["values"] == {"損失": "NaN"}
    assert peer.events()[0].event_data["attrs"] == {"größe": "ü"}


def test_an_unreachable_server_is_retried(peer: TinkerPeer) -> None:
    """Refused and swallowed connections are waited for, within the timeout."""
    with closing(Tinker.read({"url": peer.url}, {}).open()) as sink:
        peer.stop()
        with pytest.raises(Retry, match="nothing listens"):
            sink.write(example_batches())
    with (
        blackhole() as port,
        closing(Tinker.read({"url": f"http://127.0.0.1:{port}", "timeout": 0.3}, {}).open()) as sink,
    ):
        for _ in range(2):
            with pytest.raises(Retry, match="in time"):
                sink.write(example_batches())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"url": "nowhere"}, "http://HOST:PORT"),
        ({"kinds": "events"}, "kinds"),
        ({"kinds": []}, "metric, span, log, event, alert"),
        ({"timeout": 0}, "timeout"),
        ({"api_kye": "x"}, "did you mean 'api_key'"),
    ],
)
def test_wrong_ones_name_the_fix(options: dict[str, Any], words: str) -> None:
    """Each error says what would be right."""
    with pytest.raises(ConfigError, match=words):
        Tinker.read(options, {})


def test_the_doctor(peer: TinkerPeer) -> None:
    """A probe arrives as an event, and a refusal is reported in one line."""
    (ok,) = probe(f'[{{"tinker": {{"url": "{peer.url}"}}}}]')
    assert ok.ok
    assert peer.events()[0].event_name == "stepscope.probe"
    peer.instead = [Reply(401)]
    (told,) = probe(f'[{{"tinker": {{"url": "{peer.url}"}}}}]')
    assert (told.ok, "TINKER_API_KEY" in told.text) == (False, True)
