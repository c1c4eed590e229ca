"""Loading that takes longer on a busy machine, judged by the fastest steps: waiting for a CPU only ever adds time."""

from collections import deque
from statistics import median
from typing import ClassVar

from stepscope.diagnosis.detector import Found, RunState, Steps, StepTimes, drop_rarest
from stepscope.diagnosis.detectors.throughput import LOSS, MIN_LOST_IN_ALL, MIN_LOST_SECONDS
from stepscope.diagnosis.finding import Finding, Kind, seconds
from stepscope.diagnosis.series_history import begun_at
from stepscope.diagnosis.span_names import traits

AFTER, BEFORE = 30, 60
"""The last steps, and as many before them as are compared with them."""
EVERY = 5
FLOOR = 0.1
"""The share of the steps that are the fastest."""
TIMES = 2.0
"""They take this many times as long as half of the steps before."""
SMALL = 0.3
"""Loading took less than this share of a step before: what computes all the time is slower in every step."""
MAX_NAMES = 64
BETWEEN = "the time between two steps"


def _is_slow(took: list[float]) -> bool:
    """Return whether the fastest of the last steps are much slower than half of those before, if there are enough."""
    if len(took) < AFTER + BEFORE:
        return False
    before, fastest = took[:BEFORE], _fastest(took[BEFORE:])
    if fastest - min(before) < MIN_LOST_SECONDS:  # most often
        return False
    was = median(before)
    return fastest >= TIMES * was and fastest - was >= MIN_LOST_SECONDS


def _fastest(took: list[float]) -> float:
    return sorted(took)[int(FLOOR * AFTER)]


class _Kept:
    """The last steps: what loading took in each, and the whole step."""

    __slots__ = ("steps", "took", "whole")

    def __init__(self) -> None:
        self.steps: deque[int] = deque(maxlen=AFTER + BEFORE)
        self.took: deque[float] = deque(maxlen=AFTER + BEFORE)
        self.whole: deque[float] = deque(maxlen=AFTER + BEFORE)


class BusyLoading:
    """Watches the loading of a run with one rank, and the time between its steps, while its machine is busy."""

    KINDS: ClassVar[tuple[Kind, ...]] = (LOSS,)

    def __init__(self, run: RunState) -> None:
        self._run = run
        self._last: StepTimes | None = None
        self._times: dict[str, _Kept] = {}
        self._found: set[str] = set()

    def usual(self, ahead: Steps) -> int:
        """Count the next steps after which loading is not slow, if the machine is busy."""
        last, count = self._last, len(ahead.steps)
        if last is None or last.step != ahead.steps[0] - 1:
            return 0
        own = self._own(ahead, last)
        if not all(name in self._times for name in own):
            return 0
        if not self._run.busy(ahead.rank):
            return count
        own = {name: [*self._times[name].took, *took] for name, took in own.items() if name not in self._found}
        for at in [at for at, step in enumerate(ahead.steps) if not step % EVERY]:
            if any(_is_slow(took[: len(took) - count + at + 1][-AFTER - BEFORE :]) for took in own.values()):
                return at
        return count

    def learn(self, taken: Steps) -> None:
        """Take steps after which nothing is found."""
        last, self._last = self._last, taken.last()
        if last is None:
            return
        for name, took in self._own(taken, last).items():
            known = self._times[name]
            known.steps.extend(taken.steps)
            known.took.extend(took)
            known.whole.extend(taken.took)

    def _own(self, steps: Steps, last: StepTimes) -> dict[str, list[float]]:
        """The times of loading in each step, and those between steps."""
        own = {name: took for name, took in steps.own.items() if traits(name).loading}
        ended = (last.ended, *steps.ended[:-1])
        return own | {BETWEEN: [(began - end) / 1e9 for began, end in zip(steps.began, ended, strict=True)]}

    def step(self, times: StepTimes) -> Found:
        """Evaluate a step, together with the time since the one before it."""
        last, self._last = self._last, times
        if self._run.world > 1 or times.rare or self._run.evaluated(times.step):
            return ()
        own = {name: took for name, took in times.own.items() if traits(name).loading}
        if last is not None and last.step == times.step - 1 and not self._run.evaluated(last.step):
            own[BETWEEN] = (times.began - last.ended) / 1e9
        names_before = len(self._times)
        for name, took in own.items():
            known = self._times.get(name)
            if known is None:
                known = self._times[name] = _Kept()
            known.steps.append(times.step)
            known.took.append(took)
            known.whole.append(times.took)
        if len(self._times) > names_before:
            drop_rarest(self._times, MAX_NAMES, lambda each: len(each.steps))
        if times.step % EVERY or not own or not self._run.busy(times.rank):
            return ()
        names = [name for name in own if name in self._times and name not in self._found]  # the rarest are dropped
        found = [self._judge(name, times) for name in names]
        return [each for each in found if each is not None]

    def _judge(self, name: str, times: StepTimes) -> Finding | None:
        known = self._times[name]
        took, steps = list(known.took), known.steps
        if not _is_slow(took):
            return None
        before, after = took[:BEFORE], took[BEFORE:]
        was, fastest, now = median(before), _fastest(after), median(after)
        if was > SMALL * median(list(known.whole)[:BEFORE]) or (now - was) * AFTER < MIN_LOST_IN_ALL:
            return None
        begun = steps[begun_at(took[: 1 - AFTER], lambda each: each > (was + fastest) / 2)]
        if self._run.changed(begun - 2, begun + 2, epochs=False):
            return None
        self._found.add(name)
        return LOSS.finding(
            f"{name} went from {seconds(was)} to {seconds(now)} at step {begun}, at least {seconds(fastest)} in nine "
            f"of ten steps; {self._run.busy(times.rank)}, which does not explain it",
            times.ended,
            step=begun,
            last=times.step,
            ranks=(times.rank,),
            span=None if name == BETWEEN else name,
            value=now,
            expected=(0.0, TIMES * was),
            cause="the loop waits for its next batch",
            advice="Add loader workers or prefetching; check what is done to each sample since that step.",
            weight=now / max(was, 1e-9),
        )
