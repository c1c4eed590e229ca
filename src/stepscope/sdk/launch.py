"""The identity of this process: run id, rank and world size from its launcher; program, Python, machine, commit."""

import os
import platform
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from stepscope.journal.layout import host_name, slug
from stepscope.model.errors import ConfigError


class Launch(NamedTuple):
    """The position of this process in its job."""

    run: str | None
    rank: int
    world_size: int
    local_rank: int
    launcher: str
    restarts: int = 0


_RANK = (
    "STEPSCOPE_RANK",
    "RANK",
    "SLURM_PROCID",
    "OMPI_COMM_WORLD_RANK",
    "PMIX_RANK",
    "PMI_RANK",
    "MV2_COMM_WORLD_RANK",
)
_WORLD = (
    "STEPSCOPE_WORLD_SIZE",
    "WORLD_SIZE",
    "SLURM_NTASKS",
    "OMPI_COMM_WORLD_SIZE",
    "PMI_SIZE",
    "MV2_COMM_WORLD_SIZE",
)
_LOCAL = (
    "STEPSCOPE_LOCAL_RANK",
    "LOCAL_RANK",
    "SLURM_LOCALID",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "MPI_LOCALRANKID",
)


def detect(env: Mapping[str, str] | None = None) -> Launch:
    """Read the launcher's variables; without a launcher, the process is rank 0 of 1."""
    env = os.environ if env is None else env
    run, launcher = _run_id(env)
    return Launch(
        run=run,
        rank=max(_first(env, _RANK, 0), 0),
        world_size=max(_first(env, _WORLD, 1), 1),
        local_rank=max(_first(env, _LOCAL, 0), 0),
        launcher=launcher,
        restarts=_first(env, ("TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT"), 0),
    )


def _run_id(env: Mapping[str, str]) -> tuple[str | None, str]:
    """Find an id that all ranks of the job share and no other job has."""
    if "TORCHELASTIC_RUN_ID" in env:
        return _torchrun_id(env), "torchrun"
    if "SLURM_JOB_ID" in env and "SLURM_PROCID" in env:
        job = env.get("SLURM_ARRAY_JOB_ID", env["SLURM_JOB_ID"])
        parts = [job, env.get("SLURM_ARRAY_TASK_ID"), env.get("SLURM_STEP_ID")]
        return "slurm-" + slug("-".join(part for part in parts if part)), "slurm"
    for name in ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "PMI_JOBID"):
        if env.get(name):
            return "mpi-" + slug(env[name]), "mpi"
    if env.get("RAY_JOB_ID"):
        return f"ray-{slug(env['RAY_JOB_ID'])}-{_digest(env.get('RAY_ADDRESS', ''))}", "ray"
    if "MASTER_ADDR" in env and "RANK" in env:
        return f"torch-{_digest(env['MASTER_ADDR'], env.get('MASTER_PORT', ''))}", "torch"
    return None, "none"


def _torchrun_id(env: Mapping[str, str]) -> str:
    """Return the rendezvous id, or, without one, an id that only the workers of this agent share."""
    given = env["TORCHELASTIC_RUN_ID"]
    if given and given != "none":
        return "torchrun-" + slug(given)
    place = (env.get("MASTER_ADDR", ""), env.get("MASTER_PORT", ""))
    if env.get("LOCAL_WORLD_SIZE") == env.get("WORLD_SIZE"):
        return f"torchrun-{_digest(*place, host_name(), str(os.getppid()), _parent_start())}"
    return f"torchrun-{_digest(*place)}"


def _parent_start() -> str:
    """Return when the parent process was started, so that a reused pid counts as another job."""
    try:
        with open(f"/proc/{os.getppid()}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def _first(env: Mapping[str, str], names: tuple[str, ...], default: int) -> int:
    for name in names:
        try:
            number = int(env[name])
            if number >= 0:
                return number
        except KeyError:
            continue
        except ValueError:
            if not env[name].strip():
                continue
        if name.startswith("STEPSCOPE_"):
            raise ConfigError(f"{name}={env[name]!r} must be a non-negative integer")
    return default


def _digest(*parts: str) -> str:
    import hashlib  # only a launched process needs it, and it takes 4 ms

    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]


def new_run_id(now: float | None = None) -> str:
    """Make a unique id that sorts by time."""
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(now))
    return f"{stamp}-{os.urandom(4).hex()}"


def describe() -> dict[str, Any]:
    """Describe this process and its machine; cheap, no program is started."""
    return {
        "argv": list(sys.argv),
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "cpus": os.cpu_count(),
        "cwd": _quiet_cwd(),
        **_commit(Path(_quiet_cwd() or ".")),
        "packages": packages(),
        **scheduler(os.environ),
    }


_SLURM = ("JOB_ID", "JOB_NAME", "JOB_PARTITION", "JOB_NODELIST", "JOB_NUM_NODES", "JOB_END_TIME", "RESTART_COUNT")


def scheduler(env: Mapping[str, str]) -> dict[str, str]:
    """Return what Slurm says of the job, by names such as `slurm.job_id`; empty without it."""
    return {f"slurm.{name.lower()}": env[f"SLURM_{name}"] for name in _SLURM if env.get(f"SLURM_{name}")}


MAX_PACKAGES = 200


def packages() -> dict[str, str]:
    """Return the versions of the imported packages that state theirs; nothing is imported or read from disk."""
    found = {
        name: version
        for name, module in list(sys.modules.items())
        if "." not in name
        and not name.startswith("_")
        and name not in sys.stdlib_module_names
        and type(version := getattr(module, "__dict__", {}).get("__version__")) is str
        and len(version) <= 100
    }
    return dict(sorted(found.items())[:MAX_PACKAGES])


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
        remote = _remote(place / ".git")
        if not text.startswith("ref: "):
            return {"git.commit": text, **remote}
        ref = text[5:]
        return {"git.branch": ref.removeprefix("refs/heads/"), "git.commit": _resolve(place / ".git", ref), **remote}
    return {}


def _remote(git: Path) -> dict[str, str]:
    """Read the address of `origin`, or of the first remote, without the credentials in it."""
    try:
        lines = (git / "config").read_text().splitlines()
    except (OSError, UnicodeDecodeError):
        return {}
    section = ""
    found: dict[str, str] = {}
    for line in map(str.strip, lines):
        if line.startswith("["):
            section = line
        elif section.startswith("[remote ") and line.partition("=")[0].strip() == "url":
            found.setdefault(section, line.partition("=")[2].strip())
    url = found.get('[remote "origin"]') or next(iter(found.values()), "")
    scheme, between, rest = url.partition("://")
    host, slash, path = rest.partition("/")
    plain = f"{scheme}{between}{host.rpartition('@')[2]}{slash}{path}" if between else url
    return {"git.remote": plain} if plain else {}


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
