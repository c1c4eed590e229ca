"""The names of fields that are computed from points: `last10.KEY` and `metrics.KEY@best.OTHER`."""

import re
from typing import Literal, NamedTuple

_LAST = re.compile(r"last([0-9]{1,9})\.(.+)", re.DOTALL)
_AT = re.compile(r"@(best|min|max)\.")


class PointField(NamedTuple):
    """The mean of the last steps of a metric, or its value where another one is best."""

    key: str
    steps: int = 0
    by: Literal["", "best", "min", "max"] = ""
    other: str = ""

    @property
    def metrics(self) -> list[str]:
        """The metrics whose points are read."""
        return [self.key, self.other] if self.by else [self.key]


def point_field(field: str) -> PointField | None:
    """The parts of a field that is computed from points; None for any other field."""
    if (last := _LAST.fullmatch(field)) is not None:
        return PointField(last[2], int(last[1]))
    kind, _, name = field.partition(".")
    found = _AT.search(name) if kind == "metrics" else None
    if found is None or not name[: found.start()] or not name[found.end() :]:
        return None
    return PointField(name[: found.start()], 0, found[1], name[found.end() :])  # type: ignore[arg-type]
