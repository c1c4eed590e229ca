"""The session, model and future ids of a request and its response, parsed from their first bytes."""

import re
import struct
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec
import zstandard

from stepscope.extend.receiver import inflate
from stepscope.wire.protobuf_fields import fields, text, varint

MAX_BYTES = 64 * 1024
"""The number of first bytes of a body in which ids are searched: they come first, or bodies are small."""
MAX_RESULT = 4 * 1024 * 1024
"""Metrics of larger results are not read."""
_ID = re.compile(rb'"(session_id|model_id|sampling_session_id|request_id)"\s*:\s*"([^"\\]{1,300})"')
_QUEUE = re.compile(rb'"(type|status|queue_state|queue_state_reason|category|state)"\s*:\s*"([^"\\]{1,300})"')
_ERROR = re.compile(rb'^\s*\{[^{]*"error"\s*:\s*"')
_PATH_ID = re.compile(r"[0-9:]|.{24}")
_PROTOBUF = "application/x-protobuf"


class Ids(NamedTuple):
    """The ids in a body; empty where missing."""

    session_id: str = ""
    model_id: str = ""
    sampling_session_id: str = ""
    request_id: str = ""


def read_ids(headers: Mapping[str, str], data: bytes) -> Ids:
    """Find the ids at the start of a body, in JSON or in the protobuf of a forward pass."""
    if headers.get("content-type", "").startswith(_PROTOBUF):
        return Ids(model_id=_first_field(headers, data))
    found: dict[str, str] = {}
    for name, value in _ID.findall(plain_bytes(headers, data)[:MAX_BYTES]):
        found.setdefault(name.decode(), value.decode("utf-8", "replace"))
    return Ids(**found)


def _first_field(headers: Mapping[str, str], data: bytes) -> str:
    """Return the first field of a protobuf message if it is a string of plausible length."""
    try:
        if headers.get("content-encoding") == "zstd":
            data = zstandard.ZstdDecompressor(max_window_size=2**26).stream_reader(data).read(512)
        if data[:1] != b"\x0a":
            return ""
        size, at = varint(data[:400], 1)
        return data[at : at + size].decode() if size <= 300 and at + size <= len(data) else ""
    except (ValueError, zstandard.ZstdError):
        return ""


def plain_bytes(headers: Mapping[str, str], data: bytes) -> bytes:
    """Decompress a whole body; empty when it cannot be decompressed."""
    try:
        return inflate(data, headers.get("content-encoding", "").strip().lower(), 2 * MAX_RESULT)
    except (ValueError, KeyError):
        return b""


class Poll(NamedTuple):
    """The result of polling a future: done, failed, and the state of the queue."""

    is_over: bool
    error: str = ""
    queue_state: str = ""
    reason: str = ""


def read_poll(status: int, headers: Mapping[str, str], data: bytes) -> Poll:
    """Parse the response to a poll as the client does."""
    is_json = "json" in headers.get("content-type", "")
    body = plain_bytes(headers, data)[:MAX_BYTES] if is_json else b""
    fields = {name.decode(): value.decode("utf-8", "replace") for name, value in reversed(_QUEUE.findall(body))}
    queue = (fields.get("queue_state", ""), fields.get("queue_state_reason", ""))
    if status == 200:
        if fields.get("type") == "try_again" or fields.get("status") == "complete_metadata":
            return Poll(False, "", *queue)
        return Poll(True, fields.get("category", "failed") if _ERROR.match(body) else "")
    if status in (400, 402, 408, 429) or status >= 500:
        return Poll(False, "", *queue)
    return Poll(True, f"HTTP {status}")


def read_metrics(headers: Mapping[str, str], data: bytes) -> dict[str, float]:
    """Return the metrics of a result: `metrics` in JSON, field 3 in the protobuf of a forward pass."""
    body = plain_bytes(headers, data)
    try:
        if headers.get("content-type", "").startswith(_PROTOBUF):
            pairs = [dict(fields(entry)) for number, entry in fields(body) if number == 3]
            return {text(pair.get(1)): _double(pair.get(2)) for pair in pairs if pair.get(1)}
        found: Any = msgspec.json.decode(body)
        given = found.get("metrics") if isinstance(found, dict) else None
    except (ValueError, TypeError, RecursionError):
        return {}
    given = given if isinstance(given, dict) else {}
    return {key: float(value) for key, value in given.items() if isinstance(value, (int, float))}


def _double(data: Any) -> float:
    value: float = struct.unpack("<d", data)[0] if isinstance(data, bytes) and len(data) == 8 else 0.0
    return value


def route_name(path: str) -> tuple[str, str]:
    """Return the operation of a path, and the path without its ids."""
    parts = path.split("/")
    known = ["{id}" if _PATH_ID.search(part) and part not in ("v1", "v2") else part for part in parts]
    words = [part for part in known if part not in ("", "api", "v1", "v2", "{id}")]
    return ".".join(words[:3]) or "request", "/".join(known)
