"""Stragglers: ranks that are slower than the others, permanently or intermittently."""

import math
from collections import defaultdict, deque
from collections.abc import Collection
from statistics import median
from typing import ClassVar

from stepscope.diagnosis.detector import Found, RunState, StepTimes, drop_rarest
from stepscope.diagnosis.finding import Finding, Kind, seconds
from stepscope.diagnosis.series_history import exp
from stepscope.diagnosis.span_names import traits

_SLOW = "a slower GPU or machine, or more work on that rank"
_COMPARE = "Compare clocks, temperature and neighbours of that machine; check the size of its batches."
STRAGGLER = Kind(
    "straggler",
    "WARN",
    _SLOW,
    _COMPARE,
    explains=(
        *("throughput_loss", "slow_link", "intermittent_straggler", "gpu_idle", "data_stall", "slow_span"),
        "periodic_stall",
    ),
    lasts=True,
    rules_out="a slow link: the others wait for this rank, and it for none",
)
INTERMITTENT = Kind(
    "intermittent_straggler",
    "WARN",
    _SLOW,
    _COMPARE,
    explains=("data_stall", "slow_span", "throughput_loss", "slow_link", "periodic_stall"),
    lasts=True,
)
SLOWER = math.log(1.13)
STEPS = 24
"""A straggler is slower over this many steps."""
SHARE = 0.03
"""It costs this share of a step."""
SMALL_SLOWER, SMALL_SHARE = math.log(2.0), 0.25
"""Where fewer milliseconds than these are lost, it is so much slower and costs so much."""
MIN_LOST_SECONDS, SMALL_LOST_SECONDS = 0.003, 0.5
"""... and has cost this many in all."""
FLOOR = 0.1
"""Waiting for a CPU only ever adds time: the fastest tenth of a rank's steps tells what its own work takes."""
IN_A_ROW = 4
"""It must do so this many times in a row when it is judged."""
MANY_TIMES = math.log(10.0)
"""From here on the text has the seconds, not their ratio."""
BETWEEN = "the time between steps"
LATE = math.log(1.3)
LATE_SHARE = 0.1
LATE_WINDOW = 240
LATE_LEAST = 6
APART = 3
"""Late steps closer than this count once: on a busy machine they come in a row."""
ARRIVALS = STEPS + 8
"""The others must have waited for the same rank in nine of ten of so many steps; a slow span is found before that."""
ARRIVAL_SHARE = 0.15
"""... for this share of a step."""
WAITED = 0.25
"""Where collectives are recorded, the others wait for a straggler for this share of what it loses."""
MAX_NAMES = 1024
"""The most span names that are compared; the rarest are dropped."""
BY_CHANCE = 1e-6
"""The significance level of a rank being late more often than others."""


