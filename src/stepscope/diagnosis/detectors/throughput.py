"""Throughput loss: a falling throughput or longer steps, from some step on."""

import math
from collections import deque
from dataclasses import replace
from itertools import pairwise, repeat
from statistics import median
from typing import ClassVar, Literal, NamedTuple

from stepscope.diagnosis.detector import NO_PRESSURE, Found, RunState, Steps, StepTimes
from stepscope.diagnosis.finding import Finding, Kind, number, seconds
from stepscope.diagnosis.roles import Role
from stepscope.diagnosis.series_history import Series, exp, jitter, spread, trend
from stepscope.diagnosis.span_names import traits

LOSS = Kind(
    "throughput_loss",
    "WARN",
    "a slower machine (thermal throttling, other jobs, the network), or more work in each step",
    "Compare spans before and after that step.",
    explains=("throughput_loss", "gpu_idle", "slow_span"),
    lasts=True,
    rules_out="other work on the machine, where load and pressure are recorded",
)
BUSY = Kind(
    "busy_machine",
    "INFO",
    "other work on this machine takes the CPUs; the training itself did not change",
    "See what else runs there (top, the hub, other jobs); give the trainer its own cores.",
    explains=("slow_span", "busy_machine"),
    lasts=True,
    rules_out="a change of the training: the machine was short of CPU or memory meanwhile",
    next="ps -eo pcpu,pid,args --sort=-pcpu | head",
)
STEP = "time of a step"
BETWEEN = "time from step to step"
KEPT_STEPS = 200
MIN_LOST_SECONDS, MAX_TIMES = 0.003, 2.0
"""Steps that lose less than this each are a remark, unless they take so many times as long: caches, clocks and
neighbours of a machine shift short steps by a millisecond or two, for good."""
MIN_LOST_IN_ALL = 1.0
"""A slowdown is a remark until it has cost so many seconds: short steps on a shared machine vary for a while."""
NAMED = 0.6
"""A span explains a slowdown when it has this share of it..."""
TIMES_ALONE, ALONE = 3.0, 1.5
"""... and on a busy machine when it takes so many times as long, and the others less than so many times."""
FAR_MORE = 5.0
"""... or that many times as many times: a busy machine slows everything alike."""
REGRESSION = Kind(
    "slower_than_before",
    "WARN",
    "a change of code, configuration or machine since the earlier runs",
    "Compare configuration, code version and spans with an earlier run.",
)
EVEN_STEPS, EVEN_TIMES, UNEVEN = 20, 1.5, 0.3
"""Nine of ten of so many steps take so many times as long as nine of ten did before, and half of them hardly longer."""
UNFAIR, NOT_KNOWN = 1.5, 4.0
"""The first times the load of each CPU explains longer steps, and this much where the load is not known."""
UNCOVERED = (
    "it is in a part of the step that no span covers; in this order: the loop waits for its next batch; a lock, "
    "logging or writing; more computing in each step"
)
COVER = "Put a span around the loading (train.data_load) and around what else is in a step, or call instrument()."
SLOWER = 0.09
"""Less than this, in logarithms, is not reported."""
SIGMAS = 6.0
WIDTHS = (6, 12)
"""This many blocks are compared with as many before them."""
SMALL = 0.2
"""A smaller slowdown, in logarithms, is judged over the wider window only."""
COST = 0.01
"""A slowdown has cost this share of the run so far; one that is over and cost less is withdrawn."""
FURTHER = math.log(1.5)
"""After a slowdown, a further one is a finding of its own from this on, in logarithms."""
MIN_BLOCKS = 24
FEW_BLOCKS, FEW, TWICE = 8, 3, math.log(2)
"""With so few blocks only a slowdown by as much is seen, of so many of them."""
REGRESSED = math.log(1.15)
REGRESSION_STEPS = 50
EARLIER = 2
"""The number of earlier runs needed for a comparison."""


STEADY_BLOCKS, STEADILY, EVENLY, SAME_LOAD = 16, 0.75, 0.1, 1.15
"""Steps that get longer in so many blocks so steadily (Kendall's tau), by this share of it in each quarter, while the
load is at most so many times what it was, are not those of a busy machine."""
LONGER = 0.5
"""A length, or a number of tokens, whose trend (Kendall's tau) is above this is a reason for longer steps."""
CLOCK_LOST = 0.85
"""A clock of a GPU below this share of what it was is a reason for longer steps that the load is not."""


