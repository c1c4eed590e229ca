"""Additional installed packages, for tests of entry points."""

from collections.abc import Mapping
from pathlib import Path

import pytest


def install_package(
    folder: Path, monkeypatch: pytest.MonkeyPatch, group: str, points: Mapping[str, str], **sources: str
) -> None:
    """Put modules and entry points of one group on the path, as pip leaves them in site-packages."""
    for module, text in sources.items():
        (folder / f"{module}.py").write_text(text)
    described = folder / "acme-1.dist-info"
    described.mkdir()
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1\n")
    lines = "".join(f"{name} = {place}\n" for name, place in points.items())
    (described / "entry_points.txt").write_text(f"[{group}]\n{lines}")
    monkeypatch.syspath_prepend(str(folder))
