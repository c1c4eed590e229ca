"""Values that are NaN or infinite: at which step, on which rank and in which metric or layer they began."""

import math
import re

from stepscope.diagnosis.detector import RunState
from stepscope.diagnosis.finding import Finding
from stepscope.diagnosis.series import Series

_LAYER = re.compile(r"(layers?|blocks?|h|stages?)[._/]?\d+|\.(weight|bias)$|embed|head|attn|mlp", re.IGNORECASE)
_UNTIL_FIRST = frozenset(("reward", "length", "explained_variance"))
"""Roles that are NaN in a healthy run until the first episode has ended."""
SKIPS = 0.05
"""Overflows that mixed precision skips are healthy up to this share of steps."""


class NonFinite:
    """Watches all series of one rank for values that are not finite."""

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._first: tuple[int, str, float] | None = None
        self._keys: dict[str, int] = {}
        self._layer: str | None = None
        self._said = False
        self._overflows = 0

    def take(self, series: Series, step: int, time: int, value: float, run: RunState) -> Finding | None:
        """Judge a value that is not finite."""
        series.bad += 1
        if self._healthy(series, run):
            return None
        if self._first is None:
            self._first = (step, series.key, value)
        if step <= self._first[0] + 2 and series.key not in self._keys:
            self._keys[series.key] = step
            if _LAYER.search(series.key) and self._layer is None:
                self._layer = series.key
        if self._said and series.key in self._keys and self._keys[series.key] != step:
            return None
        self._said = True
        return self._finding(time, step)

    def _healthy(self, series: Series, run: RunState) -> bool:
        role = series.role.name
        if role in _UNTIL_FIRST and (series.count == 0 or role == "explained_variance"):
            return True
        if role == "grad_norm" and run.of_role("loss_scale", series.rank):
            self._overflows += 1
            return self._overflows <= max(12, SKIPS * (series.count + series.bad))
        return series.key.startswith(("system/", "stepscope/"))

    def _finding(self, time: int, step: int) -> Finding:
        assert self._first is not None
        begun, key, value = self._first
        at_first = [name for name, when in self._keys.items() if when == begun]
        loss = next((name for name in at_first if "loss" in name.lower()), None)
        main = loss or key
        word = "NaN" if math.isnan(value) else "infinite"
        layer = f", first in {self._layer}" if self._layer and self._layer != main else ""
        also = tuple(name for name in self._keys if name != main)
        return Finding(
            "not_finite",
            "ERROR",
            f"{main} became {word} at step {begun}{layer}",
            step=begun,
            last=step,
            ranks=(self._rank,),
            key=main,
            value=value,
            cause=f"{self._layer or 'a value'} overflowed or was divided by zero"
            if self._layer
            else "an overflow, a division by zero or a bad batch",
            advice="Look at the inputs of that step; clip gradients, lower the learning rate, check for log "
            "or division of zero.",
            also=also[:8],
            time=time,
            weight=float(1 + len(also)),
        )
