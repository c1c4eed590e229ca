"""Files of a run in folders: each is copied once, again after a change, and within limits."""

from pathlib import Path

import pytest

from stepscope.imports import folder_files
from stepscope.imports.folder_files import FolderFiles


def read(part: FolderFiles, position: object = None) -> tuple[list[str], object, dict[str, int]]:
    """The names of the files after a position, the next position, and what was left out."""
    left: dict[str, int] = {}
    chunks = list(part.read(position, left.__setitem__))  # type: ignore[arg-type]
    return [file.name for each in chunks for file in each.files], chunks[-1].position if chunks else position, left


def test_only_what_changed_comes_again(tmp_path: Path) -> None:
    """A second reading yields new and changed files; symbolic links are not followed."""
    (tmp_path / "b").mkdir()
    for name in ("a", "b/c"):
        (tmp_path / name).write_text("1")
    (tmp_path / "link").symlink_to("/etc/hostname")
    part = FolderFiles([("in/", tmp_path)], 0)
    names, position, _ = read(part)
    assert (names, part.size()) == (["in/a", "in/b/c"], 2)
    assert read(part, position)[0] == []
    (tmp_path / "b" / "c").write_text("longer")
    (tmp_path / "new").write_text("1")
    assert read(part, position)[0] == ["in/b/c", "in/new"]


def test_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files beyond the limits are left out and counted."""
    monkeypatch.setattr(folder_files, "MAX_FILES", 2)
    monkeypatch.setattr(folder_files, "MAX_FILE", 10)
    for name, size in (("a", 3), ("b", 11), ("c", 3), ("d", 3)):
        (tmp_path / name).write_bytes(bytes(size))
    names, _, left = read(FolderFiles([("", tmp_path)], 0))
    assert (names, left) == (["a", "c"], {"files beyond the limits of a run": 2})
