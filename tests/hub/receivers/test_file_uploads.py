"""Files that arrive in parts."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from stepscope.hub.receivers.file_uploads import keep_file


async def _parts(*parts: bytes, error: Exception | None = None) -> AsyncIterator[bytes]:
    for part in parts:
        yield part
    if error is not None:
        raise error


def test_a_file_is_complete_or_not_there(tmp_path: Path) -> None:
    """What was there before stays while parts arrive, and after a client that left; nothing half written remains."""
    path = tmp_path / "model.bin"
    asyncio.run(keep_file(path, _parts(b"one ", b"two")))
    with pytest.raises(ConnectionError):
        asyncio.run(keep_file(path, _parts(b"other", error=ConnectionError())))
    assert [(each.name, each.read_bytes()) for each in tmp_path.iterdir()] == [("model.bin", b"one two")]
