"""Files that are replaced as a whole, and locks between processes."""

import fcntl
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from stepscope.journal import atomic_files
from stepscope.journal.atomic_files import FileLock, Locked, holder, lock_folder, replace_file, replacing


@pytest.mark.parametrize("fsync", [False, True])
def test_a_file_is_replaced_as_a_whole(tmp_path: Path, fsync: bool) -> None:
    """The new content is there with the mode asked for, and nothing else is left in the folder."""
    path = tmp_path / "a.json"
    for data in (b"old", b"new"):
        replace_file(path, data, fsync=fsync)
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"new", 0o600)
    assert list(tmp_path.iterdir()) == [path]


def test_a_failure_leaves_the_old_file(tmp_path: Path) -> None:
    """Whatever ends the block, the file keeps its content and the half-written one is removed."""
    path = tmp_path / "a.json"
    replace_file(path, b"old")

    def interrupted() -> None:
        with replacing(path) as file:
            file.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_cannot_be_synced_is_passed_over(tmp_path: Path) -> None:
    """A file system that cannot sync folders is supported."""
    atomic_files.sync_folder(tmp_path / "missing")


def test_one_process_holds_a_lock(tmp_path: Path) -> None:
    """Others learn who; it is free when the holder releases it, or dies."""
    path = tmp_path / "lock"
    assert holder(path) is None
    with FileLock(path) as lock:
        lock.sign("12345 http://here")
        lock.sign("7")
        assert holder(path) == "7"
        with pytest.raises(Locked, match=r"^7$"):
            FileLock(path)
        assert lock.is_at(path)
        path.unlink()
        assert not lock.is_at(path)
    lock.release()
    code = f"import pathlib, stepscope.journal.atomic_files as files; files.FileLock(pathlib.Path({str(path)!r}))"
    subprocess.run([sys.executable, "-c", code], check=True)
    FileLock(path).release()
    assert holder(path) is None


def test_a_lock_can_be_waited_for(tmp_path: Path) -> None:
    """With `wait`, a process gets the lock as soon as its holder ends."""
    path = tmp_path / "lock"
    code = (
        "import sys; from pathlib import Path; from stepscope.journal.atomic_files import FileLock\n"
        f"with FileLock(Path({str(path)!r})): print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=-1, stdout=-1, text=True) as child:
        assert child.stdout
        assert child.stdin
        assert child.stdout.readline() == "held\n"
        with pytest.raises(Locked):
            FileLock(path)
        child.stdin.close()
        with FileLock(path, wait=True):
            assert child.wait(300) == 0


def test_a_folder_is_locked_itself(tmp_path: Path) -> None:
    """Removing files in it does not free it."""
    fd = lock_folder(tmp_path)
    with pytest.raises(Locked):
        lock_folder(tmp_path)
    os.close(fd)
    os.close(lock_folder(tmp_path))


def test_looking_who_holds_a_lock_does_not_keep_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even in a process that is forked at that moment, as workers of a data loader are."""
    path = tmp_path / "lock"
    FileLock(path).release()
    read, write = os.pipe()
    children: list[int] = []
    flock = fcntl.flock

    def forking(fd: int, operation: int) -> None:
        flock(fd, operation)
        if not children:
            children.append(os.fork())
            if not children[0]:
                os.read(read, 1)
                os._exit(0)

    monkeypatch.setattr(atomic_files, "PROBE_SECONDS", 0.0)
    try:
        with monkeypatch.context() as patched:
            patched.setattr(fcntl, "flock", forking)
            assert holder(path) is None
        FileLock(path).release()
    finally:
        os.write(write, b"x")
        os.waitpid(children[0], 0)


def test_a_lock_is_taken_while_others_look_at_it(tmp_path: Path) -> None:
    """A check holds the lock for a moment; a second one waits instead of reporting it as taken."""
    path = tmp_path / "lock"
    FileLock(path).release()
    looking = os.open(path, os.O_RDONLY)
    fcntl.flock(looking, fcntl.LOCK_SH)
    timer = threading.Timer(0.02, os.close, [looking])
    timer.start()
    FileLock(path).release()
    timer.join()
