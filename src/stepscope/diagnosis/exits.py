"""Exceptions, failed spans, exit records and killed processes, and whether they ended an attempt."""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from stepscope.diagnosis.ending import End, consequences, end_of, ranks_in_words, root_of
from stepscope.diagnosis.failure_classes import FailureClass, class_of
from stepscope.diagnosis.finding import Finding, Kind, on_ranks, seconds
from stepscope.diagnosis.restarts import NO_PROGRESS, STORM, SUSPECT, storm, stuck, suspects
from stepscope.model import names
from stepscope.model.records import Event, Log, Span
from stepscope.model.states import ending_of

CRASH = Kind(
    "crash",
    "FATAL",
    "the process ended with a failure",
    "Read the traceback of that rank in its log.",
    explains=("hang", "collective_mismatch", "new_error", "data_stall", "slow_span", "missing_steps", "straggler"),
    expects="every process to end with the status finished",
    next="stepscope tail RUN",
)
DEAD_RANK = Kind(
    "dead_rank",
    "FATAL",
    "the process was killed: out of memory, a signal, or the machine",
    "Check the kernel log and the scheduler of that machine.",
    explains=("hang", "collective_mismatch", "data_stall", "slow_span", "missing_steps", "straggler", "new_error"),
    rules_out="an orderly end: there is no exit record",
    next="stepscope tail RUN",
)
ERROR = Kind(
    "error",
    "ERROR",
    "an exception that the run survived",
    "Read the logs of that step.",
    explains=("new_error",),
    expects="no exception and no failed span",
    next="stepscope tail RUN",
)
_UNCAUGHT = "an exception that nothing caught"
_ENDED = "the launcher or scheduler ended the job: it was cancelled, preempted, or out of time"
_ENDED_ADVICE = "See the scheduler's record of the job; start it again from the last checkpoint."
_OOM_KILL, _TIME_LIMIT = "oom_kill event", "due to time limit"
_LIMIT = "slurm.job_end_time"
LIMIT_NS = 180_000_000_000
"""Slurm warns a job before its limit, and lets it end after it: at most by this time."""
WELL = ("finished", "preempted")
"""The statuses of a successful exit."""
MAX_FAILURES = 256
"""The most distinct failures; further ones are counted in one finding."""
MIN_PLACES, MAX_PLACES = 16, 16_384
"""The places that each failure keeps in any case, and those of all failures together; further ones are counted."""
MAX_THROWN = 4096
MAX_LINES = 16
"""The most lines of a failure that are kept of each rank."""
LONGEST = 400
"""The most characters of a failure that are compared."""
_DIGITS = re.compile(r"0x[0-9a-f]+|\d+", re.IGNORECASE)
_ERROR = 2
_FATAL = 21
Place = tuple[int, int, int | None]
"""An attempt, a rank and a step."""


@dataclass(slots=True)
class _Failure:
    """Failures with the same message: the first, their number and their places."""

    what: str
    span: str | None
    time: int
    attempt: int
    step: int | None
    rank: int
    places: dict[Place, int] = field(default_factory=dict)
    elsewhere: int = 0
    """Those at places that are not kept."""


@dataclass(slots=True)
class _Attempt:
    """The state of one attempt, by rank."""

    begun: int = 0
    """When its first process started."""
    limit: int = 0
    """When its scheduler was to end it; 0 if that is unknown."""
    first: int | None = None
    steps: dict[int, int] = field(default_factory=dict)
    ended: dict[int, tuple[str, int]] = field(default_factory=dict)
    """The status and time of exit records."""
    dead: dict[int, int] = field(default_factory=dict)
    exited: dict[int, tuple[int, Mapping[str, Any]]] = field(default_factory=dict)
    """What other processes saw of their ends."""
    thrown: dict[int, tuple[bool, str, int]] = field(default_factory=dict)
    """The exception of each rank that ended it, else its last one: whether it did, the text and the time."""
    printed: dict[int, list[tuple[int, str, FailureClass]]] = field(default_factory=dict)
    """Lines of a class that ranks printed, the first ones."""
    usual_step: float = 0.0
    """The median step time when the first of its processes died, in seconds."""
    hosts: dict[int, str] = field(default_factory=dict)
    """The machines of its ranks, as their starts say."""


