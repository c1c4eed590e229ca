"""Ranks beside each other: values that should agree, settings that should be the same, clocks, hangs and deaths."""

from collections import Counter, defaultdict, deque
from collections.abc import Iterator
from statistics import median
from typing import Any

from stepscope.diagnosis.detector import RunState
from stepscope.diagnosis.finding import Finding, number, on_ranks, seconds
from stepscope.diagnosis.series import spread
from stepscope.diagnosis.timing import RARE, WAITING
from stepscope.model.records import Span

AGREE = 20
"""A metric that was the same on all ranks at so many steps is expected to stay so."""
DIFFER = 3
SKEW_STEPS = 20
HANG_SECONDS = 10.0
HANG_STEPS = 5.0
PATIENCE = 4.0
"""A span that may be long (an evaluation, a checkpoint) is waited for so many times its longest."""
FIRST_PATIENCE = 120.0
VARY = frozenset(
    (
        "seed",
        "rank",
        "local_rank",
        "host",
        "hostname",
        "device",
        "pid",
        "node_rank",
        "gpu",
        "shard",
        "data_seed",
        "worker_id",
        "log_dir",
    )
)
"""Settings that may differ between ranks."""


class Agreement:
    """Watches metrics that ranks report at the same steps."""

    def __init__(self) -> None:
        self._rows: dict[str, dict[int, dict[int, float]]] = defaultdict(dict)
        self._same: Counter[str] = Counter()
        self._odd: dict[str, list[tuple[int, int]]] = defaultdict(list)
        self._said: set[str] = set()

    def take(self, key: str, rank: int, step: int, time: int, value: float, run: RunState) -> Iterator[Finding]:
        """Take a value, and judge its step when all ranks have reported it."""
        if run.world < 2 or key in self._said:
            return
        rows = self._rows[key]
        row = rows.setdefault(step, {})
        row[rank] = value
        if len(rows) > 16:
            del rows[min(rows)]
        if len(row) < run.world:
            return
        rows.pop(step, None)
        usual = Counter(row.values()).most_common(1)[0][0]
        odd = [at for at, mine in row.items() if abs(mine - usual) > 1e-6 * max(abs(usual), abs(mine), 1e-12)]
        if not odd:
            self._same[key] += 1
            self._odd[key].clear()
        elif self._same[key] < AGREE:
            self._same[key] = 0
        else:
            yield from self._differs(key, step, time, odd, row, usual, run)

    def _differs(
        self, key: str, step: int, time: int, odd: list[int], row: dict[int, float], usual: float, run: RunState
    ) -> Iterator[Finding]:
        self._odd[key].append((step, odd[0]))
        if len(self._odd[key]) < DIFFER:
            return
        self._said.add(key)
        begun = self._odd[key][0][0]
        ranks = tuple(sorted(odd)) if len(odd) < run.world - 1 or run.world == 2 else ()
        who = on_ranks(ranks, run.world) or " between ranks"
        yield Finding(
            "desync",
            "ERROR",
            f"{key} no longer agrees{who} since step {begun}: {number(row[odd[0]])} beside {number(usual)}",
            step=begun,
            last=step,
            ranks=ranks,
            key=key,
            value=row[odd[0]],
            expected=(usual, usual),
            cause="weights differ between ranks: a missed or failed collective, or different inputs to the optimizer",
            advice="Compare parameter checksums across ranks; restart from the last checkpoint at which they agree.",
            time=time,
            weight=2.0,
        )


class Settings:
    """Compares what each rank said when it started."""

    def __init__(self) -> None:
        self._said: set[str] = set()
        self._known: dict[int, dict[str, Any]] = {}

    def take(self, rank: int, time: int, started: dict[str, Any], run: RunState) -> Iterator[Finding]:
        """Take the settings of a rank."""
        self._known[rank] = dict(_flat(started))
        if len(self._known) < max(run.world, 2):
            return
        for name in sorted(set.union(*(set(each) for each in self._known.values()))):
            if name.rsplit(".", 1)[-1].lower() in VARY or name in self._said:
                continue
            values = {at: repr(each.get(name)) for at, each in self._known.items()}
            usual, often = Counter(values.values()).most_common(1)[0]
            odd = tuple(sorted(at for at, value in values.items() if value != usual))
            if not odd:
                continue
            self._said.add(name)
            code = any(word in name for word in ("commit", "version", "git", "code"))
            yield Finding(
                "code_differs" if code else "config_differs",
                "WARN",
                f"{name} is {values[odd[0]]}{on_ranks(odd, run.world)} and {usual} elsewhere",
                step=None,
                ranks=odd if often > len(odd) or len(odd) == 1 else tuple(sorted(values)),
                key=name,
                cause="ranks were started with different code"
                if code
                else "ranks were started with different settings",
                advice="Start all ranks with the same code and settings.",
                time=time,
                weight=1.0,
            )


