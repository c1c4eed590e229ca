"""Types of stored files, found by their content; what a client says a file is counts for nothing."""

import re
from typing import NamedTuple

HEAD_BYTES = 512
"""How much of a file its type is found by."""


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
    """Return the type of a file that starts with these bytes."""
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


def _is_text(head: bytes) -> bool:
    """Whether bytes are the start of a text in UTF-8, which may be cut within a letter."""
    if head.translate(None, _CONTROLS) != head:
        return False
    try:
        head.decode()
    except UnicodeDecodeError as error:
        return len(head) == HEAD_BYTES and error.start >= len(head) - 3
    return True