class Throughput:
    """Watches one throughput or step time metric."""

    KINDS: ClassVar[tuple[Kind, ...]] = (LOSS, BUSY)
    ROLES: ClassVar[tuple[str, ...]] = ("throughput", "step_time")
    HELD_OUT: ClassVar[bool | None] = False
    EACH: ClassVar[Literal["value", "block"]] = "block"

    __slots__ = ("_is_weighed", "_remark", "_reported", "_run", "_series", "_sign", "_times", "_was")

    def __init__(self, series: Series, run: RunState) -> None:
        self._series, self._run, self._is_weighed = series, run, True
        self._reported: Finding | None = None
        self._was = 0.0
        """The level before the reported slowdown."""
        self._sign = -1.0 if series.role.name == "step_time" else 1.0
        self._times: list[tuple[int, int]] = []
        """The last step of each of the newest blocks, and when it was."""
        self._remark: Finding | None = None
        """A slowdown that has cost too little so far to be more than a remark."""

    @classmethod
    def unweighed(cls, series: Series, run: RunState) -> "Throughput":
        """Watch a series whose slowdowns are weighed elsewhere."""
        watch = cls(series, run)
        watch._is_weighed = False
        return watch

    def take(self) -> Finding | None:
        """Compare the last blocks with those before."""
        series = self._series
        self._times.append((series.step, series.time))
        del self._times[:-KEPT_STEPS]
        least = FEW_BLOCKS if self._is_weighed else MIN_BLOCKS
        if len(series.middles) < least or not series.positive:
            return None
        before, few = self._reported, len(series.middles) < MIN_BLOCKS
        if few and self._run.reading("host_pressure", series.rank) >= NO_PRESSURE:
            return None  # on a machine that others use too, it takes more to tell
        if before is not None and (recovered := self._recovered(before)) is not None:
            self._remark = None
            return recovered
        for width in (FEW,) if few else WIDTHS:
            if before is not None and series.firsts[-2 * width] < (before.last or 0):
                continue
            found = self._judge(width, least=TWICE if few else 0.0 if before is None else FURTHER)
            if found is not None:
                self._reported = found
                return self._weighed(found)
        if (kept := self._remark) is not None and self._has_cost(kept):
            self._remark = None
            return replace(kept, last=series.step)
        return None

    def _weighed(self, found: Finding) -> Finding:
        """Make a slowdown a remark that costs little: in each step, or so far."""
        if found.kind != LOSS.name or not self._is_weighed or self._has_cost(found):
            return found
        self._remark = found
        return replace(found, severity="INFO")

    def _has_cost(self, found: Finding) -> bool:
        """Return whether a slowdown has lost enough time since, by the clock of the records."""
        begun = found.step or 0
        since = next((time for step, time in self._times if step >= begun), self._series.time)
        elapsed, steps = (self._series.time - since) / 1e9, max(self._series.step - begun, 1)
        lost = found.weight * elapsed
        if found.weight < 1 - 1 / MAX_TIMES and lost / steps < MIN_LOST_SECONDS:
            return False
        return lost >= MIN_LOST_IN_ALL

    def _recovered(self, found: Finding) -> Finding | None:
        """Withdraw a slowdown that is over and was short."""
        series = self._series
        recent = [self._sign * value for value in series.scaled[-WIDTHS[0] :]]
        since = sum(first >= (found.step or 0) for first in series.firsts)
        if median(recent) < self._was - 0.3 * SLOWER or since > len(series.firsts) * COST * 10:
            return None
        self._reported = None
        return LOSS.withdrawn(series, found.step or 0)

    def _judge(self, width: int, least: float) -> Finding | None:
        series, sign, scaled = self._series, self._sign, self._series.scaled
        if len(scaled) < 2 * width + 2:
            return None
        newest = min(sign * scaled[-1], sign * scaled[-2])
        if newest >= sign * scaled[-width - 1] or newest >= sign * scaled[-2 * width]:
            return None
        middles = [sign * value for value in scaled]
        before, after = middles[-2 * width : -width], middles[-width:]
        was, became, lowest = median(before), median(after), min(before)
        fell = was - became
        if (
            fell < max(SLOWER if width == WIDTHS[-1] else SMALL, least)
            or sum(value < lowest for value in after) < width - 1
        ):
            return None
        wide = max(spread(before), spread(after), jitter(middles) / 2, 0.002)
        steady = abs(median(after[: width // 2]) - median(after[width // 2 :])) < 0.5 * fell
        prior = sorted(middles[len(middles) // 5 : -width])
        usual_range = prior[-1 - len(prior) // 10] - prior[len(prior) // 10]
        if fell < usual_range or fell < SIGMAS * wide / math.sqrt(width) or not steady:
            return None
        begun = series.firsts[-width]
        if self._run.restaged(series.firsts[-width - 2], series.lasts[-width + 2]):
            return None
        self._was = was
        usual, now, lost = exp(sign * was), exp(sign * became), 1 - exp(became - was)
        low, high = sorted((usual * exp(-SIGMAS * wide), usual * exp(SIGMAS * wide)))
        text = f"{series.key} went from {number(usual)} to {number(now)} at step {begun}: {lost:.0%} slower since"
        busy = self._run.busy(series.rank)
        if busy and series.key not in (STEP, BETWEEN):
            return BUSY.about(series, begun, f"{text}; {busy}", (low, high), value=now, weight=lost)
        return LOSS.about(series, begun, text, (low, high), value=now, weight=lost)


class Kept(NamedTuple):
    """A step that is kept to name what a slowdown is in: its time, and that of each span, in seconds."""

    step: int
    took: float
    names: tuple[str, ...]
    times: tuple[float, ...]

    @property
    def own(self) -> dict[str, float]:
        """The time of each span."""
        return dict(zip(self.names, self.times, strict=True))


class Pace:
    """Watches the duration of step spans, except those with an evaluation or a checkpoint."""

    KINDS: ClassVar[tuple[Kind, ...]] = (LOSS, BUSY, REGRESSION)

    def __init__(self, run: RunState) -> None:
        self._run = run
        self._ranks: dict[int, tuple[Series, Throughput, deque[Kept]]] = {}
        self._remarks: dict[int, tuple[Finding, float, float]] = {}
        """Slowdowns that have cost little so far: the finding, the usual time of a step, and the time lost in each."""
        self._compared = False
        self._crept: set[int] = set()
        """Ranks of which it was told that each step takes longer than the one before."""

    def usual(self, ahead: Steps) -> int:
        """Count the next steps, until there are enough to be judged."""
        known = self._ranks.get(ahead.rank)
        return min(known[0].room, len(ahead.steps)) if known is not None else 0

    def learn(self, taken: Steps) -> None:
        """Take steps that complete no block."""
        series, _, kept = self._ranks[taken.rank]
        kept.extend(map(Kept, taken.steps, taken.took, repeat(tuple(taken.own)), zip(*taken.own.values(), strict=True)))
        series.extend(taken.steps, taken.ended, taken.took)

    def step(self, times: StepTimes) -> Found:
        """Evaluate a step of a rank."""
        if times.rare or self._run.evaluated(times.step):
            return ()
        known = self._ranks.get(times.rank)
        if known is None:
            series = Series(STEP, times.rank, Role("step_time"))
            watch = Throughput.unweighed(series, self._run)
            known = self._ranks[times.rank] = (series, watch, deque(maxlen=KEPT_STEPS))
        series, watch, kept = known
        if not times.partial:
            kept.append(Kept(times.step, times.took, tuple(times.own), tuple(times.own.values())))
        if not series.add(times.step, times.ended, times.took):
            return ()
        found = watch.take()
        if found is not None and found.weight > 0:
            return (self._weighed(self._explained(found, kept), kept),)
        if found is not None:
            self._remarks.pop(times.rank, None)
        found = found or self._grown(times) or self._regression(series) or self._creeps(times)
        return () if found is None else (found,)

    def _explained(self, found: Finding, kept: deque[Kept]) -> Finding:
        """Name the span behind a slowdown; on a busy machine a slowdown of all spans is the machine's."""
        before, after = _around(found, kept)
        busy = self._run.busy(found.ranks[0])
        if busy and (waits := _even_wait(found, before, after, self._most(found.ranks[0]))) is not None:
            return replace(waits, text=f"{waits.text}; {busy}, which does not explain it")
        if before and after:
            usual, now = (median([each.took for each in some]) for some in (before, after))
            names = {name for each in after for name in each.own}
            grown = {name: (_usual(before, name), _usual(after, name)) for name in names}
            top = max(names, key=lambda name: grown[name][1] - grown[name][0])
            was, became = grown[top]
            others = (now - became) / max(usual - was, 1e-9)
            alone = (others < ALONE or became > FAR_MORE * others * was) and became > TIMES_ALONE * was
            alone = alone and not traits(top).step
            if became - was > NAMED * (now - usual) and (alone or not busy):
                return _in_span(found, top, was, became, usual, now)
        if not busy:
            return found
        if why := self._unlike_load(found.ranks[0]):
            return replace(found, text=f"{found.text}; {busy}, which does not explain it", cause=why)
        return replace(
            found,
            kind=BUSY.name,
            severity=BUSY.severity,
            text=f"{found.text}; {busy}",
            cause=BUSY.cause,
            advice=BUSY.advice,
        )

    def _unlike_load(self, rank: int) -> str:
        """Return what makes steps longer that the load of the machine is no reason for; empty where it may be one."""
        run = self._run
        for each in run.of_role("gpu_clock", rank):
            if each.middles and (now := median(list(each.values)[-3:])) < CLOCK_LOST * max(each.middles):
                clock = f"the clock of a GPU went from {number(max(each.middles))} to {number(now)} MHz"
                return f"{clock} ({each.key}): heat, or a limit of its power"
        grown = _evenly_grown(self._ranks[rank][0].scaled)
        if not grown or not self._is_as_loaded(rank):
            return ""
        self._crept.add(rank)
        return f"{_CREEPS.format(exp(grown))}, and the load of the machine has not risen: {_SOMETHING}"

    def _is_as_loaded(self, rank: int) -> bool:
        """Return whether the load of the machine is known and is no higher than it was at first."""
        loads = self._run.of_role("host_load", rank)
        loaded = list(loads[0].values) if loads else []
        return bool(loaded) and median(loaded[-3:]) <= SAME_LOAD * median(loaded[: len(loaded) // 3 + 1])

    def _creeps(self, times: StepTimes) -> Finding | None:
        """Tell of steps that get longer one by one, where nothing is known that makes them larger."""
        rank, run = times.rank, self._run
        series = self._ranks[rank][0]
        if rank in self._crept or len(series.middles) < 2 * STEADY_BLOCKS or len(series.middles) % 4:
            return None
        grown = _evenly_grown(series.scaled)
        if (
            not grown
            or (run.busy(rank) and not self._is_as_loaded(rank))
            or run.restaged(series.first_step, times.step)
        ):
            return None
        longer = (each for role in ("length", "tokens", "stage") for each in run.of_role(role, rank))
        if any(trend(each.middles) > LONGER for each in longer if len(each.middles) > 3):
            return None
        part = len(series.middles) // 4
        was, now = median(series.middles[:part]), median(series.middles[-part:])
        if now - was < MIN_LOST_SECONDS or (now - was) * series.count / 2 < MIN_LOST_IN_ALL:
            return None
        self._crept.add(rank)
        text = (
            f"{STEP} has risen steadily from {seconds(was)} to {seconds(now)} since step {series.firsts[part]}, and at "
            f"no step by much"
        )
        cause = f"{_CREEPS.format(exp(grown))}: {_SOMETHING}"
        return LOSS.about(series, series.firsts[part], text, (was / 2, 1.2 * was), value=now, cause=cause, weight=grown)

    def _most(self, rank: int) -> float:
        """Return how many times as long steps take at most on a machine as busy as this one."""
        load, cpus = self._run.reading("host_load", rank), self._run.reading("host_cpus", rank)
        return max(UNFAIR * load / cpus, EVEN_TIMES) if load and cpus else NOT_KNOWN

    def _weighed(self, found: Finding, kept: deque[Kept]) -> Finding:
        """Make a slowdown a remark that costs little: in each step, or so far."""
        before, after = _around(found, kept)
        if found.kind != LOSS.name or not before or not after:
            return found
        usual, now = (median([each.took for each in some]) for some in (before, after))
        if now - usual < MIN_LOST_SECONDS and now < MAX_TIMES * usual:
            return replace(found, severity="INFO")
        if (now - usual) * len(after) < MIN_LOST_IN_ALL:
            self._remarks[found.ranks[0]] = found, usual, now - usual
            return replace(found, severity="INFO")
        return found

    def _grown(self, times: StepTimes) -> Finding | None:
        """Return a slowdown that was a remark, once it has lasted until it is worth more."""
        found, usual, lost = self._remarks.get(times.rank, (None, 0.0, 0.0))
        if found is None or (times.step - (found.step or 0)) * lost < MIN_LOST_IN_ALL:
            return None
        del self._remarks[times.rank]
        recent = median([each.took for each in list(self._ranks[times.rank][2])[-20:]]) - usual
        return replace(found, last=times.step) if 0.5 * lost < recent < 2 * lost else None

    def _regression(self, series: Series) -> Finding | None:
        """Compare the step time with earlier runs of the project."""
        earlier = self._run.earlier
        if self._compared or series.count < REGRESSION_STEPS or len(earlier) < EARLIER:
            return None
        self._compared = True
        now = median(series.middles)
        slower = slower_than_before(now, earlier)
        if slower is None:
            return None
        usual = median(earlier)
        text = f"a step takes {seconds(now)}, {slower:.2f} times as long as in the {len(earlier)} runs before"
        return REGRESSION.about(
            series, series.first_step, text, (min(earlier), max(earlier)), value=now, weight=now / usual
        )


_CREEPS = "each step takes a little longer than the one before, {:.1f} times as long by now"
_SOMETHING = "something grows with each step (a list, a graph, a table)"


def _evenly_grown(middles: list[float]) -> float:
    """Return by how much steps have become longer, in logarithms, if evenly from the start on; 0 otherwise."""
    if len(middles) < STEADY_BLOCKS or trend(middles) < STEADILY:
        return 0.0
    part = len(middles) // 4
    levels = [median(middles[at * part : (at + 1) * part]) for at in range(3)] + [median(middles[-part:])]
    grown = levels[-1] - levels[0]
    return 0.0 if grown < FURTHER or any(b - a < EVENLY * grown for a, b in pairwise(levels)) else grown


def slower_than_before(now: float, earlier: tuple[float, ...]) -> float | None:
    """Return how many times as long a step takes as in earlier runs; None when within their normal range.

    Takes the median step time of this run and of each earlier one, in seconds.
    """
    if len(earlier) < EARLIER or now <= 0 or min(earlier) <= 0:
        return None
    logs = [math.log(each) for each in earlier]
    away = math.log(now) - median(logs)
    if away < max(REGRESSED, 4 * spread(logs)) or now <= max(earlier) * 1.05:
        return None
    return exp(away)


def _around(found: Finding, kept: deque[Kept]) -> tuple[list[Kept], list[Kept]]:
    """Return the steps before a slowdown and those since."""
    begun = found.step or 0
    return [each for each in kept if each.step < begun][-60:], [each for each in kept if each.step >= begun]


def _usual(steps: list[Kept], name: str) -> float:
    return median([each.own.get(name, 0.0) for each in steps])


def _even_wait(found: Finding, before: list[Kept], after: list[Kept], most: float) -> Finding | None:
    """Return a slowdown by about the same time in every step; a busy machine delays steps unevenly."""
    if len(before) < EVEN_STEPS or len(after) < EVEN_STEPS:
        return None
    usual = sorted([each.took for each in before])
    limit = math.sqrt(usual[len(usual) // 2] * median([each.took for each in after]))
    since = next((at for at, each in enumerate(after) if each.took > limit), 0)
    took = sorted([each.took for each in after[since:]])
    fastest, now, was = took[len(took) // 10], took[len(took) // 2], usual[len(usual) // 2]
    slowest_before = usual[9 * len(usual) // 10]
    if len(took) < EVEN_STEPS or fastest < most * slowest_before or now - fastest > UNEVEN * now:
        return None
    if fastest - slowest_before < MIN_LOST_SECONDS:
        return None
    begun = after[since].step
    names = {name for each in after for name in each.own}
    grown = {name: (_usual(before, name), _usual(after[since:], name)) for name in names}
    top = max(names, key=lambda name: grown[name][1] - grown[name][0])
    if len(names) > 1 and now - grown[top][1] > ALONE * (was - grown[top][0]):
        return None  # all of the step is slower
    moved = _in_span(replace(found, step=begun), top, *grown[top], was, now)
    return replace(moved, text=f"{moved.text}, at least {seconds(fastest)} in nine of ten steps")


def _in_span(found: Finding, span: str, was: float, became: float, usual: float, now: float) -> Finding:
    """Return a slowdown that one span explains."""
    loading, uncovered = traits(span).loading, traits(span).step
    text = (
        f"a step takes {seconds(now)} since step {found.step}, {seconds(usual)} before: {span} went from "
        f"{seconds(was)} to {seconds(became)}"
    )
    return replace(
        found,
        text=text,
        span=span,
        cause=(
            "the loop waits for data"
            if loading
            else UNCOVERED
            if uncovered
            else f"{span} takes longer; the rest of the step does not"
        ),
        advice=(
            "Add loader workers or prefetching; check the storage and what is done to each sample since that step."
            if loading
            else COVER
            if uncovered
            else f"Profile {span} before and after that step."
        ),
    )
