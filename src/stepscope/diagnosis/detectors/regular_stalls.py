"""Stalls at every so many steps, however many, or of one span alone: told so from those of a busy machine."""

from bisect import bisect_left
from itertools import pairwise
from statistics import median
from typing import ClassVar, NamedTuple

from stepscope.diagnosis.detector import Found, RunState, Steps, StepTimes, drop_rarest, leading
from stepscope.diagnosis.detectors.stalls import DATA_STALL, PERIODIC, PERIODIC_COST, SLOW_SPAN
from stepscope.diagnosis.finding import Finding, Kind, seconds
from stepscope.diagnosis.span_names import traits

RENEW = 32
"""What is usual is the median of so many times, and estimated again after as many."""
LOST_STEPS, LOST_SECONDS = 2.0, 0.02
"""A stall costs so many usual steps and so many seconds more than usual."""
KEPT = 128
"""So many stalls of a span are kept; then the shorter half of them is forgotten."""
SHORTEST = 8
"""Steps that are fewer apart may be parts of one update."""
ALIKE = 3.0
"""Stalls of one row differ by this factor at most."""
LEAST = 5
"""A row has so many stalls..."""
BY_CHANCE = 1e-4
"""... and comes by chance less often than this, as often as stalls as long come in this span anyway."""
LOOSE, LOOSE_STEPS, APART_STEPS = 0.02, 2.0, 50
"""Stalls are as many seconds apart if they differ by this share or by so many steps, and are so many steps apart."""
LOOSEST, APART_SECONDS = 0.1, 1.0
COST_SECONDS = 0.5
WINDOW, OFTEN, MORE_OFTEN, ELSEWHERE, OFTEN_COST = 128, 8, 8.0, 4.0, 0.15
"""In so many steps there are so many stalls of a span, so many times as often as before and as in any other span, and
they cost this share of the time."""
OFTENEST = 0.5
"""More of the steps than this are a new level."""
MAX_NAMES, MAX_OF_RANK = 256, 16
"""The most pairs of span name and rank: the first, or the second for each rank. The rarest are dropped."""


_CLOCK = "something that goes by the clock: a backup, a scan, a log that is rotated, another job on the same storage"


class _Stall(NamedTuple):
    """What it took more than usual, in seconds, and when it began, in ns."""

    lost: float
    began: int


class RegularStalls:
    """Watches the self time of each span name on each rank for stalls that are a fixed number of steps apart.

    A busy machine delays steps too, and for as long: but hardly the same step of each hundred and twenty.
    """

    KINDS: ClassVar[tuple[Kind, ...]] = (PERIODIC, SLOW_SPAN, DATA_STALL)

    def __init__(self, run: RunState) -> None:
        self._run = run
        self._names: dict[tuple[str, int], _Name] = {}

    def usual(self, ahead: Steps) -> int:
        """Count the next steps in which no span stalls, until what is usual is estimated again."""
        count, rank = len(ahead.steps), ahead.rank
        for name, took in ahead.own.items():
            known = self._names.get((name, rank))
            count = min(count, 0 if known is None else known.usual_ones(took))
        return count

    def learn(self, taken: Steps) -> None:
        """Take steps in which no span stalls."""
        for name, took in taken.own.items():
            self._names[name, taken.rank].learn(took, self._run)

    def step(self, times: StepTimes) -> Found:
        """Evaluate a step of a rank."""
        found: list[Finding] = []
        for name, took in times.own.items():
            known = self._names.get((name, times.rank))
            if known is None:
                known = self._names[name, times.rank] = _Name(name, times.rank, times.step)
                drop_rarest(self._names, max(MAX_NAMES, MAX_OF_RANK * self._run.world), _Name.uses)
            if took < known.bound or not known.bound:
                known.learn([took], self._run)
            elif not known.done and not times.rare:
                new = known.stalled(times, took, self._run)
                if new is None:
                    new = known.more_often(times, self._others(name, times), self._run)
                if new is not None:
                    found.append(new)
        return found

    def _others(self, name: str, times: StepTimes) -> list["_Name"]:
        return [
            known for each in times.own if each != name and (known := self._names.get((each, times.rank))) is not None
        ]


