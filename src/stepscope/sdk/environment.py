"""What a run should remember of where it was started: program, Python, machine, commit."""

import os
import platform
import re
import sys
from pathlib import Path
from typing import Any

from stepscope.model.redaction import MASK, is_secret

_GIVEN = re.compile(r"""(?<![\w.+-])([\w.+-]++)["']*\s*[:=]\s*""")
"""A name with its value behind it: options, Hydra's `key=value`, headers, parameters of addresses, JSON."""
_LOGIN = re.compile(r"(?<=://)[^/@\s]+(?=@)")
"""The name and password in an address."""


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
    """Copy the command line with the values of secret-looking options, headers and the like masked."""
    safe: list[str] = []
    hide = False
    for argument in arguments:
        shown = _safe_argument(argument)
        safe.append(MASK if hide else shown)
        hide = argument.startswith("-") and not _GIVEN.search(argument) and is_secret(argument.lstrip("-"))
    return safe


def _safe_argument(argument: str) -> str:
    """Mask all behind the first name in an argument that names a secret."""
    for found in _GIVEN.finditer(argument):
        if is_secret(found[1].lstrip("-+")):
            return argument[: found.end()] + MASK
    return _LOGIN.sub(MASK, argument)


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
