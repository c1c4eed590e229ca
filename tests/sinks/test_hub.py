"""The sink of our own hub: the contract against a server with answers set by the test, and delivery to a real hub."""

import gzip
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

import stepscope
from stepscope.hub.home import tokens_path
from stepscope.hub.security.tokens import Tokens
from stepscope.journal.following import Following
from stepscope.journal.quarantine import Quarantine, quarantined
from stepscope.model.errors import Reject, Retry
from stepscope.model.ports import Sink
from stepscope.model.records import Metric
from stepscope.pump import Pump
from stepscope.sdk.shipping.shipper_process import Shipping, ship
from stepscope.sdk.shipping.sink_requests import register
from stepscope.sinks.hub import Hub, pack
from stepscope.sinks.registry import parse
from stepscope.testing.sinks import SinkContract, closing, example_batches
from stepscope.wire import frames
from tests.hub.conftest import StartHub, start_hub, stored_columns
from tests.sinks.servers import Reply, Server

__all__ = ["start_hub"]


class HubPeer(Server):
    """Speaks the native protocol."""

    def __init__(self, port: int = 0) -> None:
        super().__init__(port=port)
        self.success = Reply(body=json.dumps({"safe": [], "written": 0, "rejected": {}}).encode())

    def busy(self, seconds: float) -> None:
        """Say that the store is full."""
        self.replies.append(Reply(503, {"Retry-After": str(int(seconds))}, b'{"error": {"message": "full"}}'))

    def refuse(self) -> None:
        """Say that the frames are bad."""
        self.replies.append(Reply(400, {}, b'{"error": {"message": "damaged"}}'))

    def steps(self) -> list[int]:
        """The steps of all metrics in the frames."""
        found = []
        for got in self.received:
            body = gzip.decompress(got.body) if got.headers.get("content-encoding") == "gzip" else got.body
            for frame in frames.scan(body, final=True):
                assert isinstance(frame, frames.Frame)
                if not frames.is_head(frame.payload):
                    records = frames.unpack_batch(frame.payload)[1]
                    found += [record.step or 0 for record in records if isinstance(record, Metric)]
        return found


@pytest.fixture
def peer() -> Iterator[HubPeer]:
    """A server."""
    server = HubPeer()
    yield server
    server.stop()


@pytest.fixture
def sink(peer: HubPeer) -> Iterator[Sink]:
    """Its sink."""
    with closing(Hub(url=peer.url).open()) as made:
        yield made


class TestContract(SinkContract):
    """Every sink's contract."""


def test_token_and_compression(peer: HubPeer) -> None:
    """The token is shown; what goes far is compressed."""
    Hub.read({"compression": "gzip"}, {"STEPSCOPE_HUB_URL": peer.url, "STEPSCOPE_HUB_TOKEN": "t"}).open().write(
        example_batches()
    )
    assert peer.received[0].headers["authorization"] == "Bearer t"
    assert sorted(peer.steps()) == list(range(10))


def test_what_the_hub_rejected_is_counted(peer: HubPeer, sink: Sink) -> None:
    """Rejected records are counted by the hub's reasons."""
    peer.replies = [Reply(body=b'{"safe": [], "written": 8, "rejected": {"too many keys": 6}}')]
    assert sink.write(example_batches()) == {"too many keys": 6}


def test_packed_records_go_as_they_are() -> None:
    """What the journal holds is what is sent, byte for byte, also what only the hub can mend; unpacked ones alike."""
    (batch, *_) = example_batches()
    packed = [msgspec.msgpack.encode(record) for record in batch.records]
    frame = frames.pack_head(batch.writer) + frames.pack_batch(batch.seq, packed)
    *_, found = frames.scan(frame, final=True)
    assert isinstance(found, frames.Frame)
    seq, raw, bad = frames.unpack_raw_batch(found.payload)
    assert (seq, len(raw), bad) == (batch.seq, len(packed), 0)
    assert pack([batch._replace(records=raw)]) == frame == pack([batch])
    odd = [msgspec.Raw(msgspec.msgpack.encode([0, 1, 2, None, "trainer", {7: True}]))]
    *_, sent = frames.scan(pack([batch._replace(records=odd)]), final=True)
    assert isinstance(sent, frames.Frame)
    assert frames.unpack_batch(sent.payload)[1] == [Metric(1, 2, None, "trainer", {"7": 1})]


