"""Stalls: a span that takes much longer than usual, once or periodically."""

import math
from collections import deque
from itertools import pairwise
from statistics import median
from typing import ClassVar

from stepscope.diagnosis.detector import Found, RunState, Steps, StepTimes, drop_rarest, leading
from stepscope.diagnosis.finding import Finding, Kind, seconds
from stepscope.diagnosis.series_history import exp, middle_of, spread
from stepscope.diagnosis.span_names import traits

DATA_STALL = Kind(
    "data_stall",
    "WARN",
    "the loop waited for data",
    "Add loader workers or prefetching; check the storage at that time.",
    explains=("slow_span", "gpu_idle", "throughput_loss", "data_stall"),
    rules_out="slower computing: the time is in loading",
)
SLOW_SPAN = Kind(
    "slow_span",
    "WARN",
    "something on that machine delayed it",
    "Check the machine's load and the logs of that step.",
    explains=("slow_span",),
)
PERIODIC = Kind(
    "periodic_stall",
    "WARN",
    "work that recurs at a fixed interval of steps",
    "Prefetch across shard boundaries, or move that work out of the loop.",
    explains=("data_stall", "slow_span", "gpu_idle", "throughput_loss", "intermittent_straggler"),
    lasts=True,
)
LOST = 0.5
"""A stall costs this share of a median step..."""
LOST_SECONDS = 0.05
"""... and this many seconds..."""
COST = 0.001
"""... and this share of the run so far."""
ONCE_SECONDS = 0.5
"""A span other than loading that costs less, once, is a remark: any machine has such moments."""
BUSY_SECONDS, BUSY_COMPUTING_SECONDS = 1.0, 10.0
"""On a busy machine it costs so many seconds, in spans that load and in others..."""
BUSY_TIMES = 4.0
"""... and this many times the longest delay before it."""
MAX_BUSY_LOADING_SECONDS = 5.0
"""A busy machine explains no stall of a loader that is longer."""
PERIODIC_COST = 0.05
"""Work at a fixed interval that costs less than this share of the run is no fault."""
SIGMAS = 8.0
TIMES = 2.5
LEAST = 30
WINDOW = 100
NOISIEST = math.log(20.0)
"""A span that takes this many times its median, and twice its largest deviation, is a stall however noisy it is."""
COSTLY, COSTLY_TIMES = 3.0, 4.0
"""A stall that costs this many steps only has to take this many times longer than ever before."""
COLD = 2
"""The first steps of a run are warm-up and not used to estimate the normal range."""
RENEW = 8
"""The normal range is estimated again every this many steps, and a quarter as often once the window is full."""
DECAY = 0.9995
"""The decay of the longest duration with each step."""
PERSISTS = 8
"""After this many steps in a row it is a new level and not a stall."""
PERIODS = 4
MAX_NAMES, MAX_OF_RANK = 4096, 64
"""The most pairs of span name and rank: the first, or the second for each rank. The rarest are dropped."""


class Stalls:
    """Watches the self time of each span name on each rank."""

    KINDS: ClassVar[tuple[Kind, ...]] = (DATA_STALL, SLOW_SPAN, PERIODIC)

    def __init__(self, run: RunState) -> None:
        self._run = run
        self._names: dict[tuple[str, int], _Name] = {}
        self._farthest: dict[str, dict[int, float]] = {}

    def usual(self, ahead: Steps) -> int:
        """Count the next steps of which no span is long, at most until what is usual is estimated again."""
        count, rank = len(ahead.steps), ahead.rank
        for name, took in ahead.own.items():
            known = self._names.get((name, rank))
            count = min(count, 0 if known is None else count if known.left_out else known.usual_ones(took))
        return count

    def learn(self, taken: Steps) -> None:
        """Take steps of which no span is long."""
        for name, took in taken.own.items():
            known = self._names[name, taken.rank]
            if not known.left_out:
                known.learn_all(took)

    def step(self, times: StepTimes) -> Found:
        """Evaluate a step of a rank; findings are returned one step later, when all spans of the step are known."""
        found, run, several = [], self._run, self._run.world > 1
        for name, took in times.own.items():
            known = self._names.get((name, times.rank))
            if known is None:
                farthest = self._farthest.setdefault(name, {})
                known = _Name(name, times.rank, several and traits(name).waiting, farthest)
                self._names[name, times.rank] = known
                self._drop_rarest()
            if known.left_out:
                continue
            if known.usual and took < known.bound and known.held is None:
                known.learn(took)  # most often
                continue
            new = known.take(times.step, times.ended, took, run)
            if new is not None:
                found.append(new)
        return found

    def _drop_rarest(self) -> None:
        if drop_rarest(self._names, max(MAX_NAMES, MAX_OF_RANK * self._run.world), _Name.uses):
            left = {name for name, _ in self._names}
            self._farthest = {name: each for name, each in self._farthest.items() if name in left}