class Exits:
    """Watches exceptions and process exits. Findings are computed on request."""

    KINDS: ClassVar[tuple[Kind, ...]] = (CRASH, DEAD_RANK, ERROR, NO_PROGRESS, STORM, SUSPECT)

    def __init__(self) -> None:
        self._attempts: dict[int, _Attempt] = {}
        self._failures: dict[tuple[str | None, str], _Failure] = {}
        self._thrown: set[Place] = set()
        self._places = 0
        self.changes = 0
        """Counts what may change the findings."""

    def moved(self, rank: int, attempt: int, step: int) -> None:
        """Record that a rank was active at a step."""
        known = self._attempts.get(attempt)
        if known is None:
            known = self._attempts[attempt] = _Attempt()
            self.changes += 1
        if known.first is None or step < known.first:
            known.first = step
        if step > known.steps.get(rank, step - 1):
            known.steps[rank] = step

    def died(self, rank: int, attempt: int, time: int, usual_step: float = 0.0) -> bool:
        """Record that a process is gone; False when that was known, or the process had an exit record."""
        known = self._attempts.setdefault(attempt, _Attempt())
        if rank in known.dead or rank in known.ended:
            return False
        known.dead[rank] = time
        known.usual_step = known.usual_step or usual_step
        self.changes += 1
        return True

    @property
    def ended(self) -> frozenset[tuple[int, int]]:
        """Return the attempts and ranks that have an exit record."""
        return frozenset((attempt, rank) for attempt, known in self._attempts.items() for rank in known.ended)

    def event(self, rank: int, attempt: int, event: Event, host: str = "") -> None:
        """Process an event: a start, an end or an exception."""
        if event.name == names.EVENT_STARTED:
            known = self._attempts.setdefault(attempt, _Attempt())
            known.begun = min(known.begun or event.time, event.time)
            known.hosts[rank] = host
            limit = event.attrs.get(_LIMIT)
            if isinstance(limit, str) and limit.isdecimal() and len(limit) < 12:
                known.limit = int(limit) * 1_000_000_000
        elif event.name == names.EVENT_FINISHED:
            known = self._attempts.setdefault(attempt, _Attempt())
            known.ended[rank] = ending_of(event.attrs.get("status", "finished")), event.time
            known.dead.pop(rank, None)
        elif event.name == names.EVENT_EXITED:
            self._attempts.setdefault(attempt, _Attempt()).exited[rank] = event.time, event.attrs
        elif event.name == names.EVENT_EXCEPTION:
            if len(self._thrown) < MAX_THROWN:
                self._thrown.update(((attempt, rank, event.step), (attempt, rank, None)))
            what = described(event.attrs)
            thrown = self._attempts.setdefault(attempt, _Attempt()).thrown
            fatal = event.severity >= _FATAL or bool(event.attrs.get("uncaught"))
            if fatal or not thrown.get(rank, (False,))[0]:
                thrown[rank] = fatal, what, event.time
            self._fail(None, what, rank, attempt, event.step, event.time)
        else:
            return
        self.changes += 1

    def line(self, rank: int, attempt: int, log: Log) -> None:
        """Process a line that a process printed; those that tell of a failure are kept."""
        if not isinstance(log.body, str) or (about := class_of(log.body)) is None:
            return
        lines = self._attempts.setdefault(attempt, _Attempt()).printed.setdefault(rank, [])
        if len(lines) < MAX_LINES:
            lines.append((log.time, log.body[:LONGEST], about))
            self.changes += 1

    def span(self, rank: int, attempt: int, span: Span) -> None:
        """Process a finished span."""
        if span.status == _ERROR:
            self._fail(span.name, span.message or "error", rank, attempt, span.step, span.time)
            self.changes += 1

    def _fail(self, span: str | None, what: str, rank: int, attempt: int, step: int | None, time: int) -> None:
        what = what[:LONGEST]
        pattern = span, _DIGITS.sub("#", what)
        if pattern not in self._failures and len(self._failures) >= MAX_FAILURES:
            pattern, what = (None, ""), "other failures"
        known = self._failures.get(pattern)
        if known is None:
            known = self._failures[pattern] = _Failure(what, span, time, attempt, step, rank)
        place = attempt, rank, step
        if place in known.places or len(known.places) < MIN_PLACES or self._places < MAX_PLACES:
            self._places += place not in known.places
            known.places[place] = known.places.get(place, 0) + 1
        else:
            known.elsewhere += 1

    def findings(self, newest: int, world: int) -> Iterator[Finding]:
        """Return one finding for each attempt that failed, and one for each failure that a run survived."""
        ended: dict[int, int] = {}
        for attempt in sorted(self._attempts):
            found = self._ending(attempt, newest, world)
            if found is not None:
                ended[attempt] = found.ranks[0]
                yield found
        for failure in self._failures.values():
            left = self._left(failure, ended)
            if left:
                yield _survived(failure, left, world)
        yield from self._restarts(ended)

    def _restarts(self, failed: Mapping[int, int]) -> Iterator[Finding]:
        """Judge the attempts together; `failed` has the rank that failed first in each."""
        if not failed:
            return
        last = max(self._attempts)
        reached = {number: max(known.steps.values()) for number, known in self._attempts.items() if known.steps}
        yield from stuck(reached, failed, self._attempts[last].begun)
        yield from storm(sorted(self._attempts[each].begun for each in failed if self._attempts[each].begun), last)
        places = {each: (self._attempts[each].hosts.get(rank, ""), rank) for each, rank in failed.items()}
        hosts = {host for known in self._attempts.values() for host in known.hosts.values()}
        yield from suspects(places, len(hosts), self._attempts[max(failed)].begun)

    def _left(self, failure: _Failure, ended: Collection[int]) -> dict[Place, int]:
        """Return where it failed without ending the attempt; a span's exception is reported once, as the exception."""
        reported = self._thrown if failure.span is not None else frozenset[Place]()
        return {
            place: count
            for place, count in failure.places.items()
            if place not in reported and (place[0], place[1], None) not in reported and place[0] not in ended
        }

    def _ending(self, attempt: int, newest: int, world: int) -> Finding | None:
        known = self._attempts[attempt]
        failures = [each for each in self._failures.values() if any(place[0] == attempt for place in each.places)]
        failures.sort(key=lambda each: (each.span is not None, each.time))
        ends = _ends(known, failures)
        if not ends:
            return None
        root = root_of(ends)
        words = {each.words for each in ends}
        besides = (f"{_failed(each)} on rank {each.rank}" for each in failures if _failed(each) not in words)
        symptoms = tuple([*consequences(ends, root), *besides][:16])
        if root[0].how in ("exception", "status"):
            return self._crash(attempt, known, root[0], symptoms)
        return self._dead_rank(attempt, known, root, symptoms, world)

    def _crash(self, attempt: int, known: _Attempt, root: End, symptoms: tuple[str, ...]) -> Finding:
        step = known.steps.get(root.rank)
        place = f" at step {step}" if step is not None else ""
        reason = f"with {root.words}" if root.how == "exception" else f"and reported {root.words}"
        about = root.failure
        return CRASH.finding(
            f"rank {root.rank} ended{place} {reason}{self._resumed(attempt, step)}",
            root.time,
            step=step,
            ranks=(root.rank,),
            span=root.span,
            severity="WARN" if about is not None and about.name == "user_cancelled" else None,
            cause=about.cause if about is not None else _UNCAUGHT if root.how == "exception" else "",
            advice=about.advice if about is not None else "",
            symptoms=symptoms,
            attempt=attempt,
            weight=3.0,
        )

    def _dead_rank(
        self, attempt: int, known: _Attempt, root: list[End], symptoms: tuple[str, ...], world: int
    ) -> Finding:
        first, ranks = root[0], tuple(sorted(each.rank for each in root))
        steps = [known.steps[rank] for rank in ranks if rank in known.steps]
        step = max(steps, default=None)
        place = f" at step {step}" if step is not None else ""
        everyone = len(ranks) > 1 and len(ranks) >= world
        who = "every rank" if everyone else ranks_in_words(ranks)
        were = "was" if everyone or len(ranks) == 1 else "were"
        did = "died without an exit record"
        if first.how == "signal":
            did = f"{were} {'ended' if first.follows else 'killed'} by {first.words}"
        pace = f"a step every {seconds(known.usual_step)}, or " if known.usual_step else ""
        about, said = _reason(known, root)
        return DEAD_RANK.finding(
            f"{who} {did}{place}{said}{self._resumed(attempt, step)}",
            _over(root),
            step=step,
            ranks=ranks,
            expects=f"{pace}an exit record when a process ends",
            severity="ERROR" if first.follows else None,
            cause=about.cause if about is not None else _ENDED if first.follows else "",
            advice=about.advice if about is not None else _ENDED_ADVICE if first.follows else "",
            symptoms=symptoms,
            attempt=attempt,
            weight=3.0,
        )

    def _resumed(self, attempt: int, step: int | None) -> str:
        later = sorted(number for number in self._attempts if number > attempt)
        begun = next((number for number in later if self._attempts[number].first is not None), None)
        if begun is None:
            return "; it was started again" if later else ""
        start = self._attempts[begun].first or 0
        repeats = step - start + 1 if step is not None else 0
        repeated = f", {repeats} step{'s' * (repeats > 1)} were repeated" if repeats > 0 else ""
        return f"; attempt {begun} resumed at step {start}{repeated}"


