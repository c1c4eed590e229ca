"""A hub in front of a Tinker service: everything passes unchanged, both ways, and is recorded as traces."""

import contextlib
import hashlib
import http.client
import json
import re
import socket
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest

from stepscope.dialects.tinker.receiver.service import ALL_METHODS
from stepscope.hub.security.tokens import Tokens
from tests.dialects.tinker.receiver.service_peer import LOSS, ServicePeer
from tests.hub import otlp_bodies
from tests.hub.conftest import JSON, RunningHub, StartHub
from tests.hub.test_connections import wait_for

SECRET = "tml-0123456789abcdef0123456789abcdef"


@pytest.fixture(scope="module")
def service() -> Iterator[ServicePeer]:
    """A service."""
    made = ServicePeer()
    yield made
    made.close()


@pytest.fixture(scope="module")
def proxy(service: ServicePeer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHub]:
    """A hub in front of it."""
    pytest.importorskip("tests.chdb")
    hub = RunningHub(tmp_path_factory.mktemp("proxy") / "home", ("--tinker-upstream", service.url)).start()
    yield hub
    with contextlib.suppress(Exception):
        hub.kill()


def spans_of(hub: RunningHub, run: str, names: set[str], headers: dict[str, str] | None = None) -> list[dict[str, Any]]:
    """Wait until a run has spans of these names; all its spans."""
    found: list[dict[str, Any]] = []

    def is_there() -> bool:
        answer = hub.request("GET", f"/api/spans?run={run}&limit=500", None, headers).json()
        found[:] = answer.get("spans", [])
        return names <= {span["name"] for span in found}

    wait_for(is_there, 30)
    return found


def test_requests_pass_unchanged(proxy: RunningHub, service: ServicePeer) -> None:
    """Method, path, query, headers and a body of any size arrive as they were sent, with a trace beside them."""
    body = bytes(range(256)) * 100_000
    headers = {"x-api-key": SECRET, "x-own": "a, b", "content-type": "application/x-thing"}
    answer = proxy.request("PUT", "/api/v1/deep/%7Epath/echo?a=1&b=%20", body, headers).json()
    assert answer["path"] == "/services/tinker/api/v1/deep/%7Epath/echo?a=1&b=%20"
    assert (answer["bytes"], answer["sha"]) == (len(body), hashlib.sha256(body).hexdigest())
    sent = {name.lower(): value for name, value in answer["headers"]}
    assert headers.items() <= sent.items()
    assert re.fullmatch("00-[0-9a-f]{32}-[0-9a-f]{16}-01", sent["traceparent"])
    assert sent["host"] == service.url.split("/")[2]


def test_a_chunked_body_passes(proxy: RunningHub) -> None:
    """A body whose length is not known beforehand arrives whole."""
    connection = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=300)
    parts = [b"x" * 1000, b"y" * 70_000, b"z"]
    connection.request("POST", "/api/v1/echo", iter(parts), encode_chunked=True)
    assert json.loads(connection.getresponse().read())["sha"] == hashlib.sha256(b"".join(parts)).hexdigest()
    connection.close()


def test_answers_stream(proxy: RunningHub, service: ServicePeer) -> None:
    """The client has the first part of an answer before the service has sent the second."""
    service.hold.clear()
    connection = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=300)
    connection.request("POST", "/api/v1/stream", b"{}")
    response = connection.getresponse()
    assert response.read(5) == b"first"
    service.hold.set()
    assert response.read() == b"second"
    connection.close()


def test_a_client_that_leaves_is_not_waited_for(proxy: RunningHub, service: ServicePeer) -> None:
    """The service sees its own client leave when the client of the hub does."""
    service.hold.clear()
    with socket.create_connection(("127.0.0.1", proxy.port)) as client:
        client.sendall(b"POST /api/v1/endless HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n")
        assert client.recv(10_000)
    assert service.left.wait(30)
    service.hold.set()


@pytest.mark.parametrize("status", [400, 401, 404, 408, 410, 422, 429, 500, 503])
def test_errors_pass_unchanged(proxy: RunningHub, status: int) -> None:
    """Status, body and headers of a refusal are the service's own."""
    answer = proxy.request("POST", f"/api/v1/status/{status}", b"{}")
    assert (answer.status, answer.body, answer.headers["x-own"]) == (status, b"<h1>unchanged</h1>", "kept")
    assert answer.headers["content-type"] == "text/html"


def test_an_answer_before_the_end_of_the_body_passes(proxy: RunningHub) -> None:
    """A service that refuses a large body without reading it is heard."""
    connection = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=300)
    with contextlib.suppress(OSError):
        connection.request("POST", "/api/v1/early", bytes(5_000_000))
    assert connection.getresponse().status == 413
    connection.close()


def test_an_answer_that_breaks_off_breaks_off(proxy: RunningHub) -> None:
    """A connection that breaks in the middle of an answer breaks for the client too; before it, it is a 502."""
    with pytest.raises(http.client.IncompleteRead):
        proxy.request("POST", "/api/v1/reset", b"{}")
    answer = proxy.request("POST", "/api/v1/reset", b"before")
    assert (answer.status, "broke" in answer.json()["detail"], answer.headers["retry-after"]) == (502, True, "1")
    assert proxy.request("POST", "/api/v1/echo", b"after").status == 200


