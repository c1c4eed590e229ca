"""Time lost between steps, where a callback or a plain loop has no span: loading, logging or saving."""

from collections import deque
from statistics import median
from typing import ClassVar, NamedTuple

from stepscope.diagnosis.detector import Found, RunState, Steps, StepTimes
from stepscope.diagnosis.detectors.throughput import (
    ALONE,
    BETWEEN,
    KEPT_STEPS,
    LOSS,
    MIN_LOST_IN_ALL,
    MIN_LOST_SECONDS,
    NAMED,
    TIMES_ALONE,
    Throughput,
)
from stepscope.diagnosis.finding import Finding, Kind, seconds
from stepscope.diagnosis.roles import Role
from stepscope.diagnosis.series_history import Series

CAUSE = "in this order: the loop waits for its next batch; logging, saving or a callback between two steps takes longer"
ADVICE = "Time the data loader with a span train.data_load, or with instrument(); add workers or prefetching."


class Cycle(NamedTuple):
    """A step with the time that passed before the next one began, in seconds."""

    step: int
    took: float
    gap: float


class BetweenSteps:
    """Watches the time from one step to the next of a run with one rank; ranks that wait are compared elsewhere."""

    KINDS: ClassVar[tuple[Kind, ...]] = (LOSS,)

    def __init__(self, run: RunState) -> None:
        self._run = run
        self._last: StepTimes | None = None
        self._series = Series(BETWEEN, 0, Role("step_time"))
        self._watch = Throughput.unweighed(self._series, run)
        self._kept: deque[Cycle] = deque(maxlen=KEPT_STEPS)
        self._reported = False

    def usual(self, ahead: Steps) -> int:
        """Count the next steps, until there are enough to be judged."""
        last = self._last
        return 0 if last is None or ahead.steps[0] != last.step + 1 else min(self._series.room, len(ahead.steps))

    def learn(self, taken: Steps) -> None:
        """Take steps that follow each other, each together with the one before it."""
        last, self._last = self._last, taken.last()
        if last is None:
            return
        steps, took = [last.step, *taken.steps[:-1]], [last.took, *taken.took[:-1]]
        ended = [last.ended, *taken.ended[:-1]]
        gaps = [max(began - end, 0) / 1e9 for began, end in zip(taken.began, ended, strict=True)]
        self._kept.extend(map(Cycle, steps, took, gaps))
        self._series.extend(steps, taken.began, [max(a + b, 1e-9) for a, b in zip(took, gaps, strict=True)])

    def step(self, times: StepTimes) -> Found:
        """Evaluate a step, together with the one before it."""
        last, self._last = self._last, times
        if self._run.world > 1 or last is None or times.step != last.step + 1:
            return ()
        if self._run.evaluated(last.step) or self._run.evaluated(times.step):
            return ()
        gap = max(times.began - last.ended, 0) / 1e9
        self._kept.append(Cycle(last.step, last.took, gap))
        if not self._series.add(last.step, times.began, max(last.took + gap, 1e-9)):
            return ()
        found = self._watch.take()
        if found is None:
            return ()
        if found.weight > 0:
            found = self._between(found)
            self._reported = found is not None
            return () if found is None else (found,)
        reported, self._reported = self._reported, False
        return (found,) if reported else ()

    def _between(self, found: Finding) -> Finding | None:
        """Return a slowdown that is between the steps, not in them; None for another."""
        begun = found.step or 0
        before = [each for each in self._kept if each.step < begun][-60:]
        after = [each for each in self._kept if each.step >= begun]
        if not before or not after:
            return None
        took, gap = (median([each.took for each in before]), median([each.gap for each in before]))
        takes, gaps = (median([each.took for each in after]), median([each.gap for each in after]))
        lost = gaps - gap
        if lost < NAMED * (takes + gaps - took - gap) or lost < MIN_LOST_SECONDS or lost * len(after) < MIN_LOST_IN_ALL:
            return None
        if self._run.busy(0) and not (gaps > TIMES_ALONE * gap and takes < ALONE * took):
            return None
        text = (
            f"steps begin every {seconds(takes + gaps)} since step {begun}, {seconds(took + gap)} before: the time "
            f"between two steps went from {seconds(gap)} to {seconds(gaps)}"
        )
        return LOSS.about(
            self._series, begun, text, found.expected or (0.0, 0.0), value=takes + gaps, cause=CAUSE, advice=ADVICE
        )