def _ends(known: _Attempt, failures: list[_Failure]) -> list[End]:
    """Return the ends of the processes that did not finish."""
    found = []
    for rank, (status, time) in known.ended.items():
        if status in WELL:
            continue
        thrown = known.thrown.get(rank)
        failed = next((each for each in failures if each.rank == rank), None)
        if thrown is not None:
            found.append(end_of(rank, thrown[2], "exception", thrown[1]))
        elif failed is not None:
            found.append(end_of(rank, failed.time, "exception", _failed(failed), failed.span))
        else:
            found.append(end_of(rank, time, "status", status))
    for rank in {*known.dead, *known.exited} - known.ended.keys():
        at, seen = known.exited.get(rank, (known.dead.get(rank, 0), {}))
        thrown, signal = known.thrown.get(rank), seen.get("signal")
        if thrown is not None and thrown[0]:  # it was killed while it ended
            found.append(end_of(rank, thrown[2], "exception", thrown[1]))
        elif signal:
            found.append(end_of(rank, at, "signal", str(signal)))
        elif rank in known.dead:
            found.append(end_of(rank, at, "vanished", "", seen=rank in known.exited))
    return found


def _over(root: list[End]) -> int:
    """Return when these processes had ended: of those that nobody saw end, one may have been silent long before."""
    unseen = all(each.how == "vanished" and not each.seen for each in root)
    return (max if unseen else min)(each.time for each in root)