def test_no_service_is_an_error_that_clients_retry(start_hub: StartHub) -> None:
    """A service that is down is a 502 with `Retry-After`; telemetry is still accepted."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        hub = start_hub("--tinker-upstream", f"http://127.0.0.1:{free.getsockname()[1]}")
        answer = hub.request("POST", "/api/v1/create_session", b"{}")
    assert (answer.status, answer.headers["retry-after"]) == (502, "1")
    assert hub.post("/api/v1/telemetry", b'{"events": []}', JSON).json() == {"status": "accepted"}


def test_a_token_of_the_hub_stays_here(service: ServicePeer, start_hub: StartHub) -> None:
    """A hub with tokens lets a client in by Cloudflare's headers, and forwards only the key of the service."""
    hub = start_hub("--tinker-upstream", service.url)
    token = Tokens(hub.home / "hub" / "tokens.json").create(["ingest"])[1]
    wait_for(lambda: hub.request("GET", "/api/runs").status == 401)
    assert hub.request("POST", "/api/v1/echo", b"", {"x-api-key": SECRET}).status == 401
    shown = {"x-api-key": SECRET, "cf-access-client-id": "stepscope", "cf-access-client-secret": token}
    answer = hub.request("POST", "/api/v1/echo", b"", shown)
    assert token not in answer.body.decode()
    assert SECRET in answer.body.decode()
    alone = hub.request("POST", "/api/v1/echo", b"", {"x-api-key": f"tml-{token}"})
    assert (alone.status, token in alone.body.decode()) == (200, False)


def test_no_method_passes_without_a_token(service: ServicePeer, start_hub: StartHub) -> None:
    """Where a token is needed nothing reaches the service without one, OPTIONS with a body included."""
    hub = start_hub("--tinker-upstream", service.url)
    Tokens(hub.home / "hub" / "tokens.json").create(["ingest"])
    wait_for(lambda: hub.request("GET", "/api/runs").status == 401)
    for method in ALL_METHODS:
        for headers in ({}, {"origin": hub.url, "access-control-request-method": "POST"}):
            assert hub.request(method, "/api/v1/echo", b"a body", headers).status == 401, method


@pytest.mark.usefixtures("unmetered")
def test_the_real_client_through_the_proxy(
    proxy: RunningHub, service: ServicePeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Operations of the unmodified client are traces with request, queue and polls, joined with its own events."""
    tinker: Any = pytest.importorskip("tinker")
    monkeypatch.setenv("TINKER_BASE_URL", proxy.url)
    monkeypatch.setenv("TINKER_API_KEY", SECRET)
    client = tinker.ServiceClient(display_name="through")
    training = client.create_lora_training_client("m", rank=8)
    types: Any = import_module("tinker.types")
    datum = types.Datum(model_input=types.ModelInput.from_ints([1, 2]), loss_fn_inputs={"target_tokens": [2, 3]})
    for _ in range(2):
        assert training.forward_backward([datum], "cross_entropy").result(60).metrics["loss:sum"] == LOSS
        training.optim_step(types.AdamParams(learning_rate=0.1)).result(60)
    service.failing.add("optim_step")
    with pytest.raises(ValueError, match="forbidden"):
        training.optim_step(types.AdamParams(learning_rate=0.1)).result(60)
    client.close("success").result(60)
    _check_trace(proxy, service)
    _check_run(proxy)
    files = [path for path in proxy.home.rglob("*") if path.is_file()]
    assert not [path for path in files if SECRET.encode() in path.read_bytes()]


def _check_trace(proxy: RunningHub, service: ServicePeer) -> None:
    spans = spans_of(
        proxy, "session-1", {"tinker.forward_backward", "tinker.queue", "tinker.poll", "tinker.optim_step"}
    )
    first = min((span for span in spans if span["name"] == "tinker.forward_backward"), key=lambda span: span["start"])
    context = service.seen("forward_backward")[0]["traceparent"]
    assert first["trace_id"] == context.split("-")[1]
    assert {headers["traceparent"].split("-")[1] for headers in service.seen("retrieve_future")} >= {first["trace_id"]}
    # The service's own spans continue the trace, as those of any server that is instrumented do.
    trace, span = (bytes.fromhex(part) for part in context.split("-")[1:3])
    assert proxy.post("/v1/traces", otlp_bodies.child_span(trace, span, run="the-service")).status == 200
    found: dict[str, Any] = {}

    def is_whole() -> bool:
        found.update(proxy.request("GET", f"/api/traces/{first['trace_id']}").json())
        return len(found.get("spans", [])) >= 6

    wait_for(is_whole, 30)
    depths = [(each["name"], each["depth"]) for each in found["spans"]]
    assert depths[:3] == [("tinker.forward_backward", 0), ("tinker.request", 1), ("server work", 2)]
    assert depths[3:] == [("tinker.queue", 1), ("tinker.poll", 2), ("tinker.poll", 2)]
    assert found["runs"] == ["session-1", "the-service"]


def _check_run(proxy: RunningHub) -> None:
    run: dict[str, Any] = {}

    def is_stored() -> bool:
        run.update(proxy.request("GET", "/api/runs/session-1").json())
        return (run["status"], run["step"]) == ("finished", 3)

    wait_for(is_stored, 30)
    assert run["name"] == "through"
    answer = proxy.request("GET", "/api/runs/session-1/series?key=trainer/loss:sum&key=tinker/forward_backward_seconds")
    assert str(LOSS) in answer.body.decode()
    asked = "/api/logs?run=session-1&name=APIFuture.result_async.api_status_error"
    wait_for(lambda: len(proxy.request("GET", asked).json()["logs"]) == 1, 30)
    (refused,) = proxy.request("GET", asked).json()["logs"]
    spans = proxy.request("GET", f"/api/traces/{refused['trace_id']}").json()["spans"]
    assert spans[0]["name"] == "tinker.optim_step"
    assert spans[0]["attrs"]["tinker.request_id"] == refused["attrs"]["request_id"]
    found = proxy.request("GET", "/api/runs/session-1/findings").json()["findings"]
    assert "hang" not in {each["kind"] for each in found}
