"""Hang: no rank makes progress; which ranks wait in which span, and which never arrived."""

from dataclasses import replace
from typing import ClassVar, NamedTuple

from stepscope.diagnosis.detector import RunState, drop_rarest
from stepscope.diagnosis.finding import Finding, Kind, seconds
from stepscope.diagnosis.span_names import traits
from stepscope.model.records import Span

HANG = Kind(
    "hang",
    "FATAL",
    "a deadlock, or a call that does not return",
    "Take a stack trace of the missing rank (py-spy dump).",
    explains=("data_stall", "slow_span", "gpu_idle", "dead_rank", "crash"),
    lasts=True,
)
SECONDS = 10.0
STEPS = 5.0
"""No rank has made progress for this many median steps, or for `SECONDS`, whichever is less."""
PATIENCE = 4.0
"""A span that may be long (an evaluation, a checkpoint) may take this many times its longest duration."""
FIRST_PATIENCE = 120.0
REPORT_SECONDS = 5.0
"""A rank reports its open span within this many seconds; missing ranks are not named before."""

MOST_OPEN = 256
"""The most open spans of a rank; those that began first are dropped: they never end."""
MOST_NAMES = 1024


class _Opened(NamedTuple):
    """A span that has not ended."""

    time: int
    name: str


class Hang:
    """Watches for silence: ranks that wait in an open span, and ranks that never arrived."""

    KINDS: ClassVar[tuple[Kind, ...]] = (HANG,)

    def __init__(self, run: RunState) -> None:
        self._run = run
        self._longest: dict[str, int] = {}
        """The longest duration of spans that may be long, by name."""
        self.restart()

    def restart(self) -> None:
        """Start a new attempt: reset which ranks wait, ended or died."""
        self._last: dict[int, int] = {}
        self._step: dict[int, int] = {}
        self._open: dict[int, dict[bytes, _Opened]] = {}
        self._beats: dict[int, int] = {}
        self._gone: set[int] = set()
        self._evaluated = False
        """Whether nothing was received since the last evaluation."""
        self._reported: Finding | None = None
        """The finding about the current hang."""

    def moved(self, rank: int, time: int, step: int) -> None:
        """Record progress of a rank: a finished span, or a value at a step."""
        if time > self._last.get(rank, 0):
            self._last[rank] = time
        if step > self._step.get(rank, step - 1):
            self._step[rank] = step
        self._evaluated, self._reported = False, None

    def opened(self, rank: int, span: Span) -> None:
        """Record a span that has been open for long."""
        opened = self._open.setdefault(rank, {})
        opened[span.span_id] = _Opened(span.time, span.name)
        if len(opened) > MOST_OPEN:
            del opened[min(opened, key=lambda each: opened[each].time)]
        self._evaluated = False

    def closed(self, rank: int, span: Span) -> None:
        """Record the end of a span."""
        opened = self._open.get(rank)
        if opened:
            opened.pop(span.span_id, None)
        took = span.duration or 0
        if took > self._longest.get(span.name, 0) and traits(span.name).rare:
            drop_rarest(self._longest, MOST_NAMES, int)
            self._longest[span.name] = took

    def gone(self, rank: int) -> None:
        """Record that a rank has ended or died."""
        self._gone.add(rank)

    def beat(self, rank: int, time: int) -> tuple[Finding, ...]:
        """Record a heartbeat, and evaluate the time up to which all living ranks have written one.

        So a hang is found from the records alone, also when they are replayed.
        """
        self._beats[rank] = max(time, self._beats.get(rank, 0))
        living = [rank for rank in self._last if rank not in self._gone]
        return self.tick(min((self._beats.get(rank, 0) for rank in living), default=0))

    def tick(self, now: int) -> tuple[Finding, ...]:
        """Report a hang when no rank has made progress for longer than ever before.

        A late report of an open span may change which ranks are missing: the first finding is then withdrawn.
        """
        found, reported = self._hang(now), self._reported
        if found is None or (reported is not None and found.identity == reported.identity):
            return ()
        self._reported = found
        return (found,) if reported is None else (replace(reported, weight=-1.0), found)

    def _hang(self, now: int) -> Finding | None:
        usual = self._run.usual_step
        living = [rank for rank in self._last if rank not in self._gone]
        if not living or self._evaluated or usual <= 0:
            return None
        quiet = (now - max(self._last[rank] for rank in living)) / 1e9
        longest = max(min(SECONDS, STEPS * usual), 3 * usual, 1.0)
        if quiet < longest:
            return None
        inside = {rank: _innermost(self._open.get(rank, {})) for rank in living}
        if any(span is not None and quiet < self._patience(span) for span in inside.values()):
            return None
        if quiet < REPORT_SECONDS and None in inside.values():
            return None
        waiting = tuple(sorted(rank for rank, span in inside.items() if span is not None and traits(span.name).waiting))
        missing = tuple(rank for rank in sorted(living) if rank not in waiting)
        if not waiting and all(span is None for span in inside.values()) and quiet < 3 * SECONDS:
            return None
        self._evaluated = True
        return self._finding(now, quiet, longest, waiting, missing, inside)

    def _patience(self, span: _Opened) -> float:
        about = traits(span.name)
        if about.waiting or not about.rare:
            return 0.0
        longest = self._longest.get(span.name)
        return PATIENCE * longest / 1e9 if longest is not None else FIRST_PATIENCE

    def _finding(
        self,
        now: int,
        quiet: float,
        longest: float,
        waiting: tuple[int, ...],
        missing: tuple[int, ...],
        inside: dict[int, _Opened | None],
    ) -> Finding:
        name = next((span.name for rank in waiting if (span := inside[rank]) is not None), None)
        where = next((span.name for rank in missing if (span := inside[rank]) is not None), None)
        step = max(self._step.values(), default=None)
        there = f" (in {where})" if where else ""
        cause, blamed = "", missing
        if waiting and missing:
            text = f"{_who(waiting)} waiting in {name}, {_who(missing)} never arrived{there}"
            text = f"hang at step {step} for {seconds(quiet)}: {text}"
            cause = "a rank is stuck outside the collective that the others wait in"
        elif waiting:
            text, blamed = f"hang at step {step} for {seconds(quiet)}: {_who(waiting)} waiting in {name}", ()
        else:
            text = f"nothing has moved for {seconds(quiet)} since step {step}" + (f", in {where}" if where else "")
        return HANG.finding(
            text,
            now - int(quiet * 1e9),
            step=step,
            ranks=blamed,
            span=name or where,
            value=quiet,
            expected=(0.0, longest),
            cause=cause,
            weight=4.0,
        )


def _innermost(spans: dict[bytes, _Opened]) -> _Opened | None:
    """Return the open span that began last."""
    return max(spans.values(), key=lambda span: span.time, default=None)


def _who(ranks: tuple[int, ...]) -> str:
    named = ", ".join(str(rank) for rank in ranks[:6])
    return f"rank {named}" if len(ranks) == 1 else f"ranks {named}"
