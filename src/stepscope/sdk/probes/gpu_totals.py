"""What a run has used of its GPUs since it began: time, energy and busy time, from the readings of any GPU probe."""

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from stepscope.sdk.probes import nvml
from stepscope.sdk.probes.system import Reading

_DEVICES = ("nvidia[0-9]*", "accel[0-9]*")
"""Files of GPUs in /dev, NVIDIA's and Google's; AMD's are below `dri`, and there only if there is a `kfd`."""
_HOST_MASKS = ("ROCR_VISIBLE_DEVICES", "TPU_VISIBLE_CHIPS", "TPU_VISIBLE_DEVICES")
_MASKS = ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")
"""Variables that choose GPUs of the host, and those that choose among them; the first of each that is set counts."""
_LOCAL_SIZES = ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "SLURM_NTASKS_PER_NODE")
_SETTLED = 60.0
"""So many seconds after the start a program that uses GPUs has begun to; until then none is assumed to be used."""
_MAX_PARENTS = 64


class GpuTotals:
    """Sums up the readings of GPUs: `gpu/I/energy_joules` and `gpu/I/busy_seconds` of every GPU that is read, and
    `gpu/I/run_seconds` of those that this process uses. All of them begin at 0 with the run.

    Energy is from the counter of the GPU or, without one, from its power. A process among several of its host uses one
    GPU; a process alone those that it holds memory of, as the driver says, or all that it may use if the driver does
    not say. Belongs to the thread that reads the probes.
    """

    def __init__(
        self, local_rank: int, world_size: int, began: float, env: Mapping[str, str] | None = None, dev: str = "/dev"
    ) -> None:
        env = os.environ if env is None else env
        self._local_rank = local_rank
        self._alone = _is_alone(env, local_rank, world_size)
        self._env, self._dev = env, Path(dev)
        self._began = began
        self._before: dict[str, tuple[float, float]] = {}
        self._sums: dict[str, float] = {}
        self._visible: tuple[int, list[int]] = (-1, [])

    def add(self, reading: Reading, now: float, held: Iterable[int] = (), *, ended: bool = False) -> Reading:
        """Return the sums after a reading; `held` are the GPUs that the driver shows this process on."""
        found = self._integrated(reading, now)
        for gpu in self._used(reading, now, set(held), ended):
            found[f"gpu/{gpu}/run_seconds"] = max(now - self._began, 0.0)
        return found

    def _integrated(self, reading: Reading, now: float) -> Reading:
        found: Reading = {}
        for key, value in reading.items():
            gpu, _, what = key.rpartition("/")
            if what == "energy_joules":
                found |= self._sum(key, value, now, lambda was, value, seconds: max(value - was, 0.0))
            elif what == "power_watts" and f"{gpu}/energy_joules" not in reading:
                found |= self._sum(f"{gpu}/energy_joules", value, now, _area)
            elif what == "utilization" and gpu.startswith("gpu/"):
                found |= self._sum(f"{gpu}/busy_seconds", value, now, _area)
        return found

    def _sum(self, key: str, value: float, now: float, part: Callable[[float, float, float], float]) -> Reading:
        """Add what was used since the reading before; the first one has none, and is unknown, not 0."""
        before, self._before[key] = self._before.get(key), (value, now)
        if before is None:
            return {}
        was, then = before
        self._sums[key] = self._sums.get(key, 0.0) + part(was, value, max(now - then, 0.0))
        return {key: self._sums[key]}

    def _used(self, reading: Reading, now: float, held: set[int], ended: bool) -> list[int]:
        seen = {int(part) for key in reading if key.startswith("gpu/") and (part := key.split("/")[1]).isdecimal()}
        count = len(seen) or _devices(self._dev)
        if count != self._visible[0]:
            self._visible = count, visible(self._env, count)
        usable = self._visible[1]
        if not usable:
            return []
        if not self._alone:
            return [usable[self._local_rank % len(usable)]]
        if held.intersection(usable):
            return sorted(held.intersection(usable))
        is_known = len(usable) == 1 or now - self._began > _SETTLED or ended
        return usable if is_known else []


def visible(env: Mapping[str, str], count: int) -> list[int]:
    """The GPUs of a host with `count` of them that a process may use, in its order; none if they are not known."""
    devices = list(range(count))
    for names in (_HOST_MASKS, _MASKS):
        mask = next((env[name] for name in names if name in env), None)
        if mask is not None and devices:
            devices = _chosen(mask, devices)
    return devices


def _chosen(mask: str, devices: list[int]) -> list[int]:
    """Read a mask: numbers, up to the first that is none, or the ids of GPUs, of which the driver is asked."""
    words = [word.strip() for word in mask.split(",")]
    if any(word.startswith("GPU-") for word in words):
        try:
            ids = nvml.uuids()
        except OSError:
            return []
        return [at for word in words for at, id in enumerate(ids) if word and id.startswith(word)]
    found = []
    for word in words:
        if not word.isdecimal() or int(word) >= len(devices):
            break
        found.append(devices[int(word)])
    return found


def is_within(pid: int, ancestor: int, proc: Path = Path("/proc")) -> bool:
    """Return whether a process is another one, or was started by it or by one that it started."""
    for _ in range(_MAX_PARENTS):
        if pid == ancestor:
            return True
        try:
            pid = int((proc / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            return False
        if pid <= 1:
            return pid == ancestor
    return False


def _area(was: float, value: float, seconds: float) -> float:
    """What a rate adds up to between two readings."""
    return (was + value) / 2 * seconds


def _is_alone(env: Mapping[str, str], local_rank: int, world_size: int) -> bool:
    """Return whether a process is the only one of its run on its host, as far as its launcher says."""
    if world_size == 1 or local_rank > 0:
        return world_size == 1
    given = next((env[name] for name in _LOCAL_SIZES if env.get(name, "").isdecimal()), "")
    if given:
        return int(given) == 1
    nodes = env.get("SLURM_NNODES", "")
    return nodes.isdecimal() and int(nodes) == world_size


def _devices(dev: Path) -> int:
    """How many GPUs the files of their drivers show."""
    found = max(len(list(dev.glob(pattern))) for pattern in _DEVICES)
    return found or (len(list(dev.glob("dri/renderD*"))) if (dev / "kfd").exists() else 0)
