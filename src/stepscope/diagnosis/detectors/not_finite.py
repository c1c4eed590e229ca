"""NaN and infinite values: the step, rank and metric or layer in which they began."""

import math
import re
from typing import ClassVar

from stepscope.diagnosis.detector import RunState
from stepscope.diagnosis.finding import Finding, Kind
from stepscope.diagnosis.roles import role_of
from stepscope.diagnosis.series_history import Series

NOT_FINITE = Kind(
    "not_finite",
    "ERROR",
    "an overflow, a division by zero or a bad batch",
    "Look at the inputs of that step; clip gradients, lower the learning rate, check for log or division of zero.",
    explains=(
        *("not_finite", "spike", "divergence", "level_shift", "constant", "exploding_gradients", "vanishing_gradients"),
        *("accuracy_drop", "scaler_collapse", "kl_blowup", "entropy_collapse", "plateau", "overfit"),
        *("dead_environment", "value_function", "new_error", "desync", "clip_saturated", "clip_zero", "not_learning"),
    ),
    lasts=True,
    expects="a finite number",
    rules_out="a wrong chart: the recorded value itself is not finite",
)
_LAYER = re.compile(r"(layers?|blocks?|h|stages?)[._/]?\d+|\.(weight|bias)$|embed|head|attn|mlp", re.IGNORECASE)
_UNTIL_FIRST = frozenset(("reward", "length", "explained_variance"))
"""Roles that are NaN in a healthy run until the first episode has ended."""
_OWN = ("system/", "stepscope/")
SKIPS = 0.05
"""Overflows skipped by mixed precision are healthy up to this share of steps, or up to this number:"""
FEW_SKIPS = 12
MAX_KEYS = 256
"""The most metrics of one finding."""
NEVER = 80
"""A reward that is NaN in so many values from the first one on will not come."""
WITHIN = 2
"""Metrics that follow within this many steps are part of the same finding."""


class _Rank:
    """The non-finite values of one rank."""

    __slots__ = ("first", "keys", "layer", "never", "overflows")

    def __init__(self) -> None:
        self.first: tuple[int, str, float] | None = None
        self.keys: dict[str, int] = {}
        self.layer: str | None = None
        self.overflows = 0
        self.never = False


class NotFinite:
    """Watches the non-finite values of all ranks."""

    KINDS: ClassVar[tuple[Kind, ...]] = (NOT_FINITE,)

    def __init__(self, run: RunState) -> None:
        self._run = run
        self._ranks: dict[int, _Rank] = {}

    def take(self, rank: int, key: str, step: int, time: int, value: float) -> Finding | None:
        """Evaluate a non-finite value."""
        state = self._ranks.setdefault(rank, _Rank())
        if (found := self._never(state, rank, key, time)) is not None:
            return found
        if self._healthy(state, rank, key):
            return None
        if state.first is None:
            state.first = (step, key, value)
        elif step > state.first[0] + WITHIN or key in state.keys or len(state.keys) >= MAX_KEYS:
            return None
        state.keys[key] = step
        if state.layer is None and _LAYER.search(key):
            state.layer = key
        return self._finding(rank, state, time, step)

    def _never(self, state: _Rank, rank: int, key: str, time: int) -> Finding | None:
        """Tell of a reward that has not come in so many values: there is never an end of an episode."""
        series = self._run.series.get((key, rank))
        if series is None or series.role.name != "reward" or series.count or series.bad < NEVER or state.never:
            return None
        state.never = True
        return NOT_FINITE.finding(
            f"{key} has been NaN in all of its {series.bad} values: no episode has ended yet",
            time,
            ranks=(rank,),
            key=key,
            severity="WARN",
            cause="episodes have no end: no limit of steps, or a `done` that is never set",
            advice="Set a limit of steps (a horizon); look at when an episode ends.",
            weight=1.0,
        )

    def _healthy(self, state: _Rank, rank: int, key: str) -> bool:
        series = self._run.series.get((key, rank))
        role, count = (series.role.name, series.count + series.bad) if series is not None else (role_of(key).name, 0)
        if role in _UNTIL_FIRST and (series is None or series.count == 0 or role == "explained_variance"):
            return True
        if role == "grad_norm" and self._run.of_role("loss_scale", rank):
            state.overflows += 1
            return state.overflows <= max(FEW_SKIPS, SKIPS * count)
        return key.startswith(_OWN)

    def _finding(self, rank: int, state: _Rank, time: int, step: int) -> Finding:
        assert state.first is not None
        begun, key, value = state.first
        at_first = [name for name, when in state.keys.items() if when == begun]
        main = next((name for name in at_first if "loss" in name.lower()), key)
        word = "NaN" if math.isnan(value) else "infinite"
        layer = f", first in {state.layer}" if state.layer and state.layer != main else ""
        also = tuple(name for name in state.keys if name != main)
        series = self._run.series.get((main, rank))
        usual = _band(series) if series is not None and series.values else None
        return NOT_FINITE.finding(
            f"{main} became {word} at step {begun}{layer}",
            time,
            step=begun,
            last=step,
            ranks=(rank,),
            key=main,
            also=also[:8],
            value=value,
            expected=usual,
            cause=f"{state.layer} overflowed or was divided by zero" if state.layer else "",
            weight=float(1 + len(also)),
        )


def _band(series: Series) -> tuple[float, float]:
    """Return the range of the last values, without a few at each end: spikes are not expected."""
    values = sorted(series.values)
    few = len(values) // 40
    return values[few], values[-1 - few]
