"""Probes of AMD GPUs by the files of their driver, amdgpu, under the names of NVIDIA's; they need no library."""

from pathlib import Path

from stepscope.sdk.probes.cgroup import file_text
from stepscope.sdk.probes.system import Reading

_SYS = Path("/sys")
_VENDOR = "0x1002"
_MEMORY = "mem_info_vram_total"
_POWER = ("power1_average", "power1_input")
"""Files of the power in microwatts: an average where the GPU has one, else that of the moment."""
_JUNCTION, _EDGE = "junction", "edge"


class Gpu:
    """One GPU; what it does not have is left out of its readings."""

    def __init__(self, folder: Path, index: int) -> None:
        self.name = f"gpu/{index}"
        self._folder = folder
        self._sensors = next(iter(sorted((folder / "hwmon").glob("hwmon*"))), folder / "hwmon")
        self._heat = _heat(self._sensors)
        model = file_text(folder / "product_name") or f"AMD GPU {file_text(folder / 'device')}"
        self.detail = f"{model.strip()} ({folder.resolve().name})"

    def read(self) -> Reading:
        """Read the values of this GPU; OSError when it is gone."""
        reading = self._memory()
        reading |= _scaled("utilization", self._folder / "gpu_busy_percent", 100)
        power = next((path for name in _POWER if (path := self._sensors / name).exists()), None)
        reading |= _scaled("power_watts", power, 10**6) | _scaled("temperature_celsius", self._heat, 1000)
        reading |= _scaled("clock_mhz", self._sensors / "freq1_input", 10**6)
        return {f"{self.name}/{key}": value for key, value in reading.items()}

    def _memory(self) -> Reading:
        total = int((self._folder / _MEMORY).read_text())
        used = int((self._folder / "mem_info_vram_used").read_text())
        share = {"memory_utilization": used / total} if total else {}
        return {"memory_used_bytes": used, "memory_limit_bytes": total, **share}

    def close(self) -> None:
        """Does nothing."""


def open_gpus(sys: Path = _SYS) -> list[Gpu]:
    """Open a probe for each GPU, in the order of their places on the bus; OSError when there is none."""
    cards = [path for path in (sys / "class" / "drm").glob("card*/device") if file_text(path / "vendor") == _VENDOR]
    folders = {path.resolve(): path for path in cards if (path / _MEMORY).exists()}
    if not folders:
        raise OSError("no AMD GPU: the driver amdgpu shows none in /sys/class/drm")
    return [Gpu(folders[place], index) for index, place in enumerate(sorted(folders))]


def _heat(sensors: Path) -> Path | None:
    """The file of the temperature that limits the GPU: at its hottest place, else at its edge."""
    labels = {file_text(path): path for path in sorted(sensors.glob("temp*_label"))}
    label = labels.get(_JUNCTION) or labels.get(_EDGE)
    if label is not None:
        return label.with_name(label.name.replace("_label", "_input"))
    return sensors / "temp1_input"


def _scaled(name: str, path: Path | None, per_unit: int) -> Reading:
    """A value of a file in our unit; nothing where the GPU has none."""
    found = file_text(path) if path is not None else ""
    return {name: int(found) / per_unit} if found.isdecimal() else {}