def _reason(known: _Attempt, root: list[End]) -> tuple[FailureClass | None, str]:
    """Return the class of a death: by its signal, or by what the process printed before; and that line."""
    first = root[0]
    if first.follows and known.limit and abs(first.time - known.limit) < LIMIT_NS:
        return class_of(_TIME_LIMIT), ", when the time limit of the job was reached"
    for end in root:
        if known.exited.get(end.rank, (0, {}))[1].get("oom_kill"):
            return class_of(_OOM_KILL), ""
        lines = [each for each in known.printed.get(end.rank, ()) if each[2].role != "cascade"]
        if lines:
            return lines[0][2], f", after it printed: {lines[0][1][:160]}"
    return root[0].failure, ""


def described(attrs: Mapping[str, Any]) -> str:
    """Format an exception as one line."""
    kind = str(attrs.get("exception.type") or "").rpartition(".")[2]
    message = str(attrs.get("exception.message") or "")
    return " ".join(": ".join(part for part in (kind, message) if part)[:400].split())[:200] or "an exception"


def _failed(failure: _Failure) -> str:
    return f"{failure.span} failed: {failure.what}" if failure.span else failure.what


def _survived(failure: _Failure, places: Mapping[Place, int], world: int) -> Finding:
    """Return the finding of a failure that the run survived."""
    count = sum(places.values()) + failure.elsewhere
    ranks = tuple(sorted({rank for _, rank, _ in places}))
    steps = [step for _, _, step in places if step is not None]
    first = min(steps, default=None)
    place = f" at step {first}" if first is not None else ""
    more = f", {count} times in all" if count > 1 else ""
    return ERROR.finding(
        f"{_failed(failure)}{place}{on_ranks(ranks, world)}{more}",
        failure.time,
        step=first,
        last=max(steps, default=None),
        ranks=ranks,
        span=failure.span,
        attempt=min(attempt for attempt, _, _ in places),
        weight=float(count),
    )
