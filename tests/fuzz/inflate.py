"""Decompression of bodies: the first byte tells the encoding."""

import gzip
import zlib
from collections.abc import Iterator

import zstandard

from stepscope.hub.receivers.bodies import ENCODINGS, Broken, TooLarge, inflate
from tests.fuzz.otlp_requests import requests

LIMIT = 64 * 1024


def check(data: bytes) -> None:
    """Decompress; never more than the limit."""
    if not data:
        return
    try:
        assert len(inflate(data[1:], ENCODINGS[data[0] % len(ENCODINGS)], LIMIT)) <= LIMIT
    except (Broken, TooLarge) as error:
        str(error).encode()


def seeds() -> Iterator[bytes]:
    """Requests, short and repeated, in every encoding; and streams of two members."""
    pack = (bytes, gzip.compress, zlib.compress, zstandard.compress)
    for _, body in requests():
        for number, packed in enumerate(pack):
            yield bytes([number]) + packed(body)
            yield bytes([number]) + packed(body * 20) + packed(body)
    yield b"\3" + zstandard.ZstdCompressor(level=19, write_content_size=False).compress(bytes(LIMIT * 20))
