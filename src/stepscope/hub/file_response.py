"""A response with the content of a stored file."""

import os
from collections.abc import Mapping
from pathlib import Path

from starlette.responses import FileResponse
from starlette.types import Receive, Scope, Send


class StoredFileResponse(FileResponse):
    """Send a file as it is now, even if it is replaced or deleted before all of it is sent.

    The file is open from the start, so that its length and its content are of the same file. OSError when it cannot
    be opened.
    """

    def __init__(
        self, path: Path, media_type: str = "application/octet-stream", headers: Mapping[str, str] | None = None
    ) -> None:
        self._file = open(path, "rb", opener=_open)  # noqa: SIM115 - closed once it is sent
        number = self._file.fileno()
        super().__init__(f"/dev/fd/{number}", headers=headers, media_type=media_type, stat_result=os.fstat(number))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the file and close it."""
        with self._file:
            await super().__call__(scope, receive, send)


def _open(path: str, flags: int) -> int:
    """Open a file, and nothing that a symbolic link leads to."""
    return os.open(path, flags | os.O_NOFOLLOW)


def disposition(name: str, *, inline: bool = False) -> dict[str, str]:
    """The header with which a browser saves a file under a name, or shows it where that is safe."""
    plain = "".join(letter if letter.isascii() and (letter.isalnum() or letter in "-_. ") else "_" for letter in name)
    return {"Content-Disposition": f'{"inline" if inline else "attachment"}; filename="{plain[-100:] or "file"}"'}
