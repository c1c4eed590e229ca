"""Which optimizer steps are timed: all of them, or some where the hooks would exceed the overhead budget."""

import itertools
import time
from collections import deque
from collections.abc import Callable
from statistics import median

from stepscope.model.names import ATTR_SAMPLED

GRACE_SECONDS = 0.25
"""Time inside hooks before any step is left out, so that a short run is complete."""
TIMES = 1.6
"""What a hook costs the loop, as a multiple of the time inside it: caches are cold, and torch takes a slower path."""
MAX_EVERY = 64
KEPT = 15


class Sampling:
    """Chooses steps. All ranks of a run choose the same ones, or a part of them, without talking to each other."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self.every = 1
        """One in about so many steps is timed."""
        self.on = True
        """Whether the passes until the next optimizer step are timed."""
        self._announced = False
        """Whether spans have the attribute; from then on all have it, also while no step is left out."""
        self._spent = self._total = 0.0
        self._costs: deque[float] = deque(maxlen=KEPT)
        self._lasted: deque[float] = deque(maxlen=KEPT)
        self._ended, self._number, self._next = 0.0, 0, 0

    def add(self, seconds: float) -> None:
        """Add the time inside a hook."""
        self._spent += seconds

    def attrs(self) -> dict[str, int]:
        """The attribute of a span that stands for those of several steps; readers know by it that a step is whole."""
        return {ATTR_SAMPLED: self.every} if self._announced else {}

    def skip(self, number: int) -> bool:
        """End a step that was left out, and return whether the next one is timed; most steps pay for no more."""
        self.on = number + 1 >= self._next
        return self.on

    def end_step(self, number: int, budget: float, *, matters: bool) -> None:
        """End a step that was timed, and choose the next one.

        `matters` tells whether the loop waits for the hooks: a device that is behind hides what the host does.
        """
        now = self._clock()
        if self._ended:
            self._lasted.append((now - self._ended) / max(number - self._number, 1))
        self._ended, self._number = now, number
        self._costs.append(self._spent)
        self._total += self._spent
        self._spent = 0.0
        if self._total > GRACE_SECONDS and len(self._lasted) == KEPT:  # the first hooks cost most
            every = self._period(budget) if matters else 1
            if self._announced:
                self.every = every
            self._announced |= every > 1  # by the next step, which is timed: else the one after it would look whole
        self._next = next(each for each in itertools.count(number + 1) if is_chosen(each, self.every))
        self.on = self._next == number + 1

    def _period(self, budget: float) -> int:
        """The power of two that keeps the hooks within the budget.

        On a busy machine many steps have a hook that waits for a CPU, which is no cost: the cheaper ones tell that.
        """
        allowed = budget * median(self._lasted)
        cost, every = TIMES * sorted(self._costs)[len(self._costs) // 4], 1
        while every < MAX_EVERY and cost > allowed * every:
            every *= 2
        return every


def is_chosen(number: int, every: int) -> bool:
    """Return whether a step is among one in `every`, a power of two; steps are chosen as if by chance.

    A fixed distance would meet the same batches, the same evaluations and the same logging again and again.
    """
    mixed = number * 0x9E3779B1 & 0xFFFFFFFF
    mixed = (mixed ^ mixed >> 15) * 0x85EBCA77 & 0xFFFFFFFF
    return (mixed ^ mixed >> 13) & (every - 1) == 0
