"""Clock skew: a constant offset between the start times of the same steps on different ranks."""

from collections import deque
from typing import ClassVar

from stepscope.diagnosis.detector import Found, RunState, StepTimes
from stepscope.diagnosis.finding import Kind, seconds
from stepscope.diagnosis.series_history import spread

SKEW = Kind("clock_skew", "WARN", "the machine's clock is not synchronized", "Start NTP or chrony on that machine.")
STEPS = 20
MIN_SECONDS = 0.2


class Clocks:
    """Compares start times across ranks: a constant offset of more than a step is due to the clock."""

    KINDS: ClassVar[tuple[Kind, ...]] = (SKEW,)

    def __init__(self, run: RunState) -> None:
        self._run = run
        self._away: dict[int, deque[float]] = {}
        self._reported: set[int] = set()
        self.skews: dict[int, float] = {}
        """By how many seconds clocks are ahead, where they are."""

    def row(self, row: dict[int, StepTimes]) -> Found:
        """Evaluate a step that all ranks have finished."""
        middle = sorted(times.began for times in row.values())[(len(row) - 1) // 2]
        usual, found = self._run.usual_step, []
        least = max(1.5 * usual, MIN_SECONDS)
        for rank, times in row.items():
            away = self._away.get(rank)
            if away is None:
                away = self._away[rank] = deque(maxlen=STEPS)
            mine = (times.began - middle) / 1e9
            away.append(mine)
            if -least < mine < least or rank in self._reported or len(away) < STEPS:
                continue
            skew = sorted(away)[STEPS // 2]
            if abs(skew) < least or spread(away) > 0.1 * abs(skew):
                continue
            self._reported.add(rank)
            self.skews[rank] = skew
            text = f"the clock of rank {rank} is {seconds(abs(skew))} {'ahead of' if skew > 0 else 'behind'} the others"
            made = SKEW.finding(
                text,
                times.began,
                step=times.step,
                ranks=(rank,),
                value=skew,
                expected=(-usual, usual),
                weight=abs(skew),
            )
            found.append(made)
        return found
