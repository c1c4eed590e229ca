"""The memory of one series: its last values, and the whole of it in few blocks. Bounded, whatever the length."""

import itertools
import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from stepscope.diagnosis.roles import Role

RECENT = 128
BLOCK = 5
"""So many values make a block at first; twice as many each time there are too many blocks."""
MOST_BLOCKS = 128
MAD_TO_SIGMA = 1.4826


@dataclass(slots=True)
class Block:
    """Some consecutive values of a series: their median, and where they were."""

    first: int
    last: int
    middle: float
    low: float
    high: float


class Series:
    """One metric on one rank. Finite values only; those that are not are counted."""

    def __init__(self, key: str, rank: int, role: Role) -> None:
        self.key, self.rank, self.role = key, rank, role
        self.count = 0
        self.bad = 0
        self.steps: deque[int] = deque(maxlen=RECENT)
        self.values: deque[float] = deque(maxlen=RECENT)
        self.lowest, self.highest = math.inf, -math.inf
        self.first_step: int | None = None
        self.first_value = 0.0
        self.same = 0
        """How many of the last values were equal to the bit."""
        self.distinct = False
        """Whether it ever had two different values."""
        self.blocks: list[Block] = []
        self.block_size = BLOCK
        self._open: list[float] = []
        self._open_first = 0
        self.spacing = 1.0
        """Steps between values, about."""

    @property
    def last_step(self) -> int:
        """The step of the last value."""
        return self.steps[-1]

    @property
    def positive(self) -> bool:
        """Whether all values were above zero, so that ratios mean something."""
        return self.lowest > 0

    def add(self, step: int, value: float) -> bool:
        """Take a finite value; True when it completed a block."""
        if self.first_step is None:
            self.first_step, self.first_value = step, value
        elif self.steps and step > self.steps[-1]:
            self.spacing += (step - self.steps[-1] - self.spacing) * 0.1
        if self.values and value == self.values[-1]:
            self.same += 1
        else:
            self.distinct = self.distinct or bool(self.values)
            self.same = 1
        self.count += 1
        self.steps.append(step)
        self.values.append(value)
        self.lowest, self.highest = min(self.lowest, value), max(self.highest, value)
        if not self._open:
            self._open_first = step
        self._open.append(value)
        if len(self._open) < self.block_size:
            return False
        self._close_block(step)
        return True

    def _close_block(self, step: int) -> None:
        values = self._open
        self.blocks.append(Block(self._open_first, step, median(values), min(values), max(values)))
        self._open = []
        if len(self.blocks) >= MOST_BLOCKS:
            pairs = zip(self.blocks[::2], self.blocks[1::2], strict=True)
            self.blocks = [
                Block(a.first, b.last, (a.middle + b.middle) / 2, min(a.low, b.low), max(a.high, b.high))
                for a, b in pairs
            ]
            self.block_size *= 2

    def scaled(self, values: Sequence[float]) -> list[float]:
        """Values on the scale on which this series is judged: logarithms where all are positive."""
        return [math.log(value) for value in values] if self.positive else list(values)

    def middles(self) -> list[float]:
        """The medians of the blocks, on the scale on which the series is judged."""
        return self.scaled([block.middle for block in self.blocks])


def spread(values: Sequence[float]) -> float:
    """The robust standard deviation of values around their median."""
    middle = median(values)
    return MAD_TO_SIGMA * median(abs(value - middle) for value in values)


def jitter(values: Sequence[float]) -> float:
    """The robust standard deviation of values around their course, by the differences between neighbours."""
    if len(values) < 3:
        return math.inf
    steps = [abs(b - a) for a, b in itertools.pairwise(values)]
    return MAD_TO_SIGMA * median(steps) / math.sqrt(2)


def trend(values: Sequence[float]) -> float:
    """How steadily values rise (1) or fall (-1): the share of pairs in order, by Kendall."""
    total = rising = 0
    stride = max(len(values) // 24, 1)
    sampled = values[::stride]
    for i, a in enumerate(sampled):
        for b in sampled[i + 1 :]:
            total += 1
            rising += (b > a) - (b < a)
    return rising / total if total else 0.0
