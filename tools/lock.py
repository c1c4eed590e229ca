"""Resolve the extras of pyproject.toml into requirements/*.lock with pip itself.

A lock names versions only: no index, no hash, no local build (`2.13.0+cpu` becomes `2.13.0`), so that it
serves any architecture. Run it on the oldest supported Python, whose needs include those of the newer ones.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
LOCKS = {"dev": (), "run": ("dev",), "frameworks": ("dev",), "bench": ()}
"""The extras, each with those whose environment it shares: its versions agree with theirs."""


def pins(report: dict[str, Any]) -> list[str]:
    """List `name==version` for each package of a pip installation report, without local paths or builds."""
    chosen = {
        item["metadata"]["name"].lower().replace("_", "-"): item["metadata"]["version"].partition("+")[0]
        for item in report["install"]
        if "dir_info" not in item["download_info"]
    }
    return [f"{name}=={version}" for name, version in sorted(chosen.items())]


def lock_path(extra: str) -> Path:
    """Say where the lock of an extra lies."""
    return ROOT / "requirements" / f"{extra}.lock"


def resolve(extra: str, shared: Sequence[str]) -> list[str]:
    """Ask pip what `.[extra]` needs in an empty environment, given the extras that must be agreed with."""
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet"]
    command += [f"--constraint={lock_path(other)}" for other in shared]
    command += ["--report=-", f"{ROOT}[{extra}]"]
    answer = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return pins(json.loads(answer.stdout))


def main(chosen: Sequence[str]) -> int:
    """Write the locks asked for, or each in turn."""
    for extra in chosen or LOCKS:
        lines = resolve(extra, LOCKS[extra])
        path = lock_path(extra)
        path.write_text("\n".join([f"# The extra `{extra}`, resolved by `make lock`.", *lines, ""]))
        print(f"{path.relative_to(ROOT)}: {len(lines)} packages")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
