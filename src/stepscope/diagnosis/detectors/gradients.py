"""Gradient norms that vanish or explode, a loss scale that collapses, and learning rates that are off."""

import itertools
import math
from statistics import median

from stepscope.diagnosis.detector import Point, RunState
from stepscope.diagnosis.finding import Finding, number
from stepscope.diagnosis.series import Series

VANISHED = 1e-3
"""Gradients have vanished below so much of their usual norm, while the loss is still far from zero..."""
VANISHED_ROW = 20
"""... for so many values."""
EXPLODED = 10.0
EXPLODED_ROW = 6
LEAST = 20


class Gradients:
    """Watches one gradient norm."""

    def __init__(self) -> None:
        self._low = self._high = 0
        self._since = 0
        self._usual = 0.0
        self._said: set[str] = set()

    def take(self, series: Series, point: Point, run: RunState) -> Finding | None:
        """Judge a norm against the median of the first half of the run so far."""
        if series.count < LEAST or len(series.blocks) < 3:
            return None
        if point.block or not self._usual:
            half = series.blocks[: max(len(series.blocks) // 2, 2)]
            self._usual = median(block.middle for block in half)
        usual = self._usual
        if usual <= 0:
            return None
        return self._vanished(series, point, run, usual) or self._exploded(series, point, usual)

    def _vanished(self, series: Series, point: Point, run: RunState, usual: float) -> Finding | None:
        if point.value >= VANISHED * usual:
            self._low = 0
            return None
        self._low += 1
        if self._low == 1:
            self._since = point.step
        if self._low < VANISHED_ROW or "vanishing_gradients" in self._said or _learnt(run, series.rank):
            return None
        self._said.add("vanishing_gradients")
        return Finding(
            "vanishing_gradients",
            "ERROR",
            f"{series.key} fell to {number(point.value)} at step {self._since}, usually "
            f"{number(usual)}: gradients vanish",
            step=self._since,
            last=point.step,
            ranks=(series.rank,),
            key=series.key,
            value=point.value,
            expected=(usual / 10, usual * 10),
            cause="saturated or dead units, or a part of the graph that is detached",
            advice="Look for dead activations, detached tensors and frozen parameters from that step on.",
            time=point.time,
            weight=math.log(usual / max(point.value, 1e-300)),
        )

    def _exploded(self, series: Series, point: Point, usual: float) -> Finding | None:
        if point.value < EXPLODED * usual:
            return None
        recent = list(series.values)[-EXPLODED_ROW:]
        before = list(series.values)[:-EXPLODED_ROW]
        if min(recent) < EXPLODED * usual or "exploding_gradients" in self._said or not before:
            return None
        if sum(value > EXPLODED * usual for value in before) > 0.1 * len(before) + EXPLODED_ROW:
            return None
        self._said.add("exploding_gradients")
        begun = _first_above(series, EXPLODED * usual / 3)
        return Finding(
            "exploding_gradients",
            "ERROR",
            f"{series.key} rose to {number(point.value)}, usually {number(usual)}, since step {begun}: "
            f"gradients explode",
            step=begun,
            last=point.step,
            ranks=(series.rank,),
            key=series.key,
            value=point.value,
            expected=(usual / 10, usual * 10),
            cause="a learning rate that is too high, or missing clipping",
            advice="Clip the gradient norm and lower the learning rate; go back to a checkpoint before that step.",
            time=point.time,
            weight=math.log(max(point.value / usual, 1.0)),
        )


def _first_above(series: Series, limit: float) -> int:
    """The step at which the last unbroken row of values above a limit began."""
    begun = series.last_step
    for step, value in zip(reversed(series.steps), reversed(series.values), strict=True):
        if value < limit:
            break
        begun = step
    return begun


def _learnt(run: RunState, rank: int) -> bool:
    """Whether the loss is so small that gradients may be."""
    losses = [series for series in run.of_role("loss", rank, held_out=False) if series.values]
    return bool(losses) and all(abs(s.values[-1]) < 0.05 * abs(s.first_value) for s in losses)


class LossScale:
    """Watches one loss scale of mixed precision: it may be halved now and then, never down to nothing."""

    def __init__(self) -> None:
        self._said = False

    def take(self, series: Series, point: Point, run: RunState) -> Finding | None:
        """Judge a scale against the highest so far."""
        if self._said or series.count < 10 or series.highest <= 0:
            return None
        fell = math.log2(series.highest / max(point.value, 1e-30))
        recent = list(series.values)[-64:]
        halvings = sum(b < a for a, b in itertools.pairwise(recent))
        raises = sum(b > a for a, b in itertools.pairwise(recent))
        if fell < 8 or halvings < 6 or raises or point.value > 128:
            return None
        self._said = True
        begun = _fall_began(series)
        return Finding(
            "scaler_collapse",
            "ERROR",
            f"{series.key} fell from {number(max(recent))} to {number(point.value)} since step {begun}: "
            f"every step overflows",
            step=begun,
            last=point.step,
            ranks=(series.rank,),
            key=series.key,
            value=point.value,
            expected=(series.highest / 64, series.highest),
            cause="gradients are not finite at any scale: the model itself overflows",
            advice="Look for the first layer whose activations or gradients are not finite; use bfloat16 or "
            "lower the learning rate.",
            time=point.time,
            weight=fell,
        )


def _fall_began(series: Series) -> int:
    """The step at which the last fall without a rise began."""
    steps, values = list(series.steps), list(series.values)
    at = len(values) - 1
    while at > 0 and values[at - 1] >= values[at]:
        at -= 1
    top = values[at]
    while at + 1 < len(values) and values[at + 1] == top:
        at += 1
    return steps[at]


class LearningRate:
    """Watches one learning rate, and notes its changes for the other detectors."""

    def __init__(self) -> None:
        self._said: set[str] = set()
        self._highest = 0.0
        """The highest rate before the one that is judged."""
        self._zero_since: int | None = None

    def take(self, series: Series, point: Point, run: RunState) -> Finding | None:
        """Judge a rate: zero in the middle of a run, above its peak, or not moving though it has a schedule."""
        values = list(series.values)
        before = values[-2] if len(values) > 1 else point.value
        if point.value == 0:
            return self._zero(series, point, before)
        self._zero_since = None
        found = self._too_high(series, point, run, values) if point.value > before else None
        self._highest = max(self._highest, point.value)
        if found is None and point.block:
            found = self._flat(series, point, run)
        if found is None or found.kind in self._said:
            return None
        self._said.add(found.kind)
        return found

    def _zero(self, series: Series, point: Point, before: float) -> Finding | None:
        if before > 0:
            gradual = before < 0.02 * series.highest
            self._zero_since = None if gradual else point.step
        if self._zero_since is None or series.same < 5 or "lr_zero" in self._said or series.highest <= 0:
            return None
        self._said.add("lr_zero")
        usual = next((v for v in reversed(series.values) if v > 0), series.highest)
        return Finding(
            "lr_zero",
            "ERROR",
            f"{series.key} became 0 at step {self._zero_since}: nothing is learnt any more",
            step=self._zero_since,
            last=point.step,
            ranks=(series.rank,),
            key=series.key,
            value=0.0,
            expected=(usual / 2, usual),
            cause="the schedule ended early, or was given the wrong number of steps",
            advice="Check the total steps of the learning rate schedule.",
            time=point.time,
            weight=1.0,
        )

    def _too_high(self, series: Series, point: Point, run: RunState, values: list[float]) -> Finding | None:
        """A jump above every rate before it, when the rate had already stopped rising; or above the configured one."""
        past = values[:-1]
        meant = run.setting("lr", "learning_rate", "max_lr", "peak_lr", "base_lr")
        over = meant is not None and point.value > 2.0 * meant and series.count > 1 and "param" not in series.key
        jumped = len(past) >= 10 and past[-1] > 0 and point.value > 2.5 * self._highest and _settled(past)
        if not (jumped or (over and past and past[-1] <= 2.0 * (meant or 0))):
            return None
        high = max(meant or 0.0, self._highest)
        return Finding(
            "lr_schedule",
            "ERROR",
            f"{series.key} jumped to {number(point.value)} at step {point.step}, expected at most {number(high)}",
            step=point.step,
            last=point.step,
            ranks=(series.rank,),
            key=series.key,
            value=point.value,
            expected=(0.0, high),
            cause="the schedule does not do what the configuration says",
            advice="Compare the schedule with the configuration.",
            time=point.time,
            weight=point.value / max(high, 1e-30),
        )

    def _flat(self, series: Series, point: Point, run: RunState) -> Finding | None:
        """A rate that does not move though the configuration names a schedule that does."""
        words = " ".join(
            str(run.config.get(name, ""))
            for name in ("schedule", "lr_schedule", "scheduler", "lr_scheduler", "lr_scheduler_type")
        )
        total = run.setting("total_steps", "max_steps", "steps", "num_steps", "train_steps", "max_iters")
        warm = run.setting("warmup_steps", "warmup", "num_warmup_steps", "warmup_iters") or 0.0
        moves = any(word in words.lower() for word in ("cosine", "linear", "polynomial", "decay", "onecycle"))
        if not moves or not total or series.count < 30:
            return None
        share = (point.step - max(warm, series.first_step or 0)) / max(total - warm, 1.0)
        same_from = point.step - series.same * series.spacing
        flat = (point.step - max(same_from, warm)) / max(total - warm, 1.0)
        if share < 0.25 or flat < 0.2 or "constant" in words.lower() or point.step <= warm or "stable" in words.lower():
            return None
        if series.highest > 0 and point.value <= 0.11 * series.highest:
            return None
        begun = int(max(same_from, warm, series.first_step or 0))
        return Finding(
            "lr_schedule",
            "WARN",
            f"{series.key} has stayed at {number(point.value)} since step {begun}, though the schedule "
            f"is {words.strip()}",
            step=begun,
            last=point.step,
            ranks=(series.rank,),
            key=series.key,
            value=point.value,
            expected=(0.0, point.value),
            cause="the scheduler is not stepped",
            advice="Call the scheduler once for each optimizer step.",
            time=point.time,
            weight=1.0,
        )


def _settled(values: list[float]) -> bool:
    """Whether a rate had stopped rising: the last values are not still a warm-up."""
    tail = values[-10:]
    return not all(b > a for a, b in itertools.pairwise(tail))
