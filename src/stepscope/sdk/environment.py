"""What a run should remember of where it was started: program, Python, machine, commit."""

import os
import platform
import sys
from pathlib import Path
from typing import Any

from stepscope.model.redaction import redact


def describe() -> dict[str, Any]:
    """Describe this process and its machine; cheap, no program is started."""
    return {
        "argv": redact(sys.argv),
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "cpus": os.cpu_count(),
        "cwd": _quiet_cwd(),
        **_commit(Path(_quiet_cwd() or ".")),
    }


def _quiet_cwd() -> str:
    try:
        return os.getcwd()
    except OSError:
        return ""


def _commit(folder: Path) -> dict[str, Any]:
    """Read the checked-out commit and branch from git's own files."""
    for place in (folder, *folder.parents):
        head = place / ".git" / "HEAD"
        try:
            text = head.read_text().strip()
        except OSError:
            continue
        if not text.startswith("ref: "):
            return {"git.commit": text}
        ref = text[5:]
        return {"git.branch": ref.removeprefix("refs/heads/"), "git.commit": _resolve(place / ".git", ref)}
    return {}


def _resolve(git: Path, ref: str) -> str:
    try:
        return (git / ref).read_text().strip()
    except OSError:
        pass
    try:
        lines = (git / "packed-refs").read_text().splitlines()
    except OSError:
        return ""
    return next((line.split()[0] for line in lines if line.endswith(f" {ref}")), "")
