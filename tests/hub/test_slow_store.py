"""A store that hangs: nothing on the event loop waits for it."""

import json
import socket
import threading
from pathlib import Path

import pytest

from stepscope.hub.security.tokens import Tokens
from tests.hub import otlp_bodies as bodies
from tests.hub.conftest import PROTOBUF, RunningHub
from tests.hub.test_connections import PROGRAM, head, wait_for

pytest.importorskip("tests.chdb")


READING = (
    ("/graphql", b'{"query": "{ project(name: \\"p\\") { runs(first: 2) { edges { node { name } } } } }"}'),
    ("/api/2.0/mlflow/runs/search", b'{"experiment_ids": ["0"]}'),
)
"""Requests of clients that read back what they wrote."""


def _post(path: str, token: str, body: bytes) -> bytes:
    lines = ("content-type: application/json", f"authorization: Bearer {token}", f"content-length: {len(body)}")
    return head("POST", path, *lines) + body


def test_the_hub_answers_while_the_store_hangs(tmp_path: Path) -> None:
    """With tokens of a project, whose runs are looked up: health, page and session are answered, ingest comes later.

    However many requests of any dialect wait for the store.
    """
    home, hold = tmp_path / "home", tmp_path / "hold"
    tokens = Tokens(home / "hub" / "tokens.json")
    mine, admin = tokens.create(["ingest"], project="mine")[1], tokens.create(["admin"])[1]
    env = {"STEPSCOPE_TEST_LIMITS": json.dumps({}), "STEPSCOPE_TEST_HOLD": str(hold)}
    hub = RunningHub(home, env=env, program=(PROGRAM,)).start()
    answers: list[int] = []

    def send() -> None:
        shown = {"content-type": PROTOBUF, "authorization": f"Bearer {mine}"}
        answers.append(hub.request("POST", "/v1/traces", bodies.spans(2), shown).status)

    try:
        hub.request("GET", "/api/health", None, {"authorization": f"Bearer {admin}"})
        hold.touch()
        senders = [threading.Thread(target=send) for _ in range(4)]
        for sender in senders:
            sender.start()
        asked = [head("GET", "/api/runs", f"authorization: Bearer {admin}")] * 8
        asked += [_post(path, admin, body) for path, body in READING for _ in range(45)]
        lists = [socket.create_connection(("127.0.0.1", hub.port), 60) for _ in asked]
        for connection, request in zip(lists, asked, strict=True):
            connection.sendall(request)
        for _ in range(3):
            assert hub.request("GET", "/healthz").status == 200
            assert hub.request("GET", "/api/health", None, {"authorization": f"Bearer {admin}"}).status == 200
            assert hub.request("GET", "/").status == 200
            token = json.dumps({"token": admin}).encode()
            assert hub.request("POST", "/api/session", token).status == 200
        assert answers == []
        hold.unlink()
        wait_for(lambda: len(answers) == 4)
        assert set(answers) == {200}
        for connection in lists:
            assert connection.recv(12) in (b"HTTP/1.1 200", b"HTTP/1.1 503")
            connection.close()
    finally:
        hold.unlink(missing_ok=True)
        hub.kill()
