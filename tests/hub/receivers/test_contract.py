"""Every receiver passes the contract: OTLP over HTTP and gRPC, the native protocol, W&B's, MLflow's, the folder."""

import base64
import contextlib
import json
import os
import random
import shutil
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import grpc
import msgspec
import pytest

from stepscope.hub.security.tokens import Tokens
from stepscope.journal.segments import Journal
from stepscope.model.ports import Writer
from stepscope.model.records import Metric
from stepscope.testing.receivers import ReceiverContract, Reply, Sender
from stepscope.wire import frames
from tests.hub import otlp_bodies
from tests.hub.conftest import JSON, PROTOBUF, Answer, RunningHub
from tests.hub.test_connections import wait_for

MEGA = 1024 * 1024
GARBAGE = (b"\0" * 100, b"{", b"\xff" * 1000, random.Random(1).randbytes(5000), b"[1, 2]", b'{"resourceMetrics": 1}')
_STATUSES = {200: "ok", 401: "unauthenticated", 403: "forbidden", 413: "too_large", 429: "busy", 503: "busy"}
_CODES = {
    grpc.StatusCode.INVALID_ARGUMENT: "bad",
    grpc.StatusCode.RESOURCE_EXHAUSTED: "too_large",
    grpc.StatusCode.UNAUTHENTICATED: "unauthenticated",
    grpc.StatusCode.PERMISSION_DENIED: "forbidden",
    grpc.StatusCode.UNAVAILABLE: "busy",
}


@dataclass
class AtHub:
    """What the senders share: the hub, its tokens, its disk, and what it stored."""

    hub: RunningHub
    read: str = ""
    """A token that may read, where the hub has tokens."""

    def stored(self, run: str, count: int) -> list[int]:
        """Wait for the values of a run."""
        found: list[int] = []
        sql = self.steps_sql(self.name(run))
        headers = {"content-type": JSON, "authorization": f"Bearer {self.read}"}

        def is_stored() -> bool:
            answer = self.hub.request("POST", "/api/sql", json.dumps({"sql": sql}).encode(), headers).json()
            found[:] = [row[0] for row in answer["rows"]]
            return len(found) >= count

        wait_for(is_stored)
        return found

    def steps_sql(self, run: str) -> str:
        """The statement that reads the steps of a run's values."""
        return (
            "SELECT m.step FROM metrics AS m INNER JOIN series AS s ON s.series = m.series "
            f"INNER JOIN runs AS r ON r.run = s.run WHERE r.id = '{run}' ORDER BY m.step"
        )

    def name(self, run: str) -> str:
        """A run's id that no other sender uses."""
        return f"{type(self).__name__}-{run}"

    def token(self, *scopes: Any) -> str:
        """Make a token, and wait until the hub knows it."""
        text = Tokens(self.hub.home / "hub" / "tokens.json").create(scopes)[1]
        wait_for(lambda: self.hub.request("GET", "/api/runs").status == 401)
        wait_for(lambda: self.hub.request("GET", "/api/runs", None, _bearer(text)).status in (200, 403))
        if "read" in scopes:
            self.read = text
        return text

    def lose_disk(self) -> None:
        """Move the hub's folder away."""
        os.rename(self.hub.home / "hub", self.hub.home / "away")

    def restore_disk(self) -> None:
        """Move it back."""
        shutil.rmtree(self.hub.home / "hub", ignore_errors=True)  # a thread of the hub may have made it anew
        os.rename(self.hub.home / "away", self.hub.home / "hub")

    def garbage(self) -> Iterable[Any]:
        """Bytes."""
        return GARBAGE

    def too_large(self) -> Any:
        """Bytes beyond the limit."""
        return bytes(21 * MEGA)


def _bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"} if token else {}


def _reply(answer: Answer) -> Reply:
    status: Any = _STATUSES.get(answer.status, "bad" if answer.status < 500 else "failed")
    after = answer.headers.get("retry-after")
    return Reply(status, None if after is None else float(after))


class OtlpHttpSender(AtHub):
    """OTLP/HTTP in protobuf."""

    def request(self, run: str, steps: Sequence[int]) -> bytes:
        """An export request."""
        return otlp_bodies.points(len(steps), run=self.name(run), first=steps[0])

    def send(self, request: bytes, token: str = "") -> Reply:
        """Post it; a refusal is a google.rpc.Status with a message."""
        answer = self.hub.post("/v1/metrics", request, PROTOBUF, **_bearer(token))
        assert answer.headers["content-type"] == PROTOBUF
        return _reply(answer)


