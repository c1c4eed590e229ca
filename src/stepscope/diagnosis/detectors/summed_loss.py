"""A loss that is summed over its batch: lower at each smaller batch, and at first so many times that of guessing."""

import math
import re
from itertools import pairwise
from statistics import median
from typing import ClassVar, Literal

from stepscope.diagnosis.detector import RunState, judged_once
from stepscope.diagnosis.detectors.impossible_loss import IMPOSSIBLE
from stepscope.diagnosis.finding import Finding, Kind, number
from stepscope.diagnosis.roles import measure
from stepscope.diagnosis.series_history import Series, exp, roughness

SIDE, DEPTH, SIGMAS = 3, math.log(1.6), 5.0
"""A value this far below as many neighbours on both sides, in logarithms and in units of their noise, is low."""
TIMES, MIN_APART, ALIKE = 5, 5, 0.12
"""So many low values are as far apart, at least so far, and as low, but for this much in logarithms..."""
MOVED = math.log(1.25)
"""... while the loss went down by this much: a share of it that stays is that of a smaller batch."""
CLOSE, MIN_BATCH = 0.08, 4
"""The first value is so close to that of guessing, times a batch of at least so many."""
MAX_LOW = 64
_BATCH = ("batch_size", "per_device_train_batch_size", "train_batch_size", "micro_batch_size")
_LENGTH = ("block_size", "seq_len", "sequence_length", "max_seq_length", "context_length")
_CLASSES = ("vocab_size", "num_classes", "num_labels", "n_classes", "classes", "vocab")
_SUMMED = "the loss is summed over the batch and not averaged, so that it and its gradients grow with the batch"
_SMALLER = f"{_SUMMED}: at the end of each epoch the batch is smaller"
_DIVIDE = "Average over the examples (reduction='mean', or divide by their number), or drop the last batch (drop_last)."


class SummedLoss:
    """Watches one training loss."""

    KINDS: ClassVar[tuple[Kind, ...]] = (IMPOSSIBLE,)
    ROLES: ClassVar[tuple[str, ...]] = ("loss",)
    HELD_OUT: ClassVar[bool | None] = False
    EACH: ClassVar[Literal["value", "block"]] = "block"

    __slots__ = ("_looked", "_low", "_reported", "_run", "_series")

    def __init__(self, series: Series, run: RunState) -> None:
        self._series, self._run = series, run
        self._looked = 0
        """How many values have been compared with those around them."""
        self._low: list[tuple[int, int, float, float]] = []
        """Low values: their number, step, depth, and the level around them."""
        self._reported = False

    def take(self) -> Finding | None:
        """Compare the first value with that of guessing, and each later one with those around it."""
        if self._reported or self._run.reinforcement or not self._series.positive:
            return None
        found = self._level() if not self._looked else None
        found = found or self._dips()
        self._reported = found is not None
        return found

    def _level(self) -> Finding | None:
        """Judge the first value, where batch and classes are configured."""
        series, run = self._series, self._run
        batch, classes, length = run.setting(*_BATCH), run.setting(*_CLASSES), run.setting(*_LENGTH)
        if batch is None or classes is None or batch < MIN_BATCH or classes < 2 or series.first_value <= 0:
            return None
        guess = math.log(classes)
        for count, what in ((batch, f"a batch of {batch:g}"), (batch * (length or 1), f"{batch:g} x {length or 1:g}")):
            if abs(series.first_value / (count * guess) - 1) < CLOSE:
                text = (
                    f"{series.key} began at {number(series.first_value)}, {number(count)} times {number(guess)}, the "
                    f"loss of guessing among {classes:g} classes: that of {what}"
                )
                band = (0.0, guess)
                return IMPOSSIBLE.about(series, series.first_step, text, band, cause=_SUMMED, advice=_DIVIDE)
        return None

    def _dips(self) -> Finding | None:
        series = self._series
        count = len(series.values)
        first = series.count - count
        new = range(max(self._looked - first, SIDE + 1), count - SIDE)
        self._looked = max(self._looked, series.count - SIDE)
        begun = max(new.start - SIDE, 0)
        values, steps = series.on_scale(list(series.values)[begun:]), list(series.steps)
        for at in new:
            here = at - begun
            around = median([*values[here - SIDE : here], *values[here + 1 : here + 1 + SIDE]])
            deep = around - values[here]
            if deep > DEPTH and deep > SIGMAS * roughness(series.on_scale(list(series.values))):
                self._low = [*self._low, (first + at, steps[at], deep, around)][-MAX_LOW:]
        return self._smaller() if new else None

    def _smaller(self) -> Finding | None:
        """Judge whether all low values so far are those of smaller batches."""
        low, series = self._low, self._series
        if len(low) < TIMES or low[0][3] - low[-1][3] < MOVED:
            return None
        apart = {b[0] - a[0] for a, b in pairwise(low)}
        depth = median([each[2] for each in low])
        if len(apart) > 1 or min(apart) < MIN_APART or any(abs(each[2] - depth) > ALIKE for each in low):
            return None
        text = (
            f"{series.key} falls to {exp(-depth):.0%} of the values around it at every {min(apart)}th value since step "
            f"{low[0][1]}, whatever its level"
        )
        band = (series.plain(low[-1][3] - DEPTH), series.plain(low[-1][3] + DEPTH))
        value = series.plain(low[-1][3] - depth)
        return IMPOSSIBLE.about(series, low[0][1], text, band, value=value, cause=_SMALLER, advice=_DIVIDE)


def judge_ratio(series: Series, run: RunState) -> Finding | None:
    """Find a training loss that is always as many times the held-out one as a batch has examples."""
    if series.count < COMPARED or not series.positive or run.reinforcement or _SCORED.search(series.key):
        return None
    values, steps = list(series.values), list(series.steps)
    compared = values[-COMPARED + 1 :]
    if math.log(max(compared) / min(compared)) < FELL:
        return None  # a part that is added would look the same
    for each in run.of_role("loss", series.rank, held_out=False):
        if not each.positive or measure(each.key) != measure(series.key):
            continue
        places = list(zip(each.steps, each.values, strict=True))
        near = [[v for at, v in places if a < at <= b] for a, b in pairwise(steps[-COMPARED:])]
        if not all(len(some) > 1 for some in near):
            continue
        times = [median(some) / value for some, value in zip(near, compared, strict=True)]
        batch, level = run.setting(*_BATCH), median(times)
        size = batch if batch is not None else 2 ** round(math.log2(max(level, 1)))
        if size >= MIN_TIMES and 1 / EVEN < level / size < EVEN and max(times) < EVEN * min(times):
            text = (
                f"{each.key} is {number(level)} times {series.key} throughout, about the {size:g} examples of "
                f"{'the batch' if batch is not None else 'a batch'}"
            )
            value, band = each.value, (0.0, 2 * series.value)
            return IMPOSSIBLE.about(each, each.first_step, text, band, value=value, cause=_SUMMED, advice=_DIVIDE)
    return None


COMPARED, MIN_TIMES, EVEN, FELL = 6, 8, 1.25, math.log(1.5)
"""In so many evaluations the ratio is at least so large and the same but for this factor, while both fell."""
_SCORED = re.compile(r"(^|[^a-z])(ema|swa|best)([^a-z]|$)", re.IGNORECASE)

SummedRatio = judged_once("SummedRatio", IMPOSSIBLE, ("loss",), judge_ratio, held_out=True, each="value")
"""Watches one held-out loss."""