class Stragglers:
    """Compares the ranks of each step, span by span."""

    KINDS: ClassVar[tuple[Kind, ...]] = (STRAGGLER, INTERMITTENT)

    def __init__(self, run: RunState) -> None:
        self._run = run
        self._ratios: dict[tuple[str, int], deque[tuple[int, float, float, float]]]
        self._ratios = defaultdict(lambda: deque(maxlen=STEPS))
        """Of each of the last steps: how much slower than the others, the lost share of a step, and the seconds."""
        self._own: dict[int, deque[float]] = defaultdict(lambda: deque(maxlen=STEPS))
        """The seconds from step to step that each rank did not wait in collectives."""
        self._took: deque[float] = deque(maxlen=STEPS)
        self._ended: dict[int, tuple[int, int]] = {}
        """The last step of each rank, and when it ended."""
        self._late: dict[tuple[str, int], deque[tuple[int, float]]] = defaultdict(lambda: deque(maxlen=64))
        """The steps at which a rank began to be late, and how late it was."""
        self._latest: dict[tuple[str, int], int] = {}
        self._seen: dict[str, int] = defaultdict(int)
        self._reported: set[tuple[str, str, int]] = set()
        self._lateness: dict[int, deque[float]] = defaultdict(lambda: deque(maxlen=STEPS))
        """How much less than most each rank waited in the collectives of the last steps, in seconds."""
        self._slow: dict[tuple[str, int], int] = {}
        """How many times in a row a span was slow on a rank of a busy machine."""
        self._arrivals: deque[tuple[int, int, float, float]] = deque(maxlen=ARRIVALS)
        """Steps with the rank that the others waited for, for how long, and the share of the step."""
        self._cost: dict[tuple[str, int], float] = {}
        """The seconds that were lost in each span of a rank, or before collectives, while it was clearly slower."""

    def row(self, row: dict[int, StepTimes]) -> Found:
        """Evaluate a step that all ranks have finished."""
        found = []
        newest = max(row.values(), key=lambda times: times.ended)
        waited = {rank: _waited(times) for rank, times in row.items()}
        usual = median(waited.values())
        between = self._between(row)
        for rank, mine in waited.items():
            self._lateness[rank].append(usual - mine)
            self._own[rank].append(row[rank].took - mine + between.get(rank, 0.0))
        self._took.append(newest.took)
        if len(between) == len(row) and any(waited.values()):
            new = self._compare(BETWEEN, newest.step, newest.ended, between)
            found += [] if new is None else [new]
        for name in newest.own:
            about = traits(name)
            if about.waiting or about.rare:
                continue
            took = {rank: own for rank, times in row.items() if (own := times.own.get(name, 0.0)) > 0}
            if len(took) == len(row):
                new = self._compare(name, newest.step, newest.ended, took)
                if new is not None:
                    found.append(new)
        late = self._arrive(newest, row, waited)
        if late is not None:
            found.append(late)
        return found

    def _between(self, row: dict[int, StepTimes]) -> dict[int, float]:
        """Return the seconds between the step before and this one, for ranks that have ended both."""
        found = {}
        for rank, times in row.items():
            before, ended = self._ended.get(rank, (-1, 0))
            if before == times.step - 1:
                found[rank] = max((times.began - ended) / 1e9, 1e-6)
            self._ended[rank] = (times.step, times.ended)
        return found

    def _arrive(self, newest: StepTimes, row: dict[int, StepTimes], waited: dict[int, float]) -> Finding | None:
        """Judge who comes last to the collectives: all leave them together, so the last one waits least.

        It needs no common clock, and sees also time that is lost between two steps.
        """
        if len(waited) < 3:
            return None
        last = min(waited, key=lambda rank: waited[rank])
        others = median(each for rank, each in waited.items() if rank != last)
        lost = others - waited[last]
        self._arrivals.append((newest.step, last, lost, lost / max(newest.took, 1e-9)))
        recent = self._arrivals
        mine = [each for each in recent if each[1] == last]
        if len(recent) < ARRIVALS or len(mine) < 0.9 * ARRIVALS or median(share for *_, share in mine) < ARRIVAL_SHARE:
            return None
        if any(kind == STRAGGLER.name and rank == last for kind, _, rank in self._reported):
            return None
        usual = median(lost for _, _, lost, _ in mine)
        if self._run.busy(last) or self._is_small(SMALL_SLOWER, median(share for *_, share in mine)):
            return None
        if not self._adds_up(("", last), usual):
            return None
        times = max(row.values(), key=_waited)
        name = max((each for each in times.own if traits(each).waiting), key=lambda each: times.own[each])
        self._reported.add((STRAGGLER.name, name, last))
        begun = next(step for step, _, lost, _ in mine if lost > usual / 2)
        return STRAGGLER.finding(
            f"the other ranks have waited {seconds(usual)} a step for rank {last} since step {begun}, in {name}",
            newest.ended,
            step=begun,
            last=newest.step,
            ranks=(last,),
            span=name,
            value=usual,
            expected=(0.0, ARRIVAL_SHARE * newest.took),
            cause="that rank is slower in something that is no span: between steps, or in code that is not timed",
            advice="Put spans around what that rank does between its collectives, or look at its stack.",
            weight=usual / max(newest.took, 1e-9),
        )

    def _compare(self, name: str, step: int, time: int, took: dict[int, float]) -> Finding | None:
        self._seen[name] += 1
        if len(self._seen) > MAX_NAMES:
            self._forget(set(drop_rarest(self._seen, MAX_NAMES, int)))
        others = median(took.values()) if len(took) > 2 else min(took.values())
        usual = max(self._run.usual_step, 1e-9)
        slowest, most = -1, -math.inf
        for rank, mine in took.items():
            ratio, lost = math.log(mine / others), (mine - others) / usual
            self._ratios[name, rank].append((step, ratio, lost, mine))
            if ratio > LATE and lost > LATE_SHARE:
                if step - self._latest.get((name, rank), -APART) >= APART:
                    self._late[name, rank].append((step, ratio))
                self._latest[name, rank] = step
            if ratio > most:
                slowest, most = rank, ratio
        if most <= SLOWER / 2 or len(self._ratios[name, slowest]) < STEPS:
            return None
        return self._judge(name, slowest, step, time, took)

    def _forget(self, names: set[str]) -> None:
        for state in (self._ratios, self._late, self._latest, self._slow, self._cost):
            for place in [place for place in state if place[0] in names]:
                del state[place]

    def _judge(self, name: str, rank: int, step: int, time: int, took: dict[int, float]) -> Finding | None:
        if self._run.busy(rank):
            return self._judge_floor(name, rank, step, time, took)
        recent = self._ratios[name, rank]
        ratio, share = median([each[1] for each in recent]), median([each[2] for each in recent])
        if ratio > SLOWER and share > SHARE and sum(each[1] > SLOWER / 2 for each in recent) > 0.85 * STEPS:
            if not self._is_waited_for(rank, share) or self._is_small(ratio, share):
                return None
            if not self._adds_up((name, rank), share * self._run.usual_step):
                return None
            begun = next(each[0] for each in recent if each[1] > SLOWER)
            return self._finding(STRAGGLER, name, rank, begun, step, time, ratio, took)
        if name == BETWEEN:
            return None  # what one rank does between steps now and then, such as saving, is no fault
        late = [each for each in self._late[name, rank] if each[0] > step - LATE_WINDOW]
        if len(late) < LATE_LEAST or late[-1][0] != step or self._seen[name] < 2 * STEPS:
            return None
        everyone = sum(at > step - LATE_WINDOW for other in took for at, _ in self._late[name, other])
        if _chance(len(late), everyone, 1 / len(took)) < BY_CHANCE:
            often = median([ratio for _, ratio in late])
            return self._finding(INTERMITTENT, name, rank, late[0][0], step, time, often, took)
        return None

    def _judge_floor(self, name: str, rank: int, step: int, time: int, took: dict[int, float]) -> Finding | None:
        """Judge a rank on a busy machine, where any rank may be late at any step, by its fastest steps.

        A slow rank takes clearly longer in nearly all steps than the others in half of theirs, twice as long as these
        or four times as long as their fastest, and its fastest steps as a whole are longer than theirs, too. A rank
        that shares its CPU with other work for a moment is no straggler: it must be so in several steps.
        """
        recent = self._ratios[name, rank]
        others = [other for other in took if other != rank]
        usual = median([each[3] for other in others for each in self._ratios[name, other]])
        fastest = _floor([each[3] for each in recent])
        quick = median([_floor([each[3] for each in self._ratios[name, other]]) for other in others])
        lost = fastest - min(usual, quick)
        slow = fastest >= min(2 * usual, max(usual, 4 * quick))
        longer = _floor(self._own[rank]) - median([_floor(self._own[other]) for other in others])
        if not slow or lost < max(MIN_LOST_SECONDS, SHARE * _floor(self._took)) or longer < WAITED * lost:
            self._slow.pop((name, rank), None)
            return None
        self._slow[name, rank] = self._slow.get((name, rank), 0) + 1
        if self._slow[name, rank] < IN_A_ROW:
            return None
        begun = next(each[0] for each in recent if each[3] >= fastest)
        ratio = math.log(median([each[3] for each in recent]) / usual)
        return self._finding(STRAGGLER, name, rank, begun, step, time, ratio, took)

    def _is_waited_for(self, rank: int, share: float) -> bool:
        """Return whether a rank's lost share of a step makes others wait; True where no collective is recorded."""
        late = self._lateness[rank]
        if len(late) < STEPS or not any(late):
            return True
        return median(late) >= WAITED * share * self._run.usual_step

    def _is_small(self, ratio: float, share: float) -> bool:
        """Return whether what a rank loses is too little to tell."""
        return share * self._run.usual_step < MIN_LOST_SECONDS and (ratio < SMALL_SLOWER or share < SMALL_SHARE)

    def _adds_up(self, place: tuple[str, int], lost: float) -> bool:
        """Return whether what is lost in a step is no trifle, or was lost so often that it is none."""
        self._cost[place] = self._cost.get(place, 0.0) + lost
        return lost >= MIN_LOST_SECONDS or self._cost[place] >= SMALL_LOST_SECONDS

    def _finding(
        self, kind: Kind, name: str, rank: int, begun: int, step: int, time: int, ratio: float, took: dict[int, float]
    ) -> Finding | None:
        if (kind.name, name, rank) in self._reported or (STRAGGLER.name, name, rank) in self._reported:
            return None
        self._reported.add((kind.name, name, rank))
        others = median([each for at, each in took.items() if at != rank])
        often = "" if kind is STRAGGLER else " now and then"
        times = f"{name} takes {exp(ratio):.2f} times as long there"
        if ratio > MANY_TIMES:
            times = f"{name} takes {seconds(median(each[3] for each in self._ratios[name, rank]))} there"
            times += f", {seconds(others)} on the others"
        return kind.finding(
            f"rank {rank} has been slower than the others{often} since step {begun}: {times}",
            time,
            step=begun,
            last=step,
            ranks=(rank,),
            span=None if name == BETWEEN else name,
            value=took[rank],
            expected=(others * 0.9, others * 1.1),
            weight=ratio,
        )


def _waited(times: StepTimes) -> float:
    """Return the time that a rank spent in collectives in a step."""
    return sum(took for name, took in times.own.items() if traits(name).waiting)


def _floor(times: Collection[float]) -> float:
    """Return the time that the fastest tenth of some steps takes at most."""
    return sorted(times)[int(FLOOR * len(times))]


def _chance(often: int, total: int, share: float) -> float:
    """Return the probability that at least `often` of `total` fall to one with this share by chance."""
    return sum(math.comb(total, k) * share**k * (1 - share) ** (total - k) for k in range(often, total + 1))
