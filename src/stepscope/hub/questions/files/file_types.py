"""Types of stored files, found by their content; what a client says a file is counts for nothing."""

import re
from typing import NamedTuple

HEAD_BYTES = 512
"""How much of a file its type is found by."""
MAX_PIXELS = 100_000_000
"""Pixels of an image that a page shows; a few kilobytes can claim more, and a browser would unpack them."""


class FileType(NamedTuple):
    """What a file is: how a page can show it, and the content type under which it is safe to send."""

    kind: str
    """`image`, `audio`, `video`, `table`, `text` or `binary`."""
    media_type: str


_STARTS = (
    (b"\x89PNG\r\n\x1a\n", FileType("image", "image/png")),
    (b"\xff\xd8\xff", FileType("image", "image/jpeg")),
    (b"GIF87a", FileType("image", "image/gif")),
    (b"GIF89a", FileType("image", "image/gif")),
    (b"BM", FileType("image", "image/bmp")),
    (b"ID3", FileType("audio", "audio/mpeg")),
    (b"\xff\xfb", FileType("audio", "audio/mpeg")),
    (b"\xff\xf3", FileType("audio", "audio/mpeg")),
    (b"OggS", FileType("audio", "audio/ogg")),
    (b"fLaC", FileType("audio", "audio/flac")),
    (b"\x1aE\xdf\xa3", FileType("video", "video/webm")),
)
_RIFF = {
    b"WEBP": FileType("image", "image/webp"),
    b"WAVE": FileType("audio", "audio/wav"),
}
_SVG = re.compile(rb"\s*(?:(?:<\?xml|<!--|<!DOCTYPE svg)[^>]*>\s*)*<svg[\s>]")
_TABLE = re.compile(rb'\s*\{\s*"columns"\s*:\s*\[')
_CONTROLS = bytes(set(range(32)) - set(b"\t\n\r\f\x1b"))
TEXT = FileType("text", "text/plain; charset=utf-8")
TABLE = FileType("table", TEXT.media_type)
"""A logged table: JSON with columns and data."""
BINARY = FileType("binary", "application/octet-stream")
SVG = FileType("image", "image/svg+xml")
"""An image that can hold scripts: it is sent with a policy that forbids them."""


def file_type(head: bytes) -> FileType:
    """Return the type of a file that starts with these bytes; an image of too many pixels is `binary`, a download."""
    found = _by_content(head)
    return BINARY if found.kind == "image" and _pixels(head, found.media_type) > MAX_PIXELS else found


def _by_content(head: bytes) -> FileType:
    if head[:4] == b"RIFF":
        return _RIFF.get(head[8:12], BINARY)
    if head[4:8] == b"ftyp":
        return FileType("image", "image/avif") if head[8:12] == b"avif" else FileType("video", "video/mp4")
    for start, found in _STARTS:
        if head.startswith(start) and (start != b"BM" or head[6:10] == bytes(4)):
            return found
    if _SVG.match(head):
        return SVG
    if not _is_text(head):
        return BINARY
    return TABLE if _TABLE.match(head) else TEXT


def _pixels(head: bytes, media_type: str) -> int:
    """Return the pixels that an image claims to have; 0 where its start does not say."""
    if media_type == "image/png":
        return int.from_bytes(head[16:20]) * int.from_bytes(head[20:24])
    if media_type == "image/gif":
        return int.from_bytes(head[6:8], "little") * int.from_bytes(head[8:10], "little")
    if media_type == "image/bmp":
        wide, tall = (int.from_bytes(head[at : at + 4], "little", signed=True) for at in (18, 22))
        return abs(wide * tall)
    if media_type == "image/webp" and head[12:16] == b"VP8X":
        return (int.from_bytes(head[24:27], "little") + 1) * (int.from_bytes(head[27:30], "little") + 1)
    return _jpeg_pixels(head) if media_type == "image/jpeg" else 0


def _jpeg_pixels(head: bytes) -> int:
    """Return the pixels of a JPEG whose frame begins within these bytes, after segments with their lengths."""
    at = 2
    while at + 9 <= len(head) and head[at] == 0xFF:
        mark = head[at + 1]
        if 0xC0 <= mark <= 0xCF and mark not in (0xC4, 0xC8, 0xCC):
            return int.from_bytes(head[at + 5 : at + 7]) * int.from_bytes(head[at + 7 : at + 9])
        at += 2 + max(int.from_bytes(head[at + 2 : at + 4]), 2)
    return 0


def _is_text(head: bytes) -> bool:
    """Whether bytes are the start of a text in UTF-8, which may be cut within a letter."""
    if head.translate(None, _CONTROLS) != head:
        return False
    try:
        head.decode()
    except UnicodeDecodeError as error:
        return len(head) == HEAD_BYTES and error.start >= len(head) - 3
    return True
