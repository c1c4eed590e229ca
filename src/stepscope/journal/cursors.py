"""How far each sink has read: one small file per sink, replaced atomically."""

import contextlib
import os
import zlib
from collections.abc import Callable
from pathlib import Path

import msgspec

from stepscope.journal.read import Position


class _File(msgspec.Struct):
    """What is in the file; a flipped bit in a position would pass over batches unseen, hence the checksum."""

    crc: int
    positions: msgspec.Raw


_encode = msgspec.json.Encoder().encode
_decode_file = msgspec.json.Decoder(_File).decode
_decode_positions = msgspec.json.Decoder(dict[str, Position]).decode


class Cursors:
    """The positions of one sink, by writer path relative to the runs folder.

    A damaged file counts as none: everything is read again, and a store ignores what it has seen. One that is
    there and cannot be read raises OSError.
    """

    def __init__(self, home: Path, sink: str) -> None:
        self._path = home / "cursors" / f"{sink}.json"
        self._positions = self._load()

    def get(self, writer: str) -> Position:
        """The position of a writer; the start for one never seen."""
        return self._positions.get(writer, Position())

    def set(self, writer: str, position: Position) -> None:
        """Move a writer's position; `save` makes it last."""
        self._positions[writer] = position

    def forget(self, writer: str) -> None:
        """Drop a writer whose folder is gone."""
        self._positions.pop(writer, None)

    def prune(self, is_gone: Callable[[str], bool]) -> None:
        """Drop the writers that are gone, such as those of a run that was deleted; `save` makes it last."""
        for writer in [writer for writer in self._positions if is_gone(writer)]:
            del self._positions[writer]

    def save(self) -> None:
        """Replace the file with the positions as they are now; OSError leaves the file as it was."""
        positions = _encode(self._positions)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        fresh = self._path.with_name(f"{self._path.name}.{os.getpid()}.tmp")
        try:
            with open(fresh, "wb") as file:
                file.write(_encode(_File(zlib.crc32(positions), msgspec.Raw(positions))))
                file.flush()
                os.fsync(file.fileno())
            os.replace(fresh, self._path)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(fresh)
            raise

    def _load(self) -> dict[str, Position]:
        try:
            file = _decode_file(self._path.read_bytes())
            if zlib.crc32(file.positions) != file.crc:
                return {}
            return _decode_positions(file.positions)
        except (FileNotFoundError, ValueError):
            return {}
