"""The course of a loss over the whole run: diverging, at a new level, stuck, or never learning."""

import itertools
import math
from statistics import median

from stepscope.diagnosis.detector import Point, RunState, about
from stepscope.diagnosis.finding import Finding, number
from stepscope.diagnosis.series import Series, jitter, trend

LEAST_BLOCKS = 12
RISE_SIGMAS = 8.0
RISE = math.log(1.2)
"""A loss that diverges is so far above its best, in logarithms."""
SHIFT = math.log(1.15)
AFTER = 6
"""So many blocks at a new level make a shift, or this part of all:"""
AFTER_PART = 7
CLASSES = (
    2,
    10,
    100,
    1000,
    8192,
    16384,
    21841,
    30522,
    32000,
    32768,
    50257,
    50304,
    65536,
    100277,
    128256,
    151936,
    250112,
    256000,
)
"""Numbers of classes and vocabularies that are common: a model that knows nothing has a loss of their logarithm."""
CHANCE = 0.015
STUCK_STEPS = 150


class Courses:
    """Watches one loss of training."""

    def __init__(self) -> None:
        self._said: set[str] = set()
        self._attempt = 1
        self._since = 0
        """How many values came before the newest attempt."""

    def take(self, series: Series, point: Point, run: RunState) -> Finding | None:
        """Judge the course whenever a block is complete, and constancy at each value."""
        if series.same == 30 and series.distinct and "constant" not in self._said and not _saturated(point.value):
            self._said.add("constant")
            return _constant(series, point)
        if not point.block or len(series.blocks) < LEAST_BLOCKS or run.reinforcement:
            return None
        if run.attempt != self._attempt:
            self._attempt, self._since = run.attempt, series.count
        skip = -(-self._since // series.block_size)
        middles = series.middles()[skip:]
        if len(middles) < LEAST_BLOCKS:
            return None
        noise = max(jitter(middles), 0.003 if series.positive else 1e-9)
        for judge in (self._shift, self._divergence, self._never, self._stuck):
            found = judge(series, point, run, middles, noise)
            if found is not None and found.kind not in self._said:
                self._said.add(found.kind)
                return found
        return None

    def _shift(self, series: Series, point: Point, run: RunState, middles: list[float], noise: float) -> Finding | None:
        """A step up between two blocks after which it stays."""
        width = max(AFTER, len(middles) // AFTER_PART)
        if len(middles) < width + 6:
            return None
        before, after = middles[-width - 6 : -width], middles[-width:]
        up = min(after) - max(before)
        least = SHIFT if series.positive else 0.15 * abs(median(before))
        back = after[0] - after[-1]
        rise = median(after) - median(before)
        if up < max(2 * noise, 0.5 * least) or rise < max(least, RISE_SIGMAS * noise) or back > 0.2 * rise:
            return None
        if trend(after) > 0.75 and after[-1] - after[0] > 0.5 * rise:
            return None
        begun = series.blocks[-width].first
        if _explained(run, series.blocks[-width - 2].first, series.blocks[-width].last):
            return None
        return about(
            series,
            point,
            "level_shift",
            "WARN",
            begun,
            f"{series.key} went up from {number(_plain(series, median(before)))} to "
            f"{number(_plain(series, median(after)))} at step {begun} and stayed there",
            _band(series, median(before), RISE_SIGMAS * noise),
            "the data changed, or the model's weights were damaged",
            "Compare the batches before and after that step.",
        )

    def _divergence(
        self, series: Series, point: Point, run: RunState, middles: list[float], noise: float
    ) -> Finding | None:
        """A steady rise from the best."""
        best = min(range(len(middles)), key=lambda at: middles[at])
        since = middles[best:]
        if len(since) < max(8, len(middles) // 10):
            return None
        rise = median(since[-3:]) - since[0]
        least = RISE if series.positive else 0.12 * abs(since[0])
        if rise < max(least, RISE_SIGMAS * noise) or trend(since) < 0.7:
            return None
        jump = max(b - a for a, b in itertools.pairwise(since))
        blocks = series.blocks[len(series.blocks) - len(middles) :]
        if jump > 0.6 * rise or _explained(run, blocks[best].first, point.step) or rise < 2 * _drawup(middles[:best]):
            return None
        begun = blocks[best].last
        return about(
            series,
            point,
            "divergence",
            "ERROR",
            begun,
            f"{series.key} has been rising since step {begun}: from {number(_plain(series, since[0]))} to "
            f"{number(_plain(series, median(since[-3:])))}",
            _band(series, since[0], RISE_SIGMAS * noise),
            "a learning rate that is too high for this phase",
            "Go back to a checkpoint before it and lower the learning rate.",
        )

    def _never(self, series: Series, point: Point, run: RunState, middles: list[float], noise: float) -> Finding | None:
        """A loss that stays where a model that knows nothing would have it."""
        if series.count < STUCK_STEPS or not series.positive:
            return None
        level = _plain(series, median(middles[-8:]))
        classes = run.setting("vocab_size", "num_classes", "num_labels", "n_classes", "classes", "vocab")
        known = [classes] if classes and classes > 1 else list(CLASSES)
        close = CHANCE if classes else CHANCE / 4
        near = [count for count in known if abs(level - math.log(count)) < close * math.log(count)]
        flat = abs(median(middles[-4:]) - median(middles[:4])) < max(4 * noise, 0.01)
        if not near or not flat or max(middles) - min(middles) > 0.06:
            return None
        count = int(near[0])
        return about(
            series,
            point,
            "not_learning",
            "ERROR",
            series.first_step or 0,
            f"{series.key} has stayed at {number(level)} for {series.count} steps: ln {count}, "
            f"what guessing among {count} gives",
            (0.0, level * 0.9),
            "gradients do not reach the weights, labels are shuffled, or the learning rate is far too low",
            "Check that parameters require gradients, that the optimizer holds them, and that labels match the inputs.",
        )

    def _stuck(self, series: Series, point: Point, run: RunState, middles: list[float], noise: float) -> Finding | None:
        """A fall that stopped at once, where a healthy one slows down."""
        if series.count < STUCK_STEPS or len(middles) < 24 or len(middles) % 8:
            return None
        best: tuple[float, int] | None = None
        for at in range(len(middles) // 5, len(middles) - max(10, len(middles) // 3)):
            before, after = middles[at // 4 : at], middles[at:]
            slope = (before[0] - before[-1]) / max(len(before) - 1, 1)
            # A fall like 1/t from here on would still be worth this much:
            owed = slope * at * math.log(len(middles) / at)
            got = median(after[:3]) - median(after[-3:])
            if not _kink(before, after, noise):
                continue
            if owed > max(12 * noise, 0.15) and got < 0.06 * owed and abs(got) < 4 * noise and trend(before) < -0.75:
                best = max(best or (0.0, 0), (owed, at))
        if best is None or _zero_rate(run, series.rank) or run.changes:
            return None
        begun = series.blocks[len(series.blocks) - len(middles) + best[1]].first
        return about(
            series,
            point,
            "plateau",
            "WARN",
            begun,
            f"{series.key} fell steadily and then stopped at step {begun}, at {number(_plain(series, middles[-1]))}",
            _band(series, middles[-1] - best[0] / 2, best[0] / 2),
            "the learning rate collapsed, or the optimizer stopped stepping",
            "Check the learning rate and gradient norm since that step.",
        )


def _kink(before: list[float], after: list[float], noise: float) -> bool:
    """Whether a fall stops between two blocks: a healthy fall slows down little by little."""
    if len(before) < 9 or len(after) < 6:
        return False
    third = len(before) // 3
    early = median(before[:third]) - median(before[third : 2 * third])
    late = median(before[third : 2 * third]) - median(before[-third:])
    last = median(before[-6:-3]) - median(before[-3:])
    following = median(after[:3]) - median(after[3:6])
    return (
        early > 0
        and late > 0.7 * early
        and last > 3 * noise
        and following < 0.3 * last
        and max(after) - min(after) < 7 * noise
    )


def _drawup(values: list[float]) -> float:
    """The largest rise of earlier values from a low before it."""
    low, most = math.inf, 0.0
    for value in values:
        low = min(low, value)
        most = max(most, value - low)
    return most


def _constant(series: Series, point: Point) -> Finding:
    begun = list(series.steps)[-series.same] if series.same <= len(series.steps) else series.steps[0]
    return about(
        series,
        point,
        "constant",
        "ERROR",
        begun,
        f"{series.key} has been exactly {number(point.value)} since step {begun}",
        (series.lowest, series.highest),
        "the computation is cut off from its inputs: a dead model, or a value that is no longer updated",
        "Check whether weights and inputs still change.",
    )


def _saturated(value: float) -> bool:
    return value in (0.0, 1.0)


def _zero_rate(run: RunState, rank: int) -> bool:
    return any(series.values and series.values[-1] == 0 for series in run.of_role("lr", rank))


def _explained(run: RunState, first: int, last: int) -> bool:
    """Whether a learning rate that rose, or a new stage, explains a rise."""
    changes = run.changed(first, last)
    return any(change.after > 1.3 * change.before or change.key.startswith("stage:") for change in changes)


def _plain(series: Series, scaled: float) -> float:
    return math.exp(scaled) if series.positive else scaled


def _band(series: Series, middle: float, wide: float) -> tuple[float, float]:
    return _plain(series, middle - wide), _plain(series, middle + wide)
