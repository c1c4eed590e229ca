"""Loading that takes longer on a busy machine, judged by the fastest steps: waiting for a CPU only ever adds time."""

from collections import deque
from statistics import median
from typing import ClassVar

from stepscope.diagnosis.detector import Found, RunState, StepTimes, drop_rarest
from stepscope.diagnosis.detectors.throughput import LOSS, MIN_LOST_IN_ALL, MIN_LOST_SECONDS
from stepscope.diagnosis.finding import Finding, Kind, seconds
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


class BusyLoading:
    """Watches the loading of a run with one rank, and the time between its steps, while its machine is busy."""

    KINDS: ClassVar[tuple[Kind, ...]] = (LOSS,)

    def __init__(self, run: RunState) -> None:
        self._run = run
        self._last: StepTimes | None = None
        self._times: dict[str, deque[tuple[int, float, float]]] = {}
        self._found: set[str] = set()

    def step(self, times: StepTimes) -> Found:
        """Evaluate a step, together with the time since the one before it."""
        last, self._last = self._last, times
        if self._run.world > 1 or times.rare or self._run.evaluated(times.step):
            return ()
        own = {name: took for name, took in times.own.items() if traits(name).loading}
        if last is not None and last.step == times.step - 1 and not self._run.evaluated(last.step):
            own[BETWEEN] = (times.began - last.ended) / 1e9
        for name, took in own.items():
            known = self._times.get(name)
            if known is None:
                known = self._times[name] = deque(maxlen=AFTER + BEFORE)
            known.append((times.step, took, times.took))
        drop_rarest(self._times, MAX_NAMES, len)
        if times.step % EVERY or not self._run.busy(times.rank):
            return ()
        names = [name for name in own if name in self._times and name not in self._found]  # the rarest are dropped
        found = [self._judge(name, times) for name in names]
        return [each for each in found if each is not None]

    def _judge(self, name: str, times: StepTimes) -> Finding | None:
        known = list(self._times[name])
        if len(known) < AFTER + BEFORE:
            return None
        before, after = [each[1] for each in known[:BEFORE]], [each[1] for each in known[BEFORE:]]
        was, fastest = median(before), sorted(after)[int(FLOOR * AFTER)]
        if fastest < TIMES * was or fastest - was < MIN_LOST_SECONDS:  # most often
            return None
        now = median(after)
        if was > SMALL * median([each[2] for each in known[:BEFORE]]) or (now - was) * AFTER < MIN_LOST_IN_ALL:
            return None
        at = len(known) - AFTER
        while at > 0 and known[at - 1][1] > (was + fastest) / 2:
            at -= 1
        begun = known[at][0]
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