class _Name:
    """One span name on one rank."""

    __slots__ = ("_all", "_floor", "_name", "_new", "_rank", "_stalls", "_usual", "bound", "count", "done", "first")

    def __init__(self, name: str, rank: int, first: int) -> None:
        self._name, self._rank = name, rank
        self._new: list[float] = []
        self._stalls: dict[int, _Stall] = {}
        """By step, in the order in which they came."""
        self._all, self._floor = 0, 0.0
        """How many stalls there were in all, and what the longest cost that is forgotten."""
        self._usual = self.bound = 0.0
        """What is usual, and from where on it is a stall, in seconds; 0 while they are not known."""
        self.count, self.first = 0, first
        self.done = traits(name).rare
        """Whether it was found, or says by its name what it does."""

    def uses(self) -> int:
        """Return how many times were taken."""
        return self.count

    def usual_ones(self, took: list[float]) -> int:
        """Count times that are no stall, until what is usual is estimated again."""
        some = took[: RENEW - len(self._new)]
        return leading(each < self.bound for each in some) if self.bound else 0

    def learn(self, took: list[float], run: RunState) -> None:
        """Learn from times that are no stall."""
        self.count += len(took)
        self._new += took
        if len(self._new) >= RENEW:
            self._usual = median(self._new)
            self.bound = self._usual + max(LOST_STEPS * run.usual_step, LOST_SECONDS)
            self._new = []

    def stalled(self, times: StepTimes, took: float, run: RunState) -> Finding | None:
        """Take a stall, and look for a row that it ends."""
        self.count, self._all = self.count + 1, self._all + 1
        self._stalls[times.step] = _Stall(took - self._usual, times.ended - int(took * 1e9))
        if len(self._stalls) > KEPT:
            longest = sorted(self._stalls, key=lambda step: self._stalls[step].lost)[KEPT // 2 :]
            kept = {step: self._stalls[step] for step in sorted(longest)}
            self._floor = max(self._floor, *(each.lost for step, each in self._stalls.items() if step not in kept))
            self._stalls = kept
        if times.step not in self._stalls:
            return None
        row = self._row(times.step) or self._row_in_time(times, run)
        return self._finding(row, times, run) if row and self._is_unexplained(row, run) else None

    def stalls(self, since: int, least: float) -> int:
        """Count the stalls since a step that cost so much."""
        return sum(each.lost >= least for step, each in self._stalls.items() if step >= since)

    def more_often(self, times: StepTimes, others: list["_Name"], run: RunState) -> Finding | None:
        """Tell of stalls that have become far more frequent in this span, and in no other."""
        window = [(step, each) for step, each in self._stalls.items() if step > times.step - WINDOW]
        before = times.step - WINDOW - self.first
        if len(window) < OFTEN or before < WINDOW // 2 or run.evaluated(times.step):
            return None
        begun, least = self._dense(window)
        count, since = self.stalls(begun, least), times.step - begun + 1
        earlier = self.stalls(0, least) - count
        usual = earlier / max(begun - self.first, 1)
        if count < OFTEN or count > OFTENEST * since or usual > count / since / MORE_OFTEN:
            return None
        if not others or any(each.stalls(begun, 0.5 * least) > count / ELSEWHERE for each in others):
            return None
        if run.busy(times.rank) and self._usual > ELSEWHERE * sum(each._usual for each in others):
            return None  # what takes most of the step is what a busy machine delays
        lost = sum(each.lost for step, each in window if step >= begun)
        share = lost / max((times.ended - self._stalls[begun].began) / 1e9, 1e-9)
        if share < OFTEN_COST or lost < 2 * COST_SECONDS or run.restaged(begun - 2, begun + 2):
            return None
        self.done = True
        loads = traits(self._name).loading
        each = median(each.lost for step, each in window if step >= begun)
        text = (
            f"{self._name} has stalled {count} times in {since} steps since step {begun}, {earlier} times in "
            f"{begun - self.first} before, by about {seconds(each)}: {share:.0%} of the time is lost"
        )
        return (DATA_STALL if loads else SLOW_SPAN).finding(
            text,
            times.ended,
            step=begun,
            last=times.step,
            ranks=(self._rank,),
            span=self._name,
            value=each,
            expected=(0.0, self.bound),
            cause="" if loads else "what this span waits for comes late now and then: a link, a lock, a remote service",
            weight=share * 100,
        )

    def _dense(self, window: list[tuple[int, _Stall]]) -> tuple[int, float]:
        """Return since when stalls come as often as lately, and what most of them cost at least."""
        ordered = sorted(each.lost for _, each in window)
        least = 0.5 * ordered[len(ordered) // 2]
        steps = [step for step, each in window if each.lost >= least]
        gaps = [b - a for a, b in pairwise(steps)]
        at = len(steps) - 1
        while at > 0 and gaps[at - 1] <= max(4 * median(gaps), 8):
            at -= 1
        return steps[at], least

    def _row(self, step: int) -> list[int]:
        """Return the longest row of stalls that ends with a step, the last first, if chance does not explain it."""
        stalls, best = self._stalls, [step]
        most = stalls[step].lost * ALIKE
        least = stalls[step].lost / ALIKE
        for before in stalls:
            apart, row = step - before, [step]
            if apart < SHORTEST or (len(best) - 1) * apart > step - next(iter(stalls)):
                continue
            while (each := stalls.get(row[-1] - apart)) is not None and least <= each.lost <= most:
                row.append(row[-1] - apart)
            if len(row) > len(best):
                best = row
        return best if len(best) >= LEAST and self._chance(best) < BY_CHANCE else []

    def _row_in_time(self, times: StepTimes, run: RunState) -> list[int]:
        """Return the longest row of stalls that are as many seconds apart, if chance does not explain it.

        What another program does each minute comes at any step.
        """
        stalls, newest, best, within = self._stalls, self._stalls[times.step], [times.step], 0.0
        known = [(step, each) for step, each in stalls.items() if ALIKE > each.lost / newest.lost > 1 / ALIKE]
        begins = [each.began for _, each in known]
        for step, each in known:
            apart, row, at = newest.began - each.began, [times.step], newest.began
            loose = max(LOOSE * apart, LOOSE_STEPS * run.usual_step * 1e9)
            if times.step - step < APART_STEPS or apart < APART_SECONDS * 1e9 or loose > LOOSEST * apart:
                continue
            if (len(best) - 1) * apart > newest.began - begins[0] + loose:
                continue
            while (place := bisect_left(begins, at - apart - loose)) < len(begins) and begins[
                place
            ] <= at - apart + loose:
                row.append(known[place][0])
                at = begins[place]
            if len(row) > len(best):
                best, within = row, 2 * loose
        if len(best) < LEAST:
            return []
        least, first = min(stalls[step].lost for step in best), stalls[best[-1]].began
        as_long = sum(each.began >= first and each.lost >= least for each in stalls.values())
        share = min(as_long * within / max(newest.began - first, 1), 1.0)
        return best if len(stalls) ** 2 * share ** (len(best) - 1) < BY_CHANCE else []

    def _chance(self, row: list[int]) -> float:
        """Return how many such rows would be expected if stalls as long came at random."""
        first, least = row[-1], min(self._stalls[step].lost for step in row)
        as_long = sum(step >= first and each.lost >= least for step, each in self._stalls.items())
        share = min(as_long / (row[0] - first + 1), 1.0)
        if least < self._floor:  # some as long are forgotten
            share = max(share, min(self._all / (row[0] - self.first + 1), 1.0))
        return float(len(self._stalls) ** 2 * share ** (len(row) - 1))

    def _is_unexplained(self, row: list[int], run: RunState) -> bool:
        """Return whether no evaluation, and no value that comes only there, says what is done at these steps."""
        if sum(bool(run.evaluated(step)) for step in row) >= len(row) / 2:
            return False
        apart, steps = row[0] - row[1], set(row)
        known = [
            each
            for each in run.series.values()
            if each.rank == self._rank and each.count > 2 and not each.key.startswith(("system/", "stepscope/"))
        ]
        if not any(each.spacing < 0.5 * apart for each in known):
            return True  # all values come at these steps, whatever is done there
        return not any(
            abs(each.spacing - apart) <= 0.05 * apart and 2 * len(steps.intersection(each.steps)) >= len(row)
            for each in known
        )

    def _finding(self, row: list[int], times: StepTimes, run: RunState) -> Finding | None:
        stalls, first, apart = self._stalls, row[-1], row[0] - row[1]
        lost = sum(stalls[step].lost for step in row[1:])
        since = (stalls[row[0]].began - stalls[first].began) / 1e9
        share = lost / max(since, 1e-9)
        if share < PERIODIC_COST or lost < COST_SECONDS:
            return None
        self.done = True
        name, each = self._name, median(stalls[step].lost for step in row)
        even = all(b - a == apart for b, a in pairwise(row))
        often = f"{apart} steps" if even else seconds(since / (len(row) - 1))
        text = (
            f"{name} has stalled every {often} since step {first}, {len(row)} times in a row by about "
            f"{seconds(each)}: {share:.1%} of the time is lost"
        )
        return PERIODIC.finding(
            text,
            times.ended,
            step=first,
            last=times.step,
            ranks=(self._rank,),
            span=name,
            value=each,
            expected=(0.0, self.bound),
            cause=_CLOCK if not even else "a buffer or shard that is refilled" if traits(name).loading else "",
            weight=float(len(row)),
        )
