"""Cursors: what was saved is found again, and a damaged file is never believed."""

import errno
import os
from pathlib import Path

import pytest

from stepscope.journal.cursors import Cursors
from stepscope.journal.read import Position

HERE = Position(segment=3, offset=4000, seq=70, last=3900, crc=2**32 - 1)


def file_of(home: Path) -> Path:
    """Return the one file of the cursors' folder."""
    (path,) = (home / "cursors").iterdir()
    return path


def test_positions_are_found_again(tmp_path: Path) -> None:
    """What `set` and `forget` did lasts from `save` on, for each sink apart."""
    cursors = Cursors(tmp_path, "otlp")
    assert cursors.get("run/writer") == Position()
    cursors.set("run/writer", HERE)
    cursors.set("run/öther", Position(seq=1))
    assert Cursors(tmp_path, "otlp").get("run/writer") == Position()
    cursors.save()
    again = Cursors(tmp_path, "otlp")
    assert (again.get("run/writer"), again.get("run/öther")) == (HERE, Position(seq=1))
    assert Cursors(tmp_path, "hub").get("run/writer") == Position()
    again.forget("run/writer")
    again.forget("never seen")
    again.save()
    assert Cursors(tmp_path, "otlp").get("run/writer") == Position()
    assert file_of(tmp_path).name == "otlp.json"


def test_names_of_sinks_may_have_dots(tmp_path: Path) -> None:
    """Two sinks whose names differ behind a dot have two files."""
    for sink in ("otlp.http", "otlp.grpc"):
        cursors = Cursors(tmp_path, sink)
        cursors.set("w", HERE)
        cursors.save()
    assert sorted(path.name for path in (tmp_path / "cursors").iterdir()) == ["otlp.grpc.json", "otlp.http.json"]


def test_no_flipped_bit_moves_a_position(tmp_path: Path) -> None:
    """With any one bit flipped the positions are as saved or at the start, never elsewhere, and nothing raises."""
    cursors = Cursors(tmp_path, "sink")
    cursors.set("w", HERE)
    cursors.save()
    path = file_of(tmp_path)
    data = path.read_bytes()
    with open(path, "r+b", buffering=0) as file:
        for bit in range(len(data) * 8):
            changed = bytearray(data)
            changed[bit // 8] ^= 1 << bit % 8
            os.pwrite(file.fileno(), changed, 0)
            assert Cursors(tmp_path, "sink").get("w") in (HERE, Position())


def test_no_cut_moves_a_position(tmp_path: Path) -> None:
    """A file cut anywhere counts as none."""
    cursors = Cursors(tmp_path, "sink")
    cursors.set("w", HERE)
    cursors.save()
    path = file_of(tmp_path)
    data = path.read_bytes()
    for cut in reversed(range(len(data))):
        os.truncate(path, cut)
        assert Cursors(tmp_path, "sink").get("w") == Position()


@pytest.mark.parametrize(
    "content",
    [b"", b"{}", b"null", b"[1]", b"\xff\xfe", b'{"crc": 0, "positions": {}}', b'{"crc": -1, "positions": 1}'],
)
def test_a_file_of_something_else_counts_as_none(tmp_path: Path, content: bytes) -> None:
    """Whatever is in the file, the start is where to begin, and it can be saved over."""
    cursors = Cursors(tmp_path, "sink")
    cursors.save()
    file_of(tmp_path).write_bytes(content)
    cursors = Cursors(tmp_path, "sink")
    assert cursors.get("w") == Position()
    cursors.set("w", HERE)
    cursors.save()
    assert Cursors(tmp_path, "sink").get("w") == HERE


def test_a_file_that_cannot_be_read_is_not_taken_for_an_empty_one(tmp_path: Path) -> None:
    """A failing file system raises; believing the file empty would send everything again."""
    path = tmp_path / "cursors" / "sink.json"
    path.parent.mkdir()
    path.symlink_to(path)
    with pytest.raises(OSError, match=r"sink\.json") as raised:
        Cursors(tmp_path, "sink")
    assert raised.value.errno == errno.ELOOP


def test_a_failed_save_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    """It raises OSError and leaves nothing beside the old file."""
    cursors = Cursors(tmp_path, "sink")
    cursors.set("w", HERE)
    cursors.save()
    path = file_of(tmp_path)
    path.rename(tmp_path / "kept")
    path.mkdir()  # a folder cannot be replaced by a file
    with pytest.raises(IsADirectoryError):
        cursors.save()
    path.rmdir()
    assert list(path.parent.iterdir()) == []
    (tmp_path / "kept").rename(path)
    assert Cursors(tmp_path, "sink").get("w") == HERE
