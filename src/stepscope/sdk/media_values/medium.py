"""A medium: something beside numbers that `log` takes, captured by the caller and encoded later."""

import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

from stepscope.sdk.attributes import shorten
from stepscope.sdk.context import text_of
from stepscope.sdk.interrupts import pass_on
from stepscope.sdk.media_values.capture import Unusable, capture, check_size

MAX_FILE = 1024**3
"""Bytes of a file that is recorded."""


class Encoded(NamedTuple):
    """An encoded medium: its bytes or the path of its file, the format, and what else is known of it."""

    content: bytes | Path
    format: str
    facts: Mapping[str, Any] = MappingProxyType({})


class Medium:
    """One thing to record. `size` is the memory it takes until it is encoded."""

    KIND: ClassVar[str] = "file"
    __slots__ = ("_source", "artifact", "caption", "kept", "kind", "layers", "name", "problem", "size")

    def __init__(self, data: Any, caption: Any = None, name: Any = None) -> None:
        self.kind = self.KIND
        self.caption = None if caption is None else shorten(text_of(caption))
        self.name = None if name is None else text_of(name)
        self.layers: tuple[Medium, ...] = ()
        """What is drawn over an image."""
        self.artifact: str | None = None
        """The name of the artifact that a file belongs to."""
        self.problem: str | None = None
        """Why it cannot be recorded; None when it can, as far as is known."""
        self.kept: bool | None = None
        """Whether it was recorded; None while it waits."""
        self.size = 0
        self._source: Any = None
        try:
            self._source = self._capture(data)
            self.size = _size_of(self._source)
            check_size(self.size)
        except Unusable as reason:
            self.problem, self._source = str(reason), None
        except BaseException as error:  # a foreign object may raise anything when it is asked
            pass_on(error)
            self.problem = f"unreadable {type(error).__name__}"

    @property
    def copy_seconds(self) -> float:
        """What copying it took of the caller's time."""
        return float(getattr(self._source, "copy_seconds", 0.0))

    def _capture(self, data: Any) -> Any:
        """Return what is encoded later: bytes, a path, or an array that nobody else changes."""
        return as_file(data) or capture(data)

    def encode(self, *, fast: bool = False) -> Encoded:
        """Encode what was captured, with `fast` to a larger file; Unusable, or what a library raises, on failure."""
        source = self._source
        if isinstance(source, Path):
            self.name = self.name or source.name
            return Encoded(source, source.suffix[1:].lower() or "bin")
        if isinstance(source, bytes):
            return Encoded(source, self._format_of(source))
        return self._encode(source, fast)

    def _format_of(self, data: bytes) -> str:
        """Return the format of bytes that were given, from the name or the way they begin."""
        if self.name is not None and "." in self.name:
            return self.name.rpartition(".")[2].lower()
        return next((format for start, format in _STARTS.items() if data.startswith(start)), "bin")

    def _encode(self, source: Any, fast: bool) -> Encoded:
        raise Unusable(f"a {self.kind} is a path or bytes")


_STARTS = {b"\x89PNG": "png", b"\xff\xd8\xff": "jpg", b"GIF8": "gif", b"RIFF": "wav", b"<svg": "svg", b"OggS": "ogg"}


def _size_of(source: Any) -> int:
    if isinstance(source, bytes):
        return len(source)
    return int(getattr(source, "nbytes", 0))


def as_file(data: Any) -> "bytes | Path | None":
    """Return the bytes, or the path of a file; None for anything else."""
    if isinstance(data, (bytes, bytearray, memoryview)):
        check_size(memoryview(data).nbytes)
        return bytes(data)
    if isinstance(data, (str, os.PathLike)):
        return Path(os.path.abspath(data))
    if callable(getattr(data, "getvalue", None)):  # io.BytesIO and io.StringIO
        found = data.getvalue()
        return found.encode() if isinstance(found, str) else bytes(found)
    return None
