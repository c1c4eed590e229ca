"""Requests that come again because their answer was lost."""

import gc
import weakref
from concurrent.futures import Future
from typing import Any

import grpc
import pytest

from stepscope.dialects.otlp.receiver import OtlpReceiver
from stepscope.hub.intake.counters import Counters
from stepscope.hub.intake.intake_journal import SequenceNumbers
from stepscope.hub.intake.scrub import Scrubber
from stepscope.hub.limits import Limits
from stepscope.hub.receivers.ingest import SAFE, SECONDS, Ingest, Repeats, RunOwners, Upload, digest
from stepscope.hub.security.guard import Access
from stepscope.hub.security.tokens import Token
from stepscope.model.errors import Retry
from stepscope.wire.otlp.names import GRPC_METHODS
from tests.hub import otlp_bodies as bodies
from tests.hub.conftest import JSON, RunningHub

TIMELESS = b'{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"body":{"stringValue":"once more"}}]}]}]}'


class Slow:
    """An intake whose writes end when the test says so."""

    def __init__(self) -> None:
        self.futures: list[Future[None]] = []

    def submit(self, batches: Any) -> "Future[None]":
        """Take batches."""
        self.futures.append(Future())
        return self.futures[-1]


@pytest.fixture
def intake() -> Slow:
    """One that is in no hurry."""
    return Slow()


@pytest.fixture
def receiver(intake: Slow) -> OtlpReceiver:
    """A receiver in front of it."""
    counters = Counters()
    return OtlpReceiver(Ingest("t", intake, Scrubber(Limits()), counters, SequenceNumbers(), RunOwners()))  # type: ignore[arg-type]


def test_while_under_way(receiver: OtlpReceiver, intake: Slow) -> None:
    """A request that comes again before the first is safe waits for that one."""
    body = bodies.points(3)
    first = receiver.take("metrics", "protobuf", body, {}, Access())
    again = receiver.take("metrics", "protobuf", body, {}, Access())
    assert len(intake.futures) == 1
    assert again.safe is first.safe


def test_after_a_failure(receiver: OtlpReceiver, intake: Slow) -> None:
    """A request that was not taken is taken when it comes again."""
    body = bodies.points(3)
    first = receiver.take("metrics", "protobuf", body, {}, Access())
    intake.futures[0].set_exception(Retry("full", after=1.0))
    assert receiver.take("metrics", "protobuf", body, {}, Access()).safe is not first.safe
    assert len(intake.futures) == 2


def test_not_the_same(receiver: OtlpReceiver, intake: Slow) -> None:
    """The same bytes from another token, for another run or without times of their own are another request."""
    body = bodies.points(3)
    token = Token(id="1", hash="", scopes=("ingest",))
    receiver.take("metrics", "protobuf", body, {}, Access())
    receiver.take("metrics", "protobuf", body, {}, Access(token))
    receiver.take("metrics", "protobuf", body, {"x-mlflow-run-id": "r"}, Access())
    for _ in range(2):
        receiver.take("logs", "json", TIMELESS, {}, Access())
    assert len(intake.futures) == 5


def test_memory_is_bounded() -> None:
    """The oldest go when there are too many, and all after a while."""
    now = 0.0
    repeats: Repeats[str] = Repeats(lambda: now, most=2)
    keys = [digest((), bytes([n])) for n in range(3)]
    for key in keys:
        repeats.keep(key, "taken")
    assert [repeats.find(key) for key in keys] == [None, "taken", "taken"]
    now = SECONDS + 1
    assert repeats.find(keys[2]) is None
    repeats.keep(keys[0], "taken")
    assert list(repeats._known) == [keys[0]]  # no room is kept for those whose time is over


def test_what_was_sent_is_not_remembered(intake: Slow) -> None:
    """Once a request is synced only its answer is kept, without its records; one that failed is not kept at all."""
    ingest = Ingest("t", intake, Scrubber(Limits()), Counters(), SequenceNumbers(), RunOwners())  # type: ignore[arg-type]
    repeats: Repeats[Future[None]] = Repeats()
    uploads = [Upload(), Upload()]
    for key, upload in zip((b"synced", b"failed"), uploads, strict=True):
        future = ingest.submit(upload)
        repeats.keep_when_safe(key, future, future, SAFE)
        assert repeats.find(key) is future
    known = [weakref.ref(upload) for upload in uploads]
    del upload
    uploads.clear()
    gc.collect()
    assert [each() for each in known] == [None, None]
    intake.futures[0].set_result(None)
    intake.futures[1].set_exception(Retry("full", after=1.0))
    assert (repeats.find(b"synced"), repeats.find(b"failed")) == (SAFE, None)


def test_hub(hub: RunningHub) -> None:
    """Over HTTP and over gRPC, what is sent twice is stored once, and counted as having come again."""
    body = bodies.points(7, run="twice")
    assert [hub.post("/v1/metrics", body).status for _ in range(2)] == [200, 200]
    assert [hub.post("/v1/logs", TIMELESS, JSON).status for _ in range(2)] == [200, 200]
    with grpc.insecure_channel(f"127.0.0.1:{hub.grpc_port}") as channel:
        export = channel.unary_unary(GRPC_METHODS["metrics"])
        for _ in range(2):
            export(body, timeout=300)
    receivers = hub.health()["receivers"]
    assert receivers["otlp_http"]["written"] == 9
    assert receivers["otlp_grpc"]["written"] == 7
    assert [receivers[name]["retried"] for name in ("otlp_http", "otlp_grpc")] == [{"taken before": 1}] * 2
