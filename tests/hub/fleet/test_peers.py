"""What waits to be sent to the other hubs is bounded."""

import threading
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from stepscope.hub.fleet import peers
from stepscope.hub.fleet.peers import Peers, Stored
from stepscope.hub.intake.store_pump import ReceivedBatch
from stepscope.hub.live import LiveTopics
from stepscope.hub.security.tokens import RateLimits
from stepscope.hub.store.cluster.ownership import Member
from stepscope.model.ports import Batch, Writer
from stepscope.model.records import Log

WRITER = Writer(id="w", run="r", project="p")
LINES = Batch(WRITER, 1, [Log(1, None, None, None, None, 9, "x")] * 4)
decode = msgspec.msgpack.Decoder(Stored).decode


@pytest.mark.parametrize(("limit", "most"), [("MAX_WAITING", 10), ("MAX_WAITING_BYTES", 1000)])
def test_what_waits_is_bounded(monkeypatch: pytest.MonkeyPatch, limit: str, most: int) -> None:
    """By records and by their memory; the other hub is told how many it was not sent, and gets the rest."""
    monkeypatch.setattr(peers, limit, most)
    here, sent, told = LiveTopics(), [], threading.Event()

    def post(path: str, body: bytes, headers: Any, seconds: float) -> None:
        sent.append(decode(body))
        told.set()

    members = [Member("this", "this"), Member("other", "other", "http://other")]
    ownership: Any = SimpleNamespace(member=members[0], living=lambda: members)
    connect: Any = lambda address: SimpleNamespace(post=post, close=lambda: None)  # noqa: E731
    made = Peers(ownership, connect, RateLimits(1.0), here=here, elsewhere=LiveTopics())
    for _ in range(3):
        here.stored.announce([ReceivedBatch("test", LINES, 400)], print)
    made.start()
    assert told.wait(60)
    made.stop()
    assert (sum(len(batch.records) for part in sent for batch in part.batches), sent[0].missed) == (8, 4)
