"""Blobs: whole, one for equal content, gone with their writer, and swept when no record names them."""

import hashlib
import os
import threading
from pathlib import Path

import pytest

from stepscope.journal import layout
from stepscope.journal.blobs import Blobs, blobs_of, find_blob
from stepscope.journal.kept_files import kept_bytes, remove_kept, sweep
from stepscope.journal.run_edits import delete_files
from stepscope.journal.segments import Journal
from stepscope.model.names import EVENT_MEDIA
from stepscope.model.ports import Writer
from stepscope.sdk.context import pack_any

DATA = b"some content"
DIGEST = hashlib.sha256(DATA).hexdigest()


def journal(home: Path, run: str, *digests: str, pid: int = 2**22 + 1, wall: int = 0) -> Path:
    """The folder of a writer that has ended, unless its process lives, with a record for each digest."""
    name = f"r0-a1-{layout.host_name()}-{pid}-abcdef"
    folder = layout.writer_folder(home, run, name)
    writer = Writer(id=name, run=run, project="p", host=layout.host_name(), pid=pid, wall_ns=wall)
    made = Journal(folder, writer)
    records = [pack_any((3, 1, 0, None, None, None, 9, EVENT_MEDIA, {"sha256": digest})) for digest in digests]
    made.append(records or [pack_any((3, 1, 0, None, None, None, 9, "other", {}))])
    made.close()
    return folder


def test_a_blob_is_named_by_its_content(tmp_path: Path) -> None:
    """In memory or in parts it has the same name; what is there already takes no more room."""
    blobs = Blobs(tmp_path / "blobs")
    assert blobs.put(DATA) == (DIGEST, len(DATA))
    assert blobs.put(DATA) == (DIGEST, 0)
    assert blobs.copy([b"some ", b"content"]) == (DIGEST, len(DATA), 0)
    found = blobs.find(DIGEST)
    assert found is not None
    assert found.read_bytes() == DATA
    assert [each.name for each in blobs.all()] == [DIGEST]
    assert found.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("name", ["", "..", "../../x", DIGEST[:-1], DIGEST.upper(), f"{DIGEST}/..", "a" * 63 + "\n"])
def test_nothing_else_is_found(tmp_path: Path, name: str) -> None:
    """Only a digest names a blob."""
    Blobs(tmp_path).put(DATA)
    assert Blobs(tmp_path).find(name) is None
    assert find_blob(tmp_path, "run", name) is None


def test_a_link_is_no_blob(tmp_path: Path) -> None:
    """A symbolic link in the folder leads nowhere."""
    secret = tmp_path / "secret"
    secret.write_text("x")
    place = Blobs(tmp_path / "blobs").path(DIGEST)
    place.parent.mkdir(parents=True)
    place.symlink_to(secret)
    assert Blobs(tmp_path / "blobs").find(DIGEST) is None


def test_many_writers_of_one_blob(tmp_path: Path) -> None:
    """Whoever is first, the file is whole, and exactly one of them made it."""
    blobs, data = Blobs(tmp_path), os.urandom(1_000_000)
    grown: list[int] = []
    threads = [threading.Thread(target=lambda: grown.append(blobs.put(data)[1])) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(grown) == len(data)
    assert [Path(each.path).read_bytes() for each in blobs.all()] == [data]


def test_an_error_leaves_nothing(tmp_path: Path) -> None:
    """A source that fails half way leaves no file behind."""

    def parts() -> "list[bytes]":
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        Blobs(tmp_path / "b").copy(part for part in parts())
    assert list(Blobs(tmp_path / "b").all()) == []


def test_deleting_a_run_keeps_the_blob_of_another(tmp_path: Path) -> None:
    """Two runs with the same blob; one is deleted, with its blob, and the other has it still."""
    for run in ("one", "two"):
        blobs_of(journal(tmp_path, run, DIGEST)).put(DATA)
    freed = delete_files(tmp_path, "one", 2**62)
    assert freed.journals > len(DATA)
    assert find_blob(tmp_path, "one", DIGEST) is None
    assert find_blob(tmp_path, "two", DIGEST) is not None


def test_a_run_that_began_again_keeps_its_own(tmp_path: Path) -> None:
    """A deletion takes the blobs of the processes from before it, and leaves those of later ones."""
    old = journal(tmp_path, "run", DIGEST, pid=2**22 + 1, wall=10)
    new = journal(tmp_path, "run", DIGEST, pid=2**22 + 2, wall=30)
    for folder in (old, new):
        blobs_of(folder).put(DATA)
    delete_files(tmp_path, "run", 20)
    assert not old.exists()
    assert blobs_of(new).find(DIGEST) is not None


def test_what_no_record_names_is_swept(tmp_path: Path) -> None:
    """After its writer has ended: a blob without a record and a half written file go, a named blob stays."""
    folder = journal(tmp_path, "run", DIGEST)
    blobs = blobs_of(folder)
    blobs.put(DATA)
    blobs.put(b"orphan")
    (blobs.folder / "1-ab.tmp").write_bytes(b"half")
    assert sweep(tmp_path) == len(b"orphan") + len(b"half")
    assert [each.name for each in blobs.all()] == [DIGEST]
    blobs.put(b"orphan")
    assert sweep(tmp_path) == 0, "a writer that has ended is read once"


def test_nothing_is_swept_beside_a_damaged_journal(tmp_path: Path) -> None:
    """Where a record may have been lost, every blob stays."""
    folder = journal(tmp_path, "run", DIGEST)
    blobs_of(folder).put(DATA)
    (segment,) = layout.list_segments(folder)
    data = bytearray(segment.read_bytes())
    data[-3] ^= 0xFF
    segment.write_bytes(data + b"more")
    layout.segment_path(folder, 1).write_bytes(b"")
    assert sweep(tmp_path) == 0
    assert blobs_of(folder).find(DIGEST) is not None


def test_the_living_are_not_swept(tmp_path: Path) -> None:
    """A process between its blob and its record is left alone."""
    folder = journal(tmp_path, "run", pid=os.getpid(), wall=2**62)
    blobs_of(folder).put(DATA)
    assert sweep(tmp_path) == 0
    assert blobs_of(folder).find(DIGEST) is not None


def test_what_retention_counts_and_removes(tmp_path: Path) -> None:
    """Blobs and imported files of a run, and not its journal."""
    folder = journal(tmp_path, "run", DIGEST)
    blobs_of(folder).put(DATA)
    files = folder.parent / "files"
    files.mkdir()
    (files / "image.png").write_bytes(b"12345")
    assert kept_bytes(tmp_path) == len(DATA) + 5
    remove_kept(tmp_path, "run")
    remove_kept(tmp_path, "../run")
    assert kept_bytes(tmp_path) == 0
    assert layout.list_segments(folder)
