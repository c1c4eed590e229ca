"""Requests of journal frames: bytes as they come, or payloads whose checksums are right."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import msgspec

from stepscope.hub.receivers.ingest import Ingest
from stepscope.hub.receivers.native import Native
from stepscope.hub.refusals import Refused
from stepscope.hub.security.guard import Access
from stepscope.hub.threads import Workers
from stepscope.journal.run_edits import Edits
from stepscope.wire import frames
from tests.fuzz.hub_path import HubPath
from tests.fuzz.records import TIME, WRITER, every_kind

_WORKERS = Workers("fuzz", threads=1, waiting=0)
_SIZE = 2
DEPTHS = (60, 300, 700, 2000)


class _Ports:
    """What a hub gives a receiver, as far as this one needs it."""

    workers = _WORKERS
    edits = Edits(Path("/nowhere"))
    files = Path("/nowhere")
    blobs = None

    def __init__(self, ingest: Ingest) -> None:
        self._ingest = ingest
        self.deleting: list[Any] = []

    def ingest(self, receiver: str, *, ours: bool = False) -> Ingest:
        """The way of this input."""
        return self._ingest


def check(data: bytes) -> None:
    """Take a request of frames; the first byte tells whether it is one already or payloads to be framed."""
    if not data:
        return
    body = data[1:] if data[0] % 2 else b"".join(map(frames.frame, _payloads(data[1:])))
    _tiles(body)
    path = HubPath()
    try:
        Native(cast(Any, _Ports(path.entry))).take(body, Access())
        status = 200
    except Refused as error:
        status = int(error.refusal.status)
    assert status < 500
    path.finish()


def _payloads(data: bytes) -> Iterator[bytes]:
    """Cut bytes into payloads, each behind its length."""
    while len(data) >= _SIZE:
        end = _SIZE + int.from_bytes(data[:_SIZE], "big")
        yield data[_SIZE:end]
        data = data[end:]


def _tiles(body: bytes) -> None:
    """Frames and damage lie side by side and cover everything."""
    at = 0
    for found in frames.scan(body, final=True):
        assert found.start == at
        assert found.end > at
        at = found.end
    assert at == len(body)


def seeds() -> Iterator[bytes]:
    """A head and batches of every kind, framed and not; and values nested deeper and deeper."""
    encode = msgspec.msgpack.encode
    for number, records in enumerate(every_kind(), 1):
        framed = frames.pack_head(WRITER) + frames.pack_batch(number, [encode(record) for record in records])
        yield b"\1" + framed
        payloads = [bytes(found.payload) for found in frames.scan(framed) if isinstance(found, frames.Frame)]
        yield b"\0" + b"".join(len(payload).to_bytes(_SIZE, "big") + payload for payload in payloads)
    for depth in DEPTHS:
        nested = b"\x91" * depth + b"\x01"
        log = b"\x98\x02" + encode(TIME) + b"\xc0\xc0\xc0\xc0\x09" + nested
        head = encode({"id": "w", "run": "r", "project": "p"})
        deep = b"\x84" + head[1:] + encode("resource") + b"\x81\xa1k" + nested
        yield b"\1" + frames.frame(b"\x92\x00" + deep) + frames.pack_batch(1, [log])
        yield b"\1" + frames.pack_head(WRITER) + frames.pack_batch(1, [log])
