"""Slow loading: loading the data takes longer from some step on, and a good part of the step."""

from collections import deque
from statistics import median
from typing import ClassVar

from stepscope.diagnosis.detector import Found, RunState, Steps, StepTimes
from stepscope.diagnosis.detectors.published_limits import INPUT_BOUND
from stepscope.diagnosis.detectors.stalls import DATA_STALL
from stepscope.diagnosis.finding import Finding, Kind, seconds
from stepscope.diagnosis.roles import Role
from stepscope.diagnosis.series_history import Series
from stepscope.diagnosis.span_names import traits

BEFORE, AFTER = 8, 6
"""Blocks that are compared."""
TIMES = 2.0
SHARE = 0.1
"""What is lost is at least this share of a step."""
BOUND, BOUND_SECONDS, BOUND_BLOCKS = 0.4, 0.01, 20
"""Loading that has always taken this share of a step, and so many seconds, is reported after so many blocks."""
IN_EACH = 0.9
"""What is in fewer of the steps than this share is judged by its share of all of them."""
MAX_NAMES = 64
"""The most pairs of loading span and rank."""


class SlowLoading:
    """Watches the self time of spans that load data."""

    KINDS: ClassVar[tuple[Kind, ...]] = (DATA_STALL, INPUT_BOUND)

    def __init__(self, run: RunState) -> None:
        self._run = run
        self._names: dict[tuple[str, int], Series] = {}
        self._steps: dict[int, deque[float]] = {}
        self._reported: set[tuple[str, int]] = set()
        self._seen: dict[int, int] = {}
        """The steps of each rank, and..."""
        self._before: dict[tuple[str, int], int] = {}
        """... those before the first with such a span."""

    def usual(self, ahead: Steps) -> int:
        """Count the next steps, until there are enough to be judged."""
        places = [(name, ahead.rank) for name in ahead.own if _loads(name)]
        return min([len(ahead.steps), *[self._names[each].room if each in self._names else 0 for each in places]])

    def learn(self, taken: Steps) -> None:
        """Take steps that complete no block."""
        self._seen[taken.rank] = self._seen.get(taken.rank, 0) + len(taken.steps)
        steps = self._steps.get(taken.rank)
        for name, took in taken.own.items():
            if _loads(name) and steps is not None:
                steps.extend(taken.took)
                self._names[name, taken.rank].extend(taken.steps, taken.ended, [max(each, 1e-7) for each in took])

    def step(self, times: StepTimes) -> Found:
        """Evaluate a step of a rank."""
        found = []
        before = self._seen.get(times.rank, 0)
        self._seen[times.rank] = before + 1
        for name, took in times.own.items():
            if not _loads(name):
                continue
            place = (name, times.rank)
            series = self._names.get(place)
            if series is None:
                if len(self._names) >= MAX_NAMES:
                    continue
                series = self._names[place] = Series(name, times.rank, Role("phase_time"))
                self._before[place] = before
            steps = self._steps.setdefault(times.rank, deque(maxlen=50))
            steps.append(times.took)
            if series.add(times.step, times.ended, max(took, 1e-7)) and place not in self._reported:
                slow = self._judge(series, median(steps)) or self._always(series, median(steps))
                if slow is not None:
                    self._reported.add(place)
                    found.append(slow)
        return found

    def _often(self, series: Series) -> float:
        """Return in which share of the steps since the first one this is."""
        often = series.count / (self._seen[series.rank] - self._before[series.key, series.rank])
        return 1.0 if often >= IN_EACH else often

    def _always(self, series: Series, step_time: float) -> Finding | None:
        """Judge loading that takes a good part of every step since the start."""
        middles, often = series.middles, self._often(series)
        took = median(middles)
        others = min(self._run.usual_step, step_time) * (1 - often)
        share = took * often / max(step_time * often + others, 1e-9)
        if len(middles) < BOUND_BLOCKS or share < BOUND or sorted(middles)[len(middles) // 10] < BOUND_SECONDS:
            return None
        waits = self._run.reading("host_io_pressure", series.rank)
        where = f"of each step of {seconds(step_time)}" if often == 1.0 else f"in one of {1 / often:.0f} steps"
        return INPUT_BOUND.finding(
            f"{series.key} takes {seconds(took)} {where}, {share:.0%} of the time",
            series.time,
            step=series.first_step,
            last=series.step,
            ranks=(series.rank,),
            span=series.key,
            value=share,
            expected=(0.0, BOUND),
            cause=f"the storage is slow: tasks wait for it {waits:.0%} of the time" if waits > 0.3 else "",
            weight=share,
        )

    def _judge(self, series: Series, step_time: float) -> Finding | None:
        middles = series.middles
        if len(middles) < BEFORE + AFTER + 2:
            return None
        before, after = middles[-BEFORE - AFTER : -AFTER], middles[-AFTER:]
        was, became = median(before), median(after)
        lost = (became - was) * self._often(series)
        if min(after) < TIMES * max(before) or lost < SHARE * step_time or became < TIMES * max(middles[1:-AFTER]):
            return None
        begun = _begun(series, (was * became) ** 0.5)
        if self._run.restaged(begun - 2, begun + 2):
            return None
        text = (
            f"{series.key} takes {seconds(became)} since step {begun}, {seconds(was)} before: "
            f"{lost / step_time:.0%} of a step is lost"
        )
        return DATA_STALL.finding(
            text,
            series.time,
            step=begun,
            last=series.step,
            ranks=(series.rank,),
            span=series.key,
            value=became,
            expected=(0.0, TIMES * max(before)),
            cause="the loop waits for data: a slower storage or network, fewer workers, or more work for each sample",
            weight=lost / step_time,
        )


def _loads(name: str) -> bool:
    return traits(name).loading and not traits(name).rare


def _begun(series: Series, limit: float) -> int:
    """Return the first step of the blocks that are judged at which a value is above a limit."""
    first = series.firsts[-AFTER - 1]
    found = (step for step, value in zip(series.steps, series.values, strict=True) if step >= first and value > limit)
    return next(found, series.firsts[-AFTER])
