"""Loss scale collapse in mixed precision: halving now and then is normal, falling to almost zero is not."""

import itertools
import math
from statistics import median

from stepscope.diagnosis.detector import RunState, judged_once
from stepscope.diagnosis.finding import Finding, Kind, number
from stepscope.diagnosis.series_history import Series, begun_at

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
"""... and this many of them were recent, with no rise between."""
LATELY = 8
"""It began with the first of those that are no farther apart than so many times what the last ones are."""


def judge(series: Series, run: RunState) -> Finding | None:
    """Compare a fallen scale with the highest so far."""
    if series.value > LOW or not series.value < series.before or series.count < 10:
        return None
    fell = math.log2(max(series.highest, 1e-30) / max(series.value, 1e-30))
    recent = list(series.values)[-64:]
    halvings = sum(b < a for a, b in itertools.pairwise(recent))
    raises = sum(b > a for a, b in itertools.pairwise(recent))
    if fell < HALVINGS or halvings < RECENT_HALVINGS or raises:
        return None
    begun = _fall_began(series)
    text = (
        f"{series.key} fell from {number(max(recent))} to {number(series.value)} since step {begun}: "
        f"every step overflows"
    )
    return COLLAPSE.about(series, begun, text, (series.highest / 64, series.highest), weight=fell)


def _fall_began(series: Series) -> int:
    """Return the step before the first of the halvings that came so soon one after the other."""
    places = list(zip(series.steps, series.values, strict=True))
    falls = [(a[0], b[0]) for a, b in itertools.pairwise(places) if b[1] < a[1]]
    apart = [b[1] - a[1] for a, b in itertools.pairwise(falls)]
    usual = median(apart[-RECENT_HALVINGS:])
    return falls[begun_at(apart, lambda gap: gap <= LATELY * usual)][0]


LossScale = judged_once("LossScale", COLLAPSE, ("loss_scale",), judge, held_out=None, each="value")
"""Watches one loss scale."""
