"""An accuracy that is perfect from one moment to the next: the answer can be seen in the input."""

from statistics import median

from stepscope.diagnosis.detector import RunState, judged_once
from stepscope.diagnosis.detectors.too_good import TOO_GOOD
from stepscope.diagnosis.finding import Finding, number
from stepscope.diagnosis.series_history import Series, spread

BEFORE, AFTER = 8, 3
"""So many blocks of values, or evaluations, before and after the jump."""
PERFECT, ROOM = 0.97, 0.1
"""Nearly all is right since then, and this much more than before."""
SIGMAS = 6.0
_LEAKS = "the target can be seen in the input since then, the questions became trivial, or it is compared with itself"


def judge(series: Series, run: RunState) -> Finding | None:
    """Compare the last blocks, or evaluations, with those before."""
    few = series.role.held_out or series.spacing > 5
    values = list(series.values) if few else series.middles
    if len(values) < BEFORE + AFTER or min(values[-AFTER:]) < PERFECT or not PERFECT < series.highest <= 1.0:
        return None
    before, after = values[-BEFORE - AFTER : -AFTER], values[-AFTER:]
    was = median(before[-3:])
    jump = min(after) - was
    if jump < max(ROOM, SIGMAS * spread(before)) or max(before) > was + 0.5 * jump:
        return None
    if was - median(before[:3]) > 0.3 * jump:
        return None  # it was on its way
    begun = list(series.steps)[-AFTER] if few else series.firsts[-AFTER]
    if run.changed(begun - 10, series.step) or run.reinforcement:
        return None
    text = f"{series.key} went from {number(was)} to {number(median(after))} at step {begun}, at once, and stayed there"
    return TOO_GOOD.about(series, begun, text, (0.0, was + 0.5 * jump), cause=_LEAKS, weight=jump)


SuddenAccuracy = judged_once("SuddenAccuracy", TOO_GOOD, ("accuracy",), judge, held_out=None)
"""Watches one accuracy between 0 and 1."""
