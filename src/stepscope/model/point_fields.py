"""The names of fields that are computed from points: `last10.KEY`, `metrics.KEY@best.OTHER`, and what GPUs used."""

import re
from typing import Literal, NamedTuple

_LAST = re.compile(r"last([0-9]{1,9})\.(.+)", re.DOTALL)
GPU_FIELDS = ("gpu_hours", "gpu_kwh", "gpu_utilization")
"""What a run used of its GPUs: hours of all of them, energy, and the share of the hours that they were busy."""
_AT = re.compile(r"@(best|min|max)\.")


class PointField(NamedTuple):
    """The mean of the last steps of a metric, its value where another one is best, or one of `GPU_FIELDS`."""

    key: str
    steps: int = 0
    by: Literal["", "best", "min", "max", "gpu"] = ""
    other: str = ""

    @property
    def metrics(self) -> list[str]:
        """The metrics whose points are read; those of GPUs have many names, and are found by them."""
        return [] if self.by == "gpu" else [self.key, self.other] if self.by else [self.key]


def point_field(field: str) -> PointField | None:
    """The parts of a field that is computed from points; None for any other field."""
    if field in GPU_FIELDS:
        return PointField(field, by="gpu")
    if (last := _LAST.fullmatch(field)) is not None:
        return PointField(last[2], int(last[1]))
    kind, _, name = field.partition(".")
    found = _AT.search(name) if kind == "metrics" else None
    if found is None or not name[: found.start()] or not name[found.end() :]:
        return None
    return PointField(name[: found.start()], 0, found[1], name[found.end() :])  # type: ignore[arg-type]
