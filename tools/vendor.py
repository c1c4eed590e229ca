"""Refresh the page's vendored files from their npm packages, pinned here; `--check` compares them with their sums."""

import argparse
import hashlib
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "src/stepscope/hub/web/vendor"
SUMS = "SHA256SUMS"


@dataclass(frozen=True, slots=True)
class Package:
    """A pinned npm package: which of its files are kept under which name, and what is replaced in their text."""

    name: str
    version: str
    licence: str
    files: dict[str, str]
    replaced: dict[str, str] = field(default_factory=dict)


PACKAGES = (
    Package("preact", "11.2.0", "MIT", {"dist/preact.mjs": "preact.js", "LICENSE": "preact.LICENSE"}),
    Package(
        "preact",
        "11.2.0",
        "MIT",
        {"hooks/dist/hooks.mjs": "hooks.js"},
        # Browsers resolve no bare names, and an import map would need inline script, which our policy forbids.
        {'from"preact"': 'from"./preact.js"'},
    ),
    Package("htm", "3.1.1", "Apache-2.0", {"dist/htm.mjs": "htm.js", "LICENSE": "htm.LICENSE"}),
    Package(
        "uplot",
        "1.6.32",
        "MIT",
        {"dist/uPlot.esm.js": "uplot.js", "dist/uPlot.min.css": "uplot.css", "LICENSE": "uplot.LICENSE"},
    ),
    Package(
        "@fontsource-variable/inter",
        "5.3.0",
        "OFL-1.1",
        {"files/inter-latin-wght-normal.woff2": "inter.woff2", "LICENSE": "inter.LICENSE"},
    ),
    Package(
        "@fontsource-variable/jetbrains-mono",
        "5.3.0",
        "OFL-1.1",
        {"files/jetbrains-mono-latin-wght-normal.woff2": "jetbrains-mono.woff2", "LICENSE": "jetbrains-mono.LICENSE"},
    ),
)


def unpack(package: Package, place: Path) -> Iterator[tuple[str, bytes]]:
    """Fetch a package with npm and yield the files that are kept."""
    wanted = f"{package.name}@{package.version}"
    done = subprocess.run(
        ["npm", "pack", "--silent", "--pack-destination", str(place), wanted],
        check=True,
        capture_output=True,
        text=True,
    )
    with tarfile.open(place / done.stdout.split()[-1]) as packed:
        for inside, kept in package.files.items():
            member = packed.extractfile(f"package/{inside}")
            assert member is not None, f"{wanted} has no {inside}"
            yield kept, adapted(member.read(), package.replaced)


def adapted(content: bytes, replaced: dict[str, str]) -> bytes:
    """Replace some text; each must be there."""
    for old, new in replaced.items():
        assert old.encode() in content, f"{old!r} is not in the file any more"
        content = content.replace(old.encode(), new.encode())
    return content


def sums(folder: Path) -> str:
    """The checksums of a folder's fetched files, in the format of sha256sum; type declarations are our own."""
    files = sorted(path for path in folder.iterdir() if path.is_file() and path.name != SUMS and path.suffix != ".ts")
    return "".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files)


def readme() -> str:
    """Say what is vendored."""
    rows = dict.fromkeys(f"| {each.name} | {each.version} | {each.licence} |" for each in PACKAGES)
    head = "# Vendored\n\nWritten by `tools/vendor.py`; the licences lie beside. Change versions there.\n\n"
    return head + "\n".join(["| package | version | licence |", "|---|---|---|", *rows]) + "\n"


def refresh(folder: Path) -> None:
    """Fetch everything anew."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        for package in PACKAGES:
            for name, content in unpack(package, Path(place)):
                (folder / name).write_bytes(content)
    (folder / "README.md").write_text(readme(), encoding="utf-8")
    (folder / SUMS).write_text(sums(folder), encoding="utf-8")


def main() -> int:
    """Refresh, or check."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare with the sums, fetch nothing")
    if not parser.parse_args().check:
        refresh(FOLDER)
        return 0
    if sums(FOLDER) == (FOLDER / SUMS).read_text(encoding="utf-8"):
        return 0
    sys.stderr.write(f"{FOLDER} is not what tools/vendor.py wrote\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