def test_something_else_answers(peer: HubPeer, sink: Sink) -> None:
    """A web server that answers 200 to everything, or a login page, is not accepted as a hub."""
    peer.replies = [Reply(body=b"<html>It works!</html>"), Reply(302, {"Location": "/login"})]
    with pytest.raises(Retry, match="not from a Stepscope hub"):
        sink.write(example_batches())
    with pytest.raises(Reject, match="302"):
        sink.write(example_batches())


def test_a_real_hub_stores_each_record_once(start_hub: StartHub, tmp_path: Path) -> None:
    """Delivered, delivered again from the start, the hub killed in between: each record is stored once."""
    home = tmp_path / "trainer"
    run = stepscope.init(project="far", run_id="far", home=home, probes=False, capture_logs=False, otel=False)
    for step in range(3000):
        run.log({"loss": float(step)}, step=step, category="trainer")
    run.finish()
    hub = start_hub(home=tmp_path / "hub")
    for life in ("first", "second"):
        pump = Pump(Hub(url=hub.url).open(), Following(home, life), Quarantine(home, life), group_bytes=20_000)
        deadline = time.monotonic() + 300
        while pump.step().moved or pump.problem:
            assert time.monotonic() < deadline, pump.problem
            pump.wake()
            if life == "second" and pump.counts["written"] > 1500 and hub.process is not None and hub.port:
                hub.kill()
                hub.start()
                life = "restarted"
        assert pump.counts["written"] >= 3000
    hub.wait_stored("native", 1)
    assert hub.stop() == 0
    sql = "SELECT count() AS n FROM metrics WHERE series IN (SELECT series FROM series WHERE key = 'trainer/loss')"
    assert int(stored_columns(hub.home, sql)["n"][0]) == 3000


def test_a_real_hub_with_another_token(start_hub: StartHub, tmp_path: Path) -> None:
    """A wrong token delivers nothing, says so and refuses no record; the right one delivers all of it."""
    home = tmp_path / "trainer"
    _, token = Tokens(tokens_path(tmp_path / "hub")).create(["ingest"])
    hub = start_hub(home=tmp_path / "hub")
    wrong = [{"hub": {"url": hub.url, "token": "wrong"}}]
    run = stepscope.init(
        run_id="far", home=home, probes=False, capture_logs=False, otel=False, sinks=wrong, shipper="thread"
    )
    for step in range(100):
        run.log({"loss": float(step)}, step=step, category="trainer")
    left = run.finish(wait=1)
    assert (left.done, (left.undelivered or 0) > 1000) == (False, True)
    assert quarantined(home) == []
    shipping = Shipping(home, sinks=parse([{"hub": {"url": hub.url, "token": token}}]))
    try:
        assert ship(shipping, wait=False, seconds=30)
    finally:
        shipping.stop(5)
    (report,) = shipping.reports()
    assert (report.problem, report.unread, set(report.counts)) == ("", 0, {"written"})
    assert hub.stop() == 0
    sql = "SELECT count() AS n FROM metrics WHERE series IN (SELECT series FROM series WHERE key = 'trainer/loss')"
    assert int(stored_columns(hub.home, sql)["n"][0]) == 100


def test_a_token_that_is_mended_reaches_the_shipper_at_work(peer: HubPeer, tmp_path: Path) -> None:
    """A later run with the right token has what an earlier one left delivered too, without a new shipper."""
    known = {"authorization": "Bearer right"}
    denial = Reply(401, {}, b'{"error": {"message": "not you"}}')
    peer.decide = lambda got: peer.success if known.items() <= got.headers.items() else denial
    run = stepscope.init(run_id="far", home=tmp_path, probes=False, capture_logs=False, otel=False, shipper="none")
    for step in range(10):
        run.log({"loss": 1.0}, step=step, category="trainer")
    run.finish()
    register(tmp_path, "far", "h", parse([{"hub": {"url": peer.url, "token": "wrong"}}]))
    shipping = Shipping(tmp_path)
    try:
        assert not ship(shipping, wait=False, seconds=1)
        (worker,) = shipping.workers.values()
        assert "401: not you" in worker.report().problem
        os.utime(tmp_path / "shipping" / "far@h.want", (1, 1))
        register(tmp_path, "another", "h", parse([{"hub": {"url": peer.url, "token": "right"}}]))
        assert ship(shipping, wait=False, seconds=30)
    finally:
        shipping.stop(5)
    assert set(peer.steps()) == set(range(10))
    assert quarantined(tmp_path) == []
