"""Addresses of web servers: which are one, and how they are shown without what is secret in them."""

import os
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from stepscope.model.errors import ConfigError, Retry
from stepscope.sinks import registry
from stepscope.sinks.http import Connection, is_address, without_secrets
from tests.sinks.servers import running

PLACES: dict[str, dict[str, Any]] = {
    "hub": {"url": "http://ada:PASS@host:1/x"},
    "otlp": {"endpoint": "http://ada:PASS@host:1"},
    "tinker": {"url": "http://ada:PASS@host:1/x"},
    "mlflow": {"uri": "http://ada:PASS@host:1"},
    "datadog": {"transport": "http", "api_key": "k", "url": "https://ada:PASS@host:1"},
}
BROKEN = ("http://[::1", "http://ada:PASS@[::1", "http://ada:PASS@host:99999", "http://ada:PA/SS@host", "ada:PASS@host")


@pytest.mark.parametrize("url", [*BROKEN, "host:1", "ftp://host", "http://", "http://host:0", ""])
def test_what_is_no_address(url: str) -> None:
    """Any text as an address gives a clear error, never one of the parser."""
    assert not is_address(url)
    with pytest.raises(ConfigError):
        Connection(url)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://host:1/path?a=b#c", "http://host:1/path?a=b#c"),
        ("HTTP://Host/a@b", "HTTP://Host/a@b"),
        ("https://ada:PASS@host:1/path?a=b", "https://host:1/path?a=b"),
        ("http://ada:P@SS@[::1]:4318", "http://[::1]:4318"),
        ("http://host/v1?api_key=PASS&team=x", "http://host/v1?team=x"),
        ("http://ada:PA/SS@host", "http://host"),
        ("postgresql://ada:PASS@host/db", "postgresql://host/db"),
        ("ada:PASS@host", "host"),
    ],
)
def test_without_secrets(url: str, shown: str) -> None:
    """Name, password and secret parameters go; an address without them stays as it was written."""
    assert without_secrets(url) == shown


@pytest.mark.parametrize("name", ["hub", "mlflow", "tinker", "datadog", "otlp"])
def test_what_no_header_can_carry_is_a_wrong_setting(name: str) -> None:
    """A token with the line break of its file is taken without; one with a character inside is refused, unseen."""
    option = {"hub": "token", "mlflow": "token", "otlp": "headers"}.get(name, "api_key")
    more = {"transport": "http"} if name == "datadog" else {}

    def chosen(token: str) -> registry.Chosen:
        value = {"authorization": token} if option == "headers" else token
        return registry.parse([{name: {option: value, **more}}], {})[0]

    assert chosen("SECRET\n").config == chosen("SECRET").config
    for bad in ("SEC\nRET", "SECRET\u00e9"):
        with pytest.raises(ConfigError, match=f"sinks: {name}: .* cannot be sent") as raised:
            chosen(bad)
        assert "SEC" not in str(raised.value)


def test_an_answer_that_is_not_http() -> None:
    """For a non-HTTP answer, such as from a gRPC port, the error says what to do, without raw bytes."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            with server.accept()[0] as peer:
                peer.recv(10_000)
                peer.sendall(b"\x00\x00\x06\x04\x00\x00\x00\x00\x00\xff\n")

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(Retry, match="is this a gRPC port"):
            Connection(f"http://127.0.0.1:{server.getsockname()[1]}").post("/", b"x", {}, 5.0)
        thread.join()


def test_a_request_that_can_not_be_sent_shows_nothing() -> None:
    """A header that http.client refuses is no reason to show it."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        connection = Connection(f"http://127.0.0.1:{server.getsockname()[1]}")
        for _ in range(2):
            with pytest.raises(Retry, match="cannot be sent") as raised:
                connection.post("/", b"x", {"authorization": "SEC\nRET"}, 5.0)
            assert "SEC" not in str(raised.value)
        connection.close()


@pytest.mark.parametrize("name", PLACES)
def test_no_place_tells_a_password(name: str) -> None:
    """What reports, runs and the doctor show of a sink has the host and not the password; its id does not know it."""
    for chosen in registry.parse([{name: PLACES[name]}], {}):
        assert "host:1" in chosen.config.place
        assert "PASS" not in repr(chosen)
        assert "ada" not in repr(chosen)
    other = {key: str(value).replace("PASS", "changed") for key, value in PLACES[name].items()}
    ids = [[each.id for each in registry.parse([{name: options}], {})] for options in (PLACES[name], other)]
    assert ids[0] == ids[1]


@pytest.mark.parametrize("name", PLACES)
@pytest.mark.parametrize("url", BROKEN)
def test_a_broken_address_is_a_wrong_setting(name: str, url: str) -> None:
    """Every sink says so in its own words, without the password."""
    options = {key: url if key in ("url", "endpoint", "uri") else value for key, value in PLACES[name].items()}
    with pytest.raises(ConfigError, match="http") as caught:
        registry.parse([{name: options}], {})
    assert "PASS" not in str(caught.value)
    assert "SS@" not in str(caught.value)


def test_a_descriptor_that_became_a_file_is_left_alone(tmp_path: Path) -> None:
    """After a program closed all descriptors and opened its own files, requests use a new connection."""
    with running() as server:
        connection = Connection(server.url)
        assert connection.post("/v1/logs", b"one", {}, 60).status == 200
        assert connection._open is not None
        number = connection._open.sock.fileno()
        with open(tmp_path / "mine", "wb") as mine:
            os.dup2(mine.fileno(), number)
            assert connection.post("/v1/logs", b"two", {}, 60).status == 200
            connection.close()
            assert os.path.samestat(os.fstat(number), os.fstat(mine.fileno()))
        os.close(number)
        assert (tmp_path / "mine").read_bytes() == b""
        assert [each.body for each in server.received] == [b"one", b"two"]
