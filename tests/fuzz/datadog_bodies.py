"""Requests of Datadog's HTTP intake: the first byte tells the path, the rest is the body."""

import json
from collections.abc import Iterator
from typing import Any, cast

from stepscope.dialects.datadog.receiver.http_intake import PATHS, Datadog
from stepscope.dialects.datadog.wire.requests import BadBody
from stepscope.hub.refusals import Refused
from stepscope.hub.security.guard import Access
from tests.fuzz.hub_path import HubPath
from tests.fuzz.native_frames import _Ports

T = 1_700_000_000
_TEXT = 2
"""So many of the first bytes have the Content-Type of plain text."""


def check(data: bytes) -> None:
    """Take a request; what it holds is stored, refused item by item, or refused as a whole."""
    if not data:
        return
    paths = list(PATHS)
    path, said = paths[data[0] % len(paths)], {"content_type": "text/plain" if data[0] >= 256 - _TEXT else ""}
    hub = HubPath()
    receiver = Datadog(cast(Any, _Ports(hub.entry)))
    try:
        taken = receiver.take(path, data[1:], said, Access())
        answer = PATHS[path][1](taken)
        hub.finish()
        status = answer.status_code
    except BadBody as error:
        str(error).encode()
        status = 400
    except Refused as error:
        status = int(error.refusal.status)
    assert status < 500


def seeds() -> Iterator[bytes]:
    """A request of every path."""
    tags = ["run_id:r", "rank:1", "x:y"]
    series = [
        {"metric": "train.step", "points": [[T, 1], [T, 2]], "tags": tags},
        {"metric": "m", "points": [[T, 0.5], [T, "3"]], "tags": tags, "type": "count", "host": "h", "interval": 10},
    ]
    host = [{"name": "h", "type": "host"}]
    second = [{"metric": "m", "type": 3, "points": [{"timestamp": T, "value": 1}], "resources": host}]
    event = {"title": "t", "text": "x", "tags": tags, "alert_type": "error", "date_happened": T, "priority": "low"}
    checks = [{"check": "c", "status": 2, "host_name": "h", "tags": tags, "message": "m", "timestamp": T}]
    logs = [{"message": "m", "ddtags": "run_id:r", "timestamp": T * 1000, "trace_id": "0af7", "n": [{"a": None}]}, "x"]
    bodies = (
        {"series": series},
        {"series": second},
        {"series": [{"metric": "d", "points": [[T, [1, 2.5]]], "tags": tags}]},
        *(event, checks, logs, logs),
    )
    for number, body in enumerate(bodies):
        yield bytes([number]) + json.dumps(body).encode()
    yield b"\xff" + b"plain\nlines"
    yield b'\0{"series": [{"metric": "m", "points": [[1e9, NaN], [1e400, 1], [1e308, 1], [-1, Infinity]]}]}'
    yield b'\x05[{"message": "\\ud800", "\\ud800": ["\\udfff"]}]'
