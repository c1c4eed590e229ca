"""Who may do what at a real hub: tokens, scopes, projects, hosts, origins, headers, rates, TLS."""

import shutil
import subprocess
from pathlib import Path

import grpc
import pytest

from stepscope.hub.security.tokens import Tokens
from tests.hub import otlp_bodies as bodies
from tests.hub.conftest import JSON, RunningHub, StartHub
from tests.waiting import wait_until


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> "tuple[RunningHub, dict[str, str]]":
    """A hub with a token of every kind."""
    pytest.importorskip("tests.chdb")
    home = tmp_path_factory.mktemp("guarded") / "home"
    tokens = Tokens(home / "hub" / "tokens.json")
    texts = {
        "ingest": tokens.create(["ingest"])[1],
        "read": tokens.create(["read"])[1],
        "admin": tokens.create(["admin"])[1],
        "one project": tokens.create(["ingest"], project="mine")[1],
        "slow": tokens.create(["ingest"], requests=0.1)[1],
    }
    texts["wrong"] = texts["admin"][:-1] + ("0" if texts["admin"][-1] != "0" else "1")
    texts["nonsense"] = "hello"
    running = RunningHub(home, ("--allow-origin", "https://dash.example")).start()
    yield running, texts
    running.kill()


@pytest.mark.parametrize(
    ("token", "ingest", "read", "change"),
    [
        (None, 401, 401, 401),
        ("wrong", 401, 401, 401),
        ("nonsense", 401, 401, 401),
        ("ingest", 200, 403, 403),
        ("read", 403, 200, 403),
        ("admin", 200, 200, 404),
        ("one project", 200, 403, 403),
    ],
)
def test_scopes(
    guarded: "tuple[RunningHub, dict[str, str]]", token: str | None, ingest: int, read: int, change: int
) -> None:
    """Each scope opens its own doors; the alive check is open to all."""
    hub, texts = guarded
    headers = {"authorization": f"Bearer {texts[token]}"} if token else {}
    assert hub.request("POST", "/v1/logs", b"{}", {"content-type": JSON, **headers}).status == ingest
    assert hub.request("GET", "/api/health", None, headers).status == read
    assert hub.request("GET", "/metrics", None, headers).status == read
    assert hub.request("DELETE", "/api/nothing", None, headers).status == change
    assert hub.request("GET", "/healthz").status == 200


def test_grpc_scopes(guarded: "tuple[RunningHub, dict[str, str]]") -> None:
    """GRPC asks for the same tokens."""
    hub, texts = guarded
    wanted = {
        None: grpc.StatusCode.UNAUTHENTICATED,
        "wrong": grpc.StatusCode.UNAUTHENTICATED,
        "read": grpc.StatusCode.PERMISSION_DENIED,
    }
    with grpc.insecure_channel(f"127.0.0.1:{hub.grpc_port}") as channel:
        call = channel.unary_unary("/opentelemetry.proto.collector.logs.v1.LogsService/Export")
        for token, code in wanted.items():
            metadata = [("authorization", f"Bearer {texts[token]}")] if token else []
            with pytest.raises(grpc.RpcError) as refused:
                call(b"", metadata=metadata, timeout=300)
            assert refused.value.code() is code
        assert call(b"", metadata=[("authorization", f"Bearer {texts['ingest']}")], timeout=300) == b""


def test_rate(guarded: "tuple[RunningHub, dict[str, str]]") -> None:
    """A token over its rate gets 429 with Retry-After."""
    hub, texts = guarded
    headers = {"content-type": JSON, "authorization": f"Bearer {texts['slow']}"}
    answers = [hub.request("POST", "/v1/logs", b"{}", headers) for _ in range(3)]
    assert [answer.status for answer in answers] == [200, 429, 429]
    assert int(answers[1].headers["retry-after"]) >= 1


@pytest.mark.parametrize(
    ("host", "origin", "status"),
    [
        ("127.0.0.1", None, 200),
        ("localhost:4318", None, 200),
        ("[::1]:4318", None, 200),
        ("evil.example", None, 421),
        ("evil.example:4318", None, 421),
        ("127.0.0.1.evil.example", None, 421),
        ("localhost.evil.example", None, 421),
        ("", None, 421),
        ("localhost:4318", "http://localhost:4318", 200),
        ("localhost:4318", "https://localhost:4318", 403),
        ("localhost:4318", "http://localhost:9999", 403),
        ("localhost:4318", "http://evil.example", 403),
        ("localhost:4318", "null", 403),
    ],
)
def test_hosts_and_origins(hub: RunningHub, host: str, origin: str | None, status: int) -> None:
    """Pages from elsewhere reach neither the data nor the receivers, also not under a name of their own."""
    headers = {"host": host, **({"origin": origin} if origin else {})}
    assert hub.request("GET", "/api/health", None, headers).status == status
    assert hub.request("POST", "/v1/logs", b"{}", {"content-type": JSON, **headers}).status == status


def test_cross_site_post(hub: RunningHub) -> None:
    """A form of another site cannot post, even from a browser that hides its origin."""
    headers = {"content-type": JSON, "sec-fetch-site": "cross-site"}
    assert hub.request("POST", "/v1/logs", b"{}", headers).status == 403


