"""Time inside steps: what each span took by itself on each rank, stalls with their period, stragglers, slow links."""

import math
import re
from collections import defaultdict, deque
from collections.abc import Iterator
from itertools import pairwise
from statistics import median

from stepscope.diagnosis.detector import Point, RunState
from stepscope.diagnosis.detectors.resources import Throughput
from stepscope.diagnosis.finding import Finding, seconds
from stepscope.diagnosis.roles import Role
from stepscope.diagnosis.series import Series, spread
from stepscope.model.records import Span

WAITING = re.compile(r"wait|barrier|all_?reduce|all_?gather|reduce_?scatter|broadcast|collective|grad_?sync|sync")
"""Spans in which ranks wait for each other: who is long in them is not who is late."""
SAVING = re.compile(r"checkpoint|save")
LOADING = re.compile(r"data|load(er|ing)?|fetch|input|batch_prep|tokeni[sz]e")
RARE = re.compile(r"eval|valid|checkpoint|save|compile|setup|init|test|warm")
OPEN_STEPS = 64
STALL_LOST = 0.5
"""A stall costs so much of a usual step..."""
STALL_SECONDS = 0.02
STALL_SIGMAS = 8.0
STALL_TIMES = 2.5
LEAST = 30
RENEW = 8
SLOWER = math.log(1.13)
SLOWER_STEPS = 24
LATE = math.log(1.3)
LATE_SHARE = 0.1
LATE_WINDOW = 240
LATE_LEAST = 6
BY_CHANCE = 1e-6
"""A rank is late more often than others when chance alone would make it so this seldom."""


class Timing:
    """Takes the spans of all ranks and judges each step when it is complete."""

    def __init__(self) -> None:
        self._open: dict[tuple[int, int], list[Span]] = {}
        self._stalls: dict[tuple[str, int], Stalls] = {}
        self._totals: dict[int, deque[float]] = defaultdict(lambda: deque(maxlen=100))
        self._steps: dict[int, dict[int, dict[str, float]]] = {}
        self._compare = Comparison()
        self._saves: dict[tuple[str, int], list[tuple[int, float]]] = defaultdict(list)
        self._grown: set[tuple[str, int]] = set()
        self._pace: dict[int, tuple[Series, Throughput]] = {}
        self.usual_step = 0.0

    def take(self, rank: int, span: Span, run: RunState) -> Iterator[Finding]:
        """Take a span that has ended."""
        if span.step is None or span.duration is None:
            return
        place = (rank, span.step)
        spans = self._open.setdefault(place, [])
        spans.append(span)
        if SAVING.search(span.name.lower()):
            yield from self._saved(rank, span)
        if span.parent_id is not None or not _is_step(span):
            if len(self._open) > OPEN_STEPS * max(run.world, 1):
                self._open.pop(next(iter(self._open)))
            return
        self._open.pop(place)
        yield from self._step(rank, span, _self_times(spans), run)

    def _step(self, rank: int, root: Span, own: dict[str, float], run: RunState) -> Iterator[Finding]:
        assert root.step is not None
        assert root.duration is not None
        total = root.duration / 1e9
        totals = self._totals[rank]
        usual = median(totals) if len(totals) >= 5 else total
        self.usual_step = usual
        end = root.time + root.duration
        rare = [name for name in own if RARE.search(name.lower())]
        for name, took in own.items():
            if WAITING.search(name.lower()) and run.world > 1:
                continue
            stalls = self._stalls.setdefault((name, rank), Stalls(name, rank))
            found = stalls.take(root.step, end, took, usual, run)
            if found is not None:
                yield found
        totals.append(total)
        if not rare:
            yield from self._slower(rank, root.step, end, total, run)
        if run.world > 1:
            row = self._steps.setdefault(root.step, {})
            row[rank] = own
            if len(row) >= run.world:
                del self._steps[root.step]
                yield from self._compare.take(root.step, end, row, usual, run)
            while len(self._steps) > OPEN_STEPS:
                self._steps.pop(min(self._steps))

    def _slower(self, rank: int, step: int, time: int, total: float, run: RunState) -> Iterator[Finding]:
        if rank not in self._pace:
            self._pace[rank] = (Series("time of a step", rank, Role("step_time")), Throughput(inverse=True))
        series, watch = self._pace[rank]
        point = Point(step, time, total, series.add(step, total))
        found = watch.take(series, point, run)
        if found is not None:
            yield found

    def _saved(self, rank: int, span: Span) -> Iterator[Finding]:
        assert span.step is not None
        assert span.duration is not None
        place = (span.name, rank)
        saves = self._saves[place]
        saves.append((span.step, span.duration / 1e9))
        del saves[:-64]
        took = [each for _, each in saves]
        if len(took) < 6 or place in self._grown:
            return
        rising = sum(b > a for a, b in pairwise(took)) / (len(took) - 1)
        if took[-1] < 1.8 * took[0] or rising < 0.8 or median(took[-2:]) < 1.4 * median(took[:3]):
            return
        self._grown.add(place)
        yield Finding(
            "checkpoint_growth",
            "WARN",
            f"{span.name} takes longer each time: {seconds(took[0])} at step {saves[0][0]}, "
            f"{seconds(took[-1])} at step {span.step}",
            step=saves[0][0],
            last=span.step,
            ranks=(rank,),
            span=span.name,
            value=took[-1],
            expected=(took[0] * 0.7, took[0] * 1.4),
            cause="the checkpoint grows, or the file system it is written to fills up",
            advice="Look at the size of checkpoints and at what is added to them.",
            time=span.time + span.duration,
            weight=took[-1] / took[0],
        )