class OtlpGrpcSender(OtlpHttpSender):
    """OTLP/gRPC."""

    def send(self, request: bytes, token: str = "") -> Reply:
        """Call Export."""
        options = [("grpc.max_send_message_length", -1)]
        with grpc.insecure_channel(f"127.0.0.1:{self.hub.grpc_port}", options) as channel:
            call = channel.unary_unary("/opentelemetry.proto.collector.metrics.v1.MetricsService/Export")
            try:
                call(request, timeout=300, metadata=tuple(_bearer(token).items()))
            except grpc.RpcError as error:
                details = dict(error.trailing_metadata() or ())
                after = 1.0 if error.code() is grpc.StatusCode.UNAVAILABLE and details else None
                status: Any = _CODES.get(error.code(), "failed")
                return Reply(status, after)
        return Reply("ok")


class NativeSender(AtHub):
    """The protocol of our own SDK."""

    def request(self, run: str, steps: Sequence[int]) -> bytes:
        """A head and a batch, whose number is its first step."""
        writer = Writer(id="r0-a1-far-1-abc", run=self.name(run), project="p")
        records = [Metric(time.time_ns(), step, None, "trainer", {"loss": 1.0}) for step in steps]
        packed = [msgspec.msgpack.encode(record) for record in records]
        return frames.pack_head(writer) + frames.pack_batch(steps[0], packed)

    def send(self, request: bytes, token: str = "") -> Reply:
        """Post it; a refusal is JSON."""
        answer = self.hub.post("/v1/stepscope", request, "application/octet-stream", **_bearer(token))
        assert answer.json()
        return _reply(answer)


class WandbSender(AtHub):
    """Weights & Biases: a block of history lines, whose offset is its first step."""

    def request(self, run: str, steps: Sequence[int]) -> tuple[str, bytes]:
        """A run and a file_stream request."""
        lines = [json.dumps({"loss": 1.0, "_step": step, "_timestamp": time.time()}) for step in steps]
        block = {"offset": steps[0] if run == "repeated" else 0, "content": lines}
        return self.name(run), json.dumps({"files": {"wandb-history.jsonl": block}}).encode()

    def send(self, request: tuple[str, bytes], token: str = "") -> Reply:
        """Post it with the token as API key; a refusal is JSON."""
        run, body = request
        key = base64.b64encode(f"api:{token}".encode()).decode()
        answer = self.hub.post(f"/files/team/p/{run}/file_stream", body, JSON, authorization=f"Basic {key}")
        assert isinstance(answer.json(), dict)
        return _reply(answer)

    def garbage(self) -> Iterable[Any]:
        """Bodies that are no requests, and lines that are no objects."""
        lines = {"files": {"wandb-history.jsonl": {"offset": 0, "content": ["{", "[1]", "{}"]}}}
        offset = {"files": {"wandb-history.jsonl": {"offset": -5, "content": ["{}"]}}}
        bodies = [*GARBAGE, json.dumps(lines).encode(), json.dumps(offset).encode(), b'{"files": {"x": 1}}']
        return [(self.name("garbage"), body) for body in bodies]

    def too_large(self) -> Any:
        """Bytes beyond the limit."""
        return self.name("large"), bytes(21 * MEGA)

    def stored(self, run: str, count: int) -> list[int]:
        """The steps of the values; a heartbeat has none."""
        return [step for step in super().stored(run, count + 1) if step >= 0]


class MlflowSender(AtHub):
    """MLflow's REST API; a run is created by the first request that may."""

    ids: ClassVar[dict[tuple[int, str], str]] = {}

    def name(self, run: str) -> str:
        """The id that the hub gave a run."""
        return self.ids.get((self.hub.port, run), "none")

    def request(self, run: str, steps: Sequence[int]) -> tuple[str, list[dict[str, Any]]]:
        """A run and the metrics of a batch."""
        now = time.time_ns() // 1_000_000
        return run, [{"key": "loss", "value": 1.0, "timestamp": now, "step": step} for step in steps]

    def send(self, request: Any, token: str = "") -> Reply:
        """Log a batch; a refusal has MLflow's code and message."""
        if isinstance(request, bytes):
            return self._post("log-batch", request, token)[0]
        run, metrics = request
        if self.name(run) == "none":
            reply, answer = self._post("create", json.dumps({"experiment_id": "0", "start_time": 1}).encode(), token)
            if reply.status != "ok":
                return reply
            self.ids[self.hub.port, run] = answer["run"]["info"]["run_id"]
        return self._post("log-batch", json.dumps({"run_id": self.name(run), "metrics": metrics}).encode(), token)[0]

    def _post(self, call: str, body: bytes, token: str) -> tuple[Reply, Any]:
        answer = self.hub.post(f"/api/2.0/mlflow/runs/{call}", body, JSON, **_bearer(token))
        found = answer.json()
        assert answer.status == 200 or (found["error_code"] and found["message"])
        return _reply(answer), found


