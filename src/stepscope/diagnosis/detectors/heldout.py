"""Held-out data and resumed runs: accuracy that drops, a model that overfits, a state that was restored wrongly."""

import math
from statistics import median

from stepscope.diagnosis.detector import Point, RunState
from stepscope.diagnosis.finding import Finding, number
from stepscope.diagnosis.series import Series, jitter, spread, trend

DROP = 0.05
"""An accuracy has dropped when it lost so much, absolutely..."""
SIGMAS = 7.0
"""... and so many standard deviations..."""
ROW = 4
"""... for so many values."""
EVALUATIONS = 5
"""A held-out loss must rise over so many evaluations."""
OVERFIT = 0.06
RESUME_VALUES = 8
WORSE = math.log(1.25)


class Accuracy:
    """Watches one accuracy: more is better."""

    def __init__(self) -> None:
        self._said = False

    def take(self, series: Series, point: Point, run: RunState) -> Finding | None:
        """Judge the last values against those before them."""
        values = list(series.values)
        if self._said or len(values) < 12 + ROW:
            return None
        row = ROW if series.role.held_out or series.spacing > 5 else 3 * ROW
        before, after = values[-48 - row : -row], values[-row:]
        if len(before) < 10:
            return None
        level = median(before[-8:])
        noise = max(jitter(before[-16:]), 0.004)
        least = min(level - noise * SIGMAS / 2, level - DROP, min(before[-8:]) - 2 * noise)
        if max(after) > least or _eased(run, list(series.steps)[-row - 3], point.step):
            return None
        self._said = True
        begun = list(series.steps)[-row]
        return Finding(
            "accuracy_drop",
            "ERROR",
            f"{series.key} dropped from {number(level)} to {number(median(after))} at step {begun}",
            step=begun,
            last=point.step,
            ranks=(series.rank,),
            key=series.key,
            value=median(after),
            expected=(level - SIGMAS * noise, level + SIGMAS * noise),
            cause="the data or labels changed, or weights were damaged",
            advice="Compare inputs and checkpoint before and after that step.",
            time=point.time,
            weight=(level - median(after)) / noise,
        )


class Overfit:
    """Watches one held-out loss beside the loss of training."""

    def __init__(self) -> None:
        self._said = False

    def take(self, series: Series, point: Point, run: RunState) -> Finding | None:
        """Judge a held-out loss that rises while the loss of training falls."""
        values, steps = list(series.values), list(series.steps)
        if self._said or len(values) < EVALUATIONS + 3 or not series.positive:
            return None
        best = min(range(len(values)), key=lambda at: values[at])
        since = values[best:]
        if len(since) <= EVALUATIONS:
            return None
        rise = median(since[-3:]) / values[best] - 1
        noise = jitter([math.log(value) for value in values])
        if rise < max(OVERFIT, 5 * noise) or trend(since) < 0.6 or not self._training_falls(series, run, steps[best]):
            return None
        self._said = True
        return Finding(
            "overfit",
            "WARN",
            f"{series.key} has been rising since step {steps[best]} ({number(values[best])} to "
            f"{number(median(since[-3:]))}) "
            "while the loss of training falls",
            step=steps[best],
            last=point.step,
            ranks=(series.rank,),
            key=series.key,
            value=point.value,
            expected=(values[best] * (1 - 5 * noise), values[best] * (1 + 5 * noise)),
            cause="the model learns the training data by heart",
            advice=f"Stop at the checkpoint near step {steps[best]}; add data or regularization.",
            time=point.time,
            weight=rise,
        )

    def _training_falls(self, series: Series, run: RunState, since: int) -> bool:
        for other in run.of_role("loss", series.rank, held_out=False):
            blocks = [block.middle for block in other.blocks if block.last >= since]
            if len(blocks) >= 4 and median(blocks[-2:]) < median(blocks[:2]) and trend(blocks) < -0.3:
                return True
        return False


class Resume:
    """Watches one loss across a restart: it should go on where the checkpoint was."""

    def __init__(self) -> None:
        self._attempt = 1
        self._before: list[tuple[int, float]] = []
        self._after: list[float] = []
        self._begun = 0

    def take(self, series: Series, point: Point, run: RunState) -> Finding | None:
        """Compare the first values of an attempt with those of the attempt before, at the same steps or the last."""
        if run.attempt != self._attempt:
            self._attempt, self._after, self._begun = run.attempt, [], point.step
            self._before = list(zip(series.steps, series.values, strict=True))[:-1]
        if not self._before or len(self._after) >= RESUME_VALUES or not series.positive:
            return None
        self._after.append(point.value)
        if len(self._after) < RESUME_VALUES:
            return None
        near = [value for step, value in self._before if abs(step - self._begun) <= 30 * max(series.spacing, 1)]
        before = [math.log(value) for value in (near or [value for _, value in self._before[-30:]])]
        if len(before) < 8:
            return None
        after = [math.log(value) for value in self._after]
        noise = max(spread(before), 0.01)
        worse = median(after[2:]) - median(before)
        if worse < max(WORSE, 5 * noise) or min(after[2:]) < median(before) + 2 * noise:
            return None
        usual = math.exp(median(before))
        return Finding(
            "bad_resume",
            "ERROR",
            f"{series.key} was {number(usual)} before the restart and {number(math.exp(median(after)))} "
            f"after it, at step {self._begun}",
            step=self._begun,
            last=point.step,
            ranks=(series.rank,),
            key=series.key,
            value=math.exp(median(after)),
            expected=(usual * math.exp(-5 * noise), usual * math.exp(5 * noise)),
            attempt=run.attempt,
            cause="the checkpoint lacks a part of the state (optimizer, schedule, data position), or is another one",
            advice="Check what the checkpoint restores: weights, optimizer, learning rate schedule, data "
            "order, random state.",
            time=point.time,
            weight=worse / noise,
        )


def _eased(run: RunState, first: int, last: int) -> bool:
    """Whether a new stage or a restart explains a change."""
    return any(
        change.key.startswith("stage:") or change.after > 1.3 * change.before for change in run.changed(first, last)
    )