def _flat(settings: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in settings.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


class Clocks:
    """Watches when ranks begin the same step: a steady distance of more than a step is the clock's."""

    def __init__(self) -> None:
        self._starts: dict[int, dict[int, int]] = {}
        self._away: dict[int, deque[float]] = defaultdict(lambda: deque(maxlen=SKEW_STEPS))
        self._said: set[int] = set()

    def take(self, rank: int, span: Span, usual_step: float, run: RunState) -> Iterator[Finding]:
        """Take the root span of a step."""
        if run.world < 2 or span.step is None or span.duration is None:
            return
        row = self._starts.setdefault(span.step, {})
        row[rank] = span.time
        if len(self._starts) > 64:
            del self._starts[min(self._starts)]
        if len(row) < run.world:
            return
        self._starts.pop(span.step, None)
        middle = sorted(row.values())[(len(row) - 1) // 2]
        for at, began in row.items():
            self._away[at].append((began - middle) / 1e9)
            yield from self._judge(at, span, usual_step)

    def _judge(self, rank: int, span: Span, usual_step: float) -> Iterator[Finding]:
        away = self._away[rank]
        if len(away) < SKEW_STEPS or rank in self._said:
            return
        skew = median(away)
        if abs(skew) < max(1.5 * usual_step, 0.2) or spread(away) > 0.1 * abs(skew):
            return
        self._said.add(rank)
        yield Finding(
            "clock_skew",
            "WARN",
            f"the clock of rank {rank} is {seconds(abs(skew))} {'ahead of' if skew > 0 else 'behind'} the others",
            step=span.step,
            last=span.step,
            ranks=(rank,),
            value=skew,
            expected=(-usual_step, usual_step),
            cause="the machine's clock is not synchronized",
            advice="Start NTP or chrony on that machine.",
            time=span.time,
            weight=abs(skew),
        )


class Presence:
    """Watches who is silent: ranks that wait in an open span, ranks that never arrived, ranks that are gone."""

    def __init__(self) -> None:
        self._last: dict[int, int] = {}
        self._step: dict[int, int] = {}
        self._open: dict[int, dict[bytes, Span]] = defaultdict(dict)
        self._longest: dict[str, float] = {}
        self._ended: set[int] = set()
        self._hung_at: int | None = None
        self._dead: set[int] = set()

    def moved(self, rank: int, time: int, step: int | None) -> None:
        """A rank made progress: it finished a span or recorded a value at a step."""
        if step is None:
            return
        self._last[rank] = max(time, self._last.get(rank, 0))
        self._step[rank] = max(step, self._step.get(rank, step))
        self._hung_at = None

    def opened(self, rank: int, span: Span) -> None:
        """A span has been open for long."""
        self._open[rank][span.span_id] = span

    def closed(self, rank: int, span: Span) -> None:
        """A span has ended."""
        self._open[rank].pop(span.span_id, None)
        took = (span.duration or 0) / 1e9
        self._longest[span.name] = max(took, self._longest.get(span.name, 0.0))

    def ended(self, rank: int) -> None:
        """A rank said that it ended."""
        self._ended.add(rank)

    def gone(self, rank: int) -> None:
        """A rank's process is gone: nobody waits for it."""
        self._dead.add(rank)

    def tick(self, now: int, usual_step: float, run: RunState) -> Iterator[Finding]:
        """Judge silence: nobody has made progress for longer than ever before."""
        living = [rank for rank in self._last if rank not in self._ended and rank not in self._dead]
        if not living or self._hung_at is not None or usual_step <= 0:
            return
        quiet = (now - max(self._last[rank] for rank in living)) / 1e9
        if quiet < max(min(HANG_SECONDS, HANG_STEPS * usual_step), 3 * usual_step, 1.0):
            return
        inside = {rank: _innermost(self._open.get(rank, {})) for rank in living}
        if any(span is not None and quiet < self._patience(span) for span in inside.values()):
            return
        waiting = tuple(
            sorted(rank for rank, span in inside.items() if span is not None and WAITING.search(span.name.lower()))
        )
        missing = tuple(rank for rank in sorted(living) if rank not in waiting)
        if not waiting and all(span is None for span in inside.values()) and quiet < 3 * HANG_SECONDS:
            return
        self._hung_at = now
        yield self._hang(now, quiet, waiting, missing, inside)

    def _patience(self, span: Span) -> float:
        if WAITING.search(span.name.lower()):
            return 0.0
        longest = self._longest.get(span.name)
        rare = bool(RARE.search(span.name.lower()))
        return PATIENCE * longest if longest is not None and rare else FIRST_PATIENCE if rare else 0.0

    def _hang(
        self, now: int, quiet: float, waiting: tuple[int, ...], missing: tuple[int, ...], inside: dict[int, Span | None]
    ) -> Finding:
        since = now - int(quiet * 1e9)
        name = next((span.name for rank in waiting if (span := inside[rank]) is not None), None)
        where = next((span.name for rank in missing if (span := inside[rank]) is not None), None)
        step = max(self._step.values(), default=None)
        if waiting and missing:
            text = (
                f"hang at step {step} for {seconds(quiet)}: {_who(waiting)} waiting in {name}, "
                f"{_who(missing)} never arrived" + (f" (in {where})" if where else "")
            )
            blamed = missing
        elif waiting:
            text, blamed = f"hang at step {step} for {seconds(quiet)}: {_who(waiting)} waiting in {name}", ()
        else:
            text, blamed = (
                f"nothing has moved for {seconds(quiet)} since step {step}" + (f", in {where}" if where else ""),
                missing,
            )
        return Finding(
            "hang",
            "FATAL",
            text,
            step=step,
            last=step,
            ranks=tuple(blamed),
            span=name or where,
            value=quiet,
            cause="a rank is stuck outside the collective that the others wait in"
            if waiting and missing
            else "a deadlock, or a call that does not return",
            advice="Take a stack trace of the missing rank (py-spy dump).",
            time=since,
            weight=4.0,
        )


def _innermost(spans: dict[bytes, Span]) -> Span | None:
    """The open span that began last."""
    return max(spans.values(), key=lambda span: span.time, default=None)


def _who(ranks: tuple[int, ...]) -> str:
    named = ", ".join(str(rank) for rank in ranks[:6])
    return f"rank {named}" if len(ranks) == 1 else f"ranks {named}"
