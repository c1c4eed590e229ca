"""OTLP requests in JSON."""

from collections.abc import Iterator

from stepscope.wire.otlp.encode.to_json import to_json
from tests.fuzz.otlp_requests import marked, receive, requests


def check(data: bytes) -> None:
    """Take a request."""
    receive("json", data)


def seeds() -> Iterator[bytes]:
    """Requests of every kind, spelled both ways, and one with what Python's json writes for NaN."""
    yield b"\0{}"
    for signal, body in requests():
        text = to_json(signal, body)
        yield marked(signal, text)
        yield b"\xff" + text
    metric = b'{"name":"a","gauge":{"data_points":[{"as_double":NaN}]}}'
    yield b'\1{"resource_metrics":[{"scope_metrics":[{"metrics":[%b]}]}]}' % metric
