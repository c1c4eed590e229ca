"""A probe of Google's TPUs by the monitoring library that libtpu has, under the names of NVIDIA's."""

from importlib import import_module
from pathlib import Path
from typing import Any

from stepscope.sdk.probes.system import Reading

_DEV = Path("/dev")
_METRICS = {"duty": "duty_cycle_pct", "used": "hbm_capacity_usage", "total": "hbm_capacity_total"}


class Chips:
    """All chips of the host: libtpu answers for them at once, and only in the process that computes on them."""

    name = "gpu/tpu"

    def __init__(self, monitoring: Any, count: int) -> None:
        self._monitoring = monitoring
        self.detail = f"{count} TPU chip{'' if count == 1 else 's'}, by libtpu"

    def read(self) -> Reading:
        """Read memory and the share of the time in which a chip computes; nothing before the program uses them."""
        try:
            found = {name: _numbers(self._monitoring.get_metric(metric)) for name, metric in _METRICS.items()}
        except RuntimeError:
            return {}
        chips = len(found["duty"]) or len(found["total"])
        reading: Reading = {f"gpu/{chip}/utilization": share / 100 for chip, share in enumerate(found["duty"])}
        used, total = (_by_chip(found[name], chips) for name in ("used", "total"))
        for chip, (bytes_used, limit) in enumerate(zip(used, total, strict=False)):
            reading |= {f"gpu/{chip}/memory_used_bytes": int(bytes_used), f"gpu/{chip}/memory_limit_bytes": int(limit)}
            if limit:
                reading[f"gpu/{chip}/memory_utilization"] = bytes_used / limit
        return reading

    def close(self) -> None:
        """Does nothing."""


def open_gpus(dev: Path = _DEV) -> list[Chips]:
    """Open the probe of the TPUs; OSError when there are none, ImportError, with the fix, without the library."""
    count = len(list(dev.glob("accel[0-9]*"))) or len(list(dev.glob("vfio/[0-9]*")))
    if not count:
        raise OSError("no TPU: there is no /dev/accel0 and no /dev/vfio/0")
    try:
        monitoring = import_module("libtpu.sdk").tpumonitoring
    except (ImportError, AttributeError):
        raise ImportError("no TPU is read without libtpu's monitoring library: pip install -U libtpu") from None
    return [Chips(monitoring, count)]


def _numbers(metric: Any) -> list[float]:
    """The values of a metric, which are texts."""
    return [float(each) for each in metric.data()]


def _by_chip(values: list[float], chips: int) -> list[float]:
    """Values of chips from those of their cores, of which older chips have two."""
    cores = max(len(values) // chips, 1) if chips else 1
    return [sum(values[at : at + cores]) for at in range(0, len(values), cores)]