def _is_step(span: Span) -> bool:
    return (
        "step" in span.name.lower()
        or "iteration" in span.name.lower()
        or span.name.lower().endswith(("update", "batch", "batch_processing"))
    )


def _self_times(spans: list[Span]) -> dict[str, float]:
    """The time of each span name without its children, in seconds."""
    inside: dict[bytes, int] = defaultdict(int)
    for span in spans:
        if span.parent_id is not None:
            inside[span.parent_id] += span.duration or 0
    own: dict[str, float] = defaultdict(float)
    for span in spans:
        own[span.name] += max((span.duration or 0) - inside[span.span_id], 0) / 1e9
    return dict(own)


class Stalls:
    """Watches the time of one span name on one rank: single stalls, and stalls that come with a period."""

    def __init__(self, name: str, rank: int) -> None:
        self._name, self._rank = name, rank
        self._logs: deque[float] = deque(maxlen=100)
        self._farthest = 0.0
        self._steps: list[int] = []
        self._lost = 0.0
        self._row = 0
        self._held: Finding | None = None
        self._middle = self._noise = 0.0
        self._learnt = RENEW

    def take(self, step: int, time: int, took: float, usual_step: float, run: RunState) -> Finding | None:
        """Judge one step; what was found is told with the next, when it is known what else was at that step."""
        held, self._held = self._held, None
        if held is not None and held.step is not None and _expected(run, held.step):
            self._steps.pop()
            held = None
        self._held = self._judge(step, time, took, usual_step)
        return held

    def _judge(self, step: int, time: int, took: float, usual_step: float) -> Finding | None:
        x = math.log(max(took, 1e-7))
        if len(self._logs) < LEAST:
            self._logs.append(x)
            if len(self._logs) == LEAST:
                self._farthest = max(self._logs) - median(self._logs)
            return None
        if self._learnt >= RENEW:
            self._learnt = 0
            self._middle, self._noise = median(self._logs), max(spread(self._logs), 0.02)
        usual, noise = self._middle, self._noise
        away = x - usual
        lost = took - math.exp(usual)
        limit = max(STALL_SIGMAS * noise, math.log(STALL_TIMES) if lost < usual_step else 0.5, 2.0 * self._farthest)
        if away < limit or lost < max(STALL_LOST * usual_step, STALL_SECONDS):
            self._farthest = max(self._farthest * 0.9995, away)
            self._logs.append(x)
            self._learnt += 1
            self._row = 0
            return None
        self._row += 1
        if self._row > 8:  # a new level, not a stall
            self._logs.append(x)
            return None
        if self._row > 1:
            return None
        self._steps.append(step)
        del self._steps[:-32]
        self._lost += lost
        period = _period(self._steps)
        if period is not None and len(self._steps) >= 4:
            return self._periodic(step, time, period, math.exp(usual))
        return self._single(step, time, took, math.exp(usual), limit)

    def _single(self, step: int, time: int, took: float, usual: float, limit: float) -> Finding:
        data = bool(LOADING.search(self._name.lower()))
        return Finding(
            "data_stall" if data else "slow_span",
            "WARN",
            f"{self._name} took {seconds(took)} at step {step}, usually {seconds(usual)}",
            step=step,
            last=step,
            ranks=(self._rank,),
            span=self._name,
            value=took,
            expected=(usual * math.exp(-limit), usual * math.exp(limit)),
            cause="the loop waited for data" if data else "something on that machine held it up",
            advice="More loader workers or prefetching; check the storage at that time."
            if data
            else "Look at the machine's load and the logs of that step.",
            time=time,
            weight=took / usual,
        )

    def _periodic(self, step: int, time: int, period: int, usual: float) -> Finding:
        data = bool(LOADING.search(self._name.lower()))
        return Finding(
            "periodic_stall",
            "WARN",
            f"{self._name} stalls every {period} steps since step {self._steps[0]}: {seconds(self._lost)} lost so far",
            step=self._steps[0],
            last=step,
            ranks=(self._rank,),
            span=self._name,
            value=self._lost / len(self._steps),
            expected=(0.0, usual * 2),
            cause="a buffer or shard that is refilled" if data else "work that comes every so many steps",
            advice="Prefetch across shard borders, or do that work beside the loop.",
            time=time,
            weight=float(len(self._steps)),
        )


