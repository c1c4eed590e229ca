"""Responses with stored files."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from stepscope.dialects.wandb.receiver.run_files import _MEDIA
from stepscope.hub.runs.run_files import ImportedFiles, RunFile, StoredFileResponse, disposition, with_steps


def _send(response: StoredFileResponse, **headers: str) -> tuple[int, dict[str, str], bytes]:
    """Send a response; status, headers and body."""
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        raise AssertionError("nothing is read")

    named = [(name.encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": "http", "method": "GET", "headers": named, "asgi": {"spec_version": "2.4"}}
    asyncio.run(response(scope, receive, send))
    found = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], found, b"".join(each.get("body", b"") for each in sent)


@pytest.mark.parametrize("then", ["replaced by a longer one", "replaced by a shorter one", "deleted"])
def test_length_and_content_are_of_the_same_file(tmp_path: Path, then: str) -> None:
    """A file that another upload replaces or deletes while it is sent is sent whole, as its length says."""
    path = tmp_path / "a.bin"
    path.write_bytes(b"as it was")
    response = StoredFileResponse(path)
    (tmp_path / "new").write_bytes(b"x" * 100_000 if "longer" in then else b"")
    os.replace(tmp_path / "new", path)
    if then == "deleted":
        path.unlink()
    status, headers, body = _send(response)
    assert (status, int(headers["content-length"]), body) == (200, len(body), b"as it was")


def test_a_part_of_a_file_can_be_asked_for(tmp_path: Path) -> None:
    """Range requests, with which players seek and clients resume downloads, get that part."""
    path = tmp_path / "a.bin"
    path.write_bytes(b"0123456789")
    status, headers, body = _send(StoredFileResponse(path), range="bytes=3-5")
    assert (status, headers["content-range"], body) == (206, "bytes 3-5/10", b"345")


def test_links_and_folders_are_not_files(tmp_path: Path) -> None:
    """A symbolic link is not followed out of the hub's folder, and a folder has no content."""
    (tmp_path / "link").symlink_to("/etc/passwd")
    for name in ("link", "."):
        with pytest.raises(OSError, match=r"Too many levels|Is a directory"):
            StoredFileResponse(tmp_path / name)


def test_a_file_name_cannot_add_headers() -> None:
    """Quotes, line breaks and letters beyond ASCII are replaced in the name under which a browser saves a file."""
    assert disposition('a"\r\nX: y é.png') == {"Content-Disposition": 'attachment; filename="a___X_ y _.png"'}


def test_imported_media_have_their_step(tmp_path: Path) -> None:
    """Images and sounds of TensorBoard are named by it; other files have none."""
    names = ("images/img-b29814cf/1-0-c1e8954c.png", "audio/snd-38e88090/-3-0-a1e7d99f.wav", "images/1-0-c1e8954c.png")
    for name in names:
        path = tmp_path / "runs" / "r" / "files" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
    assert {each.name: each.step for each in ImportedFiles(tmp_path).list("", "r")} == dict(
        zip(names, (1, -3, None), strict=True)
    )


def test_media_of_wandb_have_their_step() -> None:
    """The client puts key, step and digest into the name."""
    names = {
        "media/images/val/img_3_4_0123456789abcdef0123.png": 4,
        "media/table/t_12_0123456789abcdef0123.table.json": 12,
        "media/images/mine.png": None,
        "model_3_0123456789abcdef0123.pt": None,
    }
    files = [RunFile(name, Path(name), 1, 0.0) for name in names]
    assert {each.name: each.step for each in with_steps(files, _MEDIA)} == names