class _Name:
    """One span name on one rank."""

    __slots__ = (
        "_everywhere", "_excused", "_farthest", "_logs", "_longest", "_lost", "_name", "_new", "_noise", "_rank",
        "_renew_after", "_row", "_steps", "bound", "held", "left_out", "usual",
    )  # fmt: skip

    def __init__(self, name: str, rank: int, left_out: bool, everywhere: dict[int, float]) -> None:
        self._name, self._rank, self.left_out = name, rank, left_out
        self._everywhere = everywhere
        """The farthest that each rank was above its median in this span: what is usual for one is for the others."""
        self._logs: deque[float] = deque(maxlen=WINDOW)
        self._new: list[float] = []
        """Times that are not yet among the logarithms."""
        self._farthest = self._longest = 0.0
        """The farthest it was above its median, in logarithms and in seconds."""
        self._steps: list[int] = []
        self._excused = 0
        """Slow steps that an evaluation explained."""
        self._lost = 0.0
        self._row, self._renew_after = 0, RENEW
        self.held: Finding | None = None
        self.usual = self._noise = 0.0
        self.bound = 0.0
        """What takes less is usual in any case, in seconds."""

    def uses(self) -> int:
        """Return how many durations are kept."""
        return len(self._logs) + len(self._new)

    def usual_ones(self, took: list[float]) -> int:
        """Count durations that are neither a stall nor the longest so far, until what is usual is estimated again."""
        if not self.usual or self.held is not None:
            return 0
        some = took[: self._renew_after - len(self._new)]
        if (longest := max(some)) < self.bound and longest <= self._longest:
            return len(some)
        return leading(each < self.bound and each <= self._longest for each in some)

    def learn_all(self, took: list[float]) -> None:
        """Learn from durations that are usual."""
        self._new += took
        self._row = 0
        if len(self._new) >= self._renew_after:
            self._renew()

    def learn(self, took: float) -> None:
        """Learn from a normal duration."""
        new = self._new
        new.append(took)
        self._row = 0
        if len(new) >= self._renew_after:
            self._renew()
        elif took > self._longest:
            self._reach(math.log(took / self.usual))

    def _renew(self) -> None:
        logs, new = self._logs, [math.log(max(took, 1e-7)) for took in self._new]
        logs.extend(new)
        self._new = []
        ordered = sorted(logs)
        middle = middle_of(ordered)
        if not self.usual:
            new = new[COLD:]
            self._farthest = max(new) - middle
        self._farthest = max(self._farthest * DECAY ** len(new), max(new) - middle)
        self._renew_after = 4 * RENEW if len(logs) == WINDOW else RENEW
        self.usual, self._noise = exp(middle), max(spread(ordered), 0.02)
        self._reach(self._farthest)

    def _reach(self, farthest: float) -> None:
        """Set the largest deviation above the median."""
        self._farthest, self._longest = farthest, self.usual * exp(farthest)
        self._everywhere[self._rank] = farthest
        self.bound = self.usual * exp(max(min(SIGMAS * self._noise, NOISIEST), 0.5, self._beyond(COSTLY)))

    def take(self, step: int, time: int, took: float, run: RunState) -> Finding | None:
        """Evaluate a duration that may be a stall."""
        held, self.held = self.held, None
        if held is not None and held.step is not None and held.kind != PERIODIC.name and self._expected(held.step, run):
            self._steps.pop()
            held = None
        self.held = self._judge(step, time, took, run)
        return held

    def _expected(self, step: int, run: RunState) -> bool:
        """Return whether an attempt, epoch or stage began at this step, or an evaluation that is slow each time."""
        if run.resumed is not None and abs(step - run.resumed) <= 2:
            return True
        if run.restaged(step - 1, step + 1):
            return True
        if not run.evaluated(step) or run.evaluations_before(step) > self._excused + 1:
            return False
        self._excused += 1
        return True

    def _beyond(self, steps: float) -> float:
        """Return how far above the median a stall must be: much farther than ever, or less when it costs many steps."""
        ranks = self._everywhere.values()
        far = 2.0 * max(ranks)
        if steps < COSTLY:
            return far
        return min(far, max(self._farthest, median(ranks)) + math.log(COSTLY_TIMES))

    def _judge(self, step: int, time: int, took: float, run: RunState) -> Finding | None:
        usual_step = run.usual_step
        if not self.usual:
            self._new.append(took)
            if len(self._new) == LEAST:
                self._renew()
            return None
        away, lost = math.log(max(took, 1e-7) / self.usual), took - self.usual
        least = math.log(TIMES) if lost < usual_step else 0.5
        limit = max(min(SIGMAS * self._noise, NOISIEST), least, self._beyond(lost / max(usual_step, 1e-9)))
        elapsed = (time - run.begun) / 1e9
        if (
            away < limit
            or lost < max(LOST * usual_step, LOST_SECONDS, COST * elapsed)
            or self._is_of_machine(lost, run)
        ):
            self.learn(took)
            return None
        self._row += 1
        if self._row > PERSISTS:
            self._new.append(took)
            if len(self._new) >= RENEW:
                self._renew()
            return None
        if self._row > 1:
            return None
        self._steps.append(step)
        del self._steps[:-32]
        self._lost += lost
        period = _period(self._steps)
        if period is not None and len(self._steps) >= PERIODS:
            return self._periodic(step, time, period, run)
        return self._single(step, time, took, limit)

    def _is_of_machine(self, lost: float, run: RunState) -> bool:
        """Return whether a busy machine explains a delay: it delays everything now and then."""
        longest = max(self._longest - self.usual, 0.0)
        loads = traits(self._name).loading
        most = max(BUSY_SECONDS if loads else BUSY_COMPUTING_SECONDS, BUSY_TIMES * longest)
        return bool(run.busy(self._rank)) and lost < (min(most, MAX_BUSY_LOADING_SECONDS) if loads else most)

    def _single(self, step: int, time: int, took: float, limit: float) -> Finding:
        kind = DATA_STALL if traits(self._name).loading else SLOW_SPAN
        remark = kind is SLOW_SPAN and took - self.usual < ONCE_SECONDS
        return kind.finding(
            f"{self._name} took {seconds(took)} at step {step}, usually {seconds(self.usual)}",
            time,
            step=step,
            ranks=(self._rank,),
            span=self._name,
            value=took,
            expected=(self.usual * exp(-limit), self.usual * exp(limit)),
            severity="INFO" if remark else None,
            weight=took / self.usual,
        )

    def _periodic(self, step: int, time: int, period: int, run: RunState) -> Finding:
        begun = self._steps[0]
        share = self._lost / max((time - run.begun) / 1e9, 1e-9)
        known = "" if not traits(self._name).rare else "it says what it does by its name"
        held_out = next((key for each in reversed(self._steps[:-1]) if (key := run.evaluated(each))), "")
        known = f"{held_out} is recorded there: an evaluation" if held_out else known
        text = f"{self._name} takes longer every {period} steps since step {begun}"
        lost = f"{seconds(self._lost)} so far, {share:.1%} of the time"
        fault = not known and share >= PERIODIC_COST
        return PERIODIC.finding(
            f"{self._name} has stalled every {period} steps since step {begun}: {lost} lost"
            if fault
            else f"{text}: {lost}",
            time,
            step=begun,
            last=step,
            ranks=(self._rank,),
            span=self._name,
            value=self._lost / len(self._steps),
            expected=(0.0, self.usual * 2),
            cause=known or ("a buffer or shard that is refilled" if traits(self._name).loading else ""),
            severity="WARN" if fault else "INFO",
            weight=float(len(self._steps)),
        )


def _period(steps: list[int]) -> int | None:
    """Return the interval between stalls if it is about constant."""
    if len(steps) < 3:
        return None
    gaps = [b - a for a, b in pairwise(steps[-6:])]
    middle = median(gaps)
    return round(middle) if all(abs(gap - middle) <= max(0.1 * middle, 1) for gap in gaps) else None
