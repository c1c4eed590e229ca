"""Hang: no rank makes progress; which ranks wait in which span, and which never arrived."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import ClassVar, NamedTuple

from stepscope.diagnosis.detector import RunState, drop_rarest
from stepscope.diagnosis.ending import ranks_in_words
from stepscope.diagnosis.finding import Finding, Kind, seconds
from stepscope.diagnosis.rank_places import (
    Collective,
    Place,
    Position,
    behind,
    mismatched,
    odd_ones,
    position_of,
    silent,
    stacks_in_words,
)
from stepscope.diagnosis.span_names import traits
from stepscope.model.records import Event, Span

HANG = Kind(
    "hang",
    "FATAL",
    "a deadlock, or a call that does not return",
    "Take a stack trace of the missing rank (py-spy dump).",
    explains=("data_stall", "slow_span", "gpu_idle", "dead_rank", "crash"),
    lasts=True,
    rules_out="a slow step: nothing has moved for longer than any step took",
)
MISMATCH = Kind(
    "collective_mismatch",
    "FATAL",
    "ranks called different collectives at the same point: a branch that not all of them take, or different shapes",
    "Compare the lines below: make every rank call the same collectives in the same order, with the same sizes.",
    explains=("data_stall", "slow_span", "gpu_idle", "dead_rank", "crash", "hang"),
    lasts=True,
    rules_out="a slow network: the ranks are in different calls",
)
NO_STEP = Kind(
    "no_first_step",
    "ERROR",
    "the setup does not end: a download, a compilation, a rank that never joined, or a loader that gives no batch",
    "Look at the stacks of the processes (py-spy dump) and at the last lines they printed.",
    expects="a first step within 20 minutes",
    explains=("gpu_idle",),
    lasts=True,
    next="stepscope tail RUN",
)
MAX_SETUP_SECONDS = 1200.0
_LOOK_AT_STACKS = "Look at the stacks below: the rank that differs from the others is where to begin."
SECONDS = 10.0
STEPS = 5.0
"""No rank has made progress for this many median steps, or for `SECONDS`, whichever is less."""
PATIENCE = 4.0
"""A span that may be long (an evaluation, a checkpoint) may take this many times its longest duration."""
FIRST_PATIENCE = 120.0
REPORT_SECONDS = 5.0
"""A rank reports its open span within this many seconds; missing ranks are not named before."""
MIN_HANG_SECONDS = 60.0
"""A hang that ends by itself and was shorter is withdrawn: the span that took long is named."""
SILENT_NS = 15_000_000_000
MAX_OPEN = 256
"""The most open spans of a rank; those that began first are dropped: they never end."""
MAX_NAMES = 1024


class _Opened(NamedTuple):
    """A span that has not ended."""

    time: int
    name: str


class Hang:
    """Watches for silence: ranks that wait in an open span, and ranks that never arrived."""

    KINDS: ClassVar[tuple[Kind, ...]] = (HANG, MISMATCH, NO_STEP)

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
        self._positions: dict[int, Position] = {}
        self._gone: set[int] = set()
        self._evaluated = False
        """Whether nothing was received since the last evaluation."""
        self._reported: Finding | None = None
        """The finding about the current hang."""
        self._fatal: Finding | None = None
        """The last finding, until a later step is taken..."""
        self._over: Finding | None = None
        """... and what is left of it then."""
        self._is_loop = True
        """Whether steps are to be expected: what records values or spans without a step is no loop that is late."""

    def worked(self) -> None:
        """Record work that belongs to no step."""
        self._is_loop = False

    def moved(self, rank: int, time: int, step: int) -> None:
        """Record progress of a rank: a finished span, or a value at a step."""
        if time > self._last.get(rank, 0):
            self._last[rank] = time
        if step > self._step.get(rank, step - 1):
            self._step[rank] = step
        self._evaluated, self._reported = False, None
        fatal = self._fatal
        if fatal is not None and step > (fatal.step or 0) + 1:  # what hung may be the step after the last known one
            self._over, self._fatal = _ended(fatal, time), None

    def is_calm(self) -> bool:
        """Return whether no hang was reported that may be over."""
        return self._fatal is None

    def learn(self, rank: int, time: int, step: int, ended: Iterable[bytes]) -> None:
        """Record progress at several steps at once: the last time and step, and the spans that ended."""
        opened = self._open.get(rank)
        for each in ended if opened else ():
            opened.pop(each, None)  # type: ignore[union-attr]
        self.moved(rank, time, step)

    def opened(self, rank: int, span: Span) -> None:
        """Record a span that has been open for long."""
        opened = self._open.setdefault(rank, {})
        opened[span.span_id] = _Opened(span.time, span.name)
        if len(opened) > MAX_OPEN:
            del opened[min(opened, key=lambda each: opened[each].time)]
        self._evaluated = False

    def closed(self, rank: int, span: Span) -> None:
        """Record the end of a span."""
        opened = self._open.get(rank)
        if opened:
            opened.pop(span.span_id, None)
        took = span.duration or 0
        if took > self._longest.get(span.name, 0) and traits(span.name).rare:
            drop_rarest(self._longest, MAX_NAMES, int)
            self._longest[span.name] = took

    def positioned(self, rank: int, event: Event) -> tuple[Finding, ...]:
        """Record the report of a process that stands still, which is a sign of life too."""
        self._positions[rank] = position_of(event)
        self._evaluated = False
        if event.step is not None and event.step > self._step.get(rank, event.step - 1):
            self._step[rank] = event.step
        return self.beat(rank, event.time)

    def gone(self, rank: int) -> None:
        """Record that a rank has ended or died."""
        self._gone.add(rank)

    def beat(self, rank: int, time: int) -> tuple[Finding, ...]:
        """Record a heartbeat, and evaluate the time up to which all living ranks have written one.

        So a hang is found from the records alone, also when they are replayed. A rank that is stopped writes none, and
        is not waited for when others report that they stand still.
        """
        self._beats[rank] = max(time, self._beats.get(rank, 0))
        if not self._last:
            return self.tick(time)
        beats = [self._beats.get(rank, 0) for rank in self._last if rank not in self._gone]
        patience = 0 if any(each.time > max(self._last.values()) for each in self._positions.values()) else SILENT_NS
        return self.tick(max(min(beats), max(beats) - patience) if beats else 0)

    def tick(self, now: int) -> tuple[Finding, ...]:
        """Report a hang when no rank has made progress for longer than ever before.

        A late report of an open span may change which ranks are missing: the first finding is then withdrawn.
        """
        over, self._over = self._over, None
        if over is not None:
            return (over,)
        found, reported = self._hang(now) if self._last else self._setup(now), self._reported
        if found is None or (reported is not None and _same(found, reported)):
            return ()
        self._reported = found
        self._fatal = found if found.kind != NO_STEP.name else None
        if reported is None or found.identity == reported.identity:
            return (found,)
        return replace(reported, weight=-1.0), found

    def _setup(self, now: int) -> Finding | None:
        """Report a run of which no rank has taken a step."""
        took = (now - self._run.begun) / 1e9
        if self._run.attempt > 1 or not self._run.begun or took < MAX_SETUP_SECONDS or not self._is_loop or self._gone:
            return None
        text = f"no step has been recorded {seconds(MAX_SETUP_SECONDS)} after the start"
        return NO_STEP.finding(text, now, ranks=tuple(sorted(self._beats)), value=took)

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
        places = {rank: self._place(rank, inside[rank]) for rank in living}
        if quiet < REPORT_SECONDS and not all(place.known for place in places.values()):
            return None
        if quiet < 3 * SECONDS and not any(place.known for place in places.values()):
            return None
        self._evaluated = True
        return self._finding(now, quiet, longest, places)

    def _place(self, rank: int, span: "_Opened | None") -> Place:
        position = self._positions.get(rank)
        if position is not None and position.time < self._last.get(rank, 0):
            position = None  # it has moved since
        return Place(None if span is None else span.name, position)

    def _patience(self, span: "_Opened") -> float:
        about = traits(span.name)
        if about.waiting or not about.rare:
            return 0.0
        longest = self._longest.get(span.name)
        return PATIENCE * longest / 1e9 if longest is not None else FIRST_PATIENCE

    def _finding(self, now: int, quiet: float, longest: float, places: Mapping[int, Place]) -> Finding:
        step = max(self._step.values(), default=None)
        head = f"hang at step {step} for {seconds(quiet)}"
        different = mismatched(places)
        missing = _missing(places)
        waiting = tuple(rank for rank in sorted(places) if rank not in missing and places[rank].waits)
        span = next((each for rank in waiting or missing if (each := places[rank].span)), None)
        inside = next((places[rank].waits_in for rank in waiting), "")
        kind, blamed, cause = HANG, missing, ""
        if different:
            kind, blamed = MISMATCH, odd_ones(different) or tuple(sorted(places))
            text = f"{head}: {_differing(different)}"
            span = next((each for rank in blamed if (each := places[rank].span)), span)
        elif waiting and missing:
            text = f"{head}: {ranks_in_words(waiting)} waiting in {inside}, "
            text += f"{ranks_in_words(missing)} never arrived{self._about(missing, places, now)}"
            cause = "a rank is stuck outside the collective that the others wait in"
        elif waiting:
            text, blamed = f"{head}: {ranks_in_words(waiting)} waiting in {inside}", ()
            cause = "every rank is in the same collective: the network between them, or a rank that is not recorded"
        else:
            where = next((place.where for place in places.values() if place.where), "")
            text = f"nothing has moved for {seconds(quiet)} since step {step}" + (f", {where}" if where else "")
        return kind.finding(
            text,
            now - int(quiet * 1e9),
            step=step,
            ranks=blamed,
            span=span,
            value=quiet,
            expected=(0.0, longest),
            cause=cause,
            advice=_LOOK_AT_STACKS if any(place.position for place in places.values()) and kind is HANG else "",
            symptoms=tuple(stacks_in_words(places))[:8],
            weight=4.0,
        )

    def _about(self, missing: tuple[int, ...], places: Mapping[int, Place], now: int) -> str:
        """Describe where the missing ranks are."""
        where = next((place.where for rank in missing if (place := places[rank]).where), "")
        if where:
            return f" ({where})"
        latest = {rank: max(self._beats.get(rank, 0), self._last.get(rank, 0)) for rank in missing}
        gone = silent(latest, missing, now - int(REPORT_SECONDS * 1e9))
        return " (it reports nothing: stopped, or its machine is unreachable)" if gone == missing else ""


def _ended(reported: Finding, time: int) -> Finding:
    """Return what is left of a hang after a later step: nothing of a short one, which is a stall as others are."""
    lasted = (time - reported.time) / 1e9
    if lasted < MIN_HANG_SECONDS:
        return replace(reported, weight=-1.0)
    text = f"training stood still for {seconds(lasted)} at step {reported.step} and went on; then: {reported.text}"
    return replace(reported, text=text, severity="WARN", value=lasted)


def _innermost(spans: dict[bytes, _Opened]) -> _Opened | None:
    """Return the open span that began last."""
    return max(spans.values(), key=lambda span: span.time, default=None)


def _missing(places: Mapping[int, Place]) -> tuple[int, ...]:
    """Return the ranks that the others wait for."""
    outside = tuple(rank for rank in sorted(places) if not places[rank].waits)
    if outside and len(outside) < len(places):
        return outside
    if late := behind(places):
        return late
    if outside:
        odd = odd_ones({rank: place.position.stack for rank, place in places.items() if place.position is not None})
        return odd or outside
    return ()


def _differing(inside: Mapping[int, Collective]) -> str:
    """Describe collectives that do not fit together, the rarest first."""
    alike: dict[Collective, list[int]] = {}
    for rank in sorted(inside):
        alike.setdefault(inside[rank], []).append(rank)
    parts = sorted(alike.items(), key=lambda each: (len(each[1]), each[1]))
    return ", ".join(f"{ranks_in_words(ranks)} in {what.in_words()}" for what, ranks in parts)


def _same(found: Finding, reported: Finding) -> bool:
    """Return whether a finding says nothing new but how long it lasts."""
    return found.identity == reported.identity and found.symptoms == reported.symptoms
