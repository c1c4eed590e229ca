"""A hang: nobody makes progress; who waits in which span, and who never arrived."""

from dataclasses import replace
from typing import ClassVar

from stepscope.diagnosis.detector import RunState
from stepscope.diagnosis.finding import Finding, Kind, seconds
from stepscope.diagnosis.span_names import traits
from stepscope.model.records import Span

HANG = Kind(
    "hang",
    "FATAL",
    "a deadlock, or a call that does not return",
    "Take a stack trace of the missing rank (py-spy dump).",
    explains=("data_stall", "slow_span", "gpu_idle"),
    lasts=True,
)
SECONDS = 10.0
STEPS = 5.0
"""Nobody has moved for so many usual steps, or so many seconds, whichever is less."""
PATIENCE = 4.0
"""A span that may be long (an evaluation, a checkpoint) is waited for so many times its longest."""
FIRST_PATIENCE = 120.0
REPORT_SECONDS = 5.0
"""A rank reports in which span it is within so many seconds; who is missing is not told before."""


class Hang:
    """Watches who is silent: ranks that wait in an open span, and ranks that never arrived."""

    KINDS: ClassVar[tuple[Kind, ...]] = (HANG,)

    def __init__(self, run: RunState) -> None:
        self._run = run
        self._longest: dict[str, int] = {}
        self.restart()

    def restart(self) -> None:
        """A new attempt began: nobody waits, ended or died in it."""
        self._last: dict[int, int] = {}
        self._step: dict[int, int] = {}
        self._open: dict[int, dict[bytes, Span]] = {}
        self._gone: set[int] = set()
        self._judged = False
        """Whether nothing was reported since the last verdict."""
        self._told: Finding | None = None
        """The finding of the hang that goes on."""

    def moved(self, rank: int, time: int, step: int) -> None:
        """A rank made progress: it finished a span or recorded a value at a step."""
        if time > self._last.get(rank, 0):
            self._last[rank] = time
        if step > self._step.get(rank, step - 1):
            self._step[rank] = step
        self._judged, self._told = False, None

    def opened(self, rank: int, span: Span) -> None:
        """A span has been open for long."""
        self._open.setdefault(rank, {})[span.span_id] = span
        self._judged = False

    def closed(self, rank: int, span: Span) -> None:
        """A span has ended."""
        opened = self._open.get(rank)
        if opened:
            opened.pop(span.span_id, None)
        took = span.duration or 0
        if took > self._longest.get(span.name, 0):
            self._longest[span.name] = took

    def gone(self, rank: int) -> None:
        """A rank has ended or died: nobody waits for it."""
        self._gone.add(rank)

    def tick(self, now: int) -> tuple[Finding, ...]:
        """Judge silence: nobody has made progress for longer than ever before.

        A rank that reports late where it is may change who is missing: then the first finding is taken back.
        """
        found, told = self._hang(now), self._told
        if found is None or (told is not None and found.identity == told.identity):
            return ()
        self._told = found
        return (found,) if told is None else (replace(told, weight=-1.0), found)

    def _hang(self, now: int) -> Finding | None:
        usual = self._run.usual_step
        living = [rank for rank in self._last if rank not in self._gone]
        if not living or self._judged or usual <= 0:
            return None
        quiet = (now - max(self._last[rank] for rank in living)) / 1e9
        if quiet < max(min(SECONDS, STEPS * usual), 3 * usual, 1.0):
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
        self._judged = True
        return self._finding(now, quiet, waiting, missing, inside)

    def _patience(self, span: Span) -> float:
        about = traits(span.name)
        if about.waiting or not about.rare:
            return 0.0
        longest = self._longest.get(span.name)
        return PATIENCE * longest / 1e9 if longest is not None else FIRST_PATIENCE

    def _finding(
        self, now: int, quiet: float, waiting: tuple[int, ...], missing: tuple[int, ...], inside: dict[int, Span | None]
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
            cause=cause,
            weight=4.0,
        )


def _innermost(spans: dict[bytes, Span]) -> Span | None:
    """The open span that began last."""
    return max(spans.values(), key=lambda span: span.time, default=None)


def _who(ranks: tuple[int, ...]) -> str:
    named = ", ".join(str(rank) for rank in ranks[:6])
    return f"rank {named}" if len(ranks) == 1 else f"ranks {named}"
