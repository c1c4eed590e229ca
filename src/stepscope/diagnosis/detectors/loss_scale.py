"""Loss scale collapse in mixed precision: halving now and then is normal, falling to almost zero is not."""

import itertools
import math

from stepscope.diagnosis.detector import RunState, judged_once
from stepscope.diagnosis.finding import Finding, Kind, number
from stepscope.diagnosis.series_history import Series

COLLAPSE = Kind(
    "scaler_collapse",
    "ERROR",
    "gradients are not finite at any scale: the model itself overflows",
    "Look for the first layer whose activations or gradients are not finite; use bfloat16 or lower the learning rate.",
    explains=("plateau", "constant", "not_finite", "oscillation", "skipped_steps", "weights_frozen", "not_learning"),
    lasts=True,
)
LOW = 128.0
HALVINGS = 8
"""A scale has collapsed when it is this many halvings below its maximum..."""
RECENT_HALVINGS = 6
"""... and this many of them came with no rise between..."""
APART = 4
"""... nor more than so many values."""


def judge(series: Series, run: RunState) -> Finding | None:
    """Compare a fallen scale with the highest so far."""
    if series.value > LOW or not series.value < series.before or series.count < 10:
        return None
    fell = math.log2(max(series.highest, 1e-30) / max(series.value, 1e-30))
    values = list(series.values)
    top = _top(values)
    halvings = sum(b < a for a, b in itertools.pairwise(values[top:]))
    if fell < HALVINGS or halvings < RECENT_HALVINGS:
        return None
    begun = list(series.steps)[top]
    text = (
        f"{series.key} fell from {number(values[top])} to {number(series.value)} since step {begun}: "
        f"every step overflows"
    )
    return COLLAPSE.about(series, begun, text, (series.highest / 64, series.highest), weight=fell)


def _top(values: list[float]) -> int:
    """Return the place of the last value before the fall: it stayed no longer than so many values on its way."""
    at = len(values) - 1
    while True:
        held = at
        while held > 0 and values[held - 1] == values[at]:
            held -= 1
        if held == 0 or values[held - 1] < values[at] or (at < len(values) - 1 and at - held >= APART):
            return at
        at = held - 1


LossScale = judged_once("LossScale", COLLAPSE, ("loss_scale",), judge, held_out=None, each="value")
"""Watches one loss scale."""
