"""OTLP requests in protobuf."""

from collections.abc import Iterator

from tests.fuzz.otlp_requests import marked, receive, requests


def check(data: bytes) -> None:
    """Take a request."""
    receive("protobuf", data)


def seeds() -> Iterator[bytes]:
    """Requests of every kind, and an empty one."""
    yield b"\0"
    for signal, body in requests():
        yield marked(signal, body)
        yield b"\xff" + body