class TinkerSender(AtHub):
    """The telemetry of a Tinker client; a value is an event with a step, under its own id."""

    def request(self, run: str, steps: Sequence[int]) -> bytes:
        """A batch of one session."""
        events = [
            {
                "event": "GENERIC_EVENT",
                "event_id": f"{run}-{step}",
                "event_session_index": step,
                "severity": "INFO",
                "timestamp": "2026-11-16T08:00:00Z",
                "event_name": "loss",
                "event_data": {"step": step},
            }
            for step in steps
        ]
        return json.dumps({"session_id": self.name(run), "process_uuid": "p", "events": events}).encode()

    def send(self, request: bytes, token: str = "") -> Reply:
        """Post it; a refusal is JSON with a detail."""
        key = {"x_api_key": f"tml-{token}"} if token else {}
        answer = self.hub.post("/api/v1/telemetry", request, JSON, **key)
        assert list(answer.json()) == ["status" if answer.status == 200 else "detail"]
        return _reply(answer)

    def steps_sql(self, run: str) -> str:
        """The steps of the events."""
        return (
            "SELECT l.step FROM logs AS l INNER JOIN runs AS r ON r.run = l.run "
            f"WHERE r.id = '{run}' AND l.name = 'loss' ORDER BY l.step"
        )


class FolderSender(AtHub):
    """A trainer's journal in the hub's home."""

    def request(self, run: str, steps: Sequence[int]) -> tuple[str, list[bytes]]:
        """The name of a run, and packed records."""
        records = [Metric(time.time_ns(), step, None, "trainer", {"loss": 1.0}) for step in steps]
        return self.name(run), [msgspec.msgpack.encode(record) for record in records]

    def send(self, request: tuple[str, list[bytes]], token: str = "") -> Reply:
        """Append to the journal of the run's one writer."""
        run, packed = request
        writer = Writer(id="r0-a1-near-1-abc", run=run, project="p")
        folder = self.hub.home / "runs" / run / writer.id
        journal = Journal(folder, writer)
        journal.append(packed)
        journal.close()
        return Reply("ok")

    def garbage(self) -> Iterable[Any]:
        """Records that cannot be read."""
        return [(self.name("garbage"), [data]) for data in GARBAGE]


@pytest.fixture(scope="module")
def open_hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHub]:
    """A hub that needs no token."""
    yield from _running(tmp_path_factory.mktemp("open") / "home")


@pytest.fixture(scope="module")
def guarded_hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHub]:
    """A hub that gets tokens."""
    yield from _running(tmp_path_factory.mktemp("guarded") / "home")


def _running(home: Path) -> Iterator[RunningHub]:
    pytest.importorskip("tests.chdb")
    hub = RunningHub(home).start()
    yield hub
    with contextlib.suppress(Exception):
        hub.kill()


class _Pairs(ReceiverContract):
    sender_type: Any

    @pytest.fixture
    def sender(self, open_hub: RunningHub) -> Sender:
        """A client of the hub that needs no token."""
        made: Sender = self.sender_type(open_hub)
        return made

    @pytest.fixture
    def guarded(self, guarded_hub: RunningHub) -> Sender:
        """A client of the hub that has tokens."""
        made: Sender = self.sender_type(guarded_hub)
        return made


class TestOtlpHttp(_Pairs):
    """OTLP/HTTP."""

    sender_type = OtlpHttpSender


class TestOtlpGrpc(_Pairs):
    """OTLP/gRPC."""

    sender_type = OtlpGrpcSender


class TestNative(_Pairs):
    """The native protocol."""

    sender_type = NativeSender


class TestWandb(_Pairs):
    """Weights & Biases."""

    sender_type = WandbSender


class TestMlflow(_Pairs):
    """MLflow's REST API."""

    sender_type = MlflowSender


class TestTinker(_Pairs):
    """Tinker's telemetry: a client retries refused requests forever, so garbage is accepted and counted."""

    sender_type = TinkerSender
    can_refuse = False


class TestFolder(_Pairs):
    """Journals in the home folder have no client that could be refused or asked to retry."""

    sender_type = FolderSender
    can_repeat = can_refuse = has_tokens = can_be_busy = False
