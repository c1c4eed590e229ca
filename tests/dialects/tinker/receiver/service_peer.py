"""A small Tinker service over real HTTP: futures with a queue, streams, errors, and connections that break."""

import hashlib
import json
import socket
import struct
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from typing import Any

PROTOBUF = "application/x-protobuf"
LOSS = 0.25


class ServicePeer:
    """The service; `requests` are the paths and headers it got, `hold` stops it in the middle of a stream."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        self.hold = threading.Event()
        self.left = threading.Event()
        """Set when a client of a stream that never ends has left."""
        self.polls: dict[str, int] = {}
        self.failing: set[str] = set()
        """Operations whose future cannot be polled."""
        peer = self

        class Answers(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                peer.answer(self)

            do_GET = do_PUT = do_DELETE = do_POST

            def log_message(self, format: str, *args: Any) -> None:
                """Print nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        """Its address, with a path in front of the API as the real service has one."""
        return f"http://127.0.0.1:{self._server.server_port}/services/tinker"

    def close(self) -> None:
        """Stop."""
        self.hold.set()
        self._server.shutdown()
        self._server.server_close()

    def seen(self, name: str) -> list[dict[str, str]]:
        """The headers of the requests for an operation."""
        return [headers for path, headers, _ in self.requests if path.endswith(f"/{name}")]

    def answer(self, client: BaseHTTPRequestHandler) -> None:
        """Answer one request by the last part of its path."""
        name = client.path.partition("?")[0].rpartition("/")[2]
        if name == "early":
            self.requests.append((client.path, {}, b""))
            client.close_connection = True
            reply(client, 413, b'{"detail":"too much"}')
            client.wfile.flush()
            _read(client)  # a connection that is closed with unread bytes is reset, and the answer with it
            return None
        body = _read(client)
        headers = {key.lower(): value for key, value in client.headers.items()}
        self.requests.append((client.path, headers, body))
        special: dict[str, Callable[[Any, bytes], None]] = {
            "echo": self._echo, "stream": self._stream, "endless": self._endless, "reset": self._reset,
        }  # fmt: skip
        if name in special:
            return special[name](client, body)
        if name.isdigit():
            return reply(client, int(name), b"<h1>unchanged</h1>", {"content-type": "text/html", "x-own": "kept"})
        if name == "retrieve_future":
            return self._future(client, json.loads(body)["request_id"])
        known = {
            "client/config": {},
            "create_session": {"type": "create_session", "session_id": "session-1"},
            "session_heartbeat": {"type": "session_heartbeat"},
            "get_server_capabilities": {"supported_models": [{"model_name": "m"}]},
            "create_sampling_session": {"type": "create_sampling_session", "sampling_session_id": "sampling-1"},
            "finish": {},
        }
        promised = ("create_model", "forward_backward", "optim_step", "asample")
        if name in promised:
            made = {"request_id": f"{name}-{sum(path.endswith(name) for path, _, _ in self.requests)}"}
            return reply(client, 200, json.dumps(made).encode())
        found = next((value for key, value in known.items() if key.endswith(name)), None)
        return (
            reply(client, 404, b'{"detail":"nothing"}')
            if found is None
            else reply(client, 200, json.dumps(found).encode())
        )

    def _future(self, client: BaseHTTPRequestHandler, request_id: str) -> None:
        """Ask to try again once, then give the result."""
        name = request_id.rpartition("-")[0]
        if name in self.failing:
            return reply(client, 403, b'{"detail":"forbidden"}')
        count = self.polls[request_id] = self.polls.get(request_id, 0) + 1
        if count == 1:
            state = {"type": "try_again", "request_id": request_id, "queue_state": "paused_capacity"}
            return reply(client, 200, json.dumps(state).encode())
        if name == "forward_backward":
            output: Any = import_module("tinker.proto.tinker_public_pb2").ForwardBackwardOutput()
            output.loss_fn_output_type = "ArrayRecord"
            output.metrics["loss:sum"] = LOSS
            return reply(client, 200, output.SerializeToString(), {"content-type": PROTOBUF})
        result: dict[str, Any] = {"type": name}
        result |= {"model_id": "session-1:train:0"} if name == "create_model" else {"metrics": {"lr": 0.5}}
        return reply(client, 200, json.dumps(result).encode())

    def _echo(self, client: BaseHTTPRequestHandler, body: bytes) -> None:
        said = {"path": client.path, "headers": list(client.headers.items()), "bytes": len(body)}
        reply(client, 200, json.dumps({**said, "sha": hashlib.sha256(body).hexdigest()}).encode())

    def _stream(self, client: BaseHTTPRequestHandler, body: bytes) -> None:
        """Send a part, wait until the test has it, send another."""
        self._head(client)
        _chunk(client, b"first")
        self.hold.wait(60)
        _chunk(client, b"second")
        client.wfile.write(b"0\r\n\r\n")

    def _endless(self, client: BaseHTTPRequestHandler, body: bytes) -> None:
        self._head(client)
        try:
            while not self.hold.wait(0.05):
                _chunk(client, b"more")
        except OSError:
            self.left.set()
            client.close_connection = True

    def _reset(self, client: BaseHTTPRequestHandler, body: bytes) -> None:
        """Break the connection in the middle of the answer, or before it."""
        if b"before" not in body:
            client.send_response(200)
            client.send_header("content-length", "1000")
            client.end_headers()
            client.wfile.write(b"cut")
            client.wfile.flush()
        client.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close_connection = True
        client.connection.close()

    def _head(self, client: BaseHTTPRequestHandler) -> None:
        client.send_response(200)
        client.send_header("transfer-encoding", "chunked")
        client.end_headers()


def reply(client: BaseHTTPRequestHandler, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
    """Send an answer."""
    client.send_response(status)
    for name, value in {"content-type": "application/json", **(headers or {})}.items():
        client.send_header(name, value)
    client.send_header("content-length", str(len(body)))
    client.end_headers()
    client.wfile.write(body)


def _chunk(client: BaseHTTPRequestHandler, data: bytes) -> None:
    client.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
    client.wfile.flush()


def _read(client: BaseHTTPRequestHandler) -> bytes:
    if client.headers.get("transfer-encoding", "") == "chunked":
        parts = []
        while size := int(client.rfile.readline(), 16):
            parts.append(client.rfile.read(size))
            client.rfile.readline()
        client.rfile.readline()
        return b"".join(parts)
    return client.rfile.read(int(client.headers.get("content-length", 0)))
