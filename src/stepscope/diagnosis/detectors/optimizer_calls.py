"""An optimizer that is no longer called: backward passes go on, and its spans do not come any more."""

import re
from functools import lru_cache
from typing import ClassVar

from stepscope.diagnosis.detector import Found, RunState, Steps, StepTimes
from stepscope.diagnosis.detectors.execution import FROZEN
from stepscope.diagnosis.finding import Finding, Kind

CALLED, MISSED, GAPS = 20, 20, 5
"""After so many steps with a call it is missed in so many with a backward pass, and in so many of its longest gaps."""
MAX_RANKS = 4096
_CALLS = re.compile(r"optim")
_BACKWARD = re.compile(r"backward")
NOT_CALLED = (
    "optimizer.step() is not called: a condition that no longer holds, a count of accumulated gradients that never "
    "comes to its end, a loss scaler that skips every step, or another model is trained than the one that is stepped"
)
CALL = (
    "Look at what decides whether optimizer.step() runs, from that step on; compare a weight before and after a step."
)


class _Rank:
    """The calls that one rank has made, and how many steps with a backward pass came since the last one."""

    __slots__ = ("called", "gap", "missed", "reported", "since")

    def __init__(self) -> None:
        self.called = self.gap = self.missed = self.since = 0
        self.reported = False

    @property
    def enough(self) -> int:
        """How many steps in a row without a call are too many."""
        return max(MISSED, GAPS * self.gap)


class OptimizerCalls:
    """Watches which steps have a span of the optimizer, of those with one of a backward pass."""

    KINDS: ClassVar[tuple[Kind, ...]] = (FROZEN,)

    def __init__(self, run: RunState) -> None:
        self._ranks: dict[int, _Rank] = {}

    def usual(self, ahead: Steps) -> int:
        """Count the next steps in which nothing is found."""
        count, rank = len(ahead.steps), self._ranks.get(ahead.rank)
        calls, passes = _seen(tuple(ahead.own))
        if calls or not passes or rank is None or rank.reported or rank.called < CALLED:
            return count
        return min(count, max(rank.enough - rank.missed - 1, 0))

    def learn(self, taken: Steps) -> None:
        """Take steps in which nothing is found."""
        self._take(taken.rank, *_seen(tuple(taken.own)), taken.steps[0], len(taken.steps))

    def step(self, times: StepTimes) -> Found:
        """Evaluate a step of a rank."""
        if times.partial:
            return ()
        rank = self._take(times.rank, *_seen(tuple(times.own)), times.step, 1)
        if rank is None or rank.reported or rank.called < CALLED or rank.missed < rank.enough:
            return ()
        rank.reported = True
        return (self._finding(rank, times),)

    def _take(self, number: int, calls: bool, passes: bool, first: int, count: int) -> _Rank | None:
        rank = self._ranks.get(number)
        if rank is None:
            if not calls or len(self._ranks) >= MAX_RANKS:
                return None
            rank = self._ranks[number] = _Rank()
        if calls:
            rank.gap = max(rank.gap, rank.missed + 1)
            rank.called += count
            rank.missed = 0
        elif passes:
            if rank.missed == 0:
                rank.since = first
            rank.missed += count
        return rank

    def _finding(self, rank: _Rank, times: StepTimes) -> Finding:
        often = f"at least every {rank.gap} steps" if rank.gap > 1 else "in every step"
        return FROZEN.finding(
            f"the optimizer has not been called since step {rank.since}, in {rank.missed} steps with a backward pass; "
            f"before it was called {often}",
            times.ended,
            step=rank.since,
            last=times.step,
            ranks=(times.rank,),
            expects=f"a call of the optimizer {often}",
            cause=NOT_CALLED,
            advice=CALL,
        )


@lru_cache(maxsize=256)
def _seen(names: tuple[str, ...]) -> tuple[bool, bool]:
    """Return whether a step has a span of the optimizer, and one of a backward pass."""
    lower = [name.lower() for name in names]
    return any(map(_CALLS.search, lower)), any(map(_BACKWARD.search, lower))
