"""Request bodies: read whole, decompressed within a limit and decoded on a thread, never on the event loop."""

import contextlib
import re
import zlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, TypeVar

import zstandard
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from stepscope.hub.refusals import Refusal, Refused
from stepscope.hub.security.guard import most_body, too_large
from stepscope.hub.threads import Workers

ENCODINGS = ("identity", "gzip", "deflate", "zstd")
_WINDOW = 64 * 1024 * 1024
_PIECE = 1024
"""Compressed bytes fed at a time: one byte of zstd can expand to 32 KiB, one of gzip to 1 KiB."""
MEMBERS = 10_000
"""The limit of members in a gzip body or frames in a zstd body; bgzip writes one per 64 KiB."""
_ZEROS, _NOTHING = re.compile(rb"\0*"), re.compile(b"")
"""Padding that is allowed between two members."""
LARGE = 2 * 1024 * 1024
"""Bodies larger than this take much memory to parse: JSON of many small values grows twentyfold."""


class LimitedRoute(Route):
    """A route whose bodies have a limit of their own, in bytes."""

    def __init__(
        self, path: str, answer: Callable[[Request], Awaitable[Response]], method: str, most_body: int
    ) -> None:
        super().__init__(path, answer, methods=[method])
        self.most_body = most_body


class TooLarge(ValueError):
    """The decompressed body exceeds the limit."""


class Broken(ValueError):
    """The bytes do not match their Content-Encoding."""


def inflate(data: bytes, encoding: str, limit: int) -> bytes:
    """Decompress a body; TooLarge or Broken, and KeyError for an encoding that is not in ENCODINGS."""
    if encoding in ("", "identity"):
        out = data
    elif encoding == "zstd":
        out = _inflate(data, zstandard.ZstdDecompressor(max_window_size=_WINDOW).decompressobj, limit)
    else:
        window = {"gzip": 31, "x-gzip": 31, "deflate": 15}[encoding]
        if encoding == "deflate" and not _is_zlib(data):
            window = -15  # some clients send a raw deflate stream
        out = _inflate(data, lambda: zlib.decompressobj(window), limit, padding=_ZEROS)
    if len(out) > limit:
        raise TooLarge
    return out


def _inflate(data: bytes, begin: Callable[[], Any], limit: int, padding: re.Pattern[bytes] = _NOTHING) -> bytes:
    """Decompress members or frames one after the other, each with its own decompressor."""
    parts: list[bytes] = []
    size = offset = members = 0
    while offset < len(data):
        if members >= MEMBERS:  # even an empty one costs as much as a thousand bytes
            raise Broken(f"the compressed body has more than {MEMBERS} parts")
        stream, members = begin(), members + 1
        while not stream.eof:
            piece = data[offset : offset + _PIECE]
            if not piece:
                raise Broken("the compressed body is cut off")
            try:
                part = stream.decompress(piece)
            except (zlib.error, zstandard.ZstdError) as error:
                raise Broken(f"the body cannot be decompressed: {error}") from None
            offset += len(piece) - len(stream.unused_data)
            size += len(part)
            if size > limit:
                raise TooLarge
            parts.append(part)
        found = padding.match(data, offset)
        offset = found.end() if found else offset
    return b"".join(parts)


def _is_zlib(data: bytes) -> bool:
    return len(data) > 1 and data[0] & 15 == 8 and int.from_bytes(data[:2], "big") % 31 == 0


Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Body:
    """A body as received."""

    data: bytes
    encoding: str
    most: int

    def unpacked(self) -> bytes:
        """Decompress it; Refused with 400 or 413. This takes time: not on the event loop."""
        try:
            return inflate(self.data, self.encoding, self.most)
        except TooLarge:
            raise Refused(too_large(self.most)) from None
        except Broken as error:
            raise Refused(Refusal(HTTPStatus.BAD_REQUEST, str(error))) from None


async def read_body(request: Request) -> Body:
    """Read a body; Refused with 400, 408, 413, 415 or 503."""
    encoding = request.headers.get("content-encoding", "").strip().lower()
    try:
        data = await request.body()
    except ClientDisconnect:
        raise Refused(Refusal(HTTPStatus.BAD_REQUEST, "the body was cut off")) from None
    if encoding not in ("", "x-gzip", *ENCODINGS):
        text = f"unknown Content-Encoding {encoding[:40]!r}; use one of {', '.join(ENCODINGS)}"
        raise Refused(Refusal(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, text))
    return Body(data, encoding, most_body(request.scope))


async def with_body(request: Request, workers: Workers, work: Callable[[bytes], Result]) -> Result:
    """Read a body and run `work` on it on a thread.

    The same thread decompresses it, so that at most as many bodies as threads are unpacked at a time.
    """
    body = await read_body(request)
    return await workers.run(lambda: parse(workers, body.unpacked(), work))


def parse(workers: Workers, data: bytes, work: Callable[[bytes], Result]) -> Result:
    """Run `work` on a body, on one of the threads; large bodies one at a time."""
    with workers.large if len(data) > LARGE else contextlib.nullcontext():
        return work(data)