def _expected(run: RunState, step: int) -> bool:
    """Whether an epoch or stage began at this step, or the attempt did."""
    if run.resumed is not None and abs(step - run.resumed) <= 2:
        return True
    return any(change.key.startswith("stage:") for change in run.changed(step - 1, step + 1))


def _period(steps: list[int]) -> int | None:
    """The distance between stalls, where it is about the same each time."""
    if len(steps) < 3:
        return None
    gaps = [b - a for a, b in pairwise(steps[-6:])]
    middle = median(gaps)
    return round(middle) if all(abs(gap - middle) <= max(0.1 * middle, 1) for gap in gaps) else None


def _chance(often: int, total: int, share: float) -> float:
    """How likely at least so many of all fall to one with this share, by chance."""
    return sum(math.comb(total, k) * share**k * (1 - share) ** (total - k) for k in range(often, total + 1))


class Comparison:
    """Compares the ranks of each step: who takes longer, always or now and then, and how long all of them wait."""

    def __init__(self) -> None:
        self._ratios: dict[tuple[str, int], deque[tuple[int, float, float]]] = defaultdict(
            lambda: deque(maxlen=SLOWER_STEPS)
        )
        self._late: dict[tuple[str, int], deque[int]] = defaultdict(lambda: deque(maxlen=64))
        self._seen: dict[str, int] = defaultdict(int)
        self._said: set[tuple[str, str, int]] = set()
        self._links: dict[str, tuple[Series, Throughput]] = {}

    def take(
        self, step: int, time: int, row: dict[int, dict[str, float]], usual: float, run: RunState
    ) -> Iterator[Finding]:
        """Judge a step that all ranks have ended."""
        names = set.intersection(*(set(own) for own in row.values()))
        for name in names:
            took = {rank: own[name] for rank, own in row.items()}
            if WAITING.search(name.lower()):
                yield from self._link(name, step, time, took, usual, run)
                continue
            if RARE.search(name.lower()):
                continue
            self._seen[name] += 1
            middle = median(took.values())
            for rank, mine in took.items():
                others = middle if len(took) > 2 else min(took.values())
                if others <= 0 or mine <= 0:
                    continue
                ratio, lost = math.log(mine / others), (mine - others) / max(usual, 1e-9)
                self._ratios[name, rank].append((step, ratio, lost))
                if ratio > LATE and lost > LATE_SHARE:
                    self._late[name, rank].append(step)
            slowest = max(took, key=lambda rank: took[rank])
            yield from self._judge(name, slowest, step, time, took)

    def _judge(self, name: str, rank: int, step: int, time: int, took: dict[int, float]) -> Iterator[Finding]:
        ratios = self._ratios[name, rank]
        if len(ratios) < SLOWER_STEPS:
            return
        recent = list(ratios)[-SLOWER_STEPS:]
        ratio, share = median(r for _, r, _ in recent), median(s for _, _, s in recent)
        if ratio > SLOWER and share > 0.03 and sum(r > SLOWER / 2 for _, r, _ in recent) > 0.85 * SLOWER_STEPS:
            yield from self._say("straggler", name, rank, recent[0][0], step, time, ratio, took)
            return
        late = [at for at in self._late[name, rank] if at > step - LATE_WINDOW]
        if len(late) < LATE_LEAST or self._seen[name] < 2 * SLOWER_STEPS:
            return
        everyone = sum(at > step - LATE_WINDOW for other in took for at in self._late[name, other])
        if _chance(len(late), everyone, 1 / len(took)) < BY_CHANCE:
            yield from self._say("intermittent_straggler", name, rank, late[0], step, time, LATE, took)

    def _say(
        self, kind: str, name: str, rank: int, begun: int, step: int, time: int, ratio: float, took: dict[int, float]
    ) -> Iterator[Finding]:
        if (kind, name, rank) in self._said or ("straggler", name, rank) in self._said:
            return
        self._said.add((kind, name, rank))
        others = median(each for at, each in took.items() if at != rank)
        how = "is slower than the others" if kind == "straggler" else "is slower than the others now and then"
        yield Finding(
            kind,
            "WARN",
            f"rank {rank} {how} since step {begun}: {name} takes {math.exp(ratio):.2f} times as long there",
            step=begun,
            last=step,
            ranks=(rank,),
            span=name,
            value=took[rank],
            expected=(others * 0.9, others * 1.1),
            cause="a slower GPU or machine, or more work on that rank",
            advice="Compare clocks, temperature and neighbours of that machine; check the size of its batches.",
            time=time,
            weight=ratio,
        )

    def _link(
        self, name: str, step: int, time: int, took: dict[int, float], usual: float, run: RunState
    ) -> Iterator[Finding]:
        """The last to arrive waits for nobody: its time is the link's."""
        fastest = max(min(took.values()), 1e-7)
        series, watch = self._links.setdefault(name, (Series(name, -1, Role("step_time")), Throughput(inverse=True)))
        found = watch.take(series, Point(step, time, fastest, series.add(step, fastest)), run)
        if found is None or found.value is None or found.expected is None:
            return
        if found.value - found.expected[1] < 0.02 * usual or found.value < 1.15 * found.expected[1]:
            return
        yield Finding(
            "slow_link",
            "WARN",
            f"{name} takes {seconds(found.value)} on every rank since step {found.step}, usually "
            f"{seconds(sum(found.expected) / 2)}",
            step=found.step,
            last=step,
            ranks=tuple(sorted(took)),
            span=name,
            value=found.value,
            expected=found.expected,
            cause="a slower link between the machines",
            advice="Check network counters and routes of the machines.",
            time=time,
            weight=found.weight,
        )