def test_token_beats_host(guarded: "tuple[RunningHub, dict[str, str]]") -> None:
    """Who shows a token may call the hub by any name, for no page that was led here knows one."""
    hub, texts = guarded
    shown = f"Bearer {texts['ingest']}"
    headers = {"content-type": JSON, "host": "hub.cluster.local", "authorization": shown}
    assert hub.request("POST", "/v1/logs", b"{}", headers).status == 200


def test_no_other_page_may_show_it_in_a_frame(hub: RunningHub) -> None:
    """Unless its origin is allowed by name."""
    for answer in (hub.request("GET", path) for path in ("/", "/healthz", "/api/health")):
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["x-frame-options"] == "DENY"


def test_headers(guarded: "tuple[RunningHub, dict[str, str]]") -> None:
    """Every answer carries the headers that keep browsers safe; no page is allowed but by name."""
    hub, texts = guarded
    for answer in (hub.request("GET", path) for path in ("/healthz", "/nothing", "/api/health")):
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "frame-ancestors https://dash.example;" in answer.headers["content-security-policy"]
        assert "x-frame-options" not in answer.headers
        assert "access-control-allow-origin" not in answer.headers
        assert "server" not in answer.headers
    headers = {"origin": "https://dash.example", "authorization": f"Bearer {texts['read']}"}
    answer = hub.request("GET", "/api/health", None, headers)
    assert (answer.status, answer.headers["access-control-allow-origin"]) == (200, "https://dash.example")


def test_preflight(guarded: "tuple[RunningHub, dict[str, str]]") -> None:
    """The browser of an allowed page learns without a token what it may send; that of another page is refused."""
    hub, _ = guarded
    asked = {"access-control-request-method": "PUT", "origin": "https://dash.example"}
    answer = hub.request("OPTIONS", "/api/alerts/rules", None, asked)
    assert (answer.status, answer.headers["access-control-allow-origin"]) == (204, "https://dash.example")
    assert "PUT" in answer.headers["access-control-allow-methods"]
    assert hub.request("OPTIONS", "/api/alerts/rules", None, {**asked, "origin": "https://other.example"}).status == 403
    assert hub.request("OPTIONS", "/api/alerts/rules").status == 401


def test_session(guarded: "tuple[RunningHub, dict[str, str]]") -> None:
    """A browser gets its token as a cookie that no script can read, and can give it back."""
    hub, texts = guarded
    assert hub.post("/api/session", b'{"token": "no"}', JSON).status == 401
    assert hub.post("/api/session", b"[", JSON).status == 400
    answer = hub.post("/api/session", b'{"token": "%s"}' % texts["read"].encode(), JSON)
    cookie = answer.headers["set-cookie"]
    assert answer.status == 200
    assert {"HttpOnly", "SameSite=Strict"} <= set(cookie.split("; "))
    assert hub.request("GET", "/api/health", None, {"cookie": cookie.split(";")[0]}).status == 200
    assert "Max-Age=0" in hub.request("DELETE", "/api/session").headers["set-cookie"]


def test_revoked_token(start_hub: StartHub, tmp_path: Path) -> None:
    """A running hub forgets a revoked token soon; tokens are stored hashed, for their owner alone."""
    tokens = Tokens(tmp_path / "home" / "hub" / "tokens.json")
    token, text = tokens.create(["read"])
    hub = start_hub()
    file = tmp_path / "home" / "hub" / "tokens.json"
    assert text.rpartition("_")[2] not in file.read_text()
    assert file.stat().st_mode & 0o077 == 0
    headers = {"authorization": f"Bearer {text}"}
    assert hub.request("GET", "/api/health", None, headers).status == 200
    tokens.create(["admin"])
    assert tokens.revoke(token.id)
    wait_until(lambda: hub.request("GET", "/api/health", None, headers).status != 200)


def test_project_of_a_token(guarded: "tuple[RunningHub, dict[str, str]]") -> None:
    """What comes with a project's token is that project's, and cannot enter a run of another."""
    hub, texts = guarded
    free = {"authorization": f"Bearer {texts['ingest']}"}
    bound = {"authorization": f"Bearer {texts['one project']}"}
    assert hub.post("/v1/traces", bodies.spans(2, run="theirs"), **free).body == b""
    assert b"another project" in hub.post("/v1/traces", bodies.spans(2, run="theirs"), **bound).body
    assert hub.post("/v1/traces", bodies.spans(2, run="ours"), **bound).body == b""


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_tls(start_hub: StartHub, tmp_path: Path) -> None:
    """With a certificate both ports use TLS."""
    import http.client
    import ssl

    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost"]
    names = ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)]
    subprocess.run([*make, *names], check=True, capture_output=True)
    hub = start_hub("--tls-cert", str(cert), "--tls-key", str(key))
    context = ssl.create_default_context(cafile=str(cert))
    connection = http.client.HTTPSConnection("localhost", hub.port, context=context, timeout=300)
    connection.request("POST", "/v1/logs", b"{}", {"content-type": JSON})
    response = connection.getresponse()
    assert (response.status, "strict-transport-security" in response.headers) == (200, True)
    connection.close()
    credentials = grpc.ssl_channel_credentials(cert.read_bytes())
    with grpc.secure_channel(f"localhost:{hub.grpc_port}", credentials) as channel:
        call = channel.unary_unary("/opentelemetry.proto.collector.logs.v1.LogsService/Export")
        assert call(b"", timeout=300) == b""
