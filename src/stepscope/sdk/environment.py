"""What a run should remember of where it was started: program, Python, machine, commit."""

import os
import platform
import sys
from pathlib import Path
from typing import Any

from stepscope.model.redaction import MASK, is_secret


def describe() -> dict[str, Any]:
    """Describe this process and its machine; cheap, no program is started."""
    return {
        "argv": _safe_arguments(sys.argv),
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "cpus": os.cpu_count(),
        "cwd": _quiet_cwd(),
        **_commit(Path(_quiet_cwd() or ".")),
    }


def _safe_arguments(arguments: list[str]) -> list[str]:
    """Copy the command line with the values of secret-looking options masked."""
    safe: list[str] = []
    hide = False
    for argument in arguments:
        name, equals, _ = argument.partition("=")
        secret = (name.startswith("-") or bool(equals)) and is_secret(name.lstrip("-+"))  # `key=value` is Hydra's way
        safe.append(MASK if hide else f"{name}={MASK}" if secret and equals else argument)
        hide = secret and not equals
    return safe


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
