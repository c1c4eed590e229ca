"""Not learning: a loss that stays at the level of random guessing."""

import math
from statistics import median

from stepscope.diagnosis.detector import RunState, judged_once
from stepscope.diagnosis.finding import Finding, Kind, number
from stepscope.diagnosis.series_history import Series

NOT_LEARNING = Kind(
    "not_learning",
    "ERROR",
    "gradients do not reach the weights, labels are shuffled, or the learning rate is far too low",
    "Check that parameters require gradients, that the optimizer holds them, and that labels match the inputs.",
)
CLASSES = (
    *(2, 10, 100, 1000, 8192, 16384, 21841, 30522, 32000, 32768, 50257, 50304, 65536, 100277, 128256, 151936),
    *(250112, 256000),
)
"""Common class counts and vocabulary sizes: random guessing has a loss of their logarithm."""
CHANCE = 0.015
STUCK_STEPS = 150
FLAT = 0.06
LEAST_BLOCKS = 12


def judge(series: Series, run: RunState) -> Finding | None:
    """Check whether the loss has been flat at the logarithm of a number of classes."""
    middles = series.block_medians()
    if series.count < STUCK_STEPS or not series.positive or len(middles) < LEAST_BLOCKS:
        return None
    if abs(middles[-1] - middles[0]) > FLAT or max(middles) - min(middles) > FLAT or run.reinforcement:
        return None
    level = series.plain(median(middles[-8:]))
    count = _classes(run, level)
    if count is None or abs(median(middles[-4:]) - median(middles[:4])) >= max(4 * series.noise(), 0.01):
        return None
    text = (
        f"{series.key} has stayed at {number(level)} for {series.count} steps: ln {count}, the loss of guessing among "
        f"{count} classes"
    )
    return NOT_LEARNING.about(series, series.first_step, text, (0.0, level * 0.9))


def _classes(run: RunState, level: float) -> int | None:
    """Return the number of classes whose logarithm equals the loss."""
    configured = run.setting("vocab_size", "num_classes", "num_labels", "n_classes", "classes", "vocab")
    known = (configured,) if configured and configured > 1 else CLASSES
    close = CHANCE if configured else CHANCE / 4
    return next((int(each) for each in known if abs(level - math.log(each)) < close * math.log(each)), None)


NotLearning = judged_once("NotLearning", NOT_LEARNING, ("loss",), judge)
"""Watches one training loss."""
