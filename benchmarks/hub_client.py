"""An OTLP client that keeps to a rate: requests made beforehand, sent on time over HTTP or gRPC, told apart by run."""

from __future__ import annotations

import http.client
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.timing import percentile

THREADS = 4
RETRIES = 50
TIMEOUT_S = 30
Send = Callable[[bytes], bool]
"""Sends one request; True when it was acknowledged in full, False when it is to be sent again; raises `Unknown`."""
Whole = Callable[[bytes], bool]


def child(params: dict[str, Any]) -> dict[str, float]:
    """Make the requests, send them, and return how many items were acknowledged and how long the answers took."""
    count = int(params["rate"] * params["seconds"] / params["batch"])
    bodies = list(requests(params["signal"], params["run"], count, params["batch"]))
    return Client(params, bodies).run()


def requests(signal: str, run: str, count: int, batch: int) -> Iterator[bytes]:
    """Requests of `batch` items, no two of which are alike."""
    from stepscope.model.ports import Writer
    from stepscope.wire.otlp.encode.encode_request import encode

    writer = Writer(id="load", run=run, project="load", resource={"service.name": "load"})
    for number in range(count):
        records = [item(signal, number * batch + index) for index in range(batch)]
        (request,) = encode([(writer, records)]).requests
        yield request.body


def item(signal: str, number: int) -> Any:
    """One span, point or log record of the size that instrumented programs make."""
    from stepscope.model.records import Log, Metric, Span

    now = time.time_ns()
    if signal == "traces":
        attrs = {"http.method": "POST", "http.route": "/v1/train", "index": number, "batch": 32, "phase": "train"}
        return Span(now, 10**6, number, None, os.urandom(16), os.urandom(8), None, "work", 1, attrs=attrs)
    if signal == "metrics":
        return Metric(now, number, None, None, {"load": float(number)})
    attrs = {"logger": "train", "index": number}
    return Log(now, number, None, os.urandom(16), os.urandom(8), 9, f"a line of the log, number {number}", attrs)


class Client:
    """Threads that take requests in turn, each when it is due."""

    def __init__(self, params: dict[str, Any], bodies: list[bytes]) -> None:
        self._bodies = bodies
        self._batch, self._pause = params["batch"], params["batch"] / params["rate"]
        self._connect = HTTP if params["protocol"] == "http" else GRPC
        self._address = (params["port"], params["signal"])
        self._lock = threading.Lock()
        self._next = 0
        self._begun = 0.0
        self.acknowledged = self.again = 0
        self.taken: list[float] = []

    def run(self) -> dict[str, float]:
        """Send everything."""
        threads = [threading.Thread(target=self._work) for _ in range(THREADS)]
        self._begun = time.monotonic()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        seconds = time.monotonic() - self._begun
        return {
            "sent": float(len(self._bodies) * self._batch),
            "acknowledged": float(self.acknowledged),
            "seconds": seconds,
            "again": float(self.again),
            "p50_ms": percentile(self.taken, 50),
            "p99_ms": percentile(self.taken, 99),
        }

    def _work(self) -> None:
        send = self._connect(*self._address)
        while (number := self._take()) is not None:
            time.sleep(max(0.0, self._begun + number * self._pause - time.monotonic()))
            begun = time.perf_counter()
            tries = 0
            while not (done := _acknowledged(send, self._bodies[number])) and tries < RETRIES:
                tries += 1
                time.sleep(0.1)
            with self._lock:
                self.taken.append((time.perf_counter() - begun) * 1e3)
                self.acknowledged += self._batch * done
                self.again += tries

    def _take(self) -> int | None:
        with self._lock:
            number = self._next
            self._next += 1
        return number if number < len(self._bodies) else None


def _acknowledged(send: Send, body: bytes) -> bool:
    try:
        return send(body)
    except Unknown:
        return False


class Unknown(Exception):
    """No answer came in time: the request was taken or not, and is to be sent again."""


def HTTP(port: int, signal: str) -> Send:
    """One connection for OTLP over HTTP that is kept open."""
    return post(port, f"/v1/{signal}", {"content-type": "application/x-protobuf"}, lambda answer: not answer)


def post(port: int, path: str, headers: dict[str, str] | None = None, whole: Whole = lambda answer: True) -> Send:
    """One connection that is kept open and sends bodies to one path; `whole` tells whether an answer accepts them."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
    named = {"content-type": "application/json"} | (headers or {})

    def send(body: bytes) -> bool:
        try:
            connection.request("POST", path, body, named)
            response = connection.getresponse()
            answer = response.read()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise Unknown(repr(error)) from error
        if response.status in (429, 503):
            return False
        if response.status not in (200, 202) or not whole(answer):
            raise RuntimeError(f"the hub refused items: {response.status} {answer!r}")
        return True

    return send


def GRPC(port: int, signal: str) -> Send:
    """One channel over gRPC."""
    import grpc

    from stepscope.wire.otlp.names import GRPC_METHODS

    options = [("grpc.use_local_subchannel_pool", 1)]
    export = grpc.insecure_channel(f"127.0.0.1:{port}", options).unary_unary(GRPC_METHODS[signal])  # type: ignore[index]

    def send(body: bytes) -> bool:
        try:
            answer = export(body, timeout=TIMEOUT_S)
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.UNAVAILABLE:
                return False
            if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                raise Unknown(error.details()) from error
            raise
        if answer:
            raise RuntimeError(f"the hub refused items: {answer!r}")
        return True

    return send
