"""The starts of attempts: one that takes long, and what a restart costs in time and in steps computed again."""

from typing import ClassVar

from stepscope.diagnosis.detector import Found, RunState, Steps, StepTimes
from stepscope.diagnosis.finding import Finding, Kind, seconds
from stepscope.model.names import EVENT_STARTED
from stepscope.model.records import Event

SLOW_START = Kind(
    "slow_start",
    "INFO",
    "imports, data preparation, compilation or the loading of a checkpoint take long before the first step",
    "Look at the spans and logs before the first step; cache prepared data and compiled code.",
    expects="a first step soon after the start",
)
RESTART_COST = Kind(
    "restart_cost",
    "INFO",
    "time between the last step of one attempt and the first new step of the next: noticing, scheduling, loading, and "
    "steps since the last checkpoint that are computed again",
    "Save checkpoints more often, and keep the data and compiled code of the last attempt.",
    expects="a restart that continues where the last attempt ended",
)
START_SECONDS = 300.0
"""A first step that begins later than this is worth a remark..."""
START_STEPS = 20
"""... if so many steps would have fit into that time; so it is with the cost of a restart..."""
COST_SECONDS = 60.0
"""... from this time on."""


class AttemptStarts:
    """Watches when attempts start, and their first and last steps; the first rank that reports counts."""

    KINDS: ClassVar[tuple[Kind, ...]] = (SLOW_START, RESTART_COST)

    def __init__(self, run: RunState) -> None:
        self._run = run
        self._started = 0
        self._attempt = 0
        self._rank = -1
        self._first = 0
        """When the first step of this attempt began."""
        self._ended, self._reached = 0, -1
        """When the newest step of this attempt ended, and the furthest step."""
        self._before: tuple[int, int] | None = None
        """The same of the attempt before, until it is reached again."""

    def event(self, rank: int, event: Event) -> Found:
        """Note the first start of an attempt."""
        if event.name == EVENT_STARTED and self._run.attempt > self._attempt:
            if self._attempt and self._reached >= 0:
                self._before = self._ended, self._reached
            self._attempt, self._started = self._run.attempt, event.time
            self._rank, self._first = -1, 0
        return ()

    def usual(self, ahead: Steps) -> int:
        """Count all steps of an attempt that has come further than the one before."""
        if not self._attempt:
            return len(ahead.steps)
        starts = self._rank != ahead.rank or self._first or self._before is not None
        return 0 if starts else len(ahead.steps)

    def learn(self, taken: Steps) -> None:
        """Note the newest step."""
        if self._attempt:
            self._ended, self._reached = taken.ended[-1], max(self._reached, taken.steps[-1])

    def step(self, times: StepTimes) -> Found:
        """Evaluate the first step of an attempt, and the one with which it comes further than the last."""
        if not self._attempt or (self._rank not in (-1, times.rank)):
            return ()
        if self._rank == -1:
            self._rank, self._first = times.rank, times.began
        self._ended = times.ended
        if times.step > self._reached:
            self._reached = times.step
        found: list[Finding] = []
        if self._first and self._run.usual_step:
            first, self._first = self._first, 0
            found += self._start(times, first)
        if self._before is not None and times.step > self._before[1]:
            before, self._before = self._before, None
            found += self._cost(times, *before)
        return found

    def _start(self, times: StepTimes, first: int) -> Found:
        took = (first - self._started) / 1e9
        if took >= max(START_SECONDS, START_STEPS * self._run.usual_step):
            text = f"the first step of attempt {self._attempt} began {seconds(took)} after its start"
            yield self._remark(SLOW_START, text, times, took)

    def _cost(self, times: StepTimes, ended: int, reached: int) -> Found:
        took = (times.began - ended) / 1e9
        if took >= max(COST_SECONDS, START_STEPS * self._run.usual_step):
            waited = seconds(max(self._started - ended, 0) / 1e9)
            text = (
                f"the restart after step {reached} cost {seconds(took)} until step {times.step} began: "
                f"{waited} until attempt {self._attempt} started, the rest for its start and for steps computed again"
            )
            yield self._remark(RESTART_COST, text, times, took)

    def _remark(self, kind: Kind, text: str, times: StepTimes, took: float) -> Finding:
        return kind.finding(text, times.ended, step=times.step, value=took, attempt=self._attempt, weight=took)
