"""OTLP over gRPC against a real grpcio server."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from stepscope.dialects.otlp.sink import Otlp
from stepscope.model.errors import Reject, Retry
from stepscope.model.ports import Sink
from stepscope.testing.sinks import SinkContract, example_batches
from stepscope.wire.otlp.names import GRPC_METHODS
from stepscope.wire.otlp.replies import Status, write_status
from tests.sinks.servers import REQUESTS, metric_steps

grpc = pytest.importorskip("grpc")


class GrpcPeer:
    """A server of the three services; `refusals` are the codes and details of the next answers, None for success."""

    def __init__(self, port: int = 0) -> None:
        self.refusals: list[Status | None] = []
        self.received: list[tuple[str, bytes]] = []
        self.metadata: list[dict[str, str]] = []
        self.reply = b""
        self._server = grpc.server(ThreadPoolExecutor(4))
        for signal, method in GRPC_METHODS.items():
            service, _, name = method.strip("/").partition("/")
            answer = grpc.unary_unary_rpc_method_handler(self._answer(signal))
            self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {name: answer}),))
        self.port = self._server.add_insecure_port(f"127.0.0.1:{port}")
        self._server.start()

    def _answer(self, signal: str) -> Any:
        def export(body: bytes, context: Any) -> bytes:
            self.metadata.append(dict(context.invocation_metadata()))
            refusal = self.refusals.pop(0) if self.refusals else None
            if refusal is not None:
                if refusal.message == "hang":
                    time.sleep(1.0)
                if refusal.retry_after is not None:
                    context.set_trailing_metadata((("grpc-status-details-bin", write_status("protobuf", refusal)),))
                code = next(code for code in grpc.StatusCode if code.value[0] == refusal.code)
                context.abort(code, refusal.message)
            self.received.append((signal, body))
            return self.reply

        return export

    def busy(self, seconds: float) -> None:
        """Take the traces, then ask to wait."""
        self.refusals += [None, Status(14, "full", seconds)]

    def refuse(self) -> None:
        """Refuse the traces."""
        self.refusals += [Status(3, "bad")]

    def steps(self) -> list[int]:
        """The steps of the metrics that were accepted."""
        decode = REQUESTS["/v1/metrics"].FromString
        return [step for signal, body in self.received if signal == "metrics" for step in metric_steps(decode(body))]

    def stop(self) -> None:
        """End it."""
        self._server.stop(0).wait()


@pytest.fixture
def peer() -> Iterator[GrpcPeer]:
    """A server."""
    server = GrpcPeer()
    yield server
    server.stop()


@pytest.fixture
def sink(peer: GrpcPeer) -> Iterator[Sink]:
    """Its sink."""
    options = {"endpoint": f"http://127.0.0.1:{peer.port}", "protocol": "grpc", "headers": {"Authorization": "x y"}}
    made = Otlp.read(options, {}).open()
    yield made
    made.close()


class TestContract(SinkContract):
    """Every sink's contract."""


RETRYABLE = {1, 2, 4, 7, 10, 11, 13, 14, 15, 16}


@pytest.mark.parametrize("code", range(1, 17))
def test_codes(peer: GrpcPeer, sink: Sink, code: int) -> None:
    """Six codes of OTLP, a failing server and two about who we are mean try again; a full one when it says when."""
    peer.refusals = [Status(code, "no")]
    with pytest.raises(Retry if code in RETRYABLE else Reject, match=r"gRPC [A-Z_]+: no"):
        sink.write(example_batches())


def test_exhausted_with_a_date_is_throttling(peer: GrpcPeer, sink: Sink) -> None:
    """RESOURCE_EXHAUSTED with RetryInfo is waited for."""
    peer.refusals = [Status(8, "slow down", 12.5)]
    with pytest.raises(Retry) as caught:
        sink.write(example_batches())
    assert caught.value.after == 12.5


def test_partial_success_and_metadata(peer: GrpcPeer, sink: Sink) -> None:
    """What was refused is counted; headers are sent with lower-case names."""
    peer.reply = b"\x0a\x09\x08\x03\x12\x05stale"
    with pytest.raises(Reject, match="stale") as caught:  # both spans, both logs and their like: these are kept
        sink.write(example_batches())
    assert caught.value.counted == {"stale": 3}
    assert peer.metadata[0]["authorization"] == "x y"


def test_a_server_that_hangs(peer: GrpcPeer) -> None:
    """The timeout holds."""
    made = Otlp.read({"endpoint": f"http://127.0.0.1:{peer.port}", "protocol": "grpc", "timeout": 0.2}, {}).open()
    peer.refusals = [Status(14, "hang")]
    began = time.monotonic()
    with pytest.raises(Retry, match="DEADLINE"):
        made.write(example_batches())
    assert time.monotonic() - began < 5
    made.close()


def test_an_unreachable_server_is_retried(peer: GrpcPeer, sink: Sink) -> None:
    """A server that is gone means try again."""
    peer.stop()
    with pytest.raises(Retry, match="UNAVAILABLE"):
        sink.write(example_batches())


def test_a_password_in_the_address_is_not_the_host(peer: GrpcPeer) -> None:
    """The channel gets the host alone, so no error of its resolver can contain the password."""
    made = Otlp.read({"endpoint": f"http://ada:PASS@127.0.0.1:{peer.port}", "protocol": "grpc"}, {}).open()
    assert not made.write(example_batches())
    assert sorted(peer.steps()) == list(range(10))
    made.close()
