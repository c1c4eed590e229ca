"""A real MLflow server, and a gate before it that can answer in its place, lose its answers, or be shut."""

import http.client
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest

from tests.late import late
from tests.shared import shared

ROOT = Path(__file__).parents[3]
START_SECONDS = 500.0
API = "/api/2.0/mlflow/"


class MlflowServer:
    """MLflow's server with a SQLite store; it can be killed and started again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._forks: subprocess.Popen[str] | None = None
        self._pid = 0
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            self.port: int = found.getsockname()[1]

    def start(self) -> None:
        """Start it, and wait until it answers."""
        forks = self._forks = self._forks or self._import()
        assert forks.stdin is not None
        assert forks.stdout is not None
        forks.stdin.write(f"{self.port}\n")
        forks.stdin.flush()
        said = forks.stdout.readline()
        assert said, (self._folder / "log").read_text()[-3000:]
        self._pid = int(said)
        deadline = time.monotonic() + START_SECONDS
        while not self._answers():
            assert Path(f"/proc/{self._pid}").exists(), (self._folder / "log").read_text()[-3000:]
            assert time.monotonic() < deadline, f"no MLflow server within {START_SECONDS} s"
            time.sleep(0.1)

    def _import(self) -> "subprocess.Popen[str]":
        """Start the process from which it is forked."""
        line = [sys.executable, "-m", "tests.dialects.mlflow.forks"]
        line += [f"sqlite:///{self._folder}/store.db", str(self._folder / "files")]
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("MLFLOW_", "OTEL_"))}
        env = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
        with open(self._folder / "log", "ab") as log:
            return subprocess.Popen(
                line,
                env={**kept, **env, "PYTHONPATH": str(ROOT)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=self._folder,
            )

    def kill(self) -> None:
        """End it at once; its port is free afterwards."""
        if self._pid:
            os.kill(self._pid, signal.SIGKILL)
            self._pid = 0
            deadline = time.monotonic() + START_SECONDS
            while self._listens():  # one that is not quite dead still holds it
                assert time.monotonic() < deadline, "the port of a killed server is still taken"
                time.sleep(0.01)

    def close(self) -> None:
        """End it for good."""
        self.kill()
        if self._forks is not None:
            self._forks.communicate()
            self._forks = None

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def _answers(self) -> bool:
        try:
            return self.ask("GET", "/health")[0] == 200
        except OSError:
            return False

    def ask(self, method: str, path: str, body: bytes = b"", headers: Any = None) -> tuple[int, list[Any], bytes]:
        """Send a request past the gate; status, headers, body."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)
        try:
            connection.request(method, path, body or None, headers or {})
            answer = connection.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            connection.close()

    def get(self, path: str, **query: Any) -> Any:
        """Ask the API for something."""
        return self._json("GET", f"{API}{path}?{urlencode(query)}")

    def post(self, path: str, body: dict[str, Any]) -> Any:
        """Have the API do something."""
        return self._json("POST", path if path.startswith("/") else f"{API}{path}", body)

    def _json(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        packed = json.dumps(body).encode() if body is not None else b""
        status, _, answer = self.ask(method, path, packed, {"content-type": "application/json"})
        assert status == 200, (status, answer)
        return json.loads(answer)


@dataclass
class Deed:
    """What the gate does in the server's place: answer, or with `lose` forward and drop the answer."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    lose: bool = False
    drop: bool = False


@dataclass
class Passed:
    """One request that came to the gate, and what it was answered; 0 when it was not."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    status: int = 0


Decide = Callable[[Passed], Deed | None]


class Gate:
    """Forwards to the server behind, unless `decide` says otherwise."""

    def __init__(self, server: MlflowServer | None = None, tls: ssl.SSLContext | None = None) -> None:
        self.server = server
        self.decide: Decide = lambda passed: None
        self.passed: list[Passed] = []
        gate = self

        class Forwarding(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                gate.forward(self)

            do_GET = do_POST

            def log_message(self, *arguments: object) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Forwarding)
        self._http.daemon_threads = True
        self._scheme = "https" if tls is not None else "http"
        if tls is not None:
            self._http.socket = tls.wrap_socket(self._http.socket, server_side=True, do_handshake_on_connect=False)
        threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def url(self) -> str:
        """Its address."""
        return f"{self._scheme}://127.0.0.1:{self._http.server_port}"

    def forward(self, request: BaseHTTPRequestHandler) -> None:
        """Answer one request."""
        body = request.rfile.read(int(request.headers.get("content-length", 0)))
        kept = {key.lower(): value for key, value in request.headers.items()}
        passed = Passed(request.command, request.path, kept, body)
        self.passed.append(passed)
        deed = self.decide(passed) or Deed()
        if deed.drop:
            request.close_connection = True
            return
        if deed.status:
            passed.status, answered, headers = deed.status, deed.body, list(deed.headers.items())
        else:
            passed.status, headers, answered = self._ask(passed)
        if deed.lose or not passed.status:
            request.close_connection = True
            return
        request.send_response(passed.status)
        for key, value in headers:
            request.send_header(key, value)
        request.send_header("Content-Length", str(len(answered)))
        request.end_headers()
        request.wfile.write(answered)

    def _ask(self, passed: Passed) -> tuple[int, list[tuple[str, str]], bytes]:
        try:
            if self.server is None:
                return 0, [], b""
            status, headers, body = self.server.ask(passed.method, passed.path, passed.body, passed.headers)
        except (OSError, http.client.HTTPException):
            return 0, [], b""
        return status, [(key, value) for key, value in headers if key.lower() == "content-type"], body

    def paths(self, part: str) -> list[Passed]:
        """The requests with a word in their path."""
        return [passed for passed in self.passed if part in passed.path]

    def close(self) -> None:
        """Shut it."""
        self._http.shutdown()
        self._http.server_close()


class MlflowPeer(Gate):
    """One experiment behind a gate, as the contract and the tests look at it."""

    def __init__(self, server: MlflowServer) -> None:
        super().__init__(server)
        self.server: MlflowServer = server
        self.experiment = f"test-{uuid.uuid4().hex[:12]}"

    def once(self, deed: Deed, chosen: Callable[[Passed], bool]) -> None:
        """Do something at the next request of a kind."""
        done: list[Passed] = []

        def decide(passed: Passed) -> Deed | None:
            if not done and chosen(passed):
                done.append(passed)
                return deed
            return None

        self.decide = decide

    def busy(self, seconds: float) -> None:
        """Ask to wait when metrics come."""
        self.once(Deed(429, {"Retry-After": str(int(seconds))}, b"{}"), has_metrics)

    def refuse(self) -> None:
        """Refuse the next metrics."""
        said = {"error_code": "INVALID_PARAMETER_VALUE", "message": "no"}
        self.once(Deed(400, {}, json.dumps(said).encode()), has_metrics)

    def experiment_id(self) -> str:
        """The id of the experiment; empty when there is none."""
        query = quote(self.experiment)
        status, _, body = self.server.ask("GET", f"{API}experiments/get-by-name?experiment_name={query}")
        return str(json.loads(body)["experiment"]["experiment_id"]) if status == 200 else ""

    def runs(self) -> list[dict[str, Any]]:
        """All runs of the experiment that are not deleted."""
        found = self.experiment_id()
        return self.server.post("runs/search", {"experiment_ids": [found]}).get("runs", []) if found else []

    def run(self) -> dict[str, Any]:
        """The only run, with params and tags as dicts."""
        (found,) = self.runs()
        data = found["data"]
        for part in ("params", "tags"):
            data[part] = {each["key"]: each["value"] for each in data.get(part, ())}
        return {**found["info"], **data}

    def history(self, key: str) -> list[dict[str, Any]]:
        """All points of a metric of the only run."""
        found: list[dict[str, Any]] = []
        (run,) = self.runs()
        query = {"run_id": run["info"]["run_id"], "metric_key": key, "max_results": 20_000}
        while True:
            page = self.server.get("metrics/get-history", **query)
            found += page.get("metrics", [])
            if not page.get("next_page_token"):
                return found
            query["page_token"] = page["next_page_token"]

    def steps(self) -> list[int]:
        """The steps of `trainer/loss` on all ranks."""
        if not self.runs():
            return []
        keys = [each["key"] for each in self.runs()[0]["data"].get("metrics", [])]
        return [point.get("step", 0) for key in keys if key.startswith("trainer/loss") for point in self.history(key)]

    def traces(self) -> list[dict[str, Any]]:
        """All traces of the experiment."""
        place = {"type": "MLFLOW_EXPERIMENT", "mlflow_experiment": {"experiment_id": self.experiment_id()}}
        found = self.server.post("/api/3.0/mlflow/traces/search", {"locations": [place], "max_results": 500})
        return list(found.get("traces", []))


def has_metrics(passed: Passed) -> bool:
    """Whether a request brings metrics."""
    return passed.path.endswith("runs/log-batch") and b'"metrics"' in passed.body


@contextmanager
def serving(folder: Path) -> Iterator[MlflowServer]:
    """A server for the length of a block."""
    server = MlflowServer(folder)
    try:
        server.start()
        yield server
    finally:
        server.close()


@pytest.fixture
def mlflow_server(tmp_path_factory: pytest.TempPathFactory) -> MlflowServer:
    """One server for all tests that have experiments of their own."""
    late("mlflow")
    return shared("mlflow", lambda: serving(tmp_path_factory.mktemp("mlflow")))


@pytest.fixture
def peer(mlflow_server: MlflowServer) -> Iterator[MlflowPeer]:
    """A fresh experiment."""
    made = MlflowPeer(mlflow_server)
    yield made
    made.close()
