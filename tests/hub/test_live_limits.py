"""Live streams at a real hub: they end with their token, and no client takes them all."""

import socket
from pathlib import Path

import pytest

from stepscope.hub.security.tokens import Tokens
from tests.hub.conftest import RunningHub
from tests.hub.test_connections import head, limited

pytest.importorskip("tests.chdb")


def watching(hub: RunningHub, *lines: str) -> socket.socket:
    """Open a stream, and read as far as its first event or its refusal."""
    made = socket.create_connection(("127.0.0.1", hub.port), 60)
    made.sendall(head("GET", "/api/live", *lines))
    said = b""
    while b"hello" not in said and b'"error"' not in said:
        part = made.recv(65536)
        assert part, said
        said += part
    made.settimeout(60)
    return made


def ended(connection: socket.socket) -> None:
    """Read to the end of a stream."""
    said = b""
    while not said.endswith(b"0\r\n\r\n"):
        part = connection.recv(65536)
        assert part, said
        said += part


def test_a_revoked_token_ends_its_stream(tmp_path: Path) -> None:
    """The stream of a revoked token ends; others continue."""
    home = tmp_path / "home"
    tokens = Tokens(home / "hub" / "tokens.json")
    (gone, first), (_, second) = tokens.create(["read"]), tokens.create(["read"])
    hub = RunningHub(home).start()
    try:
        with (
            watching(hub, f"authorization: Bearer {first}") as ends,
            watching(hub, f"authorization: Bearer {second}") as goes_on,
        ):
            assert tokens.revoke(gone.id)
            ended(ends)
            goes_on.settimeout(30)
            assert b"beat" in goes_on.recv(65536)
    finally:
        hub.kill()


def test_the_first_token_ends_streams_without_one(tmp_path: Path) -> None:
    """Who watches without a token is let go when the first token makes one necessary."""
    home = tmp_path / "home"
    hub = RunningHub(home).start()
    try:
        with watching(hub) as ends:
            Tokens(home / "hub" / "tokens.json").create(["read"])
            ended(ends)
    finally:
        hub.kill()


def test_one_client_cannot_take_all_streams(tmp_path: Path) -> None:
    """A token that has as many streams as one may have is refused; another is not."""
    home = tmp_path / "home"
    tokens = Tokens(home / "hub" / "tokens.json")
    texts = [tokens.create(["read"])[1] for _ in range(3)]
    hub = limited(home, {"streams": 5, "client_streams": 3}).start()
    open_ones: list[socket.socket] = []

    def status(text: str) -> int:
        made = socket.create_connection(("127.0.0.1", hub.port), 60)
        made.sendall(head("GET", "/api/live", f"authorization: Bearer {text}"))
        open_ones.append(made)
        return int(made.recv(12)[9:12])

    try:
        assert [status(texts[0]) for _ in range(4)] == [200, 200, 200, 503]
        assert [status(texts[1]) for _ in range(3)] == [200, 200, 503]
        assert status(texts[2]) == 503
    finally:
        for connection in open_ones:
            connection.close()
        hub.kill()
