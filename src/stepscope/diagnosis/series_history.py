"""The bounded history of one series: its last values, and all of it as medians of a few blocks."""

import itertools
import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from statistics import median

from stepscope.diagnosis.roles import Role

RECENT = 128
BLOCK = 5
"""The initial number of values in a block, doubled whenever there are too many blocks."""
MAX_BLOCKS = 128
MAX_OPEN = 40
"""A longer block is the mean of the medians of this many values."""
MAD_TO_SIGMA = 1.4826


class Series:
    """One metric on one rank. Holds finite values; others are counted."""

    __slots__ = (
        "_block_medians", "_medians", "_noise", "_open", "_open_count", "_open_first", "_since", "bad", "before",
        "block_size", "count", "distinct", "first_step", "first_time", "first_value", "firsts", "highest", "key",
        "lasts", "lowest", "middles", "positive", "rank", "role", "same", "same_since", "scaled", "spacing", "step",
        "steps", "time", "value", "values",
    )  # fmt: skip

    def __init__(self, key: str, rank: int, role: Role) -> None:
        self.key, self.rank, self.role = key, rank, role
        self.count = self.bad = 0
        self.step, self.time, self.value = 0, 0, math.nan
        """The newest value: where, when and what."""
        self.before = math.nan
        """The value before it; NaN when there was none."""
        self.steps: deque[int] = deque(maxlen=RECENT)
        self.values: deque[float] = deque(maxlen=RECENT)
        self.lowest, self.highest = math.inf, -math.inf
        self.positive = True
        """Whether all values were above zero, so that ratios mean something."""
        self.first_step, self.first_time, self.first_value = 0, 0, 0.0
        self.same, self.same_since = 0, 0
        """How many of the last values were equal to the bit, and the step of the first of them."""
        self.distinct = False
        """Whether it ever had two different values."""
        self.firsts: list[int] = []
        self.lasts: list[int] = []
        self.middles: list[float] = []
        """The blocks: first and last step, and median."""
        self.scaled: list[float] = []
        """The medians of the blocks, on the scale on which the series is judged: logarithms where all are positive."""
        self.block_size = BLOCK
        self.spacing = 1.0
        """Steps between values, about."""
        self._open: list[float] = []
        self._open_first = self._open_count = 0
        self._medians = 0.0
        self._since = 0
        self._block_medians: list[float] | None = None
        self._noise: float | None = None

    def add(self, step: int, time: int, value: float) -> bool:
        """Add a finite value; True when it completed a block."""
        before = self.before = self.value
        if value == before:
            self.same += 1
        else:
            if self.count:
                self.distinct = True
            else:
                self.first_step, self.first_time, self.first_value = step, time, value
            self.same, self.same_since = 1, step
        self.step, self.time, self.value = step, time, value
        self.count += 1
        self.steps.append(step)
        self.values.append(value)
        if value < self.lowest:
            self.lowest = value
            if value <= 0 and self.positive:
                self.positive = False
                self.scaled, self._block_medians, self._noise = self.middles, None, None
        if value > self.highest:
            self.highest = value
        opened = self._open
        if not opened and not self._open_count:
            self._open_first = step
        opened.append(value)
        if len(opened) < self.block_size and len(opened) < MAX_OPEN:
            return False
        return self._close_block(step)

    @property
    def room(self) -> int:
        """How many values can be added before the one that completes a block."""
        return self.block_size - self._open_count - len(self._open) - 1 if self.count else 0

    def extend(self, steps: Sequence[int], times: Sequence[int], values: Sequence[float]) -> None:
        """Add finite values that complete no block, as if they were added one by one."""
        before, value = self.value, values[-1]
        same = next((at for at, each in enumerate(reversed(values)) if each != value), len(values))
        if same == len(values) and value == before:
            self.same += same
        else:
            self.distinct = True
            self.same, self.same_since = same, steps[-same]
        self.before = values[-2] if len(values) > 1 else before
        self.step, self.time, self.value = steps[-1], times[-1], value
        self.count += len(values)
        self.steps.extend(steps)
        self.values.extend(values)
        lowest = min(values)
        if lowest < self.lowest:
            self.lowest = lowest
            if lowest <= 0 and self.positive:
                self.positive = False
                self.scaled, self._block_medians, self._noise = self.middles, None, None
        self.highest = max(self.highest, max(values))
        if not self._open and not self._open_count:
            self._open_first = steps[0]
        at = 0
        while len(self._open) + len(values) - at >= MAX_OPEN:  # of a block of several medians
            upto = at + MAX_OPEN - len(self._open)
            self._open += values[at:upto]
            self._close_block(steps[upto - 1])
            at = upto
        self._open += values[at:]

    def split(self) -> None:
        """Turn the first block, which must be the only one, into blocks of one value: few values are to come."""
        self.block_size = 1
        self.firsts, self.lasts, self.middles = list(self.steps), list(self.steps), list(self.values)
        self.scaled = self.on_scale(self.middles) if self.positive else self.middles
        self._block_medians = self._noise = None

    def restart(self) -> None:
        """Start a new attempt, whose trend is evaluated separately."""
        self._since = self.count
        self._block_medians = self._noise = None

    def block_medians(self) -> list[float]:
        """Return the scaled medians of the blocks since the newest attempt began."""
        if not self._since:
            return self.scaled
        if self._block_medians is None:
            self._block_medians = self.scaled[-(-self._since // self.block_size) :]
        return self._block_medians

    def noise(self) -> float:
        """Return the jitter of the block medians, with a lower bound for implausibly smooth series."""
        if self._noise is None:
            self._noise = max(jitter(self.block_medians()), 0.003 if self.positive else 1e-9)
        return self._noise

    def newest(self, before: int, after: int) -> range:
        """Return the places in the last values with so many before, and so many after that came with the last block."""
        last = len(self.values) - after
        return range(max(last - self.block_size + 1, before), last + 1)

    def begun(self, beyond: Callable[[float], bool]) -> int:
        """Return the step since which all of the last values have been beyond something."""
        return self.steps[begun_at(self.values, beyond)]

    def on_scale(self, values: Sequence[float]) -> list[float]:
        """Convert values to the scale (logarithmic or linear) on which this series is evaluated."""
        return [math.log(value) for value in values] if self.positive else list(values)

    def plain(self, scaled: float) -> float:
        """Convert a scaled value back."""
        return exp(scaled) if self.positive else scaled

    def band(self, middle: float, wide: float) -> tuple[float, float]:
        """Return the band around a scaled value, converted back."""
        return self.plain(middle - wide), self.plain(middle + wide)

    def _close_block(self, step: int) -> bool:
        opened, self._open = self._open, []
        self._open_count += len(opened)
        self._medians += median(opened) * len(opened)
        if self._open_count < self.block_size:
            return False
        middle = self._medians / self._open_count if self.block_size > MAX_OPEN else median(opened)
        if self.block_size == 1:
            self.spacing = self._spacing()
        elif self._open_count > 1:
            self.spacing = max((step - self._open_first) / (self._open_count - 1), 0.0)
        self._medians, self._open_count = 0.0, 0
        self.firsts.append(self._open_first)
        self.lasts.append(step)
        self.middles.append(middle)
        if self.positive:
            self.scaled.append(math.log(middle))
        self._block_medians = self._noise = None
        if len(self.middles) >= MAX_BLOCKS:
            self._merge()
        return True

    def _spacing(self) -> float:
        """Return the steps between the last values, which a lone gap does not widen."""
        last = list(self.steps)[-BLOCK:]
        return max((last[-1] - last[0]) / max(len(last) - 1, 1), 0.0)

    def _merge(self) -> None:
        """Merge pairs of blocks."""
        self.firsts, self.lasts = self.firsts[::2], self.lasts[1::2]
        self.middles = [(a + b) / 2 for a, b in zip(self.middles[::2], self.middles[1::2], strict=True)]
        self.scaled = [math.log(middle) for middle in self.middles] if self.positive else self.middles
        self.block_size *= 2


def exp(power: float) -> float:
    """Return the exponential, clamped instead of overflowing."""
    return math.exp(min(power, 700.0))


def spread(values: Iterable[float]) -> float:
    """Return the robust standard deviation of values around their median."""
    ordered = sorted(values)
    middle = middle_of(ordered)
    return MAD_TO_SIGMA * middle_of(sorted([abs(value - middle) for value in ordered]))


def middle_of(ordered: Sequence[float]) -> float:
    """Return the median of sorted values."""
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def begun_at(values: Sequence[float], beyond: Callable[[float], bool]) -> int:
    """Return the place from which on all values are beyond something; that of the last one, where not even that is."""
    at = len(values) - 1
    while at > 0 and beyond(values[at - 1]):
        at -= 1
    return at


def jitter(values: Sequence[float]) -> float:
    """Return the robust standard deviation of values around their trend, from differences of neighbours."""
    if len(values) < 3:
        return math.inf
    steps = [abs(b - a) for a, b in itertools.pairwise(values)]
    return MAD_TO_SIGMA * median(steps) / math.sqrt(2)


def roughness(values: Sequence[float]) -> float:
    """Return the robust standard deviation of values around a trend that may be steep, from their differences."""
    if len(values) < 4:
        return math.inf
    return spread([b - a for a, b in itertools.pairwise(values)]) / math.sqrt(2)


def trend(values: Sequence[float], most: int = 24) -> float:
    """Return Kendall's tau: how steadily values rise (1) or fall (-1)."""
    total = rising = 0
    sampled = values[:: max(len(values) // most, 1)]
    for i, a in enumerate(sampled):
        for b in sampled[i + 1 :]:
            total += 1
            rising += (b > a) - (b < a)
    return rising / total if total else 0.0


def sure_trend(values: Sequence[float]) -> float:
    """Return the same, of more of them, in standard errors of what values without a trend have."""
    count = len(range(0, len(values), max(len(values) // 100, 1)))
    return trend(values, 100) / math.sqrt(2 * (2 * count + 5) / (9 * count * (count - 1))) if count > 1 else 0.0
